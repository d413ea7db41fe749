# SPDX-License-Identifier: Apache-2.0
"""From a user's settings to what every chain does: center, preconditioner, step size, thinning."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pymc_sgcv.blas import one_blas_thread
from pymc_sgcv.center import (
    DENSE_LIMIT,
    Center,
    center_at,
    center_near,
    refuse_infinite_gradient,
    unconstrained,
)
from pymc_sgcv.chain import Method
from pymc_sgcv.errors import SGCVWarning
from pymc_sgcv.gradients import CONTROL_VARIATE, SAGA, SAGA_BLOCKS, STANDARD
from pymc_sgcv.noise import gradient_noise
from pymc_sgcv.pilot import pilot
from pymc_sgcv.problem import Problem
from pymc_sgcv.tuning import Tuning, auto_thin, choose, longest_step, nonlinearity

_log = logging.getLogger("pymc.sgcv")


@dataclass(frozen=True)
class Settings:
    """What the user asked for; ``"auto"`` and None leave it to us."""

    step_size: float | str | Callable
    batch_size: int | None
    subsampling: str
    integrator: str
    preconditioner: str | np.ndarray | None
    weights: np.ndarray | Mapping | None
    thin: int | str
    target_bias: float
    progressbar: bool
    table_dtype: str
    memory_limit: float


@dataclass(frozen=True)
class Plan:
    """What all chains do.

    `tuning` is None where the user gave both step size and preconditioner.
    """

    method: Method
    step_size: float | Callable
    thin: int
    center: Center | None
    tuning: Tuning | None
    seconds: float

    def disperse(self, rng: np.random.Generator) -> np.ndarray:
        """A random displacement of a chain's start: one draw of the approximate posterior."""
        factor = self.center.factor
        zeta = rng.standard_normal(len(factor))
        return factor * zeta if factor.ndim == 1 else factor @ zeta

    def attributes(self) -> dict[str, float]:
        """The chosen values, for the attributes of the result."""
        chosen = {"thin": self.thin, "setup_seconds": self.seconds}
        if not callable(self.step_size):
            chosen["step_size"] = float(self.step_size)
        if self.center is not None:
            chosen["center_distance"] = self.center.distance
        if self.tuning is not None:
            chosen["predicted_sd_error"] = self.tuning.inflation
            chosen["gradient_noise_share"] = self.tuning.noise_share
        return chosen

    def summary(self) -> str:
        """One line for the log."""
        step = "a schedule" if callable(self.step_size) else f"{self.step_size:.3g}"
        parts = [f"step size {step}", f"{self.thin} iterations per draw"]
        if self.center is not None:
            parts.append(f"center {self.center.distance:.2g} sd from the mode")
        if self.tuning is not None:
            parts.append(f"predicted error of sds {100 * self.tuning.inflation:.1f} %")
        return ", ".join(parts) + f" (set-up {self.seconds:.1f} s)"


def make_plan(
    problem: Problem,
    estimator: int,
    settings: Settings,
    center: Center | Mapping | None,
    rng: np.random.Generator,
) -> Plan:
    """Decide everything that all chains share."""
    began = time.perf_counter()
    if estimator in (SAGA, SAGA_BLOCKS):
        _refuse_large_tables(problem, estimator, settings)
    given = _given_factor(problem, settings.preconditioner)
    automatic = isinstance(settings.step_size, str)
    needs_center = estimator == CONTROL_VARIATE or center is not None
    needs_center = needs_center or automatic or isinstance(settings.preconditioner, str)
    with one_blas_thread():
        if needs_center:
            center = _resolve_center(problem, center, settings, rng)
        else:
            refuse_infinite_gradient(problem.target, problem.gradient(_start(problem)[None])[0])
        plan = _decide(problem, estimator, settings, center, given, rng)
    plan = replace(plan, seconds=time.perf_counter() - began)
    _log.info("%s: %s", _NAMES[estimator], plan.summary())
    return plan


_NAMES = {STANDARD: "SGLD", CONTROL_VARIATE: "SGLD-CV", SAGA: "SAGA", SAGA_BLOCKS: "SAGA (blocks)"}


