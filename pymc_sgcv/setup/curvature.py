# SPDX-License-Identifier: Apache-2.0
"""The posterior's scale and shape at a point, from differences of gradients alone.

Differences are taken over about one posterior standard deviation, not over an infinitesimal step:
what is found is the curvature that a sampler meets, also for priors with a kink (Laplace) and along
directions that only the prior identifies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.linalg import eigh

from pymc_sgcv.kernel.preconditioners import Preconditioner

_Gradients: TypeAlias = Callable[[np.ndarray], np.ndarray]
LONGEST = 1e6
SHORTEST = 1e-9


def coordinate_scales(
    gradient: _Gradients,
    point: np.ndarray,
    start: np.ndarray | float = 1.0,
    rounds: int = 12,
) -> np.ndarray:
    """Conditional posterior standard deviation of each coordinate at `point`.

    Solves u·[gⱼ(θ − u eⱼ) − gⱼ(θ + u eⱼ)]/2 = 1 for u, which for a Gaussian is the conditional
    standard deviation, by fixed-point rounds over all coordinates at once.
    """
    return _scales_along(
        gradient, point, np.eye(len(point)), np.broadcast_to(start, point.shape), rounds
    )


def _scales_along(
    gradient: _Gradients,
    point: np.ndarray,
    directions: np.ndarray,
    start: np.ndarray,
    rounds: int = 12,
) -> np.ndarray:
    """The same along each row of `directions`."""
    u, open_ = np.array(start, dtype=float), np.arange(len(directions))
    for _ in range(rounds):
        curvature = u[open_] * _slopes(gradient, point, directions[open_], u[open_])
        grow = np.where(curvature > 0, 1 / np.sqrt(np.maximum(curvature, 1e-12)), 3.0)
        grow = np.where(np.isfinite(curvature), np.clip(grow, 1e-3, 10.0), 0.1)
        u[open_] = np.clip(u[open_] * grow, SHORTEST, LONGEST)
        open_ = open_[np.abs(np.log(grow)) > 0.2]
        if not len(open_):
            break
    return u


def _slopes(
    gradient: _Gradients, point: np.ndarray, directions: np.ndarray, u: np.ndarray
) -> np.ndarray:
    """v·[g(θ − u v) − g(θ + u v)]/2 for each direction v and its length u."""
    moves = u[:, None] * directions
    g = gradient(np.concatenate([point - moves, point + moves]))
    return 0.5 * np.einsum("ij,ij->i", g[: len(u)] - g[len(u) :], directions)


def covariance_factor(gradient: _Gradients, point: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """A square factor F of the approximate posterior covariance FFᵀ at `point`.

    The Hessian in units of `scales` comes from central differences one unit wide; its eigenvectors
    whose curvature is far from what the coordinates show get their own scale by a line search.
    """
    d = len(point)
    moves = np.diag(scales)
    g = np.concatenate([_difference(gradient, point, moves[i : i + 64]) for i in range(0, d, 64)])
    hessian = g * scales
    values, vectors = eigh(0.5 * (hessian + hessian.T))
    lengths = 1 / np.sqrt(np.maximum(np.abs(values), 1e-6))
    odd = np.flatnonzero((values < 0.3) | (values > 30))
    if len(odd):
        directions = (scales[:, None] * vectors[:, odd]).T
        norms = np.linalg.norm(directions, axis=1)
        lengths[odd] = (
            _scales_along(gradient, point, directions / norms[:, None], lengths[odd] * norms)
            / norms
        )
    return scales[:, None] * vectors * lengths


def _difference(gradient: _Gradients, point: np.ndarray, moves: np.ndarray) -> np.ndarray:
    g = gradient(np.concatenate([point - moves, point + moves]))
    return 0.5 * (g[: len(moves)] - g[len(moves) :])


def largest_curvature(
    gradient: _Gradients,
    point: np.ndarray,
    factor: Preconditioner,
    rng: np.random.Generator,
    rounds: int = 20,
) -> float:
    """The largest eigenvalue λ of FᵀHF by power iteration, H the Hessian of −log π at `point`.

    It is 1 where FFᵀ is the posterior covariance. Dynamics in coordinates F⁻¹θ need steps h < 4/λ.
    """
    direction = rng.standard_normal(len(point))
    direction /= np.linalg.norm(direction)
    length, largest = 1.0, 1.0
    for _ in range(rounds):
        move = factor.apply(direction)
        change = _difference(gradient, point, length * move[None])[0] / length
        white = factor.apply_transposed(change)
        curvature = float(np.linalg.norm(white))
        if not np.isfinite(curvature) or curvature == 0:
            length *= 0.1  # a step out of the support
            continue
        direction, largest = white / curvature, curvature
        length = 1 / np.sqrt(largest)
    return largest
