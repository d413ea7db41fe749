# SPDX-License-Identifier: Apache-2.0
"""Rows that stand for all."""

from itertools import combinations

import numpy as np
import pytest

from pymc_sgcv.rows.sample import (
    LEVELS,
    WIDTH,
    collected,
    probabilities,
    put_chosen,
    put_influences,
    put_levels,
    whole,
)

C = 1e-3


def levels(influence, c):
    out = np.empty(len(influence), np.int8)
    put_levels(influence, c, out)
    return out


def chosen(first, level):
    out = np.empty(len(level), np.bool_)
    put_chosen(first, level.astype(np.int8), out)
    return out


def test_the_influence_is_the_mean_size_of_second_differences():
    terms = np.random.default_rng(5).normal(size=(5, 100))
    found = np.empty(100)
    put_influences(terms, 0.1, found)
    second = np.abs(terms[1:3] + terms[3:] - 2 * terms[0]).mean(0)
    assert found == pytest.approx(np.maximum(second, 0.1), rel=1e-12)


def test_a_pair_that_says_nothing_counts_as_none():
    terms = np.array([[1.0, 1.0, 1.0], [2.0, np.nan, -np.inf], [3.0, np.nan, 1.0]])
    found = np.empty(3)
    put_influences(terms, 0.1, found)
    assert found.tolist() == [3.0, 0.1, np.inf]


def test_the_strata_are_powers_of_four():
    k = np.arange(LEVELS - 1)
    edges = C * 4.0**-k
    assert levels(edges * (1 + 1e-15), C).tolist() == [0, *k[:-1]]
    assert levels(edges * (1 - 1e-15), C).tolist() == k.tolist()
    assert levels(edges[1:], C).tolist() == k[1:].tolist()
    assert WIDTH == 4.0


def test_a_row_is_in_if_its_splitmix64_is_below_p():
    mask, numbers = 2**64 - 1, [0, 1, 12345, 10**12]
    for number in numbers:
        z = (number + 1) * 0x9E3779B97F4A7C15 & mask
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        u = ((z ^ (z >> 31)) >> 11) * 2.0**-53
        for level in range(LEVELS):
            assert chosen(number, np.array([level]))[0] == (u < 4.0**-level)


def test_every_row_is_in_with_at_least_its_influence_over_c():
    influence = np.exp(np.random.default_rng(1).uniform(np.log(C * 4.0**-11), 2, 10_000))
    p = probabilities()[levels(influence, C)]
    assert (p >= np.minimum(1, influence / C)).all()
    assert (p <= np.minimum(1, 4 * influence / C) * (1 + 1e-12)).all()


def test_rows_of_no_or_unknown_influence_are_in_the_last_stratum():
    assert levels(np.array([0.0, np.nan]), C).tolist() == [LEVELS - 1] * 2
    assert levels(np.array([np.inf]), C).tolist() == [0]


def test_whether_a_row_is_in_depends_on_its_number_and_stratum_alone():
    level = np.random.default_rng(2).integers(0, 4, 5000).astype(np.int8)
    at_once = chosen(0, level)
    in_parts = np.concatenate([chosen(i, level[i : i + 777]) for i in range(0, 5000, 777)])
    assert np.array_equal(at_once, in_parts)
    assert at_once[level == 0].all()


def test_rows_are_chosen_as_often_as_their_probability_says():
    n = 1_000_000  # six standard errors: once in 10⁹ for another hash
    for level in range(1, 5):
        p = probabilities()[level]
        count = chosen(10**9, np.full(n, level, np.int8)).sum()
        assert abs(count - n * p) < 6 * np.sqrt(n * p * (1 - p))


def test_neighbours_are_chosen_independently():
    n = 1_000_000
    taken = chosen(0, np.ones(n, np.int8)).astype(float)
    for lag in 1, 2, 16, 1024:
        product = np.mean(taken[lag:] * taken[:-lag])
        assert abs(product - 1 / 16) < 6 * np.sqrt(1 / 16 * 15 / 16 * 1.5 / n)


def test_the_weighted_sum_is_unbiased_over_all_choices_of_as_many_rows():
    rng = np.random.default_rng(3)
    level = np.array([0, 1, 1, 1, 1, 2, 2, 2, 0, 2, 2])
    values, numbers = rng.normal(size=(len(level), 2)), np.arange(len(level))
    counts = np.bincount(level, minlength=LEVELS)
    first, second = np.flatnonzero(level == 1), np.flatnonzero(level == 2)
    total, expected = np.zeros(2), values.sum(0)
    cases = [(a, b) for a in combinations(first, 2) for b in combinations(second, 3)]
    for a, b in cases:
        kept = np.sort(np.concatenate([np.flatnonzero(level == 0), a, b]))
        sample = collected([values[kept], numbers[kept]], level[kept], counts, C)
        assert sample.weights().sum() == pytest.approx(len(level))
        total += sample.weights() @ sample.arrays[0]
    assert total / len(cases) == pytest.approx(expected, rel=1e-12)


def test_rows_lie_in_the_order_of_their_strata_and_belong_together():
    level = np.array([3, 0, 3, 1, 0])
    sample = collected(
        [np.arange(5), 10 * np.arange(5)], level, np.bincount(level, minlength=LEVELS) * 4, C
    )
    assert sample.labels.tolist() == [0, 0, 1, 2, 2]
    assert sample.arrays[0].tolist() == [1, 4, 3, 0, 2]
    assert (sample.arrays[1] == 10 * sample.arrays[0]).all()
    assert sample.counts == (8, 4, 8) and sample.sizes == [2, 1, 2]


def test_the_error_bounds_that_of_every_direction():
    """Σ (w − 1) s(v)² ≤ c Σ s(v), of which the root is twice the error of an sd."""
    rng = np.random.default_rng(4)
    x = rng.standard_t(3, size=(20_000, 3))
    x /= np.linalg.norm(x, axis=0)  # s(v) = (x·v)² adds up to about 1 in every direction
    x = x @ np.linalg.inv(np.linalg.cholesky(x.T @ x)).T
    s = (x**2).sum(1)
    level = levels(s, C)
    kept = np.flatnonzero(chosen(0, level))
    sample = collected([x[kept]], level[kept], np.bincount(level, minlength=LEVELS), C)
    weight = sample.weights()
    for v in np.linalg.qr(rng.normal(size=(3, 3)))[0]:
        of_v = (sample.arrays[0] @ v) ** 2
        assert 0.5 * np.sqrt((weight * (weight - 1) * of_v**2).sum()) < 1.2 * sample.error
        assert abs((weight * of_v).sum() - 1) < 6 * 2 * sample.error
    assert sample.error <= 0.5 * np.sqrt(C)


def test_all_rows_stand_for_themselves():
    sample = whole([np.arange(7)])
    assert sample.n_rows == 7 and sample.counts == (7,) and sample.error == 0
    assert whole([np.arange(7)], 700).weights().tolist() == [100.0] * 7
