# SPDX-License-Identifier: Apache-2.0
"""The bounds hold where the truth is known, and are not vacuous there.

For a Gaussian regression the mean and the covariance of every iterate of SGLD-CV, gradient noise
included, obey a linear recursion: no chain is run. The W₂ between Gaussians with those moments is
what the iterates' own W₂ is if they are Gaussian, and a lower bound on it if they are not
(Gelbrich 1990). In one dimension the law itself is propagated on a grid, minibatch by minibatch.
"""

from itertools import combinations, product

import numpy as np
import pymc as pm
import pytest
from scipy.linalg import sqrtm
from scipy.stats import norm

from pymc_sgcv import theory
from pymc_sgcv.kernel.chain import Chain, Method
from pymc_sgcv.kernel.dynamics import EULER
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import center_at
from pymc_sgcv.theory.constants import constants_of

SIGMA = 0.8


class Regression:
    """y ~ N(Xβ, σ²), β ~ N(0, 2²) with y = 0, so that the posterior mean is 0."""

    def __init__(self, n_rows, d=2, seed=0):
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(n_rows, d)) @ np.diag(np.linspace(1.0, 0.6, d))
        self.likelihood = self.X.T @ self.X / SIGMA**2
        self.hessian = self.likelihood + np.eye(d) / 4
        self.covariance = np.linalg.inv(self.hessian)
        self.m, self.M = np.linalg.eigvalsh(self.hessian)[[0, -1]]
        self.rows = (self.X**2).sum(1) / SIGMA**2
        self.d = d

    def arguments(self, center_error=0.0, weights=None):
        lipschitz = theory.lipschitz_constant(self.rows, weights)
        return {
            "m": self.m,
            "M": self.M,
            "d": self.d,
            "center_error": center_error,
            "lipschitz": lipschitz,
        }

    def noise(self, second, n, p=None):
        """E ξξᵀ for n independent rows where E (θ − θ̂)(θ − θ̂)ᵀ = `second`."""
        p = np.full(len(self.X), 1 / len(self.X)) if p is None else p
        w = np.einsum("ij,jk,ik->i", self.X, second, self.X) / p / SIGMA**4
        return ((self.X.T * w) @ self.X - self.likelihood @ second @ self.likelihood) / n

    def _moves(self, h, center, likelihoods):
        """T of iterations z ← Tz + noise for z = (1, θ − θ̂), with estimates of the Hessian."""
        T = np.tile(np.eye(self.d + 1), (len(likelihoods), 1, 1))
        T[:, 1:, 0] = -h / 2 * self.hessian @ center
        T[:, 1:, 1:] -= h / 2 * (likelihoods + np.eye(self.d) / 4)
        return T

    def moments(self, h, n, center, start, K):
        """Mean and covariance of θ_K from a fixed start, for n independent uniform rows.

        E zzᵀ ← E[T E zzᵀ Tᵀ] + hI is linear, so it can be raised to the power K.
        """
        estimates = len(self.X) * self.X[:, :, None] * self.X[:, None] / SIGMA**2
        rows, (mean,) = (self._moves(h, center, H) for H in (estimates, self.likelihood[None]))
        noisy = np.einsum("sij,skl->ikjl", rows, rows, optimize=True) / len(rows)
        steady = np.kron(mean, mean)
        linear = steady + (noisy.reshape(steady.shape) - steady) / n
        linear[:, 0] += h * np.diag([0.0] + self.d * [1.0]).ravel()
        z = np.concatenate([[1.0], np.asarray(start) - center])
        P = np.linalg.matrix_power(linear, K) @ np.outer(z, z).ravel()
        P = P.reshape(self.d + 1, self.d + 1)
        return center + P[1:, 0], P[1:, 1:] - np.outer(P[1:, 0], P[1:, 0])

    def w2(self, mean, covariance):
        """W₂ between N(mean, covariance) and the posterior."""
        root = sqrtm(self.covariance).real
        cross = np.linalg.eigvalsh(root @ covariance @ root)
        bures = np.trace(covariance + self.covariance) - 2 * np.sqrt(np.maximum(cross, 0)).sum()
        return np.sqrt(mean @ mean + max(bures, 0.0))

    def longest_step(self, n):
        """Where A of Proposition 1 reaches 0."""
        L = theory.lipschitz_constant(self.rows)
        return 4 * min(self.m * n / (2 * L**2 + n * self.m**2), 1 / (self.m + self.M))


