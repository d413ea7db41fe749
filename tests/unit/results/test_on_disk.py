# SPDX-License-Identifier: Apache-2.0
"""What is read from files in parts is what would be found in memory."""

import numpy as np
import pytest
import xarray as xr

import pymc_sgcv as sg
from pymc_sgcv.results import containers, ksd, moments, on_disk, parts

zarr = pytest.importorskip("zarr")
CHAINS, DRAWS, D = 2, 300, 7
GROUPS = "posterior", "gradient", "unconstrained_posterior"


@pytest.fixture(scope="module")
def whole():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(CHAINS, DRAWS, D)).cumsum(1) / 10
    gradient = -x + 0.1 * rng.normal(size=x.shape)
    dims = "chain", "draw", "k"
    posterior = xr.Dataset({"x": (dims, x), "double": (dims, 2 * x[..., ::-1])})
    return {
        "posterior": posterior.assign_coords(k=list("abcdefg")),
        "gradient": xr.Dataset({"x": (dims, gradient)}),
        "unconstrained_posterior": xr.Dataset({"x": (dims, x)}),
    }


@pytest.fixture
def idata(whole):
    return containers.new_container(whole)


@pytest.fixture
def stored(whole, tmp_path, monkeypatch):
    """The same in files, of which a few numbers are read at a time."""
    for name, dataset in whole.items():
        dataset.to_zarr(tmp_path / "x", group=name, mode="a", consolidated=False)
    for module in (parts, on_disk, moments):
        monkeypatch.setattr(module, "PART", 2 * CHAINS * DRAWS)
    monkeypatch.setattr(parts, "SLAB", 4 * CHAINS * DRAWS)
    for module in (on_disk, ksd):
        monkeypatch.setattr(module, "LARGE", 0)
    how = {"engine": "zarr", "consolidated": False, "chunks": None, "cache": False}
    read = {name: xr.open_dataset(tmp_path / "x", group=name, **how) for name in whole}
    return containers.new_container(read)


@pytest.mark.parametrize("method", ["lstsq", "block"])
def test_corrected_draws_are_computed_where_they_are_read(method, idata, stored, monkeypatch):
    monkeypatch.setattr(moments, "DENSE_COLUMNS", 1000 if method == "lstsq" else 0)
    monkeypatch.setattr("pymc_sgcv.results.running.DRAWS_PER_COEFFICIENT", 0)
    expected = sg.zv(idata, ["x"], method=method)["zv_posterior"]
    lazy = sg.zv(stored, ["x"])["zv_posterior"]
    assert not lazy["x"].variable._in_memory
    assert lazy.attrs["zv_method"] == method
    np.testing.assert_allclose(lazy["x"], expected["x"], rtol=1e-9, atol=1e-12)
    for key in [(1, slice(3, 200, 7), slice(None, None, 2)), (slice(None), 5), (0, 0, slice(2, 4))]:
        np.testing.assert_allclose(lazy["x"][key], expected["x"][key], rtol=1e-9, atol=1e-12)
    backwards = lazy["x"].isel(draw=slice(None, None, -3), k=[4, 1])
    same = expected["x"].isel(draw=slice(None, None, -3), k=[4, 1])
    np.testing.assert_allclose(backwards, same, rtol=1e-9, atol=1e-12)
    table, other = sg.zv_summary(sg.zv(stored)), sg.zv_summary(sg.zv(idata, method=method))
    rows = [row for row in table.index if row.startswith("x")]
    np.testing.assert_allclose(table.loc[rows], other.loc[rows], rtol=1e-6)


def test_a_variable_without_a_gradient_of_its_own_stays_as_it_is(stored, idata, monkeypatch):
    monkeypatch.setattr(moments, "DENSE_COLUMNS", 0)
    lazy = sg.zv(stored)["zv_posterior"]["double"]
    np.testing.assert_array_equal(lazy, idata["posterior"]["double"])


def test_ksd_is_a_sum_over_components(stored, idata, monkeypatch):
    monkeypatch.setattr(ksd, "DENSE_LIMIT", 0)
    np.testing.assert_allclose(sg.ksd(stored), sg.ksd(idata), rtol=1e-9)


def test_the_summary_is_that_of_arviz(stored, idata):
    expected = containers.summary(containers.get_group(idata, "posterior"))
    found = sg.summary(stored)
    expected = expected.loc[found.index]  # Zarr has an order of its own
    assert list(found.columns) == list(expected.columns)
    assert (found.astype(str) == expected.astype(str)).all(axis=None)
    named = [row for row in found.index if row.startswith("double")]
    assert list(sg.summary(stored, "double", kind="stats").index) == named


def test_diagnose_looks_at_evenly_spaced_draws_of_what_is_large(stored, idata, monkeypatch):
    monkeypatch.setattr(parts, "LEAST", CHAINS * DRAWS // 3)
    monkeypatch.setattr(parts, "MOST", 0)
    third = containers.new_container(
        {name: containers.get_group(idata, name)[["x"]] for name in containers.group_names(idata)}
    )
    only = {name: containers.get_group(stored, name)[["x"]] for name in GROUPS}
    found = sg.diagnose(containers.new_container(only))
    np.testing.assert_allclose(found["value"], sg.diagnose(parts.every(third, 3))["value"])
