# SPDX-License-Identifier: Apache-2.0
"""Group effects: variables with a location and a scale that other variables decide.

Effects u = μ + τ z with z ~ N(0, 1) are declared centred, ``u = Normal("u", mu, tau)``, or not,
``z = Normal("z", 0, 1)`` and ``mu + tau * z``; with a Cholesky factor in place of τ where several
effects of a group are correlated. Either way a sampler that moves them together with τ meets a
funnel in one of the two forms, so it moves in coordinates of its own (`pymc_sgcv.model.geometry`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pymc.distributions.multivariate import MvNormalRV, ZeroSumNormalRV
from pymc.distributions.transforms import Interval
from pymc.logprob.transforms import LogTransform
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as scalar
from pytensor.scalar.math import Softplus
from pytensor.tensor import subtensor
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.model.graph import name_of
from pymc_sgcv.model.start import PYTHON, initial_point

_LOCATION_SCALE = {
    "normal": (0, 1),
    "t": (1, 2),
    "laplace": (0, 1),
    "logistic": (0, 1),
    "cauchy": (0, 1),
    "gumbel": (0, 1),
}
"""Where location and scale stand among the parameters of a random variable, by its op's name."""
_VIEWS = (
    *(ViewOp, Reshape, SpecifyShape, DimShuffle, subtensor.Subtensor, subtensor.AdvancedSubtensor),
    *([subtensor.AdvancedSubtensor1] if hasattr(subtensor, "AdvancedSubtensor1") else []),
)
_POSITIVE = scalar.Exp, scalar.Sqrt, scalar.Sqr, scalar.Abs, Softplus
_KEEP_SIGN = scalar.Mul, scalar.TrueDiv, scalar.Add, scalar.Cast, scalar.Identity
_Uses: TypeAlias = dict[Variable, list[Apply]]
_Sizes: TypeAlias = Mapping[TensorVariable, int]


@dataclass(frozen=True, eq=False)
class Effect:
    """A value variable that belongs to effects u = μ + τ z.

    Attributes
    ----------
    value
        The value variable: u itself, or z.
    location, scale
        μ and τ as graphs of the model's variables; of correlated effects the standard deviations.
    offset
        Whether `value` is z (declared non-centred).
    mixing
        L with u = μ + L z, for correlated effects declared non-centred; z has the effects of a
        group along its last axis, or along the first if `columns`.
    """

    value: TensorVariable
    location: TensorVariable
    scale: TensorVariable
    offset: bool
    mixing: TensorVariable | None = None
    columns: bool = False


def find_effects(model: pm.Model, sizes: _Sizes) -> list[Effect]:
    """The group effects among value variables of given sizes, parents first."""
    uses, found = _uses(model), []
    for value, size in sizes.items():
        rv = model.values_to_rvs[value]
        if size > 1:
            effect = _centred(model, rv, value) or _offset(model, rv, value, uses, sizes)
            if effect is not None and not _sees_rows(effect):
                found.append(effect)
    return _parents_first(model, found)


def _centred(model: pm.Model, rv: Variable, value: TensorVariable) -> Effect | None:
    """Declared with a location and a scale of which the latter is random."""
    op = rv.owner.op
    location: Variable
    scale: Variable
    if isinstance(op, ZeroSumNormalRV):  # its transform leaves independent normals
        location, scale = pt.zeros(()), rv.owner.inputs[2]
    elif model.rvs_to_transforms.get(rv) is not None:
        return None
    elif isinstance(op, MvNormalRV):
        location, covariance = op.dist_params(rv.owner)
        scale = pt.sqrt(pt.diagonal(covariance, axis1=-2, axis2=-1))
    elif isinstance(op, RandomVariable) and op.name in _LOCATION_SCALE:
        parameters = op.dist_params(rv.owner)
        location, scale = (parameters[i] for i in _LOCATION_SCALE[op.name])
    else:
        return None
    if not _random(model, scale):
        return None
    location, scale = pt.as_tensor_variable(location), pt.as_tensor_variable(scale)
    return Effect(value, location, scale, offset=False)


def _offset(
    model: pm.Model, rv: Variable, value: TensorVariable, uses: _Uses, sizes: _Sizes
) -> Effect | None:
    """Declared as a standard variable that is multiplied by a random scale."""
    op = rv.owner.op
    if model.rvs_to_transforms.get(rv) is not None or not isinstance(op, RandomVariable):
        return None
    if op.name not in _LOCATION_SCALE or any(_random(model, p) for p in op.dist_params(rv.owner)):
        return None
    for node, own in _multiplications(rv, uses):
        others = [v for v in node.inputs if v is not own]
        if len(others) != 1 or not _random(model, others[0]):
            continue
        other, product = pt.as_tensor_variable(others[0]), node.outputs[0]
        if _scalar_op(node, scalar.TrueDiv):
            other = 1.0 / other
        core = node.op.core_op if isinstance(node.op, Blockwise) else node.op
        if isinstance(core, Dot):
            if own is rv and rv.type.ndim == 2 and other.type.ndim == 2:
                columns = node.inputs[1] is own
                mixing = other if columns else other.T
                if not _is_triangular(model, mixing):
                    continue
                scale = pt.sqrt((mixing**2).sum(axis=1))
                scale = scale[:, None] if columns else scale
                location = _location(model, rv, product, uses, sizes)
                return Effect(value, location, scale, True, mixing, columns)
        elif _positive(model, other) and (own is rv or all(other.type.broadcastable)):
            location = pt.zeros(())
            if own is rv:
                location = _location(model, rv, product, uses, sizes)
            else:
                other = other.reshape((1,) * rv.type.ndim)
            return Effect(value, location, other, offset=True)
    return None


