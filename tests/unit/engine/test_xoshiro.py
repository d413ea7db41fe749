# SPDX-License-Identifier: Apache-2.0
"""Random numbers of the compiled code: the published generator, and the distributions they claim.

Seeds are fixed; tests of distributions fail below a p-value of 1e-5.
"""

import numpy as np
import pytest
from numba import njit
from scipy.stats import chisquare, kstest, norm

from pymc_sgcv.engine.xoshiro import below, normal, seeded, uniform, word

RARE = 1e-5
DRAWS = 1_000_000
MASK = 2**64 - 1


@njit
def fill(function, state, out):
    for i in range(len(out)):
        out[i] = function(state)


@njit
def fill_below(state, n, out):
    for i in range(len(out)):
        out[i] = below(state, n)


def state(seed=0):
    return seeded(np.random.default_rng(seed))


@pytest.fixture(scope="module")
def normals():
    out = np.empty(DRAWS)
    fill(normal, state(1), out)
    return out


def rotl(x, k):
    return ((x << k) | (x >> (64 - k))) & MASK


def reference(s, count):
    """xoshiro256++ as Blackman & Vigna print it, on Python's whole numbers."""
    s, out = [int(x) for x in s], []
    for _ in range(count):
        out.append((rotl((s[0] + s[3]) & MASK, 23) + s[0]) & MASK)
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotl(s[3], 45)
    return out


def test_words_are_those_of_the_published_generator():
    own = state()
    expected = reference(own, 1000)
    assert [int(word(own)) for _ in range(1000)] == expected


def test_the_published_generators_first_words():
    """The authors' own test vector, for the state 1, 2, 3, 4."""
    own = np.arange(1, 5, dtype=np.uint64)
    assert [int(word(own)) for _ in range(3)] == [41943041, 58720359, 3588806011781223]


def test_the_seed_decides_the_state():
    np.testing.assert_array_equal(state(5), state(5))
    assert (state(5) != state(6)).all()


def test_uniform_numbers_are_uniform():
    out = np.empty(DRAWS)
    fill(uniform, state(2), out)
    assert out.min() >= 0 and out.max() < 1
    assert kstest(out, "uniform").pvalue > RARE


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_whole_numbers_below_n_are_equally_frequent(n):
    out = np.empty(200_000, dtype=int)
    fill_below(state(3), n, out)
    counts = np.bincount(out, minlength=n)
    assert len(counts) == n
    assert n == 1 or chisquare(counts).pvalue > RARE


def test_normal_numbers_are_normal(normals):
    assert kstest(normals, "norm").pvalue > RARE


def test_normal_numbers_are_normal_in_the_tails(normals):
    """The ziggurat leaves its rectangles at ±3.654: two cells beyond, ten about and within."""
    edges = np.array([-3.9, -3.654, -3.3, -2.5, -1.0, -0.2, 0.0, 0.2, 1.0, 2.5, 3.3, 3.654, 3.9])
    chances = np.diff(norm.cdf([-np.inf, *edges, np.inf]))
    counts = np.bincount(np.digitize(normals, edges), minlength=len(chances))
    assert chisquare(counts, DRAWS * chances).pvalue > RARE


def test_successive_normal_numbers_are_independent(normals):
    cells = np.digitize(normals, norm.ppf(np.arange(1, 10) / 10))
    counts = np.bincount(10 * cells[:-1:2] + cells[1::2], minlength=100)
    assert chisquare(counts).pvalue > RARE
