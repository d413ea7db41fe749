# SPDX-License-Identifier: Apache-2.0
"""Preferential weights: the formula, the order of the rows, and what they are good for."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from pymc_sgcv.kernel.chain import Chain, Method
from pymc_sgcv.kernel.dynamics import EULER
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE
from pymc_sgcv.kernel.preconditioners import Dense
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center
from pymc_sgcv.setup.weights import prefer
from tests.models import regression

N = 400
_rng = np.random.default_rng(9)
X = _rng.normal(size=(N, 2)) * _rng.lognormal(0, 1.5, size=(N, 1))  # heavy tails
Y = _rng.normal(size=N)
CENTER = np.array([0.1, -0.2])
F = np.array([[0.3, 0.0], [0.1, 0.2]])
FACTOR = Dense(F)
HERE = Center(
    point={},
    theta=CENTER,
    gradient=np.zeros(2),
    likelihood_gradient=np.zeros(2),
    factor=FACTOR,
    distance=0.0,
    passes=0.0,
    converged=True,
    position=CENTER,
)


@pytest.fixture(scope="module")
def problem():
    return Problem(regression(X, Y, batch_size=10))


def rms(plain):
    """By hand: ℓᵢ′(θ) = xᵢ(yᵢ − xᵢθ), at the points that the same generator draws."""
    points = CENTER + np.random.default_rng(1).standard_normal((6, 2)) @ F.T
    g = X[:, None] * (Y[:, None] - X @ points.T)[..., None]
    g = g if plain else g - (X * (Y - X @ CENTER)[:, None])[:, None]
    return np.sqrt(((g @ F) ** 2).sum((1, 2)))


@pytest.mark.parametrize("plain", [True, False])
def test_the_weights_are_the_root_mean_squares_in_the_metric_of_the_preconditioner(problem, plain):
    prefer(problem, HERE, plain, np.random.default_rng(1))
    (weights,) = problem.layout.weights
    expected = rms(plain)
    np.testing.assert_allclose(weights, 0.9 * expected / expected.mean() + 0.1, rtol=1e-9)


def noise(problem):
    """Total variance of the control variate a factor's worth away from the center."""
    constant = problem.likelihood_gradient(CENTER[None])[0]
    method = Method(CONTROL_VARIATE, EULER, FACTOR, center=CENTER, constant=constant)
    thetas = CENTER + np.random.default_rng(2).standard_normal((2000, 2)) @ F.T
    pairs = Chain(problem, method).pair_differences(thetas, np.random.default_rng(3))
    return 0.5 * np.mean((pairs @ F) ** 2)


def test_they_cut_the_noise_of_heavy_tailed_rows_many_times(problem):
    problem.lay_out(problem.first_layout())
    uniform = noise(problem)
    prefer(problem, HERE, False, np.random.default_rng(1))
    assert noise(problem) < uniform / 4


def test_strata_are_taken_where_noise_would_shorten_the_step_and_not_elsewhere():
    heavy = X[_rng.integers(0, N, 20_000)] * _rng.lognormal(0, 1.0, size=(20_000, 1))
    for x, expected in ((heavy, True), (_rng.normal(size=(20_000, 2)), False)):
        y = x @ CENTER + _rng.normal(size=len(x))
        with regression(x, y, batch_size=10 if expected else 500):
            layout = sg.SGLDCV(progressbar=False).plan.layout
            uniform = sg.SGLDCV(weights="uniform", progressbar=False).plan.layout
        assert (layout.strata[0] is not None) == expected
        if expected:  # as many rows as were asked for, but for one a stratum
            assert 10 <= sum(layout.batch_sizes) <= 10 + len(layout.batch_sizes)
        assert uniform.strata[0] is None


def test_too_many_rows_and_parameters_are_refused(problem, monkeypatch):
    monkeypatch.setattr("pymc_sgcv.setup.weights._MOST_NUMBERS", 100)
    with pytest.raises(ValueError, match=r"400 rows .* 2 parameters.*weights as an array"):
        prefer(problem, HERE, False, np.random.default_rng(1))


def test_weights_that_differ_for_rows_drawn_together_are_refused():
    x = np.linspace(-1, 1, 40)
    with pm.Model() as model:
        rows, first, second = pm.Minibatch(x, x, -x, batch_size=10)
        slope = pm.Normal("slope", 0, 1)
        pm.Normal("one", slope * rows, 1.0, observed=first, total_size=40)
        pm.Normal("two", -slope * rows, 1.0, observed=second, total_size=40)
    weights = {"one": np.ones(40), "two": 1 + x**2}
    with pytest.raises(ValueError, match=r"weights differ for .*'one'.*'two'.*same weights"):
        sg.SGLDCV(weights=weights, model=model, progressbar=False)
