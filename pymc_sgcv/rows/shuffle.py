# SPDX-License-Identifier: Apache-2.0
"""Copy the data with their rows in random order, so that neighbours are a random sample."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

SEED = 20190425
"""The order is the same in every process: only the chain's own seed counts."""
_ROWS_AT_A_TIME = 1 << 16


def shuffled(
    arrays: Sequence[np.ndarray], kinds: Sequence[str], labels: np.ndarray | None = None
) -> list[np.ndarray]:
    """Copies of the types `kinds`, all in one random order of their rows, by label if given."""
    n_rows = len(arrays[0])
    order = np.arange(n_rows, dtype=np.int32 if n_rows < 2**31 else np.int64)
    np.random.default_rng(SEED).shuffle(order)
    if labels is not None:
        order = order[np.argsort(labels[order], kind="stable")]
    parts = [slice(i, i + _ROWS_AT_A_TIME) for i in range(0, n_rows, _ROWS_AT_A_TIME)]
    copies = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for array, kind in zip(arrays, kinds, strict=True):
            out = np.empty(array.shape, kind)
            array = array if array.dtype == kind else array.astype(kind)
            list(pool.map(partial(_take, array, order, out), parts))
            copies.append(out)
    return copies


def _take(array: np.ndarray, order: np.ndarray, out: np.ndarray, part: slice) -> None:
    np.take(array, order[part], axis=0, out=out[part], mode="clip")
