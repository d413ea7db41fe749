# SPDX-License-Identifier: Apache-2.0
"""Which rows an iteration sees, and where they are in memory.

Three ways to draw a minibatch of n out of N rows, all of them unbiased:

``"block"``
    a random contiguous block of a once-shuffled copy of the data, cyclic. No gathering: fastest.
``"without"``
    a fresh uniform sample without replacement, gathered row by row.
``"iid"``
    independent rows with replacement (the paper), uniform or with given probabilities.

Blocks may be drawn from strata, sets of rows of which some are seen more often than others, up to
always: a minibatch is then a block of each, every row weighted with how seldom it is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from numba import carray

from pymc_sgcv.engine.compile import Gradient
from pymc_sgcv.engine.native import call, compiled, pointer, prefetch
from pymc_sgcv.engine.xoshiro import below, uniform
from pymc_sgcv.rows.alias import alias_table
from pymc_sgcv.rows.shuffle import SEED, shuffled

if TYPE_CHECKING:
    from pymc_sgcv.rows.kept import Kept

SUBSAMPLING = ("block", "without", "iid")
BLOCK, WITHOUT, IID, WEIGHTED, PIECES = range(5)

# The words of a plate's record, an int64 vector that compiled code reads.
(
    FUNCTION,
    FULL_TABLE,
    BUFFER_TABLE,
    N_ROWS,
    BATCH,
    PIECE,
    METHOD,
    WEIGHTS,
    INDEX,
    COLUMNS,
    N_COLUMNS,
    CHANCE,
    ALIAS,
    SCALE,
    ORDER,
    KEPT,
    RECORD_LENGTH,
) = range(17)

_PIECE_BYTES = 1 << 18
"""Rows are summed in pieces of about this size, so that all points find them in the cache."""
_AHEAD = 16
"""How many rows ahead of the gathering the next ones are asked for."""


class Rows:
    """The data of one plate, laid out for a way of subsampling; shared by all chains.

    Parameters
    ----------
    gradient
        The plate's compiled gradient.
    arrays
        The data, one array per row input, with equal leading lengths.
    fixed
        Values of the gradient's fixed arguments.
    batch_size
        n, the rows of one minibatch.
    subsampling
        One of ``"block"``, ``"without"``, ``"iid"``.
    weights
        Row probabilities pᵢ (any positive scale) for ``"iid"``.
    labels
        The stratum of each row for ``"block"``: the copy is in their order.
    stands_for
        How many rows of the data these stand for; by default they are all.
    in_order
        Whether the arrays are in random order, and may stay where they are.
    """

    def __init__(
        self,
        gradient: Gradient,
        arrays: Sequence[np.ndarray],
        fixed: Sequence[np.ndarray],
        batch_size: int,
        subsampling: str = "block",
        weights: np.ndarray | None = None,
        labels: np.ndarray | None = None,
        stands_for: int | None = None,
        in_order: bool = False,
    ):
        kinds = [kind.dtype for kind in gradient.row_types]
        self.n_rows = len(arrays[0])
        self.stands_for = self.n_rows if stands_for is None else stands_for
        self.method = WEIGHTED if weights is not None else SUBSAMPLING.index(subsampling)
        if self.method == BLOCK and not in_order:
            self.arrays = shuffled(arrays, kinds, labels)
        else:
            self.arrays = [np.ascontiguousarray(a, k) for a, k in zip(arrays, kinds, strict=True)]
        self.gradient = gradient
        self.fixed = fixed
        self.row_bytes = sum(a.strides[0] for a in self.arrays)
        self.weights = weights
        self._set_batch_size(batch_size)

    def _set_batch_size(self, n: int) -> None:
        self.batch_size = n
        self.piece = int(np.clip(_PIECE_BYTES // max(self.row_bytes, 1), 16, max(n, 16)))
        self.chances = alias_table(self.weights, n) if self.weights is not None else None

    def resized(self, batch_size: int) -> Rows:
        """The same data where they are, for minibatches of another size."""
        other = copy(self)
        other._set_batch_size(batch_size)
        return other

    @property
    def scale(self) -> float:
        """N/n, the weight of a row of a uniform minibatch."""
        return self.stands_for / self.batch_size

    def scratch(self, kept: Kept | None = None) -> Scratch:
        """What one chain needs for itself: buffers, weights, indices.

        With sums at the center of its control variate it draws blocks of whole pieces.
        """
        return Scratch(self, kept)

    def strata(
        self,
        counts: Sequence[int],
        batch_sizes: Sequence[int],
        stand_for: Sequence[int] | None = None,
    ) -> list[Rows]:
        """So many rows after the other as data of their own, not copied, with a batch of each."""
        parts, start = [], 0
        for count, n, stands_for in zip(counts, batch_sizes, stand_for or counts, strict=True):
            part = copy(self)
            part.stands_for = stands_for
            part.n_rows, part.arrays = count, [a[start : start + count] for a in self.arrays]
            part._set_batch_size(n)
            parts.append(part)
            start += count
        return parts

    def sample(self, k: int) -> Rows:
        """Some k random rows as data of their own; of a shuffled copy the first k, not copied."""
        part = copy(self)
        part.n_rows, part.method, part.chances = k, BLOCK, None
        if self.method != BLOCK:
            chosen = np.random.default_rng(SEED).integers(0, self.n_rows, k)
            part.arrays = [array[np.sort(chosen)] for array in self.arrays]
        return part


class Scratch:
    """A plate's record for compiled code and the memory it points to, for one chain."""

    def __init__(self, rows: Rows, kept: Kept | None = None):
        n = rows.batch_size
        self.rows, self.kept = rows, kept
        scale = rows.scale
        if kept is not None:
            n, scale = rows.piece, rows.stands_for / rows.n_rows * kept.count / kept.together
        self.weights = np.full(n, scale)
        self.index = np.zeros(n, dtype=np.intp)
        self.full_table = rows.gradient.arguments(rows.arrays, rows.fixed)
        gathers = rows.method != BLOCK
        shape = (min(rows.piece, n),) if gathers else (0,)
        self.buffers = [np.empty(shape + a.shape[1:], a.dtype) for a in rows.arrays]
        self.buffer_table = rows.gradient.arguments(self.buffers, rows.fixed)
        self.columns = np.array(
            [
                (a.ctypes.data, a.strides[0], b.ctypes.data)
                for a, b in zip(rows.arrays, self.buffers, strict=True)
            ],
            dtype=np.intp,
        )
        self.order = np.arange(rows.n_rows if rows.method == WITHOUT else 0)
        self.record = self._fill_record()

    def _fill_record(self) -> np.ndarray:
        rows, record = self.rows, np.zeros(RECORD_LENGTH, dtype=np.intp)
        record[FUNCTION] = rows.gradient.address
        record[N_ROWS], record[BATCH], record[PIECE] = rows.n_rows, rows.batch_size, rows.piece
        record[METHOD], record[N_COLUMNS] = rows.method, len(rows.arrays)
        pointed = {
            FULL_TABLE: self.full_table,
            BUFFER_TABLE: self.buffer_table,
            WEIGHTS: self.weights,
            INDEX: self.index,
            COLUMNS: self.columns,
            ORDER: self.order,
        }
        if self.kept is not None:
            record[METHOD], pointed[KEPT] = PIECES, self.kept.table
        if rows.chances is not None:
            pointed |= dict(zip((CHANCE, ALIAS, SCALE), rows.chances, strict=True))
        for word, array in pointed.items():
            record[word] = array.ctypes.data
        return record

    def restart(self) -> None:
        """Forget the order that earlier samples without replacement have left."""
        self.order[:] = np.arange(len(self.order))

    def set_fixed(self, values: Sequence[np.ndarray]) -> None:
        """Point the argument tables at new values of the fixed arguments."""
        self.fixed = list(values)
        self.full_table[:] = self.rows.gradient.arguments(self.rows.arrays, self.fixed)
        self.buffer_table[:] = self.rows.gradient.arguments(self.buffers, self.fixed)


