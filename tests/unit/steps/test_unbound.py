# SPDX-License-Identifier: Apache-2.0
"""A step method made outside a model is its configuration, and samples as it would have inside."""

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.sampling.sample import sample
from pymc_sgcv.steps.methods import SGLD, SGLDCV
from tests.shared import QUIET


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        mean = pm.Normal("mean")
        pm.Normal("y", mean, 1, observed=np.random.default_rng(0).normal(size=300))
    return model


def test_outside_a_model_it_is_a_configuration():
    sampler = SGLD(step_size=0.1, batch_size=50)
    assert not isinstance(sampler, SGLD)
    assert (sampler.method, sampler.arguments) == (SGLD, {"step_size": 0.1, "batch_size": 50})
    assert repr(sampler) == "SGLD(step_size=0.1, batch_size=50)"


def test_inside_it_is_a_step_method(model):
    with model:
        assert isinstance(SGLDCV(progressbar=False), SGLDCV)
    assert isinstance(SGLDCV(model=model, progressbar=False), SGLDCV)


def test_it_can_be_bound_to_several_models(model):
    sampler = SGLDCV(batch_size=60, progressbar=False)
    with pm.Model() as other:
        pm.Normal("y", pm.Normal("mean"), 1, observed=np.zeros(300))
    assert [sampler.bind(m).model for m in (model, other)] == [model, other]


def test_draws_are_those_of_the_step_method(model):
    arguments = {"draws": 20, "tune": 10, "chains": 2, "random_seed": 3, "model": model, **QUIET}
    unbound = sample(step=SGLDCV(batch_size=60), **arguments)
    bound = sample(step=SGLDCV(batch_size=60, model=model), **arguments)
    driven = SGLDCV(batch_size=60).sample_from_init(
        blas_cores=1, keep_warning_stat=False, idata_kwargs=None, quiet=True, **arguments
    )
    for other in (bound, driven):
        np.testing.assert_array_equal(unbound["posterior"]["mean"], other["posterior"]["mean"])


def test_an_argument_that_there_is_not_is_refused_at_once():
    with pytest.raises(TypeError, match="SGLDCV has no argument 'stepsize'"):
        SGLDCV(stepsize=0.1)
