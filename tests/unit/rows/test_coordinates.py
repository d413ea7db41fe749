# SPDX-License-Identifier: Apache-2.0
"""The sampler's coordinates are a change of variables, with the density that belongs to it.

One model with group effects of all forms: centred and not, nested, with a scale for each,
correlated either way, summing to zero. Derivatives are compared with five-point differences.
"""

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.model.start import PYTHON
from pymc_sgcv.rows.coordinates import Coordinates
from pymc_sgcv.rows.problem import Problem

N = 24
_rng = np.random.default_rng(70)
Y = _rng.normal(size=N)
FOUR, THREE = np.arange(N) % 4, np.arange(N) % 3
STENCIL = np.array([1.0, -8.0, 8.0, -1.0]) / 12
MOVES = np.array([-2.0, -1.0, 1.0, 2.0])


def factor(name):
    sd = pm.HalfNormal.dist(1.0, shape=2)
    return pm.LKJCholeskyCov(name, n=2, eta=2, sd_dist=sd, compute_corr=True)[0]


def declared():
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 1), pm.HalfNormal("tau", 1, shape=2)
        upper = pm.Normal("upper", mu, tau[0], shape=2)
        lower = pm.StudentT("lower", nu=4, mu=upper[[0, 1, 0]], sigma=tau[[0, 1, 1]], shape=3)
        z = pm.Normal("z", 0, 1, shape=4)
        mean = lower[THREE] + (upper[[0, 0, 1, 1]] + tau[1] * z)[FOUR]
        L = factor("L")
        rows = pm.Normal("rows", 0, 1, shape=(3, 2))
        columns = pm.Normal("columns", 0, 1, shape=(2, 3))
        mean += (rows @ L.T)[THREE, 0] + (mu + L @ columns)[1, THREE]
        mean += pm.MvNormal("joint", [0, 1], chol=L, shape=(3, 2))[THREE, 1]
        mean += pm.ZeroSumNormal("zero", tau[0], shape=4)[FOUR]
        pm.Normal("y", mean, 1, observed=Y)
    return model


@pytest.fixture(scope="module")
def problem():
    return Problem(declared(), batch_size=8)


@pytest.fixture(scope="module")
def degree(problem):
    return np.random.default_rng(71).uniform(size=problem.change.geometry.size)


@pytest.fixture(scope="module")
def phi(problem):
    return 0.7 * np.random.default_rng(72).normal(size=problem.size)


def jacobians(function, points, h=1e-3):
    """∂f/∂x of a function of rows at each of (n, d) points: (n, d, d), rows of f first."""
    n, d = points.shape
    moves = h * MOVES[:, None, None] * np.eye(d)
    moved = (points[:, None, None] + moves).reshape(-1, d)
    values = function(moved).reshape(n, 4, d, d)
    return np.einsum("k,nkij->nji", STENCIL / h, values)


def all_degrees(problem):
    """1 for effects that were declared centred, 0 for others: the user's own."""
    own = np.empty(problem.change.geometry.size)
    for block in problem.change.geometry.blocks:
        own[block.start : block.stop] = not block.effect.offset
    return own


def test_all_forms_are_there(problem):
    names = [block.parameter.rv_name for block in problem.change.geometry.blocks]
    assert set(names) == {"upper", "lower", "z", "rows", "columns", "joint", "zero"}
    assert names.index("upper") < min(names.index("lower"), names.index("z"))


def test_find_is_the_inverse_of_place(problem, degree, phi):
    coordinates = problem.coordinates(degree)
    np.testing.assert_allclose(coordinates.find(coordinates.place(phi)), phi, rtol=0, atol=1e-12)
    many = phi + np.linspace(-0.5, 0.5, 5)[:, None]
    np.testing.assert_allclose(coordinates.find(coordinates.place(many)), many, rtol=0, atol=1e-12)


def test_points_in_a_stack_are_placed_as_one_by_one(problem, degree, phi):
    coordinates, many = problem.coordinates(degree), np.stack([phi, 2 * phi, -phi])
    for one, placed in zip(many, coordinates.place(many), strict=True):
        np.testing.assert_array_equal(coordinates.place(one), placed)
    assert coordinates.place(phi).shape == phi.shape


def test_at_the_degree_of_its_declaration_an_effect_is_what_the_user_wrote(problem, phi):
    """Correlated effects in units of their deviations, D⁻¹Lz, where z was declared."""
    theta, expected = problem.coordinates(all_degrees(problem)).place(phi), phi.copy()
    place = {p.rv_name: slice(p.start, p.stop) for p in problem.target.parameters}
    packed = problem.constrained(phi)["L"]
    L = np.array([[packed[0], 0], [packed[1], packed[2]]])
    D = np.diag(np.sqrt((L**2).sum(1)))
    rows, columns = phi[place["rows"]].reshape(3, 2), phi[place["columns"]].reshape(2, 3)
    expected[place["rows"]] = np.linalg.solve(L, D @ rows.T).T.ravel()
    expected[place["columns"]] = np.linalg.solve(L, D @ columns).ravel()
    np.testing.assert_allclose(theta, expected, rtol=0, atol=1e-12)


