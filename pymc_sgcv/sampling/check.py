# SPDX-License-Identifier: Apache-2.0
"""The half-step check: a second run with half the step and twice the batch, and what it changes.

It starts where the first run ended, forgets that start, and makes as many draws as the first, each
of twice as many iterations (or of as many, where time is short). What is compared and how often it
errs is told in `pymc_sgcv.results.halfstep`.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from pymc_sgcv.engine.blas import one_blas_thread
from pymc_sgcv.kernel.chain import Chain, Divergence, Method
from pymc_sgcv.kernel.dynamics import BADODAB, BAOAB
from pymc_sgcv.results.containers import Container, get_group, with_groups
from pymc_sgcv.results.halfstep import compare, to_groups
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.sampling.excursions import affordable, excursions
from pymc_sgcv.sampling.record import Record
from pymc_sgcv.steps.base import StochasticGradientStep

_log = logging.getLogger("pymc.sgcv")
CHEAP_SECONDS = 5.0
MOST_NUMBERS = 50_000_000
"""Draws times components that an automatic check may hold in memory: 400 MB."""
LEAST_DRAWS = 40
"""In each chain; with fewer, batch means say nothing."""
_SETTLING = 10
"""One draw in so many is made before the draws that count."""
_BLOCK_ITERATIONS = 2000
"""After so many a chain looks whether it shall stop."""


def judged(
    step: StochasticGradientStep,
    idata: Container,
    check: bool | str,
    positions: Sequence[np.ndarray],
    rngs: Sequence[np.random.Generator],
    cores: int,
    tune: int,
    seconds: float,
) -> Container:
    """The result with what `excursions` and `half_step_check` find, as far as these are wanted.

    `seconds` is how long sampling took; the rest as for `half_step_check`.
    """
    if not check:
        return idata
    sizes = get_group(idata, "posterior").sizes
    made = (sizes["draw"] + tune) * sizes["chain"] * step.plan.thin
    budget = max(CHEAP_SECONDS, step.plan.seconds + seconds) if check == "auto" else np.inf
    lines = affordable(step, made * step.problem.batch_rows, seconds, budget)
    idata = with_attributes(idata, excursions(step, idata, lines))
    if times := iterations(step, check, idata, tune, seconds):
        idata = half_step_check(step, idata, positions, rngs, cores, times)
    return idata


def iterations(
    step: StochasticGradientStep, check: bool | str, idata: Container, tune: int, seconds: float
) -> int:
    """How many times the first run's iterations to make to a draw: 2, 1, or 0 for no check.

    If it is asked for, 2. Otherwise what is cheap: predicted, from the `seconds` of the first run,
    to take no longer than set-up and sampling together, or 5 s if that is more, and 400 MB at most.
    """
    if check != "auto":
        return 2 if check else 0
    posterior = get_group(idata, "posterior")
    draws = posterior.sizes["draw"]
    numbers = sum(v.size for v in _compared(step, posterior).values())
    if draws < LEAST_DRAWS or callable(step.plan.step_size) or numbers > MOST_NUMBERS:
        return 0
    per_iteration = sum(_more_rows(step.problem)) / max(step.problem.batch_rows, 1)
    once = seconds * per_iteration * (draws + draws // _SETTLING) / (draws + tune)
    budget = max(CHEAP_SECONDS, step.plan.seconds + seconds)
    return int(min(budget / max(once, 1e-9), 2.0))


def half_step_check(
    step: StochasticGradientStep,
    idata: Container,
    positions: Sequence[np.ndarray],
    rngs: Sequence[np.random.Generator],
    cores: int,
    times: int = 2,
) -> Container:
    """The result with the comparison as groups ``half_step`` and ``half_step_quantiles``.

    Parameters
    ----------
    step
        The step method of the first run.
    idata
        Its result.
    positions
        Where its chains ended, in the coordinates that they move in.
    rngs
        One for each chain.
    cores
        Number of threads.
    times
        How many times the first run's iterations there are to a draw.
    """
    posterior = _compared(step, get_group(idata, "posterior"))
    draws, names = posterior.sizes["draw"], [str(name) for name in posterior]
    problem, method = halved(step)
    settling = max(draws // _SETTLING, 10)
    record = Record(
        step.problem.target, names, False, len(rngs), settling, draws, keep_tune=False, center=None
    )
    sizes = get_group(idata, "sample_stats")["step_size"].values[:, -1] / 2
    thin = times * step.plan.thin
    block = max(1, _BLOCK_ITERATIONS // thin)
    stop = threading.Event()
    chains = [Chain(problem, method) for _ in rngs]  # PyTensor's functions are not for threads

    def work(number: int) -> None:
        chain, done = chains[number], 0
        chain.start(positions[number], rngs[number], method.center)
        while done < settling + draws and not stop.is_set():
            n = min(block, record.end_of_block(done) - done, settling + draws - done)
            values, steps = np.empty((2, n, problem.size)), np.full(n * thin, sizes[number])
            chain.run(steps, thin, values[0], values[1])
            record.put(number, done, values[0], values[1], steps[::thin])
            done += n

    try:
        with one_blas_thread(), ThreadPoolExecutor(cores) as pool:
            try:
                list(pool.map(work, range(len(rngs))))
            finally:
                stop.set()
    except Divergence as trouble:
        where = str(trouble).split(" is not finite")[0]
        return with_attributes(idata, {"half_step_diverged": where})
    except KeyboardInterrupt:
        _log.warning("The half-step check was interrupted: returning the draws without it.")
        return idata
    second = record.groups(settling + draws, range(len(rngs)))["posterior"]
    found = compare(posterior, second, step.settings.target_bias)
    euler = step.settings.motion.kind not in (BAOAB, BADODAB)
    groups = to_groups(found, posterior, euler)
    sentence = found.sentence()
    _log.info("%s", sentence)
    return with_attributes(with_groups(idata, groups), {"half_step": sentence})


def halved(step: StochasticGradientStep) -> tuple[Problem, Method]:
    """The same data in batches twice as large, and the method for half the step.

    Injected noise keeps 1 − B(h) v of its variance, and so 1 − B(h/2) v′ with the noise v′ of
    the larger batch.
    """
    problem, method = copy.copy(step.problem), step.plan.method
    before, after = step.problem.layout.batch_sizes, _more_rows(step.problem)
    problem.resize(after)
    motion, whole = step.settings.motion, step.plan.step_size
    if step.plan.tuning is None or method.kept is None or callable(whole):
        return problem, method
    of_all = [0.0 if problem.layout.subsampling == "iid" else 1 / r.n_rows for r in problem.rows]
    left = [
        (1 / b - all_rows) / max(1 / a - all_rows, 1e-300) if b < r.n_rows or not all_rows else 0.0
        for a, b, all_rows, r in zip(before, after, of_all, problem.rows, strict=True)
    ]
    per_noise = [motion.at(h).variances()[1] for h in (whole, whole / 2)]
    taken = (1 - method.kept**2) * max(left) * per_noise[1] / per_noise[0]
    return problem, replace(method, kept=np.sqrt(1 - taken))


def _more_rows(problem: Problem) -> list[int]:
    """Twice the batch of every plate, or all rows where it has fewer."""
    sizes = zip(problem.layout.batch_sizes, problem.rows, strict=True)
    return [min(2 * n, rows.n_rows) for n, rows in sizes]


def _compared(step: StochasticGradientStep, posterior: xr.Dataset) -> xr.Dataset:
    """Free variables: what depends on them follows. Of a result without any, all there is."""
    names = [rv.name for rv in step.model.free_RVs if rv.name in posterior]
    names = names or [str(name) for name in posterior]
    return posterior[[name for name in names if posterior[name].dtype.kind == "f"]]


def with_attributes(idata: Container, attrs: Mapping[str, Any]) -> Container:
    """The result with further attributes of its posterior."""
    posterior = get_group(idata, "posterior")
    posterior.attrs.update(attrs)
    return with_groups(idata, {"posterior": posterior})
