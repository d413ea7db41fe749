# SPDX-License-Identifier: Apache-2.0
"""Posteriors that a Gaussian does not describe come out right, with nothing tuned.

Each is small enough for exact moments by quadrature over one parameter. Tolerances are five
standard errors of 4,000 draws that are worth at least 400 (another seed fails twice in a million
times a comparison, if the sampler is exact), and 5 % for what the step leaves.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg

N = 20_000
_rng = np.random.default_rng(9)


def rare_category():
    """60 rows of a category with one event among 20,000 rows; b ~ N(0, 5²)."""
    category = np.zeros(N, dtype=int)
    category[_rng.choice(N, 60, replace=False)] = 1
    y = (_rng.random(N) < 0.3).astype(int)
    y[category == 1] = 0
    y[np.flatnonzero(category)[0]] = 1
    with pm.Model() as model:
        b = pm.Normal("b", 0, 5)
        pm.Bernoulli("y", logit_p=np.log(0.3 / 0.7) + b * category, observed=y)

    def log_density(b):
        eta = np.log(0.3 / 0.7) + b
        return eta - 60 * np.logaddexp(0, eta) - b**2 / 50

    return model, log_density, np.linspace(-20, 10, 30_001)


def bounded():
    """A coefficient that must be positive and that the data would rather have negative."""
    z = _rng.normal(size=N)
    y = -0.005 * z + _rng.normal(size=N)
    with pm.Model() as model:
        pm.Normal("y", pm.HalfNormal("b", 1) * z, 1.0, observed=y)
    precision, score = z @ z, z @ y

    def log_density(b):
        return score * b - 0.5 * (precision + 1) * b**2

    return model, log_density, np.linspace(0, 0.1, 100_001)


@pytest.mark.parametrize("make", [rare_category, bounded])
@pytest.mark.parametrize("seed", [1, 2])
def test_moments_and_quantiles_are_exact(make, seed):
    model, log_density, grid = make()
    with model:
        idata = sg.sample(2000, chains=2, random_seed=seed, progressbar=False)
    draws = idata["posterior"]["b"].values
    p = np.exp(log_density(grid) - log_density(grid).max())
    p /= p.sum()
    mean = p @ grid
    sd = np.sqrt(p @ (grid - mean) ** 2)
    kurtosis = p @ (grid - mean) ** 4 / sd**4
    effective = float(np.min(az.ess(draws)))
    assert effective >= 400
    assert abs(draws.mean() - mean) < 5 * sd / np.sqrt(effective)
    error = np.sqrt((kurtosis - 1) / 4 / effective)
    assert abs(draws.std() / sd - 1) < 0.05 + 5 * error
    for q in (0.05, 0.95):
        place = np.interp(np.quantile(draws, q), grid, np.cumsum(p))
        assert abs(place - q) < 0.01 + 5 * np.sqrt(q * (1 - q) / effective)
