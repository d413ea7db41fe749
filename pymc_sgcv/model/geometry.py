# SPDX-License-Identifier: Apache-2.0
"""Coordinates of the sampler's own for group effects: partially centred, by an exact bijection.

Effects u = μ + τ z are moved as w, with a degree 0 ≤ λ ≤ 1 for each (Gorinova, Moore & Hoffman
2020; Papaspiliopoulos, Roberts & Sköld 2003):

    u = μ + τ^(1−λ) (w − λμ),        w ~ N(λμ, τ^λ) a priori.

λ = 1 is the centred form, where w is u; λ = 0 the non-centred one, where w is z. Both are slow
somewhere: w depends on τ a priori in the former and a posteriori in the latter. The best λ is the
share of what is known of u that the data tell. It is chosen per effect and whichever way the
user has written the model; the posterior is the same whatever it is.

θ, the user's value variables, are functions θ(φ) of the sampler's coordinates φ. Gradients and
draws stay in terms of θ. Only the dynamics move φ, by ∇_φ = (∂θ/∂φ)ᵀ ∇_θ + ∇_φ log |∂θ/∂φ|.
"""

from __future__ import annotations

from dataclasses import dataclass

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.model.effects import Effect, find_effects
from pymc_sgcv.model.graph import name_of
from pymc_sgcv.model.target import Parameter, Target

DEGREE = "degree"
"""Name of the input that holds λ."""


@dataclass(frozen=True)
class Block:
    """The effects of one value variable: its place in θ and in the vector of degrees."""

    effect: Effect
    parameter: Parameter
    start: int
    stop: int


@dataclass(frozen=True)
class Geometry:
    """Graphs of θ(φ), in which the value variables stand for φ.

    Attributes
    ----------
    blocks
        The group effects, parents first.
    degree
        λ, one for each effect of all blocks: an input.
    theta, phi
        θ as functions of φ and φ as functions of θ, by value variable, where they are not the same.
    log_volume
        log |∂θ/∂φ|.
    location, log_scale, mixing
        μ, log τ and L of each block as functions of θ; μ and log τ shaped like the value variable.
    """

    blocks: tuple[Block, ...]
    degree: TensorVariable
    theta: dict[TensorVariable, TensorVariable]
    phi: dict[TensorVariable, TensorVariable]
    log_volume: TensorVariable
    location: tuple[TensorVariable, ...]
    log_scale: tuple[TensorVariable, ...]
    mixing: tuple[TensorVariable | None, ...]

    @property
    def size(self) -> int:
        """How many effects there are."""
        return self.blocks[-1].stop


def find_geometry(target: Target) -> Geometry | None:
    """Coordinates for the group effects of a model; None if it has none."""
    by_name = {p.name: p for p in target.parameters}
    sizes = {v: by_name[name_of(v)].stop - by_name[name_of(v)].start for v in target.values}
    effects = find_effects(target.model, sizes)
    if not effects or target.others:
        return None
    degree, blocks, first = pt.vector(DEGREE), [], 0
    for effect in effects:
        parameter = by_name[name_of(effect.value)]
        last = first + parameter.stop - parameter.start
        blocks.append(Block(effect, parameter, first, last))
        first = last
    theta: dict[TensorVariable, TensorVariable] = {}
    phi: dict[TensorVariable, TensorVariable] = {}
    volume, of_theta = pt.constant(0.0), []
    for block in blocks:
        graphs = _in_values(target.model, block)
        of_theta.append(graphs)
        location, log_scale, mixing = _replaced(graphs, theta)
        own = degree[block.start : block.stop].reshape(block.parameter.shape)
        theta[block.effect.value], change = _partially_centred(
            block.effect, own, location, log_scale, mixing
        )
        phi[block.effect.value] = _moved(block.effect, own, *graphs)
        volume = volume + change
    location, log_scale, mixing = zip(*of_theta, strict=True)
    return Geometry(tuple(blocks), degree, theta, phi, volume, location, log_scale, mixing)


def _in_values(model: pm.Model, block: Block) -> tuple:
    """μ, log τ and L as graphs of value variables, the former two in the shape of the effects."""
    effect, like = block.effect, pt.zeros(block.parameter.shape)
    graphs = [effect.location + like, pt.log(effect.scale) + like]
    if effect.mixing is not None:
        graphs.append(effect.mixing)
    location, log_scale, *mixing = model.replace_rvs_by_values(graphs)
    return location, log_scale, mixing[0] if mixing else None


def _replaced(graphs: tuple, theta: dict) -> tuple:
    """Graphs of θ as graphs of φ."""
    present = [graph for graph in graphs if graph is not None]
    if theta:
        present = clone_replace(present, theta)
    return tuple(present) if len(present) == 3 else (*present, None)


def _partially_centred(
    effect: Effect,
    degree: TensorVariable,
    location: TensorVariable,
    log_scale: TensorVariable,
    mixing: TensorVariable | None,
) -> tuple[TensorVariable, TensorVariable]:
    """The value variable as a function of w, and the logarithm of the volume's change."""
    w = effect.value - degree * location
    if not effect.offset:  # u
        return location + pt.exp((1 - degree) * log_scale) * w, ((1 - degree) * log_scale).sum()
    if mixing is None:  # z = (u − μ) / τ
        return pt.exp(-degree * log_scale) * w, -(degree * log_scale).sum()
    deviation = pt.exp((1 - degree) * log_scale) * w  # z = L⁻¹ (u − μ)
    groups = deviation.shape[1] if effect.columns else deviation.shape[0]
    volume = -groups * pt.log(pt.abs(pt.linalg.det(mixing)))
    solved = pt.linalg.solve(mixing, deviation if effect.columns else deviation.T)
    z = solved if effect.columns else solved.T
    return z, ((1 - degree) * log_scale).sum() + volume


def _moved(
    effect: Effect,
    degree: TensorVariable,
    location: TensorVariable,
    log_scale: TensorVariable,
    mixing: TensorVariable | None,
) -> TensorVariable:
    """W as a function of θ: the inverse of the above."""
    value = effect.value
    if not effect.offset:
        deviation = pt.exp((degree - 1) * log_scale) * (value - location)
    elif mixing is None:
        deviation = pt.exp(degree * log_scale) * value
    else:
        deviation = mixing @ value if effect.columns else value @ mixing.T
        deviation = pt.exp((degree - 1) * log_scale) * deviation
    return deviation + degree * location
