# SPDX-License-Identifier: Apache-2.0
"""Strata: rows of much influence are seen more often, and those that carry a parameter always."""

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import center_at
from pymc_sgcv.setup.strata import _allocated, influences, strata, stratify
from pymc_sgcv.setup.tuner import resize

N, RARE = 3000, 40
_rng = np.random.default_rng(5)
CATEGORY = np.zeros(N, dtype=int)
CATEGORY[_rng.choice(N, RARE, replace=False)] = 1
X = _rng.normal(size=N)
Y = X + CATEGORY + _rng.normal(size=N)
DESIGN = np.stack([np.ones(N), X, CATEGORY], axis=1)
PRECISION = DESIGN.T @ DESIGN + np.eye(3)


@pytest.fixture(scope="module")
def problem():
    with pm.Model() as model:
        a, slope, b = (pm.Normal(name, 0, 1) for name in ("a", "slope", "b"))
        pm.Normal("y", a + slope * X + b * CATEGORY, 1.0, observed=Y)
    return Problem(model)


@pytest.fixture(scope="module")
def center(problem):
    return center_at(problem, np.linalg.solve(PRECISION, DESIGN.T @ Y))


def test_influence_is_the_share_of_the_precision(problem, center):
    """Of a Gaussian row xᵢᵀ Σ xᵢ on average; here over 16 displacements, all rows by the same.

    Summed over rows that is χ² of about three degrees of freedom over 16 displacements: mean 3,
    standard error √(2·3/16) = 0.61. For a rare row it is χ²₁: relative standard error √(2/16).
    """
    [found] = influences(problem, center, False, np.random.default_rng(0))
    exact = np.einsum("ij,jk,ik->i", DESIGN, np.linalg.inv(PRECISION), DESIGN)
    assert abs(found.sum() - exact.sum()) < 5 * 0.61
    rare = CATEGORY == 1
    ratio = np.median(found[rare]) / np.median(exact[rare])
    assert abs(ratio - 1) < 5 * np.sqrt(2 / 16)
    assert found[rare].min() > found[~rare].max()


def test_rare_rows_have_a_stratum_that_is_taken_whole(problem, center):
    before = problem.layout
    assert stratify(problem, influences(problem, center, False, np.random.default_rng(0)), False)
    [labels] = problem.layout.strata
    assert set(labels[CATEGORY == 1]) == {labels.max()}
    resize(problem, 1.0)
    assert problem.rows[-1].batch_size == problem.rows[-1].n_rows
    assert problem.batch_rows < N / 2
    problem.lay_out(before)


def test_a_few_rows_join_those_with_more_influence_never_with_less():
    scores = np.concatenate([np.full(500, 1.0), np.full(10, 5.0), np.full(500, 30.0), [900.0]])
    labels = strata(scores)
    np.testing.assert_array_equal(labels, np.repeat([0, 1, 2], [500, 510, 1]))


@pytest.mark.parametrize("scores", [np.zeros(50), np.ones(50)], ids=["none", "equal"])
def test_rows_of_equal_influence_need_no_strata(scores):
    assert strata(scores) is None


def test_a_batch_of_given_size_keeps_it():
    """The rate of a stratum is s / (s + c), and c what the size leaves."""
    counts, scores = np.array([10_000, 500, 200]), np.array([1e-4, 1e-3, 1e-2])
    sizes = np.array(_allocated(counts, scores, 300))
    assert abs(sizes.sum() - 300) <= 3
    c = scores * (counts / sizes - 1)
    np.testing.assert_allclose(c / c.mean(), 1.0, atol=0.05)


def test_a_plain_model_goes_back_to_all_rows_alike(problem, center):
    before = problem.layout
    stratify(problem, influences(problem, center, False, np.random.default_rng(0)), False)
    stratified = problem.gradient(center.theta[None] + 0.1)
    problem.lay_out(before)
    np.testing.assert_allclose(stratified, problem.gradient(center.theta[None] + 0.1), rtol=1e-10)
