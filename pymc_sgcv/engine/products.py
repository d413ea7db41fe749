# SPDX-License-Identifier: Apache-2.0
"""Matrix products, compiled once on a machine.

PyTensor compiles its own product, loops for small matrices and calls of BLAS for large ones, anew
for every layout and every model: most of what a softmax regression was waited for. Here a product
is a call of a function that is loaded, whatever the model.
"""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
from numba import carray
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.link.numba.dispatch import basic as numba_basic
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot

from pymc_sgcv.engine.native import external, pointer

_THIN = 8
"""Products with fewer columns than this are loops; BLAS would pack their rows first."""


class Product(Op):
    """``a @ b`` of float64 matrices or vectors, at least one of them a matrix."""

    __props__ = ()

    def make_node(self, a, b):
        """The rows of a and the columns of b, where they have these."""
        a, b = pt.as_tensor(a), pt.as_tensor(b)
        return Apply(self, [a, b], [pt.tensor(dtype="float64", shape=_shape(a.type, b.type))])

    def perform(self, node, inputs, outputs):
        """The same in numpy."""
        outputs[0][0] = np.dot(*inputs)


def _shape(a, b):
    return (*a.shape[:-1], *b.shape[1:])


def _product(a_at, a_turned, b_at, b_turned, m, k, n, out_at):
    """(m, k) times (k, n); of a matrix that is turned the columns lie in memory one by one."""
    out = carray(pointer(out_at), (m, n), np.float64)
    if n < _THIN and a_turned == 0 and (b_turned == 0 or n == 1):
        _by_rows(carray(pointer(a_at), (m, k), np.float64), b_at, k, n, out)
    elif n < _THIN and a_turned == 1 and (b_turned == 0 or n == 1):
        _by_columns(carray(pointer(a_at), (k, m), np.float64), b_at, k, n, out)
    elif a_turned == 0 and b_turned == 0:
        a = carray(pointer(a_at), (m, k), np.float64)
        np.dot(a, carray(pointer(b_at), (k, n), np.float64), out)
    elif a_turned == 0:
        a = carray(pointer(a_at), (m, k), np.float64)
        np.dot(a, carray(pointer(b_at), (n, k), np.float64).T, out)
    elif b_turned == 0:
        a = carray(pointer(a_at), (k, m), np.float64).T
        np.dot(a, carray(pointer(b_at), (k, n), np.float64), out)
    else:
        a = carray(pointer(a_at), (k, m), np.float64).T
        np.dot(a, carray(pointer(b_at), (n, k), np.float64).T, out)


@numba_basic.numba_njit
def _by_rows(a, b_at, k, n, out):
    b = carray(pointer(b_at), (k, n), np.float64)
    for i in range(len(a)):
        for j in range(n):
            total = 0.0
            for p in range(k):
                total += a[i, p] * b[p, j]
            out[i, j] = total


@numba_basic.numba_njit
def _by_columns(a, b_at, k, n, out):
    b = carray(pointer(b_at), (k, n), np.float64)
    for i in range(len(out)):
        for j in range(n):
            out[i, j] = 0.0
    for p in range(k):
        for i in range(len(out)):
            for j in range(n):
                out[i, j] += a[p, i] * b[p, j]


@numba_basic.register_funcify_and_cache_key(Product)
def _numba_product(op, node, **kwargs):
    product = external(_product, 8)
    left, right = (i.type.ndim for i in node.inputs)

    @numba_basic.numba_njit
    def turned(x):
        rows, columns = x.strides
        plain = columns == x.itemsize and (rows == columns * x.shape[1] or x.shape[0] == 1)
        return not plain and rows == x.itemsize and columns == rows * x.shape[0]

    @numba_basic.numba_njit
    def matrices(a, b):
        a_turned, b_turned = turned(a), turned(b)
        x = np.ascontiguousarray(a.T if a_turned else a)
        y = np.ascontiguousarray(b.T if b_turned else b)
        m, k, n = a.shape[0], a.shape[1], b.shape[1]
        out = np.empty((m, n))
        x_at, y_at, out_at = x.ctypes.data, y.ctypes.data, out.ctypes.data
        product(x_at, np.intp(a_turned), y_at, np.intp(b_turned), m, k, n, out_at)
        return out

    @numba_basic.numba_njit
    def matrix_and_vector(a, b):
        return matrices(a, np.ascontiguousarray(b).reshape((len(b), 1)))[:, 0].copy()

    @numba_basic.numba_njit
    def vector_and_matrix(a, b):
        return matrices(b.T, np.ascontiguousarray(a).reshape((len(a), 1)))[:, 0].copy()

    chosen = {(2, 2): matrices, (2, 1): matrix_and_vector, (1, 2): vector_and_matrix}
    return chosen[left, right], f"{product.symbol} {left} {right}"


@node_rewriter([Dot, Blockwise])
def local_product(fgraph, node):
    """Replace PyTensor's products by those above."""
    op = node.op
    core = op.core_op if isinstance(op, Blockwise) else op
    if not isinstance(core, Dot) or any(v.type.dtype != "float64" for v in node.inputs):
        return None
    if isinstance(op, Blockwise):
        return [Blockwise(Product(), signature=op.signature)(*node.inputs)]
    if max(v.type.ndim for v in node.inputs) < 2:
        return None
    return [Product()(*node.inputs)]
