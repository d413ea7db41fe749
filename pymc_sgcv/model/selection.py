# SPDX-License-Identifier: Apache-2.0
"""Likelihoods of some of the rows, ``f(x)[mask]``, as those of these rows' data, f(x[mask]).

Survival models are written so: one linear predictor for everybody, and then that of the censored
and that of the others. A minibatch of the censored would need the predictor of everybody. So the
selection is moved up to the data, through what acts on every row by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.model.graph import rows_like, value_of

_LOOK_UP = "AdvancedSubtensor", "AdvancedSubtensor1"


def selected_rows(
    graphs: Sequence[Variable], stop: Sequence[Variable], n_rows: int
) -> Iterator[tuple[Variable, Variable, list[tuple[Variable, TensorVariable]]]]:
    """Selections of `n_rows` rows, each as a graph of row inputs, with the data that these are."""
    for variable in ancestors(graphs, blockers=stop):
        node = variable.owner
        if node is None or type(node.op).__name__ not in _LOOK_UP or len(node.inputs) != 2:
            continue
        source, index = node.inputs
        depends = set(ancestors([source], blockers=stop)) & set(stop)
        if source in stop or not depends or set(ancestors([index])) & set(stop):
            continue
        chosen = value_of(index)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        if chosen.shape != (n_rows,):
            continue
        selected: list[tuple[Variable, TensorVariable]] = []
        try:
            yield variable, _select(source, chosen, stop, 0, selected), selected
        except NotImplementedError:  # effects of groups, say, which are looked up as they are
            continue


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
