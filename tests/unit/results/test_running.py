# SPDX-License-Identifier: Apache-2.0
"""Running moments are those of all draws; errors by batch means are what they estimate."""

import numpy as np
import pytest

from pymc_sgcv.results.running import (
    BATCHES,
    Running,
    corrected,
    enough_for_all,
    pooled,
    slopes,
    split_r_hat,
    standard_error,
)

CHAINS, N, P, Q = 3, 1024, 3, 2
_rng = np.random.default_rng(3)
G = _rng.normal(size=(CHAINS, N, Q)) @ np.array([[1.0, 0.4], [0.0, 50.0]])
X = 1e3 + G @ _rng.normal(size=(Q, P)) + 0.1 * _rng.normal(size=(CHAINS, N, P))
ROWS = np.concatenate([X, G], axis=2)
FLAT = ROWS.reshape(-1, P + Q)
OWN = np.array([1, 0, -1])


def run(own):
    chains = [Running(P, Q, OWN, own is None) for _ in range(CHAINS)]
    for chain, rows in zip(chains, ROWS, strict=True):
        for part in np.split(rows, [1, 2, 70, 71, 900]):
            chain.add(part)
    return chains


def test_moments_are_those_of_all_draws():
    whole, products = pooled(run(None))
    np.testing.assert_allclose(whole.mean, FLAT.mean(0), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(products / len(FLAT), np.cov(FLAT.T, bias=True), rtol=1e-9)


def test_slopes_are_those_of_least_squares():
    x, g = FLAT[:, :P], FLAT[:, P:]
    fit = np.linalg.lstsq(g - g.mean(0), x - x.mean(0), rcond=None)[0]
    np.testing.assert_allclose(slopes(run(None)), fit, rtol=1e-9)
    own = [np.polyfit(g[:, k], x[:, j], 1)[0] if k >= 0 else 0.0 for j, k in enumerate(OWN)]
    np.testing.assert_allclose(slopes(run(OWN)), own, rtol=1e-9)


@pytest.mark.parametrize("own", [None, OWN], ids=["all", "own"])
def test_a_corrected_mean_is_that_of_corrected_draws(own):
    chains = run(own)
    beta, x, g = slopes(chains), FLAT[:, :P], FLAT[:, P:]
    hat = x - (g @ beta if own is None else g[:, own] * beta)
    found = corrected(chains[0], pooled(chains)[0].mean, beta)
    np.testing.assert_allclose(found, hat.mean(0), rtol=1e-13)
    means = hat.reshape(CHAINS, -1, chains[0].length, P).mean(2)
    error = np.sqrt((means.var(1, ddof=1) / means.shape[1]).mean(0) / CHAINS)
    n, p = len(FLAT), 0 if own is not None else Q
    error *= np.sqrt(n / (n - p - 1) * (n - 2) / (n - p - 2)) if p else 1.0  # as in zv_summary
    np.testing.assert_allclose(standard_error(chains, beta), error, rtol=1e-6)


def test_batches_are_joined_before_they_are_many():
    chain = run(None)[0]
    assert len(chain.batches) < BATCHES
    assert len(chain.batches) * chain.length == N
    means = ROWS[0].reshape(-1, chain.length, P + Q).mean(1)
    np.testing.assert_allclose([one.mean for one in chain.batches], means, rtol=1e-12, atol=1e-12)


def test_r_hat_is_that_of_half_chains():
    halves = X.reshape(2 * CHAINS, N // 2, P)
    within = halves.var(1, ddof=1).mean(0)
    total = within * (1 - 2 / N) + halves.mean(1).var(0, ddof=1)
    np.testing.assert_allclose(split_r_hat(run(None)), np.sqrt(total / within), rtol=1e-10)


def test_with_few_draws_for_each_slope_a_component_has_its_own_gradient_alone():
    """Least squares with a slope for every other draw would make any error look small."""
    rng, own = np.random.default_rng(1), np.arange(50)
    chains = [Running(50, 50, own, dense=True) for _ in range(2)]
    for chain in chains:
        g = rng.normal(size=(100, 50))
        chain.add(np.hstack([rng.normal(size=(100, 50)), g]))
    assert not enough_for_all(chains)
    assert slopes(chains).shape == (50,)
    for chain in chains:
        for _ in range(10):
            g = rng.normal(size=(100, 50))
            chain.add(np.hstack([rng.normal(size=(100, 50)), g]))
    assert enough_for_all(chains)
    assert slopes(chains).shape == (50, 50)
