# SPDX-License-Identifier: Apache-2.0
"""Find the centering point θ̂ of the control variate and what is known about the posterior there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pymc_sgcv.engine.blas import one_blas_thread
from pymc_sgcv.engine.progress import listening
from pymc_sgcv.errors import warn
from pymc_sgcv.kernel.preconditioners import Preconditioner, from_array
from pymc_sgcv.model.start import initial_point
from pymc_sgcv.model.target import Target
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.search import OPTIMIZERS, Search, near_enough


@dataclass(frozen=True)
class Center:
    """A point near the posterior mode, with the full-data gradient there.

    Attributes
    ----------
    point
        θ̂ by variable name, on the model's own scale.
    theta
        θ̂ as the flat vector of unconstrained value variables.
    gradient
        Gradient of the log posterior over all the data at θ̂, on the unconstrained scale.
    likelihood_gradient
        The part of `gradient` that comes from the subsampled likelihoods.
    factor
        F with FFᵀ the approximate posterior covariance at θ̂, in the coordinates that chains move
        in; ``np.asarray`` of it is a (d, d) matrix.
    distance
        The Newton decrement √(gᵀ FFᵀ g): how far θ̂ is from the mode in posterior standard
        deviations. The paper's cost is independent of N while this is of order 1.
    passes
        How many times the data were read to find θ̂.
    converged
        Whether `distance` is small: at most 0.3 √d, or 1.
    position, degree
        θ̂ in those coordinates, and how far group effects are centred there; None without any.
    exponents, follows
        By how much the control variate follows each parameter, None for not at all
        (`pymc_sgcv.kernel.estimators.control_variate`), and whether it follows the scales of group
        effects (`pymc_sgcv.kernel.frame`).
    """

    point: dict[str, np.ndarray]
    theta: np.ndarray = field(repr=False)
    gradient: np.ndarray = field(repr=False)
    likelihood_gradient: np.ndarray = field(repr=False)
    factor: Preconditioner = field(repr=False)
    distance: float
    passes: float
    converged: bool
    position: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0))
    degree: np.ndarray | None = field(repr=False, default=None)
    exponents: np.ndarray | None = field(repr=False, default=None)
    follows: bool = field(repr=False, default=False)

    def __post_init__(self) -> None:
        if isinstance(self.factor, np.ndarray):  # as users write it
            object.__setattr__(self, "factor", from_array(self.factor))


def center_near(
    problem: Problem,
    theta: np.ndarray,
    rng: np.random.Generator,
    method: str = "adam",
    step_size: float | None = None,
    passes: float = 3.0,
    *,
    polish: bool = True,
    progressbar: bool = False,
    factor: Preconditioner | None = None,
    degree: np.ndarray | None = None,
    dense: bool | None = None,
    warns: bool = True,
) -> Center:
    """`find_center` for a problem that is already compiled, from the flat point `theta`.

    A `factor` from elsewhere, for the same `degree`, spares the curvature where it is not polished.
    """
    with one_blas_thread(), progress(progressbar) as report:
        search = Search(problem, theta, rng, report, degree=degree, dense=dense)
        search.factor = factor
        if passes > 0:
            search.ascend(OPTIMIZERS[method], step_size, passes)
        if polish:
            search.newton()
        center = _finish(search)
    if polish and warns and not search.held.any():
        warn_if_off(center)
    return center


def warn_if_off(center: Center) -> None:
    """Say so if the search has not come near the mode."""
    if not center.converged:
        warn(
            f"The centering point is {center.distance:.1f} posterior standard deviations (Newton "
            f"decrement, {len(center.theta)} parameters) from the mode: the control variate will "
            "be noisy. Give better starting values, more passes to find_center, or check that the "
            "posterior has one mode and no flat directions.",
        )


def center_at(
    problem: Problem,
    theta: np.ndarray,
    factor: Preconditioner | None = None,
    degree: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    dense: bool | None = None,
) -> Center:
    """The Center at a given point: full gradient and curvature there, no search.

    `scales` are a guess of the standard deviations, where there is no `factor`.
    """
    with one_blas_thread():
        rng = np.random.default_rng(0)
        search = Search(problem, theta, rng, lambda *_: None, True, degree, dense)
        search.factor = factor
        if scales is not None:
            search.scales = scales
        return _finish(search)


def given_center(problem: Problem, center: Center | Mapping[str, ArrayLike]) -> Center:
    """The user's center with the gradient of the present data; an error if it does not fit."""
    if isinstance(center, Mapping):
        if not center:
            names = [p.rv_name for p in problem.target.parameters]
            raise ValueError(f"center is empty: give values of {names}, or leave center out.")
        return center_at(problem, unconstrained(problem.target, center))
    if not isinstance(center, Center):
        raise TypeError(
            "center must be a Center from find_center or a dict of values by variable name, not "
            f"{type(center).__name__}."
        )
    target = problem.target
    expected = {k: v.shape for k, v in problem.constrained(target.flatten(target.start)).items()}
    if {k: np.shape(v) for k, v in center.point.items()} != expected:
        raise ValueError(
            f"center has the variables {sorted(center.point)}, the model {sorted(expected)}, or "
            "their shapes differ: it belongs to another model."
        )
    theta = unconstrained(target, center.point)
    if not np.allclose(theta, center.theta, rtol=1e-6, atol=1e-6):  # of other transforms
        return center_at(problem, theta)
    return center_at(problem, center.theta, center.factor, center.degree)


