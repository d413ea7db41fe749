# SPDX-License-Identifier: Apache-2.0
"""Gradient groups of real runs: names, dims, coords, ArviZ functions and files."""

import arviz as az
import matplotlib
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_sgcv as sg
from tests.shared import OLD_ARVIZ, QUIET

CHAINS, TUNE, DRAWS = 2, 15, 60
PREDICTORS, GROUPS = ["age", "income"], ["north", "south", "west"]
SHAPES = {"beta": (2,), "effect": (3, 2), "sigma_log__": (), "w_simplex__": (2,)}


@pytest.fixture(scope="module")
def sampled():
    """A vector, a matrix, a positive scalar and a simplex, warmup kept, as pm.sample returns it."""
    rng = np.random.default_rng(5)
    n_rows = 120
    X = rng.normal(size=(n_rows, 2))
    y = X @ np.array([1.0, -0.5]) + rng.normal(size=n_rows)
    with pm.Model(coords={"predictor": PREDICTORS, "group": GROUPS}):
        x, yb = pm.Minibatch(X, y, batch_size=20)
        beta = pm.Normal("beta", 0, 1, dims="predictor")
        pm.Normal("effect", beta, 1, dims=("group", "predictor"))
        pm.Dirichlet("w", np.full(3, 5.0), dims="group")
        sigma = pm.HalfNormal("sigma", 1)
        pm.Deterministic("log_sigma", pm.math.log(sigma))
        pm.Normal("y", x @ beta, sigma, observed=yb, total_size=n_rows)
        return pm.sample(
            DRAWS,
            tune=TUNE,
            step=sg.SGLDCV(progressbar=False),
            chains=CHAINS,
            cores=1,
            random_seed=1,
            discard_tuned_samples=False,
            **QUIET,
        )


@pytest.fixture(scope="module")
def idata(sampled):
    return sg.gradient_groups(sampled)


def group_names(idata):
    return set(idata.groups()) if OLD_ARVIZ else {name.strip("/") for name in idata.groups} - {""}


def dataset(idata, group):
    found = idata[group]
    return found.to_dataset() if isinstance(found, xr.DataTree) else found


def test_the_groups_are_there_with_those_of_the_warmup(idata):
    named = {"posterior", "sample_stats", "gradient", "unconstrained_posterior"}
    assert named | {f"warmup_{name}" for name in named} <= group_names(idata)


@pytest.mark.parametrize("group", ["gradient", "unconstrained_posterior"])
@pytest.mark.parametrize("warmup", ["", "warmup_"])
def test_every_value_variable_is_in_the_groups(group, warmup, idata):
    recorded = dataset(idata, warmup + group)
    draws = TUNE if warmup else DRAWS
    assert {str(name): recorded[name].shape[2:] for name in recorded} == SHAPES
    for name in SHAPES:
        assert recorded[name].shape[:2] == (CHAINS, draws)
        assert recorded[name].dims[:2] == ("chain", "draw")
        assert np.isfinite(recorded[name]).all()


@pytest.mark.parametrize("group", ["gradient", "unconstrained_posterior", "warmup_gradient"])
def test_dims_and_coords_are_those_of_the_model(group, idata):
    recorded = dataset(idata, group)
    assert recorded["beta"].dims == ("chain", "draw", "predictor")
    assert recorded["effect"].dims == ("chain", "draw", "group", "predictor")
    assert recorded["predictor"].values.tolist() == PREDICTORS
    assert recorded["group"].values.tolist() == GROUPS
    assert recorded["sigma_log__"].dims == ("chain", "draw")
    assert recorded["w_simplex__"].dims[2] not in ("group", "predictor")


@pytest.mark.parametrize("warmup", ["", "warmup_"])
def test_the_groups_have_the_chains_and_draws_of_the_posterior(warmup, idata):
    posterior = dataset(idata, f"{warmup}posterior")
    for group in ("gradient", "unconstrained_posterior"):
        for dim in ("chain", "draw"):
            np.testing.assert_array_equal(dataset(idata, warmup + group)[dim], posterior[dim])


