# SPDX-License-Identifier: Apache-2.0
"""Gradients of ₂F₁(a, b; c; z) with respect to a, b and c, by the series without logarithms.

PyTensor sums the same series by the logarithm and the sign of each of four numbers a term, which
takes some ten logarithms and exponentials. With

    tₖ₊₁ = tₖ (a + k)(b + k) z / ((c + k)(k + 1)),   t₀ = 1,

the terms of ₂F₁ itself, ∂tₖ/∂a is tₖ Σ 1/(a + j) over j < k, and so for b and, with the other sign,
c: four divisions a term. Customers that drop out (the Pareto/NBD model) are made of these.
"""

from __future__ import annotations

from typing import cast

from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch import basic as numba_basic
from pytensor.scalar.basic import ScalarOp, float64, get_scalar_type
from pytensor.scalar.math import Grad2F1Loop
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import exp
from pytensor.tensor.variable import TensorVariable

_STATES = 13
"""What PyTensor's loop carries along if it is to find all three derivatives."""
_LEAST, _PRECISION = 10, 1e-14
"""PyTensor's own: so many terms at least, and no more when they are so small."""


class SeriesGradient(ScalarOp):
    """∂/∂a, ∂/∂b and ∂/∂c of ₂F₁ from at most so many terms; and whether the series has ended."""

    nin, nout = 5, 4

    def output_types(self, types):
        """Three derivatives and a truth."""
        return [float64, float64, float64, get_scalar_type("bool")]

    def impl(self, n_terms, a, b, c, z):
        """The same in Python."""
        return _series(n_terms, a, b, c, z)

    def c_code(self, *args, **kwargs):
        """There is none."""
        raise NotImplementedError


def _series(n_terms, a, b, c, z):
    term, ended = 1.0, False
    for_a, for_b, for_c = 0.0, 0.0, 0.0
    by_a, by_b, by_c = 0.0, 0.0, 0.0
    for k in range(n_terms):
        ratio = (a + k) * (b + k) * z / ((c + k) * (k + 1.0))
        if ratio == 0.0:
            ended = True
            break
        by_a += 1.0 / (a + k)
        by_b += 1.0 / (b + k)
        by_c -= 1.0 / (c + k)
        term *= ratio
        for_a += term * by_a
        for_b += term * by_b
        for_c += term * by_c
        largest = abs(term) * max(abs(by_a), abs(by_b), abs(by_c))
        if k > _LEAST and largest <= _PRECISION:
            ended = True
            break
    return for_a, for_b, for_c, ended


_gradient = Elemwise(SeriesGradient())


@numba_basic.register_funcify_and_cache_key(SeriesGradient)
def _numba_series_gradient(op, node, **kwargs):
    return numba_basic.numba_njit(_series), "pymc_sgcv series gradient 1"


def without_logarithms(graph: TensorVariable) -> TensorVariable:
    """The same graph with `SeriesGradient` in place of PyTensor's loops."""
    found: dict[Variable, Variable] = {}
    for variable in ancestors([graph]):
        node = variable.owner
        loop = node is not None and isinstance(getattr(node.op, "scalar_op", None), Grad2F1Loop)
        if not loop or variable.type.dtype != "float64":
            continue
        if variable is node.outputs[0] and len(node.inputs) == 1 + _STATES + 5:
            n_terms, (a, b, c, log_z, sign) = node.inputs[0], node.inputs[-5:]
            ours = cast(list[Variable], _gradient(n_terms, a, b, c, sign * exp(log_z)))
            found |= dict(zip([*node.outputs[:3], node.outputs[-1]], ours, strict=True))
    return cast(TensorVariable, clone_replace([graph], found)[0]) if found else graph
