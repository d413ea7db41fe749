# SPDX-License-Identifier: Apache-2.0
"""L-BFGS for a density of which only the gradient is known (Nocedal & Wright 2006, chapter 7)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_MEMORY = 10
_EVALUATIONS = 150
_NEAR = 0.01
"""Steps stop at this distance from the mode per direction, in standard deviations."""
_FIRST = 0.3
"""The first step is this part of what the scales alone suggest: they see no correlations."""
_OVERSHOT = 0.9
"""A step is shortened if the slope along it comes out this much reversed."""
_SHORTER, _TRIES = 0.4, 8


def climb(
    gradient: Callable[[np.ndarray], np.ndarray], point: np.ndarray, scales: np.ndarray
) -> np.ndarray:
    """Where quasi-Newton steps uphill from `point` end; `scales` are those of coordinates."""
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    g, evaluations = gradient(point), 1
    while evaluations < _EVALUATIONS:
        direction = _direction(g, pairs, scales)
        slope = g @ direction
        if not slope > _NEAR**2 * len(point):
            break
        length = 1.0
        for _ in range(_TRIES):
            there = point + length * direction
            g_there = gradient(there)
            evaluations += 1
            if np.isfinite(g_there).all() and g_there @ direction > -_OVERSHOT * slope:
                break
            length *= _SHORTER
        else:
            break
        step, change = there - point, g - g_there
        if step @ change > 0:  # curved the right way
            pairs = [*pairs, (step, change)][-_MEMORY:]
        point, g = there, g_there
    return point


def _direction(g: np.ndarray, pairs: list, scales: np.ndarray) -> np.ndarray:
    """The gradient times the inverse Hessian that belongs to the last steps (two loops)."""
    q, kept = g.copy(), []
    for step, change in reversed(pairs):
        along = (step @ q) / (step @ change)
        q -= along * change
        kept.append(along)
    size = _FIRST
    if pairs:
        step, change = pairs[-1]
        size = (step @ change) / (change @ (scales**2 * change))
    out = size * scales**2 * q
    for (step, change), along in zip(pairs, reversed(kept), strict=True):
        out += step * (along - (change @ out) / (step @ change))
    return out
