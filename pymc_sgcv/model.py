# SPDX-License-Identifier: Apache-2.0
"""Read a PyMC model as a sum over data: log p(θ) = ℓ₀(θ) + Σᵢ ℓᵢ(θ).

θ are PyMC's unconstrained value variables; ℓ₀ holds the priors, the Jacobians of the transforms,
potentials and observed variables that are not subsampled; each *plate* is one set of N rows with
the log-likelihood of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pymc.logprob.basic import transformed_conditional_logp
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.graph import rebuild, rows_like


@dataclass(frozen=True)
class Parameter:
    """One unconstrained value variable and its place in the flat vector θ."""

    name: str
    rv_name: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Plate:
    """N exchangeable rows: where their data are and the log-likelihood of a batch of them.

    `loglike` takes any number of `rows`; `declared_loglike` is the same with the lengths that the
    model was declared with, kept to check the former against (`pymc_sgcv.proof`).
    """

    observed: tuple[str, ...]
    data: tuple[Variable, ...]
    rows: tuple[TensorVariable, ...]
    loglike: TensorVariable
    declared_rows: tuple[TensorVariable, ...]
    declared_loglike: TensorVariable
    batch_size: int
    minibatched: bool

    @property
    def name(self) -> str:
        """The observed variables, for messages."""
        return ", ".join(self.observed)

    def arrays(self) -> list[np.ndarray]:
        """The data as they are now, one array per row input, without copying."""
        return [value_of(variable) for variable in self.data]


@dataclass(frozen=True)
class Target:
    """A model as the sum that stochastic gradients need; `start` is PyMC's initial point."""

    model: pm.Model
    start: dict[str, np.ndarray]
    parameters: tuple[Parameter, ...]
    values: tuple[TensorVariable, ...]
    others: tuple[TensorVariable, ...]
    prior: TensorVariable
    plates: tuple[Plate, ...]

    @property
    def size(self) -> int:
        """The number d of unconstrained parameters."""
        return self.parameters[-1].stop

    def flatten(self, point: dict[str, np.ndarray]) -> np.ndarray:
        """The flat θ of a point given by value-variable names."""
        return np.concatenate([np.ravel(point[p.name]) for p in self.parameters]).astype(float)

    def unflatten(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Values by value-variable name; leading axes of `theta` are kept."""
        lead = theta.shape[:-1]
        return {
            p.name: theta[..., p.start : p.stop].reshape(lead + p.shape) for p in self.parameters
        }

    def describe(self, index: int) -> str:
        """The name of component `index` of θ, like ``beta[3]``."""
        for p in self.parameters:
            if p.start <= index < p.stop:
                if not p.shape:
                    return p.name
                place = np.unravel_index(index - p.start, p.shape)
                return f"{p.name}[{', '.join(str(int(i)) for i in place)}]"
        raise IndexError(index)


def value_of(variable: Variable) -> np.ndarray:
    """The present value of a data variable; shared variables follow ``pm.set_data``."""
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value(borrow=True))
    return np.asarray(variable.eval(mode="FAST_COMPILE"))


def read_model(
    model: pm.Model, values: Sequence[TensorVariable] | None = None, batch_size: int | None = None
) -> Target:
    """Take `model` apart.

    Parameters
    ----------
    model
        Declared with ``pm.Minibatch`` and ``total_size``, or plainly on the full data.
    values
        Value variables to sample; all of them by default. The rest become `Target.others`.
    batch_size
        Rows per minibatch: needed for a plain model, optional for one with ``pm.Minibatch``.
    """
    values = list(model.value_vars if values is None else values)
    _refuse_discrete(model, values)
    _check_batch_size(batch_size)
    _refuse_minibatch_outside_likelihoods(model)
    groups = _group_likelihoods(model, batch_size)
    plates = tuple(_make_plate(model, group, batch_size) for group in groups)
    subsampled = {name for plate in plates for name in plate.observed}
    exact = [rv for rv in model.observed_RVs if rv.name not in subsampled]
    start = model.initial_point(random_seed=0)
    return Target(
        model=model,
        start=start,
        parameters=_lay_out(model, values, start),
        values=tuple(values),
        others=tuple(v for v in model.value_vars if v not in values),
        prior=_prior(model, exact),
        plates=plates,
    )


def _prior(model: pm.Model, exact: list[TensorVariable]) -> TensorVariable:
    """ℓ₀: priors with Jacobians, observed variables that are not subsampled, potentials."""
    terms = _conditional_terms(model, [*model.free_RVs, *exact])
    potentials = model.replace_rvs_by_values(model.potentials) if model.potentials else []
    return pt.add(pt.constant(0.0), *[term.sum() for term in [*terms, *potentials]])


def _lay_out(model: pm.Model, values, point: dict) -> tuple[Parameter, ...]:
    parameters, start = [], 0
    for value in values:
        shape = np.shape(point[value.name])
        stop = start + int(np.prod(shape, dtype=int))
        rv_name = model.values_to_rvs[value].name
        parameters.append(Parameter(value.name, rv_name, shape, start, stop))
        start = stop
    return tuple(parameters)


def _refuse_discrete(model: pm.Model, values: Iterable[TensorVariable]) -> None:
    for value in values:
        if not str(value.dtype).startswith("float"):
            raise ValueError(
                f"Variable '{model.values_to_rvs[value].name}' is discrete ({value.dtype}): it has "
                "no gradient. Marginalise it out, or give it its own step method and leave it out "
                "of this one with `vars=[...]` (only SGLD may share a model)."
            )


def _check_batch_size(batch_size: int | None) -> None:
    if batch_size is None:
        return
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer):
        raise TypeError(f"batch_size must be a whole number of rows, not {batch_size!r}.")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}.")


def _minibatch_nodes(variables: Iterable[Variable], blockers: Iterable[Variable] = ()) -> list:
    nodes = {v.owner: None for v in ancestors(list(variables), blockers=list(blockers)) if v.owner}
    return [node for node in nodes if isinstance(node.op, MinibatchOp)]


def _refuse_minibatch_outside_likelihoods(model: pm.Model) -> None:
    free = model.free_RVs
    observed = model.observed_RVs
    for kind, variables in (
        ("Deterministic", model.deterministics),
        ("Potential", model.potentials),
    ):
        for variable in variables:
            if _minibatch_nodes([variable], blockers=[*free, *observed]):
                raise ValueError(
                    f"{kind} '{variable.name}' depends on a pm.Minibatch: its value would be "
                    "that of "
                    "other random rows than the draw's. Use the expression without wrapping it in "
                    f"pm.{kind}, or declare the model on the full data and pass batch_size to the "
                    "step method."
                )
    for variable in free:
        if _minibatch_nodes([variable], blockers=[rv for rv in free if rv is not variable]):
            raise ValueError(
                f"The prior of '{variable.name}' depends on a pm.Minibatch; only observed "
                "variables may. Compute what the prior needs from the full data."
            )


@dataclass
class _Group:
    """Observed variables that share their rows, before the graph is rebuilt."""

    rvs: list[TensorVariable]
    leaves: dict[Variable, Variable]  # variable in the graph -> full data it stands for
    minibatched: bool


def _group_likelihoods(model: pm.Model, batch_size: int | None) -> list[_Group]:
    groups: dict[object, _Group] = {}
    for rv in model.observed_RVs:
        value = model.rvs_to_values[rv]
        nodes = _minibatch_nodes([rv, value], blockers=model.free_RVs)
        if nodes:
            key, leaves = _minibatch_leaves(rv, value, nodes)
        else:
            _refuse_total_size_without_minibatch(rv)
            leaves = _plain_leaves(model, rv, value, batch_size)
            key = _shared_key(groups, leaves) or rv
        if not leaves:
            continue
        group = groups.setdefault(key, _Group([], {}, bool(nodes)))
        group.rvs.append(rv)
        group.leaves.update(leaves)
    if not groups:
        raise ValueError(_nothing_to_subsample(model, batch_size))
    return list(groups.values())


def _nothing_to_subsample(model: pm.Model, batch_size: int | None) -> str:
    names = ", ".join(f"'{rv.name}'" for rv in model.observed_RVs) or "none"
    if batch_size is None:
        return (
            f"No likelihood of this model (observed: {names}) uses pm.Minibatch. Pass "
            "batch_size=n to the step method to subsample a plain full-data model, or declare "
            "the data with pm.Minibatch(..., batch_size=n) and total_size=N."
        )
    return (
        f"No observed variable (observed: {names}) has more than batch_size={batch_size} rows: "
        "batch_size must be smaller than the number of rows."
    )


def _minibatch_leaves(rv, value, nodes) -> tuple[Variable, dict[Variable, Variable]]:
    rngs = {node.inputs[-1] for node in nodes}
    if len(rngs) > 1:
        raise ValueError(
            f"Observed variable '{rv.name}' mixes {len(rngs)} pm.Minibatch calls, each of which "
            "draws "
            "different rows, so predictors and outcomes do not belong together. Put all the arrays "
            "in one call: xb, yb = pm.Minibatch(X, y, batch_size=n)."
        )
    if not _minibatch_nodes([value]):
        raise ValueError(
            f"Observed variable '{rv.name}' has a minibatched predictor but its observed data are "
            "not minibatched. Put them in the same pm.Minibatch call."
        )
    leaves = {
        out: full
        for node in nodes
        for full, out in zip(node.inputs[:-1], node.outputs[:-1], strict=True)
    }
    _check_total_size(rv, len(value_of(next(iter(leaves.values())))))
    return rngs.pop(), leaves


def _total_size(rv: TensorVariable) -> list[int | None]:
    if rv.owner is None or not isinstance(rv.owner.op, MinibatchRandomVariable):
        return []
    return [getattr(t, "data", None) for t in rv.owner.inputs[1:]]


def _check_total_size(rv: TensorVariable, n_rows: int) -> None:
    size = _total_size(rv)
    if not size or size[0] is None:
        raise ValueError(
            f"Observed variable '{rv.name}' is minibatched but has no total_size: its posterior "
            f"would be that of one minibatch. Add total_size={n_rows}."
        )
    if int(size[0]) != n_rows or any(t is not None for t in size[1:]):
        wrong = [None if t is None else int(t) for t in size]
        raise ValueError(
            f"Observed variable '{rv.name}' has total_size={wrong if len(wrong) > 1 else wrong[0]} "
            f"but its data have {n_rows} rows. Write total_size={n_rows}."
        )


def _refuse_total_size_without_minibatch(rv: TensorVariable) -> None:
    if _total_size(rv):
        raise ValueError(
            f"Observed variable '{rv.name}' has total_size but no pm.Minibatch, so its rows "
            "cannot be "
            "drawn. Wrap its data in pm.Minibatch, or drop total_size and pass batch_size to the "
            "step method."
        )


def _is_data(variable: Variable) -> bool:
    return (
        isinstance(variable, Constant | SharedVariable)
        and not isinstance(variable.type, RandomType)
        and getattr(variable.type, "ndim", 0) > 0
    )


def _plain_leaves(model, rv, value, batch_size: int | None) -> dict[Variable, Variable]:
    """Data of a plain likelihood whose leading axis is as long as its observations."""
    if batch_size is None or value.ndim == 0:
        return {}
    n_rows = int(np.shape(value_of(value))[0])
    if n_rows <= batch_size:
        return {}
    graph = ancestors([rv, value], blockers=model.free_RVs)
    return {v: v for v in graph if _is_data(v) and np.shape(value_of(v))[:1] == (n_rows,)}


def _shared_key(groups: dict[object, _Group], leaves: dict[Variable, Variable]) -> object | None:
    for key, group in groups.items():
        if not group.minibatched and any(leaf in group.leaves for leaf in leaves):
            return key
    return None


def _make_plate(model: pm.Model, group: _Group, batch_size: int | None) -> Plate:
    """Rebuild the likelihoods of `group` on row inputs of unknown length."""
    full = _unique_data(group.leaves.values())
    place = {leaf: _index_of(full, data) for leaf, data in group.leaves.items()}
    _refuse_batch_larger_than_data(group, full, batch_size)
    rows = tuple(rows_like(v, v.name or f"rows_{i}") for i, v in enumerate(full))
    stand_in = {leaf: rows[i] for leaf, i in place.items()}
    if not group.minibatched:
        stand_in.update(_size_constants(model, group.rvs, rows[0].shape[0]))
    declared = {i: leaf.type() for leaf, i in place.items()}
    return Plate(
        observed=tuple(rv.name for rv in group.rvs),
        data=tuple(full),
        rows=rows,
        loglike=_row_terms(model, group.rvs, stand_in),
        declared_rows=tuple(declared[i] for i in range(len(full))),
        declared_loglike=_row_terms(model, group.rvs, {v: declared[i] for v, i in place.items()}),
        batch_size=int(batch_size or next(iter(group.leaves)).type.shape[0]),
        minibatched=group.minibatched,
    )


def _size_constants(model, rvs, n_rows: TensorVariable) -> dict[Variable, Variable]:
    """Constant `size` arguments that repeat the shape of the observations, made to follow n."""
    sizes = {}
    for rv in rvs:
        shape = np.shape(value_of(model.rvs_to_values[rv]))
        for v in ancestors([rv], blockers=model.free_RVs):
            if (
                isinstance(v, Constant)
                and getattr(v.type, "ndim", 0) == 1
                and v.type.dtype == "int64"
            ):
                size = tuple(v.data.tolist())
                if size and size == shape[: len(size)]:
                    sizes[v] = pt.stack([n_rows, *size[1:]])
    return sizes


def _unique_data(variables: Iterable[Variable]) -> list[Variable]:
    """One variable per array: the clones that PyMC makes of a constant are the same data."""
    unique: list[Variable] = []
    for variable in variables:
        if _index_of(unique, variable) is None:
            unique.append(variable)
    return unique


def _index_of(variables: Sequence[Variable], variable: Variable) -> int | None:
    for i, other in enumerate(variables):
        same = isinstance(variable, Constant) and isinstance(other, Constant)
        if other is variable or (same and other.data is variable.data):
            return i
    return None


def _refuse_batch_larger_than_data(group: _Group, full: list[Variable], n: int | None) -> None:
    n = n or next(iter(group.leaves)).type.shape[0]
    n_rows = len(value_of(full[0]))
    if n > n_rows:
        raise ValueError(
            f"batch_size={n} is larger than the {n_rows} rows of '{group.rvs[0].name}'. "
            "Use a smaller batch_size."
        )


def _conditional_terms(model, rvs, values=None) -> list[TensorVariable]:
    """Log-density terms of `rvs` given the model's value variables, Jacobians included."""
    values = values or [model.rvs_to_values[rv] for rv in rvs]
    given = {rv: model.rvs_to_values[rv] for rv in model.free_RVs}
    given.update(zip(rvs, values, strict=True))
    transforms = {rv: model.rvs_to_transforms.get(rv) for rv in given}
    return transformed_conditional_logp(rvs, rvs_to_values=given, rvs_to_transforms=transforms)


def _row_terms(model, rvs, stand_in: dict[Variable, Variable]) -> TensorVariable:
    """The log-likelihood of each row of `stand_in`, summed over trailing axes and over `rvs`."""
    values = [model.rvs_to_values[rv] for rv in rvs]
    outputs = rebuild([*rvs, *values], stand_in, stop=model.free_RVs)
    terms = _conditional_terms(model, outputs[: len(rvs)], outputs[len(rvs) :])
    return pt.add(
        pt.constant(0.0),
        *[term.sum(axis=tuple(range(1, term.ndim))) if term.ndim > 1 else term for term in terms],
    )
