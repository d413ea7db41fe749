# SPDX-License-Identifier: Apache-2.0
"""Arrays in memory, memory maps, and pandas' Series and DataFrames."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_sgcv.sources.base import Source, common_type, numbers, unreadable
from pymc_sgcv.sources.files import Files

if TYPE_CHECKING:
    import pandas as pd


def open_source(thing: Any, name: str | None) -> Source:
    """The rows of an array, a memory map, a Series, a DataFrame or a list."""
    if isinstance(thing, str | bytes):
        raise unreadable(
            thing, name, "Open the file first: sg.parquet(...), np.load(..., mmap_mode='r')."
        )
    if isinstance(thing, np.ma.MaskedArray):
        raise unreadable(thing, name, "Leave masked rows out, or fill them in.")
    if isinstance(thing, np.ndarray):
        return ArraySource(thing, name)
    if isinstance(thing, list | tuple):
        return ArraySource(np.asarray(thing), name)
    if hasattr(thing, "iloc"):
        return _pandas_source(thing, name)
    if type(thing).__module__.startswith("pandas") and hasattr(thing, "to_series"):
        return _pandas_source(thing.to_series(), name)
    raise unreadable(thing, name)


class ArraySource(Source):
    """Rows of an array, which is never copied whole."""

    scattered = True

    def __init__(self, array: np.ndarray, name: str | None = None) -> None:
        mapped, whole = _memory_map(array)
        file = Path(whole.filename) if whole is not None else None
        self.name = name or (file.name if file else f"the array of shape {array.shape}")
        if array.ndim == 0:
            raise ValueError(f"{self.name} is a single number: rows need an axis.")
        self._array = array
        self._files = Files([file] if file else [])
        self.dtype = numbers(array.dtype, self.name)
        self.n_rows, *row_shape = array.shape
        self.row_shape = tuple(row_shape)
        self.resident = not mapped

    def read(self, start: int, stop: int) -> np.ndarray:
        """These rows: a view, if they are contiguous."""
        return np.ascontiguousarray(self._array[start:stop], dtype=self.dtype)

    def take(self, index: np.ndarray) -> np.ndarray:
        """These rows."""
        return np.ascontiguousarray(self._array[index], dtype=self.dtype)

    def check(self) -> None:
        """Raise an error if the file of a memory map changed."""
        self._files.check()

    def __getstate__(self) -> dict[str, Any]:
        """Of a memory map its place in the file: pickled, its rows would be read, all of them."""
        state = self.__dict__.copy()
        _, whole = _memory_map(self._array)
        if whole is not None and whole.mode != "c":
            place = whole.offset - whole.offset % mmap.ALLOCATIONGRANULARITY
            place += self._array.ctypes.data - np.frombuffer(whole._mmap, "u1").ctypes.data
            layout = self._array.shape, self._array.dtype, place, self._array.strides
            state["_array"] = os.path.abspath(whole.filename), layout
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["_array"], tuple):
            file, (shape, dtype, place, strides) = state["_array"]
            whole = np.memmap(file, "u1", "r")
            state["_array"] = np.ndarray(shape, dtype, whole, place, strides)
        self.__dict__ = state


class ColumnsSource(Source):
    """Columns of one length, each an array of its own."""

    resident = True
    scattered = True

    def __init__(self, columns: Sequence[np.ndarray], name: str) -> None:
        self.name = name
        self._columns = columns
        self.dtype = common_type([column.dtype for column in columns])
        self.n_rows, self.row_shape = len(columns[0]), (len(columns),)

    def read(self, start: int, stop: int) -> np.ndarray:
        """These rows, of all columns."""
        return self._rows(slice(start, stop))

    def take(self, index: np.ndarray) -> np.ndarray:
        """These rows, of all columns."""
        return self._rows(index)

    def _rows(self, which: slice | np.ndarray) -> np.ndarray:
        parts = [column[which] for column in self._columns]
        out = np.empty((len(parts[0]), len(parts)), self.dtype)
        for j, part in enumerate(parts):
            out[:, j] = part
        return out


def _memory_map(array: np.ndarray) -> tuple[bool, Any]:
    """Whether an array is a view of a memory map, and the map of a file by numpy if it is one."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if getattr(base, "filename", None) is not None:
            return True, base
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return isinstance(base, mmap.mmap), None


def _pandas_source(thing: pd.Series | pd.DataFrame, name: str | None) -> Source:
    if thing.ndim == 1:
        label = name or (f"'{thing.name}'" if thing.name is not None else "the Series")
        return ArraySource(_column(thing, label), label)
    label = name or f"the DataFrame of shape {thing.shape}"
    if thing.shape[1] == 0:
        raise ValueError(f"{label} has no columns.")
    columns = [
        _column(thing.iloc[:, j], f"Column '{thing.columns[j]}' of {label}")
        for j in range(thing.shape[1])
    ]
    if len({str(kind) for kind in thing.dtypes}) == 1 and isinstance(
        thing.dtypes.iloc[0], np.dtype
    ):
        whole = thing.to_numpy()
        if np.shares_memory(whole, columns[0]):  # otherwise it is a copy, which columns need not
            return ArraySource(whole, label)
    return ColumnsSource(columns, label)


def _column(series: pd.Series, what: str) -> np.ndarray:
    """Its numbers as an array, without a copy where pandas has one."""
    if series.dtype.name == "category":
        raise TypeError(
            f"{what} is categorical. Give its codes, .cat.codes, in its place, and keep "
            ".cat.categories for their names."
        )
    import pandas as pd

    if not isinstance(series.dtype, np.dtype) and series.isna().any():
        row = int(np.flatnonzero(series.isna())[0])
        raise ValueError(
            f"{what} has missing values, the first in row {row}. Remove or impute those rows."
        )
    strings = pd.api.types.is_string_dtype(series)
    array = np.empty(0, "U") if strings else series.to_numpy()
    numbers(array.dtype, what)
    return array
