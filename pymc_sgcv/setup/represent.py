# SPDX-License-Identifier: Apache-2.0
"""Data too large to be looked at again and again: two passes, and a sample for all the rest.

The mean of the posterior depends on the sum of all gradients, to first order at one point; its
shape, the search and the minibatches do with rows that stand for others. So:

1. a center from a rough sample, plain or of a few partitions;
2. a first pass: the gradient of all rows there, and every row's influence on the posterior, by
   which rows are chosen (`pymc_sgcv.rows.sample`); Newton steps on these;
3. a second pass, where these end. What the gradient of all rows has more than that of the sample is
   added to the latter everywhere, as a linear function beside the prior: the *tilt*.

The sum of sample and tilt is a posterior like any other, and all that follows takes it for the
user's. It differs in its curvature, by the sample's error, so its mean is off by that error times
the way that the tilt has moved the center. If that is too much, there is a third pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from pymc_sgcv.errors import warn
from pymc_sgcv.rows.full_pass import LEAST_INFLUENCE, Scoring
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.rows.sample import WIDTH
from pymc_sgcv.setup.center import Center, center_at, center_near
from pymc_sgcv.setup.noise import around
from pymc_sgcv.setup.pilot import approach
from pymc_sgcv.setup.strata import influences

_PAIRS = 4
_MOST_PASSES = 4
_FEWEST = 100
"""Rows of a plate that are in the sample, or all it has, even if none of them says anything."""
_OFF = 0.03
"""Standard deviations that the mean may be off by because of the sample."""


def represent(
    problem: Problem,
    start: np.ndarray,
    given: Center | None,
    rng: np.random.Generator,
    dense: bool | None,
    report: Callable[[str, float], None],
) -> Center:
    """Choose the rows that stand for all, tilt them; the center there."""
    center = given or _search(problem, start, rng, dense, passes=3.0)
    if center.degree is not None and given is None:
        center = approach(problem, center, rng)
    report("first pass over the data", 0.0)
    whole, samples = problem.pass_over_all(
        center.theta, _scorings(problem, center, rng), partial(report, "first pass")
    )
    problem.take_samples(samples)
    problem.set_tilt(whole - _of_sample(problem, center.theta))
    if given is not None:
        here = center_at(problem, given.theta, given.factor, given.degree)
        near = here.distance * 2 * problem.layout.sample_error <= _OFF
        if near or given.degree is not None:  # scales of group effects are never at the mode
            return here
    moved = np.inf
    for number in range(2, _MOST_PASSES + 1):
        center = _search(problem, center.theta, rng, dense, passes=0.0, degree=center.degree)
        if not center.converged and center.degree is None:  # the first rows were unlike the rest
            center = _search(problem, center.theta, rng, dense, passes=3.0)
        report(f"pass {number} over the data", 0.0)
        again = _scorings(problem, center, rng) if _too_many(problem) and number == 2 else None
        before = _of_sample(problem, center.theta) + problem.layout.tilt
        whole, samples = problem.pass_over_all(
            center.theta, again, partial(report, f"pass {number}")
        )
        moved = _length(problem, center, whole - before)
        if samples:
            problem.take_samples(samples)
        if not center.converged and center.degree is None:  # this pass was not where it ends
            moved = max(moved, center.distance)
        problem.set_tilt(whole - _of_sample(problem, center.theta))
        if moved * 2 * problem.layout.sample_error <= _OFF:
            break
    else:
        warn(
            f"After {_MOST_PASSES} passes over the data the center still moves by {moved:.2g} "
            "posterior standard deviations: the posterior of a sample of the rows is too far from "
            'that of all. Pass population="disk" to draw minibatches from all rows.'
        )
    if given is not None:  # the rows are right for where the posterior is, the center stays
        return center_at(problem, given.theta, center.factor, given.degree)
    return _search(problem, center.theta, rng, dense, passes=0.0, degree=center.degree)


def _too_many(problem: Problem) -> bool:
    """Whether the sample is larger than the influences of d parameters can make it.

    Then the first center knew too little: where rows are sorted by a category that it had not seen,
    each of them seems to be the only evidence of one.
    """
    return problem.n_rows > WIDTH * problem.size / problem.wanted.influence


def tilt_at(
    problem: Problem, center: Center, rng: np.random.Generator, dense: bool | None
) -> Center:
    """Take the tilt at another center, of a higher mode; the center there."""
    whole, _ = problem.pass_over_all(center.theta)
    problem.set_tilt(whole - _of_sample(problem, center.theta))
    return _search(problem, center.theta, rng, dense, passes=0.0, degree=center.degree)


def _search(
    problem: Problem,
    theta: np.ndarray,
    rng: np.random.Generator,
    dense: bool | None,
    passes: float,
    degree: np.ndarray | None = None,
) -> Center:
    return center_near(problem, theta, rng, passes=passes, degree=degree, dense=dense, warns=False)


def _scorings(problem: Problem, center: Center, rng: np.random.Generator) -> list[Scoring]:
    """How each plate's rows are looked at, given what the rough sample says of their influence."""
    half = around(center, rng, _PAIRS) - center.position
    positions = np.concatenate(
        [center.position[None], center.position + half, center.position - half]
    )
    points = problem.coordinates(center.degree).place(positions)
    c = problem.wanted.influence
    rough = influences(problem, center, False, rng)
    found = []
    for scores, plate in zip(rough, problem.target.plates, strict=True):
        least = max(LEAST_INFLUENCE * float(scores.sum()), c * min(_FEWEST, plate.n_rows))
        found.append(Scoring(points, c, least / plate.n_rows))
    return found


def _of_sample(problem: Problem, theta: np.ndarray) -> np.ndarray:
    return problem.likelihood_gradient(theta[None])[0]


def _length(problem: Problem, center: Center, gradient: np.ndarray) -> float:
    """How far a change of the gradient moves the center, in posterior standard deviations."""
    coordinates = problem.coordinates(center.degree)
    turned = coordinates.turn(center.position[None], gradient[None])[0]
    return float(np.linalg.norm(center.factor.apply_transposed(turned)))
