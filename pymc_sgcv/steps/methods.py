# SPDX-License-Identifier: Apache-2.0
"""The step methods: each is an estimator of the gradient × a kind of dynamics."""

from __future__ import annotations

from pymc_sgcv.steps.base import StochasticGradientStep
from pymc_sgcv.steps.ingredients import (
    ControlVariate,
    Hamiltonian,
    MovingCenter,
    Standard,
    Table,
    Thermostat,
)


class SGLD(Standard, StochasticGradientStep):
    r"""Stochastic gradient Langevin dynamics with the plain minibatch gradient.

    .. math:: \hat g(\theta) = \ell_0'(\theta) + \frac{N}{n} \sum_{i \in S} \ell_i'(\theta)

    Its gradient noise grows with N; `SGLDCV` is nearly always the better choice. Only methods with
    this gradient may share a model with other step methods.

    Parameters
    ----------
    vars
        Variables to sample; all of the model's by default.
    step_size
        ``"auto"``, a number, or a callable of the iteration such as `PolynomialDecay`. With a
        preconditioner it is in whitened units; with ``preconditioner=None`` it is the paper's h:
        θ ← θ + (h/2) ĝ + N(0, h).
    batch_size
        Rows per minibatch, or ``"auto"``: as many as the step size needs. By default what
        ``pm.Minibatch`` was given, and ``"auto"`` for a plain full-data model.
    subsampling
        ``"block"`` (random contiguous block of a shuffled copy), ``"without"`` replacement or
        ``"iid"``.
    integrator
        ``"lm"`` (Leimkuhler–Matthews, the default) or ``"euler"`` (the paper).
    preconditioner
        ``"auto"`` (dense up to 400 parameters, above that low rank + diagonal), ``"dense"``,
        ``"lowrank"``, ``"diagonal"``, None, or an array: a covariance matrix or a vector of
        variances of the unconstrained parameters.
    reparametrize
        Whether group effects, declared centred or not, are moved in partially centred coordinates.
        Draws and gradients are those of the declared variables all the same. Not done with None or
        an array as preconditioner.
    weights
        How often rows are drawn: ``"uniform"``; ``"preferential"``, in proportion to how much a
        row's gradient varies; or an array of any positive scale, in a dict by observed variable if
        there are several. All but the first imply ``subsampling="iid"``. ``"auto"`` is uniform,
        unless gradient noise would shorten the automatic step and preferential weights help much.
    thin
        Iterations per recorded draw, or ``"auto"``: a draw is worth about half an effective one.
    target_bias
        Tolerated relative error of posterior standard deviations, for the automatic step size.
    population
        Which rows minibatches come from: all, in ``"memory"`` or a shuffled copy on ``"disk"``, or
        a ``"sample"`` of them with weights, whose gradient is corrected by passes over all rows.
        ``"auto"`` is a sample where data are large and it will do. `SAGA` and `SVRG` need all rows.
    directory
        Where a copy on disk may be; by default where temporary files are.
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


class SGLDCV(ControlVariate, StochasticGradientStep):
    r"""SGLD with control variates (Baker, Fearnhead, Fox & Nemeth 2019, Algorithm 1).

    .. math:: \hat g(\theta) = g(\hat\theta) + \ell_0'(\theta) - \ell_0'(\hat\theta) +
              \frac1n \sum_{i \in S} \frac1{p_i} (\ell_i'(\theta) - \ell_i'(\hat\theta))

    with the full gradient g at a centering point θ̂ near the mode. Chains start around θ̂, whatever
    initial point they are handed.

    Parameters
    ----------
    center
        A `Center` from `find_center`, or values by variable name on the model's own scale, those
        left out at the initial point. Found automatically if None.
    vars, step_size, batch_size, subsampling, integrator, preconditioner, weights, thin, target_bias
        As for `SGLD`.
    reparametrize, model, rng, compile_kwargs, progressbar
        As for `SGLD`.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(2000, step=SGLDCV())
    """

    name = "sgldcv"


class SVRG(MovingCenter, StochasticGradientStep):
    r"""SGLD-CV whose center moves to the chain every so often (Dubey et al. 2016).

    The gradient is that of `SGLDCV`, and :math:`\hat\theta \leftarrow \theta` with a new full
    gradient every `refresh` iterations. It needs no mode, but passes over all the data again and
    again, and its center is as far from the chain as two draws are from each other.

    Parameters
    ----------
    refresh
        Iterations between two full passes; ``"auto"``: N/n, so that the passes read as many rows as
        the minibatches.
    center
        As for `SGLDCV`: where chains start. Without one, and with ``step_size`` and
        ``preconditioner`` given, they start at the initial point.
    vars, step_size, batch_size, subsampling, integrator, preconditioner, weights, thin, target_bias
        As for `SGLD`.
    reparametrize, model, rng, compile_kwargs, progressbar
        As for `SGLD`.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = sg.sample(2000, step=SVRG(refresh=1000))
    """

    name = "svrg"


class SAGA(Table, StochasticGradientStep):
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
    vars, step_size, batch_size, integrator, preconditioner, thin, target_bias
        As for `SGLD`.
    reparametrize, model, rng, compile_kwargs, progressbar
        As for `SGLD`.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(2000, step=SAGA(table="blocks"))
    """

    name = "saga"