@pytest.mark.parametrize("warmup", ["", "warmup_"])
def test_the_unconstrained_draws_belong_to_the_posterior_draws(warmup, idata):
    where, posterior = (
        dataset(idata, f"{warmup}unconstrained_posterior"),
        dataset(idata, f"{warmup}posterior"),
    )
    np.testing.assert_array_equal(where["effect"], posterior["effect"])
    np.testing.assert_allclose(where["sigma_log__"], posterior["log_sigma"], atol=1e-12)


def test_the_gradients_have_left_the_sample_stats(idata):
    for group in ("sample_stats", "warmup_sample_stats"):
        moved = ("gradient__", "unconstrained__")
        assert not [n for n in dataset(idata, group) if n.startswith(moved)]
        assert "step_size" in dataset(idata, group)


def test_the_posterior_is_untouched(idata, sampled):
    for group in ("posterior", "warmup_posterior"):
        xr.testing.assert_identical(dataset(idata, group), dataset(sampled, group))


# ArviZ


def test_summary_is_that_of_the_plain_result(idata, sampled):
    table = az.summary(idata)
    assert len(table) == 2 + 6 + 1 + 3 + 1
    assert {"mean", "sd", "r_hat"} <= set(table.columns)
    assert (table == az.summary(sampled)).all(axis=None)


def test_summary_of_the_gradients_works(idata):
    table = az.summary(idata, group="gradient")
    assert "beta[age]" in table.index
    assert len(table) == 2 + 6 + 1 + 2


def test_ess_and_rhat_work(idata):
    for function in (az.ess, az.rhat):
        result = function(idata)
        assert np.isfinite(result["beta"].values).all()
        assert result["effect"].shape == (3, 2)


def test_plot_trace_works(idata):
    matplotlib.use("Agg")
    az.plot_trace(idata, var_names=["beta", "sigma"], **({} if OLD_ARVIZ else MATPLOTLIB))
    matplotlib.pyplot.close("all")


MATPLOTLIB = {"backend": "matplotlib"}


def test_zv_accepts_the_result_sorted_or_not(idata, sampled):
    before = group_names(sampled)
    first, second = (sg.zv(result, ["beta", "sigma"]) for result in (idata, sampled))
    assert group_names(sampled) == before
    xr.testing.assert_equal(dataset(first, "zv_posterior"), dataset(second, "zv_posterior"))
    assert list(sg.zv_summary(first).index) == ["beta[age]", "beta[income]", "sigma"]


# Files


def to_file(idata, path):
    """Write and read back with the container's own methods."""
    if path.suffix == ".nc":
        pytest.importorskip("h5py")
        idata.to_netcdf(path)
        return az.from_netcdf(path)
    if OLD_ARVIZ:  # its own Zarr writer is of Zarr 2
        idata.to_datatree().to_zarr(path)
        return xr.open_datatree(path, engine="zarr")
    idata.to_zarr(path)
    return az.from_zarr(path)


@pytest.mark.parametrize("name", ["run.nc", "run.zarr"])
def test_files_bring_everything_back(name, idata, tmp_path):
    whole = sg.zv(idata)
    back = to_file(whole, tmp_path / name)
    for group in group_names(whole):
        xr.testing.assert_equal(dataset(back, group).load(), dataset(whole, group))
    xr.testing.assert_allclose(
        dataset(sg.zv(back), "zv_posterior").load(), dataset(whole, "zv_posterior"), rtol=1e-8
    )


@pytest.mark.parametrize("name", ["run.nc", "run.zarr"])
def test_what_pm_sample_returned_can_be_saved_before_it_is_sorted(name, sampled, idata, tmp_path):
    back = sg.gradient_groups(to_file(sampled, tmp_path / name))
    for group in ("gradient", "warmup_unconstrained_posterior"):
        xr.testing.assert_equal(dataset(back, group).load(), dataset(idata, group))
