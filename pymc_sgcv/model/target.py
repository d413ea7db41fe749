# SPDX-License-Identifier: Apache-2.0
"""Read a PyMC model as a sum over data: log p(θ) = ℓ₀(θ) + Σᵢ ℓᵢ(θ).

θ are PyMC's unconstrained value variables; ℓ₀ holds the priors, the Jacobians of the transforms,
potentials and observed variables that are not subsampled; each *plate* is one set of N rows with
the log-likelihood of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.basic import transformed_conditional_logp
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.model.graph import name_of, rebuild, rows_like, value_of
from pymc_sgcv.model.likelihoods import (
    Group,
    first_batch_size,
    group_likelihoods,
    refuse_batch_larger_than_data,
    refuse_discrete,
    refuse_minibatch_elsewhere,
    refuse_missing_observations,
    rows_refusal,
)
from pymc_sgcv.model.start import initial_point


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
    model was declared with, kept to check the former against (`pymc_sgcv.model.proof`).
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

    def flatten(self, point: Mapping[str, np.ndarray]) -> np.ndarray:
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


def read_model(
    model: pm.Model,
    values: Sequence[TensorVariable] | None = None,
    batch_size: int | str | None = None,
) -> Target:
    """Take `model` apart.

    Parameters
    ----------
    model
        Declared with ``pm.Minibatch`` and ``total_size``, or plainly on the full data.
    values
        Value variables to sample; all of them by default. The rest become `Target.others`.
    batch_size
        Rows per minibatch. By default what ``pm.Minibatch`` says; for a plain model, or with
        ``"auto"``, 500 or all there are.
    """
    values = list(model.value_vars if values is None else values)
    refuse_discrete(model, values)
    batch_size = first_batch_size(model, batch_size)
    refuse_missing_observations(model)
    refuse_minibatch_elsewhere(model)
    groups = group_likelihoods(model, batch_size)
    plates = tuple(_make_plate(model, group, batch_size) for group in groups)
    subsampled = {name for plate in plates for name in plate.observed}
    exact = [rv for rv in model.observed_RVs if rv.name not in subsampled]
    start = initial_point(model)
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


def _lay_out(
    model: pm.Model, values: Sequence[TensorVariable], point: dict[str, np.ndarray]
) -> tuple[Parameter, ...]:
    parameters, start = [], 0
    for value in values:
        name = name_of(value)
        shape = np.shape(point[name])
        stop = start + int(np.prod(shape, dtype=int))
        rv_name = model.values_to_rvs[value].name
        parameters.append(Parameter(name, rv_name, shape, start, stop))
        start = stop
    return tuple(parameters)


def _make_plate(model: pm.Model, group: Group, batch_size: int | None) -> Plate:
    """Rebuild the likelihoods of `group` on row inputs of unknown length."""
    full = _unique_data(group.leaves.values())
    place = {leaf: _place_of(full, data) for leaf, data in group.leaves.items()}
    refuse_batch_larger_than_data(group, full, batch_size)
    rows = tuple(rows_like(v, v.name or f"rows_{i}") for i, v in enumerate(full))
    stand_in: dict[Variable, Variable] = {leaf: rows[i] for leaf, i in place.items()}
    if not group.minibatched:
        stand_in.update(_size_constants(model, group.rvs, rows[0].shape[0]))
    declared = {i: leaf.type() for leaf, i in place.items()}
    try:
        loglike = _row_terms(model, group.rvs, stand_in)
        as_declared = _row_terms(model, group.rvs, {v: declared[i] for v, i in place.items()})
    except (AssertionError, ValueError, TypeError, NotImplementedError) as error:
        refusal = rows_refusal(", ".join(name_of(rv) for rv in group.rvs), group.minibatched)
        raise ValueError(f"{refusal} ({type(error).__name__}: {error})") from error
    return Plate(
        observed=tuple(name_of(rv) for rv in group.rvs),
        data=tuple(full),
        rows=rows,
        loglike=loglike,
        declared_rows=tuple(declared[i] for i in range(len(full))),
        declared_loglike=as_declared,
        batch_size=int(batch_size or next(iter(group.leaves)).type.shape[0]),
        minibatched=group.minibatched,
    )


def _size_constants(
    model: pm.Model, rvs: Sequence[TensorVariable], n_rows: TensorVariable
) -> dict[Variable, Variable]:
    """Constant sizes that repeat the shape of the observations, made to follow n.

    Those are `size` arguments of random variables, and lengths of arrays that are filled with one
    value, like ``pt.ones((len(X), 3))`` (`pm.gp.HSGP` makes one).
    """
    sizes: dict[Variable, Variable] = {}
    for rv in rvs:
        shape = np.shape(value_of(model.rvs_to_values[rv]))
        for v in ancestors([rv], blockers=model.free_RVs):
            if isinstance(v, Constant) and getattr(v.type, "ndim", 0) == 1:
                size = tuple(v.data.tolist()) if v.type.dtype == "int64" else ()
                if size and size == shape[: len(size)]:
                    sizes[v] = pt.stack([n_rows, *size[1:]])
            elif v.owner is not None and isinstance(v.owner.op, Alloc):
                for length in v.owner.inputs[1:]:
                    if isinstance(length, Constant) and length.data == shape[0]:
                        sizes[length] = n_rows
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
        if other is variable:
            return i
        if isinstance(variable, Constant) and isinstance(other, Constant):
            if other.data is variable.data:
                return i
    return None


def _place_of(variables: Sequence[Variable], variable: Variable) -> int:
    place = _index_of(variables, variable)
    assert place is not None  # `variables` are all that there are
    return place


def _conditional_terms(
    model: pm.Model, rvs: Sequence[Variable], values: Sequence[Variable] | None = None
) -> list[TensorVariable]:
    """Log-density terms of `rvs` given the model's value variables, Jacobians included."""
    values = values or [model.rvs_to_values[rv] for rv in rvs]
    given = {rv: model.rvs_to_values[rv] for rv in model.free_RVs}
    given.update(zip(rvs, values, strict=True))
    transforms = {rv: model.rvs_to_transforms.get(rv) for rv in given}
    return transformed_conditional_logp(rvs, rvs_to_values=given, rvs_to_transforms=transforms)


def _row_terms(
    model: pm.Model, rvs: Sequence[TensorVariable], stand_in: Mapping[Variable, Variable]
) -> TensorVariable:
    """The log-likelihood of each row of `stand_in`, summed over trailing axes and over `rvs`."""
    values = [model.rvs_to_values[rv] for rv in rvs]
    outputs = rebuild([*rvs, *values], stand_in, stop=model.free_RVs)
    terms = _conditional_terms(model, outputs[: len(rvs)], outputs[len(rvs) :])
    return pt.add(
        pt.constant(0.0),
        *[term.sum(axis=tuple(range(1, term.ndim))) if term.ndim > 1 else term for term in terms],
    )
