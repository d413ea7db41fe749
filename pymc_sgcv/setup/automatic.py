# SPDX-License-Identifier: Apache-2.0
"""The automatic set-up: from a user's settings and a model to a plan for all chains."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np

from pymc_sgcv.engine.blas import one_blas_thread
from pymc_sgcv.errors import SGCVWarning, warn
from pymc_sgcv.kernel.chain import Method
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE, SAGA, STANDARD
from pymc_sgcv.kernel.preconditioners import Diagonal, Preconditioner, from_covariance
from pymc_sgcv.rows.population import SAMPLE
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import (
    Center,
    center_at,
    center_near,
    given_center,
    progress,
    warn_if_off,
)
from pymc_sgcv.setup.following import follow
from pymc_sgcv.setup.modes import highest_center
from pymc_sgcv.setup.noise import FURTHEST, around, control_variate, gradient_noise
from pymc_sgcv.setup.pilot import approach, even_part, pilot, stretch
from pymc_sgcv.setup.plan import Plan, Settings
from pymc_sgcv.setup.represent import represent, tilt_at
from pymc_sgcv.setup.rotations import warn_about_rotations
from pymc_sgcv.setup.search import WIDE_LIMIT, refuse_infinite_gradient
from pymc_sgcv.setup.tuner import Tuner
from pymc_sgcv.setup.tuning import (
    LONGEST_STEP,
    Tuning,
    auto_thin,
    bending,
    longest_step,
    nonlinearity,
)
from pymc_sgcv.setup.weights import PREFERENTIAL, prefer

_log = logging.getLogger("pymc.sgcv")
_BESIDE_OTHERS = 0.1
"""The longest step where other step methods sample some of the variables."""
_FURTHEST_BACK = 1.5
"""h λ where the curvature λ is largest: such a step goes this half way back, and 4 is unstable."""


def make_plan(
    name: str | None,
    problem: Problem,
    settings: Settings,
    center: Center | Mapping | None,
    rng: np.random.Generator,
) -> Plan:
    """Decide everything that all chains share.

    `name` is the step method's, for the log; without one, nothing is logged and nothing warned of.
    """
    began = time.perf_counter()
    if settings.estimator.tabled:
        _refuse_large_tables(problem, settings)
    given = _given_factor(problem, settings.preconditioner)
    problem.forget_plan()
    resolved: Center | None = None
    with one_blas_thread(), nullcontext() if name else _nothing_said():
        if _needs_center(settings, center) or problem.population == SAMPLE:
            if settings.automatic:
                warn_about_rotations(problem, np.random.default_rng(0))
            resolved = _resolve_center(problem, center, settings, rng)
            if settings.fixes_center:
                _warn_if_far(resolved)
        else:
            gradient = problem.gradient(_start(problem)[None])[0]
            if not np.isfinite(gradient).all():
                problem.refuse_nan()
            refuse_infinite_gradient(problem.target, gradient)
        plan = _decide(problem, settings, resolved, given, rng)
        if settings.automatic and center is None:
            _warn_if_off_still(resolved, plan.center)
    plan = replace(plan, seconds=time.perf_counter() - began)
    if name is not None:
        _log.info("%s: %s", name, plan.summary())
    return plan


@contextmanager
def _nothing_said() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SGCVWarning)
        yield


def _needs_center(settings: Settings, center: Center | Mapping | None) -> bool:
    automatic = settings.automatic or isinstance(settings.preconditioner, str)
    weighs = settings.weights_are(PREFERENTIAL)
    return settings.fixes_center or center is not None or automatic or weighs


def _decide(
    problem: Problem,
    settings: Settings,
    center: Center | None,
    given: Preconditioner | None,
    rng: np.random.Generator,
) -> Plan:
    """The plan; there is a center wherever `_needs_center` says so."""
    tuning, noise, automatic, user_center = None, None, settings.automatic, center
    estimator = settings.estimator
    if settings.weights_are(PREFERENTIAL):
        assert center is not None
        prefer(problem, center, estimator == STANDARD, rng)
    if automatic and center is not None and center.degree is not None:
        center = approach(problem, center, rng)
    if automatic and settings.weights_are("auto") and not estimator.tabled:
        assert center is not None
        draws = around(center, rng)
        center = follow(problem, center, draws, rng)
        method = _method(settings, center, center.factor)
        tuner = Tuner(problem, method, center, settings, draws, LONGEST_STEP, rng)
        noise = tuner.stratify()
    if automatic or (isinstance(settings.preconditioner, str) and given is None):
        assert center is not None
        known = noise if estimator == CONTROL_VARIATE else None
        center, draws, gradients, own = pilot(problem, center, rng, known)
        if isinstance(user_center, _UserCenter):
            center = center_at(problem, user_center.theta, center.factor, center.degree)
    factor = _factor(problem, settings, center, given)
    method = _method(settings, center, factor)
    if automatic:
        assert center is not None
        noise = gradient_noise(problem, control_variate(center), draws, center.factor, rng)
        if own is not None:
            longest = longest_step(nonlinearity(center.factor, draws, gradients, own))
        else:
            longest = longest_step(bending(center.factor, even_part(problem, center, draws)))
        if problem.target.others:  # whose values move the curvature: leave room for that
            longest = min(longest, _BESIDE_OTHERS)
        longest = min(longest, _FURTHEST_BACK / stretch(problem, center, factor, rng))
        same = method.fixes_center and factor is center.factor
        tuner = Tuner(problem, method, center, settings, draws, longest, rng)
        tuning = tuner.tune(noise if same else None)
        method = replace(method, factor=tuning.factor, kept=tuning.kept)
        _warn_if_too_noisy(problem, tuning, settings)
    if settings.refresh == 0:  # as many rows for the full gradient as for minibatches in between
        method = replace(method, refresh=max(1, round(problem.n_rows / problem.batch_rows)))
    step_size = tuning.step_size if tuning else settings.step_size
    assert not isinstance(step_size, str)  # "auto" has been tuned
    thin = _thin(settings, step_size, given)
    return Plan(
        method, step_size, thin, center, tuning, problem.layout, data_passes=problem.data_passes
    )


def _method(settings: Settings, center: Center | None, factor: Preconditioner) -> Method:
    return Method(
        settings.estimator,
        settings.motion.kind,
        factor,
        friction=settings.motion.friction,
        leapfrog=settings.motion.leapfrog,
        furthest=FURTHEST if settings.automatic else np.inf,
        center=None if center is None else center.theta,
        constant=None if center is None else center.likelihood_gradient,
        exponents=None if center is None else center.exponents,
        refresh=0 if settings.refresh is None else settings.refresh or 1,
        table_dtype=settings.table_dtype,
        degree=None if center is None else center.degree,
        follows=center is not None and center.follows,
    )


class _UserCenter(Center):
    """A center that the user gave: it stays where it is."""


def _resolve_center(
    problem: Problem,
    center: Center | Mapping | None,
    settings: Settings,
    rng: np.random.Generator,
) -> Center:
    """The user's center with a gradient of this problem's data, or a new one."""
    dense = _dense(problem, settings)
    if problem.population == SAMPLE:
        given = None if center is None else _UserCenter(**vars(given_center(problem, center)))
        with progress(settings.progressbar) as report:
            found = represent(problem, _start(problem), given, rng, dense, report)
        if given is not None:
            return _UserCenter(**vars(found))
        if not settings.automatic:
            warn_if_off(found)
        best = highest_center(problem, found, rng)
        return found if best is found else tilt_at(problem, best, rng, dense)
    if center is None:
        found = center_near(
            problem, _start(problem), rng, progressbar=settings.progressbar, dense=dense,
            warns=not settings.automatic,
        )  # fmt: skip
        return highest_center(problem, found, rng)
    return _UserCenter(**vars(given_center(problem, center)))


def _dense(problem: Problem, settings: Settings) -> bool | None:
    """Whether the user wants a dense preconditioner; None: as is best."""
    if settings.preconditioner_is("dense") and problem.size > WIDE_LIMIT:
        raise ValueError(
            f'preconditioner="dense" is limited to {WIDE_LIMIT} parameters; this model has '
            f'{problem.size}. Use "lowrank", or give the matrix.'
        )
    named = {"dense": True, "lowrank": False}
    return next((named[name] for name in named if settings.preconditioner_is(name)), None)


def _warn_if_off_still(before: Center | None, after: Center | None) -> None:
    """The pilot may have found what the search has not, or have left the mode for the mean."""
    if before is not None and after is not None and after.degree is None and not before.converged:
        warn_if_off(after)


def _warn_if_far(center: Center) -> None:
    """A center that we found ourselves has been warned about already."""
    if isinstance(center, _UserCenter) and not center.converged and center.degree is None:
        warn(
            f"The given center is {center.distance:.3g} posterior standard deviations (Newton "
            f"decrement, {len(center.theta)} parameters) from the mode: gradients will be noisy, "
            "steps short, draws costly. Take one from find_center, or leave center out."
        )


def _start(problem: Problem) -> np.ndarray:
    return problem.target.flatten(problem.target.start)


def _given_factor(
    problem: Problem, preconditioner: str | np.ndarray | None
) -> Preconditioner | None:
    """A factor of the preconditioner that the user gave (None: identity), or None if it is ours."""
    if preconditioner is None:
        return Diagonal(np.ones(problem.size))
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
    factor = from_covariance(matrix)
    if factor is None:
        raise ValueError(
            "preconditioner must be symmetric and positive definite (or a vector of positive "
            "variances)."
        )
    return factor


def _factor(
    problem: Problem, settings: Settings, center: Center | None, given: Preconditioner | None
) -> Preconditioner:
    if given is not None:
        return given
    assert center is not None  # a preconditioner by name comes from there
    factor = center.factor
    return Diagonal(factor.spread()) if settings.preconditioner_is("diagonal") else factor


def _thin(settings: Settings, step_size: float | Callable, given: Preconditioner | None) -> int:
    if settings.thin != "auto":
        return int(settings.thin)
    if callable(step_size) or given is not None:
        return 1  # the time scale of the user's own units is not known
    return auto_thin(step_size, settings.motion)


def _refuse_large_tables(problem: Problem, settings: Settings) -> None:
    each = np.dtype(settings.table_dtype).itemsize * problem.size
    per_row = sum(rows.n_rows for rows in problem.rows) * each
    per_block = sum(-(-rows.n_rows // rows.batch_size) for rows in problem.rows) * each
    by_row = settings.estimator == SAGA
    size = per_row if by_row else per_block
    if size > settings.memory_limit:
        fits = by_row and per_block <= settings.memory_limit
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


def _warn_if_too_noisy(problem: Problem, tuning: Tuning, settings: Settings) -> None:
    thin = auto_thin(tuning.step_size, settings.motion)
    if settings.estimator == STANDARD and thin * problem.batch_rows > 20_000:
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
