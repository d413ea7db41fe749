# SPDX-License-Identifier: Apache-2.0
"""Choose row weights, batch size and step size of a method by measuring and trying it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pymc_sgcv.kernel.chain import Chain, Divergence, Method
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE, STANDARD
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center
from pymc_sgcv.setup.noise import around, fixed_center, gradient_noise
from pymc_sgcv.setup.plan import Settings
from pymc_sgcv.setup.tuning import Tuning, affordable_noise, choose
from pymc_sgcv.setup.weights import prefer

_LEAST, _MOST, _MOST_SHARE = 50, 20_000, 0.25
"""The automatic batch has at least so many rows, and at most the larger of a number and a share."""
_CAUTIOUS = 0.2
"""The longest step that is tried where a longer one did not go well."""
_TRIALS, _TRIAL_LENGTH, _SHORTENINGS = 4, 100, 3
_MUCH_SHORTER = 0.4
"""A gain in the step that pays for the gathering of weighted rows, which doubles the cost."""


@dataclass(frozen=True)
class Tuner:
    """Chooses row weights, batch size and step size of a method, at given draws."""

    problem: Problem
    method: Method
    settings: Settings
    draws: np.ndarray
    longest: float
    rng: np.random.Generator

    def weigh(self) -> np.ndarray:
        """Draw rows with preferential weights if noise limits the step and they help much.

        Returns the gradient noise with the weights that were chosen.
        """
        uniform = self._noise()
        step = self._choose(uniform).step_size
        if step >= _MUCH_SHORTER * self.longest:
            return uniform
        before, plain = self.problem.layout, self.method.estimator == STANDARD
        assert self.method.center is not None  # weights are those of rows seen around it
        prefer(self.problem, self.method.center, self.method.factor, plain, self.rng)
        preferred = self._noise()
        if step >= _MUCH_SHORTER * self._choose(preferred).step_size:
            self.problem.lay_out(before)
            return uniform
        return preferred

    def tune(self, noise: np.ndarray | None, center: Center) -> Tuning:
        """The batch size, if it is ours to choose, and the step size; `noise` may be known.

        What the set-up knows of the posterior's shape it knows from the draws of a pilot. So the
        step is tried out from where chains will start, and shortened if that does not go well.
        """
        s = self.settings
        noise = self._noise() if noise is None else noise
        if self.problem.chooses_batch and self.method.estimator in (STANDARD, CONTROL_VARIATE):
            factor = self.method.factor
            share = affordable_noise(noise, factor, s.target_bias, s.motion, self.longest)
            resize(self.problem, share)
            noise = self._noise()
        tuner, tuning = self, self._choose(noise)
        for _ in range(_SHORTENINGS):
            if tuner._goes_well(tuning, center):
                break
            tuner = replace(tuner, longest=min(_CAUTIOUS, tuning.step_size / 4))
            tuning = tuner._choose(noise)
        return tuning

    def _goes_well(self, tuning: Tuning, center: Center) -> bool:
        """Whether a few short chains stay finite."""
        method = replace(self.method, factor=tuning.factor, kept=tuning.kept)
        chain = Chain(self.problem, fixed_center(method))
        last = np.empty((2, 1, self.problem.size))
        try:
            for start in around(center, self.rng, _TRIALS):
                chain.start(start, self.rng)
                chain.run(np.full(_TRIAL_LENGTH, tuning.step_size), _TRIAL_LENGTH, *last)
        except Divergence:
            return False
        return True

    def _noise(self) -> np.ndarray:
        return gradient_noise(self.problem, self.method, self.draws, self.method.factor, self.rng)

    def _choose(self, noise: np.ndarray) -> Tuning:
        s = self.settings
        return choose(noise, self.method.factor, s.target_bias, s.motion, self.longest)


def resize(problem: Problem, share: float) -> None:
    """Give every plate the batch that has `share` times the gradient noise of the present one."""
    repeats = problem.layout.subsampling == "iid"
    sizes = []
    for rows in problem.rows:
        all_rows = 0.0 if repeats else 1 / rows.n_rows  # a sample of all rows has no noise
        n = 1 / (share * (1 / rows.batch_size - all_rows) + all_rows)
        most = min(rows.n_rows, max(_MOST, _MOST_SHARE * rows.n_rows))
        sizes.append(int(np.clip(n, min(_LEAST, most), most)))
    problem.resize(sizes)
