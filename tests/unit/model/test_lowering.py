# SPDX-License-Identifier: Apache-2.0
"""Models with named dimensions are read as PyMC reads them, whatever the order of their axes."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest

from pymc_sgcv.model.lowering import plain
from pymc_sgcv.model.start import PYTHON
from pymc_sgcv.sampling.sample import sample
from tests.reading import check_reading, read
from tests.shared import QUIET

N = 60
RNG = np.random.default_rng(1)
x, y, X = RNG.normal(size=N), RNG.normal(size=N), RNG.normal(size=(N, 3))
group, choice = RNG.integers(0, 4, N), RNG.integers(0, 3, N)
COORDS = {"row": np.arange(N), "group": list("abcd"), "predictor": range(3), "class": range(3)}
KINDS = {}


def kind(function):
    KINDS[function.__name__] = function
    return function


def build(name):
    with pm.Model(coords=COORDS) as model:
        KINDS[name]()
    return model


def of(array, *dims):
    return pmd.as_xtensor(array, dims=dims or ("row",))


@kind
def product():
    b = pmd.Normal("b", 0, 1)
    pmd.Normal("y", b * of(x), 1, observed=of(y))


@kind
def only_an_intercept():
    pmd.Normal("y", pmd.Normal("b", 0, 1), 1, observed=of(y), dims="row")


@kind
def hierarchy():
    z, s = pmd.Data("x", x, dims="row"), pmd.HalfNormal("s", 1)
    design = pmd.Data("X", X, dims=("row", "predictor"))
    b, tau = pmd.Normal("b", 0, 1), pmd.HalfNormal("tau", 1)
    a, slope = pmd.Normal("a", b, tau, dims="group"), pmd.Normal("slope", 0, 1, dims="predictor")
    effect = a.isel(group=pmd.Data("g", group, dims="row"))
    mean = pmd.Deterministic("mean", b * z + effect + design.dot(slope, dim="predictor"))
    pmd.Normal("y", mean, s, observed=pmd.Data("outcome", y, dims="row"))


@kind
def rows_along_the_last_axis():
    design = pmd.Data("X", X.T.copy(), dims=("predictor", "row"))
    slope = pmd.Normal("slope", 0, 1, dims="predictor")
    pmd.Normal("y", design.dot(slope, dim="predictor"), 1, observed=of(y))


@kind
def outcomes_along_the_last_axis():
    a = pmd.Normal("a", 0, 1, dims="class")
    pmd.Normal("y", of(x) * a, 1, observed=of(X.T.copy(), "class", "row"))


@kind
def softmax():
    slope = pmd.Normal("slope", 0, 1, dims=("predictor", "class"))
    scores = of(X, "row", "predictor").dot(slope, dim="predictor")
    pmd.Categorical("y", logit_p=scores, core_dims="class", observed=of(choice))


@kind
def transforms():
    p = pmd.Dirichlet("p", a=of(np.ones(3), "class"), core_dims="class")
    a = pmd.ZeroSumNormal("a", 1.0, core_dims="group", dims="group")
    u = pmd.Beta("u", 2, 2)
    pmd.Normal("y", a.isel(group=of(group)) + u, 1, observed=of(y))
    pmd.Categorical("z", p=p, core_dims="class", observed=of(choice), dims="row")


@kind
def beside_plain_variables():
    b = pm.Normal("b", 0, 1, dims="predictor")
    mean = pmd.as_xtensor(pm.Data("X", X, dims=("row", "predictor")) @ b, dims=("row",))
    pmd.Normal("y", mean, 1, observed=of(y))


@kind
def censored():
    latent = pmd.Normal.dist(pmd.Normal("b", 0, 1) * of(x), 1)
    pmd.Censored("y", latent, lower=None, upper=1, observed=of(np.minimum(y, 1)))


@pytest.mark.parametrize("name", KINDS)
def test_the_gradient_is_pymcs_own(name):
    check_reading(build(name))


def test_a_model_without_named_dimensions_is_left_as_it_is():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("b"), 1, observed=y)
    assert plain(model) is model


def test_names_dims_and_coords_stay():
    model = build("hierarchy")
    made = plain(model)
    assert made.named_vars.keys() == model.named_vars.keys()
    assert made.named_vars_to_dims == model.named_vars_to_dims
    assert made.coords == model.coords
    assert [v.name for v in made.value_vars] == [v.name for v in model.value_vars]


def test_data_set_afterwards_are_seen():
    model = build("hierarchy")
    target = read(model)
    with model:
        pm.set_data({"x": x + 1})
    held = {v.name: a for v, a in zip(target.plates[0].data, target.plates[0].arrays())}
    np.testing.assert_array_equal(held["x"], x + 1)


def test_rows_that_depend_on_each_other_are_refused():
    with pm.Model(coords=COORDS) as model:
        z = pmd.Data("x", x, dims="row")
        pmd.Normal("y", pmd.Normal("b", 0, 1) * (z - z.mean("row")), 1, observed=of(y))
    with pytest.raises(ValueError, match="cannot be identified"):
        read(model)


def test_draws_have_the_dims_and_coords_that_pymc_gives_them():
    with build("rows_along_the_last_axis") as model:
        pmd.Deterministic("twice", 2 * model["slope"])
        ours = sample(50, chains=2, random_seed=1, **QUIET)["posterior"]
        prior = pm.sample_prior_predictive(2, compile_kwargs={"mode": PYTHON})
    theirs = prior["prior"]
    assert set(ours) == set(theirs)
    for name in theirs:
        assert ours[name].dims == theirs[name].dims
        for dim in theirs[name].dims[2:]:
            assert list(ours[name][dim].values) == list(theirs[name][dim].values)
