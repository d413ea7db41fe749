# SPDX-License-Identifier: Apache-2.0
"""Columns of Parquet files: partitions are row groups."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_sgcv.sources.columns import Column, Missing, common_columns
from pymc_sgcv.sources.files import Files
from pymc_sgcv.sources.partitions import Partitioned, n_threads

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_log = logging.getLogger("pymc.sgcv")
_SHOWN = 4
"""Columns and categories that are named, of many."""
_ROWS_AT_A_TIME = 1 << 12
"""Columns become rows in pieces that fit into the cache."""


def parquet(
    pattern: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    columns: str | Sequence[str] | None = None,
    name: str | None = None,
) -> ParquetSource:
    """Columns of Parquet files as rows, read when they are needed.

    Parameters
    ----------
    pattern : str, path or list of them
        Files, patterns such as ``"rows/*.parquet"``, or directories, of which all files
        ``*.parquet`` are taken. The rows are in the order of the sorted names of the files, which
        may have row groups of any length, also none.
    columns : str or list of str, optional
        One name for a vector, several for a matrix; by default all of them. Columns of a matrix
        have one type: float32 if all are, otherwise the one that holds them all. Strings and
        dictionaries become codes of type int32, and the logger ``pymc.sgcv`` says so; the
        categories are in the attribute ``categories``, sorted.
    name : str, optional
        For messages; by default the pattern and the columns.

    Returns
    -------
    ParquetSource
        For `Minibatch`.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> import pymc_sgcv as sg
    >>> file = tempfile.mkdtemp() + "/sales.parquet"
    >>> pd.DataFrame({"price": [1.5, 2.0], "shop": ["b", "a"]}).to_parquet(file)
    >>> shop = sg.parquet(file, columns="shop")
    >>> shop.read(0, 2), shop.categories["shop"]
    (array([1, 0], dtype=int32), array(['a', 'b'], dtype=object))
    """
    paths = _paths(pattern)
    files = ParquetFiles(paths)
    names = (
        [columns] if isinstance(columns, str) else list(files.names if columns is None else columns)
    )
    if not names:
        raise ValueError("columns must name one column at least.")
    label = name or f"{_shortened(pattern)}: {_listed(names)}"
    return ParquetSource(files, names, isinstance(columns, str), label)


class ParquetFiles:
    """What the metadata say: row groups and columns, read once."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self.files = Files(paths)
        with ThreadPoolExecutor(n_threads()) as pool:
            self._metadata = list(pool.map(_metadata, paths))
        self.groups = [
            (number, group)
            for number, metadata in enumerate(self._metadata)
            for group in range(metadata.num_row_groups)
            if metadata.row_group(group).num_rows
        ]
        """Pairs of file and row group, none of them empty."""
        lengths = [self._metadata[file].row_group(group).num_rows for file, group in self.groups]
        self.bounds = np.cumsum([0, *lengths])
        self.file_bounds = np.cumsum([0, *(metadata.num_rows for metadata in self._metadata)])

    @cached_property
    def schemas(self) -> dict[Path, pa.Schema]:
        """Of files with rows: a file without any may have whatever types."""
        found = {
            path: metadata.schema.to_arrow_schema()
            for path, metadata in zip(self.paths, self._metadata)
            if metadata.num_rows
        }
        return found or {self.paths[0]: self._metadata[0].schema.to_arrow_schema()}

    @property
    def names(self) -> list[str]:
        """All columns of the first file."""
        found: list[str] = next(iter(self.schemas.values())).names
        return found

    def read(self, first: int, stop: int, names: list[str], codes: list[str]) -> Iterator[pa.Table]:
        """Tables of these row groups, one for each file; columns `codes` as dictionaries."""
        import pyarrow.parquet as pq

        for file in sorted({file for file, _ in self.groups[first:stop]}):
            groups = [group for number, group in self.groups[first:stop] if number == file]
            path, metadata = self.paths[file], self._metadata[file]
            with pq.ParquetFile(path, metadata=metadata, read_dictionary=codes) as opened:
                yield opened.read_row_groups(groups, columns=names)

    def with_nulls(self, name: str) -> Iterator[int]:
        """Row groups whose statistics count nulls in this column."""
        places = [_place(metadata, name) for metadata in self._metadata]
        for number, (file, group) in enumerate(self.groups):
            column = self._metadata[file].row_group(group).column(places[file])
            statistics = column.statistics if column.is_stats_set else None
            if statistics is not None and statistics.has_null_count and statistics.null_count:
                yield number

    def where(self, row: int) -> str:
        """The file of a row, and its place there."""
        file = int(np.searchsorted(self.file_bounds, row, "right")) - 1
        return f"row {row - self.file_bounds[file]} of {self.paths[file]}"


