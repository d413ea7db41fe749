# SPDX-License-Identifier: Apache-2.0
"""A control variate that follows its parameters: where the posterior is wide, a constant one fails.

Where a parameter that enters the likelihood as e^θ is uncertain by a factor of several, rows'
gradients with respect to θ die away on one side of the center, and a control variate that stays as
large as it is at the center adds noise there instead of taking it out: in the limit as much as a
plain minibatch has. It should go away with them, as exp(α (θ − θ̂)) with an α for each parameter
(`pymc_sgcv.kernel.estimators`), or with the scales of group effects (`pymc_sgcv.kernel.frame`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pymc_sgcv.kernel.chain import Chain
from pymc_sgcv.kernel.preconditioners import COMPLETE_LIMIT
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center
from pymc_sgcv.setup.noise import control_variate, worst
from pymc_sgcv.setup.probes import colours

_TRIED = -2.0, -1.0, -0.5, 0.5, 1.0, 2.0
_WIDE = 0.15
"""Standard deviation of a parameter below which e^θ is a straight line."""
_PAIRS, _ROWS = 300, 2000
"""Pairs of estimates that are compared, from batches of at most so many rows."""
_NUMBERS, _FEWEST = 2_000_000, 20
"""Of many parameters fewer pairs will do: what is chosen is chosen for a variable as a whole."""
_GAIN = 0.8
"""Share of the noise that may remain for something else than a constant to be worth it."""


def follow(
    problem: Problem, center: Center, points: np.ndarray, rng: np.random.Generator
) -> Center:
    """The center with the control variate that has the least noise at positions `points`."""
    sizes = problem.layout.batch_sizes
    share = min(1.0, _ROWS / sum(sizes))  # which is best does not depend on how many rows
    problem.resize([max(1, round(share * n)) for n in sizes])
    try:
        return _best(problem, center, points, rng)
    finally:
        problem.resize(sizes)


def _best(problem: Problem, center: Center, points: np.ndarray, rng: np.random.Generator) -> Center:
    count = min(len(points), int(np.clip(_NUMBERS // problem.size, _FEWEST, _PAIRS)))
    some = np.linspace(0, len(points) - 1, count).astype(int)
    points, seed = points[some], int(rng.integers(2**32))
    labels = np.arange(problem.size)
    if problem.size > COMPLETE_LIMIT:
        labels = colours(problem.target)

    def differences(center: Center) -> np.ndarray:
        chain = Chain(problem, control_variate(center))
        with np.errstate(over="ignore", invalid="ignore"):
            return chain.pair_differences(points, np.random.default_rng(seed))

    def noise(exponents: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            squares = differences(replace(center, exponents=exponents)) ** 2
            total = np.bincount(labels, np.nan_to_num(squares.mean(0), nan=np.inf))
        return total[labels]

    center = replace(center, exponents=None)
    if center.degree is not None:
        choices = [replace(center, follows=False), replace(center, follows=True)]
        still, moving = (_worst(center, differences(one)) for one in choices)
        center = choices[moving < _GAIN * still]
    wide = (center.factor.spread() > _WIDE) & ~_effects(problem, center)
    if wide.any():
        best, least = np.zeros(problem.size), _GAIN * noise(np.zeros(problem.size))
        for exponent in _TRIED:
            there = noise(np.where(wide, exponent, 0.0))
            better = wide & (there < least)
            best[better], least[better] = exponent, there[better]
        center = replace(center, exponents=best if best.any() else None)
    return center


def _worst(center: Center, differences: np.ndarray) -> float:
    """The noise in the worst whitened direction; infinite where it is not finite."""
    if not np.isfinite(differences).all():
        return np.inf
    factor = center.factor
    return worst(factor, factor.moments(factor.apply_transposed(differences)))


def _effects(problem: Problem, center: Center) -> np.ndarray:
    """Which parameters are group effects: these follow by their coordinates."""
    change, effects = problem.coordinates(center.degree).change, np.zeros(problem.size, dtype=bool)
    if change is not None:
        for block in change.geometry.blocks:
            effects[block.parameter.start : block.parameter.stop] = True
    return effects
