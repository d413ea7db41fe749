# SPDX-License-Identifier: Apache-2.0
"""Draw rows with given probabilities at the cost of uniform ones."""

from __future__ import annotations

import numpy as np

from pymc_sgcv.engine.native import compiled


def alias_table(weights: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Walker's alias method: draws row i with probability pᵢ in O(1) (Vose 1991).

    Returns the chance to keep each slot's own row, the row to take otherwise, and 1/(n pᵢ).
    """
    p = np.asarray(weights, dtype=float)
    p = p / p.sum()
    chance, alias = p * len(p), np.arange(len(p), dtype=np.intp)
    _share_out(chance, alias)
    return chance, alias, 1 / (n * p)


@compiled
def _share_out(chance, alias):
    """Fill the room that each slot with a chance below 1 leaves, from slots that have too much."""
    small, large = np.empty(len(chance), np.intp), np.empty(len(chance), np.intp)
    n_small, n_large = 0, 0
    for i in range(len(chance)):
        if chance[i] < 1:
            small[n_small] = i
            n_small += 1
        else:
            large[n_large] = i
            n_large += 1
    while n_small and n_large:
        n_small -= 1
        low, high = small[n_small], large[n_large - 1]
        alias[low] = high
        chance[high] -= 1 - chance[low]
        if chance[high] < 1:
            n_large -= 1
            small[n_small] = high
            n_small += 1
    for k in range(n_small):  # what rounding left over
        chance[small[k]] = 1.0
    for k in range(n_large):
        chance[large[k]] = 1.0
