# SPDX-License-Identifier: Apache-2.0
"""Chains as threads: each runs in compiled code, in blocks, and hands its draws over."""

from __future__ import annotations

import copy
import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from pymc_sgcv.engine.blas import one_blas_thread
from pymc_sgcv.kernel.chain import Chain, Divergence
from pymc_sgcv.kernel.schedules import step_sizes
from pymc_sgcv.sampling.bars import make_bars, show_progress
from pymc_sgcv.sampling.record import Record
from pymc_sgcv.setup.plan import Plan
from pymc_sgcv.steps.base import Point, StochasticGradientStep

_log = logging.getLogger("pymc.sgcv")
_PIECE_SECONDS = 0.1
"""How long compiled code runs before it looks up: progress and Ctrl-C wait no longer."""
_MOST_SHORTENED = 1 / 32


class Run:
    """One chain's work: what is asked for, what is done, and who takes over the draws.

    Blocks end where `Record.end_of_block` says, however long compiled code runs at a time: what is
    computed from a block then has the same bits on a fast machine and on a slow one.

    Attributes
    ----------
    done
        Draws made so far; those from `first` on are still in the buffers.
    shortened
        What the steps are multiplied by, after the chain has diverged and begun again.
    trouble
        What diverged last.
    continued
        Whether the chain's beginning is in another record: then it cannot begin again.
    """

    def __init__(
        self,
        step: StochasticGradientStep,
        plan: Plan,
        number: int,
        rng: np.random.Generator,
        point: Point,
        record: Record,
    ):
        self.step, self.plan, self.number, self.rng, self.point = step, plan, number, rng, point
        self.record, self.total = record, record.total
        self.chain = Chain(step.problem, plan.method)
        self.begun, self.first, self.done = False, 0, 0
        self.shortened, self.trouble, self.continued = 1.0, "", False
        self.draws = self.gradients = np.empty((0, step.problem.size))
        self.steps = np.empty(0)

    def work(self, stop: threading.Event, goal: int | None = None) -> None:
        """Run to the end or to a goal; from the start again if a step chosen by us diverges.

        With half of it then.
        """
        while True:
            try:
                return self._work(stop, self.total if goal is None else min(self.total, goal))
            except Divergence as trouble:
                last = self.continued or self.shortened <= _MOST_SHORTENED
                if last or not self.step.settings.automatic:
                    raise
                self.shortened, self.trouble = self.shortened / 2, str(trouble).split(":")[0]
            self.begun, self.first, self.done = False, 0, 0
            self.record.forget(self)

    def _work(self, stop: threading.Event, goal: int) -> None:
        """Run to the goal, in pieces short enough to notice `stop`."""
        if stop.is_set():
            return
        if not self.begun:
            self.step.begin(self.chain, self.point, copy.deepcopy(self.rng))
            self.begun = True
        n = 1
        while self.done < goal and not stop.is_set():
            end = self.record.end_of_block(self.first)
            n = min(n, end - self.done, goal - self.done)
            began = time.perf_counter()
            self._move(n, min(end, self.total) - self.first)
            taken = time.perf_counter() - began
            n = int(np.clip(n * _PIECE_SECONDS / max(taken, 1e-6), 1, 4 * n))
            if self.done == end:
                self.hand_over(whole=True)
                self.first = end
            self.record.save(self)
        self.hand_over()
        self.record.save(self, now=True)
        if self.done == self.total:
            self.first = self.done
            self.draws = self.gradients = self.draws[:0].copy()

    def _move(self, n: int, length: int) -> None:
        """Make the next n draws of a block of at most this length."""
        if length > len(self.draws):
            self._make_room(length)
        thin, place = self.plan.thin, self.done - self.first
        part = slice(place, place + n)
        steps = step_sizes(self.plan.step_size, self.chain.iteration, n * thin) * self.shortened
        self.chain.run(steps, thin, self.draws[part], self.gradients[part])
        self.steps[part] = steps[thin - 1 :: thin]
        self.done += n

    def _make_room(self, n: int) -> None:
        d, filled = self.step.problem.size, self.done - self.first
        for name, shape in (("draws", (n, d)), ("gradients", (n, d)), ("steps", (n,))):
            new = np.empty(shape)
            new[:filled] = getattr(self, name)[:filled]
            setattr(self, name, new)

    def hand_over(self, whole: bool = False) -> None:
        """Give the draws of the block under way to the record."""
        if n := self.done - self.first:
            block = self.draws[:n], self.gradients[:n], self.steps[:n]
            self.record.put(self.number, self.first, *block, whole)

    def state(self) -> dict[str, Any]:
        """All that it takes to go on from here, by `resume`."""
        n = self.done - self.first
        return {
            "first": self.first,
            "done": self.done,
            "shortened": self.shortened,
            "trouble": self.trouble,
            "draws": self.draws[:n].copy(),
            "gradients": self.gradients[:n].copy(),
            "steps": self.steps[:n].copy(),
            "chain": self.chain.state(whole=True) if self.begun else None,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on where another run's `state` was taken."""
        self.first, self.done = state["first"], state["done"]
        self.shortened, self.trouble = state["shortened"], state["trouble"]
        self.draws, self.gradients = state["draws"], state["gradients"]
        self.steps = state["steps"]
        if state["chain"] is not None:
            self.chain.resume(state["chain"])
            self.begun = True


def make_runs(
    step: StochasticGradientStep,
    record: Record,
    starts: Sequence[tuple[np.random.Generator, Point]],
    plan: Plan | None = None,
) -> list[Run]:
    """A run for each start; they do the step's own plan unless another is given."""
    return [
        Run(step, plan or step.plan, number, rng, point, record)
        for number, (rng, point) in enumerate(starts)
    ]


def run_all(
    runs: list[Run],
    cores: int,
    progressbar: bool,
    stop: threading.Event,
    goal: int | None = None,
    seconds: float = math.inf,
) -> bool:
    """Run all chains in threads; an error in one stops the others and is raised.

    They run to their end, to a goal, until someone says stop, or for so many seconds. Whether they
    were interrupted by Ctrl-C is what is returned.
    """
    interrupted = False
    with one_blas_thread(), ThreadPoolExecutor(cores) as pool, make_bars(progressbar) as bars:
        tasks = [bars.add_task("", total=run.total, chain=run.number, speed=0) for run in runs]
        futures = [pool.submit(run.work, stop, goal) for run in runs]
        began = time.perf_counter()
        try:
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, timeout=0.2)
                show_progress(bars, tasks, runs, time.perf_counter() - began)
                late = time.perf_counter() - began > seconds
                if late or any(future.exception() for future in done):
                    stop.set()
        except KeyboardInterrupt:
            _log.warning("Sampling was interrupted: returning the draws made so far.")
            interrupted = True
            stop.set()
        except BaseException:
            stop.set()
            raise
    for future in futures:
        if (error := future.exception()) is not None:
            raise error
    return interrupted
