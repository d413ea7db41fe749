# SPDX-License-Identifier: Apache-2.0
"""Columns of Arrow tables as numbers, and refusals of those that are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

_INSTEAD = {
    "date": "Store numbers in its place, for instance days since the first.",
    "time": "Store numbers in its place, for instance days since the first.",
    "duration": "Store numbers in its place, for instance seconds.",
    "list": "Store its entries as columns of their own.",
    "struct": "Store its fields as columns of their own.",
    "null": "It has no values at all.",
}
"""What to do about a type whose name begins so, or holds this."""


class Missing(Exception):
    """A column has a null in this row."""

    def __init__(self, column: str, row: int) -> None:
        self.column, self.row = column, row


class Column:
    """One column of all files: its type, and its categories if it is read as codes."""

    def __init__(self, name: str, dtype: np.dtype | None) -> None:
        self.name = name
        self.coded = dtype is None
        self.dtype = np.dtype(np.int32) if dtype is None else dtype
        self.categories = np.empty(0, object)
        self._places: dict[Any, int] = {}

    def order(self, values: set[Any]) -> None:
        """Have them as categories, sorted."""
        self.categories = np.array(sorted(values), dtype=object)
        self._places = {value: place for place, value in enumerate(self.categories)}

    def numbers(self, data: pa.ChunkedArray) -> np.ndarray:
        """Its numbers in a table."""
        import pyarrow as pa

        self._refuse_nulls(data)
        if pa.types.is_decimal(data.type):
            data = data.cast(pa.float64())
        parts = [self._codes(chunk) if self.coded else _array(chunk) for chunk in data.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, self.dtype), *parts])

    def values(self, data: pa.ChunkedArray) -> set[Any]:
        """Its values in a table."""
        self._refuse_nulls(data)
        return {value for chunk in data.chunks for value in _encoded(chunk).unique().to_pylist()}

    def _codes(self, chunk: pa.Array) -> np.ndarray:
        """Places among all categories, found for each value of the chunk's own dictionary."""
        encoded = _encoded(chunk)
        # A value that is no category is one that a file declares and no row has.
        own = [self._places.get(value, -1) for value in encoded.dictionary.to_pylist()]
        codes = np.array(own, np.int32)[_array(encoded.indices)]
        if len(codes) and codes.min() < 0:
            raise RuntimeError(
                f"Column '{self.name}' has values that were not there when it was opened: the file "
                "changed. Open it again, and begin anew."
            )
        return codes

    def _refuse_nulls(self, data: pa.ChunkedArray) -> None:
        start = 0
        for chunk in data.chunks:
            nulls = _encoded(chunk) if self.coded else chunk
            if nulls.null_count:
                isnull = nulls.is_null().to_numpy(zero_copy_only=False)
                raise Missing(self.name, start + int(np.argmax(isnull)))
            start += len(chunk)


def common_columns(schemas: Mapping[Path, pa.Schema], names: Sequence[str]) -> list[Column]:
    """These columns with one type for all files."""
    for path, schema in schemas.items():
        for name in names:
            if name not in schema.names:
                raise ValueError(
                    f"{path} has no column '{name}'. Its columns are {', '.join(schema.names)}."
                )
    return [_common(schemas, name) for name in names]


def _common(schemas: Mapping[Path, pa.Schema], name: str) -> Column:
    kinds = {path: _kind(schema.field(name).type, name, path) for path, schema in schemas.items()}
    numbers = {path: kind for path, kind in kinds.items() if kind is not None}
    if not numbers:
        return Column(name, None)
    if len(numbers) < len(kinds):
        strings = next(path for path, kind in kinds.items() if kind is None)
        raise TypeError(
            f"Column '{name}' has numbers in {next(iter(numbers))} and strings in {strings}. "
            "Store it with one type."
        )
    return Column(name, np.result_type(*set(numbers.values())))


def _kind(given: pa.DataType, name: str, path: Path) -> np.dtype | None:
    """The numpy type of numbers; None for strings and categories, which become codes."""
    import pyarrow as pa

    is_a = pa.types
    if is_a.is_dictionary(given) or is_a.is_string(given) or is_a.is_large_string(given):
        return None
    if is_a.is_string_view(given):
        return None
    if is_a.is_decimal(given):
        return np.dtype(float)
    if is_a.is_float16(given):
        return np.dtype(np.float32)
    if is_a.is_integer(given) or is_a.is_floating(given) or is_a.is_boolean(given):
        return np.dtype(given.to_pandas_dtype())
    instead = (say for kind, say in _INSTEAD.items() if kind in str(given))
    raise TypeError(
        f"Column '{name}' of {path} has the type {given}, which cannot be rows of numbers. "
        + next(instead, "Store numbers or strings in its place.")
    )


def _encoded(chunk: pa.Array) -> pa.DictionaryArray:
    """The chunk as indices into a dictionary without nulls."""
    import pyarrow as pa

    if isinstance(chunk, pa.DictionaryArray):
        if not chunk.dictionary.null_count:
            return chunk
        chunk = chunk.dictionary_decode()
    if pa.types.is_string_view(chunk.type):
        chunk = chunk.cast(pa.large_string())
    return chunk.dictionary_encode()


def _array(chunk: pa.Array) -> np.ndarray:
    array: np.ndarray = chunk.to_numpy(zero_copy_only=False)
    return array
