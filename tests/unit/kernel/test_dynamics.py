# SPDX-License-Identifier: Apache-2.0
"""All dynamics on a Gaussian posterior, where every update and every variance is known.

y ~ N(Mᵀμ, s²) with known M and s: the posterior of μ is a correlated Gaussian, and the noise of the
standard gradient estimator does not depend on μ. With n = N there is no gradient noise at all, and
with a control variate none either, since all rows have the same Hessian.

Statistical tests have a fixed seed and a tolerance of five standard errors; each makes fewer than
six comparisons, so that another seed would fail it about three times in a million.
"""

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.engine.xoshiro import below, normal
from pymc_sgcv.kernel.chain import Chain, Divergence, Method
from pymc_sgcv.kernel.dynamics import (
    BADODAB,
    BAOAB,
    EULER,
    HAMILTON_EULER,
    THERMOSTAT_EULER,
)
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE, SAGA, SAGA_BLOCKS, STANDARD
from pymc_sgcv.kernel.preconditioners import Dense, Diagonal
from pymc_sgcv.kernel.schedules import PolynomialDecay, step_sizes
from pymc_sgcv.kernel.stationary import iterations_per_draw, linearised
from pymc_sgcv.rows.problem import Problem
from tests.models import regression

N, n = 8, 2
_rng = np.random.default_rng(30)
M, S, TAU = np.array([[1.0, 0.6], [-0.3, 0.8]]), np.array([0.5, 0.9]), 2.0
Y = np.array([0.7, -0.4]) + S * _rng.normal(size=(N, 2))
SLOPES = Y / S**2 @ M.T  # what each datum adds to the gradient, apart from a common linear part
HESSIAN = N * (M / S**2) @ M.T + np.eye(2) / TAU**2
COVARIANCE = np.linalg.inv(HESSIAN)
MODE = COVARIANCE @ SLOPES.sum(0)
F = np.linalg.cholesky(COVARIANCE)
SPREAD = N**2 / n * np.cov(SLOPES.T, bias=True)  # of the gradient, rows with replacement
NOISE = F.T @ SPREAD @ F  # the same, whitened

ONES = np.ones(2)
DENSE = Dense(F), ONES
PRECONDITIONERS = {
    "dense": DENSE,
    "diagonal": (Diagonal(np.array([0.17, 0.22])), ONES),
    "none": (Diagonal(ONES), ONES),
    "less noise": (Dense(np.array([[0.2, 0.1], [-0.1, 0.25]])), np.array([0.9, 0.7])),
}
DYNAMICS = {
    "euler": {"dynamics": EULER},
    "lm": {"dynamics": BAOAB},
    "sghmc euler": {"dynamics": HAMILTON_EULER, "friction": 1.3},
    "baoab": {"dynamics": BAOAB, "friction": 0.8},
    "baoab refreshed": {"dynamics": BAOAB, "friction": 0.5, "leapfrog": 4},
    "leapfrog": {"dynamics": BAOAB, "friction": 0.0, "leapfrog": 3},
    "sghmc euler refreshed": {"dynamics": HAMILTON_EULER, "friction": 0.7, "leapfrog": 4},
    "sgnht euler": {"dynamics": THERMOSTAT_EULER, "friction": 1.0},
    "badodab": {"dynamics": BADODAB, "friction": 1.0},
}
LINEAR = [name for name in DYNAMICS if name not in ("sgnht euler", "badodab")]
EVERY = pytest.mark.parametrize("dynamics", DYNAMICS)
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


