# SPDX-License-Identifier: Apache-2.0
"""`sample`: the step methods of ``pm.sample``, chains as threads over one copy of the data."""

from __future__ import annotations

import copy
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pymc as pm
from pymc.initial_point import make_initial_point_fns_per_chain
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from pymc_sgcv.arguments import Seed, check_mapping, given_generator, given_model
from pymc_sgcv.engine.blas import one_blas_thread
from pymc_sgcv.errors import warn
from pymc_sgcv.kernel.chain import Chain, Divergence
from pymc_sgcv.kernel.schedules import step_sizes
from pymc_sgcv.results import containers
from pymc_sgcv.results.containers import Container
from pymc_sgcv.results.diagnostics import warn_about
from pymc_sgcv.results.posterior import check_names, constant_data, observed_data
from pymc_sgcv.sampling.record import Record, check_gradients
from pymc_sgcv.steps.base import Point, StochasticGradientStep
from pymc_sgcv.steps.methods import SGLDCV

_log = logging.getLogger("pymc.sgcv")
_BLOCK_SECONDS = 0.1
"""How long compiled code runs before it looks up: progress and Ctrl-C wait no longer."""
_MOST_SHORTENED = 1 / 32


def sample(
    draws: int = 1000,
    *,
    tune: int | None = None,
    chains: int | None = None,
    cores: int | None = None,
    step: StochasticGradientStep | None = None,
    random_seed: Seed = None,
    progressbar: bool = True,
    initvals: Mapping | Sequence[Mapping] | None = None,
    var_names: str | Sequence[str] | None = None,
    gradients: bool | str | Sequence[str] = True,
    discard_tuned_samples: bool = True,
    compute_convergence_checks: bool = True,
    model: pm.Model | None = None,
) -> Container:
    """Draw from the posterior of a large-data model; arguments as in ``pm.sample``.

    The draws are those of ``pm.sample(step=step)`` with the same seed, whatever the cores, without
    its cost per draw: each chain is a thread that stays in compiled code.

    Parameters
    ----------
    draws
        Recorded draws per chain, after tuning. The step method's ``thin`` says how many iterations
        there are to a draw.
    tune
        Draws to discard at the start (default 200: chains start near the posterior).
    chains, cores
        Number of chains, and of threads that run them.
    step
        A step method of this package for all variables; ``SGLDCV()`` by default.
    random_seed
        Decides the draws, for one thread or many.
    progressbar
        Whether to show progress per chain.
    initvals
        Starting values, where the step method has no center.
    var_names
        Variables and Deterministics to store; all by default. A Deterministic is computed block by
        block, so what it depends on need not be stored.
    gradients
        Whether to store the groups ``gradient`` and ``unconstrained_posterior``, of those free
        variables that `var_names` are or depend on; or names of free variables to store them for.
        Without them `zv`, `ksd` and some checks of `diagnose` are not possible.
    discard_tuned_samples
        If False, warmup groups are kept.
    compute_convergence_checks
        Whether to run `diagnose` and warn about what it finds.
    model
        The model; default: from the context.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        With the groups ``posterior``, ``sample_stats``, ``gradient``, ``unconstrained_posterior``.
        Interrupted by Ctrl-C, it holds what was sampled until then.

    Notes
    -----
    Memory is that of the stored variables. The model with 200,000 parameters of which only
    predictions are wanted: ``sg.sample(var_names=["prediction"], gradients=False)``.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_sgcv as sg
    >>> x = np.linspace(-1, 1, 200)
    >>> with pm.Model() as model:
    ...     slope = pm.Normal("slope", 0, 1)
    ...     y = pm.Normal("y", slope * x, 0.5, observed=2 * x)
    >>> with model:
    ...     idata = sg.sample(500, chains=2, random_seed=1, progressbar=False)
    >>> print(idata["posterior"]["slope"].shape, idata["gradient"]["slope"].shape)
    (2, 500) (2, 500)
    """
    model = given_model(model)
    names, gradients = check_names(model, var_names), check_gradients(model, gradients)
    _check_counts(draws=draws, tune=tune, chains=chains, cores=cores)
    _check_initvals(model, initvals)
    cores = cores or min(4, os.cpu_count() or 1)
    chains = chains or max(2, cores)
    step = _checked_step(step, model, progressbar)
    tune = step.default_tune_steps if tune is None else tune
    rngs = given_generator("random_seed", random_seed).spawn(chains)
    seeds = [rng.integers(2**30) for rng in rngs]  # as pm.sample does, for the same draws
    step.refresh()
    center = step.plan.fixed_center
    record = Record(
        step.problem.target,
        names,
        gradients,
        chains,
        tune,
        draws,
        keep_tune=not discard_tuned_samples,
        center=None if center is None else center.theta,
    )
    runs = _prepare(step, rngs, _initial_points(step, initvals, seeds), record, draws + tune)
    began = time.perf_counter()
    _run_all(step, runs, min(cores, chains), progressbar)
    seconds = time.perf_counter() - began
    runs = _with_draws(runs, tune)
    _warn_if_shortened(runs, step.plan.step_size)
    idata = _package(step, runs, record, tune, seconds)
    if compute_convergence_checks:
        warn_about(idata)
    return idata


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        least = 0 if name == "tune" else 1
        if value is None and name != "draws":
            continue
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}.")


