# SPDX-License-Identifier: Apache-2.0
"""Products of a sparse design with coefficients, with a row of the design as a row of the data.

A CSR matrix is three arrays of which none has a value per row. So its rows are padded to the length
of the longest: for every row the columns where it is not zero, and what is there. Then

    (X β)ᵢ = Σₖ valuesᵢₖ β[columnsᵢₖ],

which takes the memory and the time of the entries that there are, in minibatches and in gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pytensor.tensor as pt
import scipy.sparse
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

_PRODUCTS = "SparseDot", "StructuredDot", "TrueDot", "Dot"
"""Ops of `pytensor.sparse` that multiply a matrix from the left, by name: their places differ."""


def sparse_products(
    graphs: Sequence[Variable], stop: Sequence[Variable], n_rows: int
) -> Iterator[tuple[TensorVariable, scipy.sparse.csr_matrix, TensorVariable]]:
    """Products of designs with `n_rows` rows: the variable, the design, the coefficients."""
    for variable in ancestors(graphs, blockers=stop):
        node = variable.owner
        if node is None or type(node.op).__name__ not in _PRODUCTS or len(node.inputs) != 2:
            continue
        design, coefficients = node.inputs
        if is_sparse(design) and not is_sparse(coefficients) and design.owner is None:
            matrix = sparse_value(design)
            if matrix is not None and matrix.shape[0] == n_rows:
                yield cast(TensorVariable, variable), matrix, cast(TensorVariable, coefficients)


def is_sparse(variable: Variable) -> bool:
    """Whether a variable is a matrix of `pytensor.sparse`."""
    return type(variable.type).__name__ == "SparseTensorType"


def sparse_value(variable: Variable) -> scipy.sparse.csr_matrix | None:
    """The matrix that a variable is, if it is data."""
    if isinstance(variable, Constant):
        return scipy.sparse.csr_matrix(variable.data)
    if isinstance(variable, SharedVariable):
        return scipy.sparse.csr_matrix(variable.get_value(borrow=True))
    return None


def padded(matrix: scipy.sparse.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Columns and values of every row, filled up with zeros at column 0.

    Examples
    --------
    >>> columns, values = padded(scipy.sparse.csr_matrix([[0, 5.0, 0], [0, 0, 0], [7.0, 0, 8.0]]))
    >>> print(columns.tolist(), values.tolist())
    [[1, 0], [0, 0], [0, 2]] [[5.0, 0.0], [0.0, 0.0], [7.0, 8.0]]
    """
    counts = np.diff(matrix.indptr)
    width = max(1, int(counts.max(initial=0)))
    columns = np.zeros((matrix.shape[0], width), dtype=np.int32)
    values = np.zeros((matrix.shape[0], width))
    filled = np.arange(width) < counts[:, None]
    columns[filled], values[filled] = matrix.indices, matrix.data
    return columns, values


def product(
    columns: TensorVariable, values: TensorVariable, coefficients: TensorVariable
) -> TensorVariable:
    """The rows' products with a vector or a matrix of coefficients."""
    chosen = coefficients[columns]
    if coefficients.ndim == 2:
        values = values[:, :, None]
    return pt.sum(values * chosen, axis=1)
