# SPDX-License-Identifier: Apache-2.0
"""Look for a second mode before sampling: chains around one center would never find it.

Further searches start elsewhere. Along the straight line from the center to where such a search
ends the log posterior is the integral of the gradient's component along it. Where the posterior has
one mode it only falls; if it falls and rises again, there is a valley, and a hill behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_sgcv.errors import warn
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center, center_near
from pymc_sgcv.setup.centring import scale_parameters

_POINTS, _FINE = 15, 61
"""Points on a line that show a valley, and that tell how high a hill behind it is."""
_SPREAD = 2.0
"""Half-width of the uniform spread of further starts, on the unconstrained scale."""
_VALLEY = 2.0
"""A valley must be this deep, in units of log density, below the lower one of its hills."""
_RELEVANT = 20.0
"""A hill lower than the center by more than this holds no mass worth mentioning."""
_MASS = 8.0
"""The same for a hill's mass, as far as its widths are known: one of 3000, or some more."""
_UNSURE = 0.1
"""Error of the logarithm of a width, of all parameters on average, where these are many."""
_MOVES = 2
_SOME_ROWS, _ROWS_EACH = 5000, 100
"""Rows that tell whether there may be a valley: of all in the data, and for each parameter."""


@dataclass(frozen=True)
class Line:
    """The log density along a line: at its end, minus that at its start; and the dip between."""

    height: float
    depth: float


def highest_center(problem: Problem, center: Center, rng: np.random.Generator) -> Center:
    """The center, or a higher one that further searches find; other modes are warned about.

    All searches are made before the highest of the modes is taken: there may be three. A center
    that can be left by climbing alone was no mode: a search may rest on a saddle.
    """
    for _ in range(_MOVES):
        modes, higher = [center], None
        for start in _starts(problem, center, rng):
            other = _search(problem, center, start, rng)
            if other is None:
                continue
            line = between(problem, center, other)
            if line.depth > _VALLEY and line.height > -_RELEVANT:
                modes += [other] if _is_new(problem, modes[1:], other) else []
            if line.depth <= _VALLEY and line.height > _VALLEY:
                higher = other
        if len(modes) > 1:
            return _highest(problem, modes)
        if higher is None:
            return center
        center = higher
    return center


def _is_new(problem: Problem, modes: list[Center], other: Center) -> bool:
    """Whether there is a valley between `other` and every one of the modes."""
    return all(between(problem, mode, other).depth > _VALLEY for mode in modes)


def _highest(problem: Problem, modes: list[Center]) -> Center:
    """The highest of several modes; the others are warned about, but for those without mass."""
    lines = [between(problem, modes[0], other, points=_FINE) for other in modes[1:]]
    heights = [0.0, *(line.height for line in lines)]
    masses = [_mass(modes[0], *pair) for pair in zip(modes, heights, strict=True)]
    best = int(np.argmax(np.where(np.array(masses) > -_MASS, heights, -np.inf)))
    for i, other in enumerate(modes):
        lower = heights[i] - heights[best]
        if i != best and lower > -_RELEVANT and _mass(modes[best], other, lower) > -_MASS:
            _warn(problem, modes[best], other, lower)
    return modes[best]


def _mass(here: Center, there: Center, height: float) -> float:
    """The logarithm of the mass of a hill of this height over that of the hill `here`.

    By their widths. Where these are known of single parameters only, widths count if they are much
    smaller there, as those of a thousand effects are where their scale has collapsed: a spike.
    """
    widths = float(np.log(here.factor.ratios(there.factor)).sum())
    if not (here.factor.complete and there.factor.complete):
        widths = min(0.0, widths + _UNSURE * here.factor.size)
    return height + widths


def _starts(problem: Problem, center: Center, rng: np.random.Generator) -> list[np.ndarray]:
    """Two random starts, and mirror images of the center: signs are the commonest symmetry.

    About the initial point and about zero: the user may have put the former into one of the modes.
    """
    usual = problem.target.flatten(problem.target.start)
    mirrored = [2 * usual - center.theta] + ([-center.theta] if usual.any() else [])
    starts = [*mirrored, *(usual + rng.uniform(-_SPREAD, _SPREAD, (2, problem.size)))]
    held = scale_parameters(problem.coordinates(center.degree), problem.size)
    return [np.where(held, center.theta, start) for start in starts]


def _search(
    problem: Problem, center: Center, start: np.ndarray, rng: np.random.Generator
) -> Center | None:
    """Where a search from `start` ends if it is another place; polished only in that case."""
    try:
        factor, degree = center.factor, center.degree
        rough = center_near(
            problem, start, rng, passes=1.0, polish=False, factor=factor, degree=degree
        )
        some = min(1.0, max(_SOME_ROWS, _ROWS_EACH * problem.size) / problem.n_rows)
        line = between(problem, center, rough, some)
        if not (line.depth > _VALLEY or line.height > _VALLEY):
            return None
        dense = center.factor.name == "dense"
        return center_near(
            problem, rough.theta, rng, passes=0.0, degree=degree, dense=dense, warns=False
        )
    except (ValueError, FloatingPointError, np.linalg.LinAlgError):
        return None  # a start outside the support: nothing was found there


def between(
    problem: Problem,
    center: Center,
    other: Center,
    fraction: float = 1.0,
    points: int = _POINTS,
) -> Line:
    """The log density of φ on the way from one center to another, by Gauss–Legendre quadrature.

    A fraction of the rows and few points are enough to see whether there may be a valley.
    """
    t, weights = np.polynomial.legendre.leggauss(points)
    t, weights = (t + 1) / 2, weights / 2
    way = other.position - center.position
    places, coordinates = center.position + t[:, None] * way, problem.coordinates(center.degree)
    slopes = problem.gradient_in(coordinates, places, fraction) @ way
    if not np.isfinite(slopes).all():
        return Line(-np.inf, 0.0)
    climb = np.cumsum(weights * slopes)
    return Line(float(climb[-1]), float(min(0.0, climb[-1]) - climb.min()))


def _warn(problem: Problem, here: Center, there: Center, height: float) -> None:
    worst = int(np.argmax(np.abs(there.theta - here.theta) / here.factor.spread()))
    warn(
        "The posterior has another mode: "
        f"{problem.target.describe(worst)} is {here.theta[worst]:.3g} at the center and "
        f"{there.theta[worst]:.3g} there (unconstrained), where the log density is "
        f"{abs(height):.1f} lower. Chains around one center do not visit both: constrain the "
        "model (an order, a sign, a narrower prior), or pass center=... to sample around the mode "
        "that you want."
    )
