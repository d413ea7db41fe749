# SPDX-License-Identifier: Apache-2.0
"""Scales of many parameters at once, by moving those together that do not see each other.

The effects of different groups meet in no row, so one difference of gradients along all of them
tells the curvature of each (graph colouring; Curtis, Powell & Reid 1974). Random probes over all
parameters are no good for that: a global parameter touches every row and drowns the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from pymc_sgcv.model.target import Target
from pymc_sgcv.setup.curvature import LONGEST, SHORTEST

FEW = 50
"""Variables with up to so many components are probed one component at a time."""
_ROUNDS = 5
_REPEATED = 0.3
"""Root mean square of what changes with the signs of moves, over that of what stays."""
_MOST_NUMBERS = 1 << 23
"""Numbers in the points of one call: 64 MB."""


def colours(target: Target) -> np.ndarray:
    """A number for each parameter; those with the same one are probed together.

    Long variables are taken together along their longest axis, which is that of the groups.
    """
    labels, first = np.empty(target.size, dtype=int), 0
    for p in target.parameters:
        size = p.stop - p.start
        own = np.arange(size)
        if size > FEW:
            axis = int(np.argmax(p.shape))
            rest = (*p.shape[:axis], 1, *p.shape[axis + 1 :])
            own = np.broadcast_to(np.arange(size // p.shape[axis]).reshape(rest), p.shape).ravel()
        labels[p.start : p.stop] = first + own
        first += own[-1] + 1
    return labels


def curvatures(
    gradient: Callable[[np.ndarray], np.ndarray],
    point: np.ndarray,
    labels: np.ndarray,
    width: np.ndarray,
    wanted: Iterable[int],
    rng: np.random.Generator,
) -> np.ndarray:
    """Curvature of −log density along each parameter with a `wanted` label, over ± `width`.

    NaN for the others.
    """
    found, signs = np.full(len(point), np.nan), rng.choice([-1.0, 1.0], len(point))
    wanted = list(wanted)
    at_once = max(1, _MOST_NUMBERS // (2 * len(point)))
    for first in range(0, len(wanted), at_once):
        part = wanted[first : first + at_once]
        moves = np.where(labels == np.array(part)[:, None], signs * width, 0.0)
        g = gradient(np.concatenate([point - moves, point + moves]))
        for label, change in zip(part, 0.5 * (g[: len(part)] - g[len(part) :]), strict=True):
            mine = labels == label
            found[mine] = (change * signs / width)[mine]
    return found


def meet(
    gradient: Callable[[np.ndarray], np.ndarray],
    point: np.ndarray,
    labels: np.ndarray,
    width: np.ndarray | float,
    rng: np.random.Generator,
) -> bool:
    """Whether parameters that would be probed together see each other after all.

    As coefficients of correlated predictors do, in every row. Then what is found along one of them
    depends on the signs of the others' moves.
    """
    width = np.broadcast_to(width, point.shape)
    many = np.flatnonzero(np.bincount(labels) > FEW)
    one, other = (curvatures(gradient, point, labels, width, many, rng) for _ in range(2))
    for label in many:
        mine = labels == label
        change, size = one[mine] - other[mine], 0.5 * (one[mine] + other[mine])
        if np.sqrt(np.mean(change**2)) > _REPEATED * np.sqrt(np.mean(size**2)):
            return True
    return False


def probed_scales(
    gradient: Callable[[np.ndarray], np.ndarray],
    point: np.ndarray,
    labels: np.ndarray,
    rng: np.random.Generator,
    start: np.ndarray | float = 1e-2,
) -> np.ndarray:
    """Conditional posterior standard deviation of each parameter at `point`.

    As `pymc_sgcv.setup.curvature.coordinate_scales`, by fixed-point rounds over all labels that
    still change.
    """
    u, wanted = np.array(np.broadcast_to(start, point.shape), dtype=float), np.unique(labels)
    for _ in range(_ROUNDS):
        curvature = curvatures(gradient, point, labels, u, wanted, rng) * u**2
        seen = np.isin(labels, wanted)
        with np.errstate(invalid="ignore"):
            grow = np.where(curvature > 0, 1 / np.sqrt(np.maximum(curvature, 1e-12)), 3.0)
        grow = np.where(np.isfinite(curvature), np.clip(grow, 1e-3, 10.0), 0.1)
        u[seen] = np.clip(u[seen] * grow[seen], SHORTEST, LONGEST)
        change = [np.median(np.abs(np.log(grow[labels == label]))) for label in wanted]
        wanted = wanted[np.array(change) > 0.2]
        if not len(wanted):
            break
    return u
