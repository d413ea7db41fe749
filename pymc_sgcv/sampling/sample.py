# SPDX-License-Identifier: Apache-2.0
"""`sample`: the step methods of ``pm.sample``, chains as threads over one copy of the data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pymc as pm

from pymc_sgcv.arguments import Seed, given_model, names_in
from pymc_sgcv.results.containers import Container
from pymc_sgcv.results.posterior import check_names
from pymc_sgcv.sampling.arguments import Asked, Step, check_store
from pymc_sgcv.sampling.background import BackgroundRun
from pymc_sgcv.sampling.continued import continued
from pymc_sgcv.sampling.driver import Sampling, in_memory
from pymc_sgcv.sampling.record import check_gradients
from pymc_sgcv.sampling.resume import in_store
from pymc_sgcv.sampling.summarised import summarised
from pymc_sgcv.sampling.until import Until
from pymc_sgcv.steps.unbound import Sampler


def sample(
    draws: int = 1000,
    *,
    tune: int | None = None,
    chains: int | None = None,
    cores: int | None = None,
    step: Step = None,
    random_seed: Seed = None,
    progressbar: bool = True,
    initvals: Mapping | Sequence[Mapping] | None = None,
    var_names: str | Sequence[str] | None = None,
    gradients: bool | str | Sequence[str] = True,
    discard_tuned_samples: bool = True,
    compute_convergence_checks: bool = True,
    check: bool | str = "auto",
    store: str | os.PathLike | None = None,
    continue_from: Container | str | os.PathLike | None = None,
    until: Mapping | None = None,
    keep: str = "draws",
    quantiles: str | Sequence[str] | None = None,
    blocking: bool = True,
    model: pm.Model | None = None,
) -> Any:
    """Draw from the posterior of a large-data model; arguments as in ``pm.sample``.

    The draws are those of ``pm.sample(step=step)`` with the same seed, whatever the cores, without
    its cost per draw: each chain is a thread that stays in compiled code.

    Parameters
    ----------
    draws
        Recorded draws per chain, after tuning. The step method's ``thin`` says how many iterations
        there are to a draw.
    tune
        Draws to discard at the start (default 200: chains start near the posterior).
    chains, cores
        Number of chains, and of threads that run them.
    step
        A step method of this package for all variables. One that was made outside of any model, or
        a class, is set up when it is needed; ``SGLDCV`` by default.
    random_seed
        Decides the draws, for one thread or many.
    progressbar
        Whether to show progress per chain.
    initvals
        Starting values, where the step method has no center.
    var_names
        Variables and Deterministics to store; all by default. A Deterministic is computed block by
        block, so what it depends on need not be stored.
    gradients
        Whether to store the groups ``gradient`` and ``unconstrained_posterior``, of those free
        variables that `var_names` are or depend on; or names of free variables to store them for.
        Without them `zv`, `ksd` and some checks of `diagnose` are not possible.
    discard_tuned_samples
        If False, warmup groups are kept.
    compute_convergence_checks
        Whether to run `diagnose` and warn about what it finds.
    check
        Whether to make the half-step check: a second run at half the step and twice the batch,
        started where the first ended and compared with it, parameter by parameter. ``"auto"``: with
        `compute_convergence_checks`, if the run is not stored and the check is predicted to take no
        longer than set-up and sampling together (or 5 s) and no more than 400 MB. What it finds is
        in the groups ``half_step`` and ``half_step_quantiles``, and in `diagnose`.
    store
        A directory to store the run in while it goes on, draws and all that continues them; needs
        Zarr. If it holds this very run already, the run goes on where it was stopped or killed, and
        gives what it would have given, to the last bit. The result is opened lazily (`open_run`).
    continue_from
        A result of this function, or the path of a store: `draws` more draws of the same chains,
        without a set-up, tuning or warmup. What is returned holds the old ones too; a store grows.
        If nothing but the data are others: new chains on these, from the old center, preconditioner
        and step, which may have a `store`.
    until
        Stop as soon as this is reached, and after `draws` draws at most: a dict with ``"ess"``,
        effective draws of the worst variable, ``"mcse"``, a dict of the largest standard errors of
        means by variable, or ``"seconds"``.
    keep
        ``"draws"``, or ``"moments"``: no draws, but means, standard deviations, covariances, means
        corrected by `zv` of order 1, their errors, R-hat and quantiles, in memory that does not
        grow with the draws.
    quantiles
        With ``keep="moments"``, variables to have quantiles of; all if they have up to 100
        components together.
    blocking
        If False, set up, let the chains run in the background and return a `BackgroundRun` at once.
    model
        The model; default: from the context.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        With the groups ``posterior``, ``sample_stats``, ``gradient``, ``unconstrained_posterior``,
        and ``sampler_state``, which continues the chains. Interrupted by Ctrl-C, it holds what was
        sampled until then. A `BackgroundRun` if not `blocking`, `Moments` if these are kept.

    Notes
    -----
    Memory is that of the stored variables. The model with 200,000 parameters of which only
    predictions are wanted: ``sg.sample(var_names=["prediction"], gradients=False)``.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_sgcv as sg
    >>> x = np.linspace(-1, 1, 200)
    >>> with pm.Model() as model:
    ...     slope = pm.Normal("slope", 0, 1)
    ...     y = pm.Normal("y", slope * x, 0.5, observed=2 * x)
    >>> with model:
    ...     idata = sg.sample(500, chains=2, random_seed=1, progressbar=False)
    >>> print(idata["posterior"]["slope"].shape, idata["gradient"]["slope"].shape)
    (2, 500) (2, 500)
    """
    model = given_model(model)
    asked = Asked(
        model,
        draws,
        tune,
        chains,
        cores,
        step,
        random_seed,
        progressbar,
        initvals,
        check_names(model, var_names),
        check_gradients(model, gradients),
        not discard_tuned_samples,
        compute_convergence_checks,
        check,
    )
    asked.until = None if until is None else Until(until, asked.names)
    if keep not in ("draws", "moments"):
        raise ValueError(f'keep must be "draws" or "moments", not {keep!r}.')
    if quantiles is not None and keep == "draws":
        raise ValueError('quantiles are for keep="moments": of draws that are kept, take them.')
    check_store(store)
    if keep == "moments":
        if store is not None or continue_from is not None:
            raise ValueError('keep="moments" has no draws to store or to continue.')
        named = None if quantiles is None else names_in("quantiles", quantiles)
        sampling: Sampling = summarised(asked, named)
    else:
        sampling = _prepared(asked, store, continue_from)
    return sampling.run_and_close() if blocking else BackgroundRun(sampling)


Sampler.draw = staticmethod(sample)


def _prepared(
    asked: Asked,
    store: str | os.PathLike | None,
    continue_from: Container | str | os.PathLike | None,
) -> Sampling:
    if continue_from is None:
        return in_memory(asked) if store is None else in_store(asked, store)
    return continued(asked, continue_from, store)
