# SPDX-License-Identifier: Apache-2.0
"""Products with the rows of the data, compiled: those of numpy, for few points and many."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_sgcv.engine.row_products import FEW, RowProduct, product_mode

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def products():
    """a @ rows.T, weights @ rows and the same with a factor that is not contiguous."""
    a, w, rows = pt.dmatrix("a"), pt.dmatrix("w"), pt.dmatrix("rows")
    outputs = [a @ rows.T, w @ rows, w[:, ::-1] @ rows]
    return pytensor.function([a, w, rows], outputs, mode=product_mode(stacked=True))


def test_products_with_rows_are_replaced(products):
    kinds = [n.op.transposed for n in products.maker.fgraph.apply_nodes if _is_product(n)]
    assert sorted(kinds) == [False, False, True]


def _is_product(node) -> bool:
    return isinstance(node.op, RowProduct)


@pytest.mark.parametrize("m", [1, 2, 3, FEW, FEW + 1, 9])
@pytest.mark.parametrize("n", [1, 3, 4, 7, 50])
@pytest.mark.parametrize("d", [1, 5])
def test_row_products_are_those_of_numpy(products, m, n, d):
    a, w, rows = RNG.normal(size=(m, d)), RNG.normal(size=(m, n)), RNG.normal(size=(n, d))
    expected = a @ rows.T, w @ rows, w[:, ::-1] @ rows
    for got, right in zip(products(a, w, rows), expected, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-12, atol=1e-12)
