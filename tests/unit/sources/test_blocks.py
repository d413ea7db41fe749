# SPDX-License-Identifier: Apache-2.0
"""Rows that a function makes."""

from collections import Counter
from threading import Lock

import numpy as np
import pytest

from pymc_sgcv.sources.blocks import generated
from pymc_sgcv.sources.passes import over_rows, take_rows

N, BLOCK = 95, 10


def block(number):
    return np.arange(number * BLOCK, (number + 1) * BLOCK, dtype=float)[:, None] * [1, 10]


EXPECTED = np.arange(N, dtype=float)[:, None] * [1, 10]


def test_rows_are_those_of_the_function():
    source = generated(block, N, BLOCK)
    assert (source.n_rows, source.row_shape, source.dtype) == (N, (2,), np.dtype(float))
    assert not source.resident and not source.scattered and source.name == "block"
    assert source.bounds().tolist() == [*range(0, N, BLOCK), N]
    for start, stop in (0, N), (0, 10), (3, 7), (3, 13), (5, 10), (5, 30), (8, 33), (N, N), (4, 4):
        np.testing.assert_array_equal(source.read(start, stop), EXPECTED[start:stop])
        assert source.read(start, stop).flags.c_contiguous
    index = np.array([0, 3, 10, 94])
    np.testing.assert_array_equal(source.take(index), EXPECTED[index])
    assert source.take(np.array([], int)).shape == (0, 2)


def test_the_last_block_may_be_short():
    source = generated(lambda number: block(number)[: N - number * BLOCK], N, BLOCK)
    np.testing.assert_array_equal(source.read(85, N), EXPECTED[85:])


def test_arrays_of_one_function_share_its_calls():
    calls, lock = Counter(), Lock()

    def both(number):
        with lock:
            calls[number] += 1
        return block(number), block(number)[:, 0] > 40

    x, y = generated(both, N, BLOCK, name="rows")
    assert (x.name, y.name, y.dtype) == ("rows[0]", "rows[1]", bool)
    calls.clear()
    for rows_at_once in 3, BLOCK, 1000:
        calls.clear()
        sums = [a.sum() + b.sum() for a, b in over_rows([x, y], _both, rows_at_once=rows_at_once)]
        assert sum(sums) == EXPECTED.sum() + (EXPECTED[:, 0] > 40).sum()
        assert set(calls.values()) == {1} and len(calls) == 10
    calls.clear()
    taken = take_rows([x, y], np.array([2, 41, 94]))
    np.testing.assert_array_equal(taken[0], EXPECTED[[2, 41, 94]])
    np.testing.assert_array_equal(taken[1], [False, True, True])
    assert max(calls.values()) == 1


def _both(arrays, first_row):
    return arrays


def test_a_row_is_named_by_its_block():
    assert generated(block, N, BLOCK, "sim").where(23) == "row 3 of block 2 of sim"


REFUSED = {
    "a number": (lambda b: 3.0, TypeError, "must return an array of rows"),
    "nothing": (lambda b: None, TypeError, "must return an array of rows"),
    "no arrays": (lambda b: (), ValueError, "no array"),
    "strings": (lambda b: np.array(["a"] * BLOCK), TypeError, "Block 0 of .*factorize"),
    "short": (lambda b: np.zeros(3), ValueError, "3 rows for block 0, which must have 10"),
}


@pytest.mark.parametrize(("function", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_block_is_refused_at_once(function, error, says):
    with pytest.raises(error, match=says):
        generated(function, N, BLOCK)


LATER = {
    "short": (lambda b: np.zeros(10 - b), "9 rows for block 1, which must have 10"),
    "wider": (lambda b: np.zeros((10, 1 + b)), r"shape \(2,\).*for block 1, and of shape \(1,\)"),
    "type": (lambda b: np.zeros(10, "f4" if b else "f8"), "float32 for block 1.*float64"),
    "fewer": (lambda b: (np.zeros(10),) * (2 - b), "1 arrays for block 1, and 2 for block 0"),
}


@pytest.mark.parametrize(("function", "says"), LATER.values(), ids=LATER)
def test_later_blocks_must_be_like_the_first(function, says):
    source = generated(function, N, BLOCK)
    with pytest.raises(ValueError, match=says):
        (source[0] if isinstance(source, tuple) else source).read(10, 12)


@pytest.mark.parametrize(("n_rows", "block_rows"), [(0, 3), (3, 0), (2.5, 1)])
def test_sizes_must_be_positive(n_rows, block_rows):
    with pytest.raises(ValueError, match="must be a positive whole number"):
        generated(block, n_rows, block_rows)


def test_an_error_of_the_function_is_raised_as_it_is_and_forgotten():
    fails = [True]

    def now_and_then(number):
        if number == 4 and fails:
            raise OSError(fails.pop())
        return block(number)

    source = generated(now_and_then, N, BLOCK)
    with pytest.raises(OSError):
        list(over_rows([source], _both, rows_at_once=20))
    assert sum(len(x) for (x,) in over_rows([source], _both, rows_at_once=20)) == N
