# SPDX-License-Identifier: Apache-2.0
"""The half-step check: the second run is what it says, and its verdict follows the theory."""

import logging

import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from pymc_sgcv.results import containers
from pymc_sgcv.sampling.check import halved, iterations
from pymc_sgcv.steps.base import StochasticGradientStep
from tests.models import regression
from tests.shared import no_warning

_rng = np.random.default_rng(0)
X = _rng.normal(size=(2000, 2))
Y = X @ np.array([0.5, -0.5]) + _rng.normal(size=2000)
MODEL = regression(X, Y)
QUIET = {"progressbar": False, "chains": 4, "random_seed": 3, "model": MODEL}


@pytest.fixture(scope="module")
def checked():
    with MODEL:
        step = sg.SGLDCV(progressbar=False, batch_size=50)
        return step, sg.sample(600, step=step, check=True, **QUIET)


def estimate(idata, name, quantity):
    table = containers.get_group(idata, "half_step")["beta"]
    return table.sel(half_step_estimate=name, half_step_quantity=quantity).values


def test_noise_is_taken_out_of_the_injected_noise_at_half_the_step_too(checked):
    """Leimkuhler–Matthews: B(h) = (h/4) / (1 − h/4); blocks of all rows have no noise."""
    step, _ = checked
    h, n, n_rows = step.plan.step_size, 50, len(Y)
    problem, method = halved(step)
    assert problem.layout.batch_sizes == (2 * n,) and step.problem.layout.batch_sizes == (n,)
    assert problem.rows[0].arrays[0] is step.problem.rows[0].arrays[0]

    def per_noise(h):
        return h / 4 / (1 - h / 4)

    noise = (1 - step.plan.method.kept**2) / per_noise(h)
    assert noise.max() > 0.001
    fewer = (1 / (2 * n) - 1 / n_rows) / (1 / n - 1 / n_rows)
    expected = 1 - per_noise(h / 2) * fewer * noise
    np.testing.assert_allclose(method.kept**2, expected, rtol=1e-12)


def test_the_second_run_has_the_posterior_of_the_model(checked):
    """Five standard errors, of four quantities of two coefficients."""
    _, idata = checked
    covariance = np.linalg.inv(X.T @ X + np.eye(2))
    mean, sd = covariance @ X.T @ Y, np.sqrt(np.diag(covariance))
    error = estimate(idata, "standard_error", "mean")
    assert np.all(np.abs(estimate(idata, "half_step", "mean") - mean) < 5 * error * sd)
    error = estimate(idata, "standard_error", "sd")
    assert np.all(np.abs(estimate(idata, "half_step", "sd") / sd - 1) < 5 * error)


def test_the_check_changes_no_draw_and_is_the_same_again(checked):
    step, idata = checked
    with MODEL:
        plain = sg.sample(600, step=step, check=False, **QUIET)
        again = sg.sample(600, step=step, check=True, **{**QUIET, "cores": 1})
    draws = [containers.get_group(one, "posterior")["beta"] for one in (idata, plain, again)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert "half_step" not in containers.group_names(plain)
    for name in ("half_step", "half_step_quantiles"):
        before, after = (containers.get_group(one, name) for one in (idata, again))
        np.testing.assert_array_equal(before["beta"], after["beta"])


def test_the_sentence_is_kept(checked):
    _, idata = checked
    said = containers.get_group(idata, "posterior").attrs["half_step"]
    assert said.startswith("Half-step check: beyond Monte Carlo error means change by at most")


def test_a_step_that_is_too_long_changes_sds_as_theory_says():
    """Euler's variance is 1/(1 − h/4) too large, and batches of all rows have no noise."""
    h = 2.5
    with MODEL:
        step = sg.SGLDCV(step_size=h, integrator="euler", batch_size=len(Y), progressbar=False)
        with pytest.warns(sg.SGCVWarning, match=r"deviation of beta\[.\] changes by -"):
            idata = sg.sample(1500, step=step, check=True, **QUIET)
    expected = np.sqrt((1 - h / 4) / (1 - h / 8)) - 1
    change, error = (estimate(idata, name, "sd") for name in ("change", "standard_error"))
    assert np.all(np.abs(change - expected) < 5 * error)
    assert np.all(estimate(idata, "error_left", "sd") == -2 * change)
    assert not sg.diagnose(idata).loc["half_step_sd", "ok"]


def test_a_run_that_diverges_at_half_the_step_is_told(checked, monkeypatch):
    from pymc_sgcv.kernel.chain import Chain, Divergence

    step, _ = checked
    whole, run = step.plan.step_size, Chain.run

    def lost(chain, steps, *rest, **more):
        if steps[0] < whole:
            raise Divergence("beta[1] is not finite at iteration 7 (step size 0.5): too long.")
        return run(chain, steps, *rest, **more)

    monkeypatch.setattr(Chain, "run", lost)
    with MODEL, pytest.warns(sg.SGCVWarning, match=r"half the step .* beta\[1\] is not finite"):
        idata = sg.sample(100, step=step, check=True, **QUIET)
    assert sg.diagnose(idata).loc["half_step_diverged", "where"] == "beta[1]"


def test_what_is_cheap_is_made_twice_as_long_or_once_or_not(checked):
    """Of 600 draws after 200: 0.825 of the sampling time, twice as much for twice the rows."""
    step, idata = checked
    assert step.plan.seconds < 5
    found = [iterations(step, "auto", idata, 200, s) for s in (0.1, 2.9, 3.2, 1000.0)]
    assert found == [2, 1, 0, 0]
    assert iterations(step, True, idata, 200, 1000.0) == 2
    assert iterations(step, False, idata, 200, 0.1) == 0
    few = containers.new_container(
        {
            name: containers.get_group(idata, name).isel(draw=slice(30))
            for name in ("posterior", "sample_stats")
        }
    )
    assert iterations(step, "auto", few, 200, 0.1) == 0


def test_it_is_made_by_itself_only_with_the_other_checks(checked):
    step, _ = checked
    with MODEL, no_warning(sg.SGCVWarning):
        idata = sg.sample(100, step=step, compute_convergence_checks=False, **QUIET)
        assert "half_step" not in containers.group_names(idata)
        idata = sg.sample(200, step=step, **QUIET)
    assert "half_step" in containers.group_names(idata)


@pytest.mark.parametrize("wrong", ["yes", 1, None])
def test_other_values_are_refused(wrong):
    with pytest.raises(ValueError, match='check must be "auto", True or False'):
        sg.sample(check=wrong, **QUIET)


@pytest.mark.parametrize("method", [sg.SAGA, sg.SVRG, sg.SGHMCCV, sg.SGNHTCV, sg.SGLD])
def test_every_method_can_be_checked(method):
    with MODEL:
        step: StochasticGradientStep = method(progressbar=False, batch_size=200)
        idata = sg.sample(
            50, step=step, check=True, compute_convergence_checks=False, **{**QUIET, "chains": 2}
        )
    assert np.isfinite(estimate(idata, "change", "sd")).all()


def test_deterministics_follow_and_are_not_compared(caplog):
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        pm.Deterministic("twice", 2 * a)
        pm.Normal("y", a, 1.0, observed=Y)
    arguments = {**QUIET, "model": model, "chains": 2}
    with caplog.at_level(logging.INFO, "pymc.sgcv"):
        idata = sg.sample(60, check=True, **arguments)
        assert list(containers.get_group(idata, "half_step")) == ["a"]
        idata = sg.sample(60, check=True, var_names=["twice"], gradients=False, **arguments)
    assert list(containers.get_group(idata, "half_step")) == ["twice"]
    assert "Half-step check" in caplog.text
