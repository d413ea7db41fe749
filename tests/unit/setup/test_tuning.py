# SPDX-License-Identifier: Apache-2.0
"""What the set-up measures is so: noise, curvature, center, covariance; and its choices follow.

A Gaussian regression, where the posterior and the gradient noise are known. The residuals are
large where x₀ + x₁ is, so that the noise is unequal and correlated in whitened coordinates.

Statistical tests have a fixed seed and state their tolerance in standard errors: at five, another
seed would fail one comparison in two million.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from pymc_sgcv.kernel.chain import Divergence, Method
from pymc_sgcv.kernel.dynamics import BADODAB, BAOAB
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE, STANDARD
from pymc_sgcv.kernel.preconditioners import Dense, Diagonal
from pymc_sgcv.kernel.stationary import linearised
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import center_at
from pymc_sgcv.setup.noise import control_variate, gradient_noise, pairs, unexplained
from pymc_sgcv.setup.pilot import _mirrored, _refine, pilot
from pymc_sgcv.setup.tuning import (
    _THERMOSTAT_ERROR,
    Motion,
    _predict,
    choose,
    longest_step,
    nonlinearity,
)
from tests.models import regression

N, n = 400, 50
_rng = np.random.default_rng(60)
X = _rng.normal(size=(N, 2)) @ np.array([[1.0, 0.5], [0.0, 0.7]])
Y = X @ np.array([0.5, -0.3]) + _rng.normal(size=N) * np.abs(X.sum(1))
HESSIAN = X.T @ X + np.eye(2) / 4
MEAN = np.linalg.solve(HESSIAN, X.T @ Y)
F = np.linalg.cholesky(np.linalg.inv(HESSIAN))
POSTERIOR = Dense(F)
NOISE = np.array([[3.0, 1.2], [1.2, 0.8]])  # some covariance, where any will do
DENSE = Dense(np.array([[0.3, 0.0], [0.1, 0.2]]))
DIAGONAL = Diagonal(np.array([0.3, 0.2]))
FACTOR = pytest.mark.parametrize("factor", [DENSE, DIAGONAL], ids=["dense", "diagonal"])


def declared():
    return regression(X, Y, batch_size=n, prior=2)


@pytest.fixture(scope="module")
def problem():
    return Problem(declared(), subsampling="iid")


def noise_of_rows(theta, factor):
    """By hand: N²/n times the covariance of the rows' whitened gradients."""
    rows = X * (Y - X @ theta)[:, None]
    F = np.asarray(factor)
    white = rows * F if F.ndim == 1 else rows @ F
    return N**2 / n * np.cov(white.T, bias=True)


# Gradient noise


@FACTOR
def test_the_noise_is_that_of_the_rows_whitened_gradients(problem, factor):
    """Within six standard errors of Gaussian noise, which are 5.4 with the tails of these rows."""
    theta = MEAN + np.array([0.2, -0.1])
    method = Method(STANDARD, BAOAB, factor)
    draws = np.tile(theta, (1000, 1))
    noise = gradient_noise(problem, method, draws, factor, np.random.default_rng(1))
    expected = noise_of_rows(theta, factor)
    v = np.diag(expected)
    if factor is DIAGONAL:
        np.testing.assert_allclose(noise, v, rtol=6 * np.sqrt(2 / pairs(2)))
    else:
        error = np.sqrt((np.outer(v, v) + expected**2) / pairs(2))
        assert (np.abs(noise - expected) < 6 * error).all()


def test_a_center_that_moves_with_the_chain_has_twice_the_noise_of_a_fixed_one(problem):
    fixed = control_variate(center_at(problem, MEAN, POSTERIOR))
    draws = MEAN + np.random.default_rng(2).standard_normal((1000, 2)) @ F.T
    one, two = (
        gradient_noise(
            problem, replace(fixed, refresh=k), draws, POSTERIOR, np.random.default_rng(3)
        )
        for k in (0, 8)
    )
    assert fixed.estimator == CONTROL_VARIATE
    np.testing.assert_allclose(two, 2 * one, rtol=1e-12)


def test_what_a_line_does_not_explain_is_the_variance_of_the_residuals():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 3))
    g = x @ rng.normal(size=(3, 3)) + rng.normal(size=(60, 3))
    x, g = x - x.mean(0), g - g.mean(0)
    expected = (g - x @ np.linalg.lstsq(x, g, rcond=None)[0]).var(0)
    np.testing.assert_allclose(unexplained(x, g), expected, rtol=1e-9)


# The posterior's shape


ONES = [Dense(np.eye(2)), Diagonal(np.ones(2))]
IDENTITIES = pytest.mark.parametrize("one", ONES, ids=lambda factor: factor.name)


