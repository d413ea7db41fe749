# SPDX-License-Identifier: Apache-2.0
"""Addresses and calls through them, inside numba code.

The compiled gradient of a model is reached by its address, with a C signature that is the same for
every model. So the sampling loop does not depend on the model: it is compiled once, cached on disk,
and no model ever waits for it again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

from pymc_sgcv.engine.whole import Whole

_SOURCES = (
    "engine/native",
    "engine/whole",
    "engine/xoshiro",
    "engine/row_products",
    "engine/vector_math",
    "engine/products",
    "rows/alias",
    "rows/minibatch",
    "rows/sample",
    "rows/terms",
    "kernel/estimators",
    "kernel/frame",
    "kernel/forms",
    "kernel/dynamics",
    "kernel/loop",
    "setup/optimizers",
    "lda/gibbs",
)
_PACKAGE = Path(__file__).parents[1]
KEY = sha256(
    b"".join((_PACKAGE / f"{name}.py").read_bytes() for name in _SOURCES)
    + numba.__version__.encode()
).hexdigest()
"""Changes with the source of anything compiled here, and with numba."""

# The `_dispose` that frees llvmlite's pass managers stands behind one that does nothing in their
# order of inheritance (0.47 and 0.50), so each compilation leaves its own behind: 21 MB for the
# gradient of a regression. Put it in front.
for _manager in (llvm.ModulePassManager, llvm.FunctionPassManager):
    if _manager._dispose is llvm.ffi.ObjectRef._dispose:
        _manager._dispose = llvm.NewPassManager._dispose

# Numba fills its registries before it compiles or loads anything: 40 MB, once per process. That is
# done here, so that what a model takes of memory is the model's alone.
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()

_KEPT: list = []
"""C functions that compiled code may call at any time."""
ARGUMENTS = types.intp, types.intp, types.intp, types.intp, types.intp, types.intp, types.intp
"""points, number of points, weights, argument table, first row, number of rows, output."""


def compiled(function: Callable) -> Callable:
    """Compile for use without the GIL, cached on disk beside PyTensor's own numba functions.

    Numba's own cache looks at one file only; here a change in any of `_SOURCES` makes it afresh.
    """
    CACHED_SRC_FUNCTIONS[function] = sha256(f"{KEY}{function.__qualname__}".encode()).hexdigest()
    dispatcher = Whole(function, targetoptions={"nopython": True, "nogil": True})
    dispatcher.enable_caching()
    return dispatcher


@cache
def external(function: Callable, n_arguments: int) -> types.ExternalFunction:
    """A C function of addresses and lengths that compiled code calls by name; sums in any order.

    Code that calls it neither contains it nor is compiled with it: once on a machine is enough.
    """
    key = sha256(f"{KEY}{function.__qualname__}".encode()).hexdigest()
    CACHED_SRC_FUNCTIONS[function] = key
    signature = types.void(*[types.intp] * n_arguments)
    compiles = numba.cfunc(signature, cache=True, fastmath={"contract", "nsz", "reassoc"})
    made = compiles(function)
    symbol = f"sgcv_{function.__name__}_{key[:16]}"
    llvm.add_symbol(symbol, made.address)
    _KEPT.append(made)
    return types.ExternalFunction(symbol, signature)


@compiled
def put(values, target):
    """Copy a vector; a plain loop compiles faster than an array assignment."""
    for j in range(len(target)):
        target[j] = values[j]


@compiled
def clear(target):
    """Fill a vector with zeros."""
    for j in range(len(target)):
        target[j] = 0.0


@compiled
def add(values, target):
    """Add a vector to another one; an array expression would compile numpy's error messages too."""
    for j in range(len(target)):
        target[j] += values[j]


@intrinsic
def pointer(typingctx, address):
    """The address as a pointer, for ``numba.carray``."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.intp), codegen


@intrinsic
def call(typingctx, function, thetas, m, weights, arguments, start, n, out):
    """Call the gradient at address `function`; it adds to the (m, d) array at address `out`."""

    def codegen(context, builder, signature, args):
        word = context.get_value_type(types.intp)
        kind = ir.FunctionType(ir.VoidType(), [word] * len(ARGUMENTS))
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(types.intp, *ARGUMENTS), codegen


@intrinsic
def prefetch(typingctx, address):
    """Ask the processor to bring the cache line at `address` closer."""

    def codegen(context, builder, signature, args):
        byte, flag = cgutils.voidptr_t, ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(flag, value) for value in (0, 2, 1))
        builder.call(function, [builder.inttoptr(args[0], byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@compiled
def call_at(function, points, weights, table, out):
    """Call a function of θ at each of `points`, with the row of `weights` that belongs to it."""
    d = points.shape[1]
    for i in range(len(points)):
        own = weights[min(i, len(weights) - 1)].ctypes.data
        call(function, points[i].ctypes.data, 1, own, table, 0, d, out[i].ctypes.data)
