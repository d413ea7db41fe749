# SPDX-License-Identifier: Apache-2.0
"""Langevin dynamics on a Gaussian posterior, where every update and every variance is known.

y ~ N(Mᵀμ, s²) with known M and s: the posterior of μ is a correlated Gaussian, and the noise of the
standard gradient estimator does not depend on μ. With n = N there is no gradient noise at all.

Statistical tests have a fixed seed and a tolerance of five standard errors; each makes fewer than
six comparisons, so that another seed would fail it about three times in a million.
"""

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.chain import Chain, Divergence, Method
from pymc_sgcv.gradients import STANDARD
from pymc_sgcv.problem import Problem
from pymc_sgcv.schedules import PolynomialDecay, step_sizes
from pymc_sgcv.xoshiro import below, normal

N, n = 8, 2
_rng = np.random.default_rng(30)
M, S, TAU = np.array([[1.0, 0.6], [-0.3, 0.8]]), np.array([0.5, 0.9]), 2.0
Y = np.array([0.7, -0.4]) + S * _rng.normal(size=(N, 2))
SLOPES = Y / S**2 @ M.T  # what each datum adds to the gradient, apart from a common linear part
HESSIAN = N * (M / S**2) @ M.T + np.eye(2) / TAU**2
COVARIANCE = np.linalg.inv(HESSIAN)
MODE = COVARIANCE @ SLOPES.sum(0)
F = np.linalg.cholesky(COVARIANCE)
NOISE = F.T @ (N**2 / n * np.cov(SLOPES.T, bias=True)) @ F  # whitened, rows with replacement

DENSE = (COVARIANCE, F)
DIAGONAL = (np.array([0.03, 0.05]), np.array([0.2, 0.1]))
UNLIKE = (np.array([[0.04, 0.01], [0.01, 0.05]]), np.array([[0.1, 0.3], [-0.2, 0.1]]))
PRECONDITIONERS = {"dense": DENSE, "diagonal": DIAGONAL, "none": (np.ones(2), np.ones(2))}
PRECONDITIONERS |= {"noise of its own": UNLIKE}
INTEGRATOR = pytest.mark.parametrize("integrator", ["euler", "lm"])
PRECONDITIONER = pytest.mark.parametrize("preconditioner", PRECONDITIONERS)


def full_gradient(mu):
    return -HESSIAN @ (mu - MODE)


def minibatch_gradient(mu, rows):
    return full_gradient(mu) + N / len(rows) * (SLOPES[rows] - SLOPES.mean(0)).sum(0)


def problem_of(batch_size, subsampling):
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=batch_size)
        mu = pm.Normal("mu", 0, TAU, shape=2)
        pm.Normal("y", (M * mu[:, None]).sum(0), S, observed=y, total_size=N)
    return Problem(model, subsampling=subsampling)


@pytest.fixture(scope="module")
def full():
    return problem_of(N, "block")


@pytest.fixture(scope="module")
def noisy():
    return problem_of(n, "iid")


def started(problem, integrator, matrices, start=MODE + 0.3, seed=1):
    chain = Chain(problem, Method(STANDARD, integrator, *matrices))
    chain.start(start, np.random.default_rng(seed))
    return chain


