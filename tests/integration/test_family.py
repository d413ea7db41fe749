# SPDX-License-Identifier: Apache-2.0
"""Every step method, with nothing given, on a Gaussian posterior that is known in closed form.

Two chains of 1,000 draws, each worth half an independent one: a mean has a standard error of 0.032
sd and a standard deviation one of 2.2 %. Tolerances are five of them, for the standard deviation
plus the 3 % that the automatic step size may cost: wrong by chance less than once in 10,000 runs.
"""

import inspect
import warnings

import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from tests.models import regression
from tests.shared import QUIET, no_warning

N = 3000
_rng = np.random.default_rng(8)
X = _rng.normal(size=(N, 3)) @ np.array([[1.0, 0, 0], [0.8, 0.6, 0], [0, 0, 100.0]])
Y = X @ np.array([0.5, -1.0, 0.01]) + _rng.normal(size=N)
COVARIANCE = np.linalg.inv(X.T @ X + np.eye(3))
MEAN, SD = COVARIANCE @ X.T @ Y, np.sqrt(np.diag(COVARIANCE))
METHODS = {
    "SGLDCV": (sg.SGLDCV, {}),
    "SGLDCV, preferential": (sg.SGLDCV, {"weights": "preferential"}),
    "SGLDCV, Euler": (sg.SGLDCV, {"integrator": "euler"}),
    "SGLD": (sg.SGLD, {}),
    "SAGA": (sg.SAGA, {}),
    "SAGA, blocks": (sg.SAGA, {"table": "blocks"}),
    "SVRG": (sg.SVRG, {}),
    "SGHMCCV": (sg.SGHMCCV, {}),
    "SGHMCCV, trajectories": (sg.SGHMCCV, {"leapfrog": 5, "friction": 0.3}),
    "SGHMCCV, Euler": (sg.SGHMCCV, {"integrator": "euler"}),
    "SGHMC": (sg.SGHMC, {}),
    "SGNHTCV": (sg.SGNHTCV, {}),
    "SGNHT": (sg.SGNHT, {}),
}


@pytest.fixture(scope="module")
def model():
    return regression(X, Y)


@pytest.mark.parametrize("name", METHODS)
def test_with_nothing_given_a_plain_model_is_sampled_right(name, model):
    method, arguments = METHODS[name]
    with model, no_warning():
        if method in (sg.SGLD, sg.SGHMC, sg.SGNHT):  # they recommend SGLDCV
            warnings.filterwarnings("ignore", "The noise of the plain gradient")
        if method in (
            sg.SGNHT,
            sg.SGNHTCV,
        ):  # in 3 dimensions the thermostat does that, rightly told
            warnings.filterwarnings("ignore", "A chain was carried away")
        step = method(progressbar=False, **arguments)
        idata = sg.sample(step=step, chains=2, random_seed=1, progressbar=False)
    draws = idata["posterior"]["beta"].values.reshape(-1, 3)
    assert (np.abs(draws.mean(0) - MEAN) < 0.16 * SD).all()
    assert (np.abs(draws.std(0) / SD - 1) < 0.14).all()
    attrs = idata["posterior"].attrs
    assert attrs["predicted_sd_error"] <= 0.03
    assert 50 <= attrs["batch_size"] <= N


@pytest.mark.parametrize("name", ["SGLDCV", "SGHMCCV", "SVRG"])
def test_a_fixed_batch_size_is_respected_and_auto_may_be_asked_for(name, model):
    method = getattr(sg, name)
    with model:
        given = method(batch_size=77, progressbar=False)
    assert given.plan.layout.batch_sizes == (77,)
    with regression(X, Y, batch_size=20):
        declared, chosen = method(progressbar=False), method(batch_size="auto", progressbar=False)
    assert declared.plan.layout.batch_sizes == (20,)
    assert chosen.plan.layout.batch_sizes[0] > 20


def test_two_processes_draw_with_the_weights_and_batches_of_one(model):
    with model:
        step = sg.SGLDCV(weights="preferential", progressbar=False)
        one, two = (
            pm.sample(20, tune=0, step=step, chains=2, cores=cores, random_seed=3, **QUIET)
            for cores in (1, 2)
        )
    np.testing.assert_array_equal(one["posterior"]["beta"], two["posterior"]["beta"])


@pytest.mark.parametrize("method", [sg.SGLD, sg.SGLDCV, sg.SAGA, sg.SVRG, sg.SGHMCCV, sg.SGNHT])
def test_the_signature_shows_all_arguments_of_a_method_and_no_others(method):
    names = set(inspect.signature(method).parameters)
    assert {"vars", "step_size", "batch_size", "integrator", "thin", "model"} <= names
    assert ("center" in names) == (method in (sg.SGLDCV, sg.SAGA, sg.SVRG, sg.SGHMCCV))
    assert ("friction" in names) == (method in (sg.SGHMCCV, sg.SGNHT))
    assert ("weights" in names) == (method is not sg.SAGA)
    assert not {name for name in names if name.startswith("_")} | ({"further", "common"} & names)
