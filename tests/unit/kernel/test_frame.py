# SPDX-License-Identifier: Apache-2.0
"""Chains move φ by unbiased estimates of ∇_φ, and record θ with unbiased estimates of ∇_θ.

A Gaussian model with effects of three groups, declared centred and not. Six rows in blocks of two:
every minibatch turns up among a few hundred estimates, so that the mean over minibatches is exact.
"""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.kernel.chain import Chain, Method
from pymc_sgcv.kernel.dynamics import BAOAB
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE, SAGA, STANDARD
from pymc_sgcv.kernel.preconditioners import Diagonal
from pymc_sgcv.model.start import PYTHON
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center
from pymc_sgcv.setup.weights import prefer

GROUP = np.array([0, 1, 2, 0, 1, 0])
Y = np.array([0.3, -1.2, 0.8, 1.9, -0.4, 0.1])
N, D = len(Y), 6
DEGREE = np.array([0.2, 0.7, 0.9])
_rng = np.random.default_rng(80)
PHI, CENTER = 0.6 * _rng.normal(size=(2, D))
SCALES = Diagonal(np.full(D, 0.3))
ROUNDING = 1e-10


def declared(offset):
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 1), pm.HalfNormal("tau", 1)
        if offset:
            u = mu + tau * pm.Normal("z", 0, 1, shape=3)
        else:
            u = pm.Normal("u", mu, tau, shape=3)
        pm.Normal("y", u[GROUP], pm.HalfNormal("sigma", 1), observed=Y)
    return model


@pytest.fixture(scope="module", params=[False, True], ids=["centred", "offset"])
def problem(request):
    return Problem(declared(request.param), batch_size=2)


@pytest.fixture(scope="module")
def both():
    return [Problem(declared(offset), batch_size=2) for offset in (False, True)]


def with_batch(problem, n):
    problem.resize([n])
    return problem


def method_of(problem, kind, **kwargs):
    method = Method(kind, BAOAB, SCALES, degree=DEGREE)
    if kind == CONTROL_VARIATE:
        center = problem.coordinates(DEGREE).place(CENTER)
        constant = problem.likelihood_gradient(center[None])[0]
        method = replace(method, center=center, constant=constant)
    return replace(method, **kwargs)


def at(problem, method, phi, seed=0, iterations=1, own=True, h=0.0):
    """Draws and gradients from a chain that begins at φ."""
    chain = Chain(problem, method)
    chain.start(phi, np.random.default_rng(seed))
    draws, gradients = np.empty((2, iterations, D))
    chain.run(np.full(iterations, h), 1, draws, gradients, own=own)
    return draws, gradients


def exact(problem, phi):
    """∇_φ and ∇_θ over all rows; the latter by PyMC."""
    coordinates = problem.coordinates(DEGREE)
    theta = coordinates.place(phi)
    point = problem.target.unflatten(theta)
    slope = problem.model.compile_dlogp(mode=PYTHON)(point)
    return coordinates.pull(phi, slope), slope


FOLLOWS = pytest.mark.parametrize("follows", [False, True], ids=["constant", "follows"])
KIND = pytest.mark.parametrize("kind", [STANDARD, CONTROL_VARIATE, SAGA], ids=lambda k: k.name)


