# SPDX-License-Identifier: Apache-2.0
"""Every estimator is, over all minibatches there are, exactly the gradient of the log posterior.

A model with two likelihoods is small enough to list every minibatch (of both at once) with its
probability and to compute the estimate that belongs to it with pencil-and-paper gradients. The
compiled estimator draws at random; claimed is that

* whatever it returns is one of the listed estimates, to rounding,
* every one of them turns up, as often as its probability says, and
* those that it returned, weighted with their probabilities, average to the full gradient.

A scale, a sign, a swapped estimator or a row too many fails the first. Seeds are fixed; another
seed would miss a minibatch less than once in 10,000 times (20 of the 300 have probability 1/1600,
and 20 exp(−20,000/1600) = 7e-5), and frequencies are refused below a p-value of 1e-5.
"""

from dataclasses import replace
from itertools import combinations, combinations_with_replacement, product
from math import factorial

import numpy as np
import pymc as pm
import pytest
from scipy.spatial import cKDTree
from scipy.stats import chisquare

from pymc_sgcv.kernel.chain import Chain, Method
from pymc_sgcv.kernel.dynamics import EULER
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE, SAGA, SAGA_BLOCKS, STANDARD
from pymc_sgcv.kernel.preconditioners import Diagonal
from pymc_sgcv.rows.problem import Problem
from tests.models import regression

DRAWS = {"iid": 20_000, "weighted": 60_000, "without": 4_000, "block": 4_000}
RARE = 1e-5
ROUNDING = 1e-10

_rng = np.random.default_rng(20)
X, Y = np.asfortranarray(_rng.normal(size=(5, 2))), _rng.normal(size=5)
EXPOSURE, Z = _rng.uniform(0.5, 2.0, 4), np.array([1, 0, 2, 5], dtype="int32")
N_ROWS, BATCH = (5, 4), (2, 3)
WEIGHTS = {"y": np.array([1.0, 2.0, 1.5, 1.2, 1.0]), "z": np.array([1.0, 1.2, 0.9, 1.1])}
THETA = np.array([0.4, -0.7, 0.2])
CENTER = np.array([0.1, -0.5, -0.1])
ELSEWHERE = np.array([-0.2, 0.3, 0.5])
NONE = Diagonal(np.ones(3))  # estimates do not depend on the preconditioner


def declared():
    with pm.Model() as model:
        x, y = pm.Minibatch(X, Y, batch_size=BATCH[0])
        e, z = pm.Minibatch(EXPOSURE, Z, batch_size=BATCH[1])
        beta, sigma = pm.Normal("beta", 0, 2, shape=2), pm.HalfNormal("sigma", 1)
        pm.Normal("y", x @ beta, sigma, observed=y, total_size=N_ROWS[0])
        pm.Poisson("z", e * pm.math.exp(beta[0]), observed=z, total_size=N_ROWS[1])
    return model


def prior_gradient(theta):
    """beta ~ N(0, 2²), sigma = eˢ ~ HalfNormal(1) with the Jacobian s."""
    return np.array([-theta[0] / 4, -theta[1] / 4, 1 - np.exp(2 * theta[2])])


def normal_rows(theta, x, y):
    """∇ log N(yᵢ | xᵢβ, eˢ), one row per datum."""
    residual, precision = y - x @ theta[:2], np.exp(-2 * theta[2])
    return np.column_stack([x * (precision * residual)[:, None], precision * residual**2 - 1])


def poisson_rows(theta, e, z):
    """∇ log Poisson(zᵢ | eᵢ exp β₁)."""
    slope = z - e * np.exp(theta[0])
    return np.column_stack([slope, 0 * slope, 0 * slope])


def row_gradients(theta, data=((X, Y), (EXPOSURE, Z))):
    return [normal_rows(theta, *data[0]), poisson_rows(theta, *data[1])]


def full_gradient(theta):
    return prior_gradient(theta) + sum(rows.sum(0) for rows in row_gradients(theta))


@pytest.fixture(scope="module")
def model():
    return declared()


@pytest.fixture(scope="module")
def problems(model):
    """The same model for every way of subsampling; compiled once, then found in the cache."""
    ways = ("iid", "without", "block")
    found = {way: Problem(model, subsampling=way) for way in ways}
    return found | {"weighted": Problem(model, subsampling="iid", weights=WEIGHTS)}


