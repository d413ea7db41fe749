# SPDX-License-Identifier: Apache-2.0
"""Parameters of one group that the data see together are found, and their curvature is exact."""

from types import SimpleNamespace

import numpy as np

from pymc_sgcv.setup.linked import group_blocks, linked
from pymc_sgcv.setup.probes import FEW

G = FEW + 10
SLOPE, LEVEL, OTHER = (slice(k * G, (k + 1) * G) for k in range(3))
D = 3 * G + 1
_rng = np.random.default_rng(7)


def target():
    names = ("slope", "level", "other", "sigma")
    shapes, start, parameters = ((G,), (G,), (G,), ()), 0, []
    for name, shape in zip(names, shapes, strict=True):
        stop = start + int(np.prod(shape))
        parameters.append(SimpleNamespace(name=name, shape=shape, start=start, stop=stop))
        start = stop
    return SimpleNamespace(parameters=parameters, size=D)


def hessian(crossed):
    """Slope and level of a group are correlated by 0.8; the other effects with neither.

    If `crossed`, every group of the others meets every group of the former in some rows.
    """
    H = np.eye(D)
    H[range(G), range(G, 2 * G)] = H[range(G, 2 * G), range(G)] = 0.8
    if crossed:
        meet = 0.3 / np.sqrt(G) * _rng.normal(size=(G, G))
        H[OTHER, LEVEL] = meet
        H[LEVEL, OTHER] = meet.T
    return H


def blocks_of(H):
    points = _rng.normal(size=(2, D))
    return group_blocks(lambda x: -x @ H, points, target(), np.ones(D), np.random.default_rng(3))


def test_variables_of_equal_length_are_candidates():
    [members] = linked(target())
    np.testing.assert_array_equal(members[4], [4, G + 4, 2 * G + 4])


def test_blocks_whiten_what_is_linked_and_leave_the_rest():
    for crossed in (False, True):
        blocks = blocks_of(hessian(crossed))
        white = np.linalg.inv([[1.0, 0.8], [0.8, 1.0]])
        for members, corner in zip(blocks.members, blocks.corners, strict=True):
            pair = [0, 1]
            np.testing.assert_array_equal(members, members[0] + G * np.arange(3))
            np.testing.assert_allclose(
                (corner @ corner)[np.ix_(pair, pair)], white, rtol=1e-6, atol=1e-6
            )
            np.testing.assert_allclose(corner[2], [0.0, 0.0, 1.0], atol=1e-6)


def test_without_correlation_there_are_no_blocks():
    assert not len(blocks_of(np.eye(D)).members)