@compiled
def choose(plate, rng):
    """Draw the rows of the next minibatch: a start for blocks, indices otherwise."""
    n, n_rows = plate[BATCH], plate[N_ROWS]
    index = carray(pointer(plate[INDEX]), (n,), np.intp)
    if plate[METHOD] == PIECES:
        index[0] = below(rng, carray(pointer(plate[KEPT]), (2,), np.intp)[0])
    elif plate[METHOD] == BLOCK:
        start = below(rng, n_rows)
        index[0] = start if n < n_rows else 0  # all rows are one piece
    elif plate[METHOD] == IID:
        for i in range(n):
            index[i] = below(rng, n_rows)
    elif plate[METHOD] == WITHOUT:
        order = carray(pointer(plate[ORDER]), (n_rows,), np.int64)
        for i in range(n):  # a partial shuffle of any order is a uniform sample
            j = i + below(rng, n_rows - i)
            order[i], order[j] = order[j], order[i]
            index[i] = order[i]
    else:
        chance = carray(pointer(plate[CHANCE]), (n_rows,), np.float64)
        alias = carray(pointer(plate[ALIAS]), (n_rows,), np.intp)
        scale = carray(pointer(plate[SCALE]), (n_rows,), np.float64)
        weights = carray(pointer(plate[WEIGHTS]), (n,), np.float64)
        for i in range(n):
            j = below(rng, n_rows)
            if uniform(rng) >= chance[j]:
                j = alias[j]
            index[i] = j
            weights[i] = scale[j]


