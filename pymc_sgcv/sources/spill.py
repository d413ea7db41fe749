# SPDX-License-Identifier: Apache-2.0
"""A copy of all rows in random order, on disk, without ever holding all of them in memory.

Every row draws a bucket. One pass writes rows to the regions of their buckets, in the order in
which they come; then each bucket is read, shuffled and written back. Buckets drawn independently
with uniform orders inside them are a uniform order of all rows (Rao 1961; Sandelius 1962). What a
row draws depends on its number alone: neither threads nor partitions change the order.
"""

from __future__ import annotations

import errno
import io
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pymc_sgcv.sources.base import Source, as_type, same_length
from pymc_sgcv.sources.passes import Report, over_rows

SEED = 20190425
"""That of `rows/shuffle.py`, for its reason: the order is the same in every process."""
_BUCKET_BYTES = 1 << 27
_BLOCK_BYTES = 1 << 25
_DRAWN_AT_ONCE = 1 << 16
"""So many rows draw their buckets from one random stream."""
_AT_ONCE = 2
"""Buckets that are shuffled at the same time, each of them in memory twice."""
_ALIGNED = 1 << 12
_PASS = 0.7
"""The share of the work that is the pass over the sources."""


def shuffled_copy(
    sources: Sequence[Source],
    kinds: Sequence[str],
    directory: Path | str | None = None,
    report: Report | None = None,
) -> list[np.memmap]:
    """Memory maps of all rows in one random order.

    Parameters
    ----------
    sources : sequence of Source
        Of one length.
    kinds : sequence of str
        The type of each copy.
    directory : path, optional
        Where there is room for all rows; by default the system's directory for temporary files.
        The file there goes with the last of the arrays, or with the process.
    report : callable, optional
        Called with the fraction that is done.
    """
    n_rows = same_length(sources)
    regions = _regions(sources, kinds, n_rows)
    path = _new_file(directory, regions[-1].stop)
    keeper = _Keeper()
    remove = weakref.finalize(keeper, _remove, path)
    n_buckets = max(1, -(-sum(region.nbytes for region in regions) // _BUCKET_BYTES))
    try:
        sizes = _write(path, sources, regions, n_buckets, report)
        _shuffle(path, regions, sizes, report)
        copies = [region.memory_map(path, n_rows) for region in regions]
    except BaseException as error:
        remove()
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise _no_room(path.parent, regions[-1].stop) from None
        raise
    for copy in copies:
        copy.keeper = keeper  # type: ignore[attr-defined]
    return copies


class _Keeper:
    """Held by all arrays of a file."""


@dataclass
class _Region:
    """Where the rows of one array are in the file."""

    offset: int
    nbytes: int
    row_shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def stop(self) -> int:
        return self.offset + self.nbytes

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.row_shape, dtype=int)) * self.dtype.itemsize

    def memory_map(self, path: Path, n_rows: int) -> np.memmap:
        shape = (n_rows, *self.row_shape)
        return np.memmap(path, self.dtype, "r", offset=self.offset, shape=shape)


