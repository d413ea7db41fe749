# SPDX-License-Identifier: Apache-2.0
"""The step methods inside ``pm.sample``, on models whose posterior is known in closed form."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from pymc_sgcv.model.start import PYTHON

N, BATCH = 300, 30
NAMES = ["a", "b", "c"]
FIXED = {"step_size": 1e-3, "preconditioner": None, "progressbar": False}
QUIET = {"progressbar": False}


def simulate(seed, slopes=(0.5, -1.0, 0.3), n_rows=N):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3)) @ np.array([[1.0, 0, 0], [0.6, 0.8, 0], [0, 0, 2.0]])
    return X, X @ np.array(slopes) + rng.normal(size=n_rows)


X, Y = simulate(0)
NEW_X, NEW_Y = simulate(1, slopes=(-2.0, 0.7, 1.0))


def closed_form(X, y):
    """Posterior means and standard deviations of the slopes, noise and prior variance one."""
    covariance = np.linalg.inv(X.T @ X + np.eye(X.shape[1]))
    return covariance @ X.T @ y, np.sqrt(np.diag(covariance))


def declare(x, y, **kwargs):
    beta = pm.Normal("beta", 0, 1, dims="predictor")
    pm.Deterministic("total", beta.sum())
    pm.Deterministic("doubled", 2 * beta, dims="predictor")
    pm.Normal("y", x @ beta, 1.0, observed=y, **kwargs)


def make_minibatched():
    with pm.Model(coords={"predictor": NAMES}) as model:
        declare(*pm.Minibatch(X, Y, batch_size=BATCH), total_size=N)
    return model


def make_plain():
    """The same model on the full data."""
    with pm.Model(coords={"predictor": NAMES}) as model:
        declare(X, Y)
    return model


def make_container():
    """The same again, in containers that pm.set_data can fill."""
    with pm.Model(coords={"predictor": NAMES}) as model:
        declare(pm.Data("X", X), pm.Data("Y", Y))
    return model


@pytest.fixture(scope="module")
def model():
    return make_minibatched()


@pytest.fixture(scope="module")
def steps(model):
    """One step of each method on the same model, with steps and starts of our own."""
    with model:
        return {
            "SGLD": sg.SGLD(**FIXED),
            "SGLDCV": sg.SGLDCV(**FIXED),
            "SAGA rows": sg.SAGA(**FIXED),
            "SAGA blocks": sg.SAGA(table="blocks", **FIXED),
            "SVRG": sg.SVRG(refresh=7, **FIXED),
            "SGHMC": sg.SGHMC(leapfrog=5, **FIXED),
            "SGHMCCV": sg.SGHMCCV(weights="preferential", **FIXED),
            "SGNHT": sg.SGNHT(**FIXED),
            "SGNHTCV": sg.SGNHTCV(**FIXED),
        }


every_method = pytest.mark.parametrize(
    "name",
    ["SGLD", "SGLDCV", "SAGA rows", "SAGA blocks", "SVRG", "SGHMC", "SGHMCCV", "SGNHT", "SGNHTCV"],
)


def sample(step, draws=30, *, tune=10, chains=2, cores=1, seed=3, **kwargs):
    with step.model:
        return pm.sample(
            draws,
            tune=tune,
            step=step,
            chains=chains,
            cores=cores,
            random_seed=seed,
            **{"progressbar": False, "compute_convergence_checks": False, **kwargs},
        )


def draws_of(idata, name="beta", group="posterior"):
    return idata[group][name].values


def assert_same_draws(first, second):
    np.testing.assert_array_equal(draws_of(first), draws_of(second))
    for stat in ("gradient__beta", "unconstrained__beta"):
        both = [draws_of(idata, stat, "sample_stats") for idata in (first, second)]
        np.testing.assert_array_equal(*both)


# What comes out


@every_method
def test_every_method_returns_finite_draws_that_move(name, steps):
    beta = draws_of(sample(steps[name]))
    assert beta.shape == (2, 30, 3)
    assert np.isfinite(beta).all()
    assert (np.diff(beta, axis=1) != 0).all()
    assert (beta[0] != beta[1]).any()


def test_dims_and_coords_of_the_model_are_those_of_the_posterior(steps):
    beta = sample(steps["SGLDCV"])["posterior"]["beta"]
    assert beta.dims == ("chain", "draw", "predictor")
    assert beta["predictor"].values.tolist() == NAMES


def test_deterministics_without_a_minibatch_are_stored(steps):
    idata = sample(steps["SGLDCV"])
    np.testing.assert_allclose(draws_of(idata, "total"), draws_of(idata).sum(-1), rtol=1e-12)
    np.testing.assert_allclose(draws_of(idata, "doubled"), 2 * draws_of(idata), rtol=1e-12)
    assert idata["posterior"]["doubled"].dims == ("chain", "draw", "predictor")


def test_warmup_is_kept_on_demand(steps):
    idata = sample(steps["SGLDCV"], 20, tune=15, discard_tuned_samples=False)
    assert draws_of(idata, group="warmup_posterior").shape == (2, 15, 3)
    assert draws_of(idata, "gradient__beta", "warmup_sample_stats").shape == (2, 15, 3)
    assert draws_of(idata).shape == (2, 20, 3)


def test_the_progress_bar_works(steps, capfd):
    idata = sample(steps["SGLDCV"], progressbar=True)
    assert draws_of(idata).shape == (2, 30, 3)
    assert "Traceback" not in "".join(capfd.readouterr())


def test_the_progress_bars_of_set_up_and_sampling_do_not_meet(model, capfd):
    with model:
        step = sg.SGLDCV(progressbar=True)
    assert draws_of(sample(step, progressbar=True)).shape == (2, 30, 3)
    assert "Traceback" not in "".join(capfd.readouterr())


def test_an_interrupted_run_returns_the_draws_so_far(steps):
    def interrupt(trace, draw):
        if draw.draw_idx == 20:
            raise KeyboardInterrupt

    idata = sample(steps["SGLDCV"], 50, tune=0, chains=1, callback=interrupt)
    whole = sample(steps["SGLDCV"], 50, tune=0, chains=1)
    n = draws_of(idata).shape[1]
    assert 19 <= n <= 21
    np.testing.assert_array_equal(draws_of(idata), draws_of(whole)[:, :n])


# The same seed, the same draws


@every_method
def test_a_step_used_twice_gives_the_same_draws_for_the_same_seed(name, steps):
    first, second = sample(steps[name]), sample(steps[name])
    assert_same_draws(first, second)


@every_method
def test_other_seeds_give_other_draws(name, steps):
    first, second = sample(steps[name], seed=3), sample(steps[name], seed=4)
    assert (draws_of(first) != draws_of(second)).all()


@every_method
def test_two_processes_give_the_draws_of_one(name, steps):
    one = sample(steps[name], cores=1)
    assert_same_draws(one, sample(steps[name], cores=2, mp_ctx="fork"))


@pytest.mark.parametrize("subsampling", ["iid", "without", "block"])
def test_the_draws_do_not_depend_on_the_process_whatever_the_subsampling(subsampling, model):
    with model:
        step = sg.SGLD(subsampling=subsampling, **FIXED)
    one = sample(step, cores=1)
    assert_same_draws(one, sample(step, cores=1))
    assert_same_draws(one, sample(step, cores=2, mp_ctx="fork"))


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_freshly_started_processes_give_the_draws_of_one(start, steps):
    one = sample(steps["SGLDCV"], cores=1)
    assert_same_draws(one, sample(steps["SGLDCV"], cores=2, mp_ctx=start))


def test_two_steps_of_one_model_agree_after_automatic_set_up(model):
    with model:
        first, second = sg.SGLDCV(**QUIET), sg.SGLDCV(**QUIET)
    assert_same_draws(sample(first), sample(second))


def test_any_numpy_generator_may_seed_the_set_up(model):
    with model:
        step = sg.SGLDCV(rng=np.random.Generator(np.random.MT19937(1)), **FIXED)
    assert np.isfinite(draws_of(sample(step))).all()


@pytest.mark.parametrize("name", ["SGLD", "SGLDCV", "SVRG", "SGHMCCV", "SGNHTCV"])
def test_a_step_goes_on_from_a_restored_state(name, steps):
    """As a checkpoint needs it. SAGA's table is not part of the state."""
    step = steps[name]
    step.set_rng(np.random.default_rng(5))
    point = step.model.initial_point()

    def walk(start, n):
        points = [start]
        for _ in range(n):
            points.append(step.step(points[-1])[0])
        return points

    point = walk(point, 3)[-1]
    state = step.sampling_state
    first = walk(point, 40)
    step.sampling_state = state
    again = walk(point, 40)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a["beta"], b["beta"])
    assert not np.array_equal(first[1]["beta"], first[2]["beta"])


