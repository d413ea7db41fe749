# SPDX-License-Identifier: Apache-2.0
"""Zero-variance post-processing of real runs on a Gaussian posterior (Theorem 2 of the paper).

On a Gaussian posterior the gradient is linear in θ, so order 1 leaves only the gradient's noise.
Its variance over the gradient's is about d/n with the control variate and N/n without.
"""

import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from tests.shared import QUIET

N = 20_000
RNG = np.random.default_rng(2)
X = RNG.normal(size=(N, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -0.4], [0.0, 0.0, 2.0]])
Y = X @ np.array([0.3, -0.2, 0.1]) + RNG.normal(size=N)
COVARIANCE = np.linalg.inv(X.T @ X + np.eye(3))
MEAN, SD = COVARIANCE @ X.T @ Y, np.sqrt(np.diag(COVARIANCE))


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        x, y = pm.Minibatch(X, Y, batch_size=200)
        beta = pm.Normal("beta", 0, 1, shape=3)
        pm.Deterministic("contrast", beta[0] - beta[1])
        pm.Normal("y", x @ beta, 1.0, observed=y, total_size=N)
    return model


def sample(model, method, draws=1000, **kwargs):
    with model:
        return pm.sample(
            draws,
            tune=50,
            step=method(progressbar=False, **kwargs),
            chains=2,
            cores=1,
            random_seed=8,
            **QUIET,
        )


@pytest.fixture(scope="module")
def full(model):
    """All rows in every batch: the exact gradient."""
    return sample(model, sg.SGLD, 200, batch_size=N, step_size=0.4, thin=1)


@pytest.fixture(scope="module")
def sgldcv(model):
    return sample(model, sg.SGLDCV)


@pytest.fixture(scope="module")
def sgld(model):
    """A step of 0.002 in whitened units: gradient noise adds 20 % to the variance, not more."""
    given = {"step_size": 0.002, "preconditioner": COVARIANCE, "batch_size": 50, "thin": 300}
    return sample(model, sg.SGLD, **given)


def test_with_full_gradients_order_one_leaves_no_variance(full):
    corrected = sg.zv(full)["zv_posterior"]
    for name, mean in (("beta", MEAN), ("contrast", MEAN[0] - MEAN[1])):
        draws = corrected[name].values
        spread = full["posterior"][name].values.std((0, 1))
        assert (draws.std((0, 1)) < 1e-7 * spread).all()
        assert (np.abs(draws.mean((0, 1)) - mean) < 1e-6 * spread).all()


def test_with_full_gradients_order_two_leaves_second_moments_no_variance(full):
    squares = {"square": lambda posterior: posterior["beta"] ** 2}
    corrected = sg.zv(full, [], squares, order=2)["zv_posterior"]["square"].values
    np.testing.assert_allclose(corrected.mean((0, 1)), MEAN**2 + SD**2, rtol=1e-8)
    assert (corrected.std((0, 1)) < 1e-6 * (full["posterior"]["beta"].values ** 2).std()).all()


def test_the_gradients_of_sgldcv_reduce_the_variance_clearly(sgldcv):
    """Expected: a factor of about n/d = 70 for every parameter, found: at least 3."""
    table = sg.zv_summary(sgldcv)
    assert len(table) == 4
    assert (table["variance_ratio"] > 3).all(), table


def test_the_corrected_mean_of_sgldcv_is_the_exact_one(sgldcv):
    """Within 5 errors plus 1 % of a standard deviation, which one run in 10⁵ would exceed.

    The mean of gradients at a finite step is not exactly zero: hence the one per cent.
    """
    table = sg.zv_summary(sgldcv, ["beta"])
    assert (table["mcse_zv"] < 0.6 * table["mcse"]).all()
    assert (np.abs(table["mean_zv"] - MEAN) < 5 * table["mcse_zv"] + 0.01 * SD).all()


def test_the_gradients_of_plain_sgld_hardly_reduce_it_at_large_n(sgld, sgldcv):
    """Theorem 2: the reduction fades with N for SGLD. Expected here: 1 + n/N = 1.0025."""
    plain, control = sg.zv_summary(sgld), sg.zv_summary(sgldcv)
    assert (plain["variance_ratio"] < 1.5).all(), plain
    assert (control["variance_ratio"] > 3 * plain["variance_ratio"]).all()


def test_plain_sgld_still_has_the_right_mean(sgld):
    """Within 5 Monte Carlo errors: one run in 10⁵ would exceed it."""
    table = sg.zv_summary(sgld, ["beta"])
    assert (np.abs(table["mean"] - MEAN) < 5 * table["mcse"]).all()
    assert (np.abs(table["sd"] / (SD * np.sqrt(1.2)) - 1) < 0.15).all(), (table, SD)
