# SPDX-License-Identifier: Apache-2.0
"""What `sg.sample` keeps of a run: what was asked for, with the same draws whatever that is."""

import tracemalloc
import warnings

import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from pymc_sgcv.results import containers
from pymc_sgcv.results.diagnostics import warn_about
from pymc_sgcv.results.running import Group
from pymc_sgcv.sampling import record
from pymc_sgcv.sampling.runs import Run
from tests.shared import QUIET

N, USERS, RANK = 400, 30, 2
DRAWS, TUNE, CHAINS = 40, 15, 2


@pytest.fixture(scope="module")
def model():
    """A small factorisation: matrices with dims, a positive scalar, and Deterministics of them."""
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, USERS, N), rng.integers(0, 20, N)
    rating = rng.normal(size=N)
    coords = {"user": [f"u{i}" for i in range(USERS)], "factor": ["f", "g"]}
    with pm.Model(coords=coords) as model:
        u, i, r = pm.Minibatch(user, item, rating, batch_size=50)
        spread = pm.HalfNormal("spread", 1)
        U = pm.Normal("U", 0, 0.3, dims=("user", "factor"))
        V = pm.Normal("V", 0, 0.3, shape=(20, RANK))
        pm.Deterministic("prediction", (U[:5] * V[:5]).sum(axis=1))
        pm.Deterministic("variance", spread**2)
        pm.Deterministic("constant", pm.math.constant(np.arange(3.0)))
        pm.Normal("r", (U[u] * V[i]).sum(axis=1), spread, observed=r, total_size=N)
    return model


@pytest.fixture(scope="module")
def step(model):
    with model:
        return sg.SGLDCV(
            center={"spread": 1.0, "U": np.full((USERS, RANK), 0.1)},
            step_size=1e-3,
            preconditioner=None,
            thin=2,
            progressbar=False,
        )


HOW = {"tune": TUNE, "chains": CHAINS, "cores": 1, "random_seed": 3, **QUIET}


def sample(step, draws=DRAWS, **kwargs):
    with step.model:
        return sg.sample(draws, step=step, **HOW, **kwargs)


@pytest.fixture(scope="module")
def whole(step):
    return sample(step, discard_tuned_samples=False)


def variables(idata, group):
    return set(idata[group].data_vars) if group in containers.group_names(idata) else set()


def assert_part_of(idata, whole):
    """Everything that `idata` holds is what `whole` holds under the same name."""
    for group in ("posterior", "gradient", "unconstrained_posterior"):
        for name in variables(idata, group):
            np.testing.assert_array_equal(idata[group][name], whole[group][name])
            assert idata[group][name].dims == whole[group][name].dims


# Beside the draws


@pytest.mark.parametrize("container", [False, True], ids=["array", "pm.Data"])
def test_observations_are_stored_as_pm_sample_stores_them(container):
    y = np.linspace(-1.0, 2.0, 50)
    with pm.Model(coords={"row": np.arange(50) + 7}):
        observed = pm.Data("data", y, dims="row") if container else y
        pm.Normal("y", pm.Normal("mu"), 1, observed=observed, dims="row")
        step = sg.SGLDCV(progressbar=False)
        how = {"step": step, "chains": 1, "cores": 1, "random_seed": 1, "progressbar": False}
        ours = sg.sample(5, tune=0, compute_convergence_checks=False, **how)
        theirs = pm.sample(5, tune=0, compute_convergence_checks=False, **how)
    assert ours["observed_data"]["y"].identical(theirs["observed_data"]["y"])
    np.testing.assert_array_equal(ours["observed_data"]["row"], np.arange(50) + 7)


def test_minibatched_observations_are_not_stored(whole):
    assert "observed_data" not in containers.group_names(whole)


# Without var_names


def test_everything_is_stored_by_default(whole):
    values = {"spread_log__", "U", "V"}
    assert variables(whole, "posterior") == {
        "spread", "U", "V", "prediction", "variance", "constant",
    }  # fmt: skip
    assert variables(whole, "gradient") == variables(whole, "unconstrained_posterior") == values


