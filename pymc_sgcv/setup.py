# SPDX-License-Identifier: Apache-2.0
"""The automatic set-up: from a user's settings and a model to a plan for all chains."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np

from pymc_sgcv.blas import one_blas_thread
from pymc_sgcv.center import Center, center_at, center_near, given_center
from pymc_sgcv.chain import Method
from pymc_sgcv.curvature import spread
from pymc_sgcv.errors import SGCVWarning, warn
from pymc_sgcv.gradients import CONTROL_VARIATE, SAGA, SAGA_BLOCKS, STANDARD
from pymc_sgcv.modes import highest_center
from pymc_sgcv.noise import around, control_variate, gradient_noise
from pymc_sgcv.pilot import pilot, stretch
from pymc_sgcv.plan import Plan, Settings
from pymc_sgcv.problem import Problem
from pymc_sgcv.search import DENSE_LIMIT, refuse_infinite_gradient
from pymc_sgcv.tuner import Tuner
from pymc_sgcv.tuning import LONGEST_STEP, Tuning, auto_thin, longest_step, nonlinearity
from pymc_sgcv.weights import PREFERENTIAL, can_look_at_rows, prefer

_log = logging.getLogger("pymc.sgcv")
_BESIDE_OTHERS = 0.1
"""The longest step where other step methods sample some of the variables."""


def make_plan(
    name: str | None,
    problem: Problem,
    estimator: int,
    settings: Settings,
    center: Center | Mapping | None,
    rng: np.random.Generator,
) -> Plan:
    """Decide everything that all chains share.

    `name` is the step method's, for the log; without one, nothing is logged and nothing warned of.
    """
    began = time.perf_counter()
    if estimator in (SAGA, SAGA_BLOCKS):
        _refuse_large_tables(problem, estimator, settings)
    given = _given_factor(problem, settings.preconditioner)
    with one_blas_thread(), nullcontext() if name else _nothing_said():
        if _needs_center(estimator, settings, center):
            center = _resolve_center(problem, center, settings, rng)
            if _fixes_center(estimator, settings):
                _warn_if_far(center)
        else:
            refuse_infinite_gradient(problem.target, problem.gradient(_start(problem)[None])[0])
        plan = _decide(problem, estimator, settings, center, given, rng)
    plan = replace(plan, seconds=time.perf_counter() - began)
    if name is not None:
        _log.info("%s: %s", name, plan.summary())
    return plan


@contextmanager
def _nothing_said() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SGCVWarning)
        yield


def _fixes_center(estimator: int, settings: Settings) -> bool:
    return estimator == CONTROL_VARIATE and settings.refresh is None


def _needs_center(estimator: int, settings: Settings, center) -> bool:
    fixed = _fixes_center(estimator, settings)
    automatic = isinstance(settings.step_size, str) or isinstance(settings.preconditioner, str)
    return fixed or center is not None or automatic or settings.weights_are(PREFERENTIAL)


def _decide(problem, estimator, settings, center, given, rng) -> Plan:
    tuning, noise, automatic = None, None, isinstance(settings.step_size, str)
    if settings.weights_are(PREFERENTIAL):
        prefer(problem, center.theta, center.factor, estimator == STANDARD, rng)
    elif automatic and settings.weights_are("auto") and can_look_at_rows(problem):
        method = _method(estimator, settings, center, center.factor)
        tuner = Tuner(problem, method, settings, around(center, rng), LONGEST_STEP, rng)
        noise = tuner.weigh()
    if automatic or (isinstance(settings.preconditioner, str) and given is None):
        user_center = center
        known = noise if estimator == CONTROL_VARIATE else None
        center, draws, gradients = pilot(problem, center, rng, known)
        if isinstance(user_center, _UserCenter):
            center = center_at(problem, user_center.theta, center.factor)
    factor = _factor(problem, settings, center, given)
    method = _method(estimator, settings, center, factor)
    if automatic:
        noise = gradient_noise(problem, control_variate(center), draws, center.factor, rng)
        longest = longest_step(nonlinearity(center.factor, draws, gradients, noise))
        if problem.target.others:  # whose values move the curvature: leave room for that
            longest = min(longest, _BESIDE_OTHERS)
        longest /= stretch(problem, center, factor, rng)
        same = estimator == CONTROL_VARIATE and not method.refresh and factor is center.factor
        tuner = Tuner(problem, method, settings, draws, longest, rng)
        tuning = tuner.tune(noise if same else None, center)
        method = replace(method, factor=tuning.factor, kept=tuning.kept)
        _warn_if_too_noisy(problem, estimator, tuning, settings)
    if settings.refresh == 0:  # as many rows for the full gradient as for minibatches in between
        method = replace(method, refresh=max(1, round(problem.n_rows / problem.batch_rows)))
    step_size = tuning.step_size if tuning else settings.step_size
    thin = _thin(settings, step_size, given)
    return Plan(method, step_size, thin, center, tuning, problem.layout)


def _method(estimator, settings, center, factor) -> Method:
    return Method(
        estimator,
        settings.motion.kind,
        factor,
        friction=settings.motion.friction,
        leapfrog=settings.motion.leapfrog,
        center=None if center is None else center.theta,
        constant=None if center is None else center.likelihood_gradient,
        refresh=0 if settings.refresh is None else settings.refresh or 1,
        table_dtype=settings.table_dtype,
    )


class _UserCenter(Center):
    """A center that the user gave: it stays where it is."""


def _resolve_center(problem: Problem, center, settings: Settings, rng) -> Center:
    """The user's center with a gradient of this problem's data, or a new one."""
    if center is None:
        found = center_near(problem, _start(problem), rng, progressbar=settings.progressbar)
        return highest_center(problem, found, rng)
    return _UserCenter(**vars(given_center(problem, center)))


def _warn_if_far(center: Center) -> None:
    """A center that we found ourselves has been warned about already."""
    if isinstance(center, _UserCenter) and not center.converged:
        warn(
            f"The given center is {center.distance:.3g} posterior standard deviations (Newton "
            f"decrement, {len(center.theta)} parameters) from the mode: gradients will be noisy, "
            "steps short, draws costly. Take one from find_center, or leave center out."
        )


def _start(problem: Problem) -> np.ndarray:
    return problem.target.flatten(problem.target.start)


def _given_factor(problem: Problem, preconditioner) -> np.ndarray | None:
    """A factor of the preconditioner that the user gave (None: identity), or None if it is ours."""
    if preconditioner is None:
        return np.ones(problem.size)
    if isinstance(preconditioner, str):
        return None
    try:
        matrix, d = np.asarray(preconditioner, dtype=float), problem.size
    except (TypeError, ValueError):
        kind = type(preconditioner).__name__
        raise TypeError(f"preconditioner must be an array of numbers, not {kind}.") from None
    if matrix.shape not in ((d,), (d, d)):
        raise ValueError(
            f"preconditioner must have shape ({d},) or ({d}, {d}), one row per unconstrained "
            f"parameter, not {matrix.shape}."
        )
    factor = _root(matrix)
    if factor is None:
        raise ValueError(
            "preconditioner must be symmetric and positive definite (or a vector of positive "
            "variances)."
        )
    return factor


def _root(matrix: np.ndarray) -> np.ndarray | None:
    """A factor of a covariance matrix or a vector of variances; None if it is neither."""
    if not np.isfinite(matrix).all():
        return None
    if matrix.ndim == 1:
        return np.sqrt(matrix) if (matrix > 0).all() else None
    if not np.allclose(matrix, matrix.T):
        return None
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None


def _factor(problem: Problem, settings: Settings, center: Center | None, given) -> np.ndarray:
    if given is not None:
        return given
    factor = center.factor
    diagonal = settings.preconditioner == "diagonal"
    if settings.preconditioner == "dense" and factor.ndim == 1:
        raise ValueError(
            f'preconditioner="dense" is limited to {DENSE_LIMIT} parameters; this model has '
            f'{problem.size}. Use "diagonal", or give the matrix.'
        )
    return spread(factor) if diagonal else factor


def _thin(settings: Settings, step_size, given) -> int:
    if settings.thin != "auto":
        return int(settings.thin)
    if callable(step_size) or given is not None:
        return 1  # the time scale of the user's own units is not known
    return auto_thin(step_size, settings.motion)


def _refuse_large_tables(problem: Problem, estimator: int, settings: Settings) -> None:
    each = np.dtype(settings.table_dtype).itemsize * problem.size
    per_row = sum(rows.n_rows for rows in problem.rows) * each
    per_block = sum(-(-rows.n_rows // rows.batch_size) for rows in problem.rows) * each
    size = per_row if estimator == SAGA else per_block
    if size > settings.memory_limit:
        fits = estimator == SAGA and per_block <= settings.memory_limit
        other = f'table="blocks" ({_bytes(per_block)})' if fits else "SGLDCV"
        raise ValueError(
            f"SAGA's table would take {_bytes(size)} per chain, more than memory_limit="
            f"{_bytes(settings.memory_limit)}. Use {other}, or raise memory_limit."
        )
    _log.info("SAGA's table takes %s per chain.", _bytes(size))


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def _warn_if_too_noisy(problem, estimator, tuning: Tuning, settings: Settings) -> None:
    thin = auto_thin(tuning.step_size, settings.motion)
    if estimator == STANDARD and thin * problem.batch_rows > 20_000:
        warn(
            f"The noise of the plain gradient makes a draw cost {thin * problem.batch_rows} rows "
            f"({thin} iterations of {problem.batch_rows}, step size {tuning.step_size:.2g}). The "
            "control variate of SGLDCV needs far fewer on this model.",
        )
    if tuning.inflation > settings.target_bias:
        growth = tuning.inflation / settings.target_bias
        warn(
            f"Gradient noise will make posterior standard deviations about "
            f"{100 * tuning.inflation:.0f} % "
            f"wrong, more than target_bias={settings.target_bias:.2g}. Use a batch_size about "
            f"{growth:.1f} times as large ({int(np.ceil(growth * problem.batch_rows))} rows).",
        )
