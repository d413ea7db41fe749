# SPDX-License-Identifier: Apache-2.0
"""Regressions on hundreds of correlated predictors get a dense preconditioner."""

import numpy as np
import pymc as pm
import pytest
from scipy.linalg import eigh

import pymc_sgcv as sg
from pymc_sgcv.kernel.preconditioners import COMPLETE_LIMIT

D, ROWS = COMPLETE_LIMIT + 5, 6000


@pytest.fixture(scope="module")
def regression():
    """A conjugate model: the posterior's mean and covariance, and the model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, D)) + rng.normal(size=(ROWS, 1))
    y = X @ rng.normal(size=D) / np.sqrt(D) + rng.normal(size=ROWS)
    covariance = np.linalg.inv(X.T @ X + np.eye(D))
    with pm.Model() as model:
        pm.Normal("y", X @ pm.Normal("beta", 0, 1, shape=D), 1.0, observed=y)
    return model, covariance @ X.T @ y, covariance


def test_it_is_dense_and_right(regression):
    model, mean, covariance = regression
    with model:
        step = sg.SGLDCV(progressbar=False)
        idata = sg.sample(500, step=step, chains=2, random_seed=1, progressbar=False)
    assert step.plan.center.factor.name == "dense"
    # of all rows or of twelve a parameter: eigenvalues off by less than a half (Marchenko-Pastur)
    F = np.asarray(step.plan.center.factor)
    found = eigh(F @ F.T, covariance, eigvals_only=True)
    assert 0.4 < found.min() and found.max() < 2.5
    draws = idata["posterior"]["beta"].values.reshape(-1, D)
    sd = np.sqrt(np.diag(covariance))
    # 1,000 draws, 400 of them effective at least: 5 standard errors
    assert np.abs((draws.mean(0) - mean) / sd).max() < 5 / np.sqrt(400)
    ratios = draws.std(0) / sd
    assert np.abs(ratios - 1).max() < 5 / np.sqrt(2 * 400)
    assert abs(ratios.mean() - 1) < 0.03
