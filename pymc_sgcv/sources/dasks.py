# SPDX-License-Identifier: Apache-2.0
"""Dask arrays and dataframes: rows that are on other machines, or computed when they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_sgcv.sources.base import Source, common_type, numbers, unreadable
from pymc_sgcv.sources.partitions import Partitioned

if TYPE_CHECKING:
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd


def open_source(thing: Any, name: str | None) -> Source:
    """The rows of a Dask array, Series or DataFrame."""
    if hasattr(type(thing), "to_dask_array"):
        label = name or (f"'{thing.name}'" if thing.ndim == 1 else "the Dask DataFrame")
        return DaskSource(_frame_array(thing, label), label)
    if hasattr(type(thing), "chunks"):
        return DaskSource(thing, name or f"the Dask array of shape {thing.shape}")
    raise unreadable(thing, name, "Of Dask, arrays, Series and DataFrames have rows of numbers.")


class DaskSource(Partitioned):
    """Rows of a Dask array."""

    remote = True

    def __init__(self, array: da.Array, name: str) -> None:
        if array.ndim == 0:
            raise ValueError(f"{name} is a single number: rows need an axis.")
        dtype = numbers(array.dtype, name)
        if np.isnan(array.shape[0]):
            array = array.copy().compute_chunk_sizes()
        bounds = np.cumsum([0, *array.chunks[0]])
        super().__init__(name, bounds, array.shape[1:], dtype)
        self._array = array.astype(dtype)

    def partitions(self, first: int, stop: int) -> np.ndarray:
        """The rows of these partitions, computed by whatever scheduler there is."""
        rows = self._array[int(self._bounds[first]) : int(self._bounds[stop])].compute()
        return np.ascontiguousarray(rows)

    def take(self, index: np.ndarray) -> np.ndarray:
        """These rows, chosen where they are."""
        return np.ascontiguousarray(self._array[np.asarray(index)].compute())

    def parts(self, bounds: np.ndarray) -> list[Any]:
        """Delayed arrays of the rows between `bounds`."""
        whole = dict.fromkeys(range(1, self._array.ndim), -1)
        rows = self._array.rechunk({0: tuple(np.diff(bounds).tolist()), **whole})
        delayed: list[Any] = rows.to_delayed().ravel().tolist()
        return delayed

    def where(self, row: int) -> str:
        """The partition of a row, and its place there."""
        part = int(np.searchsorted(self._bounds, row, "right")) - 1
        return f"row {row - self._bounds[part]} of partition {part} of {self.name}"


def _frame_array(frame: dd.DataFrame | dd.Series, label: str) -> da.Array:
    """Its columns as an array of one type; lengths of partitions are computed."""
    meta = frame._meta
    columns = meta.to_frame() if frame.ndim == 1 else meta
    if not columns.shape[1]:
        raise ValueError(f"{label} has no columns.")
    kinds = [
        _number_type(columns.iloc[:, j].dtype, f"Column '{columns.columns[j]}' of {label}")
        for j in range(columns.shape[1])
    ]
    common = common_type(kinds)
    if any(not isinstance(kind, np.dtype) for kind in columns.dtypes):
        frame = frame.map_partitions(_without_missing, common, label, meta=meta.astype(common))
    elif set(kinds) != {common}:
        frame = frame.astype(common)
    # Optimizing may merge partitions, and would do so only after their lengths are known.
    return frame.optimize().to_dask_array(lengths=True)


def _number_type(dtype: Any, what: str) -> np.dtype:
    if dtype.name == "category" or (not hasattr(dtype, "numpy_dtype") and dtype.kind == "O"):
        raise TypeError(
            f"{what} has values of type {dtype}, which cannot be rows of numbers. Give codes in "
            "its place: column.astype('category').cat.as_known().cat.codes."
        )
    return numbers(np.dtype(getattr(dtype, "numpy_dtype", dtype)), what)


def _without_missing(part: Any, dtype: np.dtype, label: str) -> pd.DataFrame | pd.Series:
    """A partition whose types can be missing, as one of numbers."""
    missing = part.isna().to_numpy().reshape(len(part), -1).any(axis=1)
    if missing.any():
        raise ValueError(
            f"{label} has missing values, one of them in row {int(np.argmax(missing))} of a "
            f"partition, with index {part.index[missing][0]}. Remove or impute those rows."
        )
    return part.astype(dtype)