class SGHMC(Standard, Hamiltonian, StochasticGradientStep):
    r"""Stochastic gradient Hamiltonian Monte Carlo with the plain gradient (Chen et al. 2014).

    .. math:: dx = r\,dt, \quad dr = \nabla \log \pi\,dt - \gamma r\,dt + \sqrt{2\gamma}\,dB

    in whitened coordinates x. `SGHMCCV` is nearly always the better choice.

    Parameters
    ----------
    friction
        γ per unit of time, in which a posterior standard deviation is a period divided by 2π. With
        a large friction it is `SGLD`.
    leapfrog
        Draw the momentum afresh after so many iterations. By default never: the one-step form,
        where friction does the same continuously. With it, friction may be 0.
    step_size
        As for `SGLD`: h is the square of the time step.
    integrator
        ``"baoab"`` (the default: no discretisation error on a Gaussian) or ``"euler"`` (Chen et
        al.).
    vars, batch_size, subsampling, preconditioner, weights, thin, target_bias
        As for `SGLD`.
    reparametrize, model, rng, compile_kwargs, progressbar
        As for `SGLD`.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = sg.sample(2000, step=SGHMC(friction=0.5))
    """

    name = "sghmc"


class SGHMCCV(ControlVariate, Hamiltonian, StochasticGradientStep):
    """`SGHMC` with the control-variate gradient of `SGLDCV`.

    Parameters
    ----------
    center
        As for `SGLDCV`.
    friction, leapfrog, integrator
        As for `SGHMC`.
    vars, step_size, batch_size, subsampling, preconditioner, weights, thin, target_bias
        As for `SGLD`.
    reparametrize, model, rng, compile_kwargs, progressbar
        As for `SGLD`.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = sg.sample(2000, step=SGHMCCV())
    """

    name = "sghmccv"


class SGNHT(Standard, Thermostat, StochasticGradientStep):
    r"""Stochastic gradient Nosé–Hoover thermostat with the plain gradient (Ding et al. 2014).

    The friction ξ of `SGHMC` becomes a variable that keeps the momentum's mean square at 1:

    .. math:: d\xi = (r \cdot r / d - 1)\,dt

    so that gradient noise of the same size in all whitened directions does no harm, known or not.

    Parameters
    ----------
    friction
        γ, the strength of the injected noise and the start of ξ.
    integrator
        ``"badodab"`` (Leimkuhler & Shang 2016, the default) or ``"euler"`` (Ding et al.).
    vars, step_size, batch_size, subsampling, preconditioner, weights, thin, target_bias
        As for `SGLD`; h is the square of the time step.
    reparametrize, model, rng, compile_kwargs, progressbar
        As for `SGLD`.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = sg.sample(2000, step=SGNHT())
    """

    name = "sgnht"


class SGNHTCV(ControlVariate, Thermostat, StochasticGradientStep):
    """`SGNHT` with the control-variate gradient of `SGLDCV`.

    Parameters
    ----------
    center
        As for `SGLDCV`.
    friction, integrator
        As for `SGNHT`.
    vars, step_size, batch_size, subsampling, preconditioner, weights, thin, target_bias
        As for `SGLD`.
    reparametrize, model, rng, compile_kwargs, progressbar
        As for `SGLD`.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = sg.sample(2000, step=SGNHTCV())
    """

    name = "sgnhtcv"
