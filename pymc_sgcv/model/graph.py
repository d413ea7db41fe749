# SPDX-License-Identifier: Apache-2.0
"""Rebuild a PyTensor graph so that its data have an unknown number of rows.

``pm.Minibatch(..., batch_size=500)`` bakes 500 into every static shape downstream, and plain
``graph_replace`` keeps it there through ``SpecifyShape``. Here each node below a replaced variable
is made anew from its new inputs, so one graph serves a minibatch, a chunk and all the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy

import numpy as np
import pytensor.tensor as pt
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

_OVERRIDES = {
    "lop_overrides",
    "rop_overrides",
    "pullback_overrides",
    "pushforward_overrides",
    "_connection_pattern",
    "destroy_map",
}
"""What `OpFromGraph.__init__` would reset although it was given by whoever made the op."""


def rows_like(variable: Variable, name: str) -> TensorVariable:
    """An input of the same type as `variable` whose leading length is not fixed."""
    shape = (None, *variable.type.shape[1:])
    return TensorType(variable.type.dtype, shape=shape)(name)


def rebuild(
    outputs: Sequence[Variable],
    replace: Mapping[Variable, Variable],
    stop: Iterable[Variable] = (),
) -> list[Variable]:
    """Copy the graph of `outputs` with `replace` applied, re-making every node downstream of it.

    Variables in `stop` (free random variables) are kept as they are; minibatch scaling is
    unwrapped.
    """
    new: dict[Variable, Variable] = {variable: variable for variable in stop}
    new.update(replace)
    for node in toposort(outputs, blockers=list(new)):
        if all(out in new for out in node.outputs):
            continue
        inputs = [new.get(variable, variable) for variable in node.inputs]
        changed = any(a is not b for a, b in zip(inputs, node.inputs, strict=True))
        for out, fresh in zip(node.outputs, _remake(node, inputs, changed), strict=True):
            if out not in new and fresh is not out:
                fresh.name = out.name
                new[out] = fresh
    return [new.get(out, out) for out in outputs]


def _remake(node: Apply, inputs: list[Variable], changed: bool) -> Sequence[Variable]:
    """Outputs of `node` on `inputs`, with the static shapes that follow from them."""
    if isinstance(node.op, MinibatchRandomVariable):
        return [inputs[0]]
    if not changed:
        return node.outputs
    if isinstance(node.op, SpecifyShape):
        return [_specify_trailing_shape(node, inputs[0])]
    if isinstance(node.op, OpFromGraph):
        return _remake_inner_graph(node, inputs)
    return node.clone_with_new_inputs(inputs, strict=False).outputs


def _specify_trailing_shape(node: Apply, x: Variable) -> Variable:
    """Keep what a SpecifyShape says of the trailing axes; the leading one is now free."""
    shape = node.outputs[0].type.shape
    if len(shape) < 2 or all(length is None for length in shape[1:]):
        return x
    return pt.specify_shape(x, (None, *shape[1:]))


def _remake_inner_graph(node: Apply, inputs: list[Variable]) -> Sequence[Variable]:
    """Re-make an op with an inner graph (censored, mixture, ...) for inputs of new shapes."""
    op = node.op
    if hasattr(op, "build_inner_graph"):  # it knows how to make its graph from its inputs
        return op(*inputs, return_list=True)
    fgraph = op.fgraph.unfreeze() if hasattr(op.fgraph, "unfreeze") else op.fgraph
    inner = [outer.type() for outer in inputs]
    outputs = rebuild(fgraph.outputs, dict(zip(fgraph.inputs, inner, strict=True)))
    remade = copy(op)  # keeps what subclasses add: signature, support dimensions, method
    for attribute in set(_found_in_use(op)) - _OVERRIDES:
        delattr(remade, attribute)
    OpFromGraph.__init__(
        remade, inner, outputs, inline=op.is_inline, name=op.name, on_unused_input="ignore"
    )
    for attribute in _OVERRIDES & vars(op).keys():
        setattr(remade, attribute, getattr(op, attribute))
    return remade.make_node(*inputs).outputs


def _found_in_use(op: OpFromGraph) -> list[str]:
    """Attributes that an op was not made with: what PyTensor has worked out of its inner graph.

    Shapes of its outputs and compiled code are kept there when they are first asked for, by
    `pm.Model.debug`, a gradient, or a sampler. They are those of the old inner graph.
    """
    return [name for name, value in vars(op).items() if _holds_graph(value)]


def _holds_graph(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(_holds_graph(one) for one in value)
    compiled = hasattr(value, "maker")
    return isinstance(value, Variable) or hasattr(value, "toposort") or compiled


def name_of(variable: Variable) -> str:
    """The name of a variable of the model: there each has one."""
    assert variable.name is not None
    return variable.name


def is_transposed(variable: Variable) -> bool:
    """Whether a variable is another one with its axes in another order."""
    op = getattr(variable.owner, "op", None)
    return isinstance(op, DimShuffle) and sorted(map(str, op.new_order)) == sorted(
        str(axis) for axis in range(variable.owner.inputs[0].type.ndim)
    )


def is_data(variable: Variable) -> bool:
    """Whether a variable is an array of the model's data, as it is or with its axes reordered."""
    if is_transposed(variable):
        assert variable.owner is not None
        return is_data(variable.owner.inputs[0])
    return (
        isinstance(variable, Constant | SharedVariable)
        and isinstance(variable.type, TensorType)
        and variable.type.ndim > 0
    )


def value_of(variable: Variable) -> np.ndarray:
    """The present value of a data variable; shared variables follow ``pm.set_data``."""
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value(borrow=True))
    if is_transposed(variable):
        assert variable.owner is not None
        return value_of(variable.owner.inputs[0]).transpose(variable.owner.op.new_order)
    return np.asarray(variable.eval(mode="FAST_COMPILE"))
