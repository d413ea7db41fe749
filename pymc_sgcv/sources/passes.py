# SPDX-License-Identifier: Apache-2.0
"""Passes over the rows of several sources at once: block after block, in threads.

A *span* is what is read at once: whole partitions of those sources that have some, a block
elsewhere. Spans are read ahead while jobs run on the blocks of those before. Blocks and the order
of results depend on the sources and on `rows_at_once` alone, so that sums do not depend on how
many threads there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from pymc_sgcv.sources.base import Source, same_length
from pymc_sgcv.sources.partitions import n_threads

T = TypeVar("T")
Job: TypeAlias = Callable[[list[np.ndarray], int], T]
"""From the same rows of every source, and the number of the first of them, to anything."""
Report: TypeAlias = Callable[[float], None]

_AHEAD_BYTES = 1 << 29
"""Spans beyond that are not read ahead: partitions may be of any size."""


def over_rows(
    sources: Sequence[Source],
    job: Job[T],
    *,
    rows_at_once: int,
    report: Report | None = None,
) -> Iterator[T]:
    """The results of `job` for all rows, in their order.

    Parameters
    ----------
    sources : sequence of Source
        Of one length.
    job : callable
        ``job(arrays, first_row)``, called in threads. If it has a method ``merge(a, b)``, results
        may come merged where rows are far away.
    rows_at_once : int
        The most rows that `job` gets.
    report : callable, optional
        Called with the fraction of rows that are done.

    Yields
    ------
    T
        An exception of `job` ends the pass and is raised as it is.
    """
    n_rows = same_length(sources)
    if rows_at_once < 1:
        raise ValueError(f"rows_at_once must be at least 1, not {rows_at_once}.")
    if any(source.remote for source in sources):
        from pymc_sgcv.sources.clusters import over_partitions

        yield from over_partitions(sources, job, rows_at_once, report)
        return
    run = _Pass(sources, job)
    try:
        for stop, result in run.results(spans(sources, rows_at_once)):
            if report is not None:
                report(stop / n_rows)
            yield result
    finally:
        for source in sources:
            source.forget()


def take_rows(
    sources: Sequence[Source], index: np.ndarray, *, rows_at_once: int = 1 << 16
) -> list[np.ndarray]:
    """Rows of increasing numbers `index` from every source, no partition read twice."""
    index = np.asarray(index)
    if all(source.scattered for source in sources):
        return [source.take(index) for source in sources]
    parts = list(over_rows(sources, _Chosen(index), rows_at_once=rows_at_once))
    return [np.concatenate(rows) for rows in zip(*parts)]


class _Chosen:
    """The job that keeps some rows."""

    def __init__(self, index: np.ndarray) -> None:
        self.index = index

    def __call__(self, arrays: list[np.ndarray], first_row: int) -> list[np.ndarray]:
        low, high = np.searchsorted(self.index, [first_row, first_row + len(arrays[0])])
        here = self.index[low:high] - first_row
        return [array[here] for array in arrays]


@dataclass
class Span:
    """Rows that are read at once, and the blocks that jobs get of them."""

    edges: np.ndarray

    @property
    def start(self) -> int:
        """The first row."""
        return int(self.edges[0])

    @property
    def stop(self) -> int:
        """The row after the last."""
        return int(self.edges[-1])

    def blocks(self) -> list[tuple[int, int]]:
        """Where they begin and end."""
        return list(pairwise(self.edges.tolist()))


def spans(sources: Sequence[Source], rows_at_once: int) -> list[Span]:
    """All rows: small partitions merged, large ones cut into equal blocks."""
    n_rows = same_length(sources)
    parted = [source.bounds() for source in sources if not source.scattered]
    bounds = np.unique(np.concatenate([[0, n_rows], *parted]))
    found = []
    start = 0
    for stop, following in zip(bounds[1:], [*bounds[2:], np.inf]):
        if following - start <= rows_at_once:
            continue  # the next partition fits in as well
        edges = cut(start, int(stop), rows_at_once)
        if parted:
            found.append(Span(edges))
        else:
            found += [Span(edges[j : j + 2]) for j in range(len(edges) - 1)]
        start = int(stop)
    return found


def cut(start: int, stop: int, rows_at_once: int) -> np.ndarray:
    """The edges of as few equal blocks as there may be."""
    n_blocks = -(-(stop - start) // rows_at_once)
    return start + np.arange(n_blocks + 1) * (stop - start) // n_blocks


class _Pass(Generic[T]):
    """Two pools of threads: one reads, the other runs jobs on what has been read."""

    def __init__(self, sources: Sequence[Source], job: Job[T]) -> None:
        self.sources, self.job = sources, job
        self.row_bytes = sum(
            source.nbytes / source.n_rows for source in sources if not source.scattered
        )
        self.end: float = np.inf  # where it failed: blocks from there on are not begun any more

    def results(self, spans: Sequence[Span]) -> Iterator[tuple[int, T]]:
        """Pairs of the row after a block and the result for the block."""
        waiting = deque(spans)
        begun: deque[tuple[Span, list[Future[T]]]] = deque()
        threads = n_threads()
        with ThreadPoolExecutor(threads) as readers, ThreadPoolExecutor(threads) as workers:
            try:
                while waiting or begun:
                    while waiting and self._room(begun, waiting[0]):
                        span = waiting.popleft()
                        read = readers.submit(self._read, span)
                        run = partial(self._run, read, span.start)
                        begun.append((span, [workers.submit(run, *b) for b in span.blocks()]))
                        del read, run  # the rows of a span go with its last block
                    span, futures = begun.popleft()
                    for block, future in zip(span.blocks(), futures):
                        yield block[1], future.result()
            finally:
                self.end = -1
                readers.shutdown(wait=False, cancel_futures=True)
                workers.shutdown(wait=False, cancel_futures=True)

    def _room(self, begun: Sequence[tuple[Span, list[Future[T]]]], span: Span) -> bool:
        """Whether another span may be read: one more than there are threads, or a few large."""
        rows = span.stop - (begun[0][0].start if begun else span.start)
        return not begun or (len(begun) <= n_threads() and rows * self.row_bytes <= _AHEAD_BYTES)

    def _read(self, span: Span) -> list[np.ndarray]:
        if span.start > self.end:
            raise _Stopped
        return [source.read(span.start, span.stop) for source in self.sources]

    def _run(self, read: Future[list[np.ndarray]], origin: int, start: int, stop: int) -> T:
        if start > self.end:
            raise _Stopped
        try:
            block = slice(start - origin, stop - origin)
            return self.job([array[block] for array in read.result()], start)
        except BaseException:
            self.end = min(self.end, start)
            raise


class _Stopped(Exception):
    """The pass has ended; the error of the block that ended it is the one that is seen."""