SMALL, LARGE = Regression(20), Regression(1000)
LOOKED_AT = 0, 1, 10, 100, 1000, 10_000, 1_000_000


@pytest.fixture(scope="module")
def grid():
    """Truth and bound, in units of 1/√m, for (N, n, h as a share of the longest, center, K)."""
    found = {}
    for r, n, share, far in product((SMALL, LARGE), (1, 10, 100), (0.01, 0.1, 0.9), (0.0, 2.0)):
        h, unit = share * r.longest_step(n), 1 / np.sqrt(r.m)
        center = np.array([0.0, far * unit])
        for k in LOOKED_AT:
            truth = r.w2(*r.moments(h, n, center, center, k))
            bound = theory.wasserstein_bound(h, n, k, **r.arguments(far * unit))
            found[len(r.X), n, share, far, k] = truth / unit, bound / unit
    return found


def test_proposition_1_bounds_the_distance_of_every_iterate(grid):
    assert all(truth <= bound for truth, bound in grid.values())


def test_proposition_1_is_within_a_factor_2_5_while_the_start_is_remembered(grid):
    """For short steps; "remembered" says that nine tenths of the first distance are left."""
    early = [
        bound / truth
        for (N, n, share, far, k), (truth, bound) in grid.items()
        if share == 0.01 and truth > 0.9 * grid[N, n, share, far, 0][0]
    ]
    assert len(early) > 12
    assert max(early) < 2.5


def test_proposition_1_of_a_long_chain_with_short_steps_is_below_the_distance_at_the_start(grid):
    """So the bound is not vacuous: it proves that the chain has moved towards the posterior."""
    for (N, n, share, far, k), (_, bound) in grid.items():
        if share == 0.01 and k == LOOKED_AT[-1]:
            assert bound < 0.8 * grid[N, n, share, far, 0][0]


def test_proposition_1_is_never_looser_than_a_stated_factor(grid):
    """1,200 on this grid, whose loosest members are converged chains."""
    assert 100 < max(bound / truth for truth, bound in grid.values()) < 1200


def test_the_looseness_of_a_converged_chain_doubles_when_the_step_is_quartered():
    """The bound goes with √h, the truth on a Gaussian with h."""
    ratios = []
    for h in (4e-3 / LARGE.M, 1e-3 / LARGE.M):
        step = np.diag(np.full(2, 1.0)) - h / 2 * LARGE.hessian
        stationary = h * np.linalg.inv(np.eye(2) - step @ step)
        bound = theory.wasserstein_bound(h, 1, 10**7, LARGE.m, LARGE.M, 2, lipschitz=0.0)
        ratios.append(bound / LARGE.w2(np.zeros(2), stationary))
    np.testing.assert_allclose(ratios[1] / ratios[0], 2.0, rtol=0.01)


def test_the_step_of_the_proofs_is_half_of_ours():
    """Proposition 1 as its appendix prints it, with t for its h."""
    t, n, K, m, M, d, e2, s2 = 1e-4, 5, 300, 20.0, 30.0, 3, 0.02, 0.3
    A = 1 - np.sqrt(2 * t**2 * M**2 / n + (1 - m * t) ** 2)
    B = np.sqrt(2 * t**2 * M**2 / n * (e2 + d / m))
    C = 7 * np.sqrt(2) / 6 * M * np.sqrt(t**3 * d)
    printed = (1 - A) ** K * np.sqrt(s2 + d / m) + C / A + B**2 / (C + np.sqrt(A) * B)
    ours = theory.wasserstein_bound(2 * t, n, K, m, M, d, np.sqrt(e2), np.sqrt(s2))
    np.testing.assert_allclose(ours, printed, rtol=1e-12)


