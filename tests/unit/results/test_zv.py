# SPDX-License-Identifier: Apache-2.0
"""Zero-variance control variates: exact where theory is exact, and Theorem 2 where it is not.

Draws are independent and come from the target itself, so that only `zv` is on trial. Tests with
random numbers have a fixed seed; where one compares with a theoretical value, the tolerance is
five standard errors, so a fresh seed would fail it about once in a million.
"""

import arviz as az
import numpy as np
import pytest
import xarray as xr

from pymc_sgcv.errors import SGCVWarning
from pymc_sgcv.results import containers
from pymc_sgcv.results.zv import zv, zv_summary
from tests.shared import STORE, as_recorded, from_dict

MU = np.array([30.0, -2.0, 0.5])
ROOT = np.array([[1.0, 0.0, 0.0], [0.8, 0.5, 0.0], [-0.3, 0.2, 2.0]])
SIGMA = ROOT @ ROOT.T
ROUNDING = 1e-10


def container(posterior, gradient, unconstrained=None, dims=None, coords=None):
    """Arrays (chain, draw, ...) as pm.sample leaves them, with either ArviZ generation."""
    groups = {"posterior": posterior, "sample_stats": as_recorded(gradient, unconstrained or {})}
    return from_dict(groups, dims=dims, coords=coords)


def gaussian(draws=200, chains=2, noise=0.0, seed=0):
    """Draws of N(MU, SIGMA) with its gradients, noise in units of each gradient's deviation."""
    rng = np.random.default_rng(seed)
    beta = MU + rng.normal(size=(chains, draws, 3)) @ ROOT.T
    gradient = -(beta - MU) @ np.linalg.inv(SIGMA)
    gradient += noise * gradient.std(axis=(0, 1)) * rng.normal(size=gradient.shape)
    kwargs = {"dims": {"beta": ["k"]}, "coords": {"k": ["a", "b", "c"]}}
    return container({"beta": beta}, {"beta": gradient}, {"beta": beta}, **kwargs)


def scalar(noise, draws=20_000, seed=1):
    """A standard normal whose gradients have a noise variance of ``noise``."""
    rng = np.random.default_rng(seed)
    x, xi = rng.normal(size=(2, 1, draws))
    return container({"x": x}, {"x": -x + np.sqrt(noise) * xi})


def corrected(idata, name="beta"):
    return containers.get_group(idata, "zv_posterior")[name].values


def attrs(idata):
    return containers.get_group(idata, "zv_posterior").attrs


def flat(array):
    return array.reshape(-1, array.shape[-1])


# Exactness


@pytest.mark.parametrize("method", ["auto", "lstsq", "ridge"])
@pytest.mark.parametrize("holdout", [False, True])
def test_exact_gradients_of_a_gaussian_leave_means_without_variance(method, holdout):
    draws = corrected(zv(gaussian(), method=method, holdout=holdout))
    np.testing.assert_allclose(draws, np.broadcast_to(MU, draws.shape), atol=ROUNDING)


def test_order_two_leaves_second_moments_without_variance():
    functions = {
        "square": lambda posterior: posterior.beta**2,
        "product": lambda posterior: posterior.beta[:, :, 0] * posterior.beta[:, :, 1],
    }
    idata = zv(gaussian(), functions=functions, order=2)
    square, product = corrected(idata, "square"), corrected(idata, "product")
    moments = SIGMA + np.outer(MU, MU)
    np.testing.assert_allclose(square, np.broadcast_to(np.diag(moments), square.shape), atol=1e-8)
    np.testing.assert_allclose(product, moments[0, 1], atol=1e-8)


def test_order_one_does_not_reach_second_moments():
    idata = zv(gaussian(), functions={"square": lambda p: (p.beta - MU) ** 2})
    assert (corrected(idata, "square").std(axis=(0, 1)) > 0.5 * np.diag(SIGMA)).all()


def test_coefficients_are_those_of_least_squares_with_an_intercept():
    idata = gaussian(noise=0.7)
    beta = flat(containers.get_group(idata, "posterior").beta.values)
    gradient = flat(containers.get_group(idata, "sample_stats").gradient__beta.values)
    design = np.column_stack([np.ones(len(beta)), gradient])
    slopes = np.linalg.lstsq(design, beta, rcond=None)[0][1:]
    hat = flat(corrected(zv(idata)))
    np.testing.assert_allclose(hat, beta - gradient @ slopes, atol=ROUNDING)