class ParquetSource(Partitioned):
    """Rows of some columns."""

    def __init__(self, files: ParquetFiles, names: list[str], vector: bool, label: str) -> None:
        self._files = files
        self._columns = common_columns(files.schemas, names)
        dtype = np.result_type(*(column.dtype for column in self._columns))
        super().__init__(label, files.bounds, () if vector else (len(names),), dtype)
        for column in self._columns:
            for group in files.with_nulls(column.name):
                self.partitions(group, group + 1)  # says where
        self.categories = self._find_categories()

    def partitions(self, first: int, stop: int) -> np.ndarray:
        """The rows of these row groups."""
        start = int(self._bounds[first])
        out = np.empty((int(self._bounds[stop]) - start, len(self._columns)), self.dtype)
        filled = 0
        for table in self._tables(first, stop, self._columns):
            try:
                parts = [column.numbers(table[column.name]) for column in self._columns]
            except Missing as missing:
                raise self._has_nulls(missing, start + filled) from None
            filled += _fill(out[filled:], parts)
        return out.reshape(len(out), *self.row_shape)

    def where(self, row: int) -> str:
        """The file of a row, and its place there."""
        return self._files.where(row)

    def check(self) -> None:
        """Raise an error that names a file which changed."""
        self._files.files.check()

    def forget(self) -> None:
        """Let go of row groups, and give their memory back to the system."""
        import pyarrow as pa

        super().forget()
        pa.default_memory_pool().release_unused()

    def _tables(self, first: int, stop: int, columns: Sequence[Column]) -> Iterator[pa.Table]:
        codes = [column.name for column in columns if column.coded]
        return self._files.read(first, stop, [column.name for column in columns], codes)

    def _find_categories(self) -> dict[str, np.ndarray]:
        """The values of columns that are codes, sorted, from one pass over these columns."""
        coded = [column for column in self._columns if column.coded]

        def values(group: int) -> list[set[Any]]:
            (table,) = self._tables(group, group + 1, coded)
            try:
                return [column.values(table[column.name]) for column in coded]
            except Missing as missing:
                raise self._has_nulls(missing, int(self._bounds[group])) from None

        if coded:
            found: list[set[Any]] = [set() for _ in coded]
            with ThreadPoolExecutor(n_threads()) as pool:
                for more in pool.map(values, range(len(self._bounds) - 1)):
                    for known, new in zip(found, more):
                        known |= new
            for column, known in zip(coded, found):
                column.order(known)
                _log.info(
                    f"{self.name}: '{column.name}' is read as codes 0 … {len(known) - 1} of its "
                    f"{len(known):,} sorted values: {_listed(map(str, column.categories))}"
                )
        return {column.name: column.categories for column in coded}

    def _has_nulls(self, missing: Missing, start: int) -> ValueError:
        return ValueError(
            f"Column '{missing.column}' has missing values, the first in "
            f"{self.where(start + missing.row)}. Remove or impute those rows before sampling."
        )


def _fill(out: np.ndarray, parts: Sequence[np.ndarray]) -> int:
    """Columns side by side in rows, of which there are so many."""
    n_rows = len(parts[0])
    for start in range(0, n_rows, _ROWS_AT_A_TIME):
        stop = min(start + _ROWS_AT_A_TIME, n_rows)
        for j, part in enumerate(parts):
            out[start:stop, j] = part[start:stop]
    return n_rows


def _metadata(path: Path) -> pq.FileMetaData:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} cannot be read as a Parquet file: {error}") from None


def _place(metadata: pq.FileMetaData, name: str) -> int:
    """Which of the file's columns it is; metadata know them by numbers."""
    schema = metadata.schema
    return next((j for j in range(len(schema)) if schema.column(j).path == name), 0)


def _paths(pattern: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Files that are meant, sorted by name where there is a choice."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ImportError(
            "Parquet files are read with pyarrow: pip install 'pymc-sgcv[parquet]'."
        ) from None
    patterns = [pattern] if isinstance(pattern, str | os.PathLike) else list(pattern)
    found: list[Path] = []
    for one in (os.fspath(path) for path in patterns):
        here = [Path(file) for file in sorted(glob.glob(one, recursive=True))]
        files = [file for at in here for file in (_inside(at) if at.is_dir() else [at])]
        if not files:
            raise FileNotFoundError(f"There are no Parquet files at '{one}'.")
        found += files
    if not found:
        raise FileNotFoundError("The list of Parquet files is empty.")
    return found


def _inside(directory: Path) -> list[Path]:
    """All Parquet files below, without those that writers hide."""
    return sorted(
        file
        for file in directory.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in file.relative_to(directory).parts)
    )


def _shortened(pattern: object) -> str:
    if isinstance(pattern, str | os.PathLike):
        return os.fspath(pattern)
    files = list(pattern)  # type: ignore[call-overload]
    return os.fspath(files[0]) if len(files) == 1 else f"{len(files)} Parquet files"


def _listed(names: Iterable[str]) -> str:
    first = list(names)
    return ", ".join(first) if len(first) <= _SHOWN else f"{', '.join(first[:2])}, … {first[-1]}"
