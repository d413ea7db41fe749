# SPDX-License-Identifier: Apache-2.0
"""Noise of many parameters: chance is taken out, differences are not."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_sgcv.kernel.chain import Method
from pymc_sgcv.kernel.dynamics import EULER
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE
from pymc_sgcv.kernel.preconditioners import Diagonal
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup import noise as module
from pymc_sgcv.setup.noise import _steadied, gradient_noise
from tests.models import regression

COUNT, FEW, MANY = 100, 3, 10_000


@pytest.fixture(scope="module")
def problem():
    """A few global parameters, and one with many components."""
    parameters = [SimpleNamespace(start=0, stop=FEW), SimpleNamespace(start=FEW, stop=FEW + MANY)]
    return SimpleNamespace(target=SimpleNamespace(parameters=parameters))


def measured(noise):
    """Mean squares of a hundred normal numbers with these variances."""
    return noise * np.random.default_rng(0).chisquare(COUNT, len(noise)) / COUNT


def test_equal_noise_comes_out_nearly_equal(problem):
    """The largest of 10,000 is 1.6 times as large by chance, of which less than a tenth is left."""
    raw = measured(np.full(FEW + MANY, 0.2))
    steady = _steadied(raw, COUNT, problem)
    np.testing.assert_array_equal(steady[:FEW], raw[:FEW])
    assert raw[FEW:].max() > 0.3
    assert steady[FEW:].max() < 0.22


def test_noise_that_differs_keeps_its_size(problem):
    true = np.geomspace(0.01, 1, FEW + MANY)
    raw = measured(true)
    steady = _steadied(raw, COUNT, problem)
    error, before = (np.std(np.log(x / true)[FEW:]) for x in (steady, raw))
    assert error < 1.01 * before < 0.16


def test_the_worst_of_few_among_many_is_no_less_than_what_is_there(problem):
    """A hundred of 10,000: what is further off than chance takes any is not drawn to the rest."""
    true = np.full(FEW + MANY, 0.1)
    true[-100:] = 1.0
    steady = _steadied(measured(true), COUNT, problem)
    assert 0.9 < np.median(steady[-100:]) < 1.1


def test_noise_measured_in_threads_is_the_same_on_any_number_of_cores(monkeypatch):
    data = np.random.default_rng(2)
    problem = Problem(regression(data.normal(size=(2000, 3)), data.normal(size=2000), 50))
    d = problem.size
    center, draws = np.zeros(d), np.random.default_rng(0).normal(0, 0.1, (100, d))
    constant = problem.likelihood_gradient(center[None])[0]
    identity = Diagonal(np.ones(d))
    method = Method(CONTROL_VARIATE, EULER, identity, center=center, constant=constant)
    monkeypatch.setattr(module, "_MUCH_WORK", 0)
    found = []
    for cores in (1, 3):
        monkeypatch.setattr(module.os, "cpu_count", lambda cores=cores: cores)
        rng = np.random.default_rng(1)
        found.append(gradient_noise(problem, method, draws, identity, rng))
    np.testing.assert_array_equal(*found)
    assert (found[0] > 0).all()
