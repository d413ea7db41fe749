# SPDX-License-Identifier: Apache-2.0
"""The centering point: at the mode of a Gaussian, and honest about how far it is from it."""

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.kernel.preconditioners import Dense, Diagonal
from pymc_sgcv.model.start import PYTHON
from pymc_sgcv.model.target import read_model
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center, center_at, center_near, unconstrained
from pymc_sgcv.setup.find import find_center
from pymc_sgcv.steps.methods import SGLDCV
from tests.models import build, regression

N, SIGMA, TAU = 400, 0.8, 2.0
_rng = np.random.default_rng(40)
X = _rng.normal(size=(N, 2)) @ np.array([[1.0, 0.9], [0.0, 0.4]])
Y = X @ np.array([1.5, -1.0]) + SIGMA * _rng.normal(size=N)
HESSIAN = X.T @ X / SIGMA**2 + np.eye(2) / TAU**2
MODE = np.linalg.solve(HESSIAN, X.T @ Y / SIGMA**2)
F = np.linalg.cholesky(np.linalg.inv(HESSIAN))


def declared(batch_size=40):
    return regression(X, Y, batch_size, TAU, SIGMA)


def distance(theta):
    """How far `theta` is from the mode, in posterior standard deviations."""
    return np.linalg.norm(np.linalg.solve(F, theta - MODE))


@pytest.fixture(scope="module")
def problem():
    return Problem(declared())


def search(problem, method="adam", start=(-3.0, 4.0), seed=1, **kwargs):
    return center_near(problem, np.array(start), np.random.default_rng(seed), method, **kwargs)


@pytest.mark.parametrize("method", ["adam", "sgd"])
@pytest.mark.parametrize("start", [(0.0, 0.0), (-3.0, 4.0), (50.0, 50.0)])
def test_the_center_is_the_mode(problem, method, start):
    center = search(problem, method, start)
    assert distance(center.theta) < 0.05
    assert center.converged


@pytest.mark.parametrize("method", ["adam", "sgd"])
def test_minibatch_steps_alone_go_most_of_the_way(problem, method):
    start = np.array([-3.0, 4.0])
    assert distance(search(problem, method, start, polish=False).theta) < 0.2 * distance(start)