def test_other_parameters_stay_as_they_are(problem, degree, phi):
    moved = np.zeros(problem.size, dtype=bool)
    for block in problem.change.geometry.blocks:
        moved[block.parameter.start : block.parameter.stop] = True
    theta = problem.coordinates(degree).place(phi)
    np.testing.assert_array_equal(theta[~moved], phi[~moved])
    assert (theta[moved] != phi[moved]).all()


def test_an_effect_is_partially_centred_as_the_formula_says(problem, degree, phi):
    """u = μ + τ^(1−λ) (w − λμ) for the centred `upper`, z = (u − μ)/τ for the offset `z`."""
    place = {p.rv_name: slice(p.start, p.stop) for p in problem.target.parameters}
    own = {
        block.parameter.rv_name: degree[block.start : block.stop]
        for block in problem.change.geometry.blocks
    }
    theta = problem.coordinates(degree).place(phi)
    [mu], tau = theta[place["mu"]], np.exp(theta[place["tau"]])
    λ, w = own["upper"], phi[place["upper"]]
    upper = mu + tau[0] ** (1 - λ) * (w - λ * mu)
    np.testing.assert_allclose(theta[place["upper"]], upper, rtol=1e-12)
    λ, w, location = own["z"], phi[place["z"]], upper[[0, 0, 1, 1]]
    expected = tau[1] ** -λ * (w - λ * location)
    np.testing.assert_allclose(theta[place["z"]], expected, rtol=1e-12)


def test_pull_is_the_gradient_of_the_density_of_phi(problem, degree, phi):
    coordinates, target = problem.coordinates(degree), problem.target
    logp = problem.model.compile_logp(mode=PYTHON)

    def log_density(points):
        volumes = np.linalg.slogdet(jacobians(coordinates.place, points))[1]
        thetas = coordinates.place(points)
        return volumes + [float(logp(target.unflatten(theta))) for theta in thetas]

    h = 1e-2
    moved = phi + h * MOVES[:, None, None] * np.eye(problem.size)
    values = log_density(moved.reshape(-1, problem.size)).reshape(4, -1)
    expected = STENCIL / h @ values
    found = coordinates.pull(phi, problem.gradient(coordinates.place(phi)[None])[0])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_pull_of_several_points_is_that_of_each(problem, degree, phi):
    coordinates, many = problem.coordinates(degree), np.stack([phi, -phi])
    gradients = np.random.default_rng(73).normal(size=many.shape)
    for one, gradient, pulled in zip(
        many, gradients, coordinates.pull(many, gradients), strict=True
    ):
        np.testing.assert_array_equal(coordinates.pull(one, gradient), pulled)


def test_turn_is_the_transposed_jacobian(problem, degree, phi):
    coordinates, d = problem.coordinates(degree), problem.size
    [J] = jacobians(coordinates.place, phi[None])
    a, b = np.random.default_rng(74).normal(size=(2, d))
    np.testing.assert_allclose(coordinates.turn(phi, a), J.T @ a, rtol=1e-8, atol=1e-8)
    both = 2 * coordinates.turn(phi, a) - 3 * coordinates.turn(phi, b)
    np.testing.assert_allclose(coordinates.turn(phi, 2 * a - 3 * b), both, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(coordinates.turn(phi, 0 * a), 0)


def test_the_jacobian_between_two_degrees(problem, degree, phi):
    one, other = problem.coordinates(degree), problem.coordinates(1 - degree)
    [expected] = jacobians(lambda points: other.find(one.place(points)), phi[None])
    np.testing.assert_allclose(one.jacobian(other, phi), expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(one.jacobian(one, phi), np.eye(problem.size), atol=1e-10)


def test_log_scales_are_those_of_every_effect(problem, phi):
    logs = problem.change.log_scales(phi)
    place = {p.rv_name: slice(p.start, p.stop) for p in problem.target.parameters}
    tau = phi[place["tau"]]
    expected = {"upper": tau[[0, 0]], "lower": tau[[0, 1, 1]], "z": tau[[1] * 4]}
    for block in problem.change.geometry.blocks:
        name = block.parameter.rv_name
        if name in expected:
            np.testing.assert_allclose(logs[block.start : block.stop], expected[name], rtol=1e-12)


def test_without_a_degree_effects_are_not_centred(problem):
    np.testing.assert_array_equal(problem.coordinates().degree, 0)


def test_without_a_change_everything_stays():
    problem = Problem(declared(), batch_size=8, reparametrize=False)
    point = np.random.default_rng(75).normal(size=problem.size)
    coordinates = problem.coordinates()
    assert problem.change is None and coordinates == Coordinates()
    assert coordinates.degree is None and not coordinates.record.any()
    for same in (coordinates.place(point), coordinates.find(point)):
        assert same is point
    assert coordinates.pull(0 * point, point) is point
    assert coordinates.turn(0 * point, point) is point
