# SPDX-License-Identifier: Apache-2.0
"""The constants of a model with two likelihoods are those of Hessians by pencil and paper."""

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv import theory
from pymc_sgcv.kernel.preconditioners import Diagonal
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import center_at
from pymc_sgcv.theory.constants import constants_of

X = np.random.default_rng(12).normal(size=(60, 2))
Y = X @ np.array([1.0, -0.5]) + 0.7 * np.random.default_rng(13).normal(size=60)
EXPOSURE = np.random.default_rng(14).uniform(0.5, 2.0, 40)
COUNTS = np.random.default_rng(15).poisson(EXPOSURE * np.e).astype("int32")
POINT = np.array([0.9, -0.4, -0.3])


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        x, y = pm.Minibatch(X, Y, batch_size=6)
        e, z = pm.Minibatch(EXPOSURE, COUNTS, batch_size=2)
        beta, sigma = pm.Normal("beta", 0, 2, shape=2), pm.HalfNormal("sigma", 1)
        pm.Normal("y", x @ beta, sigma, observed=y, total_size=60)
        pm.Poisson("z", e * pm.math.exp(beta[0]), observed=z, total_size=40)
    return model


@pytest.fixture(scope="module")
def problem(model):
    return Problem(model)


def row_hessians(theta):
    """Of both likelihoods, with sigma = eˢ: (60, 3, 3) and (40, 3, 3)."""
    residual, precision = Y - X @ theta[:2], np.exp(-2 * theta[2])
    normal = np.zeros((60, 3, 3))
    normal[:, :2, :2] = precision * X[:, :, None] * X[:, None]
    normal[:, :2, 2] = normal[:, 2, :2] = 2 * precision * residual[:, None] * X
    normal[:, 2, 2] = 2 * precision * residual**2
    poisson = np.zeros((40, 3, 3))
    poisson[:, 0, 0] = EXPOSURE * np.exp(theta[0])
    return normal, poisson


def exact_constants(theta, metric):
    rows = [metric.T @ H @ metric for H in row_hessians(theta)]
    prior = metric.T @ np.diag([0.25, 0.25, 2 * np.exp(2 * theta[2])]) @ metric
    values = np.linalg.eigvalsh(prior + rows[0].sum(0) + rows[1].sum(0))
    norms = [np.abs(np.linalg.eigvalsh(H)).max(1) for H in rows]
    # six rows of one likelihood to two of the other
    uniform = [theory.lipschitz_constant(L) ** 2 * 8 / n for L, n in zip(norms, (6, 2))]
    weighted = [L.sum() ** 2 * 8 / n for L, n in zip(norms, (6, 2))]
    return values[0], values[-1], np.sqrt(sum(uniform)), np.sqrt(sum(weighted))


def all_of(found):
    return found.m, found.M, found.lipschitz, found.lipschitz_weighted


def test_the_constants_are_those_of_the_exact_hessian(problem):
    center = center_at(problem, POINT)
    found = constants_of(problem, center)
    np.testing.assert_allclose(all_of(found), exact_constants(POINT, np.eye(3)), rtol=1e-4)
    white = exact_constants(POINT, np.asarray(center.factor))
    np.testing.assert_allclose(all_of(found.preconditioned), white, rtol=1e-4)
    assert (found.d, found.n_rows, found.rows_seen, found.rows_error) == (3, 100, 100, 0.0)


def test_the_preconditioner_makes_the_condition_number_nearly_one(problem):
    found = constants_of(problem, center_at(problem, POINT))
    assert found.preconditioned.condition < 1.2 < 2 < found.condition


def test_a_diagonal_preconditioner_is_understood(problem):
    scales = np.array([0.1, 0.2, 0.3])
    center = center_at(problem, POINT, Diagonal(scales))
    found = constants_of(problem, center).preconditioned
    np.testing.assert_allclose(all_of(found), exact_constants(POINT, np.diag(scales)), rtol=1e-4)
    np.testing.assert_allclose(found.center_error, center.distance, rtol=1e-9)


def test_the_center_error_is_the_newton_step_in_each_set_of_coordinates(problem):
    center = center_at(problem, POINT)
    found = constants_of(problem, center)
    F = np.asarray(center.factor)
    step = F @ F.T @ center.gradient
    np.testing.assert_allclose(found.center_error, np.linalg.norm(step), rtol=1e-9)
    np.testing.assert_allclose(found.preconditioned.center_error, center.distance, rtol=1e-9)


def test_further_points_can_only_make_the_constants_worse(problem):
    center = center_at(problem, POINT)
    one, many = (constants_of(problem, center, draws=draws) for draws in (0, 5))
    assert many.m < one.m and many.M > one.M and many.lipschitz > one.lipschitz


def test_a_sample_of_rows_says_how_uncertain_it_is(problem):
    """Within five of its standard errors, which has a chance of less than 1e-4 to fail."""
    center = center_at(problem, POINT)
    everything, some = constants_of(problem, center), constants_of(problem, center, rows=30)
    assert some.rows_seen == 60
    assert 0.02 < some.rows_error < 0.5
    ratio = some.lipschitz / everything.lipschitz
    assert abs(ratio - 1) < 5 * some.rows_error


def test_a_model_gives_a_plan(model):
    found = theory.constants(model, {"beta": POINT[:2], "sigma": np.exp(POINT[2])})
    np.testing.assert_allclose(all_of(found), exact_constants(POINT, np.eye(3)), rtol=1e-4)
    for arguments in (found.as_arguments(), found.preconditioned.as_arguments(weighted=True)):
        settings = theory.plan(0.3, **arguments)
        assert settings.bound <= settings.target
    with pytest.raises(TypeError, match="must be a Center from find_center or a dict"):
        theory.constants(model, POINT)
