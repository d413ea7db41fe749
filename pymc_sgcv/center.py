# SPDX-License-Identifier: Apache-2.0
"""Find the centering point θ̂ of the control variate and what is known about the posterior there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pymc as pm
from pymc.initial_point import make_initial_point_fn
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pymc_sgcv.blas import one_blas_thread
from pymc_sgcv.chain import Chain, Method
from pymc_sgcv.curvature import coordinate_scales, covariance_factor, diagonal_scales
from pymc_sgcv.errors import SGCVWarning
from pymc_sgcv.gradients import STANDARD
from pymc_sgcv.model import Target
from pymc_sgcv.optimizers import ADAM, SGD, ascend
from pymc_sgcv.problem import Problem
from pymc_sgcv.xoshiro import seeded

DENSE_LIMIT = 400
"""Up to this many parameters the covariance is dense, above it is diagonal."""
_OPTIMIZERS = {"adam": ADAM, "sgd": SGD}
_PHASES = 0.1, 0.03, 0.01, 0.003, 0.001
_WINDOW = 100
_NEWTON_STEPS = 12
_POINT_ROWS = 10_000_000
"""Rows × points that one estimate of the curvature may cost; ten times that where they stack."""


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
        F with FFᵀ the approximate posterior covariance at θ̂: (d, d), or (d,) if diagonal.
    distance
        The Newton decrement √(gᵀ FFᵀ g): how far θ̂ is from the mode in posterior standard
        deviations. The paper's cost is independent of N while this is of order 1.
    passes
        How many times the data were read to find θ̂.
    converged
        Whether `distance` is small: at most 0.1 √d, or 1.
    """

    point: dict[str, np.ndarray]
    theta: np.ndarray = field(repr=False)
    gradient: np.ndarray = field(repr=False)
    likelihood_gradient: np.ndarray = field(repr=False)
    factor: np.ndarray = field(repr=False)
    distance: float
    passes: float
    converged: bool


def find_center(
    model: pm.Model | None = None,
    *,
    method: str = "adam",
    batch_size: int | None = None,
    step_size: float | None = None,
    passes: float = 3.0,
    polish: bool = True,
    start: Mapping[str, np.ndarray] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    compile_kwargs: dict | None = None,
) -> Center:
    """Find a centering point near the posterior mode of a minibatched model.

    Minibatch ascent with decreasing steps and averaged iterates, until the gradient can no longer
    be told from its noise; then Newton steps with full gradients and a curvature from gradient
    differences, until θ̂ is within a fraction of a posterior standard deviation of the mode.

    Parameters
    ----------
    model
        The PyMC model; taken from the context if None.
    method
        ``"adam"``, or ``"sgd"`` with polynomially decreasing steps as in the paper.
    batch_size
        Rows per minibatch; default: what ``pm.Minibatch`` was given.
    step_size
        First step of the ascent, in units of each coordinate's scale.
    passes
        How often the minibatches may go through the data; small data are read more often, since
        there are at least 1,000 steps.
    polish
        Whether to take Newton steps on full gradients afterwards.
    start
        Values by variable name to start from, on the model's own scale.
    random_seed, progressbar, compile_kwargs
        As in ``pm.sample``.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     center = sg.find_center(random_seed=1)
    ...     idata = pm.sample(step=sg.SGLDCV(center=center))
    """
    if method not in _OPTIMIZERS:
        raise ValueError(f"method must be one of {tuple(_OPTIMIZERS)}, not {method!r}.")
    _check_positive(step_size=1.0 if step_size is None else step_size, passes=passes)
    problem = Problem(pm.modelcontext(model), batch_size=batch_size, compile_kwargs=compile_kwargs)
    theta = unconstrained(problem.target, start or {}, "start")
    rng = np.random.default_rng(random_seed)
    return center_near(
        problem, theta, rng, method, step_size, passes, polish=polish, progressbar=progressbar
    )


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
) -> Center:
    """`find_center` for a problem that is already compiled, from the flat point `theta`."""
    with one_blas_thread(), _progress(progressbar) as report:
        search = _Search(problem, theta, rng, report)
        search.ascend(_OPTIMIZERS[method], step_size, passes)
        if polish:
            search.newton()
        center = search.finish()
    if polish and not center.converged:
        warnings.warn(
            f"The centering point is {center.distance:.1f} posterior standard deviations (Newton "
            f"decrement, {problem.size} parameters) from the mode: the control variate will be "
            "noisy. Give better starting values, more passes to find_center, or check that the "
            "posterior has one mode and no flat directions.",
            SGCVWarning,
            stacklevel=3,
        )
    return center


