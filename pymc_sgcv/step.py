# SPDX-License-Identifier: Apache-2.0
"""What all step methods share: building the model, moving the chain, recording draws."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator

from pymc_sgcv.blas import one_blas_thread
from pymc_sgcv.chain import Chain
from pymc_sgcv.gradients import STANDARD
from pymc_sgcv.plan import Plan, Settings, make_plan
from pymc_sgcv.problem import Problem
from pymc_sgcv.schedules import step_sizes

_AHEAD_SECONDS = 0.02
"""How long draws are made ahead for ``pm.sample``, to spread the cost of one compiled call."""


@dataclass_state
class _ChainState(StepMethodState):
    """What moves while a chain runs; `ahead` holds draws made but not handed out yet."""

    theta: np.ndarray = field(default_factory=lambda: np.zeros(0))
    zeta: np.ndarray = field(default_factory=lambda: np.zeros(0))
    random: np.ndarray = field(default_factory=lambda: np.zeros(0))
    iteration: int = 0
    started: bool = False
    ahead: list = field(default_factory=list)
    handed: int = 0


class StochasticGradientStep(BlockedStep):
    """What the step methods share: building the model, the chain, the recorded statistics.

    Recorded per draw, for every unconstrained value variable ``v``: ``unconstrained__v``, the draw,
    and ``gradient__v``, the estimated gradient of the log posterior at that very draw.
    """

    name = "stochastic_gradient"
    estimator = STANDARD
    default_blocked = True
    default_tune_steps = 200
    _state_class = _ChainState

    def __init__(self, vars, settings: Settings, model, rng, center, compile_kwargs):
        self.model = pm.modelcontext(model)
        self.vars = value_variables(self.model, vars)
        self.rng = get_random_generator(rng if rng is not None else 0)
        self._seed = int(self.rng.integers(2**62))  # of the set-up: the same for every chain
        self.settings = settings
        self._compile_kwargs = compile_kwargs
        self._center = center
        self._problem: Problem | None = None
        self._chain: Chain | None = None
        self._build_problem()
        self.iteration, self.started = 0, False
        self.ahead, self.handed, self._n_ahead = [], 0, 1
        self.theta = self.zeta = self.random = np.zeros(0)
        self._declare_statistics()
        self.plan: Plan = self._make_plan()

    @property
    def shared(self) -> bool:
        """Whether other step methods sample some of the model's variables."""
        return len(self.vars) < len(self.model.value_vars)

    def _build_problem(self, proven: bool = False) -> None:
        by_name = {v.name: v for v in self.model.value_vars}
        self._problem = Problem(
            self.model,
            [by_name[v.name] for v in self.vars],
            self.settings.batch_size,
            self.settings.subsampling,
            self.settings.weights,
            self._compile_kwargs,
            proven=proven,
        )
        if self.shared:
            self._problem.set_others(self._problem.target.start)

    @property
    def problem(self) -> Problem:
        """The compiled model; built again after unpickling."""
        if self._problem is None:
            self._build_problem(proven=True)
        return self._problem

    def _make_plan(self) -> Plan:
        rng = np.random.default_rng(self._seed)
        return make_plan(self.problem, self.estimator, self.settings, self._center, rng)

    def _declare_statistics(self) -> None:
        kinds = {"step_size": (np.float64, [])}
        for p in self.problem.target.parameters:
            kind = np.dtype((np.float64, p.shape)) if p.shape else np.float64
            kinds[f"unconstrained__{p.name}"] = (kind, list(p.shape))
            kinds[f"gradient__{p.name}"] = (kind, list(p.shape))
        self.stats_dtypes_shapes = kinds
        self.stats_dtypes = [{name: kind for name, (kind, _) in kinds.items()}]

    def set_rng(self, rng) -> None:
        """Begin a chain (PyMC 5)."""
        self.rng = get_random_generator(rng, copy=False)
        self.started = False

    def setup_chain(self, rng, tune: int, draws: int) -> None:
        """Begin a chain (PyMC 6)."""
        self.set_rng(rng)

    def make_chain(self) -> Chain:
        """A chain of this method, with buffers of its own."""
        return Chain(self.problem, self.plan.method)

    def start_of(self, point: Mapping[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """Where a chain begins: dispersed around the center, or at `point` where there is none."""
        plan = self.plan
        if plan.center is None:
            return self.problem.target.flatten(point)
        return plan.center.theta + plan.disperse(rng)

    def refresh(self) -> None:
        """Follow ``pm.set_data``: lay out new data and plan again if there are any."""
        if self.problem.refresh():
            self.plan, self._chain = self._make_plan(), None

    def begin(
        self, chain: Chain, point: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> None:
        """Put `chain` at its start."""
        center = self.plan.center
        chain.start(self.start_of(point, rng), rng, None if center is None else center.theta)

    def step(self, point):
        """The next draw, and the gradient at it.

        Nothing that ``pm.sample`` hands over changes the chain, so draws are made ahead in one call
        of compiled code and handed out one by one; with other step methods, one at a time.
        """
        if not self.started or self._chain is None:
            self._begin_or_resume(point)
        if self.shared:
            self._run_beside_others(point)
        elif self.handed == len(self.ahead):
            self._run_ahead()
        draw, gradient, h = self.ahead[self.handed]
        self.handed += 1
        return self._report(point, draw, gradient, h)

    def _run_ahead(self) -> None:
        """Make the next draws, about as many as fit into `_AHEAD_SECONDS`."""
        thin = self.plan.thin
        n = 1 if callable(self.plan.step_size) else self._n_ahead
        began = time.perf_counter()
        self._run(n, thin)
        taken = time.perf_counter() - began
        self._n_ahead = int(np.clip(n * _AHEAD_SECONDS / max(taken, 1e-9), 1, min(4 * n, 256)))

    def _run_beside_others(self, point) -> None:
        """Move given the others' present values, then take the gradient at the new draw."""
        self._chain.set_others(point)
        self._run(1, self.plan.thin)
        with one_blas_thread():
            gradient = self._chain.estimate()
        self.random = self._chain.random.copy()
        self.ahead = [(self.theta, gradient, self.ahead[0][2])]

    def _run(self, n: int, thin: int) -> None:
        chain, d = self._chain, self.problem.size
        steps = step_sizes(self.plan.step_size, chain.iteration, n * thin)
        draws, gradients = np.empty((n, d)), np.empty((n, d))
        with one_blas_thread():
            chain.run(steps, thin, draws, gradients)
        self.ahead = list(zip(draws, gradients, steps[thin - 1 :: thin], strict=True))
        self.handed = 0
        self.iteration, self.theta = chain.iteration, chain.points[0].copy()
        self.zeta, self.random = chain.zeta.copy(), chain.random.copy()

    def _begin_or_resume(self, point) -> None:
        self.refresh()
        if self._chain is None:
            self._chain = self.make_chain()
        if self.started:
            self._chain.points[0], self._chain.zeta[:] = self.theta, self.zeta
            self._chain.random[:], self._chain.iteration = self.random, self.iteration
            return
        if self.shared:
            self._chain.set_others(point)
        self.begin(self._chain, point, self.rng)
        self.ahead, self.handed, self.started = [], 0, True

    def _report(self, point, draw: np.ndarray, gradient: np.ndarray, h: float):
        target = self.problem.target
        values, slopes = target.unflatten(draw), target.unflatten(gradient)
        stats = {"step_size": h}
        for p in target.parameters:
            stats[f"unconstrained__{p.name}"] = values[p.name]
            stats[f"gradient__{p.name}"] = slopes[p.name]
        return {**point, **values}, [stats]

    def __getstate__(self) -> dict:
        """Everything but compiled code and the laid-out data, which are rebuilt on first use."""
        if self._problem is not None:
            self.refresh()  # the copy cannot tell that its data are newer than its plan
        return {**self.__dict__, "_problem": None, "_chain": None}

    @staticmethod
    def competence(var, has_grad=False) -> Competence:
        """Never chosen automatically: stochastic gradients are the user's decision."""
        return Competence.INCOMPATIBLE


def value_variables(model: pm.Model, vars) -> list:
    """Value variables of what the user named, all of them by default."""
    if vars is None:
        return list(model.value_vars)
    by_name = {rv.name: value for rv, value in model.rvs_to_values.items() if rv in model.free_RVs}
    by_name |= {value.name: value for value in model.value_vars}
    found = []
    for variable in vars if isinstance(vars, list | tuple) else [vars]:
        name = variable if isinstance(variable, str) else variable.name
        value = by_name.get(name)
        if value is None or not (isinstance(variable, str) or _belongs(model, variable)):
            known = ", ".join(f"'{rv.name}'" for rv in model.free_RVs)
            raise ValueError(f"vars names '{name}', but the model's free variables are {known}.")
        found.append(value)
    return found


def _belongs(model: pm.Model, variable) -> bool:
    return variable in model.rvs_to_values or variable in model.values_to_rvs
