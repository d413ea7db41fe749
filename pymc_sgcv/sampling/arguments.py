# SPDX-License-Identifier: Apache-2.0
"""The arguments of `sample`: checked before any work is done."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import pymc as pm
from pymc.initial_point import make_initial_point_fns_per_chain

from pymc_sgcv.arguments import Seed, check_mapping, given_generator
from pymc_sgcv.sampling.until import Until
from pymc_sgcv.setup.plan import Plan
from pymc_sgcv.steps.base import Point, StochasticGradientStep
from pymc_sgcv.steps.methods import SGLDCV
from pymc_sgcv.steps.unbound import Sampler

_log = logging.getLogger("pymc.sgcv")
Step: TypeAlias = StochasticGradientStep | type[StochasticGradientStep] | Sampler | partial | None
"""A step method, or what makes one."""
Start: TypeAlias = tuple[np.random.Generator, Point]
"""A chain's generator, and where it begins if there is no center."""


def check_counts(**counts: Any) -> None:
    """Refuse what is not a whole number, or too small a one."""
    for name, value in counts.items():
        least = 0 if name == "tune" else 1
        if value is None and name != "draws":
            continue
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}.")


def check_store(store: Any) -> None:
    """Refuse what is no path."""
    if store is not None and (not isinstance(store, str | os.PathLike) or not os.fspath(store)):
        raise TypeError(f"store must be the path of a directory, not {store!r}.")
    if store is not None and "://" in os.fspath(store):
        raise ValueError(
            f"store must be a directory of a file system, not {store!r}: its files are replaced by "
            "renaming. Copy it there when the run has ended."
        )


def check_initvals(model: pm.Model, initvals: Mapping | Sequence[Mapping] | None) -> None:
    """Refuse values of variables that the model does not have."""
    known = {rv.name for rv in model.free_RVs} | {v.name for v in model.value_vars}
    several = initvals if isinstance(initvals, list | tuple) else [initvals]
    for one in several:
        check_mapping("initvals", one, "values by variable name")
        names = {getattr(key, "name", key) for key in one or ()}
        if unknown := sorted(map(str, names - known)):
            raise ValueError(f"initvals names {unknown}, but the model's are {sorted(known)}.")


def checked_step(given: Step, model: pm.Model, progressbar: bool, plan: Plan | None = None) -> Any:
    """The step method for the whole of this model, which does `plan` if there is one."""
    step: Any = given
    if given is None or isinstance(given, type | partial):
        make = SGLDCV if given is None else given
        kind = make.func if isinstance(make, partial) else make
        if not (isinstance(kind, type) and issubclass(kind, StochasticGradientStep)):
            raise TypeError(f"step makes no step method of this package: {kind!r}.")
        step = make(**{"model": model, "progressbar": progressbar, "_plan": plan})
        plan = None
    if not isinstance(step, StochasticGradientStep):
        raise TypeError(
            f"step must be one of this package's step methods, not {type(step).__name__}. Use "
            "pm.sample for other step methods and for compound steps."
        )
    if step.shared:
        raise ValueError("step leaves variables to other step methods: sample with pm.sample.")
    if step.model is not model:
        raise ValueError("step was built for another model than the one in context.")
    if plan is not None:
        step.adopt(plan)
    else:
        step.refresh()
    return step


@dataclass
class Asked:
    """What a call of `sample` asks for, checked."""

    model: pm.Model
    draws: int
    tune: int | None
    chains: int | None
    cores: int | None
    step: Step
    random_seed: Seed
    progressbar: bool
    initvals: Mapping | Sequence[Mapping] | None
    names: list[str]
    gradients: bool | list[str]
    keep_tune: bool
    checks: bool
    check: bool | str = "auto"
    until: Until | None = None

    def __post_init__(self) -> None:
        if isinstance(self.step, Sampler):
            self.step = partial(self.step.method, **self.step.arguments)
        check_counts(draws=self.draws, tune=self.tune, chains=self.chains, cores=self.cores)
        check_initvals(self.model, self.initvals)
        if self.check != "auto" and not isinstance(self.check, bool | np.bool_):
            raise ValueError(f'check must be "auto", True or False, not {self.check!r}.')
        self.generator = given_generator("random_seed", self.random_seed)
        bits = self.generator.bit_generator
        state = str((bits.state, getattr(bits, "seed_seq", None))).encode()
        self.seed = None if self.random_seed is None else blake2b(state, digest_size=6).hexdigest()
        if isinstance(self.random_seed, int | np.integer):
            self.seed = str(int(self.random_seed))

    @property
    def threads(self) -> int:
        """Threads, also if there are fewer chains."""
        return self.cores or min(4, os.cpu_count() or 1)

    def lengths(self, step: StochasticGradientStep) -> tuple[int, int]:
        """Tuning draws, and chains."""
        tune = step.default_tune_steps if self.tune is None else self.tune
        return tune, self.chains or max(2, self.threads)

    def starts(self, step: StochasticGradientStep, chains: int) -> list[Start]:
        """What each chain begins with."""
        rngs = self.generator.spawn(chains)
        seeds = [rng.integers(2**30) for rng in rngs]  # as pm.sample does, for the same draws
        points = initial_points(step, self.initvals, seeds)
        return list(zip(rngs, points, strict=True))


def initial_points(
    step: StochasticGradientStep,
    initvals: Mapping | Sequence[Mapping] | None,
    seeds: Sequence[np.integer],
) -> list[Point]:
    """Where each chain starts, if not around the center."""
    if step.plan.center is not None:
        if initvals is not None:
            _log.warning("initvals are not used: chains start around the center.")
        return [{} for _ in seeds]
    functions = make_initial_point_fns_per_chain(
        model=step.model, overrides=initvals, jitter_rvs=set(), chains=len(seeds)
    )
    return [function(seed) for function, seed in zip(functions, seeds, strict=True)]