def data_in_order(problem):
    """The data of both plates in the order that blocks are cut from."""
    return [rows.arrays for rows in problem.rows]


def multisets(n_rows, n, p):
    """Unordered samples with replacement and their probabilities."""
    for rows in combinations_with_replacement(range(n_rows), n):
        orders = factorial(n) / np.prod([factorial(rows.count(i)) for i in set(rows)])
        yield list(rows), orders * np.prod(p[list(rows)])


def all_minibatches(way, plate):
    """Every minibatch of a plate as (rows, their weights 1/(n pᵢ), probability)."""
    N, n = N_ROWS[plate], BATCH[plate]
    p = np.full(N, 1 / N)
    if way == "weighted":
        p = list(WEIGHTS.values())[plate] / list(WEIGHTS.values())[plate].sum()
    if way in ("iid", "weighted"):
        samples = list(multisets(N, n, p))
    elif way == "without":
        subsets = list(combinations(range(N), n))
        samples = [(list(s), 1 / len(subsets)) for s in subsets]
    else:
        samples = [([(start + i) % N for i in range(n)], 1 / N) for start in range(N)]
    return [(rows, 1 / (n * p[rows]), probability) for rows, probability in samples]


def fixed_blocks(plate):
    N, n = N_ROWS[plate], BATCH[plate]
    blocks = [list(range(start, min(start + n, N))) for start in range(0, N, n)]
    return [(rows, np.full(len(rows), len(blocks)), 1 / len(blocks)) for rows in blocks]


def combined(constant, contributions):
    """Sums over the plates of one contribution each, and products of the probabilities.

    `contributions` lists for each plate (value, probability) of all its minibatches.
    """
    listed = list(product(*contributions))
    values = np.array([constant + sum(value for value, _ in choice) for choice in listed])
    return values, np.array([np.prod([p for _, p in choice]) for choice in listed])


def estimates_with_reference(theta, fresh, reference, minibatches):
    """ℓ₀′ + Σ rᵢ + Σ wᵢ(ℓᵢ′ − rᵢ) for every minibatch; rᵢ = 0 is the standard estimator."""
    contributions = [
        [(r.sum(0) + w @ (g[rows] - r[rows]), p) for rows, w, p in listed]
        for g, r, listed in zip(fresh, reference, minibatches)
    ]
    return combined(prior_gradient(theta), contributions)


def listed_estimates(problem, way, estimator, theta=THETA, reference_at=CENTER):
    data = data_in_order(problem)
    fresh, reference = row_gradients(theta, data), row_gradients(reference_at, data)
    if estimator == STANDARD:
        reference = [np.zeros_like(r) for r in reference]
    listed = [
        fixed_blocks(i) if estimator == SAGA_BLOCKS else all_minibatches(way, i) for i in (0, 1)
    ]
    return estimates_with_reference(theta, fresh, reference, listed)


def chain_of(problem, estimator, center=CENTER, **kwargs):
    constant = sum(rows.sum(0) for rows in row_gradients(center))
    method = Method(estimator, EULER, NONE, center=center, constant=constant, **kwargs)
    return Chain(problem, method)


def drawn_estimates(problem, estimator, draws, theta=THETA, seed=0):
    """Estimates of the compiled code; SAGA's table is filled at the center before each."""
    chain, rng = chain_of(problem, estimator), np.random.default_rng(seed)
    estimates = np.empty((draws, 3))
    chain.start(theta, rng, table_at=CENTER)
    for i in range(draws):
        if estimator in (SAGA, SAGA_BLOCKS):
            chain.start(theta, rng, table_at=CENTER)
        estimates[i] = chain.estimate()
    return estimates


def nearest(values, estimates):
    """Index of the listed value nearest to each estimate, and how far it is."""
    tree = cKDTree(values)
    gaps, _ = tree.query(values, k=2)
    assert gaps[:, 1].min() > 1e-6, "two minibatches of the test have the same estimate"
    distance, place = tree.query(estimates)
    return place, distance.max()