@every_method
def test_a_pickled_step_samples_as_the_original(name, steps):
    copy = cloudpickle.loads(cloudpickle.dumps(steps[name]))
    assert copy.model is not steps[name].model
    assert_same_draws(sample(steps[name]), sample(copy))


# Iterations


@pytest.mark.parametrize("integrator", ["euler", "lm"])
def test_thinning_keeps_every_kth_iteration(integrator, model):
    with model:
        every, second, third = (sg.SGLD(integrator=integrator, thin=k, **FIXED) for k in (1, 2, 3))
    everything = draws_of(sample(every, 30, tune=0))
    np.testing.assert_array_equal(draws_of(sample(second, 15, tune=0)), everything[:, 1::2])
    np.testing.assert_array_equal(draws_of(sample(third, 10, tune=0)), everything[:, 2::3])


def test_a_schedule_gives_every_iteration_its_step_size(model):
    schedule = sg.PolynomialDecay(1e-3, 2.0, 0.55)
    with model:
        step = sg.SGLD(step_size=schedule, preconditioner=None, thin=2)
    recorded = draws_of(sample(step, 20, tune=5), "step_size", "sample_stats")
    np.testing.assert_allclose(recorded[0], [schedule(2 * k + 1) for k in range(5, 25)], rtol=1e-12)
    np.testing.assert_array_equal(recorded[0], recorded[1])
    with model:
        ours = sg.sample(20, tune=5, step=step, chains=2, random_seed=3, progressbar=False,
                         compute_convergence_checks=False)  # fmt: skip
    np.testing.assert_array_equal(draws_of(ours, "step_size", "sample_stats"), recorded)


