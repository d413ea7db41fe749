# SPDX-License-Identifier: Apache-2.0
"""More draws of the chains that a store or a result holds."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import xarray as xr

from pymc_sgcv.model.target import read_model
from pymc_sgcv.results.containers import Container, get_group, group_names, is_container
from pymc_sgcv.rows.population import MODEL, choose_population
from pymc_sgcv.sampling.arguments import Asked, checked_step
from pymc_sgcv.sampling.driver import Sampling, in_memory, record_of
from pymc_sgcv.sampling.files import ARRAY, GROUP, PLAN
from pymc_sgcv.sampling.identity import Identity, differences, model_identity
from pymc_sgcv.sampling.moved import layout_of, move, refuse_given_weights
from pymc_sgcv.sampling.package import data_groups, package
from pymc_sgcv.sampling.record import Record
from pymc_sgcv.sampling.resume import go_on, in_store, refuse_other
from pymc_sgcv.sampling.runs import Run, make_runs
from pymc_sgcv.sampling.states import read_state_group
from pymc_sgcv.sampling.store import Store
from pymc_sgcv.sampling.stored import StoredRecord, attributes_of
from pymc_sgcv.steps import methods
from pymc_sgcv.steps.base import StochasticGradientStep

_log = logging.getLogger("pymc.sgcv")
_JOINED = "posterior", "sample_stats", "gradient", "unconstrained_posterior"


Place: TypeAlias = str | os.PathLike | None


def continued(asked: Asked, source: Container | str | os.PathLike, store: Place) -> Sampling:
    """The run that goes on from a store or a result; on other rows it may have a store too."""
    if isinstance(source, str | os.PathLike):
        path: Any = source
    elif is_container(source):
        path = get_group(source, "posterior").attrs.get("store")
    else:
        raise TypeError(
            "continue_from must be what sg.sample returned or the path of a store, not "
            f"{type(source).__name__}."
        )
    if not path:
        return _from_result(asked, source, store)
    if not (Path(path) / GROUP / ARRAY / PLAN).exists():  # where nothing is, nothing is made
        raise ValueError(f"{path} holds no run to go on with.")
    return _in_store(asked, Store(path), store)


def _in_store(asked: Asked, store: Store, new_store: Place) -> Sampling:
    try:
        attributes_of(store.path)
        plan = dict(store.read_plan())
        now = model_identity(read_model(asked.model, None, plan["batch_size"]))
        if _other_rows(now, plan):
            store.close()
            return _on_other_rows(asked, plan, new_store)
        _refuse_store(new_store)
        refuse_other(store, plan, now)
        step = step_of(asked, plan)
        asked = _as_before(asked, plan)
        done = [(store.load(i) or {"done": 0})["done"] for i in range(plan["chains"])]
        unfinished = min(done) < plan["tune"] + plan["draws"]
        if not (unfinished and plan.get("added") == asked.draws):  # else it was interrupted
            plan = _grown(asked, step, store, plan, min(done))
        return go_on(asked, step, store, plan)
    except BaseException:
        store.close()
        raise


def _grown(asked: Asked, step: StochasticGradientStep, store: Store, plan: dict, done: int) -> dict:
    """Room for more draws, and last a plan that says so."""
    enough = attributes_of(store.path).get("until") == "reached"
    draws = asked.draws + (max(0, done - plan["tune"]) if enough else plan["draws"])
    draws = max(draws, plan["draws"])  # arrays do not shrink
    sizes = plan["chains"], plan["tune"], draws
    record = StoredRecord(store, plan["sizes"], *record_of(asked, step, *sizes))
    store.grow({k: v for k, v in record.templates().items() if not k.startswith("warmup_")})
    identity = {**plan["identity"], "call": {**plan["identity"]["call"], "draws": str(draws)}}
    plan = {**plan, "draws": draws, "added": asked.draws, "identity": identity}
    store.write_plan(plan)
    return plan


def step_of(asked: Asked, plan: Mapping) -> StochasticGradientStep:
    """The step method of an earlier run: the one given now, or made anew from what was stored."""
    if asked.step is not None:
        return checked_step(asked.step, asked.model, asked.progressbar, plan["plan"])
    settings = plan["settings"]
    if settings.step_size is None:
        raise ValueError("The run has a schedule of step sizes, which is not stored: give step.")
    step = getattr(methods, plan["method"])(
        model=asked.model,
        progressbar=asked.progressbar,
        _plan=plan["plan"],
        _settings=settings,
    )
    return step


def _as_before(asked: Asked, plan: Mapping) -> Asked:
    """Keep what was kept before."""
    return replace(
        asked,
        names=plan["var_names"],
        gradients=plan["gradients"],
        keep_tune=plan["keep_tune"],
        tune=plan.get("tune"),
    )


def _other_rows(now: Identity, plan: Mapping) -> bool:
    """Whether nothing but the data is another."""
    return {kind for kind, _ in differences(now, plan["identity"])} == {"data"}


def _refuse_store(store: Place) -> None:
    if store is not None:
        raise ValueError(
            "continue_from and store are given, but these are the same rows: a run goes on where "
            "it is."
        )


def _on_other_rows(asked: Asked, plan: Mapping, store: Place) -> Sampling:
    """New chains from the old center, preconditioner and step."""
    refuse_given_weights(asked, plan["settings"])
    if asked.step is not None:
        raise ValueError("On other rows the step method is that of the earlier run: give no step.")
    target, settings = read_model(asked.model, None, plan["batch_size"]), plan["settings"]
    wanted = settings.wanted_population
    if MODEL != choose_population(target, wanted, settings.subsampling):
        _log.info("The rows that stand for all are chosen anew, by passes over the new ones.")
        asked = replace(asked, step=step_of(asked, {**plan, "plan": None}))
        return in_memory(asked) if store is None else in_store(asked, store)
    if plan["plan"].layout.population != MODEL:
        raise ValueError(
            "The earlier run had data beyond memory, and these fit in: sample them without "
            "continue_from."
        )
    n_rows = [plate.n_rows for plate in target.plates]
    layout = layout_of(plan["plan"].layout, n_rows)
    step = step_of(asked, {**plan, "plan": replace(plan["plan"], layout=layout)})
    move(step, plan)
    asked = replace(asked, step=step)
    return in_memory(asked) if store is None else in_store(asked, store)


class _Joined(Sampling):
    """More draws of a result's chains, returned with those before."""

    before: Container

    def package(self, runs: list[Run]) -> Container:
        """Old draws and new ones."""
        now = super().package(runs)
        groups = {name: get_group(self.before, name) for name in group_names(self.before)}
        attrs = dict(groups["posterior"].attrs)
        length = groups["posterior"].sizes["draw"]
        for name in _JOINED:
            if name in groups and name in group_names(now):
                groups[name] = _joined(groups[name], get_group(now, name))
        for name in ("sampler_state", *data_groups(self.step.model)):
            if name in group_names(now):
                groups[name] = get_group(now, name)
        attrs["sampling_time"] = attrs.get("sampling_time", 0.0) + self.seconds
        attrs["resumed"] = attrs.get("resumed", 0) + 1
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        told = [attrs["resumed_at"]] if attrs.get("resumed_at") else []
        attrs["resumed_at"] = ", ".join([*told, f"{stamp} (draw {length})"])
        attrs |= {"until": self.ended} if self.asked.until is not None else {}
        attrs |= self.record.distance()
        return package(self.step, groups, attrs)


