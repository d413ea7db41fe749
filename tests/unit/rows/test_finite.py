# SPDX-License-Identifier: Apache-2.0
"""Infinite data: bounds that say "not censored" are fine, all else is refused."""

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.rows.problem import Problem

RNG = np.random.default_rng(0)
TIMES = RNG.weibull(1.5, size=60)
CENSORED = TIMES > 1.0


def censored(minibatched: bool) -> pm.Model:
    observed = np.minimum(TIMES, 1.0)
    upper = np.where(CENSORED, 1.0, np.inf)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        total = {}
        if minibatched:
            observed, upper = pm.Minibatch(observed, upper, batch_size=20)
            total = {"total_size": 60}
        survival = pm.Weibull.dist(1.5, scale)
        pm.Censored("t", survival, lower=None, upper=upper, observed=observed, **total)
    return model


@pytest.mark.parametrize("minibatched", [False, True])
def test_infinite_bounds_are_fine(minibatched):
    problem = Problem(censored(minibatched))
    theta = np.array([0.3])
    k, scale = 1.5, np.exp(0.3)
    z = (np.minimum(TIMES, 1.0) / scale) ** k
    terms = np.where(CENSORED, k * z, k * z - k)  # of θ = log scale
    prior = -(scale**2) + 1
    np.testing.assert_allclose(problem.gradient(theta[None])[0, 0], terms.sum() + prior, rtol=1e-10)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", ["x", "y"])
def test_other_infinite_data_are_refused(where, value):
    data = {"x": RNG.normal(size=50), "y": RNG.normal(size=50)}
    data[where][7] = value
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1)
        pm.Normal("outcome", slope * data["x"], 1.0, observed=data["y"])
    with pytest.raises(ValueError, match=r"'outcome'"):
        Problem(model)


@pytest.mark.parametrize("subsampling", ["block", "iid", "without"])
def test_a_part_of_the_rows_is_a_random_part_even_of_sorted_data(subsampling):
    group = np.repeat(np.arange(64), 100)
    with pm.Model() as model:
        level = pm.Normal("level", 0, 1, shape=64)
        pm.Normal("y", level[group], 1.0, observed=np.ones(len(group)))
    problem = Problem(model, batch_size=10, subsampling=subsampling)
    found = problem.likelihood_gradient(np.zeros((1, 64)), fraction=0.1)[0]
    assert (found > 0).sum() > 60  # 640 rows miss a group with probability 4e-5
    assert found.sum() == pytest.approx(len(group))
