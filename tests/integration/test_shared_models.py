# SPDX-License-Identifier: Apache-2.0
"""SGLD beside another step method, on models whose joint posterior is known by enumeration."""

from itertools import product

import numpy as np
import pymc as pm
import pytest
from scipy.special import softmax
from scipy.stats import multivariate_normal

import pymc_sgcv as sg
from tests.shared import QUIET, no_warning

N = 40
RNG = np.random.default_rng(4)
U, V = RNG.normal(0.5, 1, N), RNG.normal(-0.3, 1, N)
Y = 0.2 + 0.25 * U + RNG.normal(size=N)
STEP = 0.4 / (N + 1)  # 0.4 in units of the conditional posterior of mu


def offset(z, k):
    return 0.3 * z * U + 0.25 * (k - 1) * V


@pytest.fixture(scope="module")
def model():
    """mu given the binary z and the ternary k is conjugate; z and k shift the rows differently."""
    with pm.Model() as model:
        z, k = pm.Bernoulli("z", 0.3), pm.DiscreteUniform("k", 0, 2)
        pm.Normal("y", pm.Normal("mu", 0, 1) + offset(z, k), 1.0, observed=Y)
    return model


def exact() -> dict[str, float]:
    """Posterior moments by enumeration of the six states of (z, k)."""
    states = list(product((0, 1), (0, 1, 2)))
    marginal = multivariate_normal(np.zeros(N), np.eye(N) + 1.0)
    logs = [marginal.logpdf(Y - offset(z, k)) + np.log(0.3 if z else 0.7) for z, k in states]
    p, z, k = softmax(logs), *np.array(states).T
    mean = np.array([(Y - offset(*state)).sum() / (N + 1) for state in states])
    moments = {"mu": p @ mean, "z": p @ z, "k": p @ k, "mu z": p @ (mean * z), "k²": p @ k**2}
    moments["mu²"] = p @ (1 / (N + 1) + mean**2)
    return {name: float(value) for name, value in moments.items()}


def moments(idata) -> tuple[dict[str, float], dict[str, float]]:
    """The same moments of the draws, with Monte Carlo errors from batch means."""
    draw = {name: idata["posterior"][name].values.astype(float) for name in ("mu", "z", "k")}
    draw |= {"mu z": draw["mu"] * draw["z"], "k²": draw["k"] ** 2, "mu²": draw["mu"] ** 2}
    blocks = {name: x.reshape(40, -1).mean(1) for name, x in draw.items()}
    errors = {name: b.std(ddof=1) / np.sqrt(len(b)) for name, b in blocks.items()}
    return {name: float(x.mean()) for name, x in draw.items()}, errors


def assert_exact(idata):
    """All moments within 6 Monte Carlo errors of 40 batch means: wrong once in 10⁵ runs.

    t with 39 degrees of freedom exceeds 6 with probability 5e-7, for 6 moments and 5 tests 2e-5.
    The bias of a step this long, 0.005 in the second moments, is allowed for.
    """
    got, errors = moments(idata)
    for name, value in exact().items():
        assert abs(got[name] - value) < 6 * errors[name] + 0.005, (name, got[name], value)


def sgld(**kwargs):
    """Nearly all rows: next to no gradient noise, so the step's own error is what remains."""
    given = {"batch_size": N - 1, "step_size": STEP, "preconditioner": None, "thin": 5}
    return sg.SGLD(vars=["mu"], **{**given, "progressbar": False, **kwargs})


def sample(model, step, draws=2000, cores=1, seed=11, **kwargs):
    with model:
        return pm.sample(
            draws,
            tune=100,
            step=step,
            chains=2,
            cores=cores,
            random_seed=seed,
            **QUIET,
            **kwargs,
        )


def others(model):
    with model:
        return [pm.BinaryGibbsMetropolis([model["z"]]), pm.Metropolis([model["k"]])]


@pytest.mark.parametrize("integrator", ["lm", "euler"])
def test_sgld_and_discrete_steps_together_target_the_joint_posterior(integrator, model):
    step_size = STEP if integrator == "lm" else STEP / 10
    thin = 5 if integrator == "lm" else 30
    with model:
        step = sgld(integrator=integrator, step_size=step_size, thin=thin)
    assert_exact(sample(model, [step, *others(model)]))


def test_the_order_of_the_steps_does_not_matter(model):
    with model:
        step = sgld()
    assert_exact(sample(model, [*others(model), step]))


def test_the_integrator_keeps_its_noise_from_one_draw_to_the_next(model):
    """Leimkuhler–Matthews averages successive noises: forgetting one loses half of the variance.

    Given z and k, mu has variance 1/(N + 1); the estimate has an error of 4 % (1,300 effective
    draws for its square), so 25 % are exceeded by chance once in 10⁸ runs.
    """
    with model:
        step = sgld(thin=1)
    posterior = sample(model, [step, *others(model)], draws=3000)["posterior"]
    mu, z, k = (posterior[name].values for name in ("mu", "z", "k"))
    mean = (Y - offset(z[..., None], k[..., None])).sum(-1) / (N + 1)
    assert abs((mu - mean).var() * (N + 1) - 1) < 0.25


def test_the_rest_of_the_model_gets_steps_by_itself(model):
    with model:
        step = sgld()
    assert_exact(sample(model, step))


def test_automatic_set_up_works_beside_other_steps(model):
    with model:
        step = sg.SGLD(vars=[model["mu"]], batch_size=N - 1, progressbar=False)
    assert_exact(sample(model, [step, *others(model)]))


