# SPDX-License-Identifier: Apache-2.0
"""Some rows that stand for all: a sample in strata of influence, each row with its weight.

A row has the influence s on the posterior (`pymc_sgcv.setup.strata`), at least what it has in any
one direction. Included with probability p ≥ min(1, s / c) and weighted with 1/p, rows estimate the
precision of the posterior in a direction v with variance

    Σᵢ (1/pᵢ − 1) sᵢ(v)² ≤ c Σᵢ sᵢ(v) ≤ c,

in units of that precision: whatever the direction, the standard deviation there is wrong by half
of √c or less, as a standard error. A row that carries a parameter alone is always in. Strata are
the powers of four between which s / c lies, so that the rows of one have one p. Whether a row is in
depends on its number and its influence alone, not on where or in which order rows are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pymc_sgcv.engine.native import compiled

LEVELS = 14
"""Strata: rows that are always in, and powers of four below; the last has all that is less."""
WIDTH = 4.0
_P_BITS = np.uint64(2)
"""Binary digits of `WIDTH`: so many leading zeros more has the number of a row one stratum on."""
_SEED = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Sample:
    """Rows of one plate that stand for all its rows.

    Attributes
    ----------
    arrays
        One array per row input, of the types of the compiled gradient.
    labels
        The stratum of each row; they are in the order of their strata.
    counts
        How many rows of the data each stratum stands for.
    error
        The relative standard error of a posterior sd that comes from this choice, at most if
        influences are exact.
    in_order
        Whether the arrays are in random order already, and may stay where they are.
    """

    arrays: tuple[np.ndarray, ...]
    labels: np.ndarray
    counts: tuple[int, ...]
    error: float = 0.0
    in_order: bool = False

    @property
    def n_rows(self) -> int:
        """How many rows there are of the sample itself."""
        return len(self.labels)

    @property
    def sizes(self) -> list[int]:
        """The same of each stratum."""
        return np.bincount(self.labels, minlength=len(self.counts)).tolist()

    def weights(self) -> np.ndarray:
        """How many rows of the data each row stands for."""
        return (np.array(self.counts) / self.sizes)[self.labels]


def whole(
    arrays: Sequence[np.ndarray], n_rows: int | None = None, in_order: bool = False
) -> Sample:
    """All rows there are, or a plain sample that stands for `n_rows`."""
    length = len(arrays[0])
    counts = (length if n_rows is None else n_rows,)
    return Sample(tuple(arrays), np.zeros(length, np.int8), counts, 0.0, in_order)


@compiled
def put_influences(terms: np.ndarray, least: float, out: np.ndarray) -> None:
    """What rows have at least, from their log-likelihoods at a point and at pairs around it.

    The mean size of the second differences. A pair that says nothing (NaN) counts as none.
    """
    pairs, n = (len(terms) - 1) // 2, len(out)
    for i in range(n):
        out[i] = 0.0
    for p in range(1, pairs + 1):
        for i in range(n):
            change = abs(terms[p, i] + terms[p + pairs, i] - 2.0 * terms[0, i])
            out[i] += change if change >= 0.0 else 0.0
    for i in range(n):
        mean = out[i] / pairs
        out[i] = mean if mean > least else least


@compiled
def put_levels(influence: np.ndarray, c: float, out: np.ndarray) -> None:
    """The stratum of each row: 0 where it is always in, the last where it is NaN."""
    n, bound = len(out), c
    for i in range(n):
        out[i] = 0
    for _ in range(1, LEVELS):
        bound /= WIDTH
        for i in range(n):
            out[i] += np.int8(0) if influence[i] > bound else np.int8(1)


@compiled
def put_chosen(first: int, level: np.ndarray, out: np.ndarray) -> None:
    """Which rows are in, of those from number `first` on.

    Those whose random number (splitmix64 of the row's, always the same) is below their p.
    """
    z = np.uint64(first) * _SEED
    for i in range(len(out)):
        z += _SEED
        x = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = (x ^ (x >> np.uint64(31))) >> np.uint64(11)
        out[i] = x >> (np.uint64(53) - _P_BITS * np.uint64(level[i])) == np.uint64(0)


def probabilities() -> np.ndarray:
    """The p of each stratum: s / c of the largest influence in it."""
    return WIDTH ** -np.arange(float(LEVELS))


def collected(
    arrays: Sequence[np.ndarray], level: np.ndarray, counts: np.ndarray, c: float
) -> Sample:
    """A sample of the rows that were chosen, given how many there are of each stratum in all.

    A stratum with rows of which none was chosen has a few rows of next to no influence, and is left
    out.
    """
    order = np.argsort(level, kind="stable")
    taken = np.bincount(level, minlength=LEVELS)
    there = np.flatnonzero(taken)
    stands_for = counts[there]
    variance = np.max(c * (1 - probabilities()[there]), initial=0.0)
    return Sample(
        tuple(array[order] for array in arrays),
        np.searchsorted(there, level[order]).astype(np.int8),
        tuple(int(n) for n in stands_for),
        0.5 * float(np.sqrt(variance)),
    )
