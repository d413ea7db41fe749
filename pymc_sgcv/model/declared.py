# SPDX-License-Identifier: Apache-2.0
"""`Minibatch`: rows of any source, declared as ``pm.Minibatch`` declares arrays in memory.

PyMC gets a `Head`, some rows in memory, so that the model is a PyMC model like any other; the head
knows the `Source` that it is from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.model.graph import value_of
from pymc_sgcv.sources.base import Source, as_source, same_length

FIRST_BATCH = 500
"""The minibatch from which the automatic batch size starts."""
_HEAD_ROWS = 10_000
_SPREAD_OVER = 32
"""Partitions that a head is read from, where rows cannot be read one by one."""
_PLACES = 50_000
"""As many rows are read one by one, more of them in runs."""


class Head(np.ndarray):
    """Some rows of a source, as an array that knows it; `automatic` if the batch size is ours."""

    source: Source | None = None
    automatic: bool = False

    def __array_finalize__(self, other: object) -> None:
        """Slices and copies are arrays like any other: they stand for no source."""

    def __array_wrap__(
        self, array: np.ndarray, context: object = None, return_scalar: bool = False
    ) -> Any:
        """What is computed from it is an array, or a number, like any other."""
        return array[()] if return_scalar else np.asarray(array)

    def __deepcopy__(self, memo: dict[int, Any] | None) -> Head:
        return self

    def __copy__(self) -> Head:
        return self

    def __reduce__(self) -> tuple:
        return _head, (np.asarray(self), self.source, self.automatic)


def _head(rows: np.ndarray, source: Source, automatic: bool) -> Head:
    head = np.ascontiguousarray(rows).view(Head)
    head.source, head.automatic = source, automatic
    return head


def Minibatch(
    *sources: Any, batch_size: int | str = "auto"
) -> TensorVariable | tuple[TensorVariable, ...]:
    """Random rows of data of any size, wherever they are: a drop-in for ``pm.Minibatch``.

    Parameters
    ----------
    *sources
        One or more of: numpy arrays, memory maps (``np.load(..., mmap_mode="r")``, ``np.memmap``),
        Zarr arrays, `parquet` columns, Dask arrays and dataframe columns, `generated` rows. All
        with the same number of rows.
    batch_size
        Rows of a minibatch; ``"auto"`` leaves it to the step method.

    Returns
    -------
    TensorVariable or tuple of TensorVariable
        One for each source, to be used like those of ``pm.Minibatch``. Give the likelihood
        ``total_size=len(source)``.

    Notes
    -----
    PyMC itself sees some rows of them in memory: prior predictive draws, ``pm.fit`` and graphviz
    work with these. This package reads all of them, two or three times.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_sgcv as sg
    >>> rng = np.random.default_rng(1)
    >>> x, y = rng.normal(size=(1000, 2)), rng.normal(size=1000)
    >>> with pm.Model() as model:
    ...     xb, yb = sg.Minibatch(x, y)
    ...     beta = pm.Normal("beta", 0, 1, shape=2)
    ...     obs = pm.Normal("y", xb @ beta, 1, observed=yb, total_size=len(y))
    >>> xb.type.shape
    (500, 2)
    """
    if not sources:
        raise TypeError("Minibatch needs at least one array, memory map or other source of rows.")
    automatic = isinstance(batch_size, str) and batch_size == "auto"
    if not automatic and (isinstance(batch_size, bool) or not isinstance(batch_size, int)):
        raise TypeError(f'batch_size must be a whole number of rows or "auto", not {batch_size!r}.')
    found = [as_source(source) for source in sources]
    n_rows = same_length(found)
    if not automatic and not 1 <= int(batch_size) <= n_rows:
        raise ValueError(f"batch_size must be between 1 and the {n_rows} rows, not {batch_size}.")
    n = min(FIRST_BATCH, n_rows) if automatic else int(batch_size)
    rows = some_rows(found, max(_HEAD_ROWS, n))
    heads = [
        _head(array.astype(model_type(array)), source, automatic)
        for array, source in zip(rows, found, strict=True)
    ]
    return pm.Minibatch(*heads, batch_size=n)


def model_type(rows: np.ndarray) -> np.dtype:
    """The type that rows have in a model: PyMC observes no others of minibatches.

    Matrices of float32 stay as they are: those are predictors, and the most of the data.
    """
    if rows.dtype.kind in "iub":
        return np.dtype(np.int32)
    return rows.dtype if rows.ndim > 1 else np.dtype(np.float64)


def some_rows(sources: Sequence[Source], k: int, seed: int = 0) -> list[np.ndarray]:
    """About k rows from all over the data: single ones, short runs, or parts of a few partitions.

    Of a memory map every row may be a page to be read, so that many rows come in runs.
    """
    n_rows = sources[0].n_rows
    if k >= n_rows:
        return [source.read(0, n_rows) for source in sources]
    rng = np.random.default_rng(seed)
    if all(source.scattered for source in sources):
        run = -(-k // _PLACES)
        starts = rng.integers(0, n_rows - run + 1, k // run)
        index = np.unique(starts[:, None] + np.arange(run))
        return [source.take(index) for source in sources]
    bounds = np.unique(np.concatenate([source.bounds() for source in sources]))
    parts = np.arange(len(bounds) - 1)
    if len(parts) > _SPREAD_OVER:
        parts = np.sort(rng.choice(parts, _SPREAD_OVER, replace=False))
    each = -(-k // len(parts))
    picked = []
    for part in parts:
        start, stop = int(bounds[part]), int(bounds[part + 1])
        stop = min(stop, start + max(each, (1 << 20) // _row_bytes(sources)))
        index = np.sort(rng.choice(stop - start, min(each, stop - start), replace=False))
        picked.append([source.read(start, stop)[index] for source in sources])
    return [np.concatenate(arrays) for arrays in zip(*picked, strict=True)]


def _row_bytes(sources: Sequence[Source]) -> int:
    return max(1, sum(source.nbytes // source.n_rows for source in sources))


def head_of(variable: Variable) -> Head | None:
    """The head that a variable of the model holds, if it is one."""
    data = None
    if isinstance(variable, Constant):
        data = variable.data
    elif isinstance(variable, SharedVariable):
        data = variable.get_value(borrow=True)
    return data if isinstance(data, Head) and data.source is not None else None


def source_of(variable: Variable) -> Source:
    """All rows of a data variable, wherever they are."""
    head = head_of(variable)
    if head is not None:
        assert head.source is not None
        return head.source
    return as_source(value_of(variable), variable.name)


def length_of(variable: Variable) -> int:
    """How many rows a data variable has."""
    head = head_of(variable)
    return len(value_of(variable)) if head is None or head.source is None else head.source.n_rows
