# SPDX-License-Identifier: Apache-2.0
"""More draws of chains that are there, runs that end when it is enough, runs in the background."""

import os
import threading
import time
from contextlib import suppress

import numpy as np
import pytest

import pymc_sgcv as sg
from pymc_sgcv.kernel.chain import Chain, Divergence
from pymc_sgcv.results import containers
from pymc_sgcv.sampling import background, record, stored
from pymc_sgcv.sampling.store import Store
from pymc_sgcv.sampling.stored import draws_done
from pymc_sgcv.sampling.until import Until
from tests import killing
from tests.killing import DRAWS, GROUPS, HOW, METHODS, TUNE, assert_same
from tests.shared import QUIET, netcdf, no_warning

zarr = pytest.importorskip("zarr")
FIRST = 90


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    for module in (record, stored):
        monkeypatch.setattr(module, "_BLOCK_NUMBERS", record._BLOCK_NUMBERS)
    monkeypatch.setattr(stored, "_SHARE", stored._SHARE)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    killing.small_blocks()


@pytest.fixture(scope="module")
def model():
    return killing.make_model()


@pytest.fixture(scope="module")
def step(model):
    with model:
        return METHODS["SGLDCV"]()


def sample(step, draws=DRAWS, **how):
    with step.model:
        return sg.sample(step=step, **HOW | {"draws": draws} | how)


def more(model, draws, source, **how):
    with model:
        return sg.sample(draws, continue_from=source, **QUIET, **how)


def assert_same_but_for_products(a, b):
    """A product of matrices was rounded for the draws that there were at the time."""
    np.testing.assert_allclose(a["posterior"]["fit"], b["posterior"]["fit"], rtol=1e-12, atol=1e-12)
    assert_same(
        *(
            {g: x[g].to_dataset() if hasattr(x[g], "to_dataset") else x[g] for g in GROUPS}
            | {"posterior": containers.get_group(x, "posterior").drop_vars("fit")}
            for x in (a, b)
        )
    )


# More draws


@pytest.mark.parametrize(
    "name, where",
    [
        ("SGLDCV", "memory"),
        ("SGLDCV", "store"),
        ("SAGA", "memory"),
        ("SVRG", "store"),
        ("SGLD, without replacement", "store"),
    ],
)
def test_more_draws_are_those_of_a_longer_run(name, where, model, step, tmp_path):
    if name != "SGLDCV":
        with model:
            step = METHODS[name]()
    first = sample(step, FIRST, store=None if where == "memory" else tmp_path / "run")
    source = first if where == "memory" else tmp_path / "run"
    result = more(model, DRAWS - FIRST, source)
    compare = assert_same if where == "store" else assert_same_but_for_products
    compare(sample(step), result)
    assert result["posterior"].attrs["resumed"] == 1
    assert result["posterior"].attrs["resumed_at"].endswith(f"(draw {FIRST})")
    np.testing.assert_array_equal(result["posterior"]["draw"], np.arange(DRAWS))


def test_a_result_that_comes_from_a_file_continues_too(model, step, tmp_path):
    first = netcdf(sample(step, FIRST), tmp_path / "run.nc")
    assert_same_but_for_products(sample(step), more(model, DRAWS - FIRST, first))


def test_a_result_from_a_store_grows_its_store(model, step, tmp_path):
    first = sample(step, FIRST, store=tmp_path / "run")
    more(model, DRAWS - FIRST, first)
    whole = sample(step)
    assert_same(whole, sg.open_run(tmp_path / "run"))
    assert_same(whole, sample(step, store=tmp_path / "run"))  # and is that of the longer call


def test_a_run_that_died_while_room_was_made_can_be_read_and_continued(
    model, step, tmp_path, monkeypatch
):
    whole = sample(step, FIRST, store=tmp_path / "run")
    resize, count = zarr.Array.resize, iter(range(3))

    def some(array, shape):
        if next(count, None) is None:
            raise InterruptedError
        resize(array, shape)

    with monkeypatch.context() as patched, pytest.raises(OSError):
        patched.setattr(zarr.Array, "resize", some)
        more(model, DRAWS - FIRST, tmp_path / "run")
    assert_same(whole, sg.open_run(tmp_path / "run"))
    assert_same(sample(step), more(model, DRAWS - FIRST, tmp_path / "run"))