def _decide(problem, estimator, settings, center, given, rng) -> Plan:
    tuning = None
    automatic = isinstance(settings.step_size, str)
    if automatic or (isinstance(settings.preconditioner, str) and given is None):
        user_center = center
        center, draws, gradients = pilot(problem, center, rng)
        if isinstance(user_center, _UserCenter):
            center = center_at(problem, user_center.theta, center.factor)
    factor = _factor(problem, settings, center, given)
    method = _method(problem, estimator, settings, center, factor, factor)
    if automatic:
        noise = gradient_noise(problem, method, draws, factor, rng)
        longest = longest_step(nonlinearity(problem, center, draws, gradients, rng))
        tuning = choose(noise, factor, settings.target_bias, settings.integrator, longest)
        method = _method(problem, estimator, settings, center, factor, tuning.noise)
        _warn_if_too_noisy(problem, estimator, tuning, settings)
    step_size = tuning.step_size if tuning else settings.step_size
    return Plan(method, step_size, _thin(settings, step_size, given), center, tuning, 0.0)


def _method(problem, estimator, settings, center, factor, noise) -> Method:
    drift = factor**2 if factor.ndim == 1 else factor @ factor.T
    return Method(
        estimator,
        settings.integrator,
        np.ascontiguousarray(drift),
        np.ascontiguousarray(noise),
        None if center is None else center.theta,
        None if center is None else center.likelihood_gradient,
        settings.table_dtype,
    )


class _UserCenter(Center):
    """A center that the user gave: it stays where it is."""


def _resolve_center(problem: Problem, center, settings: Settings, rng) -> Center:
    """The user's center with a gradient of this problem's data, or a new one."""
    if center is None:
        return center_near(problem, _start(problem), rng, progressbar=settings.progressbar)
    if isinstance(center, Center):
        expected = {k: v.shape for k, v in problem.constrained(_start(problem)).items()}
        if {k: np.shape(v) for k, v in center.point.items()} != expected:
            raise ValueError(
                f"center has the variables {sorted(center.point)}, the model {sorted(expected)}, "
                "or their shapes differ: it belongs to another model."
            )
        found = center_at(problem, center.theta, center.factor)
    elif isinstance(center, Mapping):
        found = center_at(problem, unconstrained(problem.target, center))
    else:
        raise TypeError(
            "center must be a Center from find_center or a dict of values by variable name, not "
            f"{type(center).__name__}."
        )
    return _UserCenter(**vars(found))


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
    return np.sqrt((factor**2).sum(1)) if diagonal and factor.ndim == 2 else factor


def _thin(settings: Settings, step_size, given) -> int:
    if settings.thin != "auto":
        return int(settings.thin)
    if callable(step_size) or given is not None:
        return 1  # the time scale of the user's own units is not known
    return auto_thin(step_size)


def _refuse_large_tables(problem: Problem, estimator: int, settings: Settings) -> None:
    each = np.dtype(settings.table_dtype).itemsize * problem.size
    per_row = sum(rows.n_rows for rows in problem.rows) * each
    per_block = sum(-(-rows.n_rows // rows.batch_size) for rows in problem.rows) * each
    size = per_row if estimator == SAGA else per_block
    if size > settings.memory_limit:
        other = f'table="blocks" ({_bytes(per_block)})' if estimator == SAGA else "SGLDCV"
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
    if estimator == STANDARD and tuning.step_size < 0.05:
        warnings.warn(
            f"SGLD's gradient noise forces a step of {tuning.step_size:.2g} (0.4 without noise): "
            f"{tuning.thin} iterations per draw. SGLDCV needs far fewer on this model.",
            SGCVWarning,
            stacklevel=6,
        )
    if tuning.inflation > settings.target_bias:
        growth = tuning.inflation / settings.target_bias
        warnings.warn(
            f"Gradient noise will make posterior standard deviations about "
            f"{100 * tuning.inflation:.0f} % "
            f"wrong, more than target_bias={settings.target_bias:.2g}. Use a batch_size about "
            f"{growth:.1f} times as large ({int(np.ceil(growth * problem.batch_rows))} rows).",
            SGCVWarning,
            stacklevel=6,
        )