@compiled
def row_of(plate, i):
    """The row that place i of the minibatch holds."""
    index = carray(pointer(plate[INDEX]), (plate[BATCH],), np.intp)
    if plate[METHOD] == BLOCK:
        return (index[0] + i) % plate[N_ROWS]
    return index[i]


@compiled
def _gather(plate, first, n):
    """Copy rows index[first : first + n] to the buffers."""
    index = carray(pointer(plate[INDEX]), (plate[BATCH],), np.intp)
    columns = carray(pointer(plate[COLUMNS]), (plate[N_COLUMNS], 3), np.intp)
    last = plate[BATCH] - 1
    for c in range(plate[N_COLUMNS]):
        source, width, target = columns[c, 0], columns[c, 1], columns[c, 2]
        words = width // 8
        for i in range(n):
            ahead = source + index[min(first + i + _AHEAD, last)] * width
            for line in range(0, width, 64):
                prefetch(ahead + line)
            row, place = source + index[first + i] * width, target + i * width
            old = carray(pointer(row), (words,), np.int64)
            new = carray(pointer(place), (words,), np.int64)
            for w in range(words):
                new[w] = old[w]
            for b in range(8 * words, width):
                carray(pointer(place), (width,), np.uint8)[b] = carray(
                    pointer(row), (width,), np.uint8
                )[b]


@compiled
def add_batch_gradient(plate, points, m, out):
    """Add Σ wᵢ ℓᵢ′ over the chosen rows, at the first m of `points`, to `out`."""
    n, piece, first = plate[BATCH], plate[PIECE], 0
    while first < n:
        k = min(piece, n - first)
        weights = plate[WEIGHTS] + 8 * first
        if plate[METHOD] == BLOCK:
            table, start = plate[FULL_TABLE], row_of(plate, first)
            k = min(k, plate[N_ROWS] - start)  # what is beyond the last row goes on at the first
        else:
            _gather(plate, first, k)
            table, start = plate[BUFFER_TABLE], 0
        call(plate[FUNCTION], points.ctypes.data, m, weights, table, start, k, out.ctypes.data)
        first += k


@compiled
def add_pieces(plate, points, out):
    """Add Σ wᵢ ℓᵢ′ over the chosen pieces at the first of `points`, and what is kept of them.

    To the two rows of `out`: what is kept is what they say at the second point.
    """
    table = carray(pointer(plate[KEPT]), (5,), np.intp)
    count, first, n_rows = table[0], carray(pointer(plate[INDEX]), (1,), np.intp)[0], plate[N_ROWS]
    last = first + table[1]
    _add_rows(plate, points, first * n_rows // count, min(last, count) * n_rows // count, out)
    _add_rows(plate, points, 0, max(last - count, 0) * n_rows // count, out)
    weight = carray(pointer(plate[WEIGHTS]), (1,), np.float64)[0]
    starts = carray(pointer(table[2]), (count + 1,), np.intp)
    places = carray(pointer(table[3]), (starts[count],), np.int32)
    values = carray(pointer(table[4]), (starts[count],), np.float64)
    for k in range(first, last):
        for i in range(starts[k % count], starts[k % count + 1]):
            out[1, places[i]] += weight * values[i]


@compiled
def _add_rows(plate, points, start, stop, out):
    """Add Σ w ℓᵢ′ over rows start ≤ i < stop of equal weight, at the first of `points`."""
    for first in range(start, stop, plate[PIECE]):
        k = min(plate[PIECE], stop - first)
        table, weights = plate[FULL_TABLE], plate[WEIGHTS]
        call(plate[FUNCTION], points.ctypes.data, 1, weights, table, first, k, out.ctypes.data)


@compiled
def add_row_sum(plate, points, start, stop, ones, out):
    """Add the plain sum Σ ℓᵢ′ over rows start ≤ i < stop, at all `points`, to `out`."""
    for first in range(start, stop, len(ones)):
        k = min(len(ones), stop - first)
        call(
            plate[FUNCTION],
            points.ctypes.data,
            len(points),
            ones.ctypes.data,
            plate[FULL_TABLE],
            first,
            k,
            out.ctypes.data,
        )


@compiled
def row_gradients(plate, points, start, out):
    """Fill `out`, of shape (rows, points, d), with ℓᵢ′ of rows start, start + 1, … at `points`."""
    one, m, table = np.ones(1), len(points), plate[FULL_TABLE]
    for i in range(len(out)):
        out[i] = 0.0
        call(
            plate[FUNCTION],
            points.ctypes.data,
            m,
            one.ctypes.data,
            table,
            start + i,
            1,
            out[i].ctypes.data,
        )
