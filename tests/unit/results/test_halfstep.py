# SPDX-License-Identifier: Apache-2.0
"""Two runs compared: right about how much changes, about its error, and about how often it errs."""

import numpy as np
import pytest
import xarray as xr

import pymc_sgcv as sg
from pymc_sgcv.results import containers
from pymc_sgcv.results.halfstep import FALSE_ALARMS, HALF_STEP, QUANTILES, compare, to_groups
from tests.shared import STORE

RHO = 1 / 3


def autoregressive(rng, shape):
    """Standard normal draws worth half an independent one each."""
    x = rng.normal(size=shape)
    for i in range(1, shape[1]):
        x[:, i] = RHO * x[:, i - 1] + np.sqrt(1 - RHO**2) * x[:, i]
    return x


def draws(x):
    return xr.Dataset(
        {"a": (("chain", "draw"), x[..., 0]), "b": (("chain", "draw", "k"), x[..., 1:])}
    )


def pairs(count, transform=lambda z: z, shape=(4, 400, 6)):
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield compare(*(draws(transform(autoregressive(rng, shape))) for _ in range(2)))


def alarms(found):
    return np.any(np.abs(found.change) > found.limit) or abs(found.average) > found.average_limit


def test_changes_are_in_units_of_the_first_run():
    x = autoregressive(np.random.default_rng(1), (4, 500, 3))
    found = compare(draws(x), draws(0.8 * x + 0.5))
    mean, sd = x.mean((0, 1)), x.std((0, 1))
    np.testing.assert_allclose(found.change[0], (0.5 - 0.2 * mean) / sd, atol=1e-12)
    np.testing.assert_allclose(found.change[1], -0.2, atol=1e-12)
    for row, p in ((2, 0.05), (3, 0.95)):
        q = np.quantile(x, p, axis=(0, 1), method="hazen")
        np.testing.assert_allclose(found.change[row], (0.5 - 0.2 * q) / sd, atol=1e-12)
    assert found.labels == ["a", "b[0]", "b[1]"]
    assert found.average == pytest.approx(-0.2)


@pytest.mark.parametrize("transform", [lambda z: z, np.exp], ids=["normal", "skewed"])
def test_standard_errors_are_those_of_changes(transform):
    """900 changes of each quantity: the sd of a ratio of 1 is known to 2.4 %, 5 % at 400 draws.

    Batches of 20 draws understate an autocorrelated variance by 4 %, so 15 % is beyond five errors.
    """
    found = list(pairs(150, transform))
    ratio = np.stack([one.change / one.error for one in found])
    least = 0.7 if transform is np.exp else 0.85  # squares of a lognormal have hardly a variance
    assert np.all(ratio.std(axis=(0, 2)) < 1.2)
    assert np.all(ratio.std(axis=(0, 2)) > least)


@pytest.mark.parametrize("transform", [lambda z: z, np.exp], ids=["normal", "skewed"])
def test_equal_runs_raise_no_alarm(transform):
    """At a rate of 0.002 more than two of 100 have a probability of 0.001."""
    assert FALSE_ALARMS <= 2e-3
    assert sum(alarms(one) for one in pairs(100, transform)) <= 2


def test_a_wrong_spread_is_seen():
    rng = np.random.default_rng(3)
    one, two = (autoregressive(rng, (4, 1000, 6)) for _ in range(2))
    one[..., 2] *= 1.2
    found = compare(draws(one), draws(two))
    seen = np.abs(found.change[1]) > found.limit[1]
    assert seen.tolist() == [False, False, True, False, False, False]
    assert "sds by" in found.sentence() and "beyond Monte Carlo error" in found.sentence()


def test_a_constant_is_left_out():
    x = autoregressive(np.random.default_rng(5), (2, 100, 2))
    x[..., 1] = 3.0
    found = compare(draws(x), draws(x))
    assert np.isnan(found.change[:, 1]).all() and not alarms(found)


def result(scale=1.3):
    rng = np.random.default_rng(6)
    one, two = (autoregressive(rng, (4, 1000, 3)) for _ in range(2))
    one[..., 1] *= scale
    posterior = draws(one).assign_coords(k=["p", "q"])
    found = compare(posterior, draws(two))
    groups = {"posterior": posterior, **to_groups(found, posterior)}
    return containers.new_container(groups), found


def test_groups_have_the_shape_of_the_posterior():
    idata, found = result()
    table = containers.get_group(idata, HALF_STEP)
    change = table["b"].sel(half_step_estimate="change", half_step_quantity="sd")
    np.testing.assert_array_equal(change.sel(k="q"), found.change[1, 2])
    left = table["b"].sel(half_step_estimate="error_left", half_step_quantity="sd")
    np.testing.assert_allclose(left, -4 / 3 * change)
    quantiles = containers.get_group(idata, QUANTILES)["a"]
    middle = quantiles.sel(half_step_run="run", half_step_probability=0.5)
    median = np.quantile(containers.get_group(idata, "posterior")["a"], 0.5, method="hazen")
    assert float(middle) == pytest.approx(median)


def test_diagnose_reads_the_comparison_and_names_the_parameter():
    idata, found = result()
    table = sg.diagnose(idata)
    row = table.loc["half_step_sd"]
    assert not row["ok"] and row["where"] == "b[p]"
    assert row["value"] == found.change[1, 1] and row["limit"] == found.limit[1, 1]
    assert table.loc["half_step_mean", "ok"]
    with pytest.warns(sg.SGCVWarning, match=r"deviation of b\[p\] changes by -2. % at half the st"):
        sg.results.diagnostics.warn_about(idata)


@STORE
def test_a_comparison_survives_a_file(store, tmp_path):
    idata, _ = result()
    back = store(idata, tmp_path / "run")
    before = sg.diagnose(idata).filter(like="half", axis=0)
    after = sg.diagnose(back).filter(like="half", axis=0)
    assert before["value"].tolist() == after["value"].tolist() and len(after) == 4