# One dimension, where the law of an iterate is known and not only its moments

LINE = np.array([0.3, 1.0, 1.6, 2.5])


def _moved(theta, h, center, estimate, curvature):
    """One step of SGLD-CV without its noise; the posterior mean is 0."""
    return theta - h / 2 * (theta / 4 + curvature * center + estimate * (theta - center))


def laws_on_a_grid(h, n, center, start, K, x):
    """Densities of θ₁, …, θ_K on the grid x: each minibatch moves and smooths the one before."""
    precisions = LINE**2 / SIGMA**2
    index = np.array(list(product(range(len(LINE)), repeat=n)))
    estimates = len(LINE) * precisions[np.sort(index, axis=1)].mean(1)  # of the curvature
    kernel, first = np.zeros((len(x), len(x))), np.zeros(len(x))
    for estimate, count in zip(*np.unique(estimates, return_counts=True)):
        chance = count / len(estimates)
        after = _moved(x, h, center, estimate, precisions.sum())
        kernel += chance * norm.pdf(x[:, None], after, np.sqrt(h))
        after = _moved(start, h, center, estimate, precisions.sum())
        first += chance * norm.pdf(x, after, np.sqrt(h))
    density, dx = first, x[1] - x[0]
    for _ in range(K):
        yield density
        density = kernel @ density * dx


def w2_on_a_grid(density, sd, x):
    """∫(F⁻¹(u) − G⁻¹(u))² du with G the posterior N(0, sd²)."""
    dx = x[1] - x[0]
    u = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * dx)])
    u, at = np.clip((u[1:] + u[:-1]) / 2 / u[-1], 1e-300, 1 - 1e-16), (x[1:] + x[:-1]) / 2
    mass = (density[1:] + density[:-1]) / 2 * dx
    return np.sqrt(np.sum((at - sd * norm.ppf(u)) ** 2 * mass))


@pytest.mark.parametrize(("n", "share"), [(1, 0.3), (3, 0.05), (3, 0.5)])
def test_proposition_1_bounds_the_distance_of_the_law_itself(n, share):
    """Also where the iterates are no Gaussians; their own W₂ is close to that of their moments."""
    r = Regression(4, d=1)
    r.X = LINE[:, None]
    r.likelihood = r.X.T @ r.X / SIGMA**2
    r.hessian, r.rows = r.likelihood + 0.25, LINE**2 / SIGMA**2
    r.m = r.M = r.hessian[0, 0]
    r.covariance = 1 / r.hessian
    sd = np.sqrt(1 / r.m)
    h, center, start = share * r.longest_step(n), 1.5 * sd, -3 * sd
    x = np.linspace(-8 * sd, 8 * sd, 801)
    for k, density in enumerate(laws_on_a_grid(h, n, center, start, 60, x), start=1):
        truth = w2_on_a_grid(density, sd, x)
        gaussian = r.w2(*r.moments(h, n, [center], [start], k))
        bound = theory.wasserstein_bound(
            h, n, k, start_error=3 * sd, **r.arguments(center_error=1.5 * sd)
        )
        assert truth <= bound
        assert gaussian - 1e-3 * sd <= truth <= gaussian + 0.1 * sd


# Lemma 1, by enumeration

_rng = np.random.default_rng(7)
ROWS = _rng.normal(size=(5, 2)) * np.array([[1.0], [0.5], [2.0], [1.0], [0.2]])
LIPSCHITZ = (ROWS**2).sum(1) / 4


def logistic_rows(theta):
    """∇fᵢ of logistic regression with outcomes 1; its Lipschitz constant is ‖xᵢ‖²/4."""
    return -ROWS / (1 + np.exp(ROWS @ theta))[:, None]


