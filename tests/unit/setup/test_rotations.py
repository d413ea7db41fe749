# SPDX-License-Identifier: Apache-2.0
"""Variables that the likelihood knows through their product only, and others."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.rotations import rotations, warn_about_rotations

ROW, COLUMN = np.repeat(np.arange(5), 4), np.tile(np.arange(4), 5)
Y = np.random.default_rng(0).normal(size=20)


def by_rows():
    U, V = pm.Normal("U", 0, 1, shape=(5, 2)), pm.Normal("V", 0, 1, shape=(4, 2))
    return (U[ROW] * V[COLUMN]).sum(axis=1) + pm.Normal("a", 0, 1, shape=5)[ROW]


def by_columns():
    U, V = pm.Normal("U", 0, 1, shape=(5, 3)), pm.Normal("V", 0, 1, shape=(3, 4))
    return (U @ V)[ROW, COLUMN]


def by_itself():
    U = pm.Normal("U", 0, 1, shape=(5, 2))
    return (U @ U.T)[ROW, COLUMN]


def positive():
    """The logarithms of factors cannot be mixed."""
    U, V = pm.HalfNormal("U", 1, shape=(5, 2)), pm.HalfNormal("V", 1, shape=(4, 2))
    return (U[ROW] * V[COLUMN]).sum(axis=1)


def effects():
    U, V = pm.Normal("U", 0, 1, shape=(5, 2)), pm.Normal("V", 0, 1, shape=(4, 2))
    return U[ROW, 0] + U[ROW, 1] * Y + V[COLUMN, 0] + V[COLUMN, 1] * Y**2


def unseen():
    pm.Normal("U", 0, 1, shape=(5, 2))
    return pm.Normal("V", 0, 1, shape=(4, 2))[COLUMN].sum(axis=1)


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        (by_rows, [("U", "V", 2)]),
        (by_columns, [("U", "V", 3)]),
        (by_itself, [("U", "U", 2)]),
        (positive, []),
        (effects, []),
        (unseen, []),
    ],
)
def test_factors_that_may_be_mixed_are_found_and_no_others(mean, expected):
    with pm.Model() as model:
        pm.Normal("y", mean(), 1, observed=Y)
    problem = Problem(model, batch_size=5)
    assert rotations(problem, np.random.default_rng(0)) == expected
    if mean is by_rows:
        with pytest.warns(sg.SGCVWarning, match="U and V through a product only.* 2 factors.* 4 "):
            warn_about_rotations(problem, np.random.default_rng(0))
