# SPDX-License-Identifier: Apache-2.0
"""Runs in a store: as those in memory, killed and gone on with, and refused where they must be."""

import os
import resource
import shutil
import subprocess
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_sgcv as sg
from pymc_sgcv.kernel.chain import Chain, Divergence
from pymc_sgcv.results import containers, identities, moments, parts
from pymc_sgcv.sampling import record, stored
from pymc_sgcv.sampling.files import ARRAY, GROUP
from pymc_sgcv.sampling.store import Store
from pymc_sgcv.sampling.stored import draws_done
from pymc_sgcv.steps import base
from tests import killing
from tests.killing import DRAWS, HOW, METHODS, TUNE, assert_same, killed
from tests.shared import QUIET, no_warning

pytest.importorskip("zarr")
ROOT = os.geteuid() == 0


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    for module in (record, stored):
        monkeypatch.setattr(module, "_BLOCK_NUMBERS", record._BLOCK_NUMBERS)
    monkeypatch.setattr(stored, "_SHARE", stored._SHARE)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # what it is for is not tried here
    killing.small_blocks()


@pytest.fixture(scope="module")
def model():
    return killing.make_model()


@pytest.fixture(scope="module")
def step(model):
    with model:
        return METHODS["SGLDCV"]()


def sample(step, path=None, **how):
    with step.model:
        return sg.sample(step=step, store=path, **HOW | how)


@pytest.fixture
def whole(step):
    return sample(step)


class Stopped(BaseException):
    """What stands for a killed process."""


def cut_short(step, path, monkeypatch, saves=4, then=None):
    """Run until so many states are stored; `then` happens in place of the next."""
    save, count = Store.save, iter(range(saves))

    def counted(store, chain, state):
        if next(count, None) is None:
            if then is None:
                raise Stopped
            then()
        save(store, chain, state)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "save", counted)
        with pytest.raises(Stopped):
            sample(step, path, cores=1)


# As without a store


@pytest.mark.parametrize("cores", [1, 2])
def test_a_stored_run_has_the_numbers_of_one_in_memory(step, whole, tmp_path, cores):
    result = sample(step, tmp_path / "run", cores=cores)
    assert_same(whole, result)
    for group in ("posterior", "gradient"):
        for name in whole[group].data_vars:
            assert result[group][name].dims == whole[group][name].dims
    assert list(result["posterior"].data_vars) == list(whole["posterior"].data_vars)
    near = result["posterior"].attrs["chain_distance"], whole["posterior"].attrs["chain_distance"]
    np.testing.assert_allclose(*near, rtol=1e-12)
    np.testing.assert_array_equal(result["observed_data"]["y"], killing.Y)


def test_what_is_asked_for_is_stored_and_nothing_else(step, tmp_path):
    how = {"var_names": ["sigma"], "gradients": False, "discard_tuned_samples": False}
    result, whole = sample(step, tmp_path / "run", **how), sample(step, **how)
    groups = set(containers.group_names(whole)) - {"sampler_state"}
    assert set(containers.group_names(result)) == groups
    for group in ("posterior", "warmup_posterior"):
        assert list(result[group].data_vars) == ["sigma"]
        np.testing.assert_array_equal(result[group]["sigma"], whole[group]["sigma"])


def test_the_result_is_lazy_and_a_plain_zarr_hierarchy(step, whole, tmp_path):
    result = sample(step, tmp_path / "run")
    assert not isinstance(result["posterior"]["fit"].variable._data, np.ndarray)
    with no_warning(UserWarning):
        tree = xr.open_datatree(tmp_path / "run", engine="zarr", consolidated=False)
    np.testing.assert_array_equal(tree["posterior"]["fit"], whole["posterior"]["fit"])
    assert_same(whole, sg.open_run(tmp_path / "run"))


def test_what_comes_after_works_on_the_stored_run(step, whole, tmp_path):
    result = sample(step, tmp_path / "run")
    for function in (lambda x: sg.diagnose(x)["value"], sg.ksd, lambda x: sg.zv_summary(sg.zv(x))):
        np.testing.assert_array_equal(function(result), function(whole))


def test_what_does_not_fit_into_memory_is_looked_at_in_parts(step, whole, tmp_path, monkeypatch):
    result, table = sample(step, tmp_path / "run"), sg.diagnose(whole)
    monkeypatch.setattr(parts, "PART", 2000)
    monkeypatch.setattr(moments, "PART", 2000)
    monkeypatch.setattr(identities, "DENSE_LIMIT", 0)
    np.testing.assert_allclose(sg.diagnose(result)["value"], sg.diagnose(whole)["value"])
    rows = ["finite", "r_hat", "ess_bulk", "ess_tail"]
    np.testing.assert_allclose(sg.diagnose(result).loc[rows, "value"], table.loc[rows, "value"])
    fit = sg.moments(result, "fit").summary()["mean"].values
    np.testing.assert_allclose(fit, whole["posterior"]["fit"].mean(("chain", "draw")), rtol=1e-10)
    monkeypatch.setattr("pymc_sgcv.results.ksd.LARGE", 0)
    assert sg.ksd(result, max_draws=300) == sg.ksd(whole, max_draws=300)
    assert sg.ksd(result, max_draws=150) >= 0


