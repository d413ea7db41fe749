# SPDX-License-Identifier: Apache-2.0
"""Latent Dirichlet allocation against a list of every topic assignment there is.

The corpus is small enough to sum over all assignments z of a document's words: the likelihood, the
expected counts and the predictions that follow are exact. Averages of Gibbs sampling are compared
with them in units of their standard error, from independent seeds. Seeds are fixed; with the bound
of 6 standard errors (Student's t, 199 degrees of freedom) another seed would fail less than once in
10⁶ for each of at most 40 numbers.
"""

from itertools import product
from math import lgamma

import numpy as np
import pymc as pm
import pytest
import scipy.sparse as sp

import pymc_sgcv as sg
from pymc_sgcv.lda import gibbs

K, W = 2, 3
COUNTS = np.array([[2, 1, 0], [0, 1, 3], [1, 1, 1], [0, 4, 0], [3, 0, 1], [1, 0, 2]])
N = len(COUNTS)
ALPHA = np.array([0.7, 1.3])
RNG = np.random.default_rng(4)
TOPICS = RNG.gamma(1.0, size=(K, W))
SEEDS, ERRORS = 200, 6.0


def normalised(topics):
    return topics / topics.sum(axis=1, keepdims=True)


def assignments(counts, phi, alpha):
    """Every assignment of the words of a document, as counts (K, W), and p(words, assignment)."""
    words = np.repeat(np.arange(len(counts)), counts)
    for z in product(range(len(alpha)), repeat=len(words)):
        n = np.zeros(phi.shape)
        np.add.at(n, (list(z), words), 1)
        m = n.sum(1)
        log_p = lgamma(alpha.sum()) - lgamma((alpha + m).sum()) + (n * np.log(phi)).sum()
        log_p += sum(lgamma(a + b) - lgamma(a) for a, b in zip(alpha, m, strict=True))
        yield n, np.exp(log_p)


def log_likelihood(counts, phi, alpha=ALPHA):
    return np.log(sum(p for _, p in assignments(counts, phi, alpha)))


def expected_counts(counts, phi, alpha=ALPHA):
    listed = list(assignments(counts, phi, alpha))
    return sum(n * p for n, p in listed) / sum(p for _, p in listed)


def log_posterior(theta, counts=COUNTS):
    """θ = log of Gamma(1, 1) variables, with its Jacobian; every document."""
    phi = normalised(np.exp(theta.reshape(K, W)))
    return np.sum(theta - np.exp(theta)) + sum(log_likelihood(c, phi) for c in counts)


def slopes(function, theta, step=1e-5):
    unit = step * np.eye(len(theta))
    return np.array([function(theta + e) - function(theta - e) for e in unit]) / (2 * step)


def csr(counts):
    matrix = sp.csr_matrix(counts)
    return (
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.int32),
    )


def by_gibbs(documents, weights, phi, alpha=ALPHA, counts=COUNTS, sweeps=5, warmup=20, seed=0):
    documents, weights = np.array(documents, dtype=np.int32), np.array(weights, dtype=float)
    given = documents, weights, np.log(phi), alpha, *csr(counts)
    return gibbs.expected_counts(*given, sweeps, warmup, seed)


def in_standard_errors(estimates, truth):
    """How far the mean of independent estimates is from `truth`; equal to rounding counts as 0."""
    error = estimates.std(0, ddof=1) / np.sqrt(len(estimates))
    distance = np.abs(estimates.mean(0) - truth)
    return np.max(np.where(distance < 1e-12, 0.0, distance / np.maximum(error, 1e-12)))


def test_fisher_identity_gives_the_gradient_of_the_exact_log_likelihood():
    log_phi = np.log(normalised(TOPICS))
    for counts in COUNTS:
        found = slopes(
            lambda x, c=counts: log_likelihood(c, np.exp(x.reshape(K, W))), log_phi.ravel()
        )
        assert np.allclose(found, expected_counts(counts, np.exp(log_phi)).ravel(), atol=1e-7)