@IDENTITIES
def test_noisy_gradients_of_a_gaussian_allow_the_longest_step(one):
    """The measured noise may be 20 % off; that of 4000 residuals is, by one standard error, 2 %."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((4000, 2))
    for variance in (1.0, 4.0):
        g = -x + np.sqrt(variance) * rng.standard_normal(x.shape)
        assert longest_step(nonlinearity(one, x, g, variance * one.identity())) == 1


@IDENTITIES
def test_curvature_of_the_score_is_found_and_shortens_the_step(one):
    """Of (x² − 1)/2, no part of which is linear, the variance is 1/2; five standard errors."""
    x = np.random.default_rng(7).standard_normal((20_000, 2))
    g = -x
    g[:, 1] += (x[:, 1] ** 2 - 1) / 2
    curved = nonlinearity(one, x, g, 0 * one.identity())
    error = np.sqrt((60 / 16 - 1 / 4) / len(x))  # E(x² − 1)⁴ = 60
    assert curved == pytest.approx(0.5, abs=5 * error)
    assert longest_step(curved) == pytest.approx(np.sqrt(0.1 / 0.5), abs=0.04)


# The pilot


def test_exact_gradients_of_a_few_draws_give_the_mean_and_the_covariance():
    """Wherever the draws and the first estimates are."""
    wrong = Dense(F @ [[1.5, 0.3], [0.0, 0.6]])
    center = SimpleNamespace(position=MEAN + F @ [1.0, -2.0], factor=wrong)
    draws = MEAN + np.random.default_rng(8).normal([0.3, -0.5], 1.0, (50, 2)) @ F.T
    theta, factor = _refine(center, draws, (draws - MEAN) @ -HESSIAN)
    np.testing.assert_allclose(theta, MEAN, rtol=1e-6)
    covariance = factor.matrix @ factor.matrix.T
    np.testing.assert_allclose(covariance, np.linalg.inv(HESSIAN), rtol=1e-6)


@pytest.mark.parametrize("scale", [1.5, 0.7])
def test_a_pilot_corrects_a_covariance_that_is_too_wide_or_too_narrow(problem, scale):
    """A variance has a standard error of 0.012 then: the tolerance is eight."""
    start = center_at(problem, MEAN, Dense(scale * F))
    center, *_ = pilot(problem, start, np.random.default_rng(9))
    ratio = np.linalg.solve(F, np.asarray(center.factor))
    np.testing.assert_allclose(ratio @ ratio.T, np.eye(2), atol=0.1)


def test_one_round_of_a_pilot_goes_from_a_deviation_away_to_the_mean(problem, monkeypatch):
    """The standard error of a coordinate is 0.008, and 0.13 of the draws' own mean."""
    start = center_at(problem, MEAN + F @ [1.0, 0.0], POSTERIOR)
    monkeypatch.setattr("pymc_sgcv.setup.pilot._ROUNDS", 1)
    center, *_ = pilot(problem, start, np.random.default_rng(10))
    assert np.linalg.norm(np.linalg.solve(F, center.theta - MEAN)) < 0.05


def test_gradients_that_point_further_than_the_draws_reach_move_no_center():
    center = SimpleNamespace(position=MEAN, factor=POSTERIOR)
    draws = MEAN + np.random.default_rng(11).normal(size=(500, 2)) @ F.T
    far = MEAN + F @ [20.0, 0.0]
    theta, _ = _refine(center, draws, (draws - far) @ -HESSIAN)
    np.testing.assert_allclose(theta, draws.mean(0), rtol=1e-12)


def test_curvature_is_averaged_over_mirror_images_where_there_are_any():
    """What is odd about the mean cancels; an image outside the support is left out."""
    draws = np.array([[9.0, 9.0], [1.5, 0.5]])
    points = _mirrored(lambda x: x, np.zeros(2), draws)
    np.testing.assert_array_equal(points, [[1.5, 0.5], [-1.5, -0.5]])
    outside = _mirrored(lambda x: np.where(x < 0, np.nan, x), np.zeros(2), draws)
    np.testing.assert_array_equal(outside, draws[1:])


@pytest.mark.parametrize("scale", [2.5, 0.4])
def test_a_pilot_corrects_diagonal_scales_and_finds_the_correlation(problem, scale):
    """By differences of full gradients, which draws have no part in where these are linear."""
    start = center_at(problem, MEAN, Diagonal(scale * POSTERIOR.spread()))
    center, *_ = pilot(problem, start, np.random.default_rng(13))
    ratio = np.linalg.solve(F, np.asarray(center.factor))
    np.testing.assert_allclose(ratio @ ratio.T, np.eye(2), atol=1e-6)