# Killed


@pytest.mark.parametrize("name", ["SGLDCV", "SGLD, without replacement", "SAGA", "SVRG", "SGNHTCV"])
def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(name, model, step, tmp_path):
    """The other step methods: ``python -m tests.killing``."""
    path, number = tmp_path / "run", list(METHODS).index(name)
    rng = np.random.default_rng(number)
    if name != "SGLDCV":
        with model:
            step = METHODS[name]()
    for _ in range(1 + number % 2):
        killed(step, path, 1 + number % 2, rng)
    result = sample(step, path, cores=2 - number % 2)
    assert_same(sample(step), result)


def test_a_run_goes_on_where_its_states_are(step, whole, tmp_path, monkeypatch):
    path, made = tmp_path / "run", []
    cut_short(step, path, monkeypatch)
    assert draws_done(path) == [90, 0]
    part = sg.open_run(path)["posterior"]
    assert part.sizes["chain"] == 1
    np.testing.assert_array_equal(part["fit"], whole["posterior"]["fit"][:1, : 90 - TUNE])
    run = Chain.run
    with monkeypatch.context() as patched:
        patched.setattr(Chain, "run", lambda *args: made.append(len(args[3])) or run(*args))
        result = sample(step, path)
    assert sum(made) == 2 * (DRAWS + TUNE) - 90
    assert_same(whole, result)
    attrs = result["posterior"].attrs
    assert attrs["resumed"] == 1
    assert attrs["resumed_at"].endswith("(draw 0)")
    made.clear()
    monkeypatch.setattr(Chain, "run", lambda *args: made.append(0))
    assert_same(whole, sample(step, path))
    assert not made


def test_the_first_block_under_way_is_stored_too(step, whole, tmp_path, monkeypatch):
    """Blocks that take long: their states hold draws that no file holds for good."""
    monkeypatch.setattr(stored, "_BLOCK_NUMBERS", 10**6)
    monkeypatch.setattr(stored, "_SAVE_SECONDS", 0.0)
    monkeypatch.setattr("pymc_sgcv.sampling.runs._PIECE_SECONDS", 1e-9)
    cut_short(step, tmp_path / "run", monkeypatch, saves=TUNE + 10)
    assert draws_done(tmp_path / "run") == [TUNE + 10, 0]
    assert sg.open_run(tmp_path / "run")["posterior"].sizes["draw"] == 10
    monkeypatch.setattr(stored, "_SAVE_SECONDS", 5.0)
    assert_same(whole, sample(step, tmp_path / "run"))


def test_nothing_is_set_up_again(model, tmp_path, monkeypatch):
    how = HOW | {"draws": 60, "store": tmp_path / "run"}
    given = partial(sg.SGLDCV, thin=2)
    with model:
        whole = sg.sample(step=given, **how)
        os.remove(tmp_path / "run" / GROUP / ARRAY / "1.npz")

        def fail(*_):
            raise AssertionError("set up again")

        monkeypatch.setattr(base, "make_plan", fail)
        again = sg.sample(step=given, **how | {"random_seed": None})
    assert_same(whole, again)
    assert again["posterior"].attrs["step_size"] == whole["posterior"].attrs["step_size"]


def test_a_chain_that_began_again_with_shorter_steps_stays_so(model, tmp_path, monkeypatch):
    run = Chain.run
    with model:
        step = sg.SGLDCV(progressbar=False)
    long = 0.6 * step.plan.step_size

    def fragile(chain, steps, *rest, **options):
        if steps[0] > long and chain.iteration > 50 * step.plan.thin:
            raise Divergence("beta[1] is not finite at iteration 3 (step size 1): too long.")
        run(chain, steps, *rest, **options)

    monkeypatch.setattr(Chain, "run", fragile)
    with pytest.warns(sg.SGCVWarning, match="2 of 2 chains diverged"):
        whole = sample(step)
    cut_short(step, tmp_path / "run", monkeypatch, saves=6)
    with pytest.warns(sg.SGCVWarning, match="2 of 2 chains diverged"):
        result = sample(step, tmp_path / "run")
    assert_same(whole, result)
    assert (result["sample_stats"]["step_size"].values < long).all()