def test_two_processes_give_the_draws_of_one(model):
    with model:
        steps = [sgld(), *others(model)]
    one = sample(model, steps, draws=30, cores=1)
    two = sample(model, steps, draws=30, cores=2, mp_ctx="fork")
    for name in ("mu", "z", "k"):
        np.testing.assert_array_equal(one["posterior"][name], two["posterior"][name])


def test_the_gradient_belongs_to_the_draw_when_sgld_comes_last(model):
    """Given the other variables of that draw, with all rows: Σ (y − offset − mu) − mu."""
    with model:
        steps = [*others(model), sgld(batch_size=N)]
    idata = sg.gradient_groups(sample(model, steps, draws=20))
    post = {name: idata["posterior"][name].values for name in ("mu", "z", "k")}
    residuals = Y - offset(post["z"][..., None], post["k"][..., None]) - post["mu"][..., None]
    expected = residuals.sum(-1) - post["mu"]
    np.testing.assert_allclose(idata["gradient"]["mu"], expected, rtol=1e-9)
    np.testing.assert_array_equal(idata["unconstrained_posterior"]["mu"], post["mu"])


@pytest.fixture(scope="module")
def halves():
    """Two continuous variables, each for its own SGLD."""
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1), pm.Normal("b", 0, 1)
        pm.Normal("y", a + b * U, 1.0, observed=Y)
    return model


def test_two_sgld_steps_share_a_model(halves):
    """Means within 6 batch-mean errors, standard deviations within 10 % (errors of 2 %)."""
    design = np.column_stack([np.ones(N), U])
    covariance = np.linalg.inv(design.T @ design + np.eye(2))
    mean, sd = covariance @ design.T @ Y, np.sqrt(np.diag(covariance))
    given = {"batch_size": N - 1, "step_size": STEP, "preconditioner": None, "thin": 3}
    with halves:
        steps = [sg.SGLD(vars=[name], progressbar=False, **given) for name in ("a", "b")]
    idata = sample(halves, steps, draws=4000)
    for i, name in enumerate(("a", "b")):
        draws = idata["posterior"][name].values
        error = draws.reshape(40, -1).mean(1).std(ddof=1) / np.sqrt(40)
        assert abs(draws.mean() - mean[i]) < 6 * error
        assert abs(draws.std() / sd[i] - 1) < 0.1
    groups = sg.gradient_groups(idata)
    assert set(groups["gradient"].data_vars) == {"a", "b"}


def minibatched(prior_only: bool):
    """`scale` is of the likelihood, or of the prior of mu alone."""
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=5)
        scale = pm.HalfNormal("scale", 1)
        mu = pm.Normal("mu", 0, scale if prior_only else 1)
        pm.Normal("y", mu, 1.0 if prior_only else scale, observed=y, total_size=N)
    return model


def test_another_step_on_a_minibatched_likelihood_is_warned_about():
    """It would see the likelihood of other random rows each time."""
    with minibatched(prior_only=False), pytest.warns(sg.SGCVWarning) as caught:
        sg.SGLD(vars=["mu"], step_size=STEP, preconditioner=None, progressbar=False)
    message = str(caught[0].message)
    assert all(part in message for part in ("'scale'", "'y'", "pm.Minibatch", "batch_size"))


def test_another_step_that_the_minibatch_does_not_reach_is_fine():
    with minibatched(prior_only=True), no_warning(sg.SGCVWarning):
        sg.SGLD(vars=["mu"], step_size=STEP, preconditioner=None, progressbar=False)


def test_settling_says_nothing_again(wide):
    """What the set-up warns of it has said once, when the step was made."""
    with pytest.warns(sg.SGCVWarning):
        _, run = wide_sampler(wide, 5, 20, batch_size=5, target_bias=1e-4)
    with no_warning(sg.SGCVWarning):
        run(cores=1)


SPREAD = np.random.default_rng(3).normal(1.0, 0.5, 2000)


@pytest.fixture(scope="module")
def wide():
    """The scale starts at six times its value, where the conditional sd of mu is six times too."""
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", 5, initval=3.0)
        pm.Normal("y", pm.Normal("mu", 0, 10), spread, observed=SPREAD)
    return model


def wide_sampler(wide, draws: int, tune: int, **arguments):
    """An automatic SGLD of mu, and a function that samples with it beside a slice sampler."""
    with wide:
        step = sg.SGLD(vars=["mu"], progressbar=False, **arguments)

    def run(**how):
        with wide:  # a slice sampler keeps the width that it has tuned: take a new one
            return pm.sample(
                draws, tune=tune, step=[step, pm.Slice([wide["spread"]])], chains=2, random_seed=1,
                discard_tuned_samples=False, **QUIET, **how,
            )  # fmt: skip

    return step, run


def test_automatic_steps_follow_the_other_variables(wide):
    step, run = wide_sampler(wide, 2000, 200, batch_size=500)
    first = step.plan
    draws = run(cores=1)["posterior"]["mu"].values
    assert step.plan is not first
    exact = SPREAD.std() / np.sqrt(len(SPREAD))
    assert abs(draws.mean() - SPREAD.mean()) < 0.3 * exact
    assert 0.9 < draws.std() / exact < 1.1  # 5 standard errors of 1000 effective draws


@pytest.mark.parametrize("tune", [0, 30])
def test_automatic_steps_are_the_same_in_one_process_two_and_again(wide, tune):
    """Though a slice sampler changes points in place, and each chain settles on its own batch."""
    _, run = wide_sampler(wide, 10, tune)
    one, two, again = run(cores=1), run(cores=2, mp_ctx="fork"), run(cores=1)
    for group in ("warmup_posterior", "posterior") if tune else ("posterior",):
        for other in (two, again):
            np.testing.assert_array_equal(one[group]["mu"], other[group]["mu"])
            np.testing.assert_array_equal(one[group]["spread"], other[group]["spread"])
