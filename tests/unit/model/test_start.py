# SPDX-License-Identifier: Apache-2.0
"""The initial point is PyMC's, however it is evaluated."""

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.model.proof import prove_rows
from pymc_sgcv.model.start import initial_point
from pymc_sgcv.model.target import read_model
from tests.models import build


@pytest.fixture(scope="module")
def model():
    """A mean, a given value, a random one, and transforms that change the shape."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.3, 1)
        sigma = pm.HalfNormal("sigma", 2, initval=0.7)
        pm.Normal("beta", mu, sigma, shape=3, initval="prior")
        pm.Dirichlet("p", [1.0, 2.0, 3.0])
        pm.Uniform("u", pm.math.exp(mu), 5)
    return model


def same(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_the_initial_point_is_that_of_pymc(model):
    same(initial_point(model), model.initial_point(random_seed=0))


def test_given_values_replace_those_of_the_model(model):
    given = {"sigma": np.array(1.5), "p": np.array([0.2, 0.3, 0.5]), "mu": np.array(0.1)}
    found = pm.initial_point.make_initial_point_fn(model=model, overrides=given)(0)
    same(initial_point(model, given), found)


def test_values_on_the_models_own_scale(model):
    found = pm.initial_point.make_initial_point_fn(model=model, return_transformed=False)(0)
    same(initial_point(model, unconstrained=False), found)


def test_inner_graphs_of_ops_need_no_compiler(monkeypatch):
    """A softmax is one, which PyTensor compiles with C whatever its surroundings are."""
    from pytensor.link.c.op import COp

    asked = []
    monkeypatch.setattr(COp, "make_c_thunk", lambda op, *args, **kwargs: asked.append(op))
    target = read_model(build("softmax", 60), batch_size=20)
    prove_rows(target)
    assert not asked
