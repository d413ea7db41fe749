# SPDX-License-Identifier: Apache-2.0
"""Passes over rows."""

import threading
import time

import numpy as np
import pytest

from pymc_sgcv.sources import partitions, passes
from pymc_sgcv.sources.base import as_source
from pymc_sgcv.sources.partitions import Partitioned
from pymc_sgcv.sources.passes import over_rows, spans, take_rows

N = 1000
X = np.random.default_rng(0).normal(size=(N, 3))


class Chunks(Partitioned):
    """An array in partitions, which counts how often each is read and how many are alive."""

    def __init__(self, array, bounds):
        super().__init__("chunks", np.array(bounds), array.shape[1:], array.dtype)
        self.array, self.reads = array, []

    def partitions(self, first, stop):
        self.reads += range(first, stop)
        return self.array[self._bounds[first] : self._bounds[stop]].copy()


def blocks_of(sources, rows_at_once):
    return [block for span in spans(sources, rows_at_once) for block in span.blocks()]


def first_and_rows(arrays, first_row):
    return first_row, [array.copy() for array in arrays]


@pytest.mark.parametrize("rows_at_once", [1, 7, 64, 100, 999, 1000, 5000])
@pytest.mark.parametrize("bounds", [[0, N], [0, 0, 300, 300, 450, N], [0, 1, 2, 3, 4, 999, N]])
def test_every_row_is_in_one_block_in_order(bounds, rows_at_once):
    sources = [as_source(X), Chunks(X[:, 0], bounds), as_source(np.arange(N))]
    results = list(over_rows(sources, first_and_rows, rows_at_once=rows_at_once))
    assert [first for first, _ in results] == [a for a, _ in blocks_of(sources, rows_at_once)]
    assert max(len(arrays[0]) for _, arrays in results) <= rows_at_once
    for j, whole in enumerate((X, X[:, 0], np.arange(N))):
        np.testing.assert_array_equal(np.concatenate([rows[j] for _, rows in results]), whole)


def test_large_partitions_are_cut_into_equal_blocks_and_small_ones_merged():
    chunks = Chunks(X[:, 0], [0, 10, 20, 60, 400, 990, N])
    sizes = [stop - start for start, stop in blocks_of([chunks], 100)]
    assert sizes == [60, 85, 85, 85, 85, 98, 98, 99, 98, 98, 99, 10]
    sizes = [stop - start for start, stop in blocks_of([as_source(X)], 300)]
    assert sizes == [250] * 4


def test_a_partition_is_read_once_also_where_those_of_another_source_begin_elsewhere():
    chunks = [Chunks(X[:, 0], range(0, N + 1, 250)), Chunks(X, range(0, N + 1, 100))]
    for rows_at_once in 30, 100, 250:
        list(over_rows(chunks, first_and_rows, rows_at_once=rows_at_once))
        assert [sorted(chunk.reads) for chunk in chunks] == [list(range(4)), list(range(10))]
        for chunk in chunks:
            chunk.reads.clear()


def test_sums_do_not_depend_on_the_number_of_threads(monkeypatch):
    def total(threads):
        monkeypatch.setattr(passes, "n_threads", lambda: threads)
        monkeypatch.setattr(partitions, "n_threads", lambda: threads)
        sources = [Chunks(X, [0, 333, 400, N])]
        return sum(over_rows(sources, lambda arrays, _: arrays[0].sum(0), rows_at_once=50))

    assert [total(threads).tolist() for threads in (1, 2, 7)] == [total(3).tolist()] * 3


def test_no_more_blocks_than_threads_and_one_are_in_memory(monkeypatch):
    monkeypatch.setattr(passes, "n_threads", lambda: 3)
    alive, most, lock = set(), [0], threading.Lock()

    class Counting(Chunks):
        def read(self, start, stop):
            with lock:
                alive.add(start)
                most[0] = max(most[0], len(alive))
            return super().read(start, stop)

    source = Counting(X, range(0, N + 1, 10))
    for first in over_rows([source], lambda arrays, first: first, rows_at_once=10):
        with lock:
            alive.discard(first)
    assert 1 <= most[0] <= 4


def test_large_spans_are_not_read_ahead(monkeypatch):
    monkeypatch.setattr(passes, "_AHEAD_BYTES", 1000)
    source = Chunks(X, range(0, N + 1, 100))
    done = over_rows([source], lambda arrays, first: first, rows_at_once=50)
    next(done)
    assert source.reads == [0]
    assert len(list(done)) == 19


def test_the_report_says_how_far_it_is():
    seen = []
    for _ in over_rows([as_source(X)], lambda a, i: i, rows_at_once=250, report=seen.append):
        pass
    assert seen == [0.25, 0.5, 0.75, 1]


def test_the_first_error_ends_the_pass_and_is_raised_as_it_is():
    begun = []

    class Odd(Exception):
        pass

    def job(arrays, first):
        begun.append(first)
        if first >= 30:
            raise Odd(first)
        return first

    done = []
    with pytest.raises(Odd, match=r"^30$"):
        for first in over_rows([as_source(X)], job, rows_at_once=10):
            done.append(first)
    assert done == [0, 10, 20]
    assert len(begun) < 3 + 2 * (passes.n_threads() + 1)


def test_blocks_after_one_that_failed_are_not_begun(monkeypatch):
    monkeypatch.setattr(passes, "n_threads", lambda: 2)
    begun, failed = [], threading.Event()

    def job(arrays, first):
        begun.append(first)
        if first == 0:  # keeps one of two threads, and the pass, until the other has gone on
            failed.wait()
            time.sleep(0.1)
        if first == 10:
            failed.set()
            raise KeyError
        return first

    with pytest.raises(KeyError):
        list(over_rows([Chunks(X, [0, N])], job, rows_at_once=10))
    assert begun == [0, 10]


def test_an_error_while_reading_is_raised_as_it_is():
    class Torn(Chunks):
        def partitions(self, first, stop):
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        list(over_rows([Torn(X, [0, 50, N])], first_and_rows, rows_at_once=20))


def test_a_pass_can_be_left():
    before = set(threading.enumerate())
    source = Chunks(X, range(0, N + 1, 10))
    for _ in over_rows([source], first_and_rows, rows_at_once=10):
        break
    assert len(source.reads) < 20
    assert not set(threading.enumerate()) - before


def test_rows_of_several_sources_can_be_taken():
    index = np.sort(np.random.default_rng(1).choice(N, 40, replace=False))
    for first in as_source(X), Chunks(X, [0, 10, 700, N]):
        taken = take_rows([first, as_source(np.arange(N))], index, rows_at_once=64)
        np.testing.assert_array_equal(taken[0], X[index])
        np.testing.assert_array_equal(taken[1], index)


def test_no_rows_at_once_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        list(over_rows([as_source(X)], first_and_rows, rows_at_once=0))
