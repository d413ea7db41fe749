# SPDX-License-Identifier: Apache-2.0
"""Likelihoods of some of the rows, ``f(x)[mask]``, as those of these rows' data, f(x[mask]).

Survival models are written so: one linear predictor for everybody, and then that of the censored
and that of the others; and regressions on lags, ``e[1:] - rho * e[:-1]``. A minibatch of the
censored would need the predictor of everybody. So the selection is moved up to the data, through
what acts on every row by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import Repeat
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.model.graph import is_data, rebuild, rows_like, value_of
from pymc_sgcv.model.start import PYTHON

_LOOK_UP = "AdvancedSubtensor", "AdvancedSubtensor1"
_REPEATS = Repeat, Reshape, Alloc, DimShuffle


def selected_rows(
    graphs: Sequence[Variable], stop: Sequence[Variable], n_rows: int
) -> Iterator[tuple[Variable, Variable, list[tuple[Variable, TensorVariable]]]]:
    """Selections of `n_rows` rows, each as a graph of row inputs, with the data that these are."""
    for variable in ancestors(graphs, blockers=stop):
        node = variable.owner
        if node is None or variable.type.ndim == 0 or node.inputs[0] in stop:
            continue
        source = node.inputs[0]
        depends = set(ancestors([source], blockers=stop)) & set(stop)
        chosen = _chosen(node, stop)
        if chosen is None or chosen.shape != (n_rows,):
            continue
        if not depends:
            if _is_slice(node) and is_data(source):  # of rows that are rows of other data, too
                row = rows_like(variable, "selected")
                yield variable, row, [(variable, row)]
            continue
        selected: list[tuple[Variable, TensorVariable]] = []
        try:
            yield variable, _select(source, chosen, stop, 0, selected), selected
        except NotImplementedError:  # effects of groups, say, which are looked up as they are
            continue


def repeated_effects(
    graphs: Sequence[Variable], stop: Sequence[Variable], n_rows: int
) -> Iterator[tuple[Variable, Variable, list[tuple[Variable, TensorVariable]]]]:
    """Parameters that are repeated or tiled to `n_rows`, as looked up by an index."""
    for variable in ancestors(graphs, blockers=stop):
        base: Any = variable
        while base.owner is not None and base not in stop and isinstance(base.owner.op, _REPEATS):
            base = base.owner.inputs[0]
        if base is variable or base.type.ndim != 1 or variable.type.ndim != 1:
            continue
        length = base.type.shape[0]
        if length is None or not set(ancestors([base])) & set(stop):
            continue
        place = cast(TensorVariable, pt.arange(length).astype(base.dtype))
        index = rebuild([variable], {base: place}, stop)[0].eval(mode=PYTHON)
        if index.shape == (n_rows,):
            data = pt.constant(index.astype("int64"))
            row = rows_like(data, "repeated")
            yield variable, base[row], [(data, row)]


def with_slices_of_data(rows: TensorVariable, stop: Sequence[Variable]) -> TensorVariable:
    """What a Potential sums, its slices moved up to the data: these are as long as the sum."""
    n_rows = rows.type.shape[0] if rows.type.ndim else None
    if n_rows is None:
        return rows
    stand_in: dict[Variable, Variable] = {}
    for taken, chosen, selected in selected_rows([rows], stop, n_rows):
        if _is_slice(taken.owner) and selected:
            data: dict[Variable, Variable] = {row: constant for constant, row in selected}
            stand_in[taken] = rebuild([chosen], data, stop)[0]
    return cast(TensorVariable, rebuild([rows], stand_in, stop)[0]) if stand_in else rows


def _is_slice(node: Any) -> bool:
    return isinstance(node.op, Subtensor)


def _chosen(node: Any, stop: Sequence[Variable]) -> np.ndarray | None:
    """Which rows of its first input a node takes: those that an array names, or a slice."""
    source, *index = node.inputs
    if set(ancestors(index)) & set(stop):
        return None
    if type(node.op).__name__ in _LOOK_UP and len(index) == 1:
        chosen = value_of(index[0])
        return np.flatnonzero(chosen) if chosen.dtype == bool else chosen
    if not _is_slice(node) or len(node.op.idx_list) != 1 or node.outputs[0].ndim != source.ndim:
        return None
    length = _length(source, stop)
    rows = node.op.make_node(pt.arange(length), *index).outputs[0].eval(mode=PYTHON)
    return rows if len(rows) < length else None


def _length(source: Any, stop: Sequence[Variable]) -> int:
    """How many rows a graph has: as it says, or else as its longest data have."""
    if source.type.shape[0] is not None:
        return int(source.type.shape[0])
    data = [v for v in ancestors([source], blockers=stop) if is_data(v)]
    return max((len(value_of(v)) for v in data), default=0)


def _select(
    graph: Any,
    index: np.ndarray,
    stop: Sequence[Variable],
    axis: int,
    selected: list[tuple[Variable, TensorVariable]],
) -> Any:
    """The graph of the rows `index` along `axis`, made of the data of these rows.

    Raises NotImplementedError where something acts on several rows together.
    """
    if graph.type.shape[axis] == 1:
        return graph
    node = graph.owner
    if not set(ancestors([graph], blockers=stop)) & set(stop):
        data = pt.constant(np.moveaxis(np.take(value_of(graph), index, axis), axis, 0))
        selected.append((data, rows_like(data, "selected")))
        return pt.moveaxis(selected[-1][1], 0, axis)
    op: Any = None if node is None else node.op
    core = op.core_op if isinstance(op, Blockwise) else op

    def of(i: int, along: int) -> Any:
        return _select(node.inputs[i], index, stop, along, selected)

    if graph in stop:
        raise NotImplementedError("These are parameters, not rows of data.")
    if isinstance(op, ViewOp):
        return of(0, axis)
    if isinstance(op, Elemwise):
        return op(*[of(i, axis) for i in range(len(node.inputs))])
    if isinstance(op, DimShuffle) and op.new_order[axis] != "x":
        return of(0, int(op.new_order[axis])).dimshuffle(op.new_order)
    if isinstance(core, Dot) and graph.type.ndim == 2:
        inputs = [of(0, 0), node.inputs[1]] if axis == 0 else [node.inputs[0], of(1, 1)]
        return op(*inputs)
    if type(op).__name__ in _LOOK_UP and len(node.inputs) == 2 and axis == 0:
        return node.inputs[0][of(1, 0)]
    raise NotImplementedError(f"Rows of {op} cannot be told apart.")