def test_where_there_is_no_run_none_is_made(model, tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        more(model, 10, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_continuation_that_was_interrupted_is_ended_by_the_same_call(
    model, step, tmp_path, monkeypatch
):
    sample(step, FIRST, store=tmp_path / "run")

    def fail(*_):
        raise InterruptedError

    with monkeypatch.context() as patched, pytest.raises(OSError):
        patched.setattr(Store, "save", fail)
        more(model, DRAWS - FIRST, tmp_path / "run")
    assert draws_done(tmp_path / "run") == [FIRST + TUNE] * 2
    assert_same(sample(step), more(model, DRAWS - FIRST, tmp_path / "run"))


def test_a_schedule_of_steps_has_to_be_given_again(model, tmp_path):
    with model:
        step = METHODS["SGLD, a schedule"]()
    first = sample(step, FIRST)
    with pytest.raises(ValueError, match="schedule of step sizes"):
        more(model, 10, first)
    assert_same_but_for_products(sample(step), more(model, DRAWS - FIRST, first, step=step))


def test_what_cannot_be_continued_is_refused(model, step, tmp_path):
    idata = sample(step, 20)
    with pytest.raises(TypeError, match="continue_from must be"):
        more(model, 10, 17)
    with pytest.raises(ValueError, match="no run to go on with"):
        more(model, 10, tmp_path / "none")
    with pytest.raises(ValueError, match="a run goes on where it is"):
        more(model, 10, idata, store=tmp_path / "run")
    other = containers.new_container({"posterior": containers.get_group(idata, "posterior")})
    with pytest.raises(ValueError, match="no group 'sampler_state'"):
        more(model, 10, other)


def test_a_continued_chain_that_diverges_does_not_begin_again(model, monkeypatch):
    with model:
        step = sg.SGLDCV(progressbar=False)
        first = sg.sample(20, step=step, chains=1, tune=0, **QUIET)

    def diverge(*_, **__):
        raise Divergence("beta[1] is not finite.")

    monkeypatch.setattr(Chain, "run", diverge)
    with pytest.raises(Divergence):
        more(model, 10, first)


# Until it is enough


@pytest.mark.parametrize("where", ["memory", "store"])
def test_a_run_ends_when_its_means_are_precise(step, where, tmp_path):
    store = None if where == "memory" else tmp_path / "run"
    until = {"mcse": {"beta": 0.01}}
    result = sample(step, 5000, until=until, store=store)
    posterior = containers.get_group(result, "posterior")
    n = posterior.sizes["draw"]
    assert n in Until(until, ["beta"]).goals(0, 5000, 0)
    assert float(containers.mcse(posterior[["beta"]])["beta"].max()) <= 0.01
    before = posterior[["beta"]].isel(draw=slice(int(n / 1.5)))
    assert float(containers.mcse(before)["beta"].max()) > 0.01
    assert posterior.attrs["until"] == "reached"
    whole = sample(step, n)
    np.testing.assert_array_equal(whole["posterior"]["fit"], posterior["fit"])
    if store:  # the same call, and more
        assert sample(step, 5000, until=until, store=store)["posterior"].sizes["draw"] == n
        assert more(step.model, 10, store)["posterior"].sizes["draw"] >= n + 10


def test_what_is_not_reached_is_said(step, caplog):
    result = sample(step, 30, until={"ess": 10**6})
    assert "effective draws of" in result["posterior"].attrs["until"]
    assert "not reached" in caplog.text


def test_time_ends_a_run(step):
    result = sample(step, 10**6, until={"seconds": 0.3}, var_names=["beta"], gradients=False)
    n = result["posterior"].sizes["draw"]
    assert n < 10**6
    whole = sample(step, n, var_names=["beta"])
    np.testing.assert_array_equal(whole["posterior"]["beta"], result["posterior"]["beta"])


@pytest.mark.parametrize(
    "until, says",
    [
        ({}, "until must be a dict"),
        (400, "until must be a dict"),
        ({"rhat": 1.01}, "until must be a dict"),
        ({"ess": "many"}, "ess must be a positive number"),
        ({"mcse": 0.1}, "must be a dict by variable"),
        ({"mcse": {"gamma": 0.1}}, "names .'gamma'."),
    ],
)
def test_until_says_what_it_takes(until, says, step):
    with pytest.raises(ValueError, match=says):
        sample(step, until=until)


# In the background


@pytest.mark.parametrize("where", ["memory", "store"])
def test_a_run_in_the_background_can_be_looked_at_and_stopped(step, where, tmp_path):
    store = None if where == "memory" else tmp_path / "run"
    how = {"store": store, "var_names": ["beta"], "gradients": False}
    run = sample(step, 10**5, blocking=False, cores=2, **how)
    part = np.empty((0, 0))
    while len(part) < 2:  # until both chains have draws to show
        time.sleep(0.01)
        with suppress(ValueError):
            part = run.inspect()["posterior"]["beta"].values
    assert run.progress.running
    assert 0 < run.progress.share < 1
    assert "of 100040 draws" in str(run.progress)
    result = run.stop()
    assert not run.progress.running
    draws = result["posterior"]["beta"].values
    assert 0 < part.shape[1] <= draws.shape[1] < 10**5
    np.testing.assert_array_equal(part, draws[:, : part.shape[1]])
    whole = sample(step, part.shape[1], var_names=["beta"], gradients=False)
    np.testing.assert_array_equal(whole["posterior"]["beta"], part)


def test_a_run_in_the_background_ends_by_itself(step):
    run = sample(step, blocking=False)
    assert_same(sample(step), run.wait(60))
    assert run.wait() is run.stop()


def test_an_error_in_the_background_is_raised_where_one_waits(step, monkeypatch):
    def diverge(*_, **__):
        raise Divergence("beta[1] is not finite.")

    monkeypatch.setattr(Chain, "run", diverge)
    run = sample(step, blocking=False)
    with pytest.raises(Divergence):
        run.wait()


def test_looking_too_early_is_an_error(step, monkeypatch):
    made = Chain.run

    def slow(*args, **kwargs):
        time.sleep(0.2)
        made(*args, **kwargs)

    monkeypatch.setattr(Chain, "run", slow)
    run = sample(step, blocking=False)
    with pytest.raises(ValueError, match="no draws yet"):
        run.inspect()
    with pytest.raises(TimeoutError, match="has not ended"):
        run.wait(0.01)
    with pytest.raises(ValueError, match="before the first draw"):
        run.stop()


def test_nothing_is_said_about_a_quiet_run(step):
    with no_warning():
        sample(step, 20, blocking=False).wait()


def test_a_run_that_is_stopped_before_its_first_draw_says_so(step, tmp_path):
    """And lets go of its store, which another thread has locked."""
    how = {"draws": 50_000, "tune": 10**6, "store": tmp_path / "run"}
    for _ in range(2):
        run = sample(step, **how, blocking=False)
        with pytest.raises(ValueError, match="before the first draw"):
            run.stop()
    with pytest.raises(ValueError, match="before the first draw"):
        sample(step, **how | {"store": None}, until={"seconds": 0.0})


def test_a_script_that_ends_waits_for_its_chains(step, tmp_path):
    """What is registered with `threading` is run before threads and Zarr are shut down."""
    run = sample(step, store=tmp_path / "run", blocking=False)
    background._wait_for_all()
    assert not run.progress.running
    assert draws_done(tmp_path / "run") == [DRAWS + TUNE] * 2
    assert background._at_exit is threading._register_atexit