def test_an_interruption_keeps_what_there_is(step, whole, tmp_path, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    save, count = Store.save, iter(range(4))

    def interrupted(store, chain, state):
        save(store, chain, state)
        if next(count, None) is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Store, "save", interrupted)
        patched.setattr("pymc_sgcv.sampling.runs.wait", lambda *_, **__: interrupt())
        patched.setattr("pymc_sgcv.sampling.runs._PIECE_SECONDS", 1e-9)
        with suppress(KeyboardInterrupt):  # unless both chains have draws already
            sample(step, tmp_path / "run")
    assert_same(whole, sample(step, tmp_path / "run"))


# Refused


def other_prior():
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=3)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Deterministic("fit", killing.X @ beta)
        pm.Normal("y", killing.X @ beta, sigma, observed=killing.Y)
    return model


def other_data():
    with pytest.MonkeyPatch.context() as p:
        p.setattr(killing, "Y", killing.Y + (np.arange(killing.N) == 17))
        return killing.make_model()


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"model": other_prior}, "the definition of 'beta' is another one"),
        ({"model": other_data}, r"the data of 'y' are 300 .* and were 300 "),
        ({"step": {"batch_size": 25}}, "batch_size of the step method is 25, and was 20"),
        ({"step": {"thin": 4}}, "thin of the step method is 4, and was 3"),
        ({"name": "SVRG"}, "the name of the step method is SVRG, and was SGLDCV"),
        ({"how": {"draws": 70}}, "draws is 70, and was 60.*continue_from"),
        ({"how": {"chains": 3}}, "chains is 3, and was 2"),
        ({"how": {"random_seed": 6}}, "random_seed is .*, and was "),
        ({"how": {"var_names": ["beta"]}}, "var_names is "),
    ],
)
def test_a_store_of_another_run_is_refused(arguments, says, step, small, tmp_path, monkeypatch):
    path = shutil.copytree(small, tmp_path / "run")
    now = copy(step)
    now.settings = replace(step.settings, **arguments.get("step", {}))
    now.__class__ = type(arguments.get("name", "SGLDCV"), (sg.SGLDCV,), {})
    if "model" in arguments:
        now.model = arguments["model"]()
    with pytest.raises(ValueError, match=says):
        sample(now, path, **{"draws": 60} | arguments.get("how", {}))


