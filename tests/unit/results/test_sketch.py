# SPDX-License-Identifier: Apache-2.0
"""Quantiles of what is not kept: no rank is off by more than is said."""

import numpy as np
import pytest

from pymc_sgcv.results.sketch import Sketch, quantiles

PROBABILITIES = [0.0, 0.025, 0.3, 0.5, 0.975, 1.0]


@pytest.mark.parametrize("order", ["random", "sorted", "reversed", "alternating"])
@pytest.mark.parametrize("n", [10, 127, 5000, 40_000])
def test_ranks_are_within_the_stated_error(order, n):
    values = np.arange(float(n))
    if order == "random":
        values = np.random.default_rng(n).permutation(n).astype(float)
    elif order == "reversed":
        values = values[::-1]
    elif order == "alternating":
        values[1::2] = values[1::2][::-1].copy()
    sketches = [Sketch(2, k=64), Sketch(2, k=64)]
    for part in np.array_split(values, 7):
        half = len(part) // 2
        sketches[0].add(np.stack([part[:half], -part[:half]], axis=1))
        sketches[1].add(np.stack([part[half:], -part[half:]], axis=1))
    found = quantiles(sketches, PROBABILITIES)
    error = max(one.rank_error for one in sketches)
    for column, signed in zip(found.T, (np.sort(values), np.sort(-values)), strict=True):
        ranks = np.searchsorted(signed, column, side="left") / n
        assert (np.abs(ranks - PROBABILITIES) <= error + 1 / n).all()


def test_memory_grows_with_the_logarithm_of_the_draws():
    sketch = Sketch(3, k=32)
    sketch.add(np.zeros((50_000, 3)))
    assert sum(len(level) for level in sketch.levels) <= 64 * len(sketch.levels)
    assert len(sketch.levels) <= 2 + np.log2(50_000 / 64)