def run(chain, steps, thin=1, calls=1):
    """Draws and gradients of the compiled chain."""
    draws, gradients = np.empty((2, len(steps) // thin, 2))
    for part in np.split(np.arange(len(draws)), calls):
        own = np.concatenate([steps[i * thin : (i + 1) * thin] for i in part])
        moved, slopes = np.empty((2, len(part), 2))
        chain.run(own, thin, moved, slopes)
        draws[part], gradients[part] = moved, slopes
    return draws, gradients


def recursion(chain, steps):
    """The same in numpy, from where `chain` stands; rows are drawn before noise."""
    A, B = (np.diag(m) if m.ndim == 1 else m for m in (chain.method.drift, chain.method.noise))
    theta, previous, state = chain.theta.copy(), chain.zeta.copy(), chain.random.copy()
    (rows,), draws, gradients = chain.problem.rows, [], []
    for h in steps:
        if rows.batch_size == N:
            below(state, N)  # where the block starts: it holds all the rows anyway
            gradient = full_gradient(theta)
        else:
            gradient = minibatch_gradient(theta, [below(state, N) for _ in range(n)])
        draws.append(theta)
        gradients.append(gradient)
        fresh = np.array([normal(state), normal(state)])
        zeta = fresh if chain.method.integrator == "euler" else (fresh + previous) / 2
        theta = theta + h / 2 * A @ gradient + np.sqrt(h) * B @ zeta
        previous = fresh
    return np.array(draws), np.array(gradients)


STEPS = step_sizes(PolynomialDecay(0.5, 3.0, 0.4), 0, 60)


def check_recursion(chain, steps):
    expected = recursion(chain, steps)
    draws, gradients = run(chain, steps)
    np.testing.assert_allclose(draws, expected[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradients, expected[1], rtol=1e-10, atol=1e-10)


@INTEGRATOR
@PRECONDITIONER
def test_the_compiled_chain_is_the_recursion(full, integrator, preconditioner):
    steps = STEPS * (0.05 if preconditioner == "none" else 1)
    check_recursion(started(full, integrator, PRECONDITIONERS[preconditioner]), steps)


@INTEGRATOR
def test_the_compiled_chain_is_the_recursion_with_minibatches(noisy, integrator):
    check_recursion(started(noisy, integrator, DENSE), STEPS)


@pytest.mark.parametrize("thin", [1, 3])
def test_a_recorded_gradient_is_that_of_the_recorded_draw(full, thin):
    draws, gradients = run(started(full, "lm", DENSE), STEPS, thin)
    np.testing.assert_allclose(gradients, (draws - MODE) @ -HESSIAN, rtol=1e-10, atol=1e-10)


@INTEGRATOR
def test_thinning_records_every_kth_iteration(full, integrator):
    every, third = (run(started(full, integrator, DENSE), STEPS, thin) for thin in (1, 3))
    np.testing.assert_array_equal(third[0], every[0][2::3])
    np.testing.assert_array_equal(third[1], every[1][2::3])


@INTEGRATOR
def test_a_chain_run_in_parts_is_the_chain_run_at_once(noisy, integrator):
    one, parts = (run(started(noisy, integrator, DENSE), STEPS, 2, calls) for calls in (1, 5))
    np.testing.assert_array_equal(parts[0], one[0])


def test_another_seed_gives_another_chain(full):
    one, other = (run(started(full, "lm", DENSE, seed=seed), STEPS)[0] for seed in (1, 2))
    assert (one[1:] != other[1:]).all()


def test_the_chain_counts_its_iterations(full):
    chain = started(full, "lm", DENSE)
    run(chain, STEPS[:12], thin=3)
    assert chain.iteration == 12


def test_a_chain_that_leaves_the_finite_numbers_stops_and_says_where(full):
    chain = started(full, "euler", DENSE)
    with pytest.raises(Divergence, match=r"mu\[\d\] is not finite at iteration \d+"):
        run(chain, np.full(1000, 1e3))
    assert 0 < chain.iteration < 1000


ITERATIONS = 400_000


def whitened(problem, integrator, h, seed=2):
    draws, _ = run(started(problem, integrator, DENSE, MODE, seed), np.full(ITERATIONS, h))
    return np.linalg.solve(F, (draws[100:] - MODE).T).T


def check_moments(x, predicted, h):
    """Mean zero and the predicted covariance, within five standard errors.

    In whitened coordinates the chain is a first-order autoregression with ρ = 1 − h/2, whose mean
    has variance v(1+ρ)/(1−ρ)/T and whose second moments have (vᵢvⱼ + cᵢⱼ²)(1+ρ²)/(1−ρ²)/T. The
    averaged noises of LM lengthen the memory by one iteration: a factor 1/ρ at most.
    """
    rho, v = 1 - h / 2, np.diag(predicted)
    slack = 5 / np.sqrt(len(x) * rho)
    assert (np.abs(x.mean(0)) < slack * np.sqrt(v * (1 + rho) / (1 - rho))).all()
    error = np.sqrt((np.outer(v, v) + predicted**2) * (1 + rho**2) / (1 - rho**2))
    assert (np.abs(x.T @ x / len(x) - predicted) < slack * error).all()


@pytest.mark.parametrize("h", [0.3, 1.0])
def test_eulers_stationary_variance_is_one_over_one_minus_a_quarter_h(full, h):
    check_moments(whitened(full, "euler", h), np.eye(2) / (1 - h / 4), h)


@pytest.mark.parametrize("h", [0.3, 1.0])
def test_leimkuhler_matthews_stationary_variance_is_the_posteriors(full, h):
    check_moments(whitened(full, "lm", h), np.eye(2), h)


def test_gradient_noise_inflates_eulers_variance_as_predicted(noisy):
    h = 0.5
    check_moments(whitened(noisy, "euler", h), (np.eye(2) + h / 4 * NOISE) / (1 - h / 4), h)


def test_gradient_noise_inflates_leimkuhler_matthews_variance_as_predicted(noisy):
    h = 0.5
    check_moments(whitened(noisy, "lm", h), np.eye(2) + h / 4 * NOISE / (1 - h / 4), h)


def test_the_predictions_are_far_enough_apart_to_be_told_apart():
    """A wrong factor of two in h or in the noise is many times the tolerance."""
    assert 1 / (1 - 0.3 / 4) > 1.08
    assert 1.0 < np.linalg.eigvalsh(NOISE).min() < np.linalg.eigvalsh(NOISE).max() < 10