CASES = [
    *((way, STANDARD) for way in ("iid", "weighted", "without", "block")),
    *((way, CONTROL_VARIATE) for way in ("iid", "weighted", "without", "block")),
    *((way, SAGA) for way in ("iid", "without", "block")),
    ("block", SAGA_BLOCKS),
]
NAMES = {STANDARD: "standard", CONTROL_VARIATE: "control variate", SAGA: "SAGA"}
CASE = pytest.mark.parametrize(
    ("way", "estimator"), CASES, ids=[f"{NAMES.get(e, 'SAGA blocks')} {w}" for w, e in CASES]
)
SAGA_CASE = pytest.mark.parametrize(
    ("way", "estimator"), [case for case in CASES if case[1] in (SAGA, SAGA_BLOCKS)]
)


@pytest.fixture(scope="module")
def collected(problems):
    """Listed estimates, their probabilities and the drawn estimates, once per case."""
    found = {}

    def collect(way, estimator):
        if (way, estimator) not in found:
            values, p = listed_estimates(problems[way], way, estimator)
            found[way, estimator] = values, p, drawn_estimates(problems[way], estimator, DRAWS[way])
        return found[way, estimator]

    return collect


def test_the_pencil_and_paper_gradient_is_that_of_the_compiled_model(problems):
    for problem in problems.values():
        for theta in (THETA, CENTER, ELSEWHERE):
            np.testing.assert_allclose(
                problem.gradient(theta[None])[0], full_gradient(theta), rtol=ROUNDING
            )


@CASE
def test_every_estimate_is_that_of_one_of_all_minibatches(collected, way, estimator):
    values, _, estimates = collected(way, estimator)
    _, error = nearest(values, estimates)
    assert error < ROUNDING


@CASE
def test_minibatches_turn_up_as_often_as_they_should(collected, way, estimator):
    values, p, estimates = collected(way, estimator)
    place, _ = nearest(values, estimates)
    assert chisquare(np.bincount(place, minlength=len(p)), len(place) * p).pvalue > RARE


@CASE
def test_the_estimator_is_unbiased_over_all_minibatches(collected, way, estimator):
    values, p, estimates = collected(way, estimator)
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-12)
    place, _ = nearest(values, estimates)
    seen, first = np.unique(place, return_index=True)
    assert len(seen) == len(p), "a minibatch did not turn up"
    np.testing.assert_allclose(p @ estimates[first], full_gradient(THETA), rtol=ROUNDING)


@pytest.mark.parametrize("way", ["iid", "weighted", "without", "block"])
def test_the_control_variate_has_no_variance_at_the_center(problems, way):
    estimates = drawn_estimates(problems[way], CONTROL_VARIATE, 200, theta=CENTER)
    np.testing.assert_allclose(estimates - full_gradient(CENTER), 0, atol=ROUNDING)


@SAGA_CASE
def test_saga_has_no_variance_where_its_table_was_filled(problems, way, estimator):
    estimates = drawn_estimates(problems[way], estimator, 200, theta=CENTER)
    np.testing.assert_allclose(estimates - full_gradient(CENTER), 0, atol=ROUNDING)


def after_one_update(problem, way, estimator):
    """All estimates at ELSEWHERE that may follow one at THETA; the table was filled at CENTER."""
    data = data_in_order(problem)
    start, seen = row_gradients(CENTER, data), row_gradients(THETA, data)
    fresh = row_gradients(ELSEWHERE, data)
    contributions = []
    for plate in (0, 1):
        blocks = estimator == SAGA_BLOCKS
        listed = fixed_blocks(plate) if blocks else all_minibatches(way, plate)
        outcomes = {}
        for first, _, _ in listed:
            table = start[plate].copy()
            table[first] = seen[plate][first]
            for rows, w, _ in listed:
                value = table.sum(0) + w @ (fresh[plate][rows] - table[rows])
                outcomes[tuple(sorted(set(first))), tuple(rows)] = (value, 1.0)
        contributions.append(list(outcomes.values()))
    return combined(prior_gradient(ELSEWHERE), contributions)[0]


@SAGA_CASE
def test_saga_remembers_the_rows_it_has_seen_and_no_others(problems, way, estimator):
    chain, rng = chain_of(problems[way], estimator), np.random.default_rng(1)
    estimates = np.empty((2000, 3))
    for i in range(len(estimates)):
        chain.start(THETA, rng, table_at=CENTER)
        chain.estimate()
        chain.points[0] = ELSEWHERE
        estimates[i] = chain.estimate()
    distance, _ = cKDTree(after_one_update(problems[way], way, estimator)).query(estimates)
    assert distance.max() < ROUNDING


