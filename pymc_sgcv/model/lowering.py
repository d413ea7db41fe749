# SPDX-License-Identifier: Apache-2.0
"""Models with named dimensions (`pymc.dims`) as the same models of plain tensors.

PyMC writes such a model as a graph of xtensors and lowers it to tensors before it takes
log-probabilities. Here that is done first, with PyMC's own rewrites, so that all that reads a model
meets tensors. Names, dims and coords stay, and shared data are shared: `pm.set_data` reaches both.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Any, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions import transforms
from pymc.logprob.transforms import Transform
from pytensor.compile import optdb
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant, TensorVariable

_SAME = {"LogTransform": transforms.log, "LogOddsTransform": transforms.logodds}
"""Transforms of `pymc.dims` that are the same function of every element, by class."""


def plain(model: pm.Model) -> pm.Model:
    """`model` itself, or where it has named dimensions the same model of plain tensors."""
    variables = [*model.basic_RVs, *model.potentials, *model.deterministics]
    if not any(_named(v) for v in [*variables, *model.rvs_to_values.values()]):
        return model
    rows = {rv: _row_dim(rv) for rv in model.observed_RVs}
    first = [_rows_first(v, rows.get(v)) for v in variables]
    values = [_rows_first(model.rvs_to_values[rv], rows[rv]) for rv in model.observed_RVs]
    lowered = lower([*first, *values], {dim for dim in rows.values() if dim is not None})
    new = dict(zip(variables, lowered[: len(variables)], strict=True))
    observed = dict(zip(model.observed_RVs, lowered[len(variables) :], strict=True))
    made = pm.Model(model=None)
    made._coords, made._dim_lengths = model._coords, model._dim_lengths
    for rv in model.free_RVs:
        made.free_RVs.append(new[rv])
        _add_value(made, new[rv], _value_like(model, rv), _transform_of(model, rv))
        made.rvs_to_initial_values[new[rv]] = _initial(model.rvs_to_initial_values[rv])
    for rv in model.observed_RVs:
        made.observed_RVs.append(new[rv])
        _add_value(made, new[rv], observed[rv], None)
    made.potentials += [new[v] for v in model.potentials]
    made.deterministics += [new[v] for v in model.deterministics]
    made.data_vars += list(model.data_vars)
    for data in model.data_vars:
        made.add_named_variable(data, dims=model.named_vars_to_dims.get(data.name))
    for variable, fresh in new.items():
        fresh.name = variable.name
        made.add_named_variable(fresh, dims=model.named_vars_to_dims.get(variable.name))
    return made


def _named(variable: Variable) -> bool:
    """Whether a variable has named dimensions; where nobody imports them, none has."""
    kinds = sys.modules.get("pytensor.xtensor.type")
    return kinds is not None and isinstance(variable.type, kinds.XTensorType)


def _row_dim(rv: Variable) -> str | None:
    """The dimension of an observed variable along which its rows are: the longest."""
    lengths = rv.type.shape if _named(rv) else ()
    known = {dim: n or 0 for dim, n in zip(getattr(rv.type, "dims", ()), lengths, strict=True)}
    return max(known, key=known.__getitem__) if known else None


def _rows_first(variable: Any, dim: str | None) -> Any:
    """Rows along the first axis, which the order of named dimensions need not have there."""
    if dim is None or not _named(variable) or variable.type.dims[0] == dim:
        return variable
    return variable.transpose(dim, ...)


def lower(variables: Sequence[Variable], row_dims: Collection[str] = ()) -> list[Any]:
    """Graphs of xtensors as graphs of tensors, data as tensors over the same memory.

    Data are seen with their rows, along one of `row_dims`, on the first axis.
    """
    from pytensor.xtensor.basic import TensorFromXTensor, tensor_from_xtensor

    outputs: Any = [tensor_from_xtensor(v) if _named(v) else v for v in variables]
    graph = FunctionGraph(outputs=outputs, clone=True, copy_inputs=False, copy_orphans=False)
    for node in graph.toposort():  # a Deterministic is a view, which PyMC takes out elsewhere
        if isinstance(node.op, ViewOp) and _named(node.outputs[0]):
            graph.replace(node.outputs[0], node.inputs[0])
    optdb.query("+lower_xtensor").rewrite(graph)
    roots = {
        v: _as_tensor(v.owner.inputs[0], row_dims)
        for v in ancestors(graph.outputs)
        if v.owner is not None
        and isinstance(v.owner.op, TensorFromXTensor)
        and v.owner.inputs[0].owner is None
    }
    shared: dict[Variable, Variable] = {}  # one tensor for every root, however often it is used
    stand_in = {v: shared.setdefault(v.owner.inputs[0], tensor) for v, tensor in roots.items()}
    return (
        clone_replace(graph.outputs, stand_in, rebuild_strict=False) if stand_in else graph.outputs
    )


def _as_tensor(root: Variable, row_dims: Collection[str]) -> Variable:
    axis = next((i for i, dim in enumerate(root.type.dims) if dim in row_dims), 0)
    kind = TensorType(root.type.dtype, shape=root.type.shape)
    if isinstance(root, Constant):
        if axis == 0:
            return TensorConstant(kind, np.asarray(root.data), name=root.name)
        data = np.moveaxis(np.asarray(root.data), axis, 0)
        constant = TensorConstant(TensorType(kind.dtype, shape=data.shape), data, name=root.name)
        return pt.moveaxis(constant, 0, axis)
    if isinstance(root, SharedVariable):
        shared = _shared(kind, root)
        return pt.moveaxis(pt.moveaxis(shared, axis, 0), 0, axis) if axis else shared
    return kind(root.name)


def _shared(kind: TensorType, root: Any) -> Any:
    """A tensor over the memory of an xtensor: whoever sets one has set the other."""
    unset: Any = None  # the container has both already
    return TensorSharedVariable(kind, unset, unset, container=root.container, name=root.name)


def _value_like(model: pm.Model, rv: Variable) -> TensorVariable:
    value = model.rvs_to_values[rv]
    return TensorType(value.type.dtype, shape=value.type.shape)(value.name)


def _add_value(model: pm.Model, rv: Variable, value: Variable, transform: Transform | None) -> None:
    model.rvs_to_values[rv], model.values_to_rvs[value] = value, rv
    model.rvs_to_transforms[rv] = transform


def _initial(strategy: Any) -> Any:
    return getattr(strategy, "values", strategy)


def _transform_of(model: pm.Model, rv: Variable) -> Transform | None:
    transform = model.rvs_to_transforms.get(rv)
    if transform is None or not _named(rv):
        return transform
    return _SAME.get(type(transform).__name__) or _Lowered(transform, rv.type.dims)


class _Lowered(Transform):
    """A transform of xtensors with dimensions `dims` as one of tensors."""

    def __init__(self, transform: Transform, dims: tuple[str, ...]):
        self.transform, self.dims = transform, dims
        self.name = transform.name

    def _lowered(self, method: str, value: TensorVariable, inputs: Sequence) -> TensorVariable:
        from pytensor.xtensor import as_xtensor

        stand_in = value.type()
        result = getattr(self.transform, method)(as_xtensor(stand_in, dims=self.dims), *inputs)
        (graph,) = lower([result])
        (new,) = clone_replace([graph], {stand_in: value}, rebuild_strict=False)
        return cast(TensorVariable, new)

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        return self._lowered("forward", value, inputs)

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        return self._lowered("backward", value, inputs)

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        return self._lowered("log_jac_det", value, inputs)