def unconstrained(
    target: Target, point: Mapping[str, ArrayLike], what: str = "center"
) -> np.ndarray:
    """The flat θ of values by variable name on the model's own scale, the rest at their start."""
    if not point:
        return target.flatten(target.start)
    model = target.model
    known = {rv.name for rv in model.free_RVs}
    unknown = sorted(set(point) - known)
    if unknown:
        raise ValueError(
            f"{what} names {unknown}, which are not free variables of the model: {sorted(known)}."
        )
    usual, overrides = initial_point(model, unconstrained=False), {}
    for name, value in point.items():
        try:
            overrides[name] = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            raise TypeError(
                f"{what} gives '{name}' a value that is no number: {value!r}."
            ) from None
        if overrides[name].shape != usual[name].shape:
            raise ValueError(
                f"{what} gives '{name}' the shape {overrides[name].shape}, but it has "
                f"{usual[name].shape}."
            )
        if not np.isfinite(overrides[name]).all():
            raise ValueError(f"{what} holds values of '{name}' that are not finite.")
    with np.errstate(all="ignore"):
        theta = target.flatten(initial_point(model, overrides))
    if not np.isfinite(theta).all():
        name = target.describe(int(np.argmax(~np.isfinite(theta))))
        raise ValueError(f"{what} is outside the support of the prior: {name} is not finite.")
    return theta


def _finish(search: Search) -> Center:
    """Full gradient and curvature where the search ended."""
    problem, theta = search.problem, search.theta
    if search.factor is None:
        search.factor = search.covariance_factor()
    likelihood = problem.likelihood_gradient(theta[None])[0]
    gradient = likelihood + problem.prior_gradient(theta[None])[0]
    distance = search.distance(search.coordinates.pull(search.position, gradient))
    if not np.isfinite(distance):
        raise ValueError(
            "The search for a center ended where the gradient or the curvature of the log "
            "posterior is not finite. Give better starting values (initval=... in the model), or "
            "center=... by variable name."
        )
    search.report("done", 1.0)
    return Center(
        point=problem.constrained(theta),
        theta=theta,
        gradient=gradient,
        likelihood_gradient=likelihood,
        factor=search.factor,
        distance=distance,
        passes=round(search.passes + 1, 2),
        converged=bool(distance <= near_enough(problem.size)),
        position=search.position,
        degree=search.coordinates.degree,
    )


@contextmanager
def progress(show: bool) -> Iterator[Callable[[str, float], None]]:
    """A progress bar that says what the search is doing."""
    text = TextColumn("Finding the center: {task.description}")
    with Progress(text, BarColumn(), TimeElapsedColumn(), disable=not show) as bar:
        task = bar.add_task("starting", total=1.0)

        def compiling(what: str) -> None:
            bar.update(task, description=f"compiling {what}" if what else "starting")

        with listening(compiling):
            yield lambda what, share: bar.update(task, description=what, completed=share)
