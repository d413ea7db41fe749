# SPDX-License-Identifier: Apache-2.0
"""Refine the center and the preconditioner with short control-variate chains."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from pymc_sgcv.center import Center, center_at
from pymc_sgcv.chain import Chain, Divergence
from pymc_sgcv.noise import NOISE_PAIRS, control_variate, gradient_noise, worst
from pymc_sgcv.problem import Problem

_ITERATIONS = 4000
_STEP = 0.2
_TRUST = 0.3
"""How far, as a prior standard deviation, the precision may be from its first estimate."""


def pilot(
    problem: Problem, center: Center, rng: np.random.Generator, rounds: int = 2
) -> tuple[Center, np.ndarray, np.ndarray]:
    """Refine the center and the covariance factor; return them with the last draws and gradients.

    The gradients of the pilot are regressed on its draws: the slope is minus the inverse
    covariance, its root the posterior mean, both far sharper than the draws' own moments. Where
    gradient noise drowns the slope, the first estimate stays.
    """
    for _ in range(rounds):
        draws, gradients = _run(problem, center, rng)
        refined = center_at(problem, *_refine(center, draws, gradients))
        if not refined.distance <= max(1.0, np.sqrt(problem.size), 2 * center.distance):
            break
        center = refined
    return center, draws, gradients


def _run(problem: Problem, center: Center, rng: np.random.Generator):
    """A chain around the center, with steps short enough for its gradient noise."""
    d, method = problem.size, control_variate(center)
    around = center.theta + _white(rng.standard_normal((NOISE_PAIRS, d)), center.factor)
    noise = gradient_noise(problem, method, around, center.factor, rng)
    h = min(_STEP, 0.8 / worst(noise))
    n = max(_ITERATIONS, 20 * d) if center.factor.ndim == 2 else _ITERATIONS // 4
    for _ in range(6):
        draws, gradients = np.empty((n, d)), np.empty((n, d))
        chain = Chain(problem, method)
        chain.start(around[0], rng)
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


def _white(z: np.ndarray, factor: np.ndarray) -> np.ndarray:
    return z * factor if factor.ndim == 1 else z @ factor.T


def _refine(center: Center, draws: np.ndarray, gradients: np.ndarray):
    """New center and factor, from the draws seen in the old factor's coordinates."""
    F = center.factor
    if F.ndim == 1:
        spread = np.clip(draws.std(0) / F, 0.3, 3.0)
        return draws.mean(0), F * np.sqrt(spread)
    x, g = np.linalg.solve(F, (draws - center.theta).T).T, gradients @ F
    precision, variance = _precision(x, g)
    values, vectors = eigh(precision)
    root = vectors / np.sqrt(np.clip(values, 0.04, 25.0))
    reliable = 1 / (1 + variance / len(x))
    mode = x.mean(0) + root @ (root.T @ (reliable * g.mean(0)))
    if np.linalg.norm(mode - x.mean(0)) > np.sqrt(len(mode)):  # further than the draws reach
        mode = x.mean(0)
    return center.theta + F @ mode, F @ root


def _precision(x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minus the slope of g on x, shrunk towards the identity, and the variance around the line.

    The rows of the slope have their own noise: each is shrunk by its own, and a pair of entries is
    averaged by their precisions.
    """
    x, g = x - x.mean(0), g - g.mean(0)
    rest = g - x @ np.linalg.lstsq(x, g, rcond=None)[0]
    variance = np.maximum(rest.var(0), 1e-12)
    values, vectors = eigh(x.T @ x)
    cross = vectors.T @ (-x.T @ g)
    prior = variance / _TRUST**2
    slope = vectors @ ((cross + vectors.T * prior) / (values[:, None] + prior))
    weight = 1 / variance
    share = weight / (weight[:, None] + weight)
    precision = slope * share + slope.T * share.T
    return 0.5 * (precision + precision.T), variance
