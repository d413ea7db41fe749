# SPDX-License-Identifier: Apache-2.0
"""A model with group effects from end to end, declared centred and not, against quadrature.

y_ij ~ N(u_j, σ²), u_j ~ N(μ, τ²), μ ~ N(0, 1), τ and σ half-normal: 60 groups of 5 rows. Given τ
and σ all is Gaussian, and those two are summed over a grid.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy.stats import halfnorm, multivariate_normal

import pymc_sgcv as sg
from tests.shared import QUIET, no_warning

G, M = 60, 5
_rng = np.random.default_rng(110)
GROUP = np.tile(np.arange(G), M)
Y = 0.3 + 0.5 * _rng.normal(size=G)[GROUP] + 0.9 * _rng.normal(size=G * M)
MEANS = Y.reshape(M, G).mean(0)
WITHIN = ((Y.reshape(M, G) - MEANS) ** 2).sum()


def declared(offset):
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 1), pm.HalfNormal("tau", 1)
        if offset:
            u = pm.Deterministic("u", mu + tau * pm.Normal("z", 0, 1, shape=G))
        else:
            u = pm.Normal("u", mu, tau, shape=G)
        pm.Normal("y", u[GROUP], pm.HalfNormal("sigma", 1), observed=Y)
    return model


@pytest.fixture(scope="module")
def exact():
    """Posterior means and standard deviations by name."""
    taus, sigmas = np.linspace(0.02, 1.5, 150), np.linspace(0.7, 1.2, 60)
    logs, means, squares = [], [], []
    for tau in taus:
        for sigma in sigmas:
            v = tau**2 + sigma**2 / M  # of a group's mean around μ
            marginal = multivariate_normal(np.zeros(G), v * np.eye(G) + 1.0)
            rest = -G * (M - 1) * np.log(sigma) - WITHIN / (2 * sigma**2)
            prior = halfnorm.logpdf(tau) + halfnorm.logpdf(sigma)
            logs.append(marginal.logpdf(MEANS) + rest + prior)
            mu_variance = 1 / (1 + G / v)
            mu = mu_variance * MEANS.sum() / v
            share = tau**2 / v
            u = share * MEANS + (1 - share) * mu
            u_variance = tau**2 * (1 - share) + (1 - share) ** 2 * mu_variance
            row = np.array([mu, tau, sigma, *u])
            means.append(row)
            squares.append(row**2 + [mu_variance, 0, 0, *np.full(G, u_variance)])
    p = np.exp(np.array(logs) - max(logs))
    p /= p.sum()
    mean = p @ np.array(means)
    return mean, np.sqrt(p @ np.array(squares) - mean**2)


@pytest.fixture(scope="module")
def runs():
    """Without a warning, of divergence or else."""
    found = {}
    for offset in (False, True):
        with declared(offset), no_warning(sg.SGCVWarning):
            found[offset] = sg.sample(2000, chains=4, cores=2, random_seed=5, **QUIET)
    return found


FORM = pytest.mark.parametrize("offset", [False, True], ids=["centred", "offset"])


def moments(idata):
    """Means and deviations of μ, τ, σ and u, and the effective number of draws of each."""
    posterior = idata["posterior"]
    names = "mu", "tau", "sigma", "u"
    draws = [np.asarray(posterior[name]) for name in names]
    draws = np.concatenate([x[..., None] if x.ndim == 2 else x for x in draws], axis=-1)
    ess = [float(az.ess(np.ascontiguousarray(draws[..., j]))) for j in range(draws.shape[-1])]
    return draws.mean((0, 1)), draws.std((0, 1)), np.array(ess)


@FORM
def test_means_and_deviations_are_those_of_quadrature(runs, exact, offset):
    """Within six standard errors, and the bias that the automatic step may have.

    A deviation may be 3 % off (`target_bias`), and a mean as much of a deviation.
    """
    mean, sd, ess = moments(runs[offset])
    assert ess.min() > 400
    assert (np.abs(mean - exact[0]) < exact[1] * (6 / np.sqrt(ess) + 0.03)).all()
    assert (np.abs(sd / exact[1] - 1) < 6 / np.sqrt(2 * ess) + 0.03).all()


def test_both_forms_agree(runs):
    """Within six standard errors of their difference."""
    (mean, sd, ess), (other, _, ess_other) = moments(runs[False]), moments(runs[True])
    error = np.sqrt(1 / ess + 1 / ess_other)
    assert (np.abs(mean - other) < 6 * sd * error).all()


@FORM
def test_the_run_passes_its_own_checks(runs, offset):
    """Identities of Stein among them, which hold for θ and its recorded gradient."""
    checks = sg.diagnose(runs[offset])
    assert checks["ok"].all(), checks


@FORM
def test_zero_variance_estimates_are_right(runs, exact, offset):
    """The mean of μ, within six standard errors of the plain estimate."""
    better = sg.zv(runs[offset], var_names="mu")
    _, sd, ess = moments(runs[offset])
    found = float(np.asarray(better["zv_posterior"]["mu"]).mean())
    assert abs(found - exact[0][0]) < 6 * sd[0] / np.sqrt(ess[0]) + 0.03 * sd[0]


def test_without_reparametrization_chains_move_in_the_users_parameters():
    with declared(offset=True):
        step = sg.SGLDCV(reparametrize=False, progressbar=False)
        plain = sg.sample(20, step=step, chains=1, tune=5, random_seed=1, **QUIET)
    assert step.problem.change is None and step.plan.center.degree is None
    assert step.plan.method.degree is None
    np.testing.assert_array_equal(step.plan.center.position, step.plan.center.theta)
    assert np.isfinite(np.asarray(plain["posterior"]["u"])).all()
