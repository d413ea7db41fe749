# SPDX-License-Identifier: Apache-2.0
"""What the set-up makes of a user's center."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from tests.shared import no_warning

N = 400
Y = np.random.default_rng(0).normal(1.0, 2.0, N)
GIVEN = {"step_size": 0.1, "preconditioner": None, "progressbar": False}


def normal(scale):
    """Data with an unknown scale, whose prior decides the transform."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0, 10), scale("s"), observed=Y)
    return model


@pytest.fixture(scope="module")
def model():
    return normal(lambda name: pm.HalfNormal(name, 5))


def test_a_center_far_from_the_mode_is_warned_about(model):
    with model, pytest.warns(sg.SGCVWarning, match="given center is .* from the mode"):
        sg.SGLDCV(center={"mu": 20.0, "s": 2.0}, **GIVEN)


@pytest.mark.parametrize("method", [sg.SAGA, sg.SVRG])
def test_a_far_start_of_a_center_that_moves_is_not(method, model):
    with model, no_warning(sg.SGCVWarning):
        method(center={"mu": 20.0, "s": 2.0}, **GIVEN)


def test_a_center_near_the_mode_is_not(model):
    with model, no_warning(sg.SGCVWarning):
        sg.SGLDCV(center={"mu": Y.mean(), "s": Y.std()}, **GIVEN)


def test_a_center_means_the_same_values_under_another_transform(model):
    """The scale is positive in one model and bounded in the other: log and interval transform."""
    center = sg.find_center(model, progressbar=False, random_seed=1)
    with normal(lambda name: pm.Uniform(name, 0, 50)):
        step = sg.SGLDCV(center=center, **GIVEN)
    for name, value in center.point.items():
        np.testing.assert_allclose(step.plan.center.point[name], value, rtol=1e-6)
    assert not np.allclose(step.plan.center.theta, center.theta, rtol=0.1)
