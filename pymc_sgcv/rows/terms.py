# SPDX-License-Identifier: Apache-2.0
"""The log-likelihoods of single rows, over blocks of rows, without the GIL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_sgcv.engine.compile import Gradient
from pymc_sgcv.engine.native import call, compiled

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
    row_bytes = sum(array.strides[0] for array in rows) + 8 * len(points)
    piece = int(np.clip(_PIECE_BYTES // max(row_bytes, 1), 16, max(n, 16)))
    _fill(function.address, points, function.arguments(rows, fixed), n, piece, out)
    return out.T


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
