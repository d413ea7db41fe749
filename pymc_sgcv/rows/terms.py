# SPDX-License-Identifier: Apache-2.0
"""The log-likelihoods of single rows, and what they say of these, without the GIL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_sgcv.engine.compile import Gradient
from pymc_sgcv.engine.native import call, compiled
from pymc_sgcv.rows.sample import put_chosen, put_influences, put_levels

_PIECE_BYTES = 1 << 18


def row_terms(
    function: Gradient,
    points: np.ndarray,
    rows: Sequence[np.ndarray],
    fixed: Sequence[np.ndarray],
) -> np.ndarray:
    """ℓᵢ of every one of `rows` at each of `points`, as (points, rows)."""
    points = np.ascontiguousarray(points, dtype=float)
    n = len(rows[0])
    out = np.zeros((n, len(points)))
    piece = _piece(rows, len(points))
    _fill(function.address, points, function.arguments(rows, fixed), n, piece, out)
    return out.T


def judged(
    function: Gradient,
    points: np.ndarray,
    rows: Sequence[np.ndarray],
    fixed: Sequence[np.ndarray],
    c: float,
    least: float,
    first: int,
) -> tuple[np.ndarray, np.ndarray, int | None]:
    """The stratum of each row, whether it is in the sample, and the first that is impossible.

    `points` are the middle and pairs around it, `first` is the number of the first row; the rest is
    that of `pymc_sgcv.rows.sample`.
    """
    points = np.ascontiguousarray(points, dtype=float)
    n, table = len(rows[0]), function.arguments(rows, fixed)
    level, taken = np.empty(n, np.int8), np.empty(n, np.bool_)
    piece = _piece(rows, len(points))
    bad = _judge(function.address, points, table, n, piece, c, least, first, level, taken)
    return level, taken, None if bad < 0 else first + bad


def _piece(rows: Sequence[np.ndarray], m: int) -> int:
    """How many rows go into one call."""
    row_bytes = sum(array.strides[0] for array in rows) + 8 * m
    return int(np.clip(_PIECE_BYTES // max(row_bytes, 1), 16, max(len(rows[0]), 16)))


@compiled
def _fill(function, points, table, n, piece, out):
    """Piece by piece, so that all points find the rows in the cache."""
    m = len(points)
    work = np.empty(m * piece)
    for first in range(0, n, piece):
        k = min(piece, n - first)
        work[: m * k] = 0.0
        call(function, points.ctypes.data, m, 0, table.ctypes.data, first, k, work.ctypes.data)
        for i in range(m):
            for j in range(k):
                out[first + j, i] = work[i * k + j]


@compiled
def _judge(function, points, table, n, piece, c, least, number, level, taken):
    """Piece by piece; the place of a row that is impossible in the middle, or -1."""
    m = len(points)
    work, influence = np.empty(m * piece), np.empty(piece)
    for first in range(0, n, piece):
        k = min(piece, n - first)
        work[: m * k] = 0.0
        call(function, points.ctypes.data, m, 0, table.ctypes.data, first, k, work.ctypes.data)
        for j in range(k):
            if work[j] == -np.inf:
                return first + j
        here = slice(first, first + k)
        put_influences(work[: m * k].reshape((m, k)), least, influence[:k])
        put_levels(influence[:k], c, level[here])
        put_chosen(number + first, level[here], taken[here])
    return -1
