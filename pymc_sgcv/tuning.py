# SPDX-License-Identifier: Apache-2.0
"""Choose the step size from the noise of the gradient and the shape of the posterior.

In coordinates whitened by the posterior covariance FFᵀ one step size fits every model. What limits
it is the gradient noise: with Leimkuhler–Matthews and noise of variance v in a whitened direction
the stationary variance is 1 + (h/4) v / (1 − h/4). Most of that is taken out of the injected noise
again; h is as long as what may remain allows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from pymc_sgcv.center import Center
from pymc_sgcv.noise import NOISE_PAIRS, control_variate, gradient_noise
from pymc_sgcv.problem import Problem

LONGEST_STEP = 1.0
SHORTEST_STEP = 1e-4
_NONLINEAR = 0.02
"""Curvature of the score (see `nonlinearity`) up to which the longest step is safe."""
_LEFT_AFTER_CORRECTION = 0.25
"""Share of the gradient noise's inflation that is expected to survive its correction."""


@dataclass(frozen=True)
class Tuning:
    """What was chosen for a model, and what is expected of it.

    Attributes
    ----------
    factor
        F, with the preconditioner FFᵀ: (d, d) or, diagonal, (d,).
    noise
        Factor of the injected noise's covariance: F, less what gradient noise will add.
    step_size
        h in whitened coordinates.
    inflation
        Predicted relative error of the posterior standard deviation, of the worst parameter.
    noise_share
        Variance of the gradient noise over the injected noise's, (h/4) v, in the worst direction.
    thin
        Iterations per recorded draw.
    """

    factor: np.ndarray
    noise: np.ndarray
    step_size: float
    inflation: float
    noise_share: float
    thin: int


def nonlinearity(
    problem: Problem, center: Center, draws: np.ndarray, gradients: np.ndarray, rng
) -> float:
    """How far the posterior is from Gaussian: variance of the score that no line explains.

    From a pilot's draws and gradients, in whitened coordinates and the worst direction, gradient
    noise taken off: 0 for a Gaussian, up to sampling error.
    """
    factor = center.factor
    noise = gradient_noise(problem, control_variate(center), draws, factor, rng)
    if factor.ndim == 1:
        x, g = (draws - draws.mean(0)) / factor, gradients * factor
        g = g - g.mean(0)
        rest = g - x * (np.einsum("ij,ij->j", x, g) / np.einsum("ij,ij->j", x, x))
    else:
        x, g = np.linalg.solve(factor, (draws - draws.mean(0)).T).T, gradients @ factor
        g, noise = g - g.mean(0), np.diag(noise)
        rest = g - x @ np.linalg.lstsq(x, g, rcond=None)[0]
        rest *= np.sqrt(len(x) / (len(x) - len(factor)))
    error = 4 * np.sqrt(2 / NOISE_PAIRS) * noise
    return float(np.max(rest.var(0) - noise - error))


def longest_step(curved: float) -> float:
    """The step that the posterior's shape allows: 1 if it is nearly Gaussian, else shorter."""
    return float(np.clip(np.sqrt(_NONLINEAR / max(curved, 1e-9)), 0.2, LONGEST_STEP))


def choose(
    noise: np.ndarray,
    factor: np.ndarray,
    target_bias: float,
    integrator: str = "lm",
    longest: float = LONGEST_STEP,
) -> Tuning:
    """The longest step whose predicted error of the standard deviation is within `target_bias`."""
    grid = np.geomspace(longest, SHORTEST_STEP, 120)
    fitting = (h for h in grid if _predict(noise, factor, h, integrator)[0] <= target_bias)
    h = float(next(fitting, SHORTEST_STEP))
    inflation, share, injected = _predict(noise, factor, h, integrator)
    return Tuning(factor, injected, h, inflation, share, auto_thin(h))


def _predict(noise, factor, h: float, integrator: str) -> tuple[float, float, np.ndarray]:
    """Predicted error of the sd, noise share, and the noise factor that compensates."""
    weight = (h / 4) / (1 - h / 4)
    if factor.ndim == 1:
        extra = weight * noise
        kept = np.maximum(1 - extra, 0.5)
        injected, share = factor * np.sqrt(kept), h / 4 * noise.max()
        left = np.maximum(_LEFT_AFTER_CORRECTION * extra, extra + kept - 1).max()
    else:
        values, vectors = eigh(noise)
        values = np.maximum(values, 0.0)
        extra = weight * values
        kept = np.maximum(1 - extra, 0.5)
        share = h / 4 * values.max()
        injected = factor @ (vectors * np.sqrt(kept)) @ vectors.T
        remains = np.maximum(_LEFT_AFTER_CORRECTION * extra, extra + kept - 1)
        spread = factor @ vectors
        left = ((spread**2 @ remains) / (spread**2).sum(1)).max()
    if integrator == "euler":
        left += h / 4 / (1 - h / 4)
    return float(np.sqrt(1 + left) - 1), float(share), injected


def auto_thin(h: float) -> int:
    """Iterations after which a draw is worth about half an effective draw.

    In whitened coordinates the autocorrelation of one iteration is 1 − h/2; draws k apart are worth
    half an independent draw each when (1 − h/2)ᵏ = 1/3.
    """
    return max(1, int(np.ceil(np.log(3) / -np.log1p(-min(h, 1.0) / 2))))
