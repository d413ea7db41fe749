# SPDX-License-Identifier: Apache-2.0
"""Log-likelihoods of single rows, and what is decided by them."""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import bernoulli

import pymc_sgcv as sg
from pymc_sgcv.rows.population import Population
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.rows.sample import put_chosen, put_influences, put_levels
from pymc_sgcv.rows.terms import judged, row_terms

N, D = 5000, 6
POINTS = np.random.default_rng(2).normal(size=(9, D)) * 0.5


@pytest.fixture(scope="module", params=[np.float32, np.float64])
def rows(request):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, D)).astype(request.param)
    return X, (rng.random(N) < 0.4).astype(np.int32)


@pytest.fixture(scope="module")
def terms(rows):
    with pm.Model() as model:
        xb, yb = sg.Minibatch(*rows)
        beta = pm.Normal("beta", 0, 2, shape=D)
        pm.Bernoulli("y", logit_p=xb @ beta, observed=yb, total_size=N)
    return Problem(model, population=Population("sample"))._codes[0].terms


def test_terms_are_the_log_likelihoods_of_rows(terms, rows):
    X, y = rows
    found = row_terms(terms, POINTS, rows, [])
    p = 1 / (1 + np.exp(-POINTS @ X.T.astype(float)))
    assert found == pytest.approx(bernoulli.logpmf(y, p), rel=1e-12)


def test_terms_do_not_ask_whether_a_probability_is_one(terms, rows):
    """The answer is known, and costs a logistic function for every row and point."""
    X, y = rows
    far = np.full((9, D), 300.0)  # sigma is 0 or 1 to the last digit
    found = row_terms(terms, far, rows, [])
    eta = far @ X.T.astype(float)
    expected = np.where(y == 1, eta, 0) - np.maximum(eta, 0) - np.log1p(np.exp(-np.abs(eta)))
    assert found == pytest.approx(expected, rel=1e-12)


def test_rows_are_judged_by_their_terms_and_numbers_whatever_the_pieces(terms, rows):
    c, least, first = 30.0, 1e-4, 10**10
    s, level, taken = np.empty(N), np.empty(N, np.int8), np.empty(N, np.bool_)
    put_influences(np.ascontiguousarray(row_terms(terms, POINTS, rows, [])), least, s)
    put_levels(s, c, level)
    put_chosen(first, level, taken)
    assert 3 < len(np.unique(level)) and 0 < taken.sum() < N
    found = judged(terms, POINTS, rows, [], c, least, first)
    assert np.array_equal(found[0], level) and np.array_equal(found[1], taken)
    assert found[2] is None
    for start in range(0, N, 777):
        part = [array[start : start + 777] for array in rows]
        of_part = judged(terms, POINTS, part, [], c, least, first + start)
        assert np.array_equal(of_part[0], level[start : start + 777])
        assert np.array_equal(of_part[1], taken[start : start + 777])


def test_a_row_that_is_impossible_is_named(terms, rows):
    X, y = rows
    y = y.copy()
    y[[3210, 4000]] = 2
    assert judged(terms, POINTS, [X, y], [], 0.5, 1e-4, 100)[2] == 3310