@KIND
def test_with_all_rows_both_gradients_are_exact(problem, kind):
    with_batch(problem, N)
    method, (of_phi, of_theta) = method_of(problem, kind), exact(problem, PHI)
    draws, gradients = at(problem, method, PHI)
    np.testing.assert_array_equal(draws[0], PHI)
    np.testing.assert_allclose(gradients[0], of_phi, rtol=ROUNDING, atol=ROUNDING)
    draws, gradients = at(problem, method, PHI, own=False)
    np.testing.assert_array_equal(draws[0], problem.coordinates(DEGREE).place(PHI))
    np.testing.assert_allclose(gradients[0], of_theta, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize(
    ("kind", "follows"),
    [(STANDARD, False), (CONTROL_VARIATE, False), (CONTROL_VARIATE, True)],
    ids=["standard", "control variate", "one that follows"],
)
@pytest.mark.parametrize("own", [True, False], ids=["phi", "theta"])
def test_the_mean_over_all_minibatches_is_the_exact_gradient(problem, kind, follows, own):
    """Of six rows there are six blocks of two, all as likely; 400 estimates miss none of them.

    But for once in 10³⁰ times: 6 (5/6)⁴⁰⁰.
    """
    method = method_of(with_batch(problem, 2), kind, follows=follows)
    estimates = np.stack([at(problem, method, PHI, seed, own=own)[1][0] for seed in range(400)])
    _, first = np.unique(estimates.round(7), axis=0, return_index=True)
    assert len(first) == N
    expected = exact(problem, PHI)[0 if own else 1]
    np.testing.assert_allclose(estimates[first].mean(0), expected, rtol=1e-9, atol=1e-9)


@FOLLOWS
def test_at_the_center_a_control_variate_has_no_noise(problem, follows):
    """In φ too: both parts go there by one Jacobian."""
    method = method_of(with_batch(problem, 2), CONTROL_VARIATE, follows=follows)
    expected = exact(problem, CENTER)
    for own in (True, False):
        for seed in range(5):
            _, [gradient] = at(problem, method, CENTER, seed, own=own)
            expected_here = expected[0 if own else 1]
            np.testing.assert_allclose(gradient, expected_here, rtol=1e-9, atol=1e-9)


def test_a_center_that_moves_takes_its_jacobian_along(problem):
    """Moved to the chain before the first estimate, it leaves no noise there."""
    method = method_of(with_batch(problem, 2), CONTROL_VARIATE, refresh=10)
    _, [gradient] = at(problem, method, PHI)
    np.testing.assert_allclose(gradient, exact(problem, PHI)[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", [STANDARD, CONTROL_VARIATE], ids=lambda k: k.name)
def test_differences_of_pairs_are_those_of_estimates_in_phi(problem, kind):
    method = method_of(with_batch(problem, 2), kind)
    positions = np.tile(PHI, (300, 1))
    differences = Chain(problem, method).pair_differences(positions, np.random.default_rng(1))
    estimates = np.stack([at(problem, method, PHI, seed)[1][0] for seed in range(400)])
    _, first = np.unique(estimates.round(7), axis=0, return_index=True)
    possible = (estimates[first][:, None] - estimates[first]).reshape(-1, D)
    gaps = np.abs(differences[:, None] - possible).max(-1).min(1)
    assert gaps.max() < 1e-8


def test_the_recorded_parameters_are_those_of_the_positions(problem):
    method = method_of(with_batch(problem, 2), CONTROL_VARIATE)
    phis, _ = at(problem, method, PHI, iterations=50, h=0.1)
    thetas, _ = at(problem, method, PHI, iterations=50, own=False, h=0.1)
    assert np.ptp(phis, axis=0).min() > 0
    np.testing.assert_array_equal(problem.coordinates(DEGREE).place(phis), thetas)


def noise_at(problem, phi, follows):
    """Root mean square of the noise of each component of ∇_φ over all minibatches."""
    method = method_of(with_batch(problem, 2), CONTROL_VARIATE, follows=follows)
    points = np.tile(phi, (400, 1))
    differences = Chain(problem, method).pair_differences(points, np.random.default_rng(0))
    return np.sqrt(np.mean(differences**2, axis=0))


def test_where_effects_vanish_a_control_variate_that_follows_has_no_noise(problem):
    """τ = e⁻¹²: what rows say of τ is nothing there, and the other keeps the size it has at τ̂."""
    coordinates = problem.coordinates(DEGREE)
    theta = coordinates.place(PHI).copy()
    [tau] = [p.start for p in problem.target.parameters if p.rv_name == "tau"]
    [effects] = [slice(p.start, p.stop) for p in problem.target.parameters if p.stop - p.start > 1]
    theta[tau] = -12.0
    if problem.target.parameters[2].rv_name == "u":  # centred: effects as near their mean
        theta[effects] = theta[0] + np.exp(-12.0) * np.array([0.5, -1.0, 0.3])
    phi = coordinates.find(theta)
    aside = np.exp(-12.0 * 0.2)  # τ^λ of the least centred effect is what is left of it
    assert noise_at(problem, phi, True)[tau] < 5 * aside * noise_at(problem, phi, False)[tau]


@pytest.mark.parametrize(
    ("kind", "follows"), [(STANDARD, False), (CONTROL_VARIATE, False), (CONTROL_VARIATE, True)]
)
def test_both_declarations_of_one_model_move_the_same_way(both, kind, follows):
    """The same φ for the same seed: the user's form decides nothing but what is recorded.

    Not of SAGA, whose table holds gradients with respect to the user's parameters.
    """
    (one, other), paths = both, []
    for problem in (one, other):
        with_batch(problem, 2)
        method = method_of(problem, kind, follows=follows)
        paths.append(at(problem, method, PHI, 3, iterations=100, h=0.1))
    for a, b in zip(*paths, strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_a_chain_goes_on_where_another_was(problem):
    method = method_of(with_batch(problem, 2), CONTROL_VARIATE, refresh=7)
    whole, _ = at(problem, method, PHI, iterations=30, h=0.1)
    first, second = Chain(problem, method), Chain(problem, method)
    first.start(PHI, np.random.default_rng(0))
    halves, gradients = np.empty((2, 15, D)), np.empty((15, D))
    first.run(np.full(15, 0.1), 1, halves[0], gradients, own=True)
    second.resume(first.state())
    second.run(np.full(15, 0.1), 1, halves[1], gradients, own=True)
    np.testing.assert_allclose(halves.reshape(30, D), whole, rtol=1e-12, atol=1e-12)


def test_preferential_weights_are_the_same_in_both_forms(both):
    """They are those of ∇_φ, each part of it by the Jacobian of its own point."""
    found = []
    for problem in both:
        theta = problem.coordinates(DEGREE).place(CENTER)
        center = Center({}, theta, theta, theta, SCALES, 0.0, 0.0, True, CENTER, DEGREE)
        prefer(problem, center, False, np.random.default_rng(1))
        found.append(problem.layout.weights[0])
        problem.lay_out(problem.first_layout())
    assert np.ptp(found[0]) > 0.1
    np.testing.assert_allclose(*found, rtol=ROUNDING)