@pytest.mark.parametrize("n_topics", [1, 2, 5], ids=lambda k: f"{k} topics")
def test_gibbs_average_is_the_exact_expectation(n_topics):
    rng = np.random.default_rng(n_topics)
    phi, alpha = normalised(rng.gamma(1.0, size=(n_topics, W))), rng.uniform(0.5, 1.5, n_topics)
    documents, weights = [4, 0, 1, 5], [1.0, 2.0, -0.5, 0.3]
    truth = sum(
        w * expected_counts(COUNTS[d], phi, alpha) for d, w in zip(documents, weights, strict=True)
    )
    found = [by_gibbs(documents, weights, phi, alpha, seed=s) for s in range(SEEDS)]
    assert in_standard_errors(np.array(found), truth) < ERRORS


def test_the_expected_counts_of_a_word_add_up_to_its_count():
    found = by_gibbs([2, 1], [1.0, 1.0], normalised(TOPICS))
    assert np.allclose(found.sum(0), COUNTS[2] + COUNTS[1], atol=1e-12)


def test_random_numbers_follow_from_document_and_batch():
    phi = normalised(TOPICS)
    alone = by_gibbs([3, 0], [0.0, 1.0], phi)
    assert np.array_equal(alone, by_gibbs([3, 0], [0.0, 1.0], phi))
    assert np.allclose(alone, by_gibbs([3, 2, 0], [0.0, 0.0, 1.0], phi), atol=1e-15)
    assert not np.allclose(alone, by_gibbs([1, 0], [0.0, 1.0], phi))  # another batch
    assert not np.allclose(alone, by_gibbs([3, 0], [0.0, 1.0], phi, seed=1))


def test_the_forward_value_is_a_lower_bound_close_to_the_exact_value():
    phi = normalised(TOPICS)
    documents = np.arange(N, dtype=np.int32)
    bounds = gibbs.lower_bounds(documents, np.log(phi), ALPHA, *csr(COUNTS), 50)
    exact = np.array([log_likelihood(c, phi) for c in COUNTS])
    assert np.all(bounds <= exact)
    assert np.all(bounds > exact - 0.5)


def test_the_bound_is_exact_with_one_topic():
    phi = normalised(np.array([[1.0, 2.0, 3.0]]))
    documents = np.arange(N, dtype=np.int32)
    bounds = gibbs.lower_bounds(documents, np.log(phi), np.array([0.8]), *csr(COUNTS), 3)
    assert np.allclose(bounds, COUNTS @ np.log(phi[0]), atol=1e-9)


def declared(batch_size=2, sweeps=5000):
    with pm.Model() as model:
        topics = pm.Gamma("topics", 1, 1, shape=(K, W), initval=TOPICS)
        sg.lda.Documents("documents", topics, COUNTS, alpha=ALPHA, batch_size=batch_size,
                         sweeps=sweeps, warmup=20)  # fmt: skip
    return model


@pytest.fixture(scope="module")
def step():
    given = {"center": {"topics": TOPICS}, "step_size": 0.01, "preconditioner": None}
    return sg.SGLDCV(model=declared(), progressbar=False, **given)


def test_the_compiled_gradient_is_that_of_the_exact_log_posterior(step):
    theta = RNG.normal(size=K * W)
    phi = normalised(np.exp(theta.reshape(K, W)))
    found = step.problem.gradient(theta[None])[0]
    # the error of one estimate, from others with other seeds, through the chain rule of φ
    others = [by_gibbs(range(N), np.ones(N), phi, sweeps=5000, seed=s) for s in range(1, 21)]
    others = np.array([(n - n.sum(1, keepdims=True) * phi).ravel() for n in others])
    error = others.std(0, ddof=1)
    assert np.all(np.abs(found - slopes(log_posterior, theta)) < 8 * error)  # t, 19 df: 2e-7
    assert np.all(error < 0.02)  # a test that could not fail would prove nothing


