# SPDX-License-Identifier: Apache-2.0
"""A second mode is seen before sampling, and a model with one mode is left in peace."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from pymc_sgcv.kernel.preconditioners import Diagonal
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup import modes
from pymc_sgcv.setup.center import center_near
from pymc_sgcv.setup.modes import between, highest_center
from tests.shared import no_warning

_rng = np.random.default_rng(4)
Y = 1.0 + _rng.normal(size=200)


def model_of(mean, prior):
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=50)
        a = prior()
        pm.Normal("y", mean(a), 3.0, observed=y, total_size=len(Y))
    return model


def symmetric():
    """Only the square is identified: modes at ±1, and at the initial point 0 a saddle."""
    return model_of(lambda a: a**2, lambda: pm.Normal("a", 0, 2))


def log_posterior(a):
    return -np.sum((Y - a**2) ** 2) / 18 - a**2 / 8


def test_two_modes_are_warned_about():
    with symmetric(), pytest.warns(sg.SGCVWarning, match=r"another mode: a is .* constrain"):
        step = sg.SGLDCV(progressbar=False)
    assert abs(step.plan.center.theta[0]) == pytest.approx(1, abs=0.15)


def test_a_sign_constraint_makes_one_mode_of_two():
    with (
        model_of(lambda a: a**2, lambda: pm.HalfNormal("a", 2)),
        no_warning(),
    ):
        sg.SGLDCV(progressbar=False)


def test_the_log_posterior_between_two_points_is_the_integral_of_its_gradient():
    ends = (SimpleNamespace(position=np.array([a]), degree=None) for a in (-1.0, 1.2))
    line = between(Problem(symmetric()), *ends)
    grid = np.linspace(-1.0, 1.2, 2000)
    values = np.array([log_posterior(a) for a in grid]) - log_posterior(-1.0)
    assert line.height == pytest.approx(values[-1], rel=1e-6)
    assert line.depth == pytest.approx(min(0, values[-1]) - values.min(), rel=0.05)


def test_the_center_is_in_the_higher_of_two_modes_whichever_the_search_found_first():
    """The prior favours +1 by five units of log density, and the initial point leads to −1."""
    model = model_of(lambda a: a**2, lambda: pm.Normal("a", 1, 0.63, initval=-0.4))
    with model, pytest.warns(sg.SGCVWarning, match=r"a is 1.* at the center and -0\.9.* lower"):
        step = sg.SGLDCV(progressbar=False)
    assert step.plan.center.theta[0] == pytest.approx(1, abs=0.15)
    lower = center_near(step.problem, np.array([-0.4]), np.random.default_rng(0))
    assert lower.theta[0] == pytest.approx(-1, abs=0.15)
    for first in (lower, step.plan.center):
        with pytest.warns(sg.SGCVWarning, match="another mode"):
            found = highest_center(step.problem, first, np.random.default_rng(1))
        assert found.theta[0] == pytest.approx(1, abs=0.15)


def test_of_three_modes_the_highest_is_taken_and_both_others_are_named(monkeypatch):
    """Searches end at −2 first, which is higher than the center; +2 is higher still."""
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=50)
        a = pm.NormalMixture("a", w=[0.04, 0.16, 0.8], mu=[0.0, -2.0, 2.0], sigma=0.3, initval=0.1)
        pm.Normal("y", 1.0 + 0.0 * a, 1.0, observed=y, total_size=len(Y))
    problem, rng = Problem(model), np.random.default_rng(2)
    center = center_near(problem, np.array([0.0]), rng)
    monkeypatch.setattr(modes, "_starts", lambda *_: [np.array([s]) for s in (-2.1, 2.1, -1.9)])
    with pytest.warns(sg.SGCVWarning, match="another mode") as caught:
        found = highest_center(problem, center, rng)
    assert found.theta[0] == pytest.approx(2, abs=0.1)
    there = sorted(str(w.message).split("the center and ")[1].split()[0] for w in caught)
    assert [round(float(x)) for x in there] == [-2, 0]


@pytest.mark.parametrize(("share", "told"), [(1e-2, True), (1e-6, False)])
def test_a_mode_without_mass_is_not_worth_a_word(monkeypatch, share, told):
    """Both are higher than where the height alone rules a mode out, and as wide as the center's."""
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=50)
        a = pm.NormalMixture("a", w=[1 - share, share], mu=[2.0, -2.0], sigma=0.3)
        pm.Normal("y", 1.0 + 0.0 * a, 1.0, observed=y, total_size=len(Y))
    problem, rng = Problem(model), np.random.default_rng(3)
    center = center_near(problem, np.array([2.1]), rng)
    monkeypatch.setattr(modes, "_starts", lambda *_: [np.array([-2.05])])
    other = center_near(problem, np.array([-2.05]), rng)
    height = np.log(share / (1 - share))
    assert height > -modes._RELEVANT
    fine = between(problem, center, other, points=modes._FINE)
    assert fine.height == pytest.approx(height, abs=0.1)
    assert modes._mass(center, other, height) == pytest.approx(height, abs=0.05)
    with pytest.warns(sg.SGCVWarning, match="another mode") if told else no_warning():
        assert highest_center(problem, center, rng) is center


def test_a_spike_of_many_parameters_has_no_mass_and_a_hill_as_wide_has():
    """Where widths are known of single parameters only."""
    d = 1000
    here, near, spike = (
        SimpleNamespace(factor=Diagonal(np.full(d, width))) for width in (1.0, 0.95, 0.5)
    )
    assert modes._mass(here, near, 3.0) == 3.0
    assert modes._mass(here, spike, 300.0) == pytest.approx(300 + d * (np.log(0.5) + 0.1))
