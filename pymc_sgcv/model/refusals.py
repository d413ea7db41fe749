# SPDX-License-Identifier: Apache-2.0
"""Why a likelihood is not read as a sum over rows, and what to do: as special as can be told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions import timeseries
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_sgcv.model.graph import value_of

_SERIES = tuple(
    getattr(timeseries, name)
    for name in ("AutoRegressiveRV", "GARCH11RV", "EulerMaruyamaRV", "RandomWalkRV")
)
_NAMES = {
    "AutoRegressiveRV": "an autoregression",
    "GARCH11RV": "GARCH",
    "RandomWalkRV": "a random walk",
}


def rows_refusal(
    model: pm.Model, names: Sequence[str], kind: str, minibatched: bool, n_rows: int
) -> str:
    """Why the rows of a likelihood cannot be told apart, and what to do."""
    where = "all in one pm.Minibatch call" if minibatched else "along its first axis"
    variables = [model[name] for name in names]
    reason = _reason(model, variables, n_rows) or (
        f"Every array with a value per observation must have them {where}, rows must not depend on "
        "each other (no lags or adstock; centre or scale predictors before the model), and no "
        "parameter may be as long as the data."
    )
    return (
        f"The rows of {kind} '{', '.join(names)}' cannot be identified: the log-likelihood of some "
        f"rows is not that of these rows alone. {reason}"
    )


def _reason(model: pm.Model, variables: Sequence[Any], n_rows: int) -> str | None:
    """What is known to be no sum over rows; None if nothing is known of it."""
    seen = model.observed_RVs
    for variable in variables:
        op = None if variable.owner is None else variable.owner.op
        whole = variable in seen and getattr(op, "ndim_supp", 0) >= variable.ndim
        if whole and isinstance(op, _SERIES):
            what = _NAMES.get(type(op).__name__, "a process")
            return (
                f"'{variable.name}' is one time series ({what}): every row depends on those "
                "before it. Sample it with NUTS. An autoregression may also be written as a "
                "regression on lags, which are predictors computed before the model."
            )
        if whole and variable.ndim > 0:
            return (
                f"'{variable.name}' is one draw of a distribution of all {n_rows} rows together "
                f"({type(op).__name__.removesuffix('RV')}), which depend on each other. Sample it "
                "with NUTS. Of a Gaussian process, pm.gp.HSGP is an approximation whose rows are "
                "independent."
            )
    graph = list(ancestors(variables, blockers=model.free_RVs))
    if any(v.owner is not None and type(v.owner.op).__name__ == "Scan" for v in graph):
        return (
            "A loop (scan) computes them, which carries something from each row into the next. "
            "Sample it with NUTS, or compute what needs no parameter before the model."
        )
    long = [rv.name for rv in model.free_RVs if rv in graph and _as_long(model, rv, n_rows)]
    shapes = [np.shape(value_of(model.rvs_to_values[v])) for v in variables if v in seen]
    if long and not any(length > n_rows for shape in shapes for length in shape):
        values = ", ".join(f"'{name}'" for name in long)
        return (
            f"{values}: one value for every row, of which a row needs more than its own (a "
            "Gaussian process, a random walk). Sample it with NUTS; or have a value for every week "
            "or group, looked up by an index, effect[week]; or pm.gp.HSGP for a Gaussian process."
        )
    return None


def _as_long(model: pm.Model, rv: Variable, n_rows: int) -> bool:
    return n_rows > 1 and n_rows in (*rv.type.shape, *model.rvs_to_values[rv].type.shape)


def nothing_to_subsample(model: pm.Model, batch_size: int | None) -> str:
    """Why there is no likelihood of many rows."""
    if not model.observed_RVs:
        names = ", ".join(f"'{v.name}'" for v in model.potentials) or "none"
        return (
            "The model has no observed variable, and no Potential that is a sum over "
            f"{batch_size} rows of data or more (Potentials: {names}): there is nothing to "
            "subsample. Write the log-likelihood of every row, pm.Potential('y', logp) with one "
            "value per row or logp.sum(), with rows along the first axis; or declare the data with "
            "observed=..."
        )
    for rv in model.observed_RVs:
        shape = np.shape(value_of(model.rvs_to_values[rv]))
        if max(shape, default=0) >= (batch_size or 1):
            return (
                f"The rows of observed variable '{rv.name}' cannot be identified: its shape is "
                f"{shape}, and they have to be along its first axis. Transpose it and what it "
                "depends on, observed=y.T."
            )
    names = ", ".join(f"'{rv.name}'" for rv in model.observed_RVs)
    return (
        f"No observed variable (observed: {names}) has batch_size={batch_size} rows or more: there "
        "is nothing to subsample. Use a smaller batch_size, at most the number of rows."
    )
