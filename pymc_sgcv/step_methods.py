# SPDX-License-Identifier: Apache-2.0
"""SGLD, SGLD-CV and SAGA as PyMC step methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pymc as pm

from pymc_sgcv.center import Center
from pymc_sgcv.dynamics import INTEGRATORS
from pymc_sgcv.gradients import CONTROL_VARIATE, SAGA_BLOCKS, STANDARD
from pymc_sgcv.gradients import SAGA as SAGA_ROWS
from pymc_sgcv.plan import Settings
from pymc_sgcv.schedules import check_step_size
from pymc_sgcv.step import StochasticGradientStep, value_variables


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
        number = isinstance(memory_limit, int | float | np.number)
        if not number or not memory_limit > 0:
            raise ValueError(f"memory_limit must be a number of bytes, not {memory_limit!r}.")
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
    number = isinstance(target_bias, int | float | np.number)
    if not number or not 0 < target_bias < 1:
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


def _refuse_sharing(name: str, model, vars) -> None:
    model = pm.modelcontext(model)
    left = set(model.value_vars) - set(value_variables(model, vars))
    if left:
        names = ", ".join(sorted(f"'{model.values_to_rvs[v].name}'" for v in left))
        raise ValueError(
            f"{name.upper()} fixes its control variate on all the variables of the model, so it "
            "cannot "
            f"leave {names} to another step method. Sample all variables with it, or use SGLD."
        )
