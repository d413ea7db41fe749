# SPDX-License-Identifier: Apache-2.0
"""Potentials that are likelihoods: sums over rows of data, taken apart into the terms of a row.

``pm.Potential("y", logp)`` with a value per row, and ``pm.Potential("y", logp.sum())``, say the
same. So do sums of such sums, multiples of them, and inner products with a weight per row. What is
left, a function of parameters alone or of data in a way that is no sum, stays one exact term.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as scalar
from pytensor.tensor.basic import Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.model.graph import is_data, value_of


@dataclass(frozen=True, eq=False)
class Term:
    """``factor * rows.sum()``, or ``factor * rows`` where `rows` is a scalar."""

    name: str
    factor: TensorVariable
    rows: TensorVariable

    def whole(self) -> TensorVariable:
        """The term as one number."""
        return self.factor * self.rows.sum()


def terms_of(potential: TensorVariable) -> list[Term]:
    """What a Potential is the sum of.

    Examples
    --------
    >>> rows, slope = pt.dvector("rows"), pt.dscalar("slope")
    >>> first, second = terms_of(-0.5 * ((rows - slope) ** 2).sum() - slope**2)
    >>> first.rows.ndim, first.factor.eval().item(), second.rows.ndim
    (1, -0.5, 0)
    """
    name = potential.name or "potential"
    return [Term(name, factor, rows) for factor, rows in _parts(potential, pt.constant(1.0))]


def rows_of(model: pm.Model, term: Term) -> tuple[int, list[Variable]]:
    """How many rows of data a term of a Potential has a value for, and these data."""
    if term.rows.ndim == 0:
        return 0, []
    data = [v for v in ancestors([term.rows], blockers=model.free_RVs) if is_data(v)]
    lengths = [np.shape(value_of(v))[0] for v in data]
    n_rows = term.rows.type.shape[0] or max(lengths, default=0)
    return n_rows, [v for v, n in zip(data, lengths, strict=True) if n == n_rows]


def leaves_of(model: pm.Model, term: Term, batch_size: int | None) -> dict[Variable, Variable]:
    """Data of a term whose leading axis is as long as the term; none if it is too short."""
    n_rows, data = rows_of(model, term)
    return {v: v for v in data} if batch_size is not None and n_rows >= batch_size else {}


def _parts(graph: Any, factor: TensorVariable) -> Iterator[tuple[TensorVariable, TensorVariable]]:
    """Factors and rows of the sums that a scalar is made of; itself if it is none."""
    node = graph.owner
    op: Any = None if node is None else node.op
    kind = type(op.scalar_op) if isinstance(op, Elemwise) else None
    if graph.ndim > 0:
        yield factor, graph
    elif isinstance(op, Sum):
        yield from _joined(node.inputs[0], factor)
    elif (product := _inner_product(graph)) is not None:
        yield factor, product
    elif kind is scalar.Add:
        for part in node.inputs:
            yield from _parts(part, factor)
    elif kind is scalar.Sub:
        yield from _parts(node.inputs[0], factor)
        yield from _parts(node.inputs[1], -factor)
    elif kind is scalar.Neg:
        yield from _parts(node.inputs[0], -factor)
    elif kind is scalar.TrueDiv:
        yield from _parts(node.inputs[0], factor / node.inputs[1])
    elif kind is scalar.Mul:
        sums = [v for v in node.inputs if _has_sum(v)]
        if len(sums) == 1:
            rest = [v for v in node.inputs if v is not sums[0]]
            yield from _parts(sums[0], pt.mul(factor, *rest))
        else:
            yield factor, graph
    elif isinstance(op, ViewOp | CheckAndRaise) or kind in (scalar.Cast, scalar.Identity):
        for inner, rows in _parts(node.inputs[0], factor):
            checked = isinstance(op, CheckAndRaise)
            yield inner, op(rows, *node.inputs[1:]) if checked else rows
    else:
        yield factor, graph


def _inner_product(graph: Any) -> TensorVariable | None:
    """The products that an inner product of two vectors adds up, if a scalar is one."""
    node = graph.owner
    while node is not None and isinstance(node.op, DimShuffle):  # to and from matrices
        node = node.inputs[0].owner
    op = None if node is None else node.op
    core = op.core_op if isinstance(op, Blockwise) else op
    if node is None or not isinstance(core, Dot):
        return None
    left, right = node.inputs
    return (left if left.ndim == 1 else left[0]) * (right if right.ndim == 1 else right[:, 0])


def _joined(
    rows: TensorVariable, factor: TensorVariable
) -> Iterator[tuple[TensorVariable, TensorVariable]]:
    """The parts of what is summed: those of a concatenation are summed each by itself."""
    node = rows.owner
    if node is not None and isinstance(node.op, Join):
        axis = getattr(node.op, "axis", None)  # an input of the op before PyTensor 3
        if axis is None and isinstance(node.inputs[0], Constant):
            axis = int(np.asarray(node.inputs[0].data))
        if axis == 0:
            for part in node.inputs:
                if part.ndim == rows.ndim:
                    yield from _joined(part, factor)
            return
    yield factor, rows


def _has_sum(graph: Variable) -> bool:
    """Whether a scalar is a sum or a multiple of one."""
    if graph.owner is None:
        return False
    if isinstance(graph.owner.op, Sum) or _inner_product(graph) is not None:
        return True
    linear = isinstance(graph.owner.op, Elemwise | ViewOp | CheckAndRaise)
    return linear and any(_has_sum(v) for v in graph.owner.inputs if v.type.ndim == 0)
