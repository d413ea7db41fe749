# SPDX-License-Identifier: Apache-2.0
"""The tuner shortens a step that turns out to be too long, and resizes batches by their noise."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import center_near
from pymc_sgcv.setup.noise import around, control_variate
from pymc_sgcv.setup.tuner import Tuner, resize
from pymc_sgcv.setup.tuning import Motion


@pytest.fixture(scope="module")
def counts():
    """Six counts: a posterior of a log rate that is far from Gaussian, and its center."""
    with pm.Model() as model:
        rate = pm.Normal("rate", 0, 10, shape=2)
        x = np.array([1.0, 2.0, -1.0, 0.5, -2.0, 1.5])
        y = np.array([1, 0, 0, 2, 0, 1])
        pm.Poisson("y", pm.math.exp(rate[0] + rate[1] * x), observed=y)
    problem = Problem(model, batch_size=5)
    rng = np.random.default_rng(1)
    start = problem.target.flatten(problem.target.start)
    return problem, center_near(problem, start, rng)


@pytest.mark.parametrize(("longest", "shorter"), [(3.9, True), (0.2, False)])
def test_a_step_that_diverges_is_shortened_and_another_is_not(longest, shorter, counts):
    problem, center = counts
    rng = np.random.default_rng(2)
    settings = SimpleNamespace(target_bias=0.9, motion=Motion())
    draws, method = around(center, rng), replace(control_variate(center), furthest=np.inf)
    tuner = Tuner(problem, method, center, settings, draws, longest, rng)
    problem.resize([6])
    tuning = tuner.tune(np.zeros((2, 2)))
    assert (tuning.step_size < 0.99 * longest) is shorter
    if shorter:
        assert tuning.step_size <= 0.2


@pytest.mark.parametrize("share", [0.5, 1.7])
def test_the_batch_is_resized_to_the_share_of_the_noise(share):
    """It goes with 1/n with replacement, and with 1/n − 1/N without."""
    for subsampling, all_rows in (("iid", 0.0), ("block", 1e-4), ("without", 1e-4)):
        sizes = []
        resize(
            SimpleNamespace(
                layout=SimpleNamespace(subsampling=subsampling),
                rows=[SimpleNamespace(n_rows=10_000, batch_size=100)],
                target=SimpleNamespace(plates=[None]),
                resize=sizes.extend,
            ),
            share,
        )
        assert sizes == [int(1 / (share * (0.01 - all_rows) + all_rows))]
