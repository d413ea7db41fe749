# SPDX-License-Identifier: Apache-2.0
"""The arguments of a step method: what there are, and checks before any work is done."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.errors import warn
from pymc_sgcv.kernel.dynamics import INTEGRATORS
from pymc_sgcv.kernel.schedules import check_step_size
from pymc_sgcv.model.target import Target
from pymc_sgcv.rows.population import POPULATIONS
from pymc_sgcv.setup.plan import Weights
from pymc_sgcv.setup.weights import PREFERENTIAL

PRECONDITIONERS = "auto", "dense", "lowrank", "diagonal"
Variables: TypeAlias = Sequence[Variable | str] | Variable | str | None
"""Variables of a model or their names; None: all."""


def joint_signature(cls: type, last: type) -> inspect.Signature:
    """All public arguments of the constructors of `cls` and its bases up to `last`."""
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__[: cls.__mro__.index(last) + 1]:
        if "__init__" in vars(base):
            own = inspect.signature(vars(base)["__init__"]).parameters.values()
            keep = [p for p in own if p.kind is not p.VAR_KEYWORD and p.name[0] != "_"]
            found = {**{p.name: p for p in keep}, **found}
    found.pop("self", None)
    return inspect.Signature(sorted(found.values(), key=lambda p: p.kind))


def check_options(
    step_size: float | str | Callable,
    preconditioner: str | np.ndarray | None,
    thin: int | str,
    target_bias: float,
    reparametrize: bool,
) -> None:
    """Check what can be checked without the model."""
    check_step_size(step_size)
    if isinstance(preconditioner, str) and preconditioner not in PRECONDITIONERS:
        raise ValueError(
            'preconditioner must be "auto", "dense", "lowrank", "diagonal", None or an array, not '
            f"{preconditioner!r}."
        )
    whole = isinstance(thin, int | np.integer) and not isinstance(thin, bool) and thin >= 1
    if not whole and not (isinstance(thin, str) and thin == "auto"):
        raise ValueError(f'thin must be "auto" or a whole number of at least 1, not {thin!r}.')
    number = isinstance(target_bias, int | float | np.number)
    if not number or not 0 < target_bias < 1:
        raise ValueError(f"target_bias must lie between 0 and 1, not {target_bias!r}.")
    if not isinstance(reparametrize, bool | np.bool_):
        raise TypeError(f"reparametrize must be True or False, not {reparametrize!r}.")


def check_population(population: str, directory: str | Path | None) -> None:
    """Check where rows may be, before anything is read or copied."""
    if population not in POPULATIONS:
        raise ValueError(f"population must be one of {POPULATIONS}, not {population!r}.")
    if directory is None:
        return
    if not isinstance(directory, str | Path):
        raise TypeError(f"directory must be a path, not {directory!r}.")
    if not Path(directory).is_dir():
        raise ValueError(f"directory {str(directory)!r} does not exist.")


def integrator_of(dynamics: str, name: str | None) -> int:
    """The integrator of that name, or the default one of the dynamics."""
    known = INTEGRATORS[dynamics]
    if name is None:
        return next(iter(known.values()))
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"integrator must be one of {tuple(known)}, not {name!r}.")
    return known[name]


def subsampling_of(subsampling: str | None, weights: Weights) -> str:
    """How rows are drawn: as asked, or as the weights need it."""
    if isinstance(weights, str) and weights not in ("auto", PREFERENTIAL):
        raise ValueError(
            f'weights must be "auto", "uniform", "{PREFERENTIAL}" or an array, not {weights!r}.'
        )
    given = weights is not None and not (isinstance(weights, str) and weights == "auto")
    if given and subsampling not in (None, "iid"):
        raise ValueError(
            f'weights need rows drawn independently: subsampling must be "iid", not '
            f"{subsampling!r}."
        )
    return subsampling or ("iid" if given else "block")


def refuse_sharing(name: str, model: pm.Model, values: Sequence[TensorVariable]) -> None:
    """Raise an error that names the variables left to another step method."""
    left = set(model.value_vars) - set(values)
    if left:
        names = ", ".join(sorted(f"'{model.values_to_rvs[v].name}'" for v in left))
        raise ValueError(
            f"{name} fixes its control variate on all the variables of the model, so it cannot "
            f"leave {names} to another step method. Sample all variables with it, or use SGLD."
        )


def warn_about_minibatches_of_others(name: str, target: Target) -> None:
    """Say that another step method sees one random minibatch where it needs all the rows."""
    for plate in target.plates:
        seen = set(ancestors([plate.loglike]))
        touched = [target.model.values_to_rvs[v].name for v in target.others if v in seen]
        if plate.minibatched and touched:
            warn(
                f"{name} leaves {', '.join(map(repr, touched))} to another step method, which sees "
                f"the pm.Minibatch of '{plate.name}': a likelihood of other random rows each time, "
                "and a wrong posterior. Declare the model on the full data, without pm.Minibatch "
                f"and total_size, and pass batch_size to {name}. Only where this package's own "
                "step methods sample those variables too can this be ignored."
            )


def value_variables(model: pm.Model, vars: Variables) -> list[TensorVariable]:
    """Value variables of what the user named, all of them by default."""
    if vars is None:
        return list(model.value_vars)
    by_name = {rv.name: value for rv, value in model.rvs_to_values.items() if rv in model.free_RVs}
    by_name |= {value.name: value for value in model.value_vars}
    found = []
    for variable in vars if isinstance(vars, list | tuple) else [vars]:
        name = variable if isinstance(variable, str) else getattr(variable, "name", None)
        if name is None:
            raise TypeError(f"vars must hold variables of the model or their names: {variable!r}.")
        value = by_name.get(name)
        if value is None or not (isinstance(variable, str) or _belongs(model, variable)):
            known = ", ".join(f"'{rv.name}'" for rv in model.free_RVs)
            raise ValueError(f"vars names '{name}', but the model's free variables are {known}.")
        if value in found:
            raise ValueError(f"vars names '{name}' twice.")
        found.append(value)
    return found


def _belongs(model: pm.Model, variable: object) -> bool:
    return variable in model.rvs_to_values or variable in model.values_to_rvs