def mean_square_noise(theta, center, n, p, replace):
    """E‖ξ‖² of the control-variate estimate over all minibatches."""
    change = logistic_rows(theta) - logistic_rows(center)
    if replace:
        listed = np.array(list(product(range(5), repeat=n)))
        chance = np.prod(p[listed], axis=1)
    else:
        listed = np.array(list(combinations(range(5), n)))
        chance = np.full(len(listed), 1 / len(listed))
    noise = (change[listed] / p[listed][:, :, None]).mean(1) - change.sum(0)
    np.testing.assert_allclose(chance @ noise, 0, atol=1e-12)  # unbiased
    return chance @ (noise**2).sum(1)


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize(
    ("weights", "replace"), [(None, True), (None, False), (LIPSCHITZ, True), (np.ones(5), True)]
)
def test_lemma_1_bounds_the_noise_over_all_minibatches(n, weights, replace):
    p = np.full(5, 0.2) if weights is None else weights / weights.sum()
    L = theory.lipschitz_constant(LIPSCHITZ, weights)
    for theta, center in np.random.default_rng(8).normal(size=(20, 2, 2)):
        bound = theory.gradient_noise_bound(n, L, np.linalg.norm(theta - center))
        assert mean_square_noise(theta, center, n, p, replace) <= bound


def test_lemma_1_is_attained_up_to_the_variance_of_the_mean_in_one_dimension():
    """Rows with one Hessian each and no prior: Σ Hᵢ²/pᵢ − (Σ Hᵢ)² is left of Σ Lᵢ²/pᵢ."""
    H = LINE**2
    variance = (4 * np.sum(H**2) - H.sum() ** 2) / 3  # n = 3 of 4 uniform rows, θ − θ̂ = 1
    bound = theory.gradient_noise_bound(3, theory.lipschitz_constant(H), 1.0)
    np.testing.assert_allclose(bound - variance, H.sum() ** 2 / 3, rtol=1e-12)


def test_rows_drawn_in_proportion_to_their_constants_have_the_smallest_bound():
    best = theory.lipschitz_constant(LIPSCHITZ, LIPSCHITZ)
    np.testing.assert_allclose(best, LIPSCHITZ.sum(), rtol=1e-12)
    for weights in np.random.default_rng(9).uniform(0.1, 1.0, size=(20, 5)):
        assert theory.lipschitz_constant(LIPSCHITZ, weights) > best


# Theorem 1 and Corollary 1


@pytest.mark.parametrize(
    ("epsilon", "far", "n"), [(1.0, 1.0, None), (0.1, 0.0, None), (0.3, 2.0, 4)]
)
def test_the_plan_reaches_its_accuracy_when_run(epsilon, far, n):
    unit = 1 / np.sqrt(LARGE.m)
    settings = theory.plan(epsilon, **LARGE.arguments(far * unit), n=n)
    center = np.array([0.0, far * unit])
    last = LARGE.moments(settings.h, settings.n, center, center, settings.K)
    np.testing.assert_allclose(settings.target, epsilon * unit, rtol=1e-12)
    assert LARGE.w2(*last) <= settings.target


CASES = [
    (epsilon, M, d, far, lipschitz)
    for epsilon, M, d, far, lipschitz in product(
        (0.01, 0.3, 3.0, 40.0), (50.0, 400.0), (1, 30), (0.0, 0.5), (0.0, 30.0, None, 5000.0)
    )
]


@pytest.mark.parametrize("n", [None, 1, 1000])
def test_proposition_1_agrees_that_the_plan_suffices(n):
    for epsilon, M, d, far, lipschitz in CASES:
        settings = theory.plan(epsilon, 50.0, M, d, far, lipschitz=lipschitz, n=n)
        assert settings.bound <= settings.target
        assert n is None or settings.n == n


def test_the_printed_condition_on_the_step_would_not_suffice():
    """With max for min, as in the paper, Proposition 1 exceeds the accuracy a hundredfold."""
    epsilon, m, M, d = 0.1, 50.0, 100.0, 2
    R2 = (M / m) ** 2
    h = 2 / m * max(1 / (2 * R2 + 1), epsilon**2 / (64 * R2 * 49 / 18 * d))
    assert theory.wasserstein_bound(h, 1, 10**6, m, M, d) > 20 * epsilon / np.sqrt(m)


