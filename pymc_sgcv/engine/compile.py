# SPDX-License-Identifier: Apache-2.0
"""PyTensor → numba: the gradients of a `Target` as compiled C functions of (θ, weights, rows).

Data are always arguments. A likelihood gradient takes the rows it is to sum over, so the same
compiled function serves a minibatch, one row, a chunk of a full pass and all the data.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
from numba import types
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS, compile_numba_function_src
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.engine.hypergeometric import without_logarithms
from pymc_sgcv.engine.logits import without_division
from pymc_sgcv.engine.native import ARGUMENTS, KEY, add, pointer
from pymc_sgcv.engine.progress import compiling
from pymc_sgcv.engine.row_products import cast_mode, product_mode
from pymc_sgcv.engine.vector_math import vector_mode
from pymc_sgcv.engine.whole import whole
from pymc_sgcv.model.geometry import DEGREE, Geometry
from pymc_sgcv.model.graph import value_of
from pymc_sgcv.model.target import Plate, Target

_LARGE_CONSTANT = 1_000
"""Constants with more elements than this become arguments (PyTensor hashes and embeds the rest)."""


@dataclass(frozen=True)
class Gradient:
    """A compiled gradient with the C signature of `pymc_sgcv.engine.native.call`.

    It adds the gradient of Σ wᵢ ℓᵢ at m points over n rows to an (m, d) array. `fixed` are the
    variables whose values follow the rows in its argument table; `stacked` says whether many points
    cost little more than one.
    """

    address: int
    row_types: tuple[TensorType, ...]
    fixed: tuple[Variable, ...]
    keep_alive: object
    stacked: bool = False

    def arguments(self, rows: Sequence[np.ndarray], fixed: Sequence[np.ndarray]) -> np.ndarray:
        """The argument table: addresses, row bytes and trailing shapes; shapes of the rest."""
        table: list[int] = []
        for array in rows:
            table += [array.ctypes.data, *array.strides[:1], *array.shape[1:]]
        for array in fixed:
            table += [array.ctypes.data, *array.shape]
        return np.array(table, dtype=np.intp)

    def fixed_values(self, point: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Present values of the fixed arguments: data, and variables sampled by other steps."""
        return _values_of(self.fixed, point)


@dataclass(frozen=True)
class Functions:
    """The compiled gradients of a target: of ℓ₀ (a gradient without rows) and of every plate."""

    prior: Gradient
    plates: tuple[Gradient, ...]


def compile_target(target: Target, compile_kwargs: dict | None = None) -> Functions:
    """Compile the gradient of ℓ₀ and of every plate of `target`.

    `compile_kwargs` are passed on to ``pytensor.function``.
    """
    kwargs = {"mode": "NUMBA", **(compile_kwargs or {})}
    compiling("the gradient of the prior")
    prior = _compile(target, _flat_gradient(target, target.prior), (), (), False, kwargs)
    plates = tuple(compile_plate(target, plate, compile_kwargs) for plate in target.plates)
    compiling("")
    gc.collect()  # what compilation leaves behind waits in cycles for a collection
    return Functions(prior, plates)


def compile_plate(target: Target, plate: Plate, compile_kwargs: dict | None = None) -> Gradient:
    """Compile the gradient of Σ wᵢ ℓᵢ over rows of one plate."""
    kwargs = {"mode": "NUMBA", **(compile_kwargs or {})}
    compiling(f"the gradient of {plate.name}")
    weights = pt.vector("weights")
    slope = _flat_gradient(target, pt.sum(weights * plate.loglike))
    return _compile(target, slope, (weights,), plate.rows, _multiplies_rows(plate), kwargs)


def compile_geometry(
    target: Target, geometry: Geometry, compile_kwargs: dict | None = None
) -> tuple[Gradient, Gradient, Gradient]:
    """Compile θ(φ), (∂θ/∂φ)ᵀ g + ∇ log |∂θ/∂φ|, and (∂φ/∂θ)ᵀ g as functions of φ, φ and θ.

    g stands in the place of rows' weights.
    """
    compiling("the coordinates of group effects")
    kwargs = {"mode": "NUMBA", **(compile_kwargs or {})}
    theta = _joined([geometry.theta.get(value, value) for value in target.values])
    gradient = pt.vector("gradient", shape=(target.size,))
    phi = _joined([geometry.phi.get(value, value) for value in target.values])
    pulled = _flat_gradient(target, (theta * gradient).sum() + geometry.log_volume)
    pushed = _flat_gradient(target, (phi * gradient).sum())
    compiled = (
        _compile(target, theta, (), (), False, kwargs),
        _compile(target, pulled, (gradient,), (), False, kwargs),
        _compile(target, pushed, (gradient,), (), False, kwargs),
    )
    compiling("")
    return compiled