def started(problem, dynamics, matrices=DENSE, start=MODE + 0.3, seed=1, **kwargs):
    factor, kept = matrices
    options = {"estimator": STANDARD, **DYNAMICS[dynamics], **kwargs}
    if options["estimator"] == CONTROL_VARIATE:
        options["center"] = MODE + 0.1
        options["constant"] = problem.likelihood_gradient(options["center"][None])[0]
    chain = Chain(problem, Method(factor=factor, kept=kept, **options))
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
    method, state = chain.method, chain.random.copy()
    matrix = np.asarray(method.factor)
    matrix = np.diag(matrix) if matrix.ndim == 1 else matrix
    theta, r, xi = chain.theta.copy(), chain.dynamics.momentum.copy(), method.friction
    (rows,), draws, gradients = chain.problem.rows, [], []
    for k, h in enumerate(steps):
        if rows.batch_size == N:
            below(state, N)  # where the block starts: it holds all the rows anyway
            gradient = full_gradient(theta)
        else:
            gradient = minibatch_gradient(theta, [below(state, N) for _ in range(n)])
        draws.append(theta)
        gradients.append(gradient)
        fresh = bool(method.leapfrog) and k % method.leapfrog == 0
        if fresh:
            r = method.kept * np.array([normal(state), normal(state)])
        zeta = method.kept * np.array([normal(state), normal(state)])
        shift, r, xi = update(method, h, matrix.T @ gradient, r, xi, zeta, fresh)
        theta = theta + matrix @ shift
    return np.array(draws), np.array(gradients)


def update(method, h, w, r, xi, zeta, fresh):
    """One line of the table in `pymc_sgcv.kernel.dynamics`: the shift of x, r and ξ."""
    e, gamma = np.sqrt(h), method.friction
    if method.dynamics == EULER:
        return h / 2 * w + e * zeta, r, xi
    if method.dynamics in (HAMILTON_EULER, THERMOSTAT_EULER):
        drag = gamma if method.dynamics == HAMILTON_EULER else xi
        r = r + e * w - drag * e * r + np.sqrt(2 * gamma * e) * zeta
        return e * r, r, xi + e * (r @ r / 2 - 1)
    kicked = r + (e / 2 if fresh else e) * w
    if method.dynamics == BAOAB:
        c = np.exp(-gamma * e)
        r = c * kicked + np.sqrt(1 - c**2) * zeta
        return e / 2 * (kicked + r), r, xi
    xi = xi + e / 2 * (kicked @ kicked / 2 - 1)
    c = np.exp(-xi * e)
    r = c * kicked + np.sqrt(gamma * (1 - c**2) / xi) * zeta
    return e / 2 * (kicked + r), r, xi + e / 2 * (r @ r / 2 - 1)


STEPS = step_sizes(PolynomialDecay(0.1, 3.0, 0.4), 0, 60)