def test_gibbs_noise_cancels_in_the_control_variate_at_the_center(step):
    center = np.log(TOPICS).ravel()
    chain = step.make_chain()
    chain.start(center, np.random.default_rng(1))
    exact = step.problem.gradient(center[None])[0]
    for _ in range(10):
        assert np.allclose(chain.estimate(), exact, atol=1e-12)


@pytest.mark.parametrize("batch_size", [2, None], ids=["minibatch", "plain"])
def test_samples_with_every_step_method(batch_size):
    model = declared(batch_size, sweeps=3)
    given = {"step_size": 0.01, "preconditioner": None}
    given |= {"thin": 2, "progressbar": False, "batch_size": None if batch_size else 2}
    with model:
        for step in (
            sg.SGLD(**given),
            sg.SGLDCV(center={"topics": TOPICS}, **given),
            sg.SAGA(table="blocks", **given),
        ):
            idata = sg.sample(
                5, step=step, tune=0, chains=2, random_seed=1, progressbar=False,
                compute_convergence_checks=False,
            )  # fmt: skip
            draws = idata["posterior"]["topics"].values
            assert draws.shape == (2, 5, K, W)
            assert np.isfinite(draws).all() and np.ptp(draws, axis=1).min() > 0


def test_perplexity_is_that_of_the_exact_predictions():
    phi, held_out = normalised(TOPICS), COUNTS[::-1]
    total = 0.0
    for given, wanted in zip(COUNTS, held_out, strict=True):
        eta = ALPHA + expected_counts(given, phi).sum(1)
        total -= wanted @ np.log(eta / eta.sum() @ phi)
    exact = np.exp(total / held_out.sum())
    found = np.array([sg.lda.perplexity(TOPICS, COUNTS, held_out, alpha=ALPHA, sweeps=200, seed=s)
                      for s in range(50)])  # fmt: skip
    assert np.std(found) < 0.01 * exact
    assert abs(found.mean() - exact) < 1e-3 * exact


def test_perplexity_of_several_draws_averages_their_predictions():
    same = sg.lda.perplexity(np.stack([TOPICS, TOPICS]), COUNTS, COUNTS, alpha=ALPHA)
    assert same == pytest.approx(sg.lda.perplexity(TOPICS, COUNTS, COUNTS, alpha=ALPHA), rel=1e-12)
    one_word = np.array([[1.0, 1e-9, 1e-9]])
    other = np.array([[1e-9, 1.0, 1e-9]])
    each = sg.lda.perplexity(np.stack([one_word, other]), COUNTS[:1], [[1, 1, 0]])
    assert each == pytest.approx(2.0, rel=1e-6)  # half for either word


def test_split_words_leaves_every_word_in_one_part():
    stay, held_out = sg.lda.split_words(COUNTS, 0.5, random_seed=1)
    assert np.array_equal((stay + held_out).toarray(), COUNTS)
    assert stay.sum() > 0 and held_out.sum() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": -COUNTS}, "whole numbers of at least 0"),
        ({"counts": COUNTS + 0.5}, "whole numbers of at least 0"),
        ({"counts": COUNTS[:, :2]}, r"shape \(topics, 2\)"),
        ({"alpha": 0.0}, "alpha must be positive"),
        ({"alpha": [1.0, 1.0, 1.0]}, "one per topic"),
        ({"sweeps": 0}, "sweeps must be a whole number of at least 1"),
        ({"warmup": 1.5}, "warmup must be a whole number"),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else "",
)
def test_bad_input_is_refused(change, message):
    with pm.Model(), pytest.raises(ValueError, match=message):
        topics = pm.Gamma("topics", 1, 1, shape=(K, W))
        sg.lda.Documents("documents", topics, **({"counts": COUNTS} | change))
