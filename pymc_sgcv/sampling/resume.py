# SPDX-License-Identifier: Apache-2.0
"""A run in a store: begun there, or gone on with if it is the same run."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import xarray as xr

from pymc_sgcv.model.target import read_model
from pymc_sgcv.results.containers import Container, get_group, with_groups
from pymc_sgcv.sampling.arguments import Asked, Start, checked_step
from pymc_sgcv.sampling.driver import Sampling, record_of
from pymc_sgcv.sampling.identity import (
    Identity,
    call_identity,
    differences,
    model_identity,
    versions,
)
from pymc_sgcv.sampling.package import attributes, data_groups
from pymc_sgcv.sampling.runs import Run, make_runs
from pymc_sgcv.sampling.states import what_continues
from pymc_sgcv.sampling.store import Store
from pymc_sgcv.sampling.stored import StoredRecord, attributes_of, open_run
from pymc_sgcv.steps.base import StochasticGradientStep

_log = logging.getLogger("pymc.sgcv")
_SMALL_DATA = 1e8
"""Bytes of the model's own data up to which they are stored beside the draws."""


class StoredSampling(Sampling):
    """One whose draws are on disk."""

    record: StoredRecord

    checks_itself = False  # what is stored stays as it is

    def __init__(self, asked: Asked, step: Any, record: StoredRecord, runs: list[Run]):
        super().__init__(asked, step, record, runs)
        self.store = record.store
        self.attrs = attributes_of(self.store.path)

    def run(self) -> None:
        """Let the chains go on, if they are not at their end."""
        if all(run.done == run.total for run in self.runs):
            return
        self.store.set_attrs(self._resumed())
        self.record.start_clock()
        super().run()
        attrs: dict[str, Any] = {"until": self.ended} if self.asked.until is not None else {}
        attrs |= {"sampling_time": self.record.seconds, **self.record.distance()}
        self.store.set_attrs(attrs)

    def _resumed(self) -> dict[str, Any]:
        """How often the run was gone on with, and when, for the attributes of the result."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        times = self.attrs.get("resumed", -1) + 1
        told = [self.attrs["resumed_at"]] if times > 1 else []
        done = max(0, min(run.done for run in self.runs) - self.record.tune)
        told += [f"{now} (draw {done})"] if times else []
        return {"resumed": times, "resumed_at": ", ".join(told)}

    def present(self) -> xr.Dataset:
        """The posterior so far."""
        return get_group(open_run(self.store.path), "posterior")

    def inspect(self) -> Container:
        """The draws that there are while chains run."""
        return open_run(self.store.path)

    def package(self, runs: list[Run]) -> Container:
        """The draws of all chains, opened lazily."""
        idata = open_run(self.store.path)
        return with_groups(idata, {k: v for k, v in data_groups(self.step.model).items() if v})

    def close(self) -> None:
        """Let others have the store."""
        self.store.close()


def in_store(asked: Asked, path: str | os.PathLike) -> StoredSampling:
    """The run that was asked for, begun in the store or where it ended there."""
    store = Store(path)
    try:
        if not store.begun:
            return _begin(asked, store)
        attributes_of(store.path)  # of another version, if it is
        return _go_on(asked, store)
    except BaseException:
        store.close()
        raise


def _begin(asked: Asked, store: Store) -> StoredSampling:
    step = checked_step(asked.step, asked.model, asked.progressbar)
    tune, chains = asked.lengths(step)
    arguments = record_of(asked, step, chains, tune, asked.draws)
    record = StoredRecord(store, None, *arguments)
    plan = what_continues(asked, step)
    plan |= {
        "versions": versions(),
        "identity": plan["identity"] | call_of(asked, step, tune, chains, asked.draws),
        "starts": [_packed(start) for start in asked.starts(step, chains)],
        "tune": tune,
        "draws": asked.draws,
        "chains": chains,
        "sizes": {"piece": record.piece, "block": record.block},
    }
    own = {k: v for k, v in data_groups(asked.model).items() if v and v.nbytes <= _SMALL_DATA}
    attrs = attributes(step, tune)
    store.create(plan, record.templates() | own, attrs, record.block, tune, record.shared())
    return _with_states(asked, step, record, store.read_plan())


def _go_on(asked: Asked, store: Store) -> StoredSampling:
    plan = store.read_plan()
    refuse_other(store, plan, model_identity(read_model(asked.model, None, plan["batch_size"])))
    step = checked_step(asked.step, asked.model, asked.progressbar, plan["plan"])
    tune = plan["tune"] if asked.tune is None else asked.tune
    chains = asked.chains or plan["chains"]
    refuse_other(store, plan, call_of(asked, step, tune, chains, asked.draws))
    return go_on(asked, step, store, plan)


def go_on(
    asked: Asked, step: StochasticGradientStep, store: Store, plan: Mapping
) -> StoredSampling:
    """The run that the store holds."""
    if plan["versions"] != versions():
        _log.warning(
            "%s was begun with other versions (%s): what follows may be rounded differently.",
            store.path,
            ", ".join(f"{name} {number}" for name, number in plan["versions"].items()),
        )
    sizes = plan["chains"], plan["tune"], plan["draws"]
    record = StoredRecord(store, plan["sizes"], *record_of(asked, step, *sizes))
    return _with_states(asked, step, record, plan)


def _with_states(
    asked: Asked, step: StochasticGradientStep, record: StoredRecord, plan: Mapping
) -> StoredSampling:
    """The run as it was when each chain was last stored."""
    step.adopt(plan["plan"])  # in the very form that later calls will read
    record.open_arrays()
    runs = make_runs(step, record, [_unpacked(start) for start in plan["starts"]])
    for run in runs:
        if (state := record.store.load(run.number)) is not None:
            run.resume(state)
            record.resume(run.number, state)
    sampling = StoredSampling(asked, step, record, runs)
    if "resumed" in sampling.attrs:
        _check_draws(sampling)
        _log.info("%s goes on at draw %d.", record.store.path, min(run.done for run in runs))
    return sampling


def _check_draws(sampling: StoredSampling) -> None:
    """See that all that counts is there before more is added to it."""
    if any(run.done > sampling.record.tune for run in sampling.runs):
        open_run(sampling.store.path)


def call_of(
    asked: Asked, step: StochasticGradientStep, tune: int, chains: int, draws: int
) -> Identity:
    """What a call of `sample` asks for."""
    call = {
        "draws": draws,
        "tune": tune,
        "chains": chains,
        "var_names": asked.names,
        "gradients": asked.gradients,
        "discard_tuned_samples": not asked.keep_tune,
        "random_seed": asked.seed,
    }
    center = step.given_center
    return call_identity(type(step).__name__, step.settings, center, call)


def refuse_other(store: Store, plan: Mapping, now: Identity) -> None:
    """Raise an error that names the first thing in which two runs differ."""
    then = plan["identity"]
    for kind, sentence in _important(differences(now, then)):
        hint = " To add draws, use continue_from." if sentence.startswith("draws") else ""
        changed = {k: v for k, v in plan["versions"].items() if versions()[k] != v}
        if kind == "variables" and changed:
            hint = f" Or it is read differently since {changed}."
        raise ValueError(
            f"{store.path} holds another run: {sentence}. Give another store, or delete this one "
            f"to begin anew.{hint}"
        )


def _important(found: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """All differences but a seed that is not given now: the stored one is used."""
    return ((k, s) for k, s in found if not s.startswith("random_seed is None"))


def _packed(start: Start) -> dict[str, Any]:
    rng, point = start
    bits: Any = rng.bit_generator
    seeds = getattr(bits.seed_seq, "state", None)  # of what `rng.spawn` makes
    return {
        "rng": bits.state,
        "seeds": seeds,
        "point": {k: np.asarray(v) for k, v in point.items()},
    }


def _unpacked(start: Mapping) -> Start:
    seeds = start.get("seeds")
    bits = getattr(np.random, start["rng"]["bit_generator"])(
        None if seeds is None else np.random.SeedSequence(**seeds)
    )
    bits.state = start["rng"]
    return np.random.Generator(bits), start["point"]
