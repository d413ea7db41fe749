# SPDX-License-Identifier: Apache-2.0
"""Which rows are drawn, how often, and that it is those rows that are summed.

A stand-in for a compiled gradient adds up the rows themselves, so no model is needed: data are the
row numbers in three types, and what comes out says which rows went in. Tests of frequencies have a
fixed seed and fail below a p-value of 1e-5: once in 100,000 seeds if the frequencies are right.
"""

import numba
import numpy as np
import pytest
from numba import carray, types
from pytensor.tensor.type import TensorType
from scipy.stats import chi2, chisquare

from pymc_sgcv.engine.native import ARGUMENTS, pointer
from pymc_sgcv.engine.xoshiro import seeded
from pymc_sgcv.rows import minibatch
from pymc_sgcv.rows.alias import alias_table
from pymc_sgcv.rows.minibatch import Rows, add_batch_gradient, add_row_sum, choose, row_of

N, n = 23, 5
RARE = 1e-5
WAYS = ("block", "without", "iid", "weighted")
WAY = pytest.mark.parametrize("way", WAYS)
P = np.arange(1.0, N + 1) ** 2  # probabilities over a range of 529
P /= P.sum()


@numba.cfunc(types.void(*ARGUMENTS))
def sum_of_rows(thetas_at, m, weights_at, table_at, start, n, out_at):
    """Adds to out[k] at each point k: Σ w·(each entry of each column), last row read, Σ w·θ₀."""
    thetas = carray(pointer(thetas_at), (m, 11), np.float64)
    out = carray(pointer(out_at), (m, 11), np.float64)
    weights = carray(pointer(weights_at), (n,), np.float64)
    table = carray(pointer(table_at), (6,), np.intp)
    wide = carray(pointer(table[0] + start * table[1]), (n, 3), np.float32)
    bytes_ = carray(pointer(table[2] + start * table[3]), (n, 5), np.int8)
    number = carray(pointer(table[4] + start * table[5]), (n,), np.float64)
    for k in range(m):
        for i in range(n):
            for j in range(3):
                out[k, j] += weights[i] * wide[i, j]
            for j in range(5):
                out[k, 3 + j] += weights[i] * bytes_[i, j]
            out[k, 8] += weights[i] * number[i]
            out[k, 10] += weights[i] * thetas[k, 0]
        out[k, 9] = max(out[k, 9], start + n)


def numbered(count=N):
    """Row i holds i in every entry: rows of 12 bytes, of 5 bytes and of 8 bytes."""
    i = np.arange(count)
    return [
        np.repeat(i[:, None], 3, axis=1).astype("float32"),
        np.repeat(i[:, None], 5, axis=1).astype("int8"),
        i.astype("float64"),
    ]


class SumOfRows:
    """What `Rows` asks of a compiled gradient, with a table of addresses and row bytes."""

    address = sum_of_rows.address
    row_types = (
        TensorType("float32", (None, 3)),
        TensorType("int8", (None, 5)),
        TensorType("float64", (None,)),
    )

    def arguments(self, rows, fixed):
        table = [word for array in rows for word in (array.ctypes.data, array.strides[0])]
        return np.array(table, dtype=np.intp)


def make_rows(way, count=N, batch=n):
    weighted = way == "weighted"
    weights = 3.0 * np.resize(P, count) if weighted else None
    return Rows(SumOfRows(), numbered(count), [], batch, "iid" if weighted else way, weights)


def random_state(seed):
    return seeded(np.random.default_rng(seed))


def drawn(rows, scratch, state):
    """The rows of one minibatch, as numbers in the data's own order."""
    choose(scratch.record, state)
    places = [row_of(scratch.record, i) for i in range(rows.batch_size)]
    return rows.arrays[2][places].astype(int)


def minibatches(way, count, seed):
    rows, state = make_rows(way), random_state(seed)
    scratch = rows.scratch()
    return np.array([drawn(rows, scratch, state) for _ in range(count)])


