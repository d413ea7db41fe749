# SPDX-License-Identifier: Apache-2.0
"""What all step methods share: building the model, moving the chain, recording draws."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator
from pytensor.graph.basic import Variable

from pymc_sgcv.arguments import Seed, check_mapping, given_generator, given_model
from pymc_sgcv.engine.blas import one_blas_thread
from pymc_sgcv.engine.progress import compilation_shown
from pymc_sgcv.kernel.chain import Chain
from pymc_sgcv.kernel.estimators import STANDARD, Kind
from pymc_sgcv.kernel.schedules import step_sizes
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.automatic import make_plan
from pymc_sgcv.setup.center import Center
from pymc_sgcv.setup.plan import Plan, Settings
from pymc_sgcv.setup.tuning import Motion
from pymc_sgcv.steps.options import (
    Variables,
    check_options,
    check_population,
    integrator_of,
    joint_signature,
    refuse_sharing,
    subsampling_of,
    value_variables,
    warn_about_minibatches_of_others,
)
from pymc_sgcv.steps.unbound import Sampler, in_context

Point: TypeAlias = Mapping[str, np.ndarray]
"""Values of all value variables by name, as ``pm.sample`` hands them round."""
_SETTLED_AFTER = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
"""Draws beside other step methods after which the set-up is repeated."""
_AHEAD_SECONDS = 0.02
"""How long draws are made ahead for ``pm.sample``, to spread the cost of one compiled call."""


@dataclass_state
class _ChainState(StepMethodState):
    """What moves while a chain runs; `ahead` holds draws made but not handed out yet."""

    moving: dict = field(default_factory=dict)
    started: bool = False
    ahead: list = field(default_factory=list)
    handed: int = 0


class StochasticGradientStep(BlockedStep):
    """What the step methods share: building the model, the chain, the recorded statistics.

    A step method is an estimator of the gradient and a kind of dynamics, each a class attribute,
    and whatever arguments of their own these bring (`pymc_sgcv.steps.ingredients`).

    Recorded per draw, for every unconstrained value variable ``v``: ``unconstrained__v``, the draw,
    and ``gradient__v``, the estimated gradient of the log posterior at that very draw.
    """

    name = "stochastic_gradient"
    estimator: Kind = STANDARD
    dynamics = "langevin"
    shares_model = True
    default_blocked = True
    default_tune_steps = 200
    _state_class = _ChainState

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A step method; outside a model context its configuration, bound later."""
        if kwargs.get("model") is None and not args and not in_context():
            return Sampler(cls, kwargs)
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        vars: Variables = None,
        *,
        step_size: float | str | Callable[[int], float] = "auto",
        batch_size: int | str | None = None,
        subsampling: str | None = None,
        integrator: str | None = None,
        preconditioner: str | np.ndarray | None = "auto",
        thin: int | str = "auto",
        target_bias: float = 0.03,
        reparametrize: bool = True,
        population: str = "auto",
        directory: str | Path | None = None,
        model: pm.Model | None = None,
        rng: Seed = None,
        compile_kwargs: dict | None = None,
        progressbar: bool = True,
        blocked: bool = True,
        _center: Center | Mapping[str, ArrayLike] | None = None,
        _motion: Mapping | None = None,
        _plan: Plan | None = None,
        _settings: Settings | None = None,
        **further: Any,
    ):
        self._refuse_unknown(further)
        check_options(step_size, preconditioner, thin, target_bias, reparametrize)
        check_population(population, directory)
        weights = further.get("weights")
        if subsampling is not None and isinstance(weights, str) and weights == "auto":
            further["weights"] = weights = None
        self.settings = Settings(
            estimator=self.estimator,
            step_size=step_size,
            batch_size=batch_size,
            subsampling=subsampling_of(subsampling, weights),
            motion=Motion(integrator_of(self.dynamics, integrator), **(_motion or {})),
            preconditioner=preconditioner,
            thin=thin,
            target_bias=target_bias,
            reparametrize=reparametrize and isinstance(preconditioner, str),
            progressbar=progressbar,
            population=population,
            directory=None if directory is None else str(directory),
            **{"weights": None, **further},
        )
        if _settings is not None:  # of an earlier run
            self.settings, self.estimator = _settings, _settings.estimator
        check_mapping("compile_kwargs", compile_kwargs, "arguments of pytensor.function")
        self.model = given_model(model)
        self.vars = value_variables(self.model, vars)
        if not self.shares_model:
            refuse_sharing(type(self).__name__, self.model, self.vars)
        self.rng = given_generator("rng", 0 if rng is None else rng)
        self._seed = int(self.rng.integers(2**62))  # of the set-up: the same for every chain
        self._compile_kwargs = compile_kwargs
        self._center = _center
        self._problem: Problem | None = None
        self._chain: Chain | None = None
        self._plan: Plan | None = None
        if _plan is not None:  # of an earlier run, for which the rows were proven
            self._plan = self._of_ours(_plan)
        with compilation_shown(progressbar):
            problem = self._build_problem(proven=_plan is not None)
        warn_about_minibatches_of_others(type(self).__name__, problem.target)
        self.moving: dict[str, Any] = {}
        self.started = False
        self.ahead: list[tuple[np.ndarray, np.ndarray, float]] = []
        self.handed, self._n_ahead = 0, 1
        self._moved_to = self.moving  # where the chain stands, unless a state was restored
        self._beside: int | None = 0  # draws beside other steps; None when tuning is over
        if self._plan is None:
            self._plan = self._make_plan()
        self._first_plan: Plan | None = self._plan
        self._declare_statistics()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the arguments of all the ingredients as the signature of the step method."""
        super().__init_subclass__(**kwargs)
        cls.__signature__ = joint_signature(cls, StochasticGradientStep)

    def _refuse_unknown(self, further: Mapping) -> None:
        known = inspect.signature(type(self)).parameters
        unknown = sorted(set(further) - set(known))
        if unknown:
            raise TypeError(
                f"{type(self).__name__} has no argument {unknown[0]!r}. It takes: "
                f"{', '.join(known)}."
            )

    @property
    def shared(self) -> bool:
        """Whether other step methods sample some of the model's variables."""
        return len(self.vars) < len(self.model.value_vars)

    @property
    def plan(self) -> Plan:
        """What all chains do; missing only while new data are planned for, or if that failed."""
        if self._plan is None:
            raise RuntimeError("The set-up for new data was interrupted: call refresh() first.")
        return self._plan

    def adopt(self, plan: Plan) -> None:
        """Do what was planned by another step method of the same settings and data."""
        if not plan.layout.equals(self.problem.layout):
            self.problem.lay_out(plan.layout)
        self._plan = self._first_plan = self._of_ours(plan)
        self._chain = None
        self._declare_statistics()

    def _of_ours(self, plan: Plan) -> Plan:
        """A plan with the schedule of step sizes that the user gave, if it is one."""
        own = self.settings.step_size
        return replace(plan, step_size=own) if callable(own) else plan

    @property
    def given_center(self) -> Center | Mapping | None:
        """The user's own center."""
        return self._center

    def _build_problem(self, proven: bool = False) -> Problem:
        by_name = {v.name: v for v in self.model.value_vars}
        weights = self.settings.weights
        self._problem = problem = Problem(
            self.model,
            [by_name[v.name] for v in self.vars],
            self.settings.batch_size,
            self.settings.subsampling,
            None if isinstance(weights, str) else weights,
            self._compile_kwargs,
            layout=self.plan.layout if proven else None,
            reparametrize=self.settings.reparametrize,
            population=self.settings.wanted_population,
        )
        if self.shared:
            problem.set_others(problem.target.start)
        return problem

    @property
    def problem(self) -> Problem:
        """The compiled model; built again after unpickling."""
        return self._build_problem(proven=True) if self._problem is None else self._problem

    def _make_plan(self, log: bool = True) -> Plan:
        rng, name = np.random.default_rng(self._seed), type(self).__name__ if log else None
        with compilation_shown(self.settings.progressbar):
            return make_plan(name, self.problem, self.settings, self._center, rng)

    def _declare_statistics(self) -> None:
        kinds: dict[str, tuple[Any, list[int]]] = {
            name: (np.float64, []) for name in ("step_size", "target_bias", *self.plan.statistics)
        }
        for p in self.problem.target.parameters:
            kind = np.dtype((np.float64, p.shape)) if p.shape else np.float64
            kinds[f"unconstrained__{p.name}"] = (kind, list(p.shape))
            kinds[f"gradient__{p.name}"] = (kind, list(p.shape))
        self.stats_dtypes_shapes = kinds
        self.stats_dtypes = [{name: kind for name, (kind, _) in kinds.items()}]

    def set_rng(self, rng: Seed) -> None:
        """Begin a chain (PyMC 5)."""
        self.rng = get_random_generator(rng, copy=False)
        self.started, self._beside = False, 0
        if self._plan is not self._first_plan:  # what a chain before has settled is its own
            self._plan, self._chain = self._first_plan, None

    def setup_chain(self, rng: Seed, tune: int, draws: int) -> None:
        """Begin a chain (PyMC 6)."""
        self.set_rng(rng)

    def stop_tuning(self) -> None:
        """Beside other step methods, set up a last time."""
        super().stop_tuning()
        if self.shared and self.started:
            self._settle()
        self._beside = None

    def _settle(self) -> None:
        """Set up again at the present values of the variables that others sample."""
        if self.settings.automatic:
            self.problem.settle_others()
            self._plan = self._make_plan(log=False)
            self._chain = self.make_chain()
            self._chain.resume(self.moving)

    @property
    def _present_chain(self) -> Chain:
        assert self._chain is not None  # `step` begins or resumes one before all else
        return self._chain

    def make_chain(self) -> Chain:
        """A chain of this method, with buffers of its own."""
        return Chain(self.problem, self.plan.method)

    def start_of(self, point: Point, rng: np.random.Generator) -> np.ndarray:
        """The position where a chain begins: around the center, or at `point` without one."""
        plan = self.plan
        if plan.center is None:
            theta = self.problem.target.flatten(point)
            return self.problem.coordinates(plan.method.degree).find(theta)
        return plan.start(rng)

    def refresh(self) -> None:
        """Follow ``pm.set_data``: lay out new data and plan again if there are any."""
        if self.problem.refresh() or self._plan is None:
            # If what follows is interrupted, it is done again.
            self._plan = self._first_plan = self._chain = None
            self._plan = self._first_plan = self._make_plan()

    def begin(self, chain: Chain, point: Point, rng: np.random.Generator) -> None:
        """Put `chain` at its start."""
        center = self.plan.center
        chain.start(self.start_of(point, rng), rng, None if center is None else center.theta)

    def step(self, point: Point) -> tuple[Point, list[dict[str, Any]]]:
        """The next draw, and the gradient at it.

        Nothing that ``pm.sample`` hands over changes the chain, so draws are made ahead in one call
        of compiled code and handed out one by one; with other step methods, one at a time.
        """
        if not self.started or self._chain is None or self.moving is not self._moved_to:
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

    def _run_beside_others(self, point: Point) -> None:
        """Move given the others' present values, then take the gradient at the new draw.

        The step that was chosen at their initial values may be far too long for those that they
        move to, so it is chosen anew early in tuning, and at its end.
        """
        self._present_chain.set_others(point)
        if self._beside is not None:
            if self._beside in _SETTLED_AFTER:
                self._settle()
            self._beside += 1
        self._run(1, self.plan.thin)
        with one_blas_thread():
            gradient = self._present_chain.estimate()
        self.moving = self._moved_to = self._present_chain.state()
        self.ahead = [(self.moving["points"][0], gradient, self.ahead[0][2])]

    def _run(self, n: int, thin: int) -> None:
        chain, d = self._present_chain, self.problem.size
        steps = step_sizes(self.plan.step_size, chain.iteration, n * thin)
        draws, gradients = np.empty((n, d)), np.empty((n, d))
        with one_blas_thread():
            chain.run(steps, thin, draws, gradients)
        self.ahead = list(zip(draws, gradients, steps[thin - 1 :: thin], strict=True))
        self.handed = 0
        self.moving = self._moved_to = chain.state()

    def _begin_or_resume(self, point: Point) -> None:
        self.refresh()
        if self.problem.layout is not self.plan.layout:  # a chain before has settled on another
            self.problem.lay_out(self.plan.layout)
        if self._chain is None:
            self._chain = self.make_chain()
        if self.started:
            self._chain.resume(self.moving)
            self._moved_to = self.moving
            return
        if self.shared:
            self._chain.set_others(point)
        self.begin(self._chain, point, self.rng)
        self.ahead, self.handed, self.started = [], 0, True
        self._moved_to = self.moving

    def _report(
        self, point: Point, draw: np.ndarray, gradient: np.ndarray, h: float
    ) -> tuple[Point, list[dict[str, Any]]]:
        target = self.problem.target
        values, slopes = target.unflatten(draw), target.unflatten(gradient)
        stats: dict[str, Any] = {
            "step_size": h,
            "target_bias": self.settings.target_bias,
            **self.plan.statistics,
        }
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
    def competence(var: Variable, has_grad: bool = False) -> Competence:
        """Never chosen automatically: stochastic gradients are the user's decision."""
        return Competence.INCOMPATIBLE
