# SPDX-License-Identifier: Apache-2.0
"""SGLD, SGLD-CV and SAGA as PyMC step methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import field

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator

from pymc_sgcv.blas import one_blas_thread
from pymc_sgcv.center import Center
from pymc_sgcv.chain import Chain
from pymc_sgcv.dynamics import INTEGRATORS
from pymc_sgcv.gradients import CONTROL_VARIATE, SAGA_BLOCKS, STANDARD
from pymc_sgcv.gradients import SAGA as SAGA_ROWS
from pymc_sgcv.plan import Plan, Settings, make_plan
from pymc_sgcv.problem import Problem
from pymc_sgcv.schedules import check_step_size, step_sizes

_AHEAD_SECONDS = 0.02
"""How long draws are made ahead for ``pm.sample``: one call of compiled code costs 0.1 ms."""


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
        self.vars = _value_variables(self.model, vars)
        self.rng = get_random_generator(rng if rng is not None else 0)
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
        rng = np.random.default_rng(self.rng.bit_generator.state["state"]["state"] % 2**63)
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
        n, thin = self._n_ahead, self.plan.thin
        began = time.perf_counter()
        self._run(n, thin)
        taken = time.perf_counter() - began
        self._n_ahead = int(np.clip(n * _AHEAD_SECONDS / max(taken, 1e-9), 1, min(4 * n, 256)))

    def _run_beside_others(self, point) -> None:
        """Move once given the others' values, and take back the update beyond the draw."""
        self._chain.set_others(point)
        self._run(1, self.plan.thin + 1)
        self._chain.points[0] = self.ahead[0][0]
        self.theta = self._chain.points[0].copy()

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
        return {**self.__dict__, "_problem": None, "_chain": None}

    @staticmethod
    def competence(var, has_grad=False) -> Competence:
        """Never chosen automatically: stochastic gradients are the user's decision."""
        return Competence.INCOMPATIBLE


class SGLD(StochasticGradientStep):
    r"""Stochastic gradient Langevin dynamics with the plain minibatch gradient.

    .. math:: \hat g(\theta) = \ell_0'(\theta) + \frac{N}{n} \sum_{i \in S} \ell_i'(\theta)

    Its gradient noise grows with N; `SGLDCV` is nearly always the better choice. It is the only
    method here that may share a model with other step methods.

    Parameters
    ----------
    vars
        Variables to sample; all of the model's by default.
    step_size
        ``"auto"``, a number, or a callable of the iteration such as `PolynomialDecay`. With a
        preconditioner it is in whitened units; with ``preconditioner=None`` it is the paper's h:
        θ ← θ + (h/2) ĝ + N(0, h).
    batch_size
        Rows per minibatch. Required for a plain full-data model, otherwise taken from
        ``pm.Minibatch``.
    subsampling
        ``"block"`` (random contiguous block of a shuffled copy), ``"without"`` replacement or
        ``"iid"``.
    integrator
        ``"lm"`` (Leimkuhler–Matthews) or ``"euler"`` (the paper).
    preconditioner
        ``"auto"``, ``"dense"``, ``"diagonal"``, None, or an array: a covariance matrix or a vector
        of variances of the unconstrained parameters.
    weights
        Row probabilities (any positive scale) instead of uniform ones; implies ``"iid"``.
    thin
        Iterations per recorded draw, or ``"auto"``: a draw is worth about half an effective one.
    target_bias
        Tolerated relative error of posterior standard deviations, for the automatic step size.
    model, rng, compile_kwargs
        The model (default: from the context), the seed of the automatic set-up (default: fixed, so
        that ``random_seed`` alone decides the draws), and arguments of ``pytensor.function``.
    progressbar
        Whether the automatic set-up shows its progress.

    Examples
    --------
    >>> with pm.Model():  # doctest: +SKIP
    ...     xb, yb = pm.Minibatch(X, y, batch_size=500)
    ...     beta = pm.Normal("beta", 0, 1, shape=X.shape[1])
    ...     pm.Bernoulli("y", logit_p=xb @ beta, observed=yb, total_size=len(y))
    ...     idata = pm.sample(step=SGLD(step_size=1e-5, preconditioner=None))
    """

    name = "sgld"
    estimator = STANDARD

    def __init__(
        self,
        vars=None,
        *,
        step_size: float | str | Callable[[int], float] = "auto",
        batch_size: int | None = None,
        subsampling: str | None = None,
        integrator: str = "lm",
        preconditioner: str | np.ndarray | None = "auto",
        weights: np.ndarray | Mapping[str, np.ndarray] | None = None,
        thin: int | str = "auto",
        target_bias: float = 0.03,
        model: pm.Model | None = None,
        rng=None,
        compile_kwargs: dict | None = None,
        progressbar: bool = True,
        blocked: bool = True,
    ):
        settings = _settings(
            step_size, batch_size, subsampling, integrator, preconditioner, weights, thin,
            target_bias, progressbar,
        )  # fmt: skip
        super().__init__(vars, settings, model, rng, None, compile_kwargs)