def test_the_draws_are_those_of_pm_sample(step, whole):
    with step.model:
        names = ["spread", "U", "V", "prediction", "variance"]
        theirs = pm.sample(DRAWS, step=step, var_names=names, **HOW)
    theirs = sg.gradient_groups(theirs)
    for name in ("U", "V"):
        np.testing.assert_array_equal(theirs["posterior"][name], whole["posterior"][name])
        np.testing.assert_array_equal(theirs["gradient"][name], whole["gradient"][name])
    for name in ("spread", "prediction", "variance"):
        np.testing.assert_allclose(theirs["posterior"][name], whole["posterior"][name], rtol=1e-12)


def test_the_stored_draws_belong_together(whole):
    p, z = whole["posterior"], whole["unconstrained_posterior"]
    np.testing.assert_allclose(np.exp(z["spread_log__"]), p["spread"], rtol=1e-12)
    np.testing.assert_allclose(p["variance"], p["spread"] ** 2, rtol=1e-12)
    product = (p["U"].values[:, :, :5] * p["V"].values[:, :, :5]).sum(-1)
    np.testing.assert_allclose(p["prediction"], product, rtol=1e-12, atol=1e-15)


def test_a_deterministic_of_no_variable_is_repeated(whole):
    assert (whole["posterior"]["constant"].values == np.arange(3.0)).all()
    assert whole["posterior"]["constant"].shape == (CHAINS, DRAWS, 3)


def test_the_warmup_is_stored_only_if_kept(step, whole):
    assert "warmup_posterior" not in containers.group_names(sample(step, draws=5, gradients=False))
    assert whole["warmup_posterior"]["U"].shape == (CHAINS, TUNE, USERS, RANK)
    assert whole["warmup_gradient"]["V"].shape == (CHAINS, TUNE, 20, RANK)
    assert whole["warmup_sample_stats"]["step_size"].shape == (CHAINS, TUNE)


def test_small_blocks_change_nothing(step, whole, monkeypatch):
    monkeypatch.setattr(record, "_BLOCK_NUMBERS", 500)  # of about 150 parameters: 3 draws
    idata = sample(step, discard_tuned_samples=False)
    assert_part_of(idata, whole)
    near = idata["posterior"].attrs["chain_distance"], whole["posterior"].attrs["chain_distance"]
    np.testing.assert_allclose(*near, rtol=1e-10)


# With var_names and gradients


def test_what_a_named_variable_depends_on_has_its_gradients_stored(step, whole):
    idata = sample(step, var_names=["prediction"])
    assert variables(idata, "posterior") == {"prediction"}
    assert variables(idata, "gradient") == variables(idata, "unconstrained_posterior") == {"U", "V"}
    assert_part_of(idata, whole)


def test_a_transformed_variable_keeps_the_gradient_of_its_value(step, whole):
    idata = sample(step, var_names="variance")
    assert variables(idata, "gradient") == {"spread_log__"}
    assert_part_of(idata, whole)


def test_gradients_can_be_left_out(step, whole):
    idata = sample(step, var_names=["prediction", "spread"], gradients=False)
    assert variables(idata, "posterior") == {"prediction", "spread"}
    assert not variables(idata, "gradient") | variables(idata, "unconstrained_posterior")
    assert_part_of(idata, whole)


def test_gradients_can_be_named(step, whole):
    idata = sample(step, var_names=["prediction"], gradients=["U", "spread"])
    assert variables(idata, "gradient") == {"U", "spread_log__"}
    assert_part_of(idata, whole)


def test_the_distance_from_the_center_is_that_of_all_parameters(step, whole):
    p = whole["unconstrained_posterior"]
    flat = [p[v].values.reshape(CHAINS * DRAWS, -1) for v in ("spread_log__", "U", "V")]
    draws = np.hstack(flat)
    away = np.abs(draws.mean(0) - step.plan.center.theta) / draws.std(0)
    attrs = sample(step, var_names=["variance"], gradients=False)["posterior"].attrs
    np.testing.assert_allclose(attrs["chain_distance"], away.max(), rtol=1e-10)
    assert attrs["chain_distance_where"] == step.problem.target.describe(int(away.argmax()))
    assert attrs["parameters"] == draws.shape[1]


def test_memory_is_that_of_what_is_stored(step, monkeypatch):
    """3,000 draws of 101 parameters take 2.4 MB, and their gradients as much again."""
    monkeypatch.setattr(record, "_BLOCK_NUMBERS", 20_000)
    peak = {}
    for gradients, names in ((True, None), (False, ["variance"])):
        tracemalloc.start()
        sample(step, 1500, var_names=names, gradients=gradients)
        peak[gradients] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    stored = 2 * 1500 * CHAINS * 101 * 8
    assert stored < peak[True] < 1.4 * stored
    assert peak[False] < stored / 4