def _check_initvals(model: pm.Model, initvals: Mapping | Sequence[Mapping] | None) -> None:
    known = {rv.name for rv in model.free_RVs} | {v.name for v in model.value_vars}
    several = initvals if isinstance(initvals, list | tuple) else [initvals]
    for one in several:
        check_mapping("initvals", one, "values by variable name")
        names = {getattr(key, "name", key) for key in one or ()}
        if unknown := sorted(map(str, names - known)):
            raise ValueError(f"initvals names {unknown}, but the model's are {sorted(known)}.")


def _checked_step(
    step: StochasticGradientStep | None, model: pm.Model, progressbar: bool
) -> StochasticGradientStep:
    if step is None:
        return SGLDCV(model=model, progressbar=progressbar)
    if not isinstance(step, StochasticGradientStep):
        raise TypeError(
            f"step must be one of this package's step methods, not {type(step).__name__}. Use "
            "pm.sample for other step methods and for compound steps."
        )
    if step.shared:
        raise ValueError("step leaves variables to other step methods: sample with pm.sample.")
    if step.model is not model:
        raise ValueError("step was built for another model than the one in context.")
    return step


def _initial_points(
    step: StochasticGradientStep,
    initvals: Mapping | Sequence[Mapping] | None,
    seeds: Sequence[np.integer],
) -> list[Point]:
    if step.plan.center is not None:
        if initvals is not None:
            _log.warning("initvals are not used: chains start around the center.")
        return [{} for _ in seeds]
    functions = make_initial_point_fns_per_chain(
        model=step.model, overrides=initvals, jitter_rvs=set(), chains=len(seeds)
    )
    return [function(seed) for function, seed in zip(functions, seeds, strict=True)]


class _Run:
    """One chain's work: what is asked for, what is done, and who takes over the draws."""

    def __init__(
        self,
        step: StochasticGradientStep,
        number: int,
        rng: np.random.Generator,
        point: Point,
        record: Record,
        total: int,
    ):
        self.step, self.number, self.rng, self.point = step, number, rng, point
        self.record, self.total, self.done = record, total, 0
        self.chain: Chain = step.make_chain()
        self.shortened, self.trouble = 1.0, ""

    def work(self, stop: threading.Event) -> None:
        """Run to the end; from the start again with half the step if one chosen by us diverges."""
        again = copy.deepcopy(self.rng)
        while True:
            try:
                return self._work(stop)
            except Divergence as trouble:
                if not self.step.settings.automatic or self.shortened <= _MOST_SHORTENED:
                    raise
                self.shortened, self.trouble = self.shortened / 2, str(trouble).split(":")[0]
            self.rng, self.done = copy.deepcopy(again), 0
            self.record.forget(self.number)

    def _work(self, stop: threading.Event) -> None:
        """Run to the end, in blocks short enough to notice `stop` and to fit into memory."""
        self.step.begin(self.chain, self.point, self.rng)
        block, thin, d = 1, self.step.plan.thin, self.step.problem.size
        draws = gradients = np.empty((0, d))
        while self.done < self.total and not stop.is_set():
            n = min(block, self.total - self.done)
            if n > len(draws):
                draws, gradients = np.empty((n, d)), np.empty((n, d))
            steps = step_sizes(self.step.plan.step_size, self.chain.iteration, n * thin)
            steps *= self.shortened
            began = time.perf_counter()
            self.chain.run(steps, thin, draws[:n], gradients[:n])
            taken = time.perf_counter() - began
            self.record.put(
                self.number, self.done, draws[:n], gradients[:n], steps[thin - 1 :: thin]
            )
            self.done += n
            longest = min(4 * n, self.record.longest_block)
            block = int(np.clip(n * _BLOCK_SECONDS / max(taken, 1e-6), 1, longest))


