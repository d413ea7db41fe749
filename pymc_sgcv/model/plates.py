# SPDX-License-Identifier: Apache-2.0
"""The rows that likelihoods share, and their log-likelihood as a graph for any number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.basic import transformed_conditional_logp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc, MakeVector
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.model.declared import head_of, length_of, source_of
from pymc_sgcv.model.graph import is_data, name_of, rebuild, rows_like, value_of
from pymc_sgcv.model.likelihoods import Group, refuse_batch_larger_than_data
from pymc_sgcv.model.refusals import rows_refusal
from pymc_sgcv.model.selection import repeated_effects, selected_rows
from pymc_sgcv.model.sparse import padded, product, sparse_products
from pymc_sgcv.sources.base import Source


@dataclass(frozen=True)
class Plate:
    """N exchangeable rows: where their data are and the log-likelihood of a batch of them.

    `loglike` takes any number of `rows`; `declared_loglike` is the same with the lengths that the
    model was declared with, kept to check the former against (`pymc_sgcv.model.proof`). Of the
    parameters `local` every row has its own; `outcomes` are the random variables of `rows`.
    """

    observed: tuple[str, ...]
    data: tuple[Variable, ...]
    rows: tuple[TensorVariable, ...]
    loglike: TensorVariable
    declared_rows: tuple[TensorVariable, ...]
    declared_loglike: TensorVariable
    batch_size: int
    minibatched: bool
    kind: str = "observed variable"
    local: tuple[str, ...] = ()
    outcomes: tuple[TensorVariable, ...] = ()

    @property
    def name(self) -> str:
        """The observed variables, for messages."""
        return ", ".join(self.observed)

    @property
    def n_rows(self) -> int:
        """N."""
        return length_of(self.data[0])

    @property
    def automatic(self) -> bool:
        """Whether the batch size is ours to choose: plain data, or declared so."""
        heads = [head_of(variable) for variable in self.data]
        return not self.minibatched or any(head is not None and head.automatic for head in heads)

    def arrays(self) -> list[np.ndarray]:
        """The data as they are now, one array per row input, without copying.

        Of data that a `Minibatch` of this package has declared those that the model holds.
        """
        return [value_of(variable) for variable in self.data]

    def sources(self) -> list[Source]:
        """All rows as they are now, one source per row input."""
        return [source_of(variable) for variable in self.data]


def make_plate(
    model: pm.Model, group: Group, batch_size: int | None, start: Mapping[str, np.ndarray]
) -> Plate:
    """Rebuild the likelihoods of `group` on row inputs of unknown length."""
    full = _unique_data(group.leaves.values())
    place = {leaf: _place_of(full, data) for leaf, data in group.leaves.items()}
    refuse_batch_larger_than_data(group, full, batch_size)
    rows = [rows_like(v, v.name or f"rows_{i}") for i, v in enumerate(full)]
    stand_in: dict[Variable, Variable] = {leaf: rows[i] for leaf, i in place.items()}
    declared_rows = {i: leaf.type() for leaf, i in place.items()}
    declared = {leaf: declared_rows[i] for leaf, i in place.items()}
    local: list[str] = []

    def add(variable: Variable, row: TensorVariable) -> None:
        """Data that the declared graph does not take from outside."""
        declared_rows[len(full)] = variable.type()
        full.append(variable)
        rows.append(row)

    def add_array(array: np.ndarray, name: str) -> TensorVariable:
        constant = pt.constant(array, name=name)
        add(constant, rows_like(constant, name))
        return rows[-1]

    try:
        if not group.minibatched:
            n_rows, graphs = len(value_of(full[0])), group.graphs
            stand_in.update(_size_constants(model, group, graphs, rows[0].shape[0]))
            for out, matrix, coefficients in sparse_products(graphs, model.free_RVs, n_rows):
                columns, values = padded(matrix)
                stand_in[out] = product(
                    add_array(columns, "columns"), add_array(values, "values"), coefficients
                )
            for taken, chosen, selected in (
                *selected_rows(graphs, model.free_RVs, n_rows),
                *repeated_effects(graphs, model.free_RVs, n_rows),
            ):
                stand_in[taken] = chosen
                for constant, row in selected:
                    add(constant, row)
            local_rvs = _local_latents(model, graphs, n_rows, start)
            if local_rvs:
                number = add_array(np.arange(n_rows), "row")
                stand_in.update((rv, rv[number]) for rv in local_rvs)
                local = [name_of(rv) for rv in local_rvs]
        observed, potentials, outcomes = _row_terms(model, group, stand_in)
        as_declared = pt.add(*_row_terms(model, group, declared)[:2])
        if not group.minibatched:
            observed, further = _with_data_of_its_own(observed, rows, n_rows)
            for variable, row in further.items():
                add(variable, row)
    except (AssertionError, ValueError, TypeError, NotImplementedError) as error:
        n_rows = length_of(full[0])
        refusal = rows_refusal(model, group.names, group.kind, group.minibatched, n_rows)
        raise ValueError(f"{refusal} ({type(error).__name__}: {error})") from error
    return Plate(
        observed=tuple(group.names),
        data=tuple(full),
        rows=tuple(rows),
        loglike=observed + potentials,
        declared_rows=tuple(declared_rows[i] for i in range(len(full))),
        declared_loglike=as_declared,
        batch_size=int(batch_size or next(iter(group.leaves)).type.shape[0]),
        minibatched=group.minibatched,
        kind=group.kind,
        local=tuple(local),
        outcomes=cast(tuple[TensorVariable, ...], tuple(outcomes)),
    )


def _local_latents(
    model: pm.Model,
    graphs: Sequence[Variable],
    n_rows: int,
    start: Mapping[str, np.ndarray],
) -> list[TensorVariable]:
    """Parameters with a value for every row, which is that row's own.

    As long as the data are also effects of as many groups, but those are looked up by an index.
    """
    wide = [model.rvs_to_values[rv] for rv in graphs if rv in model.rvs_to_values]
    if any(length > n_rows for value in wide for length in np.shape(value_of(value))[1:]):
        return []  # rows along another axis than the first
    long = []
    for rv in model.free_RVs:
        value = start[name_of(model.rvs_to_values[rv])]
        if np.shape(value)[:1] == (n_rows,) and rv.type.ndim > 0:
            long.append(rv)
    found = []
    nodes = {v.owner for v in ancestors(graphs, blockers=model.free_RVs) if v.owner is not None}
    for rv in long:
        uses = [node for node in nodes if rv in node.inputs and rv.owner is not node]
        if any(not _looks_up(node, rv) for node in uses):
            found.append(rv)
    return found


def _looks_up(node: Apply, variable: Variable) -> bool:
    """Whether a node takes some of `variable` by an index."""
    return "Subtensor" in type(node.op).__name__ and node.inputs[0] is variable


def _with_data_of_its_own(
    loglike: TensorVariable, rows: Sequence[Variable], n_rows: int
) -> tuple[TensorVariable, dict[Variable, TensorVariable]]:
    """Data that only the log-density knows, like weights that a CustomDist's `logp` has enclosed.

    Returned with the rows that stand for them.
    """
    known = set(rows)
    found = [v for v in ancestors([loglike]) if v not in known and is_data(v)]
    further = [v for v in _unique_data(found) if np.shape(value_of(v))[:1] == (n_rows,)]
    inputs = {v: rows_like(v, v.name or f"rows_{len(rows) + i}") for i, v in enumerate(further)}
    if not inputs:
        return loglike, {}
    stand_in = {v: inputs[further[_place_of(further, v)]] for v in found if _in(further, v)}
    return cast(TensorVariable, rebuild([loglike], stand_in)[0]), inputs


def _size_constants(
    model: pm.Model, group: Group, graphs: Sequence[TensorVariable], n_rows: TensorVariable
) -> dict[Variable, Variable]:
    """Constant sizes that repeat the shape of the observations, made to follow n.

    Those are `size` arguments of random variables, and lengths of arrays that are filled with one
    value, like ``pt.ones((len(X), 3))`` (`pm.gp.HSGP` makes one).
    """
    sizes: dict[Variable, Variable] = {}
    length = len(value_of(next(iter(group.leaves.values()))))
    for graph in graphs:
        value = model.rvs_to_values.get(graph)
        shape = (length,) if value is None else np.shape(value_of(value))
        for v in ancestors([graph], blockers=model.free_RVs):
            if isinstance(v, Constant) and getattr(v.type, "ndim", 0) == 1:
                size = tuple(v.data.tolist()) if v.type.dtype == "int64" else ()
                if size and size == shape[: len(size)]:
                    sizes[v] = pt.stack([n_rows, *size[1:]])
            elif v.owner is not None and isinstance(v.owner.op, MakeVector):
                size = tuple(int(value_of(n)) for n in v.owner.inputs if _is_fixed(n))
                whole = len(size) == len(v.owner.inputs) and v.type.dtype == "int64"
                if whole and size and size == shape[: len(size)]:
                    sizes[v] = pt.stack([n_rows, *size[1:]])
            elif v.owner is not None and isinstance(v.owner.op, Alloc):
                for length in v.owner.inputs[1:]:
                    if _is_fixed(length) and value_of(length) == shape[0]:
                        sizes[length] = n_rows
    return sizes


def _is_fixed(length: Variable) -> bool:
    """Whether a length is worked out from numbers, or from lengths of the model's dims."""
    roots = [v for v in ancestors([length]) if v.owner is None]
    kinds = Constant | SharedVariable
    return all(isinstance(v, kinds) and getattr(v.type, "ndim", 1) == 0 for v in roots)


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