def _uses(model: pm.Model) -> _Uses:
    """Who takes each variable of the model as an input."""
    ends = [*model.free_RVs, *model.observed_RVs, *model.potentials, *model.deterministics]
    uses: _Uses = {}
    for node in dict.fromkeys(v.owner for v in ancestors(ends) if v.owner is not None):
        for variable in dict.fromkeys(node.inputs):
            uses.setdefault(variable, []).append(node)
    return uses


def _multiplications(rv: Variable, uses: _Uses) -> Iterator[tuple[Apply, Variable]]:
    """Products and quotients that a variable, or a view of it, is a factor of; and that factor."""
    waiting = [rv]
    while waiting:
        variable = waiting.pop()
        for node in uses.get(variable, []):
            core = node.op.core_op if isinstance(node.op, Blockwise) else node.op
            is_product = isinstance(core, Dot) or _scalar_op(node, scalar.Mul)
            if is_product or (_scalar_op(node, scalar.TrueDiv) and node.inputs[0] is variable):
                yield node, variable
            elif isinstance(node.op, _VIEWS) and node.inputs[0] is variable:
                waiting.append(node.outputs[0])


def _location(
    model: pm.Model, rv: Variable, product: Variable, uses: _Uses, sizes: _Sizes
) -> TensorVariable:
    """What is added to the product before it is indexed, of variables smaller than the effects."""
    waiting = [product]
    own = model.rvs_to_values[rv]
    while waiting:
        variable = waiting.pop()
        for node in uses.get(variable, []):
            if isinstance(node.op, ViewOp) or _scalar_op(node, scalar.Identity):
                waiting.append(node.outputs[0])
            elif _scalar_op(node, scalar.Add) and node.outputs[0].type.ndim == product.type.ndim:
                if node.outputs[0].type.shape != product.type.shape:
                    continue
                terms = [v for v in node.inputs if v is not variable]
                small = [v for v in terms if _random(model, v) and _smaller(model, v, own, sizes)]
                if small:
                    return pt.as_tensor_variable(pt.add(0.0, *small))
                waiting.append(node.outputs[0])
    return pt.zeros(())


def _smaller(model: pm.Model, variable: Variable, than: TensorVariable, sizes: _Sizes) -> bool:
    """Whether all free variables behind `variable` are smaller than another."""
    behind = set(ancestors([variable])) & set(model.free_RVs)
    return all(sizes.get(model.rvs_to_values[rv], np.inf) < sizes[than] for rv in behind)


def _random(model: pm.Model, variable: Variable) -> bool:
    return bool(set(ancestors([variable])) & set(model.free_RVs))


def _scalar_op(node: Apply, kind: type | tuple[type, ...]) -> bool:
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, kind)


def _positive(model: pm.Model, variable: Variable) -> bool:
    """Whether a variable is positive for sure, as its graph shows."""
    if isinstance(variable, Constant):
        return bool(np.all(np.asarray(variable.data) > 0))
    if variable in model.free_RVs:
        transform = model.rvs_to_transforms.get(variable)
        if isinstance(transform, Interval):
            lower, _ = transform.args_fn(*variable.owner.inputs)
            lower = lower.data if isinstance(lower, Constant) else lower
            known = lower is not None and not isinstance(lower, Variable)
            return known and bool(np.all(np.asarray(lower) >= 0))
        return isinstance(transform, LogTransform)
    node = variable.owner
    if node is None:
        return False
    if _scalar_op(node, _POSITIVE):
        return True
    if _scalar_op(node, _KEEP_SIGN):
        return all(_positive(model, v) for v in node.inputs)
    if isinstance(node.op, _VIEWS) or _scalar_op(node, scalar.Pow):
        return _positive(model, node.inputs[0])
    return False


def _is_triangular(model: pm.Model, mixing: TensorVariable) -> bool:
    """Whether a matrix is a Cholesky factor, or its transpose, wherever the parameters are.

    Seen at a random point: what else is multiplied with effects, such as the other factor of a
    matrix factorisation, has no inverse or one that is not always there.
    """
    rng, point = np.random.default_rng(0), initial_point(model)
    for value in model.continuous_value_vars:
        start = point[name_of(value)]
        point[name_of(value)] = np.asarray(start + rng.normal(size=start.shape), value.dtype)
    [graph] = model.replace_rvs_by_values([mixing])
    values = list(model.value_vars)
    L = model.compile_fn(graph, inputs=values, mode=PYTHON, on_unused_input="ignore")(point)
    if L.shape[0] != L.shape[1] or not (np.diag(L) > 0).all():
        return False
    return bool((np.tril(L) == L).all() or (np.triu(L) == L).all())


def _sees_rows(effect: Effect) -> bool:
    """Whether location or scale come from a minibatch."""
    graphs = [effect.location, effect.scale] + ([] if effect.mixing is None else [effect.mixing])
    nodes = (v.owner for v in ancestors(graphs) if v.owner is not None)
    return any(isinstance(node.op, MinibatchOp) for node in nodes)


def _parents_first(model: pm.Model, effects: list[Effect]) -> list[Effect]:
    """In an order in which location and scale depend on earlier effects only."""
    rvs = {model.values_to_rvs[effect.value]: effect for effect in effects}
    ordered: list[Effect] = []

    def visit(effect: Effect, path: tuple[Effect, ...]) -> bool:
        if effect in ordered:
            return True
        if effect in path:
            return False
        graphs = [effect.location, effect.scale]
        behind = [rvs[v] for v in ancestors(graphs) if v in rvs and rvs[v] is not effect]
        fine = all(visit(parent, (*path, effect)) for parent in dict.fromkeys(behind))
        if fine and effect not in ordered:
            ordered.append(effect)
        return fine

    for effect in effects:
        visit(effect, ())
    return ordered
