# SPDX-License-Identifier: Apache-2.0
"""Elementary functions without branches, of which the compiler makes vector instructions.

The C library takes one number at a time, some 15 ns for a logarithm of an exponential. Where rows
are only judged, as many are that no minibatch ever sees, these do: within 4 · 10⁻¹⁶ of the right
value, but for what is beyond 10⁻³⁰⁷, which is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.link.numba.dispatch import basic as numba_basic
from pytensor.scalar.basic import Exp, Log, Log1p, UnaryScalarOp, upgrade_to_float
from pytensor.scalar.math import Sigmoid, Softplus
from pytensor.tensor.elemwise import Elemwise

from pymc_sgcv.engine.native import KEY

_SHIFT = 1.5 * 2.0**52
"""Added to a number it leaves the nearest integer in the last bits."""
_PER_LN2, _LN2_HIGH, _LN2_LOW = (
    1 / math.log(2),
    6.93147180369123816490e-1,
    1.90821492927058770002e-10,
)
_LEAST, _MOST = -708.0, 709.782712893384
_ROOT_HALF = np.int64(0x3FE6A09E667F3BCD)
_EXPONENT = np.int64(-(1 << 52))
_SMALLEST = 2.0**-1022


def _casting(source, target, llvm_type):
    @intrinsic
    def same_bits(typingctx, x):
        def codegen(context, builder, signature, args):
            return builder.bitcast(args[0], llvm_type)

        return target(source), codegen

    return same_bits


_bits = _casting(types.float64, types.int64, ir.IntType(64))
_number = _casting(types.int64, types.float64, ir.DoubleType())


def _plain(function: Callable) -> Callable:
    """Compiled as it is written: sums in this order, or the shift would be lost."""
    return numba_basic.numba_njit(
        function, fastmath={"contract"}, error_model="numpy", forceinline=True
    )


@_plain
def _exp(x):
    """2ᵏ eʳ with |r| ≤ log(2) / 2, by its series."""
    y = x if x > _LEAST else _LEAST
    y = y if y < _MOST else _MOST
    shifted = y * _PER_LN2 + _SHIFT
    k = shifted - _SHIFT
    r = (y - k * _LN2_HIGH) - k * _LN2_LOW
    p = 1 / 6227020800.0
    p = p * r + 1 / 479001600.0
    p = p * r + 1 / 39916800.0
    p = p * r + 1 / 3628800.0
    p = p * r + 1 / 362880.0
    p = p * r + 1 / 40320.0
    p = p * r + 1 / 5040.0
    p = p * r + 1 / 720.0
    p = p * r + 1 / 120.0
    p = p * r + 1 / 24.0
    p = p * r + 1 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    value = _number(_bits(p) + (_bits(shifted) << np.int64(52)))
    value = 0.0 if x < _LEAST else value
    value = np.inf if x > _MOST else value
    return value if x == x else x


@_plain
def _log(x):
    """K log 2 + log m with m between √½ and √2, as in Sun's fdlibm."""
    bits = _bits(x)
    above = bits - _ROOT_HALF
    m = _number(bits - (above & _EXPONENT))
    biased = (np.uint64(above) + np.uint64(1 << 63)) >> np.uint64(52)
    k = _number(np.int64(biased | np.uint64(0x4330000000000000))) - (2.0**52 + 2048.0)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    p = 1.479819860511658591e-1
    p = p * z + 1.531383769920937332e-1
    p = p * z + 1.818357216161805012e-1
    p = p * z + 2.222219843214978396e-1
    p = p * z + 2.857142874366239149e-1
    p = p * z + 3.999999999940941908e-1
    p = p * z + 6.666666666666735130e-1
    half = 0.5 * f * f
    value = k * _LN2_HIGH - ((half - (s * (half + p * z) + k * _LN2_LOW)) - f)
    value = -np.inf if x < _SMALLEST else value
    value = np.nan if x < 0.0 else value
    return value if x < np.inf else x


@_plain
def _log1p(x):
    """That of 1 + x, and what is lost in this sum."""
    u = 1.0 + x
    lost = (x - (u - 1.0)) / u
    return _log(u) + (lost if abs(lost) < 1.0 else 0.0)


@_plain
def _softplus(x):
    """Max(x, 0) + log (1 + y) with y = exp(-|x|), which is 2 artanh(s) with s = y / (2 + y).

    A polynomial in s² from 0 to 1/9 through the points of Chebyshev, off by 5 · 10⁻¹⁸.
    """
    y = _exp(-abs(x))
    s = y / (2.0 + y)
    z = s * s
    p = 0.08082040349078168
    p = p * z + 0.0440035966001441
    p = p * z + 0.060005386470067895
    p = p * z + 0.06657071814746554
    p = p * z + 0.07692785054825663
    p = p * z + 0.09090894717037587
    p = p * z + 0.11111111358740837
    p = p * z + 0.1428571428355403
    p = p * z + 0.20000000000007292
    p = p * z + 0.3333333333333333
    return (x if x > 0.0 else 0.0) + 2.0 * (s + s * z * p)


@_plain
def _sigmoid(x):
    """1 / (1 + e⁻ˣ)."""
    return 1.0 / (1.0 + _exp(-x))


class _Vector(UnaryScalarOp):
    """A function from above in the place of PyTensor's."""

    function: Callable
    usual: UnaryScalarOp

    def impl(self, x):
        """The same in Python."""
        return self.usual.impl(x)

    def c_code(self, *args, **kwargs):
        """There is none."""
        raise NotImplementedError


def _op(usual: type[UnaryScalarOp], function: Callable) -> Elemwise:
    name = f"Vector{usual.__name__}"
    attributes = {"function": staticmethod(function), "usual": usual(upgrade_to_float)}
    op = type(name, (_Vector,), attributes)
    key = f"pymc_sgcv {name} {KEY}"
    numba_basic.register_funcify_and_cache_key(op)(lambda op, node, **kwargs: (function, key))
    return Elemwise(op(upgrade_to_float, name=name))


_OPS = {
    Exp: _op(Exp, _exp),
    Log: _op(Log, _log),
    Log1p: _op(Log1p, _log1p),
    Softplus: _op(Softplus, _softplus),
    Sigmoid: _op(Sigmoid, _sigmoid),
}


@node_rewriter([Elemwise])
def _local_vector_math(fgraph, node):
    """Replace PyTensor's functions of double precision by those above."""
    op = _OPS.get(type(node.op.scalar_op))
    if op is None or node.inputs[0].type.dtype != "float64":
        return None
    return [op(node.inputs[0])]


def vector_mode(mode: str | Mode = "NUMBA") -> Mode:
    """PyTensor's numba mode with these functions, after all rewrites that know its own."""
    return get_mode(mode).register((dfs_rewriter(_local_vector_math), 48.2))