def test_a_schedule_that_goes_wrong_later_says_when(model):
    with model:
        step = sg.SGLD(step_size=lambda k: 1e-3 - 1e-4 * k, preconditioner=None)
        with pytest.raises(ValueError, match=r"schedule gives .* at iteration 10"):
            pm.sample(20, tune=0, step=step, chains=1, progressbar=False)


def test_a_schedule_is_not_asked_beyond_the_run(model):
    given = np.full(2 * 25, 1e-3)
    with model:
        step = sg.SGLD(step_size=lambda k: given[k], preconditioner=None, thin=2)
    assert draws_of(sample(step, 20, tune=5)).shape == (2, 20, 3)


def test_sgldcv_starts_from_its_center_whatever_the_initial_values(steps):
    near = sample(steps["SGLDCV"], tune=0)
    far = sample(steps["SGLDCV"], tune=0, initvals={"beta": np.full(3, 50.0)})
    assert_same_draws(near, far)
    mean, sd = closed_form(X, Y)
    assert (np.abs(draws_of(far)[:, 0] - mean) < 6 * sd).all()


def test_sgld_starts_from_the_initial_values(steps):
    idata = sample(steps["SGLD"], tune=0, initvals={"beta": np.array([0.1, 0.2, 0.3])})
    np.testing.assert_array_equal(draws_of(idata)[:, 0], [[0.1, 0.2, 0.3]] * 2)


# Gradients


@pytest.fixture(scope="module")
def transformed():
    """The minibatched model of all rows, with transforms, and the same on the plain data."""

    def priors():
        slope, shape = pm.Normal("slope", 0, 1, shape=3), pm.Gamma("shape", 2, 1)
        return slope, shape, pm.Uniform("low", -3, 3)

    with pm.Model() as minibatched:
        slope, shape, low = priors()
        x, y = pm.Minibatch(X, Y, batch_size=N)
        pm.Normal("y", x @ slope + low, shape, observed=y, total_size=N)
    with pm.Model() as plain:
        slope, shape, low = priors()
        pm.Normal("y", X @ slope + low, shape, observed=Y)
    return minibatched, plain


def test_with_all_rows_the_recorded_gradient_is_that_of_the_model_at_the_draw(transformed):
    minibatched, plain = transformed
    dlogp = plain.compile_dlogp(mode=PYTHON)
    with minibatched:
        methods = [
            sg.SGLD(step_size=0.3, **QUIET),
            sg.SGLDCV(thin=2, **QUIET),
            sg.SAGA(subsampling="block", step_size=1e-4, preconditioner=None, **QUIET),
        ]
    for step in methods:
        idata = sg.gradient_groups(sample(step, 5, tune=3))
        gradient, where = idata["gradient"], idata["unconstrained_posterior"]
        names = [value.name for value in plain.value_vars]
        for chain in range(2):
            for draw in range(5):
                point = {v: where[v].values[chain, draw] for v in names}
                got = np.concatenate([np.ravel(gradient[v].values[chain, draw]) for v in names])
                np.testing.assert_allclose(got, dlogp(point), rtol=1e-8, atol=1e-8)