@pytest.fixture(scope="module")
def small(step, tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "run"
    sample(step, path, draws=60)
    return path


def test_a_directory_of_something_else_is_left_alone(step, tmp_path):
    (tmp_path / "letter.txt").write_text("Dear ...")
    with pytest.raises(ValueError, match="exists and holds no run"):
        sample(step, tmp_path)
    assert os.listdir(tmp_path) == ["letter.txt"]


@pytest.mark.parametrize("how", ["cut off", "deleted", "changed"])
def test_a_damaged_block_is_detected(how, step, small, tmp_path):
    path = shutil.copytree(small, tmp_path / "run")
    file = path / "posterior/fit/c/1/0/0"
    data = file.read_bytes()
    if how == "deleted":
        file.unlink()
    else:
        file.write_bytes(data[:-100] if how == "cut off" else data[:50] + b"x" + data[51:])
    if how == "changed":  # which only reading it can show
        with pytest.raises(ValueError, match="checksum"):
            sg.open_run(path)["posterior"]["fit"].values.sum()
        return
    for function in (sg.open_run, lambda path: sample(step, path, draws=60)):
        with pytest.raises(ValueError, match="cut off or deleted"):
            function(path)


@pytest.mark.parametrize("how", ["cut off", "deleted"])
@pytest.mark.parametrize(
    "name",
    [
        "zarr.json",
        "posterior/zarr.json",
        "gradient/beta/zarr.json",
        "posterior/draw/c/0",
        "unconstrained_posterior/beta_dim_0/c/0",
        "observed_data/y/c/0",
        "sampler/chain/zarr.json",
    ],
)
def test_a_damaged_file_of_any_kind_is_detected(name, how, step, small, tmp_path):
    path = shutil.copytree(small, tmp_path / "run", symlinks=True)
    data = (path / name).read_bytes()
    (path / name).unlink()
    if how == "cut off":
        (path / name).write_bytes(data[:-1])
    for function in (sg.open_run, lambda path: sample(step, path, draws=60)):
        with pytest.raises(ValueError, match=r"cut off or deleted|zarr\.json is damaged"):
            function(path)


@pytest.mark.parametrize("name", ["plan.npz", "0.npz"])
def test_a_damaged_state_is_detected(name, step, small, tmp_path):
    path = shutil.copytree(small, tmp_path / "run")
    file = path / GROUP / ARRAY / name
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(ValueError, match="is damaged"):
        sample(step, path, draws=60)


def test_a_store_of_another_version_is_refused(step, small, tmp_path, monkeypatch):
    path = shutil.copytree(small, tmp_path / "run")
    monkeypatch.setattr(stored, "FORMAT", 2)
    with pytest.raises(ValueError, match="cannot read"):
        sample(step, path, draws=60)


# What the system may do


def test_a_file_that_cannot_grow_is_an_error_and_what_there_is_stays(
    step, whole, tmp_path, monkeypatch
):
    path = tmp_path / "run"
    cut_short(step, path, monkeypatch)
    before = draws_done(path)
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            sample(step, path)
        except OSError as error:
            os._exit(17 if "cannot be written: File too large" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    assert before[0] == draws_done(path)[0] > TUNE
    assert_same(whole, sample(step, path))


@pytest.mark.skipif(not ROOT, reason="only root mounts")
def test_a_full_disk_is_an_error_and_what_there_is_stays(step, whole, tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    path = tmp_path / "run"
    try:
        with pytest.raises(OSError, match=r"No space left on device.*safe in it"):
            sample(step, path)
        assert max(draws_done(path)) > TUNE
        part = sg.open_run(path)["posterior"]["fit"]
        chains, n = part["chain"].values, part.sizes["draw"]
        np.testing.assert_array_equal(part, whole["posterior"]["fit"][chains, :n])
        subprocess.run(["mount", "-o", "remount,size=20m", str(tmp_path)], check=True)
        assert_same(whole, sample(step, path))
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_store_that_is_deleted_is_an_error(step, tmp_path, monkeypatch):
    path = tmp_path / "run"
    with pytest.raises(FileNotFoundError, match="was deleted or replaced"):
        cut_short(step, path, monkeypatch, then=lambda: shutil.rmtree(path))


def test_a_directory_that_cannot_be_written_is_an_error_before_the_set_up(
    model, tmp_path, monkeypatch
):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    monkeypatch.setattr(base, "make_plan", lambda *_: pytest.fail("set up"))
    child = os.fork()
    if child == 0:
        try:
            if ROOT:
                os.chmod(tmp_path, 0o777)
                os.seteuid(65534)
            with model:
                sg.sample(store=locked / "run", **HOW)
        except OSError as error:
            os._exit(17 if "cannot be written: Permission denied" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17


def test_two_processes_do_not_write_one_store(step, small, tmp_path):
    path = shutil.copytree(small, tmp_path / "run")
    holder = Store(path)
    child = os.fork()
    if child == 0:
        try:
            sample(step, path, draws=60)
        except RuntimeError as error:
            os._exit(17 if "is being written by another run" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    with pytest.raises(RuntimeError, match="is being written by another run"):
        sample(step, path, draws=60)
    holder.close()
    assert sample(step, path, draws=60)["posterior"].sizes["draw"] == 60


def test_files_of_others_beside_a_run_that_did_not_begin_are_left_alone(step, tmp_path):
    (tmp_path / GROUP / ARRAY).mkdir(parents=True)
    (tmp_path / "letter.txt").write_text("Dear ...")
    sample(step, tmp_path, draws=10)
    assert (tmp_path / "letter.txt").exists()


def test_labels_that_are_no_texts_are_stored_as_texts(tmp_path):
    labels = pd.interval_range(0, 2)
    with pm.Model(coords={"age": labels, "pair": [("a", 1), ("b", 2)]}):
        a, b = pm.Normal("a", dims="age"), pm.Normal("b", dims="pair")
        pm.Normal("y", a.sum() + b.sum(), 1, observed=killing.Y)
        how = {"step_size": 1e-3, "preconditioner": None, "batch_size": 20}
        step = sg.SGLD(**how)
    for _ in range(2):
        result = sample(step, tmp_path / "run", draws=10)
        assert list(result["posterior"]["age"].values) == [str(one) for one in labels]
        assert result["posterior"].sizes["pair"] == 2
    assert sample(step, draws=10)["posterior"].sizes["pair"] == 2


def test_the_half_step_check_of_a_stored_run_is_that_of_one_in_memory(model, step, tmp_path):
    how = {"draws": 60, "check": True}
    one, two = sample(step, **how), sample(step, tmp_path / "run", **how)
    np.testing.assert_array_equal(one["half_step"]["beta"].values, two["half_step"]["beta"].values)


def test_a_run_whose_set_up_failed_leaves_no_lock(model, tmp_path):
    for _ in range(2):
        with model, pytest.raises(ValueError, match="batch_size"):
            sg.sample(step=partial(sg.SGLDCV, batch_size=10**6), store=tmp_path / "run", **QUIET)