def _regions(sources: Sequence[Source], kinds: Sequence[str], n_rows: int) -> list[_Region]:
    regions, offset = [], 0
    for source, kind in zip(sources, kinds, strict=True):
        region = _Region(offset, 0, source.row_shape, np.dtype(kind))
        region.nbytes = n_rows * region.row_bytes
        regions.append(region)
        offset = -(-region.stop // _ALIGNED) * _ALIGNED
    return regions


class _Grouped:
    """The job that sorts the rows of a block by their buckets."""

    def __init__(self, n_buckets: int, dtypes: Sequence[np.dtype]) -> None:
        self.n_buckets, self.dtypes = n_buckets, dtypes

    def __call__(self, arrays: list[np.ndarray], first: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """How many rows each bucket gets, and the rows."""
        buckets = drawn_buckets(first, first + len(arrays[0]), self.n_buckets)
        order = np.argsort(buckets, kind="stable")
        grouped = [
            as_type(array[order], kind) for array, kind in zip(arrays, self.dtypes, strict=True)
        ]
        return np.bincount(buckets, minlength=self.n_buckets), grouped


def drawn_buckets(start: int, stop: int, n_buckets: int) -> np.ndarray:
    """The buckets of these rows."""
    first, last = start // _DRAWN_AT_ONCE, -(-stop // _DRAWN_AT_ONCE)
    drawn = [
        np.random.default_rng([SEED, j]).integers(n_buckets, size=_DRAWN_AT_ONCE, dtype=np.uint16)
        for j in range(first, last)
    ]
    offset = first * _DRAWN_AT_ONCE
    return np.concatenate(drawn)[start - offset : stop - offset]


def _write(
    path: Path,
    sources: Sequence[Source],
    regions: Sequence[_Region],
    n_buckets: int,
    report: Report | None,
) -> np.ndarray:
    """Write rows to the regions of their buckets; the numbers of rows there."""
    n_rows = sources[0].n_rows
    sizes = np.zeros(n_buckets, int)
    for start in range(0, n_rows, _DRAWN_AT_ONCE):
        buckets = drawn_buckets(start, min(start + _DRAWN_AT_ONCE, n_rows), n_buckets)
        sizes += np.bincount(buckets, minlength=n_buckets)
    place = np.cumsum(sizes) - sizes
    row_bytes = sum(region.row_bytes for region in regions)
    blocks = over_rows(
        sources,
        _Grouped(n_buckets, [region.dtype for region in regions]),
        rows_at_once=max(1, _BLOCK_BYTES // max(row_bytes, 1)),
        report=report and (lambda fraction: report(_PASS * fraction)),
    )
    with open(path, "r+b", buffering=0) as file:
        for counts, grouped in blocks:
            edges = np.append(0, np.cumsum(counts))
            for bucket in np.flatnonzero(counts):
                for region, rows in zip(regions, grouped):
                    file.seek(region.offset + int(place[bucket]) * region.row_bytes)
                    _write_all(file, rows[edges[bucket] : edges[bucket + 1]])
            place += counts
    for source in sources:
        source.check()
    return sizes


def _shuffle(
    path: Path, regions: Sequence[_Region], sizes: np.ndarray, report: Report | None
) -> None:
    """Shuffle the rows of each bucket, in memory."""
    starts = np.cumsum(sizes) - sizes

    def shuffle(bucket: int) -> None:
        order = np.random.default_rng([SEED, bucket, 1]).permutation(sizes[bucket])
        with open(path, "r+b", buffering=0) as file:
            for region in regions:
                offset = region.offset + int(starts[bucket]) * region.row_bytes
                rows = np.empty((len(order), *region.row_shape), region.dtype)
                file.seek(offset)
                _read_all(file, rows)
                file.seek(offset)
                _write_all(file, rows[order])

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done, _ in enumerate(pool.map(shuffle, range(len(sizes))), start=1):
            if report is not None:
                report(_PASS + (1 - _PASS) * done / len(sizes))


def _write_all(file: io.RawIOBase, rows: np.ndarray) -> None:
    left = rows.reshape(-1).view(np.uint8).data
    while left:
        left = left[file.write(left) :]


def _read_all(file: io.RawIOBase, rows: np.ndarray) -> None:
    left = rows.reshape(-1).view(np.uint8).data
    while left:
        left = left[file.readinto(left) :]


def _new_file(directory: Path | str | None, nbytes: int) -> Path:
    """An empty file in a directory that has room for it."""
    where = Path(tempfile.gettempdir() if directory is None else directory)
    if not where.is_dir():
        raise NotADirectoryError(
            f"There is no directory {where} for the copy of the data in random order. Make it, or "
            "name another one."
        )
    if shutil.disk_usage(where).free < nbytes:
        raise _no_room(where, nbytes)
    handle, name = tempfile.mkstemp(prefix="sgcv-", suffix=".rows", dir=where)
    with open(handle, "wb") as file:
        file.truncate(nbytes)
    return Path(name)


def _no_room(where: Path, nbytes: int) -> OSError:
    free = shutil.disk_usage(where).free
    return OSError(
        errno.ENOSPC,
        f"There is no room for the copy of the data in random order: it takes {_size(nbytes)}, "
        f"and {where} has {_size(free)} left. Name a directory on another disk, directory='...', "
        "or set the environment variable TMPDIR.",
    )


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.1f} MB"


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
