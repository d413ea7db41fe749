# SPDX-License-Identifier: Apache-2.0
"""Refine the center and the preconditioner with short control-variate chains."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from pymc_sgcv.kernel.chain import Chain, Divergence
from pymc_sgcv.kernel.preconditioners import Dense, Diagonal, Preconditioner
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center, center_at
from pymc_sgcv.setup.curvature import largest_curvature
from pymc_sgcv.setup.noise import (
    MOST_NUMBERS,
    around,
    control_variate,
    gradient_noise,
    line,
    worst,
)

_ITERATIONS = 4000
_STEP = 0.2
_CURVATURE_ROWS = 50_000
_TRUST = 0.3
"""How far, as a prior standard deviation, the precision may be from its first estimate."""


def pilot(
    problem: Problem,
    center: Center,
    rng: np.random.Generator,
    noise: np.ndarray | None = None,
    rounds: int = 2,
) -> tuple[Center, np.ndarray, np.ndarray]:
    """Refine the center and the covariance factor; return them with the last draws and gradients.

    The gradients of the pilot are regressed on its draws: the slope is minus the inverse
    covariance, its root the posterior mean, both far sharper than the draws' own moments. Where
    gradient noise drowns the slope, the first estimate stays. `noise` is that around the center, if
    it is known.
    """
    for _ in range(rounds):
        draws, gradients = _run(problem, center, noise, rng)
        noise = None
        theta, factor = _refine(center, draws, gradients)
        refined = center_at(problem, theta, factor)
        if not refined.distance <= max(1.0, np.sqrt(problem.size), 2 * center.distance):
            break
        settled = _alike(center, refined)
        center = refined
        if settled:
            break
    return center, draws, gradients


def _alike(old: Center, new: Center) -> bool:
    """Whether center and covariance have hardly changed, so that another round tells no more."""
    change, moved = old.factor.ratios(new.factor), old.factor.solve(new.theta - old.theta)
    return bool(np.abs(np.log(change)).max() < 0.1 and np.abs(moved).max() < 0.2)


def _run(
    problem: Problem, center: Center, noise: np.ndarray | None, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A chain around the center, with steps short enough for its gradient noise."""
    d, method = problem.size, control_variate(center)
    starts = around(center, rng)
    if noise is None:
        noise = gradient_noise(problem, method, starts, center.factor, rng)
    h = min(
        _STEP,
        0.8 / worst(center.factor, noise),
        1 / stretch(problem, center, center.factor, rng),
    )
    n = max(min(_ITERATIONS, 1500 + 50 * d), 20 * d)
    if not center.factor.complete:
        n = int(min(_ITERATIONS // 4, max(200, MOST_NUMBERS // d)))
    for _ in range(6):
        draws, gradients = np.empty((n, d)), np.empty((n, d))
        chain = Chain(problem, method)
        chain.start(starts[0], rng)
        try:
            chain.run(np.full(n, h), 1, draws, gradients)
        except Divergence:
            h /= 4
            continue
        return draws[n // 5 :], gradients[n // 5 :]
    raise Divergence(
        "The pilot run diverged at every step size tried: the posterior is too far from "
        "log-concave around its mode, or improper. Check the priors, or use NUTS on this model."
    )


def stretch(
    problem: Problem, center: Center, factor: Preconditioner, rng: np.random.Generator
) -> float:
    """The largest curvature at the center in coordinates F⁻¹θ: 1 for the center's own dense F."""
    if not center.factor.complete:
        fraction = min(1.0, _CURVATURE_ROWS / problem.n_rows)
        return largest_curvature(
            lambda points: problem.gradient(points, fraction), center.theta, factor, rng
        )
    if factor is center.factor:
        return 1.0
    return float(center.factor.ratios(factor).max() ** 2)


def _refine(
    center: Center, draws: np.ndarray, gradients: np.ndarray
) -> tuple[np.ndarray, Preconditioner]:
    """New center and factor, from the draws seen in the old factor's coordinates."""
    F = center.factor
    if not isinstance(F, Dense):
        scales = F.spread()
        spread = np.clip(draws.std(0) / scales, 0.3, 3.0)
        return draws.mean(0), Diagonal(scales * np.sqrt(spread))
    x, g = F.solve(draws - center.theta), F.apply_transposed(gradients)
    middle, slope_there = x.mean(0), g.mean(0)
    x -= middle
    g -= slope_there
    precision, variance = _precision(x, g)
    values, vectors = eigh(precision)
    root = vectors / np.sqrt(np.clip(values, 0.04, 25.0))
    reliable = 1 / (1 + variance / len(x))
    move = root @ (root.T @ (reliable * slope_there))
    if np.linalg.norm(move) > np.sqrt(len(move)):  # further than the draws reach
        move = 0.0
    return center.theta + F.apply(middle + move), Dense(F.matrix @ root)


def _precision(x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minus the slope of g on x, shrunk towards the identity, and the variance around the line.

    Both are centred. The rows of the slope have their own noise: each is shrunk by its own, and a
    pair of entries is averaged by their precisions.
    """
    values, vectors, along, rest = line(x, g)
    variance = np.maximum(rest, 1e-12)
    prior = variance / _TRUST**2
    slope = vectors @ ((vectors.T * prior - along) / (values[:, None] + prior))
    weight = 1 / variance
    share = weight / (weight[:, None] + weight)
    precision = slope * share + slope.T * share.T
    return 0.5 * (precision + precision.T), variance
