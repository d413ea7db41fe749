# SPDX-License-Identifier: Apache-2.0
"""Passes over rows that Dask holds: a job goes to where each partition is.

There is one task for each partition, on whatever scheduler the user has. On a cluster a task that
was lost with its worker is run again by Dask, and gives the same result. An exception of a job is a
result like any other, so that it is not tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from pymc_sgcv.sources.base import Source, same_length
from pymc_sgcv.sources.dasks import DaskSource
from pymc_sgcv.sources.partitions import n_threads
from pymc_sgcv.sources.passes import Job, Report, cut

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
_Numbered: TypeAlias = Generator[tuple[int, Any], None, None]
_RETRIES = 3
_BATCHES = 64
"""Tasks are submitted in so many batches at most: each goes through the graph of all partitions."""
_PACKAGES = "pymc-sgcv", "pymc", "pytensor"
"""What a cluster must have in the versions of this process."""
_QUIET = {"distributed.admin.large-graph-warning-threshold": "1 GB"}
"""Rows of this process travel with the tasks."""


def over_partitions(
    sources: Sequence[Source], job: Job[T], rows_at_once: int, report: Report | None
) -> Iterator[T]:
    """The results of `job` for all rows in their order, as `over_rows` has them.

    Blocks are parts of the partitions of that source which has the most bytes in a row; others
    move. Where the job has a method ``merge(a, b)``, there is one result for each partition.
    """
    from dask.base import get_scheduler

    n_rows = same_length(sources)
    widest = max((s for s in sources if isinstance(s, DaskSource)), key=lambda s: s.nbytes)
    bounds = widest.bounds()
    client = getattr(get_scheduler(), "__self__", None)
    if client is not None:
        check_cluster(client)
    tasks = _Tasks(sources, job, rows_at_once, bounds)
    results = _locally(tasks) if client is None else _on_cluster(client, tasks)
    done = np.zeros(len(tasks), bool)
    following, ready = 0, dict[int, "list[T] | _Failed"]()
    for number, result in results:
        done[number] = True
        ready[number] = result
        if report is not None:
            report(float(np.diff(bounds) @ done) / n_rows)
        while following in ready:
            found = ready.pop(following)
            if isinstance(found, _Failed):
                results.close()
                raise found.error
            yield from found
            following += 1
            tasks.used = following


class _Tasks:
    """One delayed call for each partition."""

    def __init__(
        self, sources: Sequence[Source], job: Job[T], rows_at_once: int, bounds: np.ndarray
    ) -> None:
        import dask

        self.sources, self.bounds, self.rows_at_once = sources, bounds, rows_at_once
        self.parts = {
            j: source.parts(bounds)
            for j, source in enumerate(sources)
            if isinstance(source, DaskSource)
        }
        self.job = dask.delayed(job, pure=False, traverse=False)  # sent once, not with each task
        self.call = dask.delayed(_on_partition, pure=False)
        self.used = 0
        """How many results have been asked for: no more than some batches are ahead of that."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def batch(self, start: int, stop: int) -> list[Any]:
        """Tasks for these partitions, with the rows of sources that are here."""
        return [self._task(number) for number in range(start, min(stop, len(self)))]

    def _task(self, number: int) -> Any:
        start, stop = (int(edge) for edge in self.bounds[number : number + 2])
        arrays = [
            self.parts[j][number] if j in self.parts else source.read(start, stop)
            for j, source in enumerate(self.sources)
        ]
        return self.call(self.job, start, self.rows_at_once, *arrays)


class _Failed:
    """An exception of a job."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _on_partition(
    job: Any, first_row: int, rows_at_once: int, *arrays: np.ndarray
) -> list[Any] | _Failed:
    """The results for all blocks of a partition, merged if the job can do that."""
    edges = cut(0, len(arrays[0]), rows_at_once).tolist()
    merge: Callable[[Any, Any], Any] | None = getattr(job, "merge", None)
    found: list[Any] = []
    try:
        for start, stop in pairwise(edges):
            blocks = [np.ascontiguousarray(array[start:stop]) for array in arrays]
            result = job(blocks, first_row + start)
            found = [merge(found[0], result)] if merge and found else [*found, result]
    except Exception as error:
        return _Failed(error)
    return found


def _locally(tasks: _Tasks) -> _Numbered:
    """Numbers of tasks and their results, from the threads of this process by default."""
    import dask

    size = max(2 * n_threads(), -(-len(tasks) // _BATCHES))
    for start in range(0, len(tasks), size):
        yield from enumerate(dask.compute(*tasks.batch(start, start + size)), start)


def _on_cluster(client: Client, tasks: _Tasks) -> _Numbered:
    """Numbers of tasks and their results, as they come from the cluster."""
    import dask
    from distributed import as_completed

    size = max(2 * sum(client.nthreads().values()), -(-len(tasks) // _BATCHES), 1)
    numbers: dict[Any, int] = {}
    submitted = 0
    completed = as_completed()
    try:
        while submitted < len(tasks) or numbers:
            while submitted < len(tasks) and submitted <= tasks.used + size:
                batch = tasks.batch(submitted, submitted + size)
                with dask.config.set(_QUIET):
                    futures = client.compute(batch, retries=_RETRIES)
                numbers.update(zip(futures, range(submitted, submitted + len(batch))))
                completed.update(futures)
                submitted += len(batch)
            future = next(completed)
            number = numbers.pop(future)
            result = future.result()
            if isinstance(result, _Failed):  # those before it go on, to find the first that failed
                _cancel(client, [later for later, n in numbers.items() if n > number])
                numbers = {earlier: n for earlier, n in numbers.items() if n < number}
                submitted = len(tasks)
                completed = as_completed(list(numbers))
            del future
            yield number, result
    finally:
        _cancel(client, list(numbers))


def _cancel(client: Client, futures: list[Any]) -> None:
    if futures and client.status == "running":
        client.cancel(futures)


def check_cluster(client: Client) -> None:
    """Refuse a cluster that has not the packages of this process, before any row is read."""
    for package in _PACKAGES:
        try:
            here = version(package)
        except PackageNotFoundError:
            continue  # it is not installed but found by its path: there is nothing to compare
        workers = client.run(version, package, on_error="return")
        found = {f"the worker {worker}": there for worker, there in workers.items()}
        try:
            found["the scheduler"] = client.run_on_scheduler(version, package)
        except PackageNotFoundError as missing:
            found["the scheduler"] = missing
        for who, there in found.items():
            if isinstance(there, OSError):
                continue  # it has just died, and others do its work
            if there != here:
                has = f"has {there}" if isinstance(there, str) else "does not have it"
                raise RuntimeError(
                    f"Gradients are summed on the cluster, which needs {package} {here} as it is "
                    f"here, but {who} {has}. Install it there: pip install '{package}=={here}'."
                )
