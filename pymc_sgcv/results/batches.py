# SPDX-License-Identifier: Apache-2.0
"""Means of batches of draws, for standard errors that allow for autocorrelation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BATCHES = 20
"""Of 5 autocorrelation times each where a chain has 100 effective draws."""
CHUNK = 2**18
"""Numbers in one pass over some parameters: about what a cache holds."""


def batch_means(x: np.ndarray, chains: int) -> np.ndarray:
    """Means of up to 20 batches of equal length per chain, for draws (chains * draws, k)."""
    draws = len(x) // chains
    batches = min(BATCHES, draws)
    length = draws // batches
    last = x.reshape(chains, draws, -1)[:, draws - batches * length :]
    return last.reshape(chains * batches, length, -1).mean(axis=1)


def chunks(x: np.ndarray, numbers: int = CHUNK) -> Iterator[slice]:
    """Columns of a matrix in parts of so many numbers."""
    step = max(1, numbers // len(x))
    return (slice(start, start + step) for start in range(0, x.shape[1], step))