def _joined(first: xr.Dataset, second: xr.Dataset) -> xr.Dataset:
    start = int(first["draw"].values[-1]) + 1
    second = second.assign_coords(draw=start + np.arange(second.sizes["draw"]))
    return xr.concat([first, second], dim="draw", combine_attrs="override", data_vars="all")


def _from_result(asked: Asked, idata: Container, store: Place) -> Sampling:
    plan = read_state_group(idata)
    now = model_identity(read_model(asked.model, None, plan["batch_size"]))
    if _other_rows(now, plan):
        return _on_other_rows(asked, plan, store)
    _refuse_store(store)
    for _, sentence in differences(now, plan["identity"]):
        raise ValueError(f"continue_from holds another run: {sentence}.")
    step = step_of(asked, plan)
    asked = replace(_as_before(asked, plan), tune=0, keep_tune=False)
    chains = plan["chains"]
    record = Record(*record_of(asked, step, len(chains), 0, asked.draws))
    unused = np.random.default_rng(0)  # chains have begun
    runs = make_runs(step, record, [(unused, {}) for _ in chains])
    for run, state in zip(runs, chains, strict=True):
        run.chain.resume(state["chain"])
        run.shortened, run.begun, run.continued = state["shortened"], True, True
    sampling = _Joined(asked, step, record, runs)
    sampling.before = idata
    return sampling
