# SPDX-License-Identifier: Apache-2.0
"""Sums of gradients over rows in memory: all of them, or a random part scaled up."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pymc_sgcv.rows.minibatch import Scratch, add_row_sum

_PARTS = 16
"""Full passes are summed in this many parts, whatever the cores, for the same result."""
_PIECE_BYTES = 1 << 18


def some_of(scratch: Scratch, fraction: float) -> Scratch:
    """A random sample of the rows, the same at every call; all of them if that is as many."""
    n_rows = scratch.rows.n_rows
    k = math.ceil(fraction * n_rows)
    return scratch if k >= n_rows else scratch.rows.sample(k).scratch()


def summed(
    whole: Sequence[Scratch],
    samples: Sequence[Scratch],
    points: np.ndarray,
    cores: int | None = None,
) -> np.ndarray:
    """Σᵢ ∇ℓᵢ at each of `points`, over the rows that `samples` of the `whole` stand for."""
    jobs = [
        (sample.record, start, stop, all_rows.rows.stands_for / sample.rows.n_rows, piece)
        for all_rows, sample in zip(whole, samples, strict=True)
        for start, stop, piece in _parts(sample)
    ]

    def work(job: tuple[np.ndarray, int, int, float, int]) -> np.ndarray:
        record, start, stop, weight, piece = job
        out = np.zeros(points.shape)
        add_row_sum(record, points, start, stop, np.full(piece, weight), out)
        return out

    with ThreadPoolExecutor(cores or os.cpu_count()) as pool:
        return sum(pool.map(work, jobs), np.zeros(points.shape))


def rows_of_a_piece(n_rows: int, row_bytes: int) -> int:
    """How many of n rows go into one call, so that all points find them in the cache."""
    return max(16, min(n_rows, _PIECE_BYTES // max(row_bytes, 1)))


def _parts(scratch: Scratch) -> Iterator[tuple[int, int, int]]:
    """First and last row of each part of a pass, and how many rows go into one call."""
    rows = scratch.rows
    bounds = np.linspace(0, rows.n_rows, min(_PARTS, rows.n_rows) + 1).astype(int)
    piece = rows_of_a_piece(rows.n_rows, rows.row_bytes)
    for start, stop in itertools.pairwise(bounds):
        yield int(start), int(stop), piece
