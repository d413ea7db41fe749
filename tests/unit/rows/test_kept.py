# SPDX-License-Identifier: Apache-2.0
"""Sums at the center that are kept for pieces of rows, and batches that are made of these."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.kernel.chain import Chain, Method
from pymc_sgcv.kernel.dynamics import EULER
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE
from pymc_sgcv.kernel.preconditioners import Diagonal
from pymc_sgcv.rows.kept import fitting, pieces_of
from pymc_sgcv.rows.minibatch import METHOD, PIECES, add_pieces, choose
from pymc_sgcv.rows.problem import Problem

N_ROWS, GROUPS = 4001, 20


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    group = np.arange(N_ROWS) % GROUPS
    y = rng.poisson(1.0, N_ROWS).astype("int32")
    with pm.Model() as model:
        u = pm.Normal("u", 0, 1, shape=GROUPS)
        pm.Poisson("y", pm.math.exp(pm.Normal("a", 0, 1) + u[group]), observed=y)
    return Problem(model, reparametrize=False)


@pytest.fixture(scope="module")
def points(problem):
    return np.random.default_rng(1).normal(0, 0.3, (2, problem.size))


def chain_at(problem, points):
    theta, center = points
    constant = problem.likelihood_gradient(center[None])[0]
    none = Diagonal(np.ones(problem.size))
    method = Method(CONTROL_VARIATE, EULER, none, center=center, constant=constant)
    chain = Chain(problem, method)
    chain.points[0] = theta
    chain.random[:] = [1, 2, 3, 4]
    return chain


@pytest.mark.parametrize("batch", [700, 2000, N_ROWS])
def test_all_batches_of_pieces_average_to_the_full_gradient(problem, points, batch):
    problem.resize([fitting(N_ROWS, batch)])
    chain = chain_at(problem, points)
    [kept] = problem.kept_at(points[1])
    found = {}
    while len(found) < kept.count:
        estimate = chain.estimate()
        found[int(chain._scratch[0].index[0])] = estimate
    exact = problem.gradient(points[:1])[0]
    np.testing.assert_allclose(np.mean(list(found.values()), 0), exact, atol=1e-9)


def test_what_is_kept_is_the_sum_at_the_center_over_the_very_rows(problem, points):
    problem.resize([fitting(N_ROWS, 700)])
    chain = chain_at(problem, np.stack([points[1], points[1]]))
    record, out = chain._scratch[0].record, np.zeros((2, problem.size))
    assert record[METHOD] == PIECES
    for _ in range(50):
        out[:] = 0.0
        choose(record, chain.random)
        add_pieces(record, chain.points, out)
        np.testing.assert_allclose(out[0], out[1], atol=1e-9)


def test_batches_of_pieces_are_as_large_as_asked_for():
    rng = np.random.default_rng(2)
    for _ in range(500):
        n_rows = int(10 ** rng.uniform(3.5, 7))
        batch = fitting(n_rows, int(n_rows * 10 ** rng.uniform(-2.5, 0)))
        found = pieces_of(n_rows, batch)
        if found is not None:
            count, together = found
            assert abs(together * n_rows / count - batch) <= max(1e-3 * batch, 1.0)
        else:
            assert batch < max(512, n_rows / 500)


def test_small_batches_are_blocks_as_before(problem, points):
    problem.resize([100])
    assert problem.kept_at(points[1]) == [None]
    assert chain_at(problem, points)._scratch[0].record[METHOD] != PIECES


def test_a_center_that_moves_keeps_nothing(problem, points):
    problem.resize([fitting(N_ROWS, 700)])
    chain = chain_at(problem, points)
    moving = Chain(problem, replace(chain.method, refresh=10))
    assert moving._scratch[0].kept is None


def test_sums_are_made_once_for_all_chains_at_a_center(problem, points):
    problem.resize([fitting(N_ROWS, 700)])
    one, other = (chain_at(problem, points)._scratch[0].kept for _ in range(2))
    assert one is other
    assert chain_at(problem, points[::-1])._scratch[0].kept is not one


def test_what_is_read_for_the_sums_counts_as_a_pass_once(problem, points):
    problem.lay_out(problem.first_layout())
    problem.resize([fitting(N_ROWS, 700)])
    before = problem.data_passes
    for _ in range(2):
        problem.kept_at(points[1])
    assert problem.data_passes == before + 1