def center_at(problem: Problem, theta: np.ndarray, factor: np.ndarray | None = None) -> Center:
    """The Center at a given point: full gradient and curvature there, no search."""
    with one_blas_thread():
        search = _Search(problem, theta, np.random.default_rng(0), lambda *_: None, given=True)
        search.factor = factor
        return search.finish()


def _check_positive(**numbers) -> None:
    for name, value in numbers.items():
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not np.isfinite(value) or value <= 0:
            raise ValueError(f"{name} must be a positive number, not {value!r}.")


def unconstrained(
    target: Target, point: Mapping[str, np.ndarray], what: str = "center"
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
    shapes, overrides = model.eval_rv_shapes(), {}
    for name, value in point.items():
        overrides[name] = np.asarray(value, dtype=float)
        if overrides[name].shape != tuple(shapes[name]):
            raise ValueError(
                f"{what} gives '{name}' the shape {overrides[name].shape}, but it has "
                f"{tuple(int(n) for n in shapes[name])}."
            )
        if not np.isfinite(overrides[name]).all():
            raise ValueError(f"{what} holds values of '{name}' that are not finite.")
    with np.errstate(all="ignore"):
        theta = target.flatten(make_initial_point_fn(model=model, overrides=overrides)(0))
    if not np.isfinite(theta).all():
        name = target.describe(int(np.argmax(~np.isfinite(theta))))
        raise ValueError(f"{what} is outside the support of the prior: {name} is not finite.")
    return theta


def refuse_infinite_gradient(target: Target, gradient: np.ndarray, given: bool = False) -> None:
    """Raise an error that names the parameter whose gradient is not finite."""
    bad = ~np.isfinite(gradient)
    if not bad.any():
        return
    name = target.describe(int(np.argmax(bad)))
    place, advice = (
        ("given center", "Choose a center inside the support.")
        if given
        else (
            "starting point",
            "Give starting values inside the support (initval=...), or check the data for "
            "impossible observations.",
        )
    )
    raise ValueError(
        f"The gradient of the log posterior with respect to {name} is not finite at the {place}. "
        f"{advice}"
    )


class _progress:
    """A progress bar that says what the search is doing."""

    def __init__(self, show: bool):
        self.bar = Progress(
            TextColumn("Finding the center: {task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            disable=not show,
        )

    def __enter__(self) -> Callable[[str, float], None]:
        self.bar.start()
        self.task = self.bar.add_task("starting", total=1.0)
        return lambda what, share: self.bar.update(self.task, description=what, completed=share)

    def __exit__(self, *_):
        self.bar.stop()


class _Search:
    """The state of a search for the mode."""

    def __init__(self, problem: Problem, theta, rng, report, given: bool = False):
        self.problem, self.rng, self.report, self.given = problem, rng, report, given
        self.theta = np.array(theta, dtype=float)
        self.passes = 0.0
        self.factor = None
        self.gradient = self._full_gradient(self.theta)
        refuse_infinite_gradient(self.problem.target, self.gradient, self.given)

    def _full_gradient(self, theta: np.ndarray) -> np.ndarray:
        self.passes += 1
        return self.problem.gradient(theta[None])[0]

    def _partial_gradient(self, budget: float) -> Callable[[np.ndarray], np.ndarray]:
        if all(gradient.stacked for gradient in self.problem.functions.plates):
            budget *= 10
        fraction = min(1.0, max(budget / (2 * self.problem.size), 2000) / self.problem.n_rows)

        def gradient(points: np.ndarray) -> np.ndarray:
            self.passes += fraction * len(points)
            return self.problem.gradient(points, fraction)

        return gradient

    def _scales(self, start=1e-2) -> np.ndarray:
        if self.problem.size > DENSE_LIMIT:
            return diagonal_scales(self._partial_gradient(1e7), self.theta, self.rng)
        return coordinate_scales(self._partial_gradient(1e6), self.theta, start)

    def ascend(self, kind: int, step_size: float | None, passes: float) -> None:
        """Minibatch steps, longer ones first, each length until it finds no more signal."""
        self.report("minibatch steps", 0.0)
        chain = Chain(self.problem, Method(STANDARD, "euler", np.ones(1), np.ones(1)))
        chain.points[0] = self.theta
        random = seeded(self.rng)
        scale = self._scales()
        if kind == ADAM:  # one unit of information, at most the unconstrained scale's own unit
            scale = np.minimum(scale * np.sqrt(self.problem.n_rows), 1.0)
        moments, means = np.zeros((3, self.problem.size)), np.zeros((3, self.problem.size))
        rate = self.problem.batch_rows / self.problem.n_rows
        windows = max(2, int(passes / rate / len(_PHASES) / _WINDOW))
        for phase, h in enumerate(_PHASES):
            for window in range(min(windows, 100)):
                steps = self._steps(kind, h, step_size, phase * windows + window)
                fine = ascend(
                    kind, *chain.estimator_arguments()[1:4], scale, steps, moments, random, *means
                )
                self.passes += _WINDOW * rate
                if not fine:
                    return  # keep the last good average; Newton goes on from there
                if window and _only_noise(means):
                    break
            self.theta = means[0].copy()
            self.report("minibatch steps", 0.5 * (phase + 1) / len(_PHASES))

    @staticmethod
    def _steps(kind: int, h: float, step_size: float | None, windows_done: int) -> np.ndarray:
        if kind == ADAM:
            return np.full(_WINDOW, h if step_size is None else h * step_size / _PHASES[0])
        k = windows_done * _WINDOW + np.arange(_WINDOW)
        return (0.1 if step_size is None else step_size) * (1 + k / 50) ** -0.75

    def newton(self) -> None:
        """Damped Newton steps until the decrement is small or does not shrink any more.

        The curvature is found anew where a step with an older one gained less than expected.
        """
        self.gradient = self._full_gradient(self.theta)
        refuse_infinite_gradient(self.problem.target, self.gradient, self.given)
        fresh = False
        for k in range(_NEWTON_STEPS):
            self.report("Newton steps", 0.5 + 0.5 * k / _NEWTON_STEPS)
            if self.factor is None:
                self.factor, fresh = self._covariance_factor(), True
            before = self._distance(self.gradient)
            if before <= 0.03:
                return
            moved = self._line_search(before)
            if not moved and fresh:
                return
            if not moved or self._distance(self.gradient) > 0.3 * before:
                self.factor = None
            fresh = False

    def _line_search(self, before: float) -> bool:
        direction = _times(self.factor, _times(self.factor, self.gradient, transpose=True))
        for t in (1.0, 0.5, 0.25, 0.1, 0.03, 0.01):
            theta = self.theta + t * direction
            gradient = self._full_gradient(theta)
            if np.isfinite(gradient).all() and self._distance(gradient) < (1 - 0.1 * t) * before:
                self.theta, self.gradient = theta, gradient
                return True
        return False

    def _covariance_factor(self) -> np.ndarray:
        scales = self._scales()
        if self.problem.size > DENSE_LIMIT:
            return scales
        return covariance_factor(self._partial_gradient(_POINT_ROWS), self.theta, scales)

    def _distance(self, gradient: np.ndarray) -> float:
        return float(np.linalg.norm(_times(self.factor, gradient, transpose=True)))

    def finish(self) -> Center:
        """Full gradient and curvature where the search ended."""
        if self.factor is None:
            self.factor = self._covariance_factor()
        likelihood = self.problem.likelihood_gradient(self.theta[None])[0]
        gradient = likelihood + self.problem.prior_gradient(self.theta[None])[0]
        self.passes += 1
        distance = self._distance(gradient)
        self.report("done", 1.0)
        return Center(
            point=self.problem.constrained(self.theta),
            theta=self.theta,
            gradient=gradient,
            likelihood_gradient=likelihood,
            factor=self.factor,
            distance=distance,
            passes=round(self.passes, 2),
            converged=bool(distance <= max(1.0, 0.1 * np.sqrt(self.problem.size))),
        )


def _times(factor: np.ndarray, vector: np.ndarray, transpose: bool = False) -> np.ndarray:
    if factor.ndim == 1:
        return factor * vector
    return (factor.T if transpose else factor) @ vector


def _only_noise(means: np.ndarray) -> bool:
    """Whether a window's mean gradient is no larger than chance would make it."""
    variance = np.maximum(means[2] - means[1] ** 2, 1e-300) / _WINDOW
    return bool(np.mean(means[1] ** 2 / variance) < 3.0)