@pytest.mark.parametrize("estimator", [SAGA, SAGA_BLOCKS])
def test_saga_that_has_seen_every_row_at_a_point_has_no_variance_there(problems, estimator):
    chain, rng = chain_of(problems["block"], estimator), np.random.default_rng(2)
    chain.start(THETA, rng, table_at=CENTER)
    for _ in range(300):  # a row is left out with probability (4/5)^300 at most: 1e-29
        chain.estimate()
    for _ in range(20):
        np.testing.assert_allclose(chain.estimate(), full_gradient(THETA), rtol=ROUNDING)


def test_saga_starts_with_a_table_filled_at_its_first_point(problems):
    chain, rng = chain_of(problems["iid"], SAGA), np.random.default_rng(3)
    chain.start(THETA, rng)
    np.testing.assert_allclose(chain.estimate(), full_gradient(THETA), rtol=ROUNDING)


def test_saga_with_a_float32_table_is_the_same_to_single_precision(problems):
    values, _ = listed_estimates(problems["iid"], "iid", SAGA)
    chain, rng = chain_of(problems["iid"], SAGA, table_dtype="float32"), np.random.default_rng(4)
    for _ in range(100):
        chain.start(THETA, rng, table_at=CENTER)
        distance, _ = cKDTree(values).query(chain.estimate())
        assert distance < 1e-5


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("estimator", [SAGA, SAGA_BLOCKS])
def test_sagas_running_sum_stays_the_sum_of_its_table(problems, estimator, dtype):
    chain, rng = chain_of(problems["block"], estimator, table_dtype=dtype), np.random.default_rng(5)
    chain.start(THETA, rng)
    for _ in range(1000):
        chain.points[0] = THETA + rng.normal(size=3)
        chain.estimate()
    sums = [table.sum(0, dtype="float64") for table in chain.estimator.tables]
    np.testing.assert_allclose(chain.estimator.sums, sums, rtol=1e-11, atol=1e-11)


def test_a_moving_center_is_the_point_where_the_chain_last_refreshed_it(problems):
    """SVRG: estimates after a refresh are those of a control variate centered there."""
    chain, rng = chain_of(problems["iid"], CONTROL_VARIATE, refresh=2), np.random.default_rng(7)
    chain.start(THETA, rng)
    draws, gradients = np.empty((40, 3)), np.empty((40, 3))
    chain.run(np.full(40, 1e-4), 1, draws, gradients)
    for k in range(40):
        center = draws[k - k % 2]
        if k % 2 == 0:  # on the center itself there is no noise
            np.testing.assert_allclose(gradients[k], full_gradient(center), rtol=1e-9)
        values, _ = listed_estimates(problems["iid"], "iid", CONTROL_VARIATE, draws[k], center)
        assert np.abs(values - gradients[k]).max(1).min() < ROUNDING


# Lemma 1 of the paper, on a Gaussian regression with known sigma

SIGMA = 0.8
LIPSCHITZ = (X**2).sum(1) / SIGMA**2


def gaussian_noise(rows, p):
    """ξ of a minibatch: per-datum Hessians are −xᵢxᵢᵀ/σ², so that is all there is."""
    change = -X * ((X @ (THETA - CENTER)[:2]) / SIGMA**2)[:, None]
    return (change[rows] / (2 * p[rows])[:, None]).sum(0) - change.sum(0)


@pytest.fixture(scope="module")
def variances():
    """E‖ξ‖² of the control variate over all minibatches, from the compiled estimates."""
    model, found = regression(X, Y, batch_size=2, prior=2, sigma=SIGMA), {}
    for name, weights in (("uniform", np.ones(5)), ("Lipschitz", LIPSCHITZ)):
        problem, p = Problem(model, subsampling="iid", weights=weights), weights / weights.sum()
        constant = problem.likelihood_gradient(CENTER[None, :2])[0]
        method = Method(
            CONTROL_VARIATE, EULER, Diagonal(np.ones(2)), center=CENTER[:2], constant=constant
        )
        chain, rng = Chain(problem, method), np.random.default_rng(6)
        chain.start(THETA[:2], rng)
        noise = np.array([chain.estimate() for _ in range(6000)])
        noise -= problem.gradient(THETA[None, :2])[0]
        listed = list(multisets(5, 2, p))
        place, error = nearest(np.array([gaussian_noise(rows, p) for rows, _ in listed]), noise)
        seen, first = np.unique(place, return_index=True)
        assert error < ROUNDING and len(seen) == len(listed)
        found[name] = np.array([q for _, q in listed]) @ (noise[first] ** 2).sum(1), p
    return found


