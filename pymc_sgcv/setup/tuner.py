# SPDX-License-Identifier: Apache-2.0
"""Choose strata of rows, batch size and step size of a method by measuring and trying it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pymc_sgcv.kernel.chain import Chain, Divergence, Method
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE, STANDARD
from pymc_sgcv.rows.kept import fitting
from pymc_sgcv.rows.population import DISK, SAMPLE
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center
from pymc_sgcv.setup.noise import around, fixed_center, gradient_noise
from pymc_sgcv.setup.plan import Settings
from pymc_sgcv.setup.strata import influences, stratify
from pymc_sgcv.setup.tuning import Tuning, affordable_noise, choose

_LEAST, _MOST, _MOST_SHARE = 50, 20_000, 0.25
"""The automatic batch has at least so many rows, and at most the larger of a number and a share."""
_CAUTIOUS = 0.2
"""The longest step that is tried where a longer one did not go well."""
_TRIALS, _TRIAL_LENGTH, _SHORTENINGS = 4, 100, 3
_WORTH_STRATA, _WORTH_WITH_EFFECTS, _MUCH_SHORTER = 400, 1000, 0.4
"""Batches of so many rows (more where scales of group effects are known only after the pilot), and
steps shortened so much, are worth the search for better ones."""
_MUCH_SMALLER = 0.7
"""A gain in rows that pays for the calls of another gradient for every stratum."""
_FEW, _AT_LEAST = 0.3, 1000
"""Strata that are so small a share of a batch, or of a batch of so many, are taken whole."""


@dataclass(frozen=True)
class Tuner:
    """Chooses strata of rows, batch size and step size of a method, at given draws."""

    problem: Problem
    method: Method
    center: Center
    settings: Settings
    draws: np.ndarray
    longest: float
    rng: np.random.Generator

    def stratify(self) -> np.ndarray:
        """Draw rows from strata where they need much smaller batches, or allow longer steps.

        And where gradient noise may carry chains away, if that costs no large batches: rows that
        carry a parameter alone are in all of them, then.

        Returns the gradient noise of what was chosen, with batches as large as it asks for.
        """
        uniform = self._fit_batch(self._noise())
        before, needed = self.problem.layout, self._rows_for_steps(uniform)
        plain, keeps = self.method.estimator == STANDARD, not self.problem.chooses_batch
        short = keeps and needed > self.problem.batch_rows / _MUCH_SHORTER
        grows = self.center.exponents is not None  # noise, by factors, with the way from the center
        sampled = self.problem.population == SAMPLE  # in strata that have no good sizes yet
        if before.subsampling != "block" or self.problem.population == DISK:
            return uniform
        worth = _WORTH_STRATA if self.center.degree is None else _WORTH_WITH_EFFECTS
        if not (sampled or short or grows or needed >= worth):
            return uniform
        scores = influences(self.problem, self.center, plain, self.rng)
        if not stratify(self.problem, scores, keeps):
            return uniform
        stratified = self._fit_batch(self._noise())
        enough = max(_MUCH_SMALLER * needed, _AT_LEAST if grows else 0.0)
        if not sampled and self._rows_for_steps(stratified) > enough:
            self.problem.lay_out(before)
            return uniform
        return stratified

    def _rows_for_steps(self, noise: np.ndarray) -> float:
        """Rows that an iteration needs for each unit of step size that the noise allows."""
        return self.problem.batch_rows / (self._choose(noise).step_size / self.longest)

    def _fit_batch(self, noise: np.ndarray) -> np.ndarray:
        """Give batches the size that the noise asks for, if it is ours to choose; what remains."""
        if not self.problem.chooses_batch:
            return noise
        s, factor = self.settings, self.method.factor
        share = affordable_noise(noise, factor, s.target_bias, s.motion, self.longest)
        resize(self.problem, share)
        return self._noise()

    def tune(self, noise: np.ndarray | None) -> Tuning:
        """The batch size, if it is ours to choose, and the step size; `noise` may be known.

        What the set-up knows of the posterior's shape it knows from the draws of a pilot. So the
        step is tried out from where chains will start, and shortened if that does not go well.
        """
        noise = self._noise() if noise is None else noise
        if self.problem.chooses_batch and self.method.estimator in (STANDARD, CONTROL_VARIATE):
            noise = self._fit_batch(noise)
        tuner, tuning = self, self._choose(noise)
        for _ in range(_SHORTENINGS):
            if tuner._goes_well(tuning):
                break
            tuner = replace(tuner, longest=min(_CAUTIOUS, tuning.step_size / 4))
            tuning = tuner._choose(noise)
        return tuning

    def _goes_well(self, tuning: Tuning) -> bool:
        """Whether a few short chains stay finite."""
        method = replace(self.method, factor=tuning.factor, kept=tuning.kept)
        chain = Chain(self.problem, fixed_center(method))
        last = np.empty((2, 1, self.problem.size))
        try:
            for start in around(self.center, self.rng, _TRIALS):
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
    """Give batches the size that has `share` times the gradient noise of the present ones."""
    repeats = problem.layout.subsampling == "iid"
    whole = len(problem.rows) == len(problem.target.plates)
    sizes = []
    for rows in problem.rows:
        all_rows = 0.0 if repeats else 1 / rows.n_rows  # a sample of all rows has no noise
        n = 1 / (share * (1 / rows.batch_size - all_rows) + all_rows)
        most = min(rows.n_rows, max(_MOST, _MOST_SHARE * rows.n_rows)) if whole else rows.n_rows
        sizes.append(int(np.clip(n, min(_LEAST, most), most)))
    if not whole:  # rows that carry a parameter alone are never left to chance
        few = _FEW * max(sum(sizes), _AT_LEAST)
        sizes = [rows.n_rows if rows.n_rows <= few else n for rows, n in zip(problem.rows, sizes)]
    problem.resize([fitting(rows.n_rows, n) for rows, n in zip(problem.rows, sizes, strict=True)])
