# SPDX-License-Identifier: Apache-2.0
"""A sampling run from its chains to its result, wherever the draws go."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import xarray as xr

from pymc_sgcv.results.containers import Container
from pymc_sgcv.results.diagnostics import warn_about
from pymc_sgcv.sampling.arguments import Asked, checked_step
from pymc_sgcv.sampling.check import judged
from pymc_sgcv.sampling.package import attributes, package, warn_if_shortened, with_draws
from pymc_sgcv.sampling.provenance import provenance
from pymc_sgcv.sampling.record import Record
from pymc_sgcv.sampling.runs import Run, make_runs, run_all
from pymc_sgcv.sampling.states import state_group
from pymc_sgcv.steps.base import StochasticGradientStep

_log = logging.getLogger("pymc.sgcv")


class Sampling:
    """Chains, their record, and what is made of them.

    `checks_itself` says whether the half-step check is made where nobody has asked for it.
    """

    checks_itself = True

    def __init__(self, asked: Asked, step: StochasticGradientStep, record: Record, runs: list[Run]):
        self.asked, self.step, self.record, self.runs = asked, step, record, runs
        self.stop = threading.Event()
        self.seconds, self.ended, self.interrupted = 0.0, "", False

    def run_and_close(self) -> Container:
        """All of it."""
        try:
            self.run()
            return self.result()
        finally:
            self.close()

    def run(self) -> None:
        """Let the chains run to their end, or until it is enough."""
        began = time.perf_counter()
        try:
            self._run(began)
        finally:
            self.seconds += time.perf_counter() - began

    def _run(self, began: float) -> None:
        until, total = self.asked.until, self.record.total
        asked = self.runs, self.asked.threads, self.asked.progressbar, self.stop
        if until is None:
            self.interrupted = run_all(*asked)
            return
        done, missing = min(run.done for run in self.runs), ["a draw of every chain"]
        for goal in until.goals(self.record.tune, total, done):
            left = max(0.0, until.seconds - (time.perf_counter() - began))
            self.interrupted = run_all(*asked, goal, left)
            if min(run.done for run in self.runs) > self.record.tune:
                missing = until.missing(self.present())
            if self.stop.is_set() or not missing:
                break
        self.ended = ", ".join(missing) or "reached"
        if missing:
            _log.warning("What until asks for is not reached: %s.", self.ended)

    def present(self) -> xr.Dataset:
        """The posterior so far, while no chain runs."""
        return self.record.present(min(run.done for run in self.runs))

    def attributes(self) -> dict[str, Any]:
        """The attributes of the result."""
        known = attributes(self.step, self.record.tune) | {"sampling_time": self.seconds}
        known |= {"until": self.ended} if self.asked.until is not None else {}
        known |= provenance(self.asked.random_seed)
        return {**known, **self.record.distance()}

    def package(self, runs: list[Run]) -> Container:
        """The draws of these chains, and what continues them if none is ahead of the others."""
        groups = self.record.groups(min(run.done for run in runs), [run.number for run in runs])
        if len(runs) == len(self.runs):
            groups |= state_group(self.asked, self.step, runs)
        return package(self.step, groups, self.attributes())

    def result(self) -> Container:
        """The draws, after a warning of what is wrong with them."""
        runs = with_draws(self.runs, self.record.tune, self.interrupted)
        warn_if_shortened(runs, self.step.plan.step_size)
        idata = self.package(runs)
        if all(run.done == self.record.total for run in self.runs):  # an interruption wants an end
            idata = self.judge(idata)
        if self.asked.checks:
            warn_about(idata)
        return idata

    def judge(self, idata: Container) -> Container:
        """The result with what a second run says of it, if that is asked for."""
        check, cores = self.asked.check, min(self.asked.threads, len(self.runs))
        if not check or (check == "auto" and not (self.checks_itself and self.asked.checks)):
            return idata
        ends = [run.chain.position for run in self.runs]
        rngs = [run.rng.spawn(1)[0] for run in self.runs]
        tune, seconds = self.record.tune, self.seconds
        return judged(self.step, idata, check, ends, rngs, cores, tune, seconds)

    def inspect(self) -> Container:
        """The draws that there are while chains run."""
        return package(self.step, self.record.seen(), self.attributes())

    def close(self) -> None:
        """Let go of what others may want."""


def in_memory(asked: Asked) -> Sampling:
    """A run whose draws stay in memory."""
    step = checked_step(asked.step, asked.model, asked.progressbar)
    tune, chains = asked.lengths(step)
    record = Record(*record_of(asked, step, chains, tune, asked.draws))
    return Sampling(asked, step, record, make_runs(step, record, asked.starts(step, chains)))


def record_of(
    asked: Asked, step: StochasticGradientStep, chains: int, tune: int, draws: int
) -> tuple:
    """The arguments of a `Record`."""
    center = step.plan.fixed_center
    theta = None if center is None else center.theta
    names, gradients = asked.names, asked.gradients
    return step.problem.target, names, gradients, chains, tune, draws, asked.keep_tune, theta
