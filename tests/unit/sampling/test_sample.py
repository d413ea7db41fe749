# SPDX-License-Identifier: Apache-2.0
"""A chain that diverges: begun again with half of a step that we chose, an error for the user's."""

import numpy as np
import pytest

import pymc_sgcv as sg
from pymc_sgcv.kernel.chain import Chain, Divergence
from tests.models import regression
from tests.shared import QUIET

_rng = np.random.default_rng(120)
X = _rng.normal(size=(200, 2))
Y = X @ np.array([0.5, -0.3]) + _rng.normal(size=200)
run = Chain.run


@pytest.fixture(scope="module")
def model():
    return regression(X, Y, 50)


def limited(monkeypatch, longest):
    """Chains whose steps are longer than `longest` diverge."""

    def fragile(chain, steps, *rest, **options):
        if steps[0] > longest:
            raise Divergence("beta[1] is not finite at iteration 3 (step size 1): too long.")
        run(chain, steps, *rest, **options)

    monkeypatch.setattr(Chain, "run", fragile)


def test_a_step_of_ours_that_diverges_is_halved_and_the_run_goes_on(model, monkeypatch):
    with model:
        step = sg.SGLDCV(progressbar=False)
        limited(monkeypatch, 0.3 * step.plan.step_size)
        with pytest.warns(
            sg.SGCVWarning, match=r"2 of 2 chains diverged \(beta\[1\] is not finite"
        ):
            idata = sg.sample(50, chains=2, step=step, random_seed=1, **QUIET)
    steps = idata["sample_stats"]["step_size"].values
    np.testing.assert_allclose(steps, step.plan.step_size / 4, rtol=1e-12)


def test_what_is_begun_again_does_not_depend_on_the_threads(model, monkeypatch):
    draws = []
    with model:
        step = sg.SGLDCV(progressbar=False)
        limited(monkeypatch, 0.6 * step.plan.step_size)
        for cores in (1, 2):
            with pytest.warns(sg.SGCVWarning, match="diverged"):
                idata = sg.sample(50, chains=2, cores=cores, step=step, random_seed=1, **QUIET)
            draws.append(idata["posterior"]["beta"].values)
    np.testing.assert_array_equal(*draws)


def test_a_step_of_the_users_that_diverges_is_an_error(model, monkeypatch):
    with model:
        step = sg.SGLDCV(step_size=0.5, progressbar=False)
        limited(monkeypatch, 0.3)
        with pytest.raises(Divergence, match="beta"):
            sg.sample(50, chains=2, step=step, random_seed=1, **QUIET)


def test_a_step_that_no_halving_saves_is_an_error(model, monkeypatch):
    with model:
        step = sg.SGLDCV(progressbar=False)
        limited(monkeypatch, 0.0)
        with pytest.raises(Divergence, match="beta"):
            sg.sample(50, chains=2, step=step, random_seed=1, **QUIET)