def test_coefficients_are_the_closed_form_with_its_minus_sign():
    idata = gaussian(noise=0.7)
    beta = flat(containers.get_group(idata, "posterior").beta.values)
    z = -flat(containers.get_group(idata, "sample_stats").gradient__beta.values) / 2
    joint = np.cov(z, beta, rowvar=False)
    a = -np.linalg.solve(joint[:3, :3], joint[:3, 3:])
    np.testing.assert_allclose(flat(corrected(zv(idata))), beta + z @ a, atol=ROUNDING)


def test_the_variance_falls_where_a_flipped_sign_would_raise_it():
    idata = gaussian(noise=0.3)
    plain = flat(containers.get_group(idata, "posterior").beta.values)
    hat = flat(corrected(zv(idata)))
    flipped = 2 * plain - hat
    assert (hat.var(axis=0) < plain.var(axis=0)).all()
    assert (flipped.var(axis=0) > plain.var(axis=0)).all()


def test_quadratic_control_variates_are_those_of_stein():
    """They are {g, 2 + 2θᵢgᵢ, θᵢgⱼ + θⱼgᵢ} for standardised θ: compare with a fit on these."""
    idata = gaussian(noise=0.5)
    theta = flat(containers.get_group(idata, "posterior").beta.values)
    sd = theta.std(axis=0)
    x = theta / sd  # that θ is centred as well changes nothing: θᵢ times gⱼ, plus a multiple of gⱼ
    g = flat(containers.get_group(idata, "sample_stats").gradient__beta.values) * sd
    i, j = np.triu_indices(3, k=1)
    c = np.hstack([g, 2 + 2 * x * g, x[:, i] * g[:, j] + x[:, j] * g[:, i]])
    design = np.column_stack([np.ones(len(c)), c])
    slopes = np.linalg.lstsq(design, theta**2)[0][1:]
    idata = zv(idata, functions={"square": lambda p: p.beta**2}, order=2)
    np.testing.assert_allclose(flat(corrected(idata, "square")), theta**2 - c @ slopes, rtol=1e-8)


def test_the_result_does_not_depend_on_the_units_of_the_parameters():
    idata, units = gaussian(noise=0.5), np.array([1e-3, 1.0, 1e4])
    beta = containers.get_group(idata, "posterior").beta.values
    g = containers.get_group(idata, "sample_stats").gradient__beta.values
    other = container({"beta": beta * units}, {"beta": g / units}, {"beta": beta * units})
    for method in ("lstsq", "ridge", "block"):
        hats = [corrected(zv(data, order=2, method=method)) for data in (idata, other)]
        np.testing.assert_allclose(hats[1] / units, hats[0], rtol=1e-8)


def test_the_corrected_mean_is_the_truth_where_the_plain_one_has_monte_carlo_error():
    idata = gaussian(draws=50)
    table = zv_summary(zv(idata))
    assert (np.abs(table["mean"] - MU) > 1e-3).all()
    np.testing.assert_allclose(table["mean_zv"], MU, atol=ROUNDING)


def test_transformed_variables_use_the_gradient_on_the_unconstrained_scale():
    """log σ ~ N(m, s²): then σ itself is no linear function, but log σ is."""
    x = np.random.default_rng(5).normal(0.3, 0.2, size=(2, 300))
    idata = container({"sigma": np.exp(x)}, {"sigma_log__": -(x - 0.3) / 0.04})
    idata = zv(idata, functions={"log_sigma": lambda p: np.log(p.sigma)})
    np.testing.assert_allclose(corrected(idata, "log_sigma"), 0.3, atol=ROUNDING)
    assert corrected(idata, "sigma").var() < 0.1 * np.exp(x).var()


# Noisy gradients: Theorem 2


@pytest.mark.parametrize("noise", [0.1, 1.0, 10.0])
def test_noise_of_variance_share_s_leaves_the_share_s_over_one_plus_s(noise):
    idata = scalar(noise)
    plain = containers.get_group(idata, "posterior").x.values
    remaining = corrected(zv(idata), "x").var() / plain.var()
    # 1 − R²; the sample R² has a standard error of at most 2 / √n.
    assert abs(remaining - noise / (1 + noise)) < 5 * 2 / np.sqrt(plain.size)


