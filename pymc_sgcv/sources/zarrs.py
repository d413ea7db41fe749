# SPDX-License-Identifier: Apache-2.0
"""Zarr arrays: partitions are chunks, those inside of shards too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_sgcv.sources.base import Source, numbers, unreadable
from pymc_sgcv.sources.files import Files
from pymc_sgcv.sources.partitions import Partitioned

if TYPE_CHECKING:
    import zarr


def open_source(thing: Any, name: str | None) -> Source:
    """The rows of a Zarr array."""
    if not hasattr(thing, "dtype"):
        raise unreadable(thing, name, "A group holds several arrays: give them, as group['x'].")
    return ZarrSource(thing, name)


class ZarrSource(Partitioned):
    """Rows of a Zarr array."""

    def __init__(self, array: zarr.Array, name: str | None = None) -> None:
        root = _directory(array)
        label = name or array.basename or (root.name if root else "the Zarr array")
        if array.ndim == 0:
            raise ValueError(f"{label} is a single number: rows need an axis.")
        dtype = numbers(np.dtype(array.dtype), label)
        super().__init__(label, _chunk_bounds(array), array.shape[1:], dtype)
        self._array = array
        self._metadata = array.metadata.to_dict()
        self._files = Files(_files_in(root) if root else [])

    def partitions(self, first: int, stop: int) -> np.ndarray:
        """The rows of these chunks, which are decoded together."""
        rows = self._array[int(self._bounds[first]) : int(self._bounds[stop])]
        return np.ascontiguousarray(rows, dtype=self.dtype)

    def check(self) -> None:
        """Raise an error if files of the array changed; elsewhere than on disk, its metadata."""
        import zarr

        self._files.check()
        now = zarr.open_array(self._array.store_path, mode="r")
        if now.metadata.to_dict() != self._metadata:
            raise RuntimeError(
                f"The Zarr array {self.name} changed since it was opened. What was computed from "
                "its rows does not hold any more: open it again, and begin anew."
            )


def _directory(array: zarr.Array) -> Path | None:
    """Where the array is on this machine's disks."""
    from zarr.storage import LocalStore

    return array.store.root / array.path if isinstance(array.store, LocalStore) else None


def _chunk_bounds(array: zarr.Array) -> np.ndarray:
    """Chunks along the rows, which may be of different lengths in the latest format."""
    if hasattr(array, "read_chunk_sizes"):
        return np.cumsum([0, *array.read_chunk_sizes[0]])
    n_rows = array.shape[0]
    return np.append(np.arange(0, n_rows, array.chunks[0]), n_rows)


def _files_in(directory: Path) -> Iterator[Path]:
    for folder, _, files in os.walk(directory):
        yield from (Path(folder, file) for file in files)