@pytest.mark.parametrize(
    "weights",
    [np.ones(4), P, [1e-12, 1.0, 1e12], np.random.default_rng(0).gamma(0.1, size=500), [2.0]],
    ids=["uniform", "quadratic", "24 orders of magnitude", "many", "one row"],
)
def test_the_alias_table_implies_exactly_the_given_probabilities(weights):
    chance, alias, _ = alias_table(weights, 3)
    implied = chance / len(chance)
    np.add.at(implied, alias, (1 - chance) / len(chance))
    np.testing.assert_allclose(implied, weights / np.sum(weights), rtol=1e-12, atol=1e-15)


def test_the_alias_table_scales_a_row_by_one_over_n_p():
    _, _, scale = alias_table(7.0 * P, n)
    np.testing.assert_allclose(scale, 1 / (n * P), rtol=1e-13)


def test_blocks_are_cut_from_a_permutation_of_the_rows():
    copies = make_rows("block").arrays
    order = copies[2].astype(int)
    assert sorted(order) == list(range(N))
    assert not np.array_equal(order, np.arange(N))
    for copy, original in zip(copies, numbered()):
        np.testing.assert_array_equal(copy, original[order])
        assert copy.dtype == original.dtype


def test_the_shuffled_order_is_the_same_every_time():
    np.testing.assert_array_equal(make_rows("block").arrays[2], make_rows("block").arrays[2])


def test_blocks_that_reach_the_last_row_go_on_at_the_first_and_read_no_further():
    """In one piece, and in two of which the second is shorter."""
    rows = make_rows("block", batch=20)
    assert rows.piece == 20
    for piece in (16, 20):
        rows.piece = piece
        scratch, data = rows.scratch(), rows.arrays[2]
        for start in range(N):
            scratch.index[0] = start
            out = np.zeros((1, 11))
            add_batch_gradient(scratch.record, np.ones((1, 11)), 1, out)
            block = data[(start + np.arange(20)) % N]
            np.testing.assert_allclose(out[0, :9], block.sum() * N / 20, rtol=1e-12)
            assert out[0, 9] <= N == len(data)


@WAY
def test_minibatches_of_another_size_come_from_the_same_data(way):
    rows, state = make_rows(way), random_state(13)
    other, afresh = rows.resized(2 * n), make_rows(way, batch=2 * n)
    assert all(a is b for a, b in zip(rows.arrays, other.arrays))
    assert (rows.batch_size, other.batch_size) == (n, 2 * n)
    out, expected = np.zeros((1, 11)), np.zeros((1, 11))
    for one, total in ((other, out), (afresh, expected)):
        scratch, same = one.scratch(), state.copy()
        choose(scratch.record, same)
        add_batch_gradient(scratch.record, np.ones((1, 11)), 1, total)
    np.testing.assert_array_equal(out, expected)


def test_blocks_start_at_every_row_equally_often():
    firsts = minibatches("block", 20_000, seed=1)[:, 0]
    assert chisquare(np.bincount(firsts, minlength=N)).pvalue > RARE


def test_rows_with_replacement_are_drawn_equally_often():
    counts = np.bincount(minibatches("iid", 10_000, seed=2).ravel(), minlength=N)
    assert chisquare(counts).pvalue > RARE


def test_rows_with_replacement_are_drawn_independently():
    pairs = minibatches("iid", 20_000, seed=3)[:, :2]
    counts = np.bincount(N * pairs[:, 0] + pairs[:, 1], minlength=N * N)
    assert chisquare(counts).pvalue > RARE


def test_weighted_rows_are_drawn_with_their_probabilities():
    batches = minibatches("weighted", 20_000, seed=4)
    counts = np.bincount(batches.ravel(), minlength=N)
    assert chisquare(counts, batches.size * P).pvalue > RARE


def test_rows_without_replacement_are_all_different():
    batches = np.sort(minibatches("without", 2000, seed=5), axis=1)
    assert (np.diff(batches, axis=1) > 0).all()


