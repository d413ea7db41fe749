# SPDX-License-Identifier: Apache-2.0
"""`find_center`: a center for a user, before any step method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_sgcv.arguments import Seed, check_mapping, given_generator, given_model
from pymc_sgcv.engine.blas import one_blas_thread
from pymc_sgcv.engine.progress import compilation_shown
from pymc_sgcv.rows.population import SAMPLE
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center, center_near, progress, unconstrained
from pymc_sgcv.setup.pilot import approach, pilot
from pymc_sgcv.setup.represent import represent
from pymc_sgcv.setup.search import OPTIMIZERS


def find_center(
    model: pm.Model | None = None,
    *,
    method: str = "adam",
    batch_size: int | None = None,
    step_size: float | None = None,
    passes: float = 3.0,
    polish: bool = True,
    start: Mapping[str, ArrayLike] | None = None,
    random_seed: Seed = None,
    progressbar: bool = True,
    compile_kwargs: dict | None = None,
) -> Center:
    """Find a centering point near the posterior mode of a minibatched model.

    Minibatch ascent with decreasing steps and averaged iterates, until the gradient can no longer
    be told from its noise; then Newton steps with full gradients and a curvature from gradient
    differences, until θ̂ is within a fraction of a posterior standard deviation of the mode. Where
    the model has group effects, whose scales have no useful mode, short chains go on from there to
    the posterior mean.

    Parameters
    ----------
    model
        The PyMC model; taken from the context if None.
    method
        ``"adam"``, or ``"sgd"`` with polynomially decreasing steps as in the paper.
    batch_size
        Rows per minibatch; default: what ``pm.Minibatch`` was given.
    step_size
        First step of the ascent, in units of each coordinate's scale.
    passes
        How often the minibatches may go through the data; small data are read more often, since
        there are at least 1,000 steps.
    polish
        Whether to take Newton steps on full gradients afterwards.
    start
        Values by variable name to start from, on the model's own scale.
    random_seed, progressbar, compile_kwargs
        As in ``pm.sample``.

    Notes
    -----
    Where a sample of the rows stands for all, the search is that of the step methods, and
    `method`, `step_size` and `passes` say nothing.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_sgcv as sg
    >>> x = np.linspace(-1, 1, 200)
    >>> with pm.Model() as model:
    ...     slope = pm.Normal("slope", 0, 1)
    ...     y = pm.Normal("y", slope * x, 0.5, observed=2 * x)
    >>> center = sg.find_center(model, random_seed=1, progressbar=False)
    >>> print(center.point["slope"].round(1), center.converged)
    2.0 True
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(step=sg.SGLDCV(center=center))
    """
    if method not in OPTIMIZERS:
        raise ValueError(f"method must be one of {tuple(OPTIMIZERS)}, not {method!r}.")
    _check_positive(step_size=1.0 if step_size is None else step_size, passes=passes)
    check_mapping("start", start, "values by variable name")
    rng = given_generator("random_seed", random_seed)
    with compilation_shown(progressbar):
        problem = Problem(given_model(model), batch_size=batch_size, compile_kwargs=compile_kwargs)
    theta = unconstrained(problem.target, start or {}, "start")
    if problem.population == SAMPLE:
        with one_blas_thread(), progress(progressbar) as report:
            center = represent(problem, theta, None, rng, None, report)
    else:
        center = center_near(
            problem, theta, rng, method, step_size, passes, polish=polish, progressbar=progressbar
        )
    if polish and center.degree is not None:
        with one_blas_thread():
            return pilot(problem, approach(problem, center, rng), rng)[0]
    return center


def _check_positive(**numbers: Any) -> None:
    for name, value in numbers.items():
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not np.isfinite(value) or value <= 0:
            raise ValueError(f"{name} must be a positive number, not {value!r}.")