class SGLDCV(StochasticGradientStep):
    r"""SGLD with control variates (Baker, Fearnhead, Fox & Nemeth 2019, Algorithm 1).

    .. math:: \hat g(\theta) = g(\hat\theta) + \ell_0'(\theta) - \ell_0'(\hat\theta) +
              \frac1n \sum_{i \in S} \frac1{p_i} (\ell_i'(\theta) - \ell_i'(\hat\theta))

    with the full gradient g at a centering point θ̂ near the mode. Chains start around θ̂, whatever
    initial point they are handed.

    Parameters
    ----------
    center
        A `Center` from `find_center`, or values by variable name on the model's own scale. Found
        automatically if None.
    vars, step_size, batch_size, subsampling, integrator, preconditioner, weights, thin, target_bias
        As for `SGLD`.
    model, rng, compile_kwargs, progressbar
        As for `SGLD`.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(2000, step=SGLDCV())
    """

    name = "sgldcv"
    estimator = CONTROL_VARIATE

    def __init__(
        self,
        vars=None,
        *,
        center: Center | Mapping[str, np.ndarray] | None = None,
        step_size: float | str | Callable[[int], float] = "auto",
        batch_size: int | None = None,
        subsampling: str | None = None,
        integrator: str = "lm",
        preconditioner: str | np.ndarray | None = "auto",
        weights: np.ndarray | Mapping[str, np.ndarray] | None = None,
        thin: int | str = "auto",
        target_bias: float = 0.03,
        model: pm.Model | None = None,
        rng=None,
        compile_kwargs: dict | None = None,
        progressbar: bool = True,
        blocked: bool = True,
    ):
        settings = _settings(
            step_size, batch_size, subsampling, integrator, preconditioner, weights, thin,
            target_bias, progressbar,
        )  # fmt: skip
        _refuse_sharing(self.name, model, vars)
        super().__init__(vars, settings, model, rng, center, compile_kwargs)


