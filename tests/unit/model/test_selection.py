# SPDX-License-Identifier: Apache-2.0
"""Selections, slices and repetitions are rows of data like any other."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from tests.reading import check_reading

N = 40
rng = np.random.default_rng(0)
x, y = rng.normal(size=(2, N))
group = rng.integers(0, 4, N)


def slices_of_what_may_be_set():
    mean = pm.Normal("a") + pm.Normal("b") * pm.Data("x", x)
    pm.Normal("first", mean[:25], 1, observed=y[:25])
    pm.Normal("second", mean[25:], 2, observed=y[25:])


def lags_of_what_may_be_set():
    lagged, X = pm.Data("lagged", y)[:-1], pm.Data("X", np.stack([x, x**2], axis=1))[1:]
    pm.Normal("y", pm.Normal("rho") * lagged + X @ pm.Normal("b", shape=2), 1, observed=y[1:])


def errors_that_are_correlated():
    error = y - pm.Normal("b") * x - pm.Normal("u", shape=4)[group]
    pm.Potential("y", -((error[1:] - pm.Beta("rho", 1, 1) * error[:-1]) ** 2).sum())


def repeated_effects():
    effect = pm.Normal("m") + pm.HalfNormal("t") * pm.Normal("z", shape=10)
    pm.Normal("y", pt.repeat(effect, 4) + pm.Normal("b") * x, 1, observed=y)


def effects_repeated_unequally():
    pm.Normal("y", pt.repeat(pm.Normal("u", shape=3), np.array([5, 15, 20])), 1, observed=y)


def tiled_effects():
    pm.Normal("y", pt.tile(pm.Normal("u", shape=10), 4) + pm.Normal("b") * x, 1, observed=y)


KINDS = [
    slices_of_what_may_be_set,
    lags_of_what_may_be_set,
    errors_that_are_correlated,
    repeated_effects,
    effects_repeated_unequally,
    tiled_effects,
]


@pytest.mark.parametrize("declare", KINDS, ids=lambda declare: declare.__name__)
def test_the_gradient_is_pymcs_own(declare):
    with pm.Model() as model:
        declare()
    target = check_reading(model, batch_size=10)
    assert sum(plate.n_rows for plate in target.plates) >= N - 1


def test_slices_of_data_follow_what_is_set():
    with pm.Model() as model:
        lags_of_what_may_be_set()
    (plate,) = check_reading(model, batch_size=10).plates
    with model:
        pm.set_data({"lagged": 2 * y})
    assert any(np.array_equal(array, 2 * y[:-1]) for array in plate.arrays())
