# SPDX-License-Identifier: Apache-2.0
"""Gradient groups: names, dims, coords, files, and that nothing else changes."""

import numpy as np
import pytest
import xarray as xr

from pymc_sgcv.results import containers
from pymc_sgcv.results.groups import gradient_groups, rv_name, to_idata_groups
from tests.shared import STORE, from_dict

RNG = np.random.default_rng(3)
CHAINS, DRAWS = 2, 6


def draws(*shape, n=DRAWS):
    return RNG.normal(size=(CHAINS, n, *shape))


def recorded(names_and_shapes, n=DRAWS):
    kinds = ("gradient", "unconstrained")
    return {f"{k}__{v}": draws(*s, n=n) for k in kinds for v, s in names_and_shapes.items()}


VALUES = {"beta": (3,), "sigma_log__": (), "w_simplex__": (2,)}


def sampled(**extra_stats):
    """What pm.sample returns: a vector with coords, a positive scalar, a simplex, other stats."""
    return from_dict(
        {
            "posterior": {"beta": draws(3), "sigma": draws(), "w": draws(3)},
            "sample_stats": {"lp": draws(), **recorded(VALUES), **extra_stats},
        },
        coords={"k": ["a", "b", "c"]},
        dims={"beta": ["k"]},
    )


def group(idata, name):
    return containers.get_group(idata, name)


def test_gradients_become_groups_with_the_posterior_dims_and_coords():
    idata = sampled()
    stats = group(idata, "sample_stats")
    result = gradient_groups(idata)
    for name, kind in (("gradient", "gradient"), ("unconstrained_posterior", "unconstrained")):
        dataset = group(result, name)
        assert list(dataset.data_vars) == list(VALUES)
        assert dataset["beta"].dims == ("chain", "draw", "k")
        assert dataset["k"].values.tolist() == ["a", "b", "c"]
        assert dataset["sigma_log__"].dims == ("chain", "draw")
        for value_name in VALUES:
            np.testing.assert_array_equal(dataset[value_name], stats[f"{kind}__{value_name}"])


def test_a_value_variable_of_another_shape_has_dims_of_its_own():
    w = group(gradient_groups(sampled()), "gradient")["w_simplex__"]
    assert w.dims == ("chain", "draw", "w_simplex___dim_0")
    assert w.shape == (CHAINS, DRAWS, 2)


def test_other_statistics_stay_where_they_are():
    stats = group(gradient_groups(sampled(accept=draws(4))), "sample_stats")
    assert set(stats.data_vars) == {"lp", "accept"}
    assert stats["accept"].shape == (CHAINS, DRAWS, 4)
    assert not [dim for dim in stats.dims if str(dim).startswith(("gradient", "unconstrained"))]


def test_sample_stats_that_held_nothing_else_are_gone():
    stats = recorded({"beta": (3,)})
    idata = from_dict({"posterior": {"beta": draws(3)}, "sample_stats": stats})
    assert set(containers.group_names(gradient_groups(idata))) == {
        "posterior",
        "gradient",
        "unconstrained_posterior",
    }


def test_the_input_is_not_changed_and_its_arrays_are_not_copied():
    idata = sampled()
    before = {name: group(idata, name).copy(deep=True) for name in containers.group_names(idata)}
    result = gradient_groups(idata)
    assert containers.group_names(idata) == list(before)
    for name, dataset in before.items():
        xr.testing.assert_identical(group(idata, name), dataset)
    pairs = [
        (group(result, "posterior")["beta"], group(idata, "posterior")["beta"]),
        (group(result, "gradient")["beta"], group(idata, "sample_stats")["gradient__beta"]),
    ]
    assert all(np.shares_memory(new.values, old.values) for new, old in pairs)


def test_assigning_to_the_result_leaves_the_input_alone():
    idata = sampled()
    result = gradient_groups(idata)
    result["posterior"]["new"] = ((), 1.0)
    assert "new" not in group(idata, "posterior")


def test_sorting_twice_is_sorting_once():
    once = gradient_groups(sampled())
    assert gradient_groups(once) is once


def test_warmup_is_sorted_into_warmup_groups():
    idata = sampled()
    warmup = xr.Dataset(
        {
            "gradient__beta": (("chain", "draw", "gradient__beta_dim_0"), draws(3, n=4)),
            "lp": (("chain", "draw"), draws(n=4)),
        },
        coords={"chain": [0, 1], "draw": np.arange(4)},
    )
    posterior = group(idata, "posterior").isel(draw=slice(4))
    idata = containers.with_groups(
        idata, {"warmup_posterior": posterior, "warmup_sample_stats": warmup}
    )
    result = gradient_groups(idata)
    assert group(result, "warmup_gradient")["beta"].dims == ("chain", "draw", "k")
    assert group(result, "warmup_gradient").sizes["draw"] == 4
    assert group(result, "gradient").sizes["draw"] == DRAWS
    assert list(group(result, "warmup_sample_stats").data_vars) == ["lp"]
    assert "warmup_unconstrained_posterior" not in containers.group_names(result)


def test_names_of_a_zarr_trace_are_understood():
    stats = {"sampler_0__gradient__beta": draws(3), "sampler_0__unconstrained__beta": draws(3)}
    idata = from_dict({"posterior": {"beta": draws(3)}, "sample_stats": stats})
    assert list(group(gradient_groups(idata), "gradient").data_vars) == ["beta"]


def test_without_gradients_the_error_names_the_step_methods_that_record_them():
    idata = from_dict({"posterior": {"beta": draws(3)}, "sample_stats": {"lp": draws()}})
    with pytest.raises(ValueError, match=r"no gradients.*posterior, sample_stats.*SGLDCV"):
        gradient_groups(idata)


def test_something_else_than_a_container_is_a_type_error():
    with pytest.raises(TypeError, match=r"idata is a dict.*pm\.sample"):
        gradient_groups({"posterior": 1})


@pytest.mark.parametrize(
    ("value_name", "expected"),
    [
        ("beta", "beta"),
        ("sigma_log__", "sigma"),
        ("sigma_y_log__", "sigma_y"),
        ("sigma_y_x_interval__", "sigma_y"),
        ("tau_log__", None),
        ("beta_log", None),
        ("sigma_y__", "sigma"),
    ],
)
def test_a_value_name_belongs_to_the_longest_matching_variable(value_name, expected):
    posterior = xr.Dataset(dict.fromkeys(["beta", "sigma", "sigma_y"], ((), 0.0)))
    assert rv_name(value_name, posterior) == expected


def test_arrays_that_do_not_match_the_posterior_are_refused():
    posterior = group(sampled(), "posterior")
    with pytest.raises(ValueError, match=r"'beta' has shape \(2, 5, 3\).*2 chains of 6 draws"):
        to_idata_groups({"beta": draws(3, n=5)}, {}, posterior)


@STORE
def test_groups_survive_a_file(store, tmp_path):
    idata = gradient_groups(sampled())
    back = store(idata, str(tmp_path / "draws"))
    assert set(containers.group_names(back)) == set(containers.group_names(idata))
    for name in containers.group_names(idata):
        xr.testing.assert_equal(group(back, name).load(), group(idata, name))
    assert gradient_groups(back) is back


def test_new_containers_are_of_the_installed_kind_and_have_no_empty_group():
    posterior = group(sampled(), "posterior")
    container = containers.new_container(
        {"posterior": posterior, "gradient": xr.Dataset()}, {"a": 1}
    )
    assert type(container) is type(sampled())
    assert containers.group_names(container) == ["posterior"]
    assert container.attrs == {"a": 1}
