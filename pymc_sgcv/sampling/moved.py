# SPDX-License-Identifier: Apache-2.0
"""The plan of a run for more or other rows of the same model: two passes over them, no search.

With N rows then and N′ now, the posterior is about √(N/N′) times as wide, and its mean is where
the gradient of the old rows at the old mean is found again: one Newton step from there, by the
change of the gradient that the new rows make. What that step leaves over says if it was enough.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_sgcv.engine.blas import one_blas_thread
from pymc_sgcv.errors import warn
from pymc_sgcv.kernel.estimators import STANDARD
from pymc_sgcv.kernel.preconditioners import Preconditioner
from pymc_sgcv.rows.coordinates import Coordinates
from pymc_sgcv.rows.finite import refuse_infinite_rows
from pymc_sgcv.rows.layout import Layout
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.sampling.arguments import Asked
from pymc_sgcv.setup.center import Center
from pymc_sgcv.setup.plan import Plan
from pymc_sgcv.setup.search import near_enough, refuse_infinite_gradient
from pymc_sgcv.setup.strata import influences, stratify
from pymc_sgcv.steps.base import StochasticGradientStep

_log = logging.getLogger("pymc.sgcv")


def layout_of(layout: Layout, n_rows: list[int]) -> Layout:
    """As many of other rows, drawn uniformly: strata, if there were any, are found anew."""
    sizes, left = [], list(layout.batch_sizes)
    for n, labels in zip(n_rows, layout.strata, strict=True):
        count = 1 if labels is None else int(labels.max()) + 1
        sizes.append(min(n, sum(left[:count])))
        left = left[count:]
    if layout.weighted:
        _log.info("Row weights of the earlier run do not fit the new rows: they are uniform now.")
    none = (None,) * len(sizes)
    return Layout(layout.subsampling, tuple(sizes), none, none)


def move(step: StochasticGradientStep, earlier: Mapping[str, Any]) -> None:
    """Let a step method whose plan has the old center adopt one for its own rows."""
    problem, plan = step.problem, step.plan
    refuse_infinite_rows(problem.target, problem._full)
    more = problem.n_rows / sum(earlier["rows"])
    if plan.center is None:
        return
    began = time.perf_counter()
    with one_blas_thread():
        plan = _moved(step, plan, more)
        if any(labels is not None for labels in earlier["plan"].layout.strata):
            assert plan.center is not None  # `_moved` has put it there
            plain, rng = plan.method.estimator == STANDARD, np.random.default_rng(0)
            stratify(problem, influences(problem, plan.center, plain, rng), keeps_size=True)
            plan = replace(plan, layout=problem.layout)
    plan = replace(plan, seconds=time.perf_counter() - began)
    step.adopt(plan)
    _log.info("%s, on other rows: %s", type(step).__name__, plan.summary())


def _moved(step: StochasticGradientStep, plan: Plan, more: float) -> Plan:
    problem, old = step.problem, plan.center
    assert old is not None  # `move` has looked
    coordinates = problem.coordinates(old.degree)
    narrower = np.full(problem.size, more**-0.5)
    factor = old.factor.scaled(narrower)
    start = old.position if old.position.size else old.theta
    slope = coordinates.pull(start, old.gradient)
    change = coordinates.pull(start, problem.gradient(old.theta[None])[0]) - slope
    white = factor.apply_transposed(change)
    center = _center_at(problem, coordinates, start + factor.apply(white), factor)
    left = coordinates.pull(center.position, center.gradient) - slope
    over = float(np.linalg.norm(factor.apply_transposed(left)))
    _warn_if_too_far(float(np.linalg.norm(white)), over, problem.size)
    ours = isinstance(step.settings.preconditioner, str)
    method = replace(
        plan.method,
        factor=plan.method.factor.scaled(narrower) if ours else plan.method.factor,
        center=center.theta,
        constant=center.likelihood_gradient,
        refresh=max(1, round(plan.method.refresh * more)) if plan.method.refresh else 0,
    )
    step_size, thin = plan.step_size, plan.thin
    if step.settings.automatic and plan.method.estimator == STANDARD and more > 1:
        # its noise grows with the rows
        assert not callable(step_size)
        step_size, thin = step_size / more, round(thin * more)
    tuning = plan.tuning and replace(plan.tuning, factor=plan.tuning.factor.scaled(narrower))
    return replace(
        plan, method=method, center=center, tuning=tuning, step_size=step_size, thin=thin
    )


def _center_at(
    problem: Problem, coordinates: Coordinates, position: np.ndarray, factor: Preconditioner
) -> Center:
    """The center at a position, with one pass over the rows."""
    theta = coordinates.place(position)
    likelihood = problem.likelihood_gradient(theta[None])[0]
    gradient = likelihood + problem.prior_gradient(theta[None])[0]
    refuse_infinite_gradient(problem.target, gradient)
    white = factor.apply_transposed(coordinates.pull(position, gradient))
    distance = float(np.linalg.norm(white))
    return Center(
        point=problem.constrained(theta),
        theta=theta,
        gradient=gradient,
        likelihood_gradient=likelihood,
        factor=factor,
        distance=distance,
        passes=2.0,
        converged=distance <= near_enough(problem.size),
        position=position,
        degree=coordinates.degree,
    )


def _warn_if_too_far(moved: float, left: float, size: int) -> None:
    if left > near_enough(size):
        warn(
            f"On these rows the posterior mean has moved by {moved:.1f} of its standard deviations "
            f"({size} parameters), and {left:.1f} remain between it and the corrected center: too "
            "far for what the earlier run knew. Sample anew, without continue_from."
        )


def refuse_given_weights(asked: Asked, settings: Any) -> None:
    """Weights of rows that were given belong to the rows that they were given for."""
    if asked.step is None and isinstance(settings.weights, np.ndarray | Mapping):
        raise ValueError("The earlier run had weights for its rows: give a step for the new ones.")
