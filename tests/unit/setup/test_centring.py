# SPDX-License-Identifier: Apache-2.0
"""Effects are centred by the data's share of what is known of them: exact for a Gaussian model."""

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.rows.coordinates import Coordinates
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.centring import best_degree, information_shares, scale_parameters, widest

ROWS = np.concatenate([[0, 1, 10], np.arange(57) % 5 + 1])  # of each group; too many to go singly
GROUP = np.repeat(np.arange(len(ROWS)), ROWS)
Y = np.random.default_rng(100).normal(size=len(GROUP))
SIGMA, G = 0.8, len(ROWS)


def declared(offset):
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 1), pm.HalfNormal("tau", 1)
        if offset:
            u = mu + tau * pm.Normal("z", 0, 1, shape=G)
        else:
            u = pm.Normal("u", mu, tau, shape=G)
        slope = pm.Normal("slope", 0, 1)
        pm.Normal("y", u[GROUP] + slope, SIGMA, observed=Y)
    return model


@pytest.fixture(scope="module", params=[False, True], ids=["centred", "offset"])
def problem(request):
    return Problem(declared(request.param), batch_size=20)


def share(tau):
    """(m/σ²) / (m/σ² + 1/τ²)."""
    information = ROWS / SIGMA**2
    return information / (information + tau**-2)


def position_at(problem, coordinates, log_tau, seed=0):
    """Any φ with this log τ, which is the same in all coordinates."""
    position = np.random.default_rng(seed).normal(size=problem.size)
    position[problem.target.parameters[1].start] = log_tau
    return position


@pytest.mark.parametrize("log_tau", [-2.0, 0.3])
@pytest.mark.parametrize("degree", [0.0, 0.4, 1.0])
def test_shares_of_a_conjugate_model_are_exact(problem, degree, log_tau):
    """At whatever degree they are measured."""
    assert problem.target.parameters[1].rv_name == "tau"
    coordinates = problem.coordinates(np.full(G, degree))
    position = position_at(problem, coordinates, log_tau)
    shares = information_shares(problem, coordinates, position, np.random.default_rng(1))
    np.testing.assert_allclose(shares, share(np.exp(log_tau)), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("degree", [0.0, 0.4, 1.0])
def test_no_effect_is_wider_than_thrice_its_prior(problem, degree):
    """Which is τ^λ in the coordinates of degree λ; other parameters may be as they are."""
    coordinates = problem.coordinates(np.full(G, degree))
    most = widest(coordinates, position_at(problem, coordinates, -1.0), problem.size)
    [block] = coordinates.change.geometry.blocks
    own = np.arange(problem.size)
    own = (own >= block.parameter.start) & (own < block.parameter.stop)
    np.testing.assert_allclose(most[own], 3 * np.exp(-degree))
    assert np.isinf(most[~own]).all() and (~own).sum() == 3


def test_the_best_degree_is_the_share_where_tau_is_small_among_draws(problem):
    """At the 2 % quantile: the third smallest of a hundred."""
    coordinates = problem.coordinates(np.full(G, 0.5))
    logs = np.random.default_rng(2).permutation(np.linspace(-3, 1, 100))
    draws = np.stack([position_at(problem, coordinates, x, i) for i, x in enumerate(logs)])
    there = np.exp(np.sort(logs)[2])
    for log_tau, expected in ((0.0, there), (-4.0, np.exp(-4.0))):
        position = position_at(problem, coordinates, log_tau)
        degree = best_degree(problem, coordinates, position, draws, np.random.default_rng(3))
        np.testing.assert_allclose(degree, share(expected), rtol=1e-8, atol=1e-10)


def test_a_search_holds_what_decides_scales_of_effects_and_nothing_else(problem):
    held = scale_parameters(problem.coordinates(), problem.size)
    names = [p.rv_name for p in problem.target.parameters if held[p.start : p.stop].any()]
    assert names == ["tau"] and held.sum() == 1


def test_without_effects_nothing_is_held():
    assert not scale_parameters(Coordinates(), 5).any()