def test_the_unconstrained_draw_is_the_posterior_draw_transformed(transformed):
    minibatched, _ = transformed
    with minibatched:
        idata = sg.gradient_groups(sample(sg.SGLD(step_size=0.3, **QUIET), 5))
    where, posterior = idata["unconstrained_posterior"], idata["posterior"]
    np.testing.assert_allclose(np.exp(where["shape_log__"]), posterior["shape"], rtol=1e-12)
    low = -3 + 6 / (1 + np.exp(-where["low_interval__"].values))
    np.testing.assert_allclose(low, posterior["low"], rtol=1e-12)
    np.testing.assert_array_equal(where["slope"], posterior["slope"])


# The posterior


def assert_posterior(idata, mean, sd, bias=0.03):
    """Means within 5 Monte Carlo errors, sds within `bias` and 5 errors: wrong once in 10⁵ runs.

    A mean off by 5 normal errors happens with probability 6e-7, for 3 slopes and up to 2 models
    below 1e-5; the relative error of a standard deviation is 1/√(2 ESS).
    """
    table = sg.zv_summary(idata, ["beta"])
    ess = (table["sd"] / table["mcse"]) ** 2
    assert (ess > 400).all()
    assert (np.abs(table["mean"] - mean) < 5 * table["mcse"]).all(), table
    assert (np.abs(table["sd"] / sd - 1) < bias + 5 / np.sqrt(2 * ess)).all(), (table, sd)
    assert (table["r_hat"] < 1.05).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: sg.SGLDCV(**QUIET),
        lambda: sg.SGLDCV(center={"beta": closed_form(X, Y)[0]}, subsampling="iid", **QUIET),
        lambda: sg.SGLDCV(weights=1 + (X**2).sum(1), preconditioner="diagonal", **QUIET),
        lambda: sg.SAGA(**QUIET),
        lambda: sg.SAGA(subsampling="block", **QUIET),
        lambda: sg.SAGA(table="blocks", table_dtype="float32", **QUIET),
    ],
    ids=["SGLDCV", "SGLDCV iid", "SGLDCV weighted", "SAGA rows", "SAGA by block", "SAGA blocks"],
)
def test_defaults_agree_with_the_closed_form(make, model):
    with model:
        idata = sample(make(), 2000, tune=100, chains=4)
    assert_posterior(idata, *closed_form(X, Y))


@pytest.mark.filterwarnings("ignore:SGLD's gradient noise:pymc_sgcv.SGCVWarning")
def test_sgld_with_defaults_agrees_with_the_closed_form(model):
    with model:
        idata = sample(sg.SGLD(**QUIET), 2000, tune=100, chains=4)
    assert_posterior(idata, *closed_form(X, Y))


@pytest.mark.parametrize("method", [sg.SGLDCV, sg.SAGA])
def test_a_plain_model_gives_the_posterior_of_its_minibatched_twin(method):
    with make_plain():
        idata = sample(method(batch_size=BATCH, **QUIET), 2000, tune=100, chains=4)
    assert_posterior(idata, *closed_form(X, Y))


def test_a_plain_model_gives_the_draws_of_its_minibatched_twin(steps):
    with make_plain():
        step = sg.SGLDCV(batch_size=BATCH, **FIXED)
    assert_same_draws(sample(step), sample(steps["SGLDCV"]))


def test_a_batch_of_all_rows_is_allowed_on_a_plain_model(model):
    with model:
        expected = sg.SGLD(batch_size=N, **FIXED)
    with make_plain():
        step = sg.SGLD(batch_size=N, **FIXED)
    assert_same_draws(sample(step), sample(expected))


# Data in containers


def test_a_model_with_data_containers_gives_the_draws_of_its_plain_twin(steps):
    with make_container():
        step = sg.SGLDCV(batch_size=BATCH, **FIXED)
    assert_same_draws(sample(step), sample(steps["SGLDCV"]))


def with_data(make, x, y):
    """A step made by `make` on a model that gets other data afterwards."""
    with make_container() as model:
        step = make()
        pm.set_data({"X": x, "Y": y})
    assert step.model is model
    return step


@pytest.mark.parametrize("rows", [N, 200], ids=["as many rows", "fewer rows"])
@pytest.mark.parametrize("method", [sg.SGLDCV, sg.SAGA])
def test_data_set_after_the_step_was_made_are_respected(method, rows):
    new = NEW_X[:rows], NEW_Y[:rows]
    step = with_data(lambda: method(batch_size=BATCH, **QUIET), *new)
    assert_posterior(sample(step, 2000, tune=100, chains=4), *closed_form(*new))