def test_the_cost_of_the_plan_is_within_corollary_1():
    for epsilon, M, d, far, lipschitz in CASES:
        settings = theory.plan(epsilon, 50.0, M, d, far, lipschitz=lipschitz)
        bound = theory.cost_bound(epsilon, 50.0, M, d, far, lipschitz=lipschitz)
        assert settings.cost <= bound * (1 + 1e-12)


def test_the_cost_does_not_grow_with_the_data():
    """At errors of two posterior standard deviations, for R that stays."""
    costs = [
        theory.cost_bound(0.1, m, 3 * m, 5, 2 / np.sqrt(m), lipschitz=20 * m)
        for m in (1e2, 1e4, 1e6)
    ]
    np.testing.assert_allclose(costs, costs[0], rtol=1e-12)


# Lemma of §Setup costs, Theorem 2


def test_sgd_is_as_far_from_the_mode_as_the_lemma_allows():
    """From the mode of m‖θ‖²/2 with noise of variance s the error is exactly s/(m²K)."""
    m, s, error, worst = 7.0, 3.0, 0.0, 0.0
    for k in range(1, 201):
        worst = max(worst, m**2 * error + s)  # E‖∇f̂‖² here
        error = (1 - 1 / k) ** 2 * error + s / (m * k) ** 2
        np.testing.assert_allclose(error, s / (m**2 * k), rtol=1e-12)
    bound = theory.sgd_center_error(200, m, np.sqrt(worst))
    np.testing.assert_allclose(bound / np.sqrt(error), np.sqrt(8), rtol=1e-12)


@pytest.mark.parametrize("start", [0.5, 30.0])
def test_sgd_on_an_uneven_posterior_is_within_the_lemma(start):
    values, noise = np.array([2.0, 3.0, 20.0]), np.array([1.0, 40.0, 5.0])
    square, worst = np.full(3, start**2), 0.0
    for k in range(1, 501):
        worst = max(worst, np.sum(values**2 * square + noise))
        square = (1 - values / (2.0 * k)) ** 2 * square + noise / (2.0 * k) ** 2
        assert np.sqrt(square.sum()) <= theory.sgd_center_error(k, 2.0, np.sqrt(worst))


def zv_reduction(r, direction, noise):
    """Share of Var(a·θ) that order 1 removes, with gradients of that noise: Cᵀ(J + Ξ)⁻¹C."""
    removed = direction @ np.linalg.solve(r.hessian + noise, direction)
    return removed / (direction @ r.covariance @ direction)


@pytest.mark.parametrize("n", [1, 20, 500])
@pytest.mark.parametrize("far", [0.0, 2.0])
def test_theorem_2_bounds_what_post_processing_removes(n, far):
    center = np.array([0.0, far]) / np.sqrt(LARGE.m)
    noise = LARGE.noise(LARGE.covariance + np.outer(center, center), n)
    bound = theory.zv_reduction_bound(np.trace(noise), LARGE.m)
    angles = np.linspace(0, np.pi, 50)
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    shares = [zv_reduction(LARGE, direction, noise) for direction in directions]
    assert bound <= min(shares)
    assert 1 - bound < 5 * (1 - min(shares))  # what it leaves over is not far too much


def test_theorem_2_with_lemma_1_needs_no_knowledge_of_the_noise():
    noise = LARGE.noise(LARGE.covariance, 50)
    L = theory.lipschitz_constant(LARGE.rows)
    most = theory.gradient_noise_bound(50, L, np.sqrt(LARGE.d / LARGE.m))
    assert np.trace(noise) <= most < 10 * np.trace(noise)


