# SPDX-License-Identifier: Apache-2.0
"""How far group effects are centred: by the data's share of what is known of each."""

from __future__ import annotations

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_sgcv.rows.coordinates import Coordinates
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.probes import colours, curvatures

_WIDTH = 0.5
"""Half the width of a difference, in prior standard deviations."""
_WIDEST = 3.0
"""Prior scales that the standard deviation of an effect may be."""
_DRAWS, _SMALL = 200, 0.02
"""τ is small at this quantile of so many draws."""


def information_shares(
    problem: Problem, coordinates: Coordinates, position: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """I / (I + 1/τ²) of every effect, I the information that the likelihood has on it at φ."""
    change = coordinates.change
    assert change is not None and coordinates.degree is not None
    tau = np.exp(coordinates.degree * change.log_scales(coordinates.place(position)))
    width, effects = np.ones(problem.size), np.zeros(problem.size, dtype=bool)
    for block in change.geometry.blocks:
        p = block.parameter
        width[p.start : p.stop] = _WIDTH * tau[block.start : block.stop]
        effects[p.start : p.stop] = True
    labels = colours(problem.target)

    def likelihood(points: np.ndarray) -> np.ndarray:
        return coordinates.turn(points, problem.likelihood_gradient(coordinates.place(points)))

    wanted = np.unique(labels[effects])
    information = curvatures(likelihood, position, labels, width, wanted, rng)
    shares = np.empty(change.geometry.size)
    for block in change.geometry.blocks:
        p, own = block.parameter, slice(block.start, block.stop)
        data = np.nan_to_num(np.maximum(information[p.start : p.stop], 0.0)) * tau[own] ** 2
        shares[own] = data / (1 + data)
    return shares


def widest(coordinates: Coordinates, position: np.ndarray, size: int) -> np.ndarray:
    """Standard deviations that no parameter has more of: of effects some times that of their prior.

    Where an effect with heavy tails is far out, the density is not concave along it, and curvature
    knows no scale.
    """
    most, change = np.full(size, np.inf), coordinates.change
    if change is not None and coordinates.degree is not None:
        own = np.exp(coordinates.degree * change.log_scales(coordinates.place(position)))
        for block in change.geometry.blocks:
            p = block.parameter
            most[p.start : p.stop] = _WIDEST * own[block.start : block.stop]
    return most


def best_degree(
    problem: Problem,
    coordinates: Coordinates,
    position: np.ndarray,
    draws: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """The data's share at φ = `position`, or where τ is small among `draws` if it is less there.

    An effect that is centred too far meets a funnel where τ is small; one that is centred too
    little meets a mild one where τ is large.
    """
    change = coordinates.change
    assert change is not None
    degree = information_shares(problem, coordinates, position, rng)
    some = draws[np.linspace(0, len(draws) - 1, min(_DRAWS, len(draws))).astype(int)]
    log_scales = np.stack([change.log_scales(theta) for theta in coordinates.place(some)])
    for block in change.geometry.blocks:
        own = slice(block.start, block.stop)
        order = np.argsort(log_scales[:, own].mean(1))
        low = some[order[int(_SMALL * len(order))]]
        there = information_shares(problem, coordinates, low, rng)[own]
        degree[own] = np.minimum(degree[own], there)
    return degree


def scale_parameters(coordinates: Coordinates, size: int) -> np.ndarray:
    """Which components of θ decide the scale of group effects: a mask.

    The joint density of effects and their scale has no useful mode in any of its coordinates. A
    search holds the scales; the pilot finds them.
    """
    held = np.zeros(size, dtype=bool)
    change = coordinates.change
    if change is not None:
        behind = set(ancestors(list(change.geometry.log_scale)))
        for value, p in zip(change.target.values, change.target.parameters, strict=True):
            held[p.start : p.stop] = value in behind
    return held
