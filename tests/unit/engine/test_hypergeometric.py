# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

from pymc_sgcv.engine.hypergeometric import SeriesGradient, without_logarithms


@pytest.fixture(scope="module")
def functions():
    """The derivatives by a, b and c: PyTensor's own, and those of the series without logarithms."""
    a, b, c, z = inputs = pt.dvectors("a", "b", "c", "z")
    theirs = pt.stack(pt.grad(pt.hyp2f1(a, b, c, z).sum(), [a, b, c]))
    ours = without_logarithms(theirs)
    kinds = [getattr(getattr(v.owner, "op", None), "scalar_op", None) for v in ancestors([ours])]
    assert any(isinstance(kind, SeriesGradient) for kind in kinds)
    modes = {"theirs": (theirs, "FAST_COMPILE"), "ours": (ours, "FAST_COMPILE")}
    modes["compiled"] = (ours, "NUMBA")
    return {k: pytensor.function(inputs, graph, mode=mode) for k, (graph, mode) in modes.items()}


@pytest.mark.parametrize("which", ["ours", "compiled"])
def test_derivatives_are_pytensors_own(functions, which):
    rng = np.random.default_rng(1)
    a, b, c = rng.uniform(0.1, 12, (3, 40))
    z = rng.uniform(0.0, 0.9, 40)  # below zero terms cancel, and each has errors of its own
    right = functions["theirs"](a, b, c, z)
    np.testing.assert_allclose(functions[which](a, b, c, z), right, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "point",
    [(2.0, 3.0, 4.0, 0.0), (-2.0, 3.0, 4.5, 0.5), (2.0, 3.0, 4.0, 1.5)],
    ids=["zero", "polynomial", "beyond one"],
)
def test_what_has_no_series_is_as_pytensor_has_it(functions, point):
    at = [np.array([x]) for x in point]
    np.testing.assert_allclose(functions["ours"](*at), functions["theirs"](*at), equal_nan=True)