def test_theorem_2_as_printed_fails():
    """σ(N + 1) in the place of m, with σ the largest E f′ᵢ² of the rows, in one dimension."""
    rng = np.random.default_rng(11)
    x, residuals = rng.normal(size=200), rng.normal(size=200)
    J = np.sum(x**2) + 0.25
    sigma = np.max(x**2 * (residuals**2 + x**2 / J))
    noise = (200 * np.sum(x**4) - np.sum(x**2) ** 2) / J / 5  # of SGLD-CV with n = 5
    truth = 1 / (1 + noise / J)
    assert theory.zv_reduction_bound(noise, J) <= truth < 1 / (1 + noise / (sigma * 201))


def test_the_compiled_chain_reaches_the_plans_accuracy_from_a_models_constants():
    """500 chains of the plan's length: Monte Carlo error of W₂ about 0.06, ε = 0.5."""
    with pm.Model() as gaussian:
        beta = pm.Normal("beta", 0, 2, shape=2)
        pm.Normal("y", pm.math.dot(SMALL.X, beta), SIGMA, observed=np.zeros(20))
    problem = Problem(gaussian, batch_size=2, subsampling="iid")
    center = center_at(problem, np.array([0.1, -0.2]))
    found = constants_of(problem, center).preconditioned
    settings = theory.plan(0.5, **found.as_arguments(), n=2)
    method = Method(
        CONTROL_VARIATE,
        EULER,
        center.factor,
        center=center.theta,
        constant=center.likelihood_gradient,
    )
    chain, ends, rng = Chain(problem, method), np.empty((500, 2)), np.random.default_rng(16)
    for i in range(len(ends)):
        chain.start(center.theta, rng)
        chain.run(np.full(settings.K, settings.h), settings.K, np.empty((1, 2)), np.empty((1, 2)))
        ends[i] = chain.theta
    white = np.linalg.solve(np.asarray(center.factor), ends.T)
    standard = Regression(2)
    standard.covariance = np.eye(2)
    assert standard.w2(white.mean(1), np.cov(white)) <= settings.target


# Arguments that make no sense


GOOD = {"h": 1e-5, "n": 10, "K": 5, "m": 10.0, "M": 20.0, "d": 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"m": 0.0}, "strongly log-concave"),
        ({"m": -3.0}, "strongly log-concave"),
        ({"m": np.nan}, "m must be a positive number"),
        ({"M": 5.0}, "larger than M"),
        ({"h": 0.0}, "h must be a positive number"),
        ({"h": 0.5}, "shorter than 0.133"),
        ({"n": 0}, "n must be a whole number, at least 1"),
        ({"n": 2.5}, "n must be a whole number"),
        ({"K": -1}, "K must be a whole number, at least 0"),
        ({"d": True}, "d must be a whole number"),
        ({"center_error": -1.0}, "center_error must be a number that is not negative"),
        ({"start_error": np.inf}, "start_error must be a number"),
        ({"lipschitz": "big"}, "lipschitz must be a number"),
    ],
)
def test_arguments_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        theory.wasserstein_bound(**{**GOOD, **change})


def test_other_arguments_out_of_range_are_refused():
    for call, message in [
        (lambda: theory.plan(0.0, 1.0, 2.0, 3), "epsilon must be a positive"),
        (lambda: theory.plan(0.1, 1.0, 2.0, 3, n=0), "n must be a whole"),
        (lambda: theory.cost_bound(-1, 1.0, 2.0, 3), "epsilon must be a positive"),
        (lambda: theory.sgd_center_error(0, 1.0, 1.0), "K must be a whole"),
        (lambda: theory.zv_reduction_bound(1.0, 1.0, 1.5), "share of the variance"),
        (lambda: theory.gradient_noise_bound(1, 1.0, -1.0), "distance must be"),
        (lambda: theory.lipschitz_constant([1.0, -1.0]), "none negative"),
        (lambda: theory.lipschitz_constant([1.0], [0.0]), "never drawn"),
        (lambda: theory.lipschitz_constant([1.0], [1.0, 2.0]), "as many as"),
        (lambda: theory.constants(rows=0), "rows must be a whole"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
