# SPDX-License-Identifier: Apache-2.0
"""Bounded functions in Stein's identity: exact where it can be said, and deaf to outliers."""

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from pymc_sgcv.results.bounded import local_ratios
from tests.unit.results.test_halfstep import autoregressive


def quantiles_of(distribution, n=20_001):
    """Draws without chance: the distribution's own quantiles, in a random order."""
    x = distribution.ppf((np.arange(n) + 0.5) / n)
    return np.random.default_rng(0).permutation(x)[:, None]


@pytest.mark.parametrize("scale", [0.8, 1.0, 1.3])
def test_ratio_of_a_normal_is_that_of_its_variance(scale):
    x = quantiles_of(norm(0, scale))
    ratio, error = local_ratios(x, -x, 1)
    np.testing.assert_allclose(ratio, scale**2, rtol=2e-3)
    assert np.all(error > 0)


def test_ratio_of_the_right_gradients_is_one_whatever_the_tails():
    x = quantiles_of(student(3))
    np.testing.assert_allclose(local_ratios(x, -4 * x / (3 + x**2), 1)[0], 1.0, rtol=2e-3)


def test_one_draw_far_out_changes_nothing():
    x = quantiles_of(norm(0, 1.2))
    x[17] = 1e6
    ratio, error = local_ratios(x, -x, 1)
    np.testing.assert_allclose(ratio[:2], 1.44, rtol=5e-3)
    assert np.all(error[:2] < 0.1)
    product = -x * -x  # the identity with φ = θ: one draw is all that is left of it
    assert product.max() > 0.99 * product.sum()


def test_each_tail_has_its_own_ratio():
    """A gradient twice as steep beyond 1 says that the upper tail reaches too far."""
    x = quantiles_of(norm())
    lower, upper = local_ratios(x, np.where(x > 1, -2 * x, -x), 1)[0][1:, 0]
    assert lower == pytest.approx(1.0, abs=0.01) and upper > 1.5


def test_standard_errors_are_those_of_ratios():
    """1,200 ratios of each kind: their sd is known to 2 %, and 10 % is five times that."""
    rng = np.random.default_rng(1)
    away = []
    for _ in range(60):
        x = autoregressive(rng, (4, 1000, 20)).reshape(4000, 20)
        ratio, error = local_ratios(x, -x + rng.normal(size=x.shape), 4)
        away.append((ratio - 1) / error)
    np.testing.assert_allclose(np.stack(away).std(axis=(0, 2)), 1.0, atol=0.1)
