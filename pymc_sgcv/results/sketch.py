# SPDX-License-Identifier: Apache-2.0
"""Quantiles of more numbers than are kept: compactors, as of Manku, Rajagopalan & Lindsay (1998).

Level l holds numbers that stand for 2ˡ draws each. When it has 2k of them, they are sorted and
every other one goes to level l + 1, the first or the second of each pair in turn. The first of
pairs make a rank larger by 2ˡ at most and never smaller, the second the other way round, and it
happens n / (2k 2ˡ) times: with L levels above the first no rank is off by more than n L / (4k),
about. Between two numbers that are held lie as many draws as one of them stands for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Sketch:
    """Quantiles of each of `size` columns.

    Parameters
    ----------
    size
        How many columns there are.
    k
        Half of what a level holds: memory is 2k numbers a level and column.

    Examples
    --------
    >>> sketch = Sketch(1, k=64)
    >>> for part in np.split(np.random.default_rng(0).permutation(10_000), 10):
    ...     sketch.add(part[:, None])
    >>> middle = quantiles([sketch], [0.5])[0, 0]
    >>> bool(abs(middle / 10_000 - 0.5) < sketch.rank_error)
    True
    """

    def __init__(self, size: int, k: int = 1024):
        self.size, self.k, self.count = size, k, 0
        self.levels: list[np.ndarray] = [np.empty((0, size))]
        self.turns = [0]

    def add(self, draws: np.ndarray) -> None:
        """Take in draws (n, size)."""
        for start in range(0, len(draws), self.k):
            part = draws[start : start + self.k]
            self.count += len(part)
            self.levels[0] = np.concatenate([self.levels[0], part])
            self._compact()

    def _compact(self) -> None:
        for level in range(len(self.levels)):
            if len(self.levels[level]) < 2 * self.k:
                return
            full = np.sort(self.levels[level][: 2 * self.k], axis=0)
            self.levels[level] = self.levels[level][2 * self.k :]
            if level + 1 == len(self.levels):
                self.levels.append(np.empty((0, self.size)))
                self.turns.append(0)
            self.levels[level + 1] = np.concatenate(
                [self.levels[level + 1], full[self.turns[level] % 2 :: 2]]
            )
            self.turns[level] += 1

    @property
    def rank_error(self) -> float:
        """By how much the share of draws below a quantile may be wrong, at most."""
        moved = sum(-(-turns // 2) * 2**i for i, turns in enumerate(self.turns))
        return min(1.0, (moved + 0.5 * 2 ** (len(self.levels) - 1) + 1) / max(self.count, 1))


def quantiles(sketches: Sequence[Sketch], probabilities: Sequence[float]) -> np.ndarray:
    """Quantiles of all that some sketches have seen: (probabilities, columns)."""
    values = np.concatenate([level for one in sketches for level in one.levels])
    counts = [np.full(len(level), 2.0**i) for one in sketches for i, level in enumerate(one.levels)]
    order, weights = np.argsort(values, axis=0), np.concatenate(counts)
    below = np.cumsum(weights[order], axis=0) - 0.5 * weights[order]
    values = np.take_along_axis(values, order, axis=0)
    ranks = np.multiply(probabilities, weights.sum())
    columns = zip(below.T, values.T, strict=True)
    return np.array([np.interp(ranks, rank, value) for rank, value in columns]).T
