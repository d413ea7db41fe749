# SPDX-License-Identifier: Apache-2.0
"""Draws that the posterior cannot have made: found, judged exactly, and no others."""

import numpy as np
import pytest

import pymc_sgcv as sg
from pymc_sgcv.results import containers
from pymc_sgcv.results.diagnostics import warn_about
from pymc_sgcv.sampling.check import with_attributes
from pymc_sgcv.sampling.excursions import FALSE_ALARMS, affordable, deepest, excursions, furthest
from tests.models import regression

_rng = np.random.default_rng(0)
X = _rng.normal(size=(1000, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
Y = X @ np.array([0.5, -0.5]) + _rng.normal(size=1000)
COVARIANCE = np.linalg.inv(X.T @ X + np.eye(2))
MEAN = COVARIANCE @ X.T @ Y


@pytest.fixture(scope="module")
def step():
    with regression(X, Y):
        return sg.SGLDCV(progressbar=False, batch_size=100)


def drawn(sds, seed=1):
    """Draws of the posterior, one of them `sds` standard deviations out along beta[1]."""
    z = np.random.default_rng(seed).normal(size=(4, 500, 2))
    x = MEAN + z @ np.linalg.cholesky(COVARIANCE).T
    way = COVARIANCE[1] / np.sqrt(COVARIANCE[1, 1])
    x[2, 77] = MEAN + sds * way
    dims = ("chain", "draw", "beta_dim_0")
    groups = ("posterior", "unconstrained_posterior")
    dataset = {"beta": (dims, x)}
    return containers.new_container({name: containers.xr.Dataset(dataset) for name in groups})


def test_depth_on_a_gaussian_is_half_the_squared_distance(step):
    """What the others do as beta[1] moves is known to the accuracy of the covariance, 2 %."""
    found = excursions(step, drawn(12.0))
    assert found["excursion"] == pytest.approx(12.0**2 / 2, rel=0.02)
    assert found["excursion_where"].startswith("beta[1] = ")
    assert found["excursion_where"].endswith("in chain 2")


def test_a_draw_of_the_posterior_is_not_looked_at(step):
    assert excursions(step, drawn(1.0)) == {"excursion": 0.0, "excursion_limit": deepest(4000)}


def test_a_draw_that_changes_no_standard_deviation_is_left_in_peace(step):
    """One of 2,000 draws at 8 sds makes an sd 1.6 % wider."""
    assert excursions(step, drawn(8.0))["excursion"] == 0.0


def test_a_chain_that_was_carried_away_is_warned_about(step):
    idata = drawn(12.0)
    idata = with_attributes(idata, excursions(step, idata))
    assert not sg.diagnose(idata).loc["excursion", "ok"]
    with pytest.warns(sg.SGCVWarning, match=r"carried away: the log density at beta\[1\] = "):
        warn_about(idata)


def test_the_limit_is_a_tail_of_log_concave_densities():
    """An exponential density falls by an Exp(1) variable, the slowest of all: e⁻ᵗ < (1 + t) e⁻ᵗ."""
    for count in (1, 1000, 10**9):
        t = deepest(count) - 1
        assert count * (1 + t) * np.exp(-t) == pytest.approx(FALSE_ALARMS)
    assert 1000 * np.exp(-deepest(1000)) < FALSE_ALARMS


def test_without_a_center_the_draws_have_one():
    with regression(X, Y):
        step = sg.SGLD(step_size=1e-4, preconditioner=None, batch_size=100, progressbar=False)
    assert step.plan.center is None
    idata = drawn(12.0)
    x = containers.get_group(idata, "posterior")["beta"].values
    others = x[[0, 1, 3]].reshape(-1, 2)
    covariance, away = np.cov(others, rowvar=False), x[2, 77] - MEAN
    way = covariance[1] / covariance[1, 1] * (others[:, 1].mean() - x[2, 77, 1])
    precision = np.linalg.inv(COVARIANCE)
    expected = (away @ precision @ away - (away + way) @ precision @ (away + way)) / 2
    assert 60 < expected == pytest.approx(excursions(step, idata)["excursion"], rel=1e-6)


def test_as_many_lines_as_time_allows(step):
    """1,000 rows, 15 points a line; sampling has visited 15,000 rows twice in 2 s: 1 s a line."""
    budgets = (0.5, 1.5, 3.2, 100.0, np.inf)
    assert [affordable(step, 15_000, 2.0, b) for b in budgets] == [0, 1, 3, 4, 4]
    assert excursions(step, drawn(12.0), 0) == {}


def test_extremes_are_those_of_one_chain_against_the_others():
    x = np.random.default_rng(2).normal(size=(4, 300, 3))
    x[3, 250, 1] = -12.0
    (one,) = furthest([x[..., :1], x[..., 1:]])
    assert (one.chain, one.draw, one.parameter) == (3, 250, 1) and 10 < one.away < 14
    assert furthest([x[..., [0, 2]]]) == []


@pytest.mark.parametrize("draw", [3, 290])
def test_halves_of_a_single_chain_are_compared(draw):
    x = np.random.default_rng(3).normal(size=(1, 300, 2))
    x[0, draw, 1] = 11.0
    (one,) = furthest([x])
    assert (one.chain, one.draw, one.parameter) == (0, draw, 1)


def test_without_all_parameters_nothing_is_said(step):
    idata = containers.with_groups(
        drawn(12.0), {"unconstrained_posterior": containers.xr.Dataset()}
    )
    assert excursions(step, idata) == {}
