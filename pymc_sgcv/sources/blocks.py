# SPDX-License-Identifier: Apache-2.0
"""Rows that a function makes, block by block: simulations of any size, without a disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from pymc_sgcv.sources.base import numbers
from pymc_sgcv.sources.partitions import Kept, Partitioned

Blocks: TypeAlias = Callable[[int], "np.ndarray | tuple[np.ndarray, ...]"]


def generated(
    function: Blocks, n_rows: int, block_rows: int, name: str | None = None
) -> GeneratedSource | tuple[GeneratedSource, ...]:
    """Rows as a function of the number of a block.

    Parameters
    ----------
    function : callable
        Takes the number of a block, from 0, and returns the rows of it: an array of `block_rows`
        rows, or a tuple of such arrays. The same number must give the same rows whenever it is
        called, from any thread. In the last block, rows beyond `n_rows` are left out.
    n_rows : int
        How many rows there are.
    block_rows : int
        How many of them are made at once.
    name : str, optional
        For messages; by default the name of the function.

    Returns
    -------
    GeneratedSource or tuple of them
        A tuple if the function returns a tuple. Their rows come from one call for each block.

    Examples
    --------
    A million rows of two predictors and an outcome, of which no more than some blocks exist at a
    time:

    >>> import numpy as np
    >>> import pymc_sgcv as sg
    >>> def rows(block):
    ...     rng = np.random.default_rng([1, block])
    ...     X = rng.normal(size=(50_000, 2))
    ...     return X, rng.random(50_000) < 1 / (1 + np.exp(-X[:, 0]))
    >>> X, y = sg.generated(rows, n_rows=1_000_000, block_rows=50_000)
    >>> X.n_rows, X.row_shape, y.dtype
    (1000000, (2,), dtype('bool'))
    """
    for what, value in ("n_rows", n_rows), ("block_rows", block_rows):
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{what} must be a positive whole number, not {value!r}.")
    label = str(name or getattr(function, "__name__", "generated rows"))
    first = function(0)
    several = isinstance(first, tuple)
    like = [_array(part, label) for part in (first if isinstance(first, tuple) else (first,))]
    if not like:
        raise ValueError(f"{label} returned no array for block 0.")
    blocks = _CheckedBlocks(function, int(n_rows), int(block_rows), like, label)
    labels = [f"{label}[{j}]" for j in range(len(like))] if several else [label]
    shared = Kept(blocks, sum(array.nbytes for array in like))
    sources = tuple(GeneratedSource(shared, blocks, j, labels[j]) for j in range(len(like)))
    return sources if several else sources[0]


class GeneratedSource(Partitioned):
    """One of the arrays that a function makes."""

    def __init__(
        self, shared: Kept[list[np.ndarray]], blocks: _CheckedBlocks, which: int, name: str
    ) -> None:
        edges = np.arange(0, blocks.n_rows, blocks.block_rows)
        bounds = np.append(edges, blocks.n_rows)
        super().__init__(name, bounds, blocks.row_shapes[which], blocks.dtypes[which])
        self._shared, self._which, self._block_rows = shared, which, blocks.block_rows

    def _partition(self, number: int) -> np.ndarray:
        return self._shared(number)[self._which]

    def partitions(self, first: int, stop: int) -> np.ndarray:
        """The rows of these blocks."""
        return np.concatenate([self._partition(number) for number in range(first, stop)])

    def forget(self) -> None:
        """Let go of the blocks that are kept."""
        self._shared.forget()

    def where(self, row: int) -> str:
        """The block of a row, and its place there."""
        block, place = divmod(row, self._block_rows)
        return f"row {place} of block {block} of {self.name}"


class _CheckedBlocks:
    """The blocks of a function, each like the first."""

    def __init__(
        self,
        function: Blocks,
        n_rows: int,
        block_rows: int,
        like: Sequence[np.ndarray],
        label: str,
    ) -> None:
        self.function, self.n_rows, self.block_rows, self.label = (
            function,
            n_rows,
            block_rows,
            label,
        )
        self.row_shapes = [array.shape[1:] for array in like]
        self.dtypes = [numbers(array.dtype, f"Block 0 of {label}") for array in like]
        self._checked(0, like)

    def __call__(self, number: int) -> list[np.ndarray]:
        """The arrays of this block."""
        made = self.function(number)
        parts = made if isinstance(made, tuple) else (made,)
        return self._checked(number, [_array(part, self.label) for part in parts])

    def _checked(self, number: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        left = min(self.block_rows, self.n_rows - number * self.block_rows)
        if len(arrays) != len(self.dtypes):
            raise ValueError(
                f"{self.label} returned {len(arrays)} arrays for block {number}, and "
                f"{len(self.dtypes)} for block 0."
            )
        for array, row_shape, dtype in zip(arrays, self.row_shapes, self.dtypes):
            if len(array) not in (left, self.block_rows):
                raise ValueError(
                    f"{self.label} returned {len(array)} rows for block {number}, which must have "
                    f"{left}."
                )
            if array.shape[1:] != row_shape or array.dtype.newbyteorder("=") != dtype:
                raise ValueError(
                    f"{self.label} returned rows of shape {array.shape[1:]} and type {array.dtype} "
                    f"for block {number}, and of shape {row_shape} and type {dtype} for block 0."
                )
        return [
            np.ascontiguousarray(array[:left], dtype) for array, dtype in zip(arrays, self.dtypes)
        ]


def _array(part: object, label: str) -> np.ndarray:
    array = np.asarray(part)
    if array.ndim == 0:
        raise TypeError(
            f"{label} must return an array of rows, or a tuple of arrays, for the number of a "
            f"block; it returned {type(part).__name__}."
        )
    return array