def remaining_share(rows, batch, control_variate, draws=4000):
    """Variance left by ZV for yᵢ ~ N(aᵢθ, 1), with gradients from real minibatches."""
    rng = np.random.default_rng(rows)
    a = rng.uniform(0.5, 1.5, size=rows)
    y = 2 * a + rng.normal(size=rows)
    precision = a @ a
    mode = a @ y / precision
    theta = mode + rng.normal(size=draws) / np.sqrt(precision)
    pick = rng.integers(rows, size=(draws, batch))
    per_row = a[pick] * (y[pick] - a[pick] * theta[:, None])
    if control_variate:  # the full gradient at the mode is zero
        per_row -= a[pick] * (y[pick] - a[pick] * mode)
    gradient = rows * per_row.mean(axis=1)
    idata = container({"theta": theta[None]}, {"theta": gradient[None]})
    return corrected(zv(idata), "theta").var() / theta.var()


def test_the_reduction_fades_with_the_data_for_sgld_but_not_for_sgld_cv():
    """Noise shares: about N/n · const. for SGLD, Var(a²) / (n E(a²)²) for SGLD-CV."""
    small, large = 100, 10_000
    assert remaining_share(small, 10, control_variate=False) < 0.95
    assert remaining_share(large, 10, control_variate=False) > 0.99
    square = np.random.default_rng(0).uniform(0.5, 1.5, size=10**6) ** 2
    noise = square.var() / (10 * square.mean() ** 2)
    for rows in (small, large):
        share = remaining_share(rows, 10, control_variate=True)
        assert share == pytest.approx(noise / (1 + noise), rel=0.25)


# Choice of the method


