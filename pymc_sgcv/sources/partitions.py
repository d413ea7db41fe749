# SPDX-License-Identifier: Apache-2.0
"""Rows that come in partitions: chunks, row groups, generated blocks.

A part of a partition costs as much as the whole. So the last few are kept, for whoever asks for
the next part, or for another array that comes with them.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Generic, TypeVar

import numpy as np

from pymc_sgcv.sources.base import Source

T = TypeVar("T")


def n_threads() -> int:
    """As many as there are cores."""
    return os.cpu_count() or 1


_KEPT_BYTES = 1 << 26
"""Of small partitions so many are kept; of large ones as many as are read at once."""


class Kept(Generic[T]):
    """What a function makes of a number, the last few kept; threads that ask for one share it."""

    def __init__(self, make: Callable[[int], T], nbytes: float) -> None:
        self.__setstate__((make, max(n_threads() + 1, int(_KEPT_BYTES / max(nbytes, 1)))))

    def __getstate__(self) -> tuple[Callable[[int], T], int]:
        return self._make, self._most

    def __setstate__(self, state: tuple[Callable[[int], T], int]) -> None:
        self._make, self._most = state
        self._lock = Lock()
        self._kept: OrderedDict[int, Future[T]] = OrderedDict()

    def __call__(self, number: int) -> T:
        """The result for this number, made by the first who asks."""
        with self._lock:
            found = self._kept.pop(number, None)
            future: Future[T] = found or Future()
            self._kept[number] = future
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        if found is None:
            try:
                future.set_result(self._make(number))
            except BaseException as error:
                future.set_exception(error)
                with self._lock:
                    self._kept.pop(number, None)
        return future.result()

    def forget(self) -> None:
        """Keep nothing any more."""
        with self._lock:
            self._kept.clear()


class Partitioned(Source):
    """A source that says how its partitions are read."""

    def __init__(
        self, name: str, bounds: np.ndarray, row_shape: tuple[int, ...], dtype: np.dtype
    ) -> None:
        self.name, self.row_shape, self.dtype = name, row_shape, dtype
        self._bounds = np.unique(bounds)  # none is empty
        self.n_rows = int(self._bounds[-1])
        nbytes = self.nbytes / max(len(self._bounds) - 1, 1)
        self._kept = Kept(self._read_one, nbytes)

    @abstractmethod
    def partitions(self, first: int, stop: int) -> np.ndarray:
        """The rows of these partitions, one after the other, C-contiguous."""

    def bounds(self) -> np.ndarray:
        """Where partitions begin, and the number of rows."""
        return self._bounds

    def _read_one(self, number: int) -> np.ndarray:
        return self.partitions(number, number + 1)

    def _partition(self, number: int) -> np.ndarray:
        return self._kept(number)

    def forget(self) -> None:
        """Let go of the partitions that are kept."""
        self._kept.forget()

    def read(self, start: int, stop: int) -> np.ndarray:
        """These rows, whole partitions at a time."""
        bounds = self._bounds
        first, last = np.searchsorted(bounds, start), np.searchsorted(bounds, stop, "right") - 1
        if first > last:  # within one
            return self._partition(int(last))[start - bounds[last] : stop - bounds[last]]
        parts = []
        if start < bounds[first]:
            parts.append(self._partition(int(first - 1))[start - bounds[first] :])
        if last == first + 1:
            parts.append(self._partition(int(first)))
        elif first < last:
            parts.append(self.partitions(int(first), int(last)))
        if bounds[last] < stop:
            parts.append(self._partition(int(last))[: stop - bounds[last]])
        return parts[0] if len(parts) == 1 else self._joined(parts)

    def take(self, index: np.ndarray) -> np.ndarray:
        """These rows, from all partitions that have some of them."""
        index = np.asarray(index)
        edges = np.searchsorted(index, self._bounds)
        needed = np.flatnonzero(np.diff(edges))

        def rows(number: int) -> np.ndarray:
            here = index[edges[number] : edges[number + 1]] - self._bounds[number]
            return self._partition(number)[here]

        with ThreadPoolExecutor(n_threads()) as pool:
            parts = list(pool.map(rows, needed.tolist()))
        self.forget()
        return self._joined(parts)

    def _joined(self, parts: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.empty((0, *self.row_shape), self.dtype), *parts])