class SAGA(StochasticGradientStep):
    r"""SAGA Langevin dynamics: a table of past gradients as control variate (Dubey et al. 2016).

    .. math:: \hat g(\theta) = \ell_0'(\theta) + \frac{N}{n} \sum_{i \in S}
              (\ell_i'(\theta) - \alpha_i) + \sum_i \alpha_i, \quad \alpha_i \leftarrow
              \ell_i'(\theta)

    Parameters
    ----------
    table
        ``"rows"``: one entry per row, N·d numbers per chain; ``"blocks"``: one per fixed block of n
        rows of the shuffled data, (N/n)·d numbers, far cheaper.
    table_dtype
        ``"float64"`` or ``"float32"``.
    memory_limit
        Bytes that the tables of one chain may take.
    subsampling
        ``"iid"`` by default: rows of one block would share their reference point, which makes the
        gradient noisier.
    center
        As for `SGLDCV`: where the table is filled and chains start. With ``step_size`` and
        ``preconditioner`` given and no center, both are the chain's initial point.
    vars, step_size, batch_size, subsampling, integrator, preconditioner, thin, target_bias
        As for `SGLD`.
    model, rng, compile_kwargs, progressbar
        As for `SGLD`.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(2000, step=SAGA(table="blocks"))
    """

    name = "saga"

    def __init__(
        self,
        vars=None,
        *,
        table: str = "rows",
        table_dtype: str = "float64",
        memory_limit: float = 4e9,
        center: Center | Mapping[str, np.ndarray] | None = None,
        step_size: float | str | Callable[[int], float] = "auto",
        batch_size: int | None = None,
        subsampling: str | None = None,
        integrator: str = "lm",
        preconditioner: str | np.ndarray | None = "auto",
        thin: int | str = "auto",
        target_bias: float = 0.03,
        model: pm.Model | None = None,
        rng=None,
        compile_kwargs: dict | None = None,
        progressbar: bool = True,
        blocked: bool = True,
    ):
        if table not in ("rows", "blocks"):
            raise ValueError(f'table must be "rows" or "blocks", not {table!r}.')
        if table_dtype not in ("float64", "float32"):
            raise ValueError(f'table_dtype must be "float64" or "float32", not {table_dtype!r}.')
        if table == "blocks" and subsampling not in (None, "block"):
            raise ValueError(
                f'table="blocks" draws fixed blocks of the shuffled data: '
                f"subsampling={subsampling!r} "
                "does not apply. Leave subsampling out."
            )
        subsampling = subsampling or ("iid" if table == "rows" else "block")
        settings = _settings(
            step_size, batch_size, subsampling, integrator, preconditioner, None, thin,
            target_bias, progressbar, table_dtype, memory_limit,
        )  # fmt: skip
        self.estimator = SAGA_ROWS if table == "rows" else SAGA_BLOCKS
        _refuse_sharing(self.name, model, vars)
        super().__init__(vars, settings, model, rng, center, compile_kwargs)


def _settings(
    step_size, batch_size, subsampling, integrator, preconditioner, weights, thin, target_bias,
    progressbar, table_dtype="float64", memory_limit=np.inf,
) -> Settings:  # fmt: skip
    """Check what can be checked without the model."""
    check_step_size(step_size)
    if integrator not in INTEGRATORS:
        raise ValueError(f"integrator must be one of {tuple(INTEGRATORS)}, not {integrator!r}.")
    if isinstance(preconditioner, str) and preconditioner not in ("auto", "dense", "diagonal"):
        raise ValueError(
            'preconditioner must be "auto", "dense", "diagonal", None or an array, not '
            f"{preconditioner!r}."
        )
    if thin != "auto" and (
        isinstance(thin, bool) or not isinstance(thin, int | np.integer) or thin < 1
    ):
        raise ValueError(f'thin must be "auto" or a whole number of at least 1, not {thin!r}.')
    if not 0 < target_bias < 1:
        raise ValueError(f"target_bias must lie between 0 and 1, not {target_bias!r}.")
    if weights is not None and subsampling not in (None, "iid"):
        raise ValueError(
            f'weights need rows drawn independently: subsampling must be "iid", not '
            f"{subsampling!r}."
        )
    return Settings(
        step_size=step_size,
        batch_size=batch_size,
        subsampling=subsampling or ("iid" if weights is not None else "block"),
        integrator=integrator,
        preconditioner=preconditioner,
        weights=weights,
        thin=thin,
        target_bias=target_bias,
        progressbar=progressbar,
        table_dtype=table_dtype,
        memory_limit=memory_limit,
    )


def _value_variables(model: pm.Model, vars) -> list:
    if vars is None:
        return list(model.value_vars)
    vars = vars if isinstance(vars, list | tuple) else [vars]
    named = [model[v] if isinstance(v, str) else v for v in vars]
    return [model.rvs_to_values.get(v, v) for v in named]


def _refuse_sharing(name: str, model, vars) -> None:
    model = pm.modelcontext(model)
    left = set(model.value_vars) - set(_value_variables(model, vars))
    if left:
        names = ", ".join(sorted(f"'{model.values_to_rvs[v].name}'" for v in left))
        raise ValueError(
            f"{name.upper()} fixes its control variate on all the variables of the model, so it "
            "cannot "
            f"leave {names} to another step method. Sample all variables with it, or use SGLD."
        )
