# SPDX-License-Identifier: Apache-2.0
"""What is no sum over rows is refused, and the reason is right."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from tests.reading import read

N = 40
rng = np.random.default_rng(0)
x, y = rng.normal(size=(2, N))


def autoregression():
    pm.AR("y", pm.Normal("rho", 0, 0.5, shape=2), init_dist=pm.Normal.dist(), observed=y)


def garch():
    a, b = pm.Uniform("a", 0, 0.4), pm.Uniform("b", 0, 0.5)
    pm.GARCH11("y", omega=1.0, alpha_1=a, beta_1=b, initial_vol=1.0, observed=y)


def observed_walk():
    pm.GaussianRandomWalk("y", sigma=pm.HalfNormal("s"), init_dist=pm.Normal.dist(), observed=y)


def latent_process():
    f = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, 1.0)).prior("f", X=x[:, None])
    pm.Normal("y", f, 1, observed=y)


def marginal_process():
    gp = pm.gp.Marginal(cov_func=pm.HalfNormal("e") * pm.gp.cov.ExpQuad(1, 1.0))
    gp.marginal_likelihood("y", X=x[:, None], y=y, sigma=1.0)


def summed_walk():
    pm.Normal("y", pt.cumsum(pm.Normal("z", shape=N)), 1, observed=y)


def neighbours():
    W = np.zeros((N, N), int)
    W[np.arange(N - 1), np.arange(1, N)] = W[np.arange(1, N), np.arange(N - 1)] = 1
    pm.CAR("y", pm.Normal("b") * x, W, alpha=0.5, tau=pm.Gamma("t", 2, 2), observed=y)


def carried_over():
    keep = pm.Beta("keep", 1, 1)
    start, data = pt.as_tensor(np.float64(0)), pt.as_tensor(x)
    found = pytensor.scan(lambda x, before, k: x + k * before, [data], [start], [keep])
    pm.Normal("y", found[0] if isinstance(found, list | tuple) else found, 1, observed=y)


def rows_last():
    b = pm.Normal("b", shape=2)
    pm.Normal("y", b[:, None] * x, 1, observed=np.stack([y, y]))


REASONS = {
    autoregression: "one time series (an autoregression): every row depends on those before it",
    garch: "one time series (GARCH): every row depends on those before it",
    observed_walk: "one time series (a random walk): every row depends on those before it",
    latent_process: "'f_rotated_': one value for every row, of which a row needs more than its own",
    marginal_process: "one draw of a distribution of all 40 rows together (MvNormal)",
    summed_walk: "'z': one value for every row, of which a row needs more than its own",
    neighbours: "one draw of a distribution of all 40 rows together (CAR)",
    carried_over: "A loop (scan) computes them",
    rows_last: "its shape is (2, 40), and they have to be along its first axis",
}


@pytest.mark.filterwarnings("ignore:Scan return signature")
@pytest.mark.parametrize("declare", REASONS, ids=lambda declare: declare.__name__)
def test_the_reason_is_right(declare):
    with pm.Model() as model:
        declare()
    with pytest.raises(ValueError) as error:
        read(model)
    assert REASONS[declare] in str(error.value)


def test_several_series_are_rows():
    """One series for every row: these are independent of each other."""
    with pm.Model() as model:
        rho = pm.Normal("rho", 0, 0.5, shape=1)
        walk = pm.Normal.dist()
        pm.AR("y", rho, init_dist=walk, observed=rng.normal(size=(N, 5)))
    (plate,) = read(model).plates
    assert plate.n_rows == N
