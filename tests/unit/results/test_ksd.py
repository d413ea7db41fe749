# SPDX-License-Identifier: Apache-2.0
"""Kernel Stein discrepancy against a value by hand, and as a measure of known errors."""

import numpy as np
import pytest
import xarray as xr

from pymc_sgcv.results import containers
from pymc_sgcv.results.ksd import ksd, stein_discrepancy, stein_kernel

D = 4
ROOT = np.tril(np.ones((D, D))) * np.geomspace(1, 1000, D)[:, None]


def container(x, gradient):
    groups = {"posterior": x, "unconstrained_posterior": x, "gradient": gradient}
    dims = ("chain", "draw", "k")
    return containers.new_container({k: xr.Dataset({"x": (dims, v)}) for k, v in groups.items()})


def gaussian(scale=1.0, shift=0.0, noise=0.0, draws=500, seed=0, root=ROOT):
    rng = np.random.default_rng(seed)
    z = scale * rng.normal(size=(2, draws, D)) + shift
    g = -z + np.sqrt(noise) * rng.normal(size=z.shape)
    return container(z @ root.T, g @ np.linalg.inv(root))


def test_two_points_by_hand():
    # x = 0, y = 1, g = −x: k₀ = ∇ₓ∇ᵧk + ∇ₓk g(y) = (2^(−3/2) − 3·2^(−5/2)) − 2^(−3/2)
    x = np.array([[0.0], [1.0]])
    np.testing.assert_allclose(stein_discrepancy(x, -x), -3 * 2**-2.5, rtol=1e-12)


def test_kernel_on_the_diagonal_is_dimension_plus_squared_gradient():
    x, g = np.random.default_rng(0).normal(size=(2, 5, 3))
    np.testing.assert_allclose(np.diag(stein_kernel(x, g, x, g)), 3 + (g**2).sum(1))


def test_kernel_agrees_with_numerical_derivatives():
    x, y, gx, gy = np.random.default_rng(1).normal(size=(4, 3))

    def k(a, b):
        return (1 + np.sum((a - b) ** 2)) ** -0.5

    e, unit = 1e-4, np.eye(3)
    dx = [(k(x + e * u, y) - k(x - e * u, y)) / (2 * e) for u in unit]
    dy = [(k(x, y + e * u) - k(x, y - e * u)) / (2 * e) for u in unit]
    mixed = sum(
        s * t * k(x + s * e * u, y + t * e * u) / (4 * e**2)
        for u in unit
        for s in (-1, 1)
        for t in (-1, 1)
    )
    expected = mixed + dx @ gy + dy @ gx + k(x, y) * gx @ gy
    np.testing.assert_allclose(stein_kernel(x[None], gx[None], y[None], gy[None]), expected, 1e-5)


def test_blocks_of_rows_do_not_change_the_sum(monkeypatch):
    x, g = np.random.default_rng(2).normal(size=(2, 50, 3))
    whole = stein_discrepancy(x, g)
    monkeypatch.setattr("pymc_sgcv.results.ksd.ROWS", 350)
    np.testing.assert_allclose(stein_discrepancy(x, g), whole)


def test_exact_draws_are_near_zero_and_wrong_ones_are_not():
    exact = max(ksd(gaussian(seed=seed)) for seed in range(5))
    assert exact < 0.1
    assert ksd(gaussian(scale=1.3)) > 2 * exact
    assert ksd(gaussian(scale=0.7)) > 2 * exact
    assert ksd(gaussian(shift=0.5)) > 4 * exact


def test_gradient_noise_does_not_bias_the_u_statistic():
    squares = [ksd(gaussian(noise=3.0, seed=seed)) ** 2 for seed in range(8)]
    diagonal = (D + D * (1 + 3)) / 1000  # what the terms i = j would add
    assert np.mean(squares) < diagonal / 2


def test_chance_shrinks_as_one_over_the_number_of_draws():
    rng = np.random.default_rng(3)

    def spread(n):
        return np.std([stein_discrepancy(x, -x) for x in rng.normal(size=(200, n, 2))])

    np.testing.assert_allclose(spread(20) / spread(160), 8, rtol=0.35)


def test_units_of_the_parameters_do_not_matter():
    same = ksd(gaussian(scale=1.3, root=np.eye(D)))
    np.testing.assert_allclose(ksd(gaussian(scale=1.3)), same, rtol=1e-6)


def test_more_draws_than_max_draws_are_thinned_evenly():
    idata = gaussian(scale=1.3, draws=400)
    rows = np.linspace(0, 799, 200).round().astype(int)
    x, g = (containers.get_group(idata, k)["x"].values for k in ("posterior", "gradient"))
    picked = container(x.reshape(1, -1, D)[:, rows], g.reshape(1, -1, D)[:, rows])
    np.testing.assert_allclose(ksd(idata, max_draws=200), ksd(picked))


def test_bad_input_is_refused():
    x = np.ones((1, 20, 2))
    with pytest.raises(ValueError, match="same value in all draws"):
        ksd(container(x, x))
    with pytest.raises(ValueError, match="max_draws is 1"):
        ksd(gaussian(), max_draws=1)
    with pytest.raises(ValueError, match="no gradients"):
        ksd(containers.new_container({"posterior": xr.Dataset({"x": (("chain", "draw", "k"), x)})}))