def check_recursion(chain, steps):
    expected = recursion(chain, steps)
    draws, gradients = run(chain, steps)
    np.testing.assert_allclose(draws, expected[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradients, expected[1], rtol=1e-10, atol=1e-10)


@EVERY
@PRECONDITIONER
def test_the_compiled_chain_is_the_recursion(full, dynamics, preconditioner):
    steps = STEPS * (0.1 if preconditioner == "none" else 1)
    check_recursion(started(full, dynamics, PRECONDITIONERS[preconditioner]), steps)


@EVERY
def test_the_compiled_chain_is_the_recursion_with_minibatches(noisy, dynamics):
    check_recursion(started(noisy, dynamics), STEPS)


def test_leimkuhler_matthews_is_the_average_of_two_noises(full):
    """The formula as it is printed, beside BAOAB with infinite friction."""
    chain = started(full, "lm")
    state, before, theta = chain.random.copy(), chain.dynamics.momentum.copy(), chain.theta.copy()
    draws, _ = run(chain, STEPS)
    for k, h in enumerate(STEPS[:-1]):
        below(state, N)
        zeta = np.array([normal(state), normal(state)])
        theta = theta + h / 2 * COVARIANCE @ full_gradient(theta)
        theta = theta + np.sqrt(h) * F @ (zeta + before) / 2
        before = zeta
        np.testing.assert_allclose(draws[k + 1], theta, rtol=1e-10)


def test_infinite_friction_makes_sghmc_leimkuhler_matthews(full):
    lm, stiff = started(full, "lm"), started(full, "baoab", friction=1e3)
    np.testing.assert_allclose(run(stiff, STEPS)[0], run(lm, STEPS)[0], rtol=1e-12)


@pytest.mark.parametrize("xi", [0.0, 1e-12, -1e-12, 0.5, -0.5])
def test_a_thermostat_at_zero_or_below_still_adds_its_noise(full, xi):
    """dr = −ξ r dt + √(2γ) dB over ε has variance 2γ ∫ exp(−2ξs) ds, that is 2γε for ξ = 0."""
    h, gamma, r = 0.04, 0.7, np.array([1.0, -1.0])  # r·r/d = 1: ξ stays for the first half step
    chain = started(full, "badodab", start=MODE, friction=gamma)
    chain.dynamics.momentum[:], chain.thermostat[:] = r, xi
    state, e = chain.random.copy(), np.sqrt(h)
    run(chain, np.array([h]))
    below(state, N)
    zeta = np.array([normal(state), normal(state)])
    variance = 2 * gamma * (-np.expm1(-2 * xi * e) / (2 * xi) if xi else e)
    moved = np.exp(-xi * e) * r + np.sqrt(variance) * zeta
    np.testing.assert_allclose(chain.dynamics.momentum, moved, rtol=1e-10)
    np.testing.assert_allclose(chain.theta, MODE + e / 2 * F @ (r + moved), rtol=1e-10)


@pytest.mark.parametrize("thin", [1, 3])
def test_a_recorded_gradient_is_that_of_the_recorded_draw(full, thin):
    draws, gradients = run(started(full, "lm"), STEPS, thin)
    np.testing.assert_allclose(gradients, (draws - MODE) @ -HESSIAN, rtol=1e-10, atol=1e-10)


@EVERY
def test_thinning_records_every_kth_iteration(full, dynamics):
    every, third = (run(started(full, dynamics), STEPS, thin) for thin in (1, 3))
    np.testing.assert_array_equal(third[0], every[0][2::3])
    np.testing.assert_array_equal(third[1], every[1][2::3])


@EVERY
def test_a_chain_run_in_parts_is_the_chain_run_at_once(noisy, dynamics):
    one, parts = (run(started(noisy, dynamics), STEPS, 2, calls) for calls in (1, 5))
    np.testing.assert_array_equal(parts[0], one[0])


@pytest.fixture(scope="module")
def uneven():
    """Rows with Hessians of their own: the noise depends on where the center is."""
    x, y = np.random.default_rng(31).normal(size=(2, N, 2))
    return Problem(regression(x, y[:, 0], batch_size=n, prior=TAU), subsampling="iid")


@EVERY
def test_a_center_that_moves_does_so_at_the_same_iterations_in_parts_and_at_once(uneven, dynamics):
    moving = {"estimator": CONTROL_VARIATE, "refresh": 7}
    one, parts, never = (
        run(started(uneven, dynamics, **{**moving, **own}), STEPS, 2, calls)[0]
        for calls, own in ((1, {}), (5, {}), (1, {"refresh": 0}))
    )
    np.testing.assert_array_equal(parts, one)
    assert np.isfinite(one).all() and (one[-1] != never[-1]).any()


@EVERY
def test_a_chain_that_resumes_goes_on_as_if_nothing_had_happened(noisy, dynamics):
    moving = {"estimator": CONTROL_VARIATE, "refresh": 7}
    whole, _ = run(started(noisy, dynamics, **moving), STEPS)
    first, other = (started(noisy, dynamics, **moving) for _ in range(2))
    run(first, STEPS[:30])
    other.resume(first.state())
    np.testing.assert_allclose(run(other, STEPS[30:])[0], whole[30:], rtol=1e-9)


def test_a_chain_starts_with_the_momentum_that_its_dynamics_keep(full):
    kept = np.array([0.5, 0.7])
    chain = started(full, "baoab", (Dense(F), kept), seed=3)
    expected = np.random.default_rng(3).standard_normal(2) * kept
    np.testing.assert_array_equal(chain.dynamics.momentum, expected)


def test_another_seed_gives_another_chain(full):
    one, other = (run(started(full, "lm", seed=seed), STEPS)[0] for seed in (1, 2))
    assert (one[1:] != other[1:]).all()


def test_the_chain_counts_its_iterations(full):
    chain = started(full, "lm")
    run(chain, STEPS[:12], thin=3)
    assert chain.iteration == 12


def test_a_chain_that_leaves_the_finite_numbers_stops_and_says_where(full):
    chain = started(full, "euler")
    with pytest.raises(Divergence, match=r"mu\[\d\] is not finite at iteration \d+"):
        run(chain, np.full(1000, 1e3))
    assert 0 < chain.iteration < 1000


ITERATIONS = 100_000
MANY = 300_000


def predicted(dynamics, h):
    """What `pymc_sgcv.kernel.stationary` says of a direction: A, B and the autocorrelation."""
    options = DYNAMICS[dynamics]
    arguments = options.get("friction", np.inf), options.get("leapfrog", 0)
    linear = linearised(options["dynamics"], h, *arguments)
    return *linear.variances(), linear.autocorrelation()


def whitened(problem, dynamics, h, seed=2, iterations=ITERATIONS, **kwargs):
    draws, _ = run(
        started(problem, dynamics, start=MODE, seed=seed, **kwargs), np.full(iterations, h)
    )
    return np.linalg.solve(F, (draws[100:] - MODE).T).T


def check_moments(x, expected, rho, slack=1.0):
    """Mean zero and the expected covariance, within five standard errors.

    A process with autocorrelation ρ has a mean of variance v (1 + 2Σρ)/T and second moments of
    variance (vᵢvⱼ + cᵢⱼ²)(1 + 2Σρ²)/T; gradient noise and a thermostat lengthen it: `slack`.
    """
    v, five = np.diag(expected), 5 * np.sqrt(slack / len(x))
    mean_memory, memory = (max(1.0, 1 + 2 * r[1:].sum()) for r in (rho, rho**2))
    assert (np.abs(x.mean(0)) < five * np.sqrt(v * mean_memory)).all()
    error = np.sqrt((np.outer(v, v) + expected**2) * memory)
    assert (np.abs(x.T @ x / len(x) - expected) < five * error).all()


ESTIMATORS = {
    "standard": {"estimator": STANDARD},
    "control variate": {"estimator": CONTROL_VARIATE},
    "SVRG": {"estimator": CONTROL_VARIATE, "refresh": 5},
    "SAGA": {"estimator": SAGA},
    "SAGA blocks": {"estimator": SAGA_BLOCKS},
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dynamics", LINEAR)
def test_every_combination_rests_where_the_linear_theory_says(full, dynamics, estimator):
    A, _, rho = predicted(dynamics, 0.3)
    check_moments(whitened(full, dynamics, 0.3, **ESTIMATORS[estimator]), A * np.eye(2), rho)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("dynamics", "h"), [("badodab", 0.09), ("sgnht euler", 0.0025)])
def test_every_estimator_with_a_thermostat_rests_at_the_posterior(full, dynamics, h, estimator):
    """Their discretisation errors, of order h and √h, are below a fifth of the tolerance here."""
    _, _, rho = predicted("baoab", h)
    check_moments(whitened(full, dynamics, h, **ESTIMATORS[estimator]), np.eye(2), rho, slack=4)


@pytest.mark.parametrize("moving", [0, 5])
@pytest.mark.parametrize("dynamics", LINEAR)
def test_the_control_variate_adds_no_noise_where_all_hessians_agree(noisy, dynamics, moving):
    A, _, rho = predicted(dynamics, 0.3)
    x = whitened(noisy, dynamics, 0.3, estimator=CONTROL_VARIATE, refresh=moving)
    check_moments(x, A * np.eye(2), rho)


@pytest.mark.parametrize("dynamics", LINEAR)
def test_gradient_noise_inflates_the_variance_as_predicted(noisy, dynamics):
    A, B, rho = predicted(dynamics, 0.2)
    x = whitened(noisy, dynamics, 0.2, iterations=MANY)
    check_moments(x, A * np.eye(2) + B * NOISE, rho, slack=1.5)


@pytest.mark.parametrize("dynamics", ["lm", "baoab", "sghmc euler", "baoab refreshed"])
def test_less_injected_noise_makes_up_for_gradient_noise(noisy, dynamics):
    """In the noise's principal directions, with κ = 1 − B v, where the dynamics are exact."""
    h = 0.04
    values, vectors = np.linalg.eigh(NOISE)
    A, B, rho = predicted(dynamics, h)
    kept = np.sqrt(1 - B * values / A)
    draws, _ = run(started(noisy, dynamics, (Dense(F @ vectors), kept), MODE), np.full(MANY, h))
    x = np.linalg.solve(F, (draws - MODE).T).T
    check_moments(x, A * np.eye(2), rho, slack=1.5)


def test_a_thermostat_makes_up_for_noise_that_nobody_told_it_of(noisy):
    """Noise that is alike in all directions of r; without a thermostat it would widen x."""
    root = np.linalg.cholesky(np.linalg.inv(SPREAD)) * 0.7
    h = 0.01
    draws, _ = run(started(noisy, "badodab", (Dense(root), ONES), MODE), np.full(MANY, h))
    x = np.linalg.solve(F, (draws[1000:] - MODE).T).T
    _, _, rho = predicted("baoab", h * np.linalg.eigvalsh(root.T @ HESSIAN @ root)[0])
    check_moments(x, np.eye(2), rho, slack=4)


@pytest.mark.parametrize("h", [0.3, 1.0])
def test_the_linear_theory_knows_eulers_error_and_that_others_have_none(h):
    assert predicted("euler", h)[0] == pytest.approx(1 / (1 - h / 4))
    assert predicted("lm", h)[:2] == pytest.approx((1, h / 4 / (1 - h / 4)))
    assert predicted("baoab", h)[0] == pytest.approx(1)
    assert predicted("leapfrog", h)[0] > 1.001


def test_draws_half_as_good_as_independent_ones_are_so_far_apart():
    """For a first-order autoregression ρᵏ = 1/3: (1 − h/2)ᵏ."""
    for h in (0.05, 0.2, 0.5):
        k = iterations_per_draw(linearised(EULER, h, np.inf))
        assert k == int(np.ceil(np.log(3) / -np.log1p(-h / 2)))


def test_the_predictions_are_far_enough_apart_to_be_told_apart():
    """A wrong factor of two in h or in the noise is many times the tolerance."""
    assert 1 / (1 - 0.3 / 4) > 1.08
    assert 1.0 < np.linalg.eigvalsh(NOISE).min() < np.linalg.eigvalsh(NOISE).max() < 10


@pytest.mark.parametrize("furthest", [0.2, 1e6], ids=["limited", "free"])
def test_a_gradient_moves_a_coordinate_no_further_than_it_may(full, furthest):
    """(h/2) w is cut off at ± `furthest` in the coordinates of F, and untouched within."""
    factor, h = np.asarray(PRECONDITIONERS["dense"][0]), 0.4
    still = (PRECONDITIONERS["dense"][0], np.zeros(2))  # no noise is injected
    start = MODE + np.array([0.3, 0.01])
    chain = started(full, "euler", still, start, furthest=furthest)
    chain.run(np.full(1, h), 1, np.empty((1, 2)), np.empty((1, 2)))
    drift = h / 2 * factor.T @ full_gradient(start)
    assert np.abs(drift).min() < 0.2 < np.abs(drift).max()
    moved = np.linalg.solve(factor, chain.theta - start)
    np.testing.assert_allclose(moved, np.clip(drift, -furthest, furthest), rtol=1e-8)