def test_a_pilot_that_diverges_whatever_the_step_says_so():
    """Chains begin where eᶿ is no finite number: the preconditioner is a million times too wide."""
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(pm.Normal("rate", 0, 10)), observed=np.array([1, 0, 2, 0]))
    problem = Problem(model, batch_size=2)
    start = replace(center_at(problem, np.zeros(1)), factor=Diagonal(np.array([1e6])))
    with pytest.raises(Divergence, match="diverged at every step size tried"):
        pilot(problem, start, np.random.default_rng(3), noise=np.ones(1))


@pytest.mark.parametrize("bent", [False, True])
def test_a_pilot_goes_on_for_longer_where_the_posterior_is_far_from_gaussian(problem, bent):
    """A coefficient that must be positive and is 0: its logarithm is skewed."""
    start = center_at(problem, MEAN, POSTERIOR)
    if bent:
        with pm.Model() as model:
            pm.Normal("y", pm.HalfNormal("b", 1) * X[:, 0], 1.0, observed=np.zeros(N))
        problem = Problem(model, batch_size=n)
        start = center_at(problem, np.array([-3.2]), Dense(np.array([[1.0]])))
    found = pilot(problem, start, np.random.default_rng(14))
    iterations = len(found.draws) / 0.8
    assert iterations > 5000 if bent else iterations < 2000


def test_the_noise_that_a_pilot_reports_is_that_of_its_own_gradients(problem):
    """Around the old center, in the new factor's coordinates; seven standard errors of pairs."""
    start = center_at(problem, MEAN + F @ [1.0, 0.0], POSTERIOR)
    found = pilot(problem, start, np.random.default_rng(15))
    x = found.center.factor.solve(found.draws - found.draws.mean(0))
    g = found.center.factor.apply_transposed(found.gradients)
    noise = found.center.factor.variances(found.noise)
    error = noise * (7 * np.sqrt(2 / pairs(2)))
    assert (np.abs(unexplained(x, g - g.mean(0)) - noise) < error + 0.01).all()


# What is chosen


def test_the_noise_share_is_a_quarter_of_the_step_times_the_worst_noise():
    for noise, factor in ((NOISE, DENSE), (np.diag(NOISE), DIAGONAL)):
        tuning = choose(noise, factor, 0.03)
        worst = np.linalg.eigvalsh(noise)[-1] if noise.ndim == 2 else noise.max()
        assert 1e-3 < tuning.step_size < 1
        assert tuning.noise_share == pytest.approx(tuning.step_size / 4 * worst)


def test_the_factor_is_turned_so_that_the_noise_is_uncorrelated_in_its_coordinates():
    tuning = choose(NOISE, DENSE, 0.03)
    given, turned = np.asarray(DENSE), np.asarray(tuning.factor)
    np.testing.assert_allclose(turned @ turned.T, given @ given.T, rtol=1e-12)
    turn = np.linalg.solve(given, turned)
    noise = turn.T @ NOISE @ turn
    np.testing.assert_allclose(noise, np.diag(np.linalg.eigvalsh(NOISE)), atol=1e-12)
    added = tuning.step_size / 4 / (1 - tuning.step_size / 4) * np.diag(noise)
    np.testing.assert_allclose(tuning.kept**2, np.maximum(1 - added, 0.5), rtol=1e-12)


def test_chains_move_in_the_coordinates_that_the_noise_was_measured_in():
    """A correlation of 0.5 in the given ones is taken out, ± 0.04: 0.2 is five standard errors."""
    model, given = declared(), np.linalg.inv(HESSIAN)
    step = sg.SGLD(model=model, subsampling="iid", preconditioner=given, progressbar=False)
    method, tuning = step.plan.method, step.plan.tuning
    assert method.factor is tuning.factor and method.kept is tuning.kept
    noise = noise_of_rows(step.plan.center.theta, method.factor)
    v = np.diag(noise)
    assert abs(noise[0, 1]) < 0.2 * np.sqrt(v[0] * v[1])
    assert v[1] > 2 * v[0] and tuning.kept[1] < tuning.kept[0]


@pytest.mark.parametrize("v", [0.5, 3.0])
@pytest.mark.parametrize("h", [0.04, 0.3])
def test_a_thermostat_leaves_of_equal_noise_only_its_own_error(v, h):
    assert linearised(BADODAB, h, 1.0).variances()[0] == pytest.approx(1)
    error, kept = _predict(np.full(3, v), Diagonal(np.ones(3)), h, Motion(BADODAB, 1.0))
    assert error == pytest.approx(np.sqrt(1 + _THERMOSTAT_ERROR * h**2 * v * max(1, v)) - 1)
    np.testing.assert_array_equal(kept, 1)
