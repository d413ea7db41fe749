# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_sgcv.engine.products import Product
from pymc_sgcv.engine.row_products import product_mode


@pytest.fixture(scope="module")
def product():
    a, b = pt.dmatrix("a"), pt.dmatrix("b")
    outputs = [a @ b, a.T @ b.T, a.T @ b, a @ b.T, a @ b[:, 0], a[0] @ b, a[:, ::2] @ b[::2]]
    square = pytensor.function([a, b], outputs, mode=product_mode())
    kinds = [type(node.op) for node in square.maker.fgraph.toposort()]
    assert kinds.count(Product) == len(outputs)
    return square


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_products_are_numpys_whatever_the_layout(product, n):
    rng = np.random.default_rng(n)
    a, b = rng.normal(size=(2, n, n))
    right = [a @ b, a.T @ b.T, a.T @ b, a @ b.T, a @ b[:, 0], a[0] @ b, a[:, ::2] @ b[::2]]
    for got, expected in zip(product(a, b), right, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.fixture(scope="module")
def stacks():
    x, y, stack, other = pt.dmatrix("x"), pt.dmatrix("y"), pt.dtensor3("s"), pt.dtensor3("o")
    inputs, outputs = [x, y, stack, other], [x @ y, y.T @ x.T, stack @ other]
    return pytensor.function(inputs, outputs, mode=product_mode())


@pytest.mark.parametrize("shape", [(3, 500, 2), (500, 3, 2), (2, 5, 30), (1, 6, 1), (0, 4, 3)])
def test_products_of_thin_matrices_and_of_stacks(stacks, shape):
    m, k, n = shape
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    stack, other = rng.normal(size=(4, m, k)), rng.normal(size=(4, k, n))
    right = [a @ b, b.T @ a.T, stack @ other]
    for got, expected in zip(stacks(a, b, stack, other), right, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