def test_rows_without_replacement_are_drawn_equally_often():
    draws = 20_000
    counts = np.bincount(minibatches("without", draws, seed=6).ravel(), minlength=N)
    # inclusions have variance q(1 − q) and correlation −1/(N − 1) between rows
    q = n / N
    statistic = (N - 1) / N * np.sum((counts - draws * q) ** 2) / (draws * q * (1 - q))
    assert chi2.sf(statistic, N - 1) > RARE


def test_successive_samples_without_replacement_are_independent():
    batches = minibatches("without", 20_000, seed=7)
    counts = np.bincount(N * batches[:-1, 0] + batches[1:, 0], minlength=N * N)
    assert chisquare(counts).pvalue > RARE


@WAY
@pytest.mark.parametrize("piece_bytes", [1 << 18, 1], ids=["in one piece", "in pieces of 16"])
def test_the_rows_that_are_drawn_are_the_rows_that_are_summed(way, piece_bytes, monkeypatch):
    monkeypatch.setattr(minibatch, "_PIECE_BYTES", piece_bytes)
    rows, state = make_rows(way, count=100, batch=39), random_state(8)
    scratch = rows.scratch()
    p = np.resize(P, 100) / np.resize(P, 100).sum() if way == "weighted" else np.full(100, 0.01)
    for _ in range(20):
        batch = drawn(rows, scratch, state)
        out = np.zeros((1, 11))
        add_batch_gradient(scratch.record, np.full((1, 11), 2.0), 1, out)
        weights = 1 / (39 * p[batch])
        np.testing.assert_allclose(out[0, :9], weights @ batch, rtol=1e-12)
        np.testing.assert_allclose(out[0, 10], 2.0 * weights.sum(), rtol=1e-12)


@WAY
def test_only_as_many_points_are_evaluated_as_asked_for(way):
    rows, state = make_rows(way), random_state(9)
    scratch, out = rows.scratch(), np.zeros((2, 11))
    choose(scratch.record, state)
    add_batch_gradient(scratch.record, np.ones((2, 11)), 1, out)
    assert out[0, 10] > 0
    assert (out[1] == 0).all()


def test_a_batch_gradient_is_added_to_what_is_there():
    rows, state = make_rows("iid"), random_state(10)
    scratch, once, twice = rows.scratch(), np.zeros((1, 11)), np.zeros((1, 11))
    choose(scratch.record, state)
    add_batch_gradient(scratch.record, np.ones((1, 11)), 1, once)
    for _ in range(2):
        add_batch_gradient(scratch.record, np.ones((1, 11)), 1, twice)
    np.testing.assert_allclose(twice[0, [0, 5, 8, 10]], 2 * once[0, [0, 5, 8, 10]], rtol=1e-14)


@WAY
def test_a_sum_over_rows_takes_each_once_unscaled_whatever_the_pieces(way):
    rows = make_rows(way)
    scratch = rows.scratch()
    for piece in (1, 4, N, 2 * N):
        out = np.zeros((2, 11))
        add_row_sum(scratch.record, np.ones((2, 11)), 2, N, np.ones(piece), out)
        np.testing.assert_allclose(out[:, 8], rows.arrays[2][2:N].sum(), rtol=1e-14)
        np.testing.assert_allclose(out[:, 10], N - 2, rtol=1e-14)


def test_chains_have_their_own_minibatches():
    rows = make_rows("without")
    one, other = rows.scratch(), rows.scratch()
    first = drawn(rows, one, random_state(11))
    drawn(rows, other, random_state(12))
    again = rows.arrays[2][[row_of(one.record, i) for i in range(n)]].astype(int)
    np.testing.assert_array_equal(first, again)


def test_gathering_ways_do_not_copy_data_of_the_right_type():
    arrays = numbered()
    for way in ("iid", "without"):
        rows = Rows(SumOfRows(), arrays, [], n, way)
        assert all(np.shares_memory(a, b) for a, b in zip(rows.arrays, arrays))
