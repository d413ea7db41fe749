# SPDX-License-Identifier: Apache-2.0
"""Passes over all rows, wherever they are."""

import copy

import cloudpickle
import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from pymc_sgcv.rows.full_pass import Code, Job, Scoring, full_pass
from pymc_sgcv.rows.population import Population
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.sources.base import as_source

N = 5000


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 2)).astype(np.float32)
    return X, (rng.random(N) < 1 / (1 + np.exp(-X[:, 0]))).astype(np.int8)


def declared(X, y):
    with pm.Model() as model:
        xb, yb = sg.Minibatch(X, y)
        beta = pm.Normal("beta", 0, 2, shape=2)
        pm.Bernoulli("y", logit_p=xb @ beta, observed=yb, total_size=len(y))
    return model


@pytest.fixture(scope="module")
def problem(data):
    return Problem(declared(*data), population=Population("sample"))


@pytest.fixture(scope="module")
def code(problem):
    return problem._codes[0]


THETA = np.array([0.3, -0.2])


def exact(X, y, theta=THETA):
    X = X.astype(float)
    return X.T @ (y - 1 / (1 + np.exp(-X @ theta)))


def test_a_pass_adds_up_the_gradient_of_all_rows(problem, data):
    gradient, samples = problem.pass_over_all(THETA)
    assert gradient == pytest.approx(exact(*data), rel=1e-10)
    assert samples == [] and problem.data_passes == 1


def test_the_sum_does_not_depend_on_blocks(problem, code, data):
    sources, plate = problem.target.plates[0].sources(), problem.target.plates[0]
    whole, _ = full_pass(code, plate, sources, THETA[None], {})
    job = Job(code, THETA[None], {})
    parts = [job([s.read(i, i + 700) for s in sources], i) for i in range(0, N, 700)]
    found = parts[0]
    for part in parts[1:]:
        found = job.merge(found, part)
    assert found.gradient == pytest.approx(whole, rel=1e-12)


def test_the_sample_does_not_depend_on_blocks(problem, code, data):
    points = THETA + np.array([[0, 0], [0.02, 0.03], [-0.02, -0.03]])
    sources, plate = problem.target.plates[0].sources(), problem.target.plates[0]
    scoring = Scoring(points, 1e-3, 1e-6)
    _, sample = full_pass(code, plate, sources, THETA[None], {}, scoring)
    job = Job(code, THETA[None], {}, scoring)
    parts = [job([s.read(i, i + 333) for s in sources], i) for i in range(0, N, 333)]
    level = np.concatenate([level for part in parts for level in part.level])
    assert sum(part.counts for part in parts).sum() == N
    assert sorted(sample.sizes) == sorted(np.unique(level, return_counts=True)[1].tolist())


def test_a_job_that_was_sent_elsewhere_finds_the_same(problem, code, data):
    scoring = Scoring(THETA + np.array([[0, 0], [0.1, 0], [-0.1, 0]]), 1e-3, 1e-6)
    job = Job(code, THETA[None], {}, scoring)
    sent = cloudpickle.loads(cloudpickle.dumps(job))
    rows = [s.read(0, 1000) for s in problem.target.plates[0].sources()]
    here, there = job(rows, 0), sent(rows, 0)
    assert np.array_equal(here.gradient, there.gradient)
    assert np.array_equal(here.level[0], there.level[0])
    again = cloudpickle.loads(cloudpickle.dumps(job))
    assert again.code is sent.code  # compiled once in a process
    assert isinstance(sent.code, Code) and sent.code is not code


def test_the_row_that_holds_nan_is_named(problem, code, data):
    X = data[0].copy()
    X[3210, 1] = np.nan
    sources = [as_source(X, "X"), as_source(data[1], "y")]
    with pytest.raises(ValueError, match=r"NaN or infinite values: row 3210 of X"):
        full_pass(code, problem.target.plates[0], sources, THETA[None], {})


def test_an_impossible_row_is_named(data):
    y = data[1].astype(float)
    with pm.Model() as model:
        yb = sg.Minibatch(np.abs(y) + 0.1)
        s = pm.HalfNormal("s", 1)
        pm.Exponential("y", s, observed=yb, total_size=N)
    problem = Problem(model, population=Population("sample"))
    y = np.abs(y) + 0.1
    y[77] = -1
    points = np.zeros((3, 1))
    with pytest.raises(ValueError, match="row 77 of y"):
        full_pass(
            problem._codes[0], problem.target.plates[0], [as_source(y, "y")], points[:1], {},
            Scoring(points, 1e-3, 1e-6),
        )  # fmt: skip


def test_integers_beyond_32_bits_are_refused(problem, code):
    X, y = np.ones((10, 2), np.float32), np.full(10, 2**40)
    with pytest.raises(ValueError, match="beyond 32 bits"):
        full_pass(code, problem.target.plates[0], [as_source(X), as_source(y)], THETA[None], {})


def test_a_copy_with_other_batches_leaves_the_prior_of_the_first_alone(problem):
    table = problem._prior_table.copy()
    other = copy.copy(problem)
    other.resize([2 * rows.batch_size for rows in other.rows])
    assert np.array_equal(problem._prior_table, table)  # it points to what `problem` holds


def test_a_declared_batch_has_no_more_rows_than_the_first_sample(data, monkeypatch):
    monkeypatch.setattr("pymc_sgcv.rows.population._FIRST_ROWS", 300)
    problem = Problem(declared(*data), batch_size=2000, population=Population("sample"))
    assert problem.rows[0].batch_size == problem.rows[0].n_rows <= 300