@pytest.mark.parametrize("method", ["adam", "sgd"])
@pytest.mark.parametrize("polish", [True, False])
def test_the_reported_distance_is_the_distance(problem, method, polish):
    center = search(problem, method, polish=polish)
    np.testing.assert_allclose(center.distance, distance(center.theta), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("far", [0.0, 1.0, 30.0])
def test_a_point_displaced_by_so_many_deviations_is_reported_at_that_distance(problem, far):
    direction = np.array([0.6, -0.8])
    center = center_at(problem, MODE + far * F @ direction)
    np.testing.assert_allclose(center.distance, far, rtol=1e-6, atol=1e-6)
    assert center.converged or far > 0.5
    assert not center.converged or far < 2.0


def test_a_center_at_a_point_stays_there(problem):
    point = np.array([0.2, -3.0])
    np.testing.assert_array_equal(center_at(problem, point).theta, point)


def test_the_factor_is_that_of_the_posterior_covariance(problem):
    factor = np.asarray(search(problem).factor)
    np.testing.assert_allclose(factor @ factor.T, np.linalg.inv(HESSIAN), rtol=1e-6)


def test_the_gradient_is_the_plain_models_gradient(problem):
    center = center_at(problem, np.array([0.2, -3.0]))
    plain = declared(None).compile_dlogp(mode=PYTHON)
    np.testing.assert_allclose(center.gradient, plain({"beta": center.theta}), rtol=1e-10)


def test_the_likelihoods_part_of_the_gradient_leaves_out_the_prior(problem):
    center = center_at(problem, np.array([0.2, -3.0]))
    prior = -center.theta / TAU**2
    np.testing.assert_allclose(center.likelihood_gradient, center.gradient - prior, rtol=1e-10)


def test_the_same_seed_gives_the_same_center(problem):
    one, same, other = (search(problem, seed=s, polish=False).theta for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).all()


def test_find_center_takes_the_model_from_the_context():
    with declared():
        center = find_center(random_seed=1, progressbar=False)
    assert distance(center.point["beta"]) < 0.05
    np.testing.assert_array_equal(center.point["beta"], center.theta)
    assert center.passes > 1


def test_find_center_works_on_a_plain_model():
    center = find_center(declared(None), batch_size=40, random_seed=1, progressbar=False)
    assert distance(center.point["beta"]) < 0.05


def test_a_given_center_takes_the_gradient_of_the_present_data():
    with pm.Model() as model:
        y = pm.Data("y_data", Y)
        beta = pm.Normal("beta", 0, TAU, shape=2)
        pm.Normal("y", X @ beta, SIGMA, observed=y)
    center = find_center(model, batch_size=40, random_seed=1, progressbar=False)
    new = Y + 0.01 * X[:, 0]  # where the mode is a fraction of a deviation away
    pm.set_data({"y_data": new}, model=model)
    fixed = {"step_size": 1e-4, "preconditioner": None, "batch_size": 40, "progressbar": False}
    step = SGLDCV(center=center, model=model, **fixed)
    np.testing.assert_array_equal(step.plan.method.center, center.theta)
    expected = X.T @ (new - X @ center.theta) / SIGMA**2
    np.testing.assert_allclose(step.plan.method.constant, expected, rtol=1e-8)
    assert np.abs(center.likelihood_gradient - expected).max() > 1


@pytest.mark.parametrize(
    ("given", "kind"), [(F, Dense), (np.diag(F), Diagonal)], ids=["matrix", "vector"]
)
def test_a_center_written_with_an_array_as_its_factor_holds_that_preconditioner(given, kind):
    theta = MODE + 0.3 * F @ np.array([0.6, -0.8])
    gradient = -HESSIAN @ (theta - MODE)
    likelihood = gradient + theta / TAU**2
    center = Center({"beta": theta}, theta, gradient, likelihood, given, 0.3, 1.0, True)
    fixed = {"step_size": 1e-4, "preconditioner": None}
    taken = SGLDCV(center=center, model=declared(), progressbar=False, **fixed).plan.center
    for factor in (center.factor, taken.factor):
        assert type(factor) is kind
        np.testing.assert_array_equal(factor, given)
    decrement = np.linalg.norm(gradient @ given if kind is Dense else gradient * given)
    np.testing.assert_allclose(taken.distance, decrement, rtol=1e-10)
    tuned = SGLDCV(center=center, model=declared(), progressbar=False).plan
    np.testing.assert_array_equal(tuned.method.center, theta)


# A center given by values of the variables on the model's own scale

TRANSFORMED = pytest.mark.parametrize("kind", ["linear", "mixture"])


def own_scale(model, target, theta):
    """Values of the free variables on the model's own scale, by PyMC alone."""
    graphs = model.replace_rvs_by_values(model.free_RVs)
    values = model.compile_fn(graphs, inputs=model.value_vars, mode=PYTHON)(target.unflatten(theta))
    return {rv.name: value for rv, value in zip(model.free_RVs, values)}


@TRANSFORMED
def test_a_center_on_the_models_own_scale_is_the_unconstrained_point(kind):
    """sigma > 0; a simplex and an ordered vector."""
    model = build(kind, 40, 10)
    target = read_model(model)
    theta = np.random.default_rng(0).normal(size=target.size)
    again = unconstrained(target, own_scale(model, target, theta))
    np.testing.assert_allclose(again, theta, rtol=1e-9, atol=1e-9)


def test_values_on_the_models_own_scale_are_transformed():
    target = read_model(build("linear", 40, 10))
    theta = unconstrained(target, {"sigma": 3.0, "beta": [1.0, 2.0, 4.0]})
    np.testing.assert_allclose(theta, [1.0, 2.0, 4.0, np.log(3.0)], rtol=1e-12)


@pytest.mark.parametrize("given", [{}, {"sigma": 3.0}], ids=["all", "some"])
def test_variables_left_out_stay_at_the_models_initial_point(given):
    model = build("linear", 40, 10)
    theta = unconstrained(read_model(model), given)
    np.testing.assert_allclose(theta[:3], model.initial_point()["beta"])


def test_a_start_without_a_gradient_is_left_as_nuts_would():
    """A distance, whose derivative is 0/0 at PyMC's own starting point."""
    x = np.linspace(0.5, 1.5, 200)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        mean = b[0] * x + 0.1 * pm.math.sqrt(b[0] ** 2 + b[1] ** 2) * x**2
        pm.Normal("y", mean, 0.1, observed=0.8 * x + 0.08 * x**2)
    center = find_center(model, random_seed=1, progressbar=False)
    assert abs(center.theta[0] - 0.8) < 0.05
