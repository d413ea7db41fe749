# SPDX-License-Identifier: Apache-2.0
"""The same model on other rows: the plan moves along, exactly where the posterior is Gaussian."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.sampling import moved
from pymc_sgcv.setup import automatic
from tests.models import regression
from tests.shared import QUIET, no_warning

N, MORE, D = 1000, 1600, 3
_rng = np.random.default_rng(4)
X = _rng.normal(size=(MORE, D)) @ np.array([[1.0, 0, 0], [0.7, 0.5, 0], [0, 0, 20.0]])
Y = X @ np.array([0.4, -0.2, 0.01]) + _rng.normal(size=MORE)
HOW = {"draws": 600, "chains": 2, "random_seed": 1, **QUIET}


def exact(n):
    covariance = np.linalg.inv(X[:n].T @ X[:n] + np.eye(D))
    return covariance @ X[:n].T @ Y[:n], covariance


@pytest.fixture(scope="module")
def first():
    with regression(X[:N], Y[:N]):
        return sg.sample(**HOW)


def on_more(first, model=None, **how):
    with model or regression(X, Y):
        return sg.sample(continue_from=first, **HOW | how)


def test_the_center_of_a_gaussian_moves_to_the_new_mean(first, monkeypatch):
    """By a Newton step with a covariance that is right but for its scale."""
    centers, found = [], moved._center_at

    def center_at(*args):
        centers.append(found(*args))
        return centers[-1]

    monkeypatch.setattr(moved, "_center_at", center_at)
    on_more(first, draws=5)
    mean, covariance = exact(MORE)
    old, _ = exact(N)
    before = (old - mean) @ np.linalg.solve(covariance, old - mean)
    after = (centers[0].theta - mean) @ np.linalg.solve(covariance, centers[0].theta - mean)
    assert np.sqrt(after) < 0.5 < np.sqrt(before)


def test_two_passes_and_no_search(first, monkeypatch):
    passes, gradient = [], Problem.likelihood_gradient

    def counted(problem, points, fraction=1.0, cores=None):
        passes.append(len(points) * fraction)
        return gradient(problem, points, fraction, cores)

    monkeypatch.setattr(Problem, "likelihood_gradient", counted)
    monkeypatch.setattr(automatic, "_decide", lambda *_: pytest.fail("set up"))
    on_more(first, draws=5)
    assert passes == [1.0, 1.0]


def test_the_draws_are_those_of_the_new_posterior(first):
    """1,200 draws worth half of them: five standard errors, and 3 % for the step."""
    with no_warning(sg.SGCVWarning):
        result = on_more(first)
    assert result["posterior"].sizes["draw"] == 600
    draws = result["posterior"]["beta"].values.reshape(-1, D)
    mean, covariance = exact(MORE)
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(0) - mean) < 5 * sd / np.sqrt(600)).all()
    assert (np.abs(draws.std(0) / sd - 1) < 5 / np.sqrt(1200) + 0.03).all()


def test_a_store_serves_as_well(first, tmp_path):
    with regression(X[:N], Y[:N]):
        sg.sample(store=tmp_path / "run", **HOW)
    a, b = on_more(tmp_path / "run", draws=20), on_more(first, draws=20)
    np.testing.assert_array_equal(a["posterior"]["beta"], b["posterior"]["beta"])
    assert sg.open_run(tmp_path / "run")["posterior"].sizes["draw"] == 600


def test_group_effects_move_in_their_own_coordinates():
    group = np.arange(MORE) % 20
    y = _rng.normal(0, 0.7, 20)[group] + _rng.normal(size=MORE)

    def hierarchy(n):
        with pm.Model() as model:
            mu, tau = pm.Normal("mu", 0, 1), pm.HalfNormal("tau", 1)
            a = pm.Normal("a", mu, tau, shape=20)
            pm.Normal("y", a[group[:n]], 1.0, observed=y[:n])
        return model

    with hierarchy(1400):
        first = sg.sample(**HOW)
    with pytest.MonkeyPatch.context() as patched, no_warning(sg.SGCVWarning):
        patched.setattr(automatic, "_decide", lambda *_: pytest.fail("set up"))
        result = on_more(first, hierarchy(MORE), draws=50)
    assert result["posterior"].attrs["group_effects"] == 20
    means = np.array([y[group == k].mean() for k in range(20)])
    assert (np.abs(result["posterior"]["a"].mean(("chain", "draw")) - means) < 0.3).all()
    with hierarchy(1400):  # the very same rows are no other rows
        assert sg.sample(10, continue_from=first, **QUIET)["posterior"].sizes["draw"] == 610


def test_a_posterior_that_is_elsewhere_is_warned_about():
    """A likelihood that is no Gaussian, whose curvature is another one there."""
    x, outcomes = X[:, :1], (X[:, 0] > 0).astype("int32")
    chance = np.random.default_rng(0).random(MORE) < 0.25

    def logistic(y):
        with pm.Model() as model:
            pm.Bernoulli("y", logit_p=x @ pm.Normal("beta", 0, 3, shape=1), observed=y)
        return model

    with logistic(np.where(chance, 1 - outcomes, outcomes)):
        first = sg.sample(20, chains=2, random_seed=1, **QUIET)
    with pytest.warns(sg.SGCVWarning, match=r"has moved by .* too far"):
        on_more(first, logistic(np.where(chance, outcomes, 1 - outcomes)), draws=5)


def test_a_step_is_not_given_for_other_rows(first):
    with regression(X, Y) as model:
        step = sg.SGLDCV(step_size=0.1, progressbar=False)
    with pytest.raises(ValueError, match="no step"):
        on_more(first, model, step=step)


def test_a_run_on_new_rows_may_have_a_store(first, tmp_path):
    pytest.importorskip("zarr")
    whole, model = on_more(first, draws=50), regression(X, Y)
    for _ in range(2):
        stored = on_more(first, model, draws=50, store=tmp_path / "run")
        for name, values in whole["posterior"].items():
            np.testing.assert_array_equal(stored["posterior"][name], values)
    with regression(X[:N], Y[:N]), pytest.raises(ValueError, match="these are the same rows"):
        sg.sample(continue_from=first, store=tmp_path / "other", **HOW)
    assert not (tmp_path / "other").exists()