def _prepare(
    step: StochasticGradientStep,
    rngs: Sequence[np.random.Generator],
    points: Sequence[Point],
    record: Record,
    total: int,
) -> list[_Run]:
    return [
        _Run(step, number, rng, point, record, total)
        for number, (rng, point) in enumerate(zip(rngs, points, strict=True))
    ]


def _run_all(step: StochasticGradientStep, runs: list[_Run], cores: int, progressbar: bool) -> None:
    """Run all chains in threads; an error in one stops the others and is raised."""
    stop = threading.Event()
    with one_blas_thread(), ThreadPoolExecutor(cores) as pool, _bars(progressbar) as bars:
        tasks = [bars.add_task("", total=run.total, chain=i, speed=0) for i, run in enumerate(runs)]
        futures = [pool.submit(run.work, stop) for run in runs]
        began = time.perf_counter()
        try:
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, timeout=0.2)
                _show(bars, tasks, runs, step.plan.thin, time.perf_counter() - began)
                if any(future.exception() for future in done):
                    break
        except KeyboardInterrupt:
            _log.warning("Sampling was interrupted: returning the draws made so far.")
        finally:
            stop.set()
    for future in futures:
        if (error := future.exception()) is not None:
            raise error


def _bars(show: bool) -> Progress:
    return Progress(
        TextColumn("Chain {task.fields[chain]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("draws, {task.fields[speed]:,.0f} iterations/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        disable=not show,
    )


def _show(bars: Progress, tasks: list[TaskID], runs: list[_Run], thin: int, seconds: float) -> None:
    for task, run in zip(tasks, runs, strict=True):
        bars.update(task, completed=run.done, speed=run.done * thin / max(seconds, 1e-9))


def _with_draws(runs: list[_Run], tune: int) -> list[_Run]:
    """The chains that an interruption has left with draws."""
    found = [run for run in runs if run.done > tune]
    if not found:
        raise KeyboardInterrupt("Sampling was interrupted before the first draw after tuning.")
    if len(found) < len(runs):
        _log.warning("%d of %d chains had no draws yet.", len(runs) - len(found), len(runs))
    return found


def _warn_if_shortened(runs: list[_Run], step_size: float | Callable) -> None:
    troubled = [run for run in runs if run.trouble]
    if troubled and not callable(step_size):
        shortest = min(run.shortened for run in troubled) * step_size
        warn(
            f"{len(troubled)} of {len(runs)} chains diverged ({troubled[0].trouble}) and were run "
            f"again with steps as short as {shortest:.2g}. Tails that need such steps may still be "
            "missing: take a larger batch_size and a smaller step_size, and compare."
        )


def _package(
    step: StochasticGradientStep, runs: list[_Run], record: Record, tune: int, seconds: float
) -> Container:
    """The container: all chains cut to the length that every one of them reached."""
    groups = record.groups(min(run.done for run in runs), [run.number for run in runs])
    attrs = {**_attributes(step, tune, seconds), **record.distance()}
    groups["posterior"].attrs.update(attrs)
    groups["sample_stats"].attrs.update(attrs)
    groups["observed_data"] = observed_data(step.model)
    groups["constant_data"] = constant_data(step.model)
    return containers.new_container(groups)


def _attributes(step: StochasticGradientStep, tune: int, seconds: float) -> dict[str, Any]:
    from pymc_sgcv import __version__

    return {
        "inference_library": "pymc_sgcv",
        "inference_library_version": __version__,
        "sampling_time": seconds,
        "tuning_steps": tune,
        "step_method": step.name,
        "parameters": step.problem.size,
        "target_bias": step.settings.target_bias,
        **step.plan.attributes(),
    }
