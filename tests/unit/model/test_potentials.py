# SPDX-License-Identifier: Apache-2.0
"""Potentials and custom distributions that are sums over rows are read; others are refused."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from tests.reading import check_reading, read

N = 60
RNG = np.random.default_rng(1)
x, y, X = RNG.normal(size=N), RNG.normal(size=N), RNG.normal(size=(N, 3))
counts, weights = RNG.poisson(2.0, N), RNG.integers(1, 5, N)
event = RNG.random(N) < 0.6
SUMS = {}


def kind(function):
    SUMS[function.__name__] = function
    return function


def normal(of=y):
    """The log-density of each row of a regression."""
    b, s = pm.Normal("b"), pm.HalfNormal("s")
    return pm.logp(pm.Normal.dist(b * x, s), of)


@kind
def a_value_per_row():
    pm.Potential("likelihood", normal())


@kind
def a_sum_of_squares():
    b = pm.Normal("b")
    pm.Potential("likelihood", -0.5 * ((y - b * x) ** 2).sum() - 3 * b**4)


@kind
def frequency_weights():
    pm.Potential("likelihood", (weights * normal()).sum())


@kind
def an_inner_product():
    pm.Potential("likelihood", pt.dot(weights.astype(float), normal()))


@kind
def several_sums():
    s = pm.HalfNormal("s")
    rate = pm.math.exp(pm.Normal("b", 0, 1, shape=3)[0] * x)
    dead = pm.logp(pm.Weibull.dist(s, rate), np.abs(y))
    alive = -((np.abs(y) / rate) ** s)
    pm.Potential("likelihood", pm.math.switch(event, dead, alive).sum() - (rate * x).sum() / s)


@kind
def rows_that_are_selected_after_the_predictor():
    """As the survival models of PyMC's gallery are written."""
    b, s = pm.Normal("b", 0, 1, shape=3), pm.HalfNormal("s")
    u = pm.Normal("u", 0, 1, shape=4)
    mean = pt.dot(b, X.T.copy()) + u[np.arange(N) % 4]
    pm.Normal("y", mean[event], s, observed=y[event])
    latent = pm.Normal.dist(pm.math.exp(mean)[~event], s)
    pm.Potential("censored", pm.math.log1mexp(pm.logcdf(latent, y[~event])))


@kind
def beside_observations_of_the_same_rows():
    design = pm.Data("X", X)
    b = pm.Normal("b", 0, 1, shape=3)
    pm.Normal("y", design @ b, 1, observed=y)
    pm.Potential("more", -((design @ b) ** 4).sum())


@kind
def a_matrix():
    b = pm.Normal("b", 0, 1, shape=3)
    pm.Potential("likelihood", pm.logp(pm.Normal.dist(b, 1), X).sum(axis=1))


@kind
def a_concatenation():
    parts = [normal(), pm.logp(pm.Poisson.dist(pm.HalfNormal("rate")), counts)]
    pm.Potential("likelihood", pt.concatenate(parts).sum())


@kind
def a_checked_sum():
    b = pm.HalfNormal("b")
    rows = pm.logp(pm.Normal.dist(x, 1), y * b)
    checked = pm.distributions.dist_math.check_parameters(rows.sum(), b > 0, msg="b > 0")
    pm.Potential("likelihood", checked)


@kind
def a_custom_distribution_that_encloses_weights():
    def logp(value, mean):
        return weights * pm.logp(pm.Poisson.dist(mean), value)

    pm.CustomDist("y", pm.math.exp(pm.Normal("b") * x), logp=logp, observed=counts)


@kind
def a_custom_distribution_of_random_variables():
    def dist(mean, scale, size):
        return pm.math.exp(pm.Normal.dist(mean, scale, size=size))

    b, s = pm.Normal("b"), pm.HalfNormal("s")
    pm.CustomDist("y", b * x, s, dist=dist, observed=np.exp(y))


@kind
def truncated_at_bounds_of_every_row():
    latent = pm.Normal.dist(pm.Normal("b") * x, pm.HalfNormal("s"))
    pm.Truncated("y", latent, lower=y - 1.0, upper=np.where(event, np.inf, y + 2), observed=y)


def build(declare):
    with pm.Model() as model:
        declare()
    return model


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_over_rows_is_read(name):
    target = check_reading(build(SUMS[name]), batch_size=15)
    assert sum(len(plate.arrays()[0]) for plate in target.plates) >= N


def test_what_is_a_function_of_parameters_alone_stays_exact():
    def declare():
        b = pm.Normal("b", 0, 1, shape=N)
        pm.Potential("soft", -(b**4).sum())
        pm.Normal("y", b[0] * x, 1, observed=y)

    (plate,) = read(build(declare)).plates
    assert plate.observed == ("y",)


def test_observations_and_a_potential_of_the_same_rows_are_one_plate():
    (plate,) = read(build(beside_observations_of_the_same_rows)).plates
    assert plate.observed == ("y", "more")


def refused(declare):
    with pytest.raises(ValueError) as error:
        read(build(declare))
    return str(error.value)


def test_rows_that_depend_on_each_other_are_refused():
    message = refused(
        lambda: pm.Potential(
            "score", -((y - y.mean() - pm.Normal("b") * pt.cumsum(pm.Data("x", x))) ** 2)
        )
    )
    assert "rows of Potential 'score' cannot be identified" in message


def test_a_function_of_all_rows_that_is_no_sum_is_refused():
    message = refused(lambda: pm.Potential("mix", pm.math.logsumexp(pm.Normal("b") * x)))
    assert "no Potential that is a sum" in message
    assert "'mix'" in message


def test_beside_a_likelihood_it_stays_exact():
    def declare():
        b = pm.Normal("b")
        pm.Potential("mix", pm.math.logsumexp(b * x))
        pm.Normal("y", b * x, 1, observed=y)

    target = check_reading(build(declare))
    assert [plate.observed for plate in target.plates] == [("y",)]


def test_a_mean_over_rows_has_the_weight_of_the_rows_that_there_are():
    """As one N-th of the sum, whatever the minibatch."""

    def declare():
        pm.Potential("likelihood", pm.math.mean(normal()))

    check_reading(build(declare), batch_size=15)


def test_a_prior_that_is_not_finite_is_the_reason_given():
    def declare():
        pm.Normal("y", pm.Normal("b", np.nan, 1) * x, 1, observed=y)

    assert "'b' begins at nan" in refused(declare)
