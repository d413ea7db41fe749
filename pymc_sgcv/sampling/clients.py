# SPDX-License-Identifier: Apache-2.0
"""`fit`: models of other packages, sampled here through their own ``fit``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import pymc as pm

from pymc_sgcv.results.containers import Container
from pymc_sgcv.sampling.sample import sample
from pymc_sgcv.steps.base import StochasticGradientStep
from pymc_sgcv.steps.unbound import Sampler

_log = logging.getLogger("pymc.sgcv")
_lock = Lock()
_OURS = (
    *("draws", "chains", "cores", "random_seed", "progressbar", "var_names"),
    *("discard_tuned_samples", "compute_convergence_checks", "model"),
)
"""Arguments of ``pm.sample`` that mean the same here."""


def fit(
    client: Any,
    *args: Any,
    step: StochasticGradientStep | Sampler | None = None,
    tune: int | None = None,
    gradients: bool | str | list[str] = True,
    **kwargs: Any,
) -> Any:
    """Fit a model of Bambi, pymc-marketing or any package whose ``fit`` calls ``pm.sample``.

    ``client.fit(...)`` is called with ``pm.sample`` replaced by `sample` for as long as it takes.
    So the package does before and after sampling what it always does: Bambi takes the centring of
    predictors out of the intercept, and its predictions and plots work on what is returned.

    Parameters
    ----------
    client
        An object with a method ``fit``.
    args, kwargs
        Arguments of ``client.fit``; ``draws``, ``chains``, ``random_seed`` and so on reach
        `sample`, if the package passes them on. What only NUTS knows is left out.
    step
        A step method made outside of any model, like ``sg.SGLDCV(batch_size=1000)``.
    tune
        As in `sample`, whatever the package's own default is.
    gradients
        As in `sample`.

    Returns
    -------
    object
        What ``client.fit`` returns.

    Notes
    -----
    ``pm.sample`` is replaced for the whole process; a second `fit` in another thread waits.

    Examples
    --------
    A package in five lines:

    >>> import numpy as np, pymc as pm, pymc_sgcv as sg
    >>> class Package:
    ...     def fit(self, draws):
    ...         with pm.Model():
    ...             mean = pm.Normal("mean")
    ...             y = pm.Normal("y", mean, 1, observed=np.arange(200) / 100)
    ...             return pm.sample(draws, target_accept=0.9, progressbar=False)
    >>> print(sg.fit(Package(), 50, random_seed=1)["posterior"]["mean"].sizes["draw"])
    Traceback (most recent call last):
        ...
    TypeError: Package.fit() got an unexpected keyword argument 'random_seed'
    >>> print(sg.fit(Package(), 50)["posterior"]["mean"].sizes["draw"])
    50
    """
    if not callable(getattr(client, "fit", None)):
        raise TypeError(f"fit needs an object with a method fit, not {type(client).__name__}.")

    def stand_in(draws: int = 1000, **given: Any) -> Container:
        return _sample(draws, step or given.pop("step", None), tune, gradients, given)

    with _pm_sample(stand_in):
        return client.fit(*args, **kwargs)


@contextmanager
def _pm_sample(stand_in: Any) -> Iterator[None]:
    with _lock:
        original = pm.sample
        pm.sample = stand_in
        try:
            yield
        finally:
            pm.sample = original


def _sample(draws: int, step: Any, tune: int | None, gradients: Any, given: dict) -> Container:
    ours = {name: given.pop(name) for name in _OURS if name in given}
    model = pm.modelcontext(ours.pop("model", None))
    log_likelihood = (given.get("idata_kwargs") or {}).get("log_likelihood", False)
    ours["progressbar"] = bool(ours.get("progressbar", True))
    idata = sample(draws, step=step, tune=tune, gradients=gradients, model=model, **ours)
    left_out = sorted(name for name, value in given.items() if value not in (None, "auto"))
    if left_out:
        _log.info("Left out, for NUTS only: %s.", ", ".join(left_out))
    if log_likelihood:
        pm.compute_log_likelihood(idata, model=model, progressbar=False)
    return idata
