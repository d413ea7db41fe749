# SPDX-License-Identifier: Apache-2.0
"""What can be read row by row, whatever holds the rows.

`Source` is all that the rest of the package knows about data. Another engine is another file with a
subclass and a function `open_source(thing, name)`, and a line in `_ENGINES`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module

import numpy as np

_ENGINES = {
    "builtins": "arrays",  # lists of numbers
    "dask": "dasks",
    "dask_expr": "dasks",
    "numpy": "arrays",
    "pandas": "arrays",
    "pymc_extras": "others",
    "xarray": "others",
    "zarr": "zarrs",
}
"""Which file of this folder knows the types of a package."""


class Source(ABC):
    """Rows of one array, wherever they are.

    `read`, `take` and `where` may be called from several threads at once.
    """

    name: str
    """For messages: ``X``, ``rows/*.parquet: x1, x2``, the file name of a memory map."""
    n_rows: int
    row_shape: tuple[int, ...]
    dtype: np.dtype
    resident: bool = False
    """Whether all rows are in this process's memory."""
    scattered: bool = False
    """Whether a single row is cheap to read, without its neighbours."""
    remote: bool = False
    """Whether passes go to where the rows are, by Dask."""

    @abstractmethod
    def read(self, start: int, stop: int) -> np.ndarray:
        """These rows, C-contiguous, to be read only: the array may be the source's own."""

    @abstractmethod
    def take(self, index: np.ndarray) -> np.ndarray:
        """These rows, of which the numbers increase."""

    def bounds(self) -> np.ndarray:
        """Where partitions begin, and the number of rows: increasing, from 0."""
        return np.array([0, self.n_rows])

    def where(self, row: int) -> str:
        """The place of a row, for messages."""
        return f"row {row} of {self.name}"

    def check(self) -> None:
        """Raise an error that names what changed since the source was opened."""
        return

    def forget(self) -> None:
        """Let go of rows that are kept between two calls of `read`."""
        return

    @property
    def nbytes(self) -> int:
        """Of all rows, as `read` returns them."""
        return self.n_rows * math.prod(self.row_shape) * self.dtype.itemsize

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array with all rows."""
        return (self.n_rows, *self.row_shape)

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.n_rows} × {self.row_shape} {self.dtype}>"


def as_source(thing: object, name: str | None = None) -> Source:
    """The rows of whatever this package can read."""
    if isinstance(thing, Source):
        return thing
    for kind in type(thing).__mro__:
        engine = _ENGINES.get(kind.__module__.partition(".")[0])
        if engine and kind is not object:
            found: Source = import_module(f"pymc_sgcv.sources.{engine}").open_source(thing, name)
            return found
    raise unreadable(thing, name)


def unreadable(thing: object, name: str | None, instead: str = "") -> TypeError:
    """What is said of types that no engine knows."""
    label = f"'{name}'" if name else "The data"
    return TypeError(
        f"{label} cannot be read as rows: {type(thing).__module__}.{type(thing).__qualname__} is "
        "none of NumPy arrays, memory maps, pandas Series and DataFrames, Zarr arrays, Dask arrays "
        "and dataframes, sg.parquet(...) and sg.generated(...). "
        + (instead or "Convert it to one of them.")
    )


def same_length(sources: Sequence[Source]) -> int:
    """The number of rows of all of them."""
    lengths = {source.n_rows for source in sources}
    if len(lengths) != 1:
        each = ", ".join(f"{source.name} has {source.n_rows:,}" for source in sources)
        raise ValueError(f"All data must have the same number of rows, but {each}.")
    (n_rows,) = lengths
    if n_rows == 0:
        names = ", ".join(source.name for source in sources)
        raise ValueError(f"There are no rows in {names}.")
    return n_rows


def numbers(dtype: np.dtype, what: str) -> np.dtype:
    """The type in the byte order of this machine, refused if it is not one of numbers."""
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return dtype.newbyteorder("=")
    if dtype.kind == "O":
        repair = "Convert them to numbers, for instance with np.asarray(data, dtype=float)."
    elif dtype.kind in "USTV" and dtype.names is None:
        repair = "Give codes in their place, for instance those of pandas.factorize(data)."
    elif dtype.kind in "mM":
        repair = "Give numbers in their place, for instance days since the first."
    elif dtype.names is not None:
        repair = f"Give its fields as arrays of their own: data['{dtype.names[0]}'], …"
    else:
        repair = "Convert them to float64, float32, integers or bool."
    raise TypeError(f"{what} has values of type {dtype}, which cannot be rows of numbers. {repair}")


def common_type(dtypes: Sequence[np.dtype]) -> np.dtype:
    """One type that holds the numbers of all columns: float32 only if all of them are."""
    return np.result_type(*dtypes)


def as_type(rows: np.ndarray, kind: np.dtype | str) -> np.ndarray:
    """Rows in the type that models take them in; no integer is cut off."""
    kind = np.dtype(kind)
    if kind == np.int32 and rows.dtype.kind in "iu" and rows.dtype.itemsize >= 4 and len(rows):
        limits = np.iinfo(np.int32)
        if rows.max() > limits.max or rows.min() < limits.min:
            raise ValueError(
                "Some rows hold integers beyond 32 bits, and models take 32: give them as float64."
            )
    return np.ascontiguousarray(rows, kind)