@pytest.mark.parametrize("chances", ["uniform", "Lipschitz"])
def test_the_control_variates_variance_is_the_closed_form_of_a_gaussian(variances, chances):
    variance, p = variances[chances]
    squares = (X**2).sum(1) * (X @ (THETA - CENTER)[:2]) ** 2 / SIGMA**4
    mean = X.T @ X @ (THETA - CENTER)[:2] / SIGMA**2
    np.testing.assert_allclose(variance, (np.sum(squares / p) - mean @ mean) / 2, rtol=ROUNDING)


def test_the_control_variates_variance_is_within_lemma_1(variances):
    distance = np.sum((THETA - CENTER)[:2] ** 2)
    assert 0 < variances["Lipschitz"][0] <= LIPSCHITZ.sum() ** 2 / 2 * distance


EXPONENTS = np.array([0.0, -0.7, 2.0])


def test_a_control_variate_that_follows_its_parameters_is_unbiased(problems):
    """Every estimate is A + ρ (C − B) of one minibatch, ρ = exp(α (θ − θ̂)) componentwise."""
    problem, draws = problems["block"], DRAWS["block"]
    data = data_in_order(problem)
    fresh, reference = row_gradients(THETA, data), row_gradients(CENTER, data)
    rho = np.exp(EXPONENTS * (THETA - CENTER))
    listed = [all_minibatches("block", i) for i in (0, 1)]
    values, p = estimates_with_reference(THETA, fresh, [rho * r for r in reference], listed)
    np.testing.assert_allclose(p @ values, full_gradient(THETA), rtol=ROUNDING)
    chain = chain_of(problem, CONTROL_VARIATE, exponents=EXPONENTS)
    chain.start(THETA, np.random.default_rng(0))
    place, error = nearest(values, np.stack([chain.estimate() for _ in range(draws)]))
    assert error < ROUNDING
    assert chisquare(np.bincount(place, minlength=len(p)), draws * p).pvalue > RARE


STRATA = (np.array([0, 1, 0, 1, 0]), np.array([1, 0, 1, 0]))
STRATUM_BATCH = (2, 1, 1, 2)  # of two strata each; the last one is taken whole


@pytest.mark.parametrize("estimator", [STANDARD, CONTROL_VARIATE], ids=["standard", "cv"])
def test_estimates_from_strata_are_unbiased(estimator):
    """A minibatch has a block of each stratum: 3 × 2 × 2 × 1 of them, all as likely.

    4,000 estimates miss one of twelve once in 10¹⁵⁰ times.
    """
    problem = Problem(declared())
    problem.lay_out(replace(problem.layout, batch_sizes=STRATUM_BATCH, strata=STRATA))
    assert [rows.n_rows for rows in problem.rows] == [3, 2, 2, 2]
    np.testing.assert_allclose(
        problem.gradient(THETA[None])[0], full_gradient(THETA), rtol=ROUNDING
    )
    estimates = drawn_estimates(problem, estimator, 4000)
    values, first = np.unique(estimates.round(8), axis=0, return_index=True)
    assert len(values) == 12
    np.testing.assert_allclose(estimates[first].mean(0), full_gradient(THETA), rtol=1e-9)


def test_rows_of_a_stratum_are_those_with_its_label():
    problem = Problem(declared())
    problem.lay_out(replace(problem.layout, batch_sizes=STRATUM_BATCH, strata=STRATA))
    outcomes = [np.sort(rows.arrays[-1].ravel()) for rows in problem.rows]
    data = [plate.arrays()[-1] for plate in problem.target.plates]
    expected = [data[0][STRATA[0] == k] for k in (0, 1)] + [data[1][STRATA[1] == k] for k in (0, 1)]
    for ours, theirs in zip(outcomes, expected, strict=True):
        np.testing.assert_array_equal(ours, np.sort(theirs))