def independent(d, draws, noise=0.1, seed=2):
    rng = np.random.default_rng(seed)
    u, xi = rng.normal(size=(2, 2, draws // 2, d))
    return container({"u": u}, {"u": -u + np.sqrt(noise) * xi}, {"u": u})


def test_least_squares_is_chosen_with_ten_draws_per_coefficient():
    assert attrs(zv(gaussian()))["zv_method"] == "lstsq"
    assert attrs(zv(gaussian()))["zv_coefficients"] == 3
    assert attrs(zv(gaussian(), order=2))["zv_coefficients"] == 9
    assert attrs(zv(gaussian(), order=2))["zv_control_variates"] == "quadratic"


def test_correlated_draws_count_for_fewer():
    rng = np.random.default_rng(4)
    walk = np.cumsum(rng.normal(size=(2, 200, 3)), axis=1)
    idata = container({"beta": walk}, {"beta": -walk})
    assert attrs(zv(idata))["zv_effective_draws"] < 20
    assert attrs(zv(idata))["zv_method"] == "ridge"


def test_ridge_is_chosen_with_few_draws_and_still_reduces_the_variance():
    idata = zv(independent(d=60, draws=200))
    assert attrs(idata)["zv_method"] == "ridge"
    assert attrs(idata)["zv_holdout"] == 1
    plain = containers.get_group(idata, "posterior").u.values
    share = corrected(idata, "u").var(axis=(0, 1)) / plain.var(axis=(0, 1))
    assert share.mean() < 0.2  # at best 0.1 / 1.1


def test_ridge_with_more_coefficients_than_draws_does_no_harm():
    idata = zv(independent(d=300, draws=100, noise=100.0))
    plain = containers.get_group(idata, "posterior").u.values
    assert (corrected(idata, "u").var(axis=(0, 1)) < 1.1 * plain.var(axis=(0, 1))).all()


def test_ridge_reports_an_honest_error_where_least_squares_would_not():
    """80 coefficients on 100 draws of pure noise: least squares seems to remove most variance."""
    rng = np.random.default_rng(6)
    idata = container({"y": rng.normal(size=(1, 100))}, {"u": rng.normal(size=(1, 100, 80))})
    assert attrs(zv(idata))["zv_method"] == "ridge"
    assert zv_summary(zv(idata)).loc["y", "variance_ratio"] < 1.3
    naive = corrected(zv(idata, method="lstsq"), "y")
    assert naive.var() < 0.5
    assert zv_summary(zv(idata, method="lstsq")).loc["y", "variance_ratio"] < 1


@pytest.mark.parametrize("order", [1, 2])
def test_two_hundred_thousand_parameters_are_done_in_blocks(order):
    rng = np.random.default_rng(7)
    u = rng.normal(size=(2, 100, 200_000))
    idata = zv(container({"u": u}, {"u": -u}, {"u": u} if order == 2 else None), order=order)
    assert attrs(idata)["zv_method"] == "block"
    assert attrs(idata)["zv_coefficients"] == order
    np.testing.assert_allclose(corrected(idata, "u"), 0, atol=ROUNDING)


def test_large_dimensions_keep_the_squares_and_leave_out_the_products():
    idata = independent(d=100, draws=4000, noise=0.0)
    done = zv(idata, functions={"square": lambda p: p.u**2}, order=2)
    assert attrs(done)["zv_control_variates"] == "squares"
    np.testing.assert_allclose(corrected(done, "square"), 1, atol=1e-8)


@pytest.mark.parametrize("holdout", [False, True])
def test_block_of_order_two_is_least_squares_on_the_components_own_variates(holdout):
    idata = gaussian(noise=0.5)
    theta = flat(containers.get_group(idata, "posterior").beta.values)
    g = flat(containers.get_group(idata, "sample_stats").gradient__beta.values)
    hat = flat(corrected(zv(idata, method="block", order=2, holdout=holdout)))
    x = theta - theta.mean(axis=0)
    place = np.tile(np.arange(200), 2)
    folds = [place // 40 == k for k in range(5)] if holdout else [np.full(400, True)]
    for k in range(3):
        c = np.column_stack([g[:, k], 1 + x[:, k] * g[:, k]])
        for test in folds:
            train = ~test if holdout else test
            design = np.column_stack([np.ones(train.sum()), c[train]])
            slopes = np.linalg.lstsq(design, theta[train, k])[0][1:]
            np.testing.assert_allclose(hat[test, k], theta[test, k] - c[test] @ slopes)


def test_block_corrects_functions_with_the_small_variables_and_warns_without_any():
    rng = np.random.default_rng(8)
    mu, u = rng.normal(size=(2, 100)), rng.normal(size=(2, 100, 50))
    functions = {"shifted": lambda p: p.mu + 3}
    idata = container({"mu": mu, "u": u}, {"mu": -mu, "u": -u})
    done = zv(idata, functions=functions, method="block")
    np.testing.assert_allclose(corrected(done, "shifted"), 3, atol=ROUNDING)
    idata = container({"mu": mu, "u": u}, {"u": -u})
    with pytest.warns(SGCVWarning, match="'mu' is left as it is.*method='ridge'"):
        done = zv(idata, var_names="mu", method="block")
    np.testing.assert_array_equal(corrected(done, "mu"), mu)


# Cross-fitting


def test_holdout_takes_the_coefficients_from_the_other_folds():
    idata = gaussian(noise=0.7)
    beta = containers.get_group(idata, "posterior").beta.values
    g = containers.get_group(idata, "sample_stats").gradient__beta.values
    done = zv(idata, holdout=True)
    assert attrs(done)["zv_holdout"] == 1
    inside = np.arange(200) < 40
    train_g, train_beta = flat(g[:, ~inside]), flat(beta[:, ~inside])
    design = np.column_stack([np.ones(len(train_g)), train_g])
    slopes = np.linalg.lstsq(design, train_beta)[0][1:]
    np.testing.assert_allclose(corrected(done)[:, inside], (beta - g @ slopes)[:, inside])


def test_holdout_is_unbiased_where_the_plain_fit_is_not():
    """The mean of x² for x ~ N(0, 1), from 20 draws; every component is one repetition.

    Slope and mean gradient come from the same draws, so the plain fit is off by about −2/20. The
    standard error over 20,000 repetitions is 0.003: each claim fails with probability < 1e-5.
    """
    x = np.random.default_rng(9).normal(size=(1, 20, 20_000))
    idata = container({"square": x**2}, {"square": -x})
    plain, crossed = (
        corrected(zv(idata, method="block", holdout=holdout), "square").mean()
        for holdout in (False, True)
    )
    assert plain < 1 - 0.05
    assert abs(crossed - 1) < 0.015


# What comes back


def test_names_dims_and_coords_are_those_of_the_posterior():
    idata = gaussian()
    posterior = containers.get_group(idata, "posterior")
    after = containers.get_group(zv(idata), "zv_posterior")
    assert after.beta.dims == posterior.beta.dims
    assert set(after.coords) == set(posterior.coords) == {"chain", "draw", "k"}
    for name, coord in posterior.coords.items():
        xr.testing.assert_identical(after[name].variable, coord.variable)


def test_the_input_is_not_changed_and_the_gradient_groups_are_kept():
    idata = gaussian()
    names = containers.group_names(idata)
    before = {name: containers.get_group(idata, name).copy(deep=True) for name in names}
    groups = containers.group_names(zv(idata))
    assert {"gradient", "unconstrained_posterior", "zv_posterior", "posterior"} <= set(groups)
    assert containers.group_names(idata) == names
    for name, dataset in before.items():
        xr.testing.assert_identical(containers.get_group(idata, name), dataset)


def test_zv_again_replaces_its_group():
    once = zv(gaussian(), functions={"f": lambda p: p.beta.sum("k")})
    twice = zv(once, order=2)
    groups = containers.group_names(twice)
    assert groups.count("zv_posterior") == 1
    assert "zv_posterior_functions" not in groups
    assert attrs(twice)["zv_order"] == 2


def test_var_names_and_functions_select_what_is_corrected():
    idata = zv(gaussian(), [], {"total": lambda p: p.beta.sum("k")})
    assert list(containers.get_group(idata, "zv_posterior").data_vars) == ["total"]
    np.testing.assert_allclose(corrected(idata, "total"), MU.sum(), atol=ROUNDING)


def test_whole_and_boolean_variables_are_corrected_as_numbers():
    x = np.random.default_rng(10).normal(size=(2, 500))
    idata = container({"x": x, "positive": x > 0, "whole": np.rint(x).astype(int)}, {"x": -x})
    done = zv(idata)
    for name in ("positive", "whole"):
        plain = containers.get_group(idata, "posterior")[name].values.astype(float)
        assert corrected(done, name).dtype == float
        assert corrected(done, name).var() < 0.5 * plain.var()


def test_warmup_can_be_corrected_too():
    idata = gaussian()
    groups = {f"warmup_{n}": containers.get_group(idata, n) for n in ("posterior", "sample_stats")}
    done = zv(containers.with_groups(idata, groups), group="warmup_posterior")
    values = containers.get_group(done, "zv_warmup_posterior").beta.values
    np.testing.assert_allclose(values, np.broadcast_to(MU, values.shape), atol=ROUNDING)


@STORE
@pytest.mark.parametrize("method", ["lstsq", "ridge", "block"])
def test_the_result_survives_a_file(store, method, tmp_path):
    idata = zv(gaussian(draws=20), functions={"f": lambda p: p.beta**2}, method=method)
    back = store(idata, str(tmp_path / "draws"))
    for name in ("zv_posterior", "zv_posterior_functions", "gradient"):
        xr.testing.assert_equal(containers.get_group(back, name), containers.get_group(idata, name))
    assert attrs(back)["zv_method"] == method
    assert attrs(back).get("zv_penalty") == attrs(idata).get("zv_penalty")
    assert zv_summary(back).equals(zv_summary(idata))


# Summary


def test_the_summary_has_arviz_row_names_and_stated_columns():
    idata = gaussian(noise=0.5)
    table = zv_summary(idata)
    assert list(table.index) == list(az.summary(idata, var_names=["beta"]).index)
    assert list(table.columns) == [
        "mean",
        "sd",
        "mcse",
        "mean_zv",
        "mcse_zv",
        "variance_ratio",
        "r_hat",
    ]


def test_row_names_agree_with_arviz_for_matrices_and_scalars():
    rng = np.random.default_rng(11)
    arrays = {"m": rng.normal(size=(2, 50, 2, 3)), "s": rng.normal(size=(2, 50))}
    kwargs = {"dims": {"m": ["k", "l"]}, "coords": {"k": ["a", "b"]}}
    idata = container(arrays, {name: -a for name, a in arrays.items()}, **kwargs)
    assert list(zv_summary(idata).index) == list(az.summary(idata).index)


def test_the_plain_columns_are_arviz_s_own():
    idata = gaussian(noise=0.5)
    table = zv_summary(idata)
    posterior = containers.get_group(idata, "posterior")
    np.testing.assert_allclose(table["mcse"], az.mcse(posterior, method="mean").beta)
    np.testing.assert_allclose(table["r_hat"], az.rhat(posterior).beta)
    np.testing.assert_allclose(table["sd"], flat(posterior.beta.values).std(axis=0, ddof=1))


def test_the_variance_ratio_is_one_plus_the_inverse_noise_share():
    table = zv_summary(scalar(noise=0.25, draws=4000))
    assert table.loc["x", "variance_ratio"] == pytest.approx(1.25 / 0.25, rel=0.3)
    row = table.loc["x"]
    assert row["variance_ratio"] == pytest.approx((row["mcse"] / row["mcse_zv"]) ** 2)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_no_variance_to_rounding_means_no_error_at_any_scale(scale):
    x = np.random.default_rng(12).normal(size=(2, 200))
    table = zv_summary(container({"x": scale * (5 + x)}, {"x": -x / scale}))
    assert table.loc["x", "mcse_zv"] < 1e-12 * table.loc["x", "sd"]
    assert table.loc["x", "variance_ratio"] > 1e18


def test_a_constant_has_neither_error_nor_gain():
    x = np.random.default_rng(13).normal(size=(2, 200))
    row = zv_summary(container({"x": x, "one": np.ones_like(x)}, {"x": -x})).loc["one"]
    assert (row["mcse"], row["mcse_zv"], row["variance_ratio"]) == (0.0, 0.0, 1.0)


def test_functions_are_summarised_beside_variables():
    table = zv_summary(zv(gaussian(noise=0.2), functions={"total": lambda p: p.beta.sum("k")}))
    assert list(table.index) == ["beta[a]", "beta[b]", "beta[c]", "total"]
    assert table.loc["total", "variance_ratio"] > 2
    assert list(zv_summary(gaussian(), var_names="beta").index) == list(table.index)[:3]


# Errors


def with_bad_value(group, name, value):
    idata = gaussian()
    dataset = containers.get_group(idata, group).copy(deep=True)
    dataset[name][1, 7, 0] = value
    return containers.with_groups(idata, {group: dataset})


def test_no_gradients():
    posterior = containers.get_group(gaussian(), "posterior")
    with pytest.raises(ValueError, match=r"no gradients.*SGLDCV"):
        zv(containers.new_container({"posterior": posterior}))


def test_fewer_draws_than_coefficients():
    with pytest.raises(ValueError, match=r"60 coefficients.*there are 40.*method='auto'"):
        zv(independent(d=60, draws=40), method="lstsq")
    assert attrs(zv(independent(d=60, draws=40)))["zv_method"] == "ridge"


def test_fewer_than_ten_draws():
    with pytest.raises(ValueError, match=r"'posterior' has 8 draws.*at least 10"):
        zv(gaussian(draws=4))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite(value):
    where = r"is NaN or infinite in 1 of 400 draws, first in chain 1 at draw 7"
    with pytest.raises(ValueError, match=rf"'beta' in group 'posterior' {where}.*var_names"):
        zv(with_bad_value("posterior", "beta", value))
    with pytest.raises(ValueError, match=rf"The gradient of 'beta' {where}.*step size"):
        zv(with_bad_value("sample_stats", "gradient__beta", value))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"method": "lasso"}, "method is 'lasso'.*auto, lstsq, ridge, block"),
        ({"order": 3}, "order is 3.*1 .linear. and 2"),
        ({"var_names": ["gamma"]}, "'posterior' has no variable 'gamma'.*beta"),
        ({"var_names": []}, "nothing to correct"),
        ({"group": "prior"}, "no group 'prior'"),
        ({"functions": {"m": lambda p: p.beta.mean("draw")}}, "'m' returned DataArray.*'draw'"),
        ({"functions": {"m": lambda p: p.beta[:, :10]}}, "'m' returned DataArray.*every"),
        ({"functions": {"m": lambda p: 1.0}}, "'m' returned float.*DataArray"),
        ({"functions": {"beta": lambda p: p.beta}}, "'beta' like a variable"),
        ({"functions": {"m": lambda p: p.beta * 1j}}, "'m' returned complex numbers"),
        ({"functions": {"m": 3}}, "'m' cannot be called: 3"),
        ({"functions": [np.exp]}, "functions must be a dict of functions by name, not list"),
        ({"var_names": 3}, "var_names must be a name or a list of names, not 3"),
    ],
)
def test_options_that_make_no_sense(kwargs, message):
    with pytest.raises((TypeError, ValueError), match=message):
        zv(gaussian(), **kwargs)


def test_order_two_without_positions():
    with pytest.raises(ValueError, match=r"no group 'unconstrained_posterior'.*order=1"):
        zv(scalar(1.0, draws=100), order=2)


def test_draws_that_were_thinned_without_their_gradients():
    idata = gaussian()
    thinned = containers.get_group(idata, "posterior").isel(draw=slice(None, None, 2))
    done = zv(idata)
    with pytest.raises(ValueError, match=r"differ in their 'draw' coordinate \(100 and 200"):
        zv(containers.with_groups(done, {"posterior": thinned}))


def test_a_summary_of_something_that_was_not_corrected():
    with pytest.raises(ValueError, match=r"'zv_posterior' has no variable 'gamma'.*beta"):
        zv_summary(zv(gaussian()), var_names="gamma")