def _in(variables: Sequence[Variable], variable: Variable) -> bool:
    return _index_of(variables, variable) is not None


def _place_of(variables: Sequence[Variable], variable: Variable) -> int:
    place = _index_of(variables, variable)
    assert place is not None  # `variables` are all that there are
    return place


def conditional_terms(
    model: pm.Model, rvs: Sequence[Variable], values: Sequence[Variable] | None = None
) -> list[TensorVariable]:
    """Log-density terms of `rvs` given the model's value variables, Jacobians included."""
    values = values if values is not None else [model.rvs_to_values[rv] for rv in rvs]
    given = {rv: model.rvs_to_values[rv] for rv in model.free_RVs}
    given.update(zip(rvs, values, strict=True))
    transforms = {rv: model.rvs_to_transforms.get(rv) for rv in given}
    return transformed_conditional_logp(rvs, rvs_to_values=given, rvs_to_transforms=transforms)


def _row_terms(
    model: pm.Model, group: Group, stand_in: Mapping[Variable, Variable]
) -> tuple[TensorVariable, TensorVariable, list[Variable]]:
    """The log-likelihood of each row of `stand_in`, of observed variables and of Potentials.

    Both are sums over trailing axes, and over the members of `group`. Returned with the random
    variables of these rows.
    """
    rvs, factors = group.rvs, [term.factor for term in group.terms]
    values = [model.rvs_to_values[rv] for rv in rvs]
    graphs = [*rvs, *values, *(term.rows for term in group.terms)]
    outputs = rebuild(graphs, stand_in, stop=model.free_RVs)
    rest = [*outputs[2 * len(rvs) :], *factors]
    rest = model.replace_rvs_by_values(rest) if rest else []
    terms = conditional_terms(model, outputs[: len(rvs)], outputs[len(rvs) : 2 * len(rvs)])
    parts = zip(rest[: len(factors)], rest[len(factors) :], strict=True)
    return (
        pt.add(pt.constant(0.0), *[_over_trailing_axes(term) for term in terms]),
        pt.add(pt.constant(0.0), *[factor * _over_trailing_axes(rows) for rows, factor in parts]),
        outputs[: len(rvs)],
    )


def _over_trailing_axes(term: TensorVariable) -> TensorVariable:
    return term.sum(axis=tuple(range(1, term.ndim))) if term.ndim > 1 else term