def test_draws_without_a_transform_are_stored_once(step):
    idata = sample(step, 10)
    for value in ("U", "V"):
        both = [idata[group][value].values for group in ("posterior", "unconstrained_posterior")]
        assert np.shares_memory(*both)


def test_a_large_run_says_what_takes_the_memory(step, monkeypatch):
    monkeypatch.setattr(record, "_LARGE", 1e4)
    with pytest.warns(sg.SGCVWarning, match="for 'U'.*var_names.*gradients=False.*thin"):
        sample(step, 10)


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"var_names": []}, "var_names is empty.*'prediction'"),
        ({"var_names": ["W"]}, r"var_names holds \['W'\].*'prediction'"),
        ({"gradients": ["prediction"]}, r"\['prediction'\].*free variables are.*'U'"),
    ],
)
def test_unknown_names_are_refused(step, arguments, says):
    with pytest.raises(ValueError, match=says):
        sample(step, **arguments)


# What comes after


def test_diagnose_leaves_out_what_needs_gradients(step):
    table = sg.diagnose(sample(step, var_names=["prediction"], gradients=False))
    assert {"finite", "r_hat", "ess_bulk", "chain_distance"} <= set(table.index)
    assert "mean_shift" not in table.index


def test_diagnose_looks_at_what_is_stored_if_the_free_variables_are_not(step):
    table = sg.diagnose(sample(step, var_names=["prediction", "spread"]))
    assert table.loc["r_hat", "where"].startswith(("prediction", "spread"))
    assert "sd_error" in table.index


def test_the_limit_of_the_centers_distance_is_that_of_all_parameters(step, whole):
    part = sg.diagnose(sample(step, var_names=["variance"], gradients=False))
    both = [table.loc["center_distance", "limit"] for table in (part, sg.diagnose(whole))]
    assert both[0] == both[1]


def test_warnings_need_no_gradients(step):
    idata = sample(step, var_names=["prediction"], gradients=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sg.SGCVWarning)
        warn_about(idata)


@pytest.mark.parametrize("function", [sg.zv, sg.zv_summary, sg.ksd, sg.plot_gradient_noise])
def test_what_needs_gradients_says_so(function, step):
    idata = sample(step, var_names=["prediction"], gradients=False)
    with pytest.raises(ValueError, match=r"holds no gradients.*unless gradients=False was given"):
        function(idata)


def test_zv_works_with_the_gradients_that_are_stored(step):
    idata = sample(step, var_names=["prediction"], gradients=["U"])
    corrected = sg.zv(idata)["zv_posterior"]["prediction"]
    assert corrected.shape == (CHAINS, DRAWS, 5)
    assert (corrected.var(("chain", "draw")) < idata["posterior"]["prediction"].var(
        ("chain", "draw")
    )).any()  # fmt: skip


def test_running_moments_are_those_of_all_draws():
    x = 1e6 + np.random.default_rng(0).normal(size=(100, 3))
    moments = Group(3)
    for part in np.split(x, [0, 1, 40, 41, 100]):
        if len(part):
            moments.merge(Group.of(part))
    np.testing.assert_allclose(moments.mean, x.mean(0), rtol=1e-14)
    np.testing.assert_allclose(moments.squares / moments.count, x.var(0), rtol=1e-8)


@pytest.mark.parametrize("chain", [0, CHAINS - 1])
def test_an_interruption_keeps_the_chains_that_have_draws(chain, step, monkeypatch, caplog):
    work = Run.work

    def only_one(run, stop, goal):
        if run.number == chain:
            work(run, stop, goal)

    whole = sample(step)
    with monkeypatch.context() as patched, caplog.at_level("WARNING", logger="pymc.sgcv"):
        patched.setattr(Run, "work", only_one)
        left = sample(step)
    assert f"{CHAINS - 1} of {CHAINS} chains had no draws" in caplog.text
    for group in ("posterior", "unconstrained_posterior", "gradient"):
        for name in left[group].data_vars:
            np.testing.assert_array_equal(left[group][name], whole[group][name][[chain]])


def test_draws_that_two_groups_share_cannot_be_changed_in_place(step):
    idata = sample(step, 10)
    with pytest.raises(ValueError, match="read-only"):
        idata["posterior"]["U"] *= 2
