# SPDX-License-Identifier: Apache-2.0
"""Parameters of the same group that the data see together: an item's slope and its difficulty.

Their correlation is one number for each group. A diagonal cannot hold it, nor can a few directions:
there are as many as groups. Moving one parameter of every group at once shows how the gradients of
the others change, group by group, as long as no two groups meet in a row. Whether they do shows
when the signs of the moves are drawn anew: what another group contributed is then another number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pymc_sgcv.kernel.low_rank import Blocks
from pymc_sgcv.model.target import Target
from pymc_sgcv.setup.probes import FEW, colours

_MOST = 6
"""Parameters of a group."""
_WIDTH = 0.3
_REPEATED = 0.3
"""Root mean square of what changes with the signs, over that of what stays."""
_WORTH = 0.1
"""Root mean square of correlations that are worth a block."""
_LEAST, _LARGEST = 0.05, 20.0


def linked(target: Target) -> list[np.ndarray]:
    """Sets of parameters with a component for each of equally many groups: (groups, parameters)."""
    labels = colours(target)
    by_length: dict[int, list[np.ndarray]] = {}
    for p in target.parameters:
        if p.stop - p.start > FEW:
            for label in np.unique(labels[p.start : p.stop]):
                members = np.flatnonzero(labels == label)
                by_length.setdefault(len(members), []).append(members)
    sets = (np.stack(columns, axis=1) for columns in by_length.values())
    return [members for members in sets if 1 < members.shape[1] <= _MOST and len(members) > 1]


def group_blocks(
    gradient: Callable[[np.ndarray], np.ndarray],
    points: np.ndarray,
    target: Target,
    scales: np.ndarray,
    rng: np.random.Generator,
) -> Blocks:
    """B of `pymc_sgcv.kernel.low_rank`, from the curvature in units of `scales` at `points`."""
    found = []
    for members in linked(target):
        first, second = (_curvature(gradient, points, members, scales, rng) for _ in range(2))
        hessian, change = 0.5 * (first + second), first - second
        size = np.sqrt(np.mean(hessian**2, axis=0))
        steady = np.sqrt(np.mean(change**2, axis=0)) < _REPEATED * size
        diagonal: np.ndarray = np.sqrt(np.maximum(np.einsum("gaa->ga", hessian), 1e-12))
        correlation = hessian / np.einsum("ga,gb->gab", diagonal, diagonal)
        worth = np.sqrt(np.mean(np.clip(correlation, -1, 1) ** 2, axis=0)) > _WORTH
        keep = (steady & worth) | np.eye(len(steady), dtype=bool)
        keep &= keep.T
        if keep.sum() > len(keep):
            values, vectors = np.linalg.eigh(np.where(keep, hessian, 0.0))
            roots = np.asarray(1 / np.sqrt(np.clip(values, _LEAST, _LARGEST)))
            corners = np.einsum("gak,gk,gbk->gab", vectors, roots, vectors)
            found.append((members, corners))
    return _of_one_size(found)


def _curvature(
    gradient: Callable[[np.ndarray], np.ndarray],
    points: np.ndarray,
    members: np.ndarray,
    scales: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """S H S within each group, symmetric: (groups, m, m), averaged over points."""
    groups, m = members.shape
    out = np.empty((groups, m, m))
    for a in range(m):
        move = np.zeros(len(scales))
        signs = np.where(rng.random(groups) < 0.5, -1.0, 1.0)
        move[members[:, a]] = _WIDTH * signs * scales[members[:, a]]
        g = gradient(np.concatenate([points - move, points + move]))
        change = scales * (g[: len(points)] - g[len(points) :]).mean(0) / (2 * _WIDTH)
        out[:, :, a] = change[members] * signs[:, None]
    return 0.5 * (out + out.transpose(0, 2, 1))


def _of_one_size(found: list[tuple[np.ndarray, np.ndarray]]) -> Blocks:
    """All blocks in one array: of several kinds of groups those with as many parameters as most."""
    if not found:
        return Blocks()
    m = max(found, key=lambda one: one[0].size)[0].shape[1]
    found = [(members, corners) for members, corners in found if members.shape[1] == m]
    members = np.concatenate([members for members, _ in found])
    return Blocks(members, np.concatenate([corners for _, corners in found]))