def test_data_set_on_a_minibatched_container_are_respected():
    with pm.Model(coords={"predictor": NAMES}) as model:
        batches = pm.Minibatch(pm.Data("X", X), pm.Data("Y", Y), batch_size=BATCH)
        declare(*batches, total_size=N)
        step = sg.SGLDCV(**QUIET)
        pm.set_data({"X": NEW_X, "Y": NEW_Y})
    assert step.model is model
    assert_posterior(sample(step, 2000, tune=100, chains=4), *closed_form(NEW_X, NEW_Y))


def test_new_data_are_respected_between_two_runs():
    step = with_data(lambda: sg.SGLDCV(batch_size=BATCH, **QUIET), NEW_X, NEW_Y)
    new = sample(step)
    pm.set_data({"X": X, "Y": Y}, model=step.model)
    old = sample(step)
    pm.set_data({"X": NEW_X, "Y": NEW_Y}, model=step.model)
    assert_same_draws(new, sample(step))
    assert np.abs(draws_of(old).mean((0, 1)) - draws_of(new).mean((0, 1))).min() > 0.5


def test_new_data_reach_a_pickled_step():
    step = with_data(lambda: sg.SGLDCV(batch_size=BATCH, **QUIET), NEW_X, NEW_Y)
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    assert_posterior(sample(copy, 2000, tune=100, chains=4), *closed_form(NEW_X, NEW_Y))


def test_with_new_data_two_processes_give_the_draws_of_one():
    def fresh():
        return with_data(lambda: sg.SGLDCV(batch_size=BATCH, **QUIET), NEW_X, NEW_Y)

    assert_same_draws(sample(fresh(), cores=1), sample(fresh(), cores=2, mp_ctx="fork"))


def test_new_data_and_the_progress_bar_go_together(capfd):
    step = with_data(lambda: sg.SGLDCV(batch_size=BATCH), NEW_X, NEW_Y)
    assert np.isfinite(draws_of(sample(step, progressbar=True))).all()
    assert "Traceback" not in "".join(capfd.readouterr())


def test_new_data_that_are_not_finite_are_refused():
    broken = NEW_X.copy()
    broken[7, 1] = np.inf
    step = with_data(lambda: sg.SGLDCV(batch_size=BATCH, **QUIET), broken, NEW_Y)
    with pytest.raises(ValueError, match=r"'y'.*NaN or infinite"):
        sample(step)


def test_a_set_up_that_was_interrupted_is_done_again(monkeypatch):
    """The center's gradient must be that of the new data, not of the old ones."""
    step = with_data(lambda: sg.SGLDCV(batch_size=BATCH, **FIXED), NEW_X, NEW_Y)
    expected = with_data(lambda: sg.SGLDCV(batch_size=BATCH, **FIXED), NEW_X, NEW_Y)

    def interrupted():
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(step, "_make_plan", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step.refresh()
    assert_same_draws(sample(step), sample(expected))


@pytest.mark.parametrize("columns", [2, 4])
def test_new_data_with_other_columns_are_refused(columns):
    other = np.ones((N, columns))
    step = with_data(lambda: sg.SGLDCV(batch_size=BATCH, **FIXED), other, NEW_Y)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"set_data.*new step method|shape"):
            sample(step)


def test_what_the_set_up_found_comes_with_the_draws(model):
    with model:
        step = sg.SGLDCV(**QUIET)
    table = sg.diagnose(sample(step, 200))
    for name, value in step.plan.statistics.items():
        assert name in ("predicted_sd_error", "gradient_noise_share", "center_distance")
        assert table.loc[name, "value"] == pytest.approx(value)
    assert len(step.plan.statistics) == 3


def test_the_center_is_not_held_against_methods_that_leave_it(model):
    with model:
        for method in (sg.SGLD, sg.SVRG, sg.SAGA):
            assert "center_distance" not in method(**QUIET).plan.statistics


@pytest.mark.parametrize("preconditioner", ["diagonal", None])
def test_the_automatic_step_is_stable_whatever_the_preconditioner(preconditioner):
    """Slopes with posterior correlations up to 0.98: a step of 1 would diverge."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2000, 3)) * 0.2 + rng.normal(size=(2000, 1))
    y = x @ np.array([1.0, 0.0, -1.0]) + rng.normal(size=2000)
    with pm.Model(coords={"predictor": NAMES}):
        declare(x, y)
        step = sg.SGLDCV(preconditioner=preconditioner, thin=100, **QUIET)
    assert_posterior(sample(step, 2000, tune=100, chains=4), *closed_form(x, y))
