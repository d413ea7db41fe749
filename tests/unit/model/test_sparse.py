# SPDX-License-Identifier: Apache-2.0
"""Sparse designs are read by rows, and stay sparse."""

import numpy as np
import pymc as pm
import pytensor.sparse
import pytest
import scipy.sparse

from pymc_sgcv.model.sparse import padded
from pymc_sgcv.model.start import PYTHON
from tests.reading import EXACT, check_reading

N, COLUMNS = 60, 200
RNG = np.random.default_rng(0)
y = RNG.normal(size=N)
DESIGN = scipy.sparse.random(N, COLUMNS, density=0.02, format="csr", random_state=1)


def regression(design, columns=None):
    """The same model with a sparse design and with a dense one."""
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=(COLUMNS, *(columns or ())))
        s = pm.HalfNormal("s")
        if scipy.sparse.issparse(design):
            mean = pytensor.sparse.dot(pytensor.sparse.as_sparse_variable(design), beta)
        else:
            mean = pm.math.dot(design, beta)
        pm.Normal("y", mean, s, observed=y if columns is None else np.column_stack([y, -y]))
    return model


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("columns", [None, (2,)], ids=["vector", "matrix"])
def test_the_gradient_is_that_of_the_dense_design(kind, columns):
    dense = regression(DESIGN.toarray(), columns)
    gradient = dense.compile_dlogp(mode=PYTHON)
    target = check_reading(regression(DESIGN.asformat(kind), columns), expected=gradient)
    assert EXACT == 1e-8
    (plate,) = target.plates
    widest = np.diff(DESIGN.indptr).max()
    assert {a.shape[1:] for a in plate.arrays()} >= {(widest,)}
    assert sum(a.nbytes for a in plate.arrays()) < DESIGN.toarray().nbytes / 5


def test_padding_is_exact():
    columns, values = padded(DESIGN)
    dense = np.zeros(DESIGN.shape)
    np.add.at(dense, (np.arange(N)[:, None], columns), values)
    np.testing.assert_array_equal(dense, DESIGN.toarray())