def compile_row_terms(target: Target, plate: Plate, compile_kwargs: dict | None = None) -> Gradient:
    """The log-likelihood ℓᵢ of each row at m points, added to an (m, rows) array.

    With the signature of a gradient, but that the output is as long as the rows.
    """
    kwargs = {"mode": "NUMBA", **(compile_kwargs or {})}
    kwargs["mode"] = vector_mode(cast_mode(kwargs["mode"]))
    terms = without_division(plate.loglike.astype("float64"))
    return _compile(target, terms, (), plate.rows, _multiplies_rows(plate), kwargs, by_row=True)


def _values_of(fixed: Sequence[Variable], point: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Present values of fixed arguments: data, and variables sampled by other steps."""
    values = [point[v.name] if v.name in point else value_of(v) for v in fixed]
    return [
        np.ascontiguousarray(value, dtype=v.type.dtype).reshape(np.shape(value))
        for v, value in zip(fixed, values, strict=True)
    ]


def _compile(
    target: Target,
    graph: TensorVariable,
    weights: tuple[TensorVariable, ...],
    rows: tuple[TensorVariable, ...],
    stacked: bool,
    kwargs: dict,
    by_row: bool = False,
) -> Gradient:
    """Compile a vector that depends on θ: as long as θ, or as the rows."""
    graph, inputs, fixed = _free_of_data(target, graph, {*weights, *rows})
    theta = pt.vector("theta", shape=(target.size,))
    graph = _on_flat_vector(target, graph, theta)
    kwargs = {**kwargs, "mode": product_mode(kwargs["mode"], stacked)}
    if stacked:  # one pass over the rows for all points
        points = pt.matrix("points", shape=(None, target.size))
        stack = vectorize_graph(graph, {theta: points})
        graph, theta = cast(TensorVariable, stack), points
    jit, key = _jit([theta, *weights, *rows, *inputs], graph, kwargs)
    row_types = tuple(row.type for row in rows)
    length = "n" if by_row else str(target.size)
    source = _wrapper_source(target.size, length, stacked, bool(weights), row_types, inputs)
    function = _compile_wrapper(source, jit, key)
    return Gradient(function.address, row_types, fixed, function, stacked)


def _multiplies_rows(plate: Plate) -> bool:
    """Whether a matrix of data is multiplied with a vector of parameters: memory traffic dominates.

    Not so with a matrix of parameters, as of categories. Two points at once are then as slow as one
    after the other, and take twice as long to compile.
    """
    matrices = {row for row in plate.rows if row.type.ndim > 1}
    for variable in ancestors([plate.loglike]):
        op = getattr(variable.owner, "op", None)
        core = op.core_op if isinstance(op, Blockwise) else op
        if isinstance(core, Dot) and matrices & set(ancestors(variable.owner.inputs)):
            if variable.type.ndim == 1 or 1 in variable.type.shape:
                return True
    return False


def _flat_gradient(target: Target, cost: TensorVariable) -> TensorVariable:
    cost = without_division(cost)
    parts = pt.grad(cost, list(target.values), disconnected_inputs="ignore")
    return without_logarithms(_joined(cast(list[TensorVariable], parts)))


def _joined(parts: Sequence[TensorVariable]) -> TensorVariable:
    return pt.concatenate([part.ravel().astype("float64") for part in parts])


def _on_flat_vector(target: Target, graph: TensorVariable, theta: TensorVariable) -> TensorVariable:
    """Express `graph` in the flat vector θ instead of the separate value variables."""
    pieces: dict[Variable, Variable] = {
        value: theta[p.start : p.stop].reshape(p.shape).astype(value.dtype)
        for value, p in zip(target.values, target.parameters, strict=True)
    }
    return cast(TensorVariable, clone_replace([graph], pieces, rebuild_strict=False)[0])


def _free_of_data(
    target: Target, graph: TensorVariable, inputs: set[TensorVariable]
) -> tuple[TensorVariable, list[Variable], tuple[Variable, ...]]:
    """Turn shared variables, large constants and other steps' variables into inputs."""
    known = {*target.values, *inputs}
    roots = [v for v in dict.fromkeys(ancestors([graph])) if v.owner is None and v not in known]
    found = [v for v in roots if v in target.others or v.name == DEGREE or _is_argument(v)]
    stand_in = [v.type() for v in found]
    if found:
        [freed] = clone_replace([graph], dict(zip(found, stand_in, strict=True)))
        graph = cast(TensorVariable, freed)
    return graph, stand_in, tuple(found)


def _is_argument(variable: Variable) -> bool:
    if isinstance(variable.type, RandomType):
        return False
    if isinstance(variable, SharedVariable):
        return True
    return isinstance(variable, Constant) and np.size(variable.data) > _LARGE_CONSTANT


def _jit(
    inputs: Sequence[Variable], output: TensorVariable, kwargs: dict
) -> tuple[Callable, str | None]:
    """The numba dispatcher inside a PyTensor function, and PyTensor's key of it if it is cached.

    What PyTensor calls from Python hands its arguments on to the compiled graph and does nothing
    else. The graph itself is returned, so that the other need not be compiled too.
    """
    function = pytensor.function(
        list(inputs), [output], on_unused_input="ignore", trust_input=True, **kwargs
    )
    try:
        outer = function.vm.jit_fn.py_func
    except AttributeError:
        raise ValueError(
            "compile_kwargs must keep PyTensor's numba mode: the sampling loop is compiled with it."
        ) from None
    graph = outer.__globals__.get("jitable_func", function.vm.jit_fn)
    return graph, CACHED_SRC_FUNCTIONS.get(outer)


def _wrapper_source(
    d: int,
    length: str,
    stacked: bool,
    weighted: bool,
    row_types: Sequence[TensorType],
    inputs: Sequence[Variable],
) -> str:
    """Python source of the C function around the compiled gradient: addresses to arrays."""
    lines, names, place = [], ["weights"] if weighted else [], 0
    for i, kind in enumerate(row_types):
        lengths = [f"table[{place + 1 + axis}]" for axis in range(1, kind.ndim)]
        shape = ", ".join(["n", *lengths])
        address = f"pointer(table[{place}] + start * table[{place + 1}])"
        lines.append(f"row_{i} = carray({address}, ({shape},), np.{_numpy_name(kind)})")
        names.append(f"row_{i}")
        place += 1 + kind.ndim
    for i, variable in enumerate(inputs):
        kind = variable.type
        lengths = [f"table[{place + 1 + axis}]" for axis in range(kind.ndim)]
        shape = ", ".join(lengths) + "," if lengths else "1,"
        array = f"carray(pointer(table[{place}]), ({shape}), np.{_numpy_name(kind)})"
        lines.append(f"fixed_{i} = {array if lengths else f'np.asarray({array}[0])'}")
        names.append(f"fixed_{i}")
        place += 1 + kind.ndim
    call = ", ".join(["{points}", *names])
    if stacked:
        body = [f"add(jit({call.format(points='thetas')})[0].ravel(), total.ravel())"]
    else:
        body = [
            "for i in range(m):",
            f"    add(jit({call.format(points='thetas[i]')})[0], total[i])",
        ]
    return _WRAPPER.format(
        d=d,
        width=length,
        length=max(place, 1),
        weights="carray(pointer(weights_at), (n,), np.float64)" if weighted else "0",
        unpack="\n    ".join(lines) or "pass",
        body="\n        ".join(body),
    )


_WRAPPER = """
def gradient(thetas_at, m, weights_at, table_at, start, n, out_at):
    thetas = carray(pointer(thetas_at), (m, {d}), np.float64)
    total = carray(pointer(out_at), (m, {width}), np.float64)
    table = carray(pointer(table_at), ({length},), np.intp)
    weights = {weights}
    {unpack}
    try:
        {body}
    except Exception:  # a failed check of a parameter: the loop stops on what is not finite
        for i in range(m):
            for j in range({width}):
                total[i, j] = np.nan
"""


def _numpy_name(kind: TensorType) -> str:
    return "bool_" if kind.dtype == "bool" else kind.dtype


def _compile_wrapper(source: str, jit: Callable, key: str | None) -> Any:
    """Compile the C function, cached on disk beside PyTensor's own numba functions."""
    if key is not None:
        key = sha256(f"{source}{key}{KEY}".encode()).hexdigest()
    names = {"np": np, "carray": numba.carray, "pointer": pointer, "add": add, "jit": jit}
    function = compile_numba_function_src(
        source, "gradient", {"__name__": __name__, **names}, cache_key=key
    )
    compiles = numba.cfunc(types.void(*ARGUMENTS), cache=key is not None)
    with warnings.catch_warnings():  # about layouts inside PyTensor's code: not the user's to mend
        warnings.simplefilter("ignore", numba.NumbaPerformanceWarning)
        with whole(function):
            made = compiles(function)
    if made.cache_hits:
        return made
    if key is not None:  # run what all later processes will load, not what was compiled
        with whole(function):
            made = compiles(function)
    return made
