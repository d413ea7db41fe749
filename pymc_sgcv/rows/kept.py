# SPDX-License-Identifier: Apache-2.0
"""What a control variate's center says of the rows, kept for pieces of them and not summed anew.

A control variate at a fixed center needs Σ ℓᵢ′(θ̂) over the very rows of a minibatch. Where batches
are large, blocks begin and end with pieces, of which each has its sum: a batch then takes the
gradient at θ alone, half of the work. A block is B of K pieces, cyclic, of which any is in B of the
K blocks: unbiased with the weight K/B, however long the pieces are. Of a stratum that is in every
batch there is one piece.

A group's effect is in few pieces, so of each sum only what is not zero is held.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_sgcv.rows.minibatch import BLOCK, Rows, Scratch, add_row_sum
from pymc_sgcv.rows.sums import rows_of_a_piece

_FEWEST, _LEAST_SHARE = 512, 1 / 500
"""Smaller batches, or shares of all rows, do not pay for a pass over these, or for the pieces."""
_PIECES = range(12, 33)
_INEXACT = 1e-3
"""By how much a batch may be larger or smaller than it should, relatively."""
_PARAMETERS_PER_ROW = 64
"""A call takes time for each parameter too: pieces are not much shorter than these are many."""
_SPARE_BYTES = 1 << 26
"""The sums may take so much memory, or as much as the rows."""


@dataclass(frozen=True)
class Kept:
    """Σ ℓᵢ′(θ̂) of the pieces of one plate or stratum, without zeros.

    Attributes
    ----------
    count, together
        K, the pieces that there are, and B, those of a batch.
    starts
        Where each piece's numbers begin, and where the last one's end, (K + 1,).
    places, values
        Parameters, and sums of their derivatives.
    """

    count: int
    together: int
    starts: np.ndarray
    places: np.ndarray
    values: np.ndarray

    @cached_property
    def table(self) -> np.ndarray:
        """What compiled code takes."""
        arrays = self.starts, self.places, self.values
        words = [self.count, self.together, *(array.ctypes.data for array in arrays)]
        return np.array(words, dtype=np.intp)


def pieces_of(n_rows: int, batch: int) -> tuple[int, int] | None:
    """K and B for batches of so many rows, or None if these are too small or do not fit."""
    if batch >= n_rows:
        return 1, 1
    if batch < max(_FEWEST, _LEAST_SHARE * n_rows):
        return None
    found = [(round(b * n_rows / batch), b) for b in _PIECES]
    apart = [abs(b * n_rows / k - batch) if k > b else np.inf for k, b in found]
    best = int(np.argmin(apart))
    return found[best] if apart[best] <= _INEXACT * batch else None


def fitting(n_rows: int, batch: int) -> int:
    """The nearest size of batches of about so many rows for which there are pieces."""
    if batch >= n_rows or batch < max(_FEWEST, _LEAST_SHARE * n_rows):
        return batch
    b = _PIECES[len(_PIECES) // 4]
    return round(b * n_rows / max(round(b * n_rows / batch), b + 1))


def keep(rows: Rows, scratch: Scratch, center: np.ndarray) -> Kept | None:
    """The sums at a point, or None where they do not pay."""
    pieces = pieces_of(rows.n_rows, rows.batch_size)
    if pieces is None or rows.method != BLOCK:
        return None
    count, together = pieces
    if len(center) * count > _PARAMETERS_PER_ROW * rows.n_rows:
        return None
    limit = max(_SPARE_BYTES, rows.n_rows * rows.row_bytes)
    first = _sum_of_piece(rows, scratch, center, count, 0)
    if count * sum(array.nbytes for array in first) > limit:
        return None
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rest = pool.map(lambda k: _sum_of_piece(rows, scratch, center, count, k), range(1, count))
        found = [first, *rest]
    starts = np.concatenate([[0], np.cumsum([len(places) for places, _ in found])])
    places, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Kept(count, together, starts.astype(np.intp), places, values)


def _sum_of_piece(
    rows: Rows, scratch: Scratch, center: np.ndarray, count: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Parameters that the rows of one piece know of, and the sums of their derivatives."""
    start, stop = k * rows.n_rows // count, (k + 1) * rows.n_rows // count
    ones = np.ones(rows_of_a_piece(rows.n_rows, rows.row_bytes))
    total = np.zeros((1, len(center)))
    add_row_sum(scratch.record, center[None], start, stop, ones, total)
    places = np.flatnonzero(total[0])
    return places.astype(np.int32), total[0, places]


class Keeper:
    """Sums at one center, for all that chains do with it; those at another replace them.

    Attributes
    ----------
    rows_read
        How many rows were summed for them, since the beginning.
    """

    def __init__(self) -> None:
        self._center = b""
        self._held: dict[tuple[int, int, int], Kept | None] = {}
        self.rows_read = 0

    def at(
        self, center: np.ndarray, rows: Sequence[Rows], scratch: Sequence[Scratch]
    ) -> list[Kept | None]:
        """One for each of `rows`."""
        center = np.ascontiguousarray(center, dtype=float)
        known = self._held if center.tobytes() == self._center else {}
        held: dict[tuple[int, int, int], Kept | None] = {}
        for number, (one, own) in enumerate(zip(rows, scratch, strict=True)):
            key = number, one.n_rows, one.batch_size
            if key not in known:
                held[key] = keep(one, own, center)
                self.rows_read += 0 if held[key] is None else one.n_rows
            else:
                held[key] = known[key]
        self._center, self._held = center.tobytes(), held
        return list(held.values())
