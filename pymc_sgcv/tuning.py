# SPDX-License-Identifier: Apache-2.0
"""Choose preconditioner, center and step size from a short pilot run.

In coordinates whitened by the posterior covariance FFᵀ one step size fits every model. What limits
it is the gradient noise: with Leimkuhler–Matthews and noise of variance v in a whitened direction
the stationary variance is 1 + (h/4) v / (1 − h/4). Most of that is taken out of the injected noise
again; h is as long as what may remain allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from pymc_sgcv.center import Center, center_at
from pymc_sgcv.chain import Chain, Divergence, Method
from pymc_sgcv.gradients import CONTROL_VARIATE, SAGA, SAGA_BLOCKS
from pymc_sgcv.problem import Problem

LONGEST_STEP = 1.0
SHORTEST_STEP = 1e-4
_PILOT_ITERATIONS = 4000
_PILOT_STEP = 0.2
_NOISE_PAIRS = 2000
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


def pilot(
    problem: Problem, center: Center, rng: np.random.Generator, rounds: int = 2
) -> tuple[Center, np.ndarray, np.ndarray]:
    """Refine the center and the covariance factor with short control-variate chains.

    The gradients of the pilot are regressed on its draws: the slope is minus the inverse
    covariance, its root the posterior mean, both far sharper than the draws' own moments. Returns
    the new center and the last round's draws and gradients.
    """
    for _ in range(rounds):
        draws, gradients = _pilot_chain(problem, center, rng)
        if center.factor.ndim == 2 and len(draws) < 5 * problem.size:
            break
        theta, factor = _refined(center, draws, gradients)
        center = center_at(problem, theta, factor)
    return center, draws, gradients


def _pilot_chain(problem: Problem, center: Center, rng: np.random.Generator):
    h, d = _PILOT_STEP, problem.size
    n = max(_PILOT_ITERATIONS, 20 * d) if center.factor.ndim == 2 else _PILOT_ITERATIONS // 4
    for _ in range(6):
        draws, gradients = np.empty((n, d)), np.empty((n, d))
        chain = Chain(problem, _control_variate(center))
        chain.start(center.theta, rng)
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


def _control_variate(center: Center) -> Method:
    factor = center.factor
    drift = factor @ factor.T if factor.ndim == 2 else factor**2
    return Method(CONTROL_VARIATE, "lm", drift, factor, center.theta, center.likelihood_gradient)


def _refined(center: Center, draws: np.ndarray, gradients: np.ndarray):
    """New center and factor from a regression of gradients on draws, in whitened coordinates."""
    F = center.factor
    if F.ndim == 1:
        spread = np.clip(draws.std(0) / F, 0.3, 3.0)
        return draws.mean(0), F * np.sqrt(spread)
    x = np.linalg.solve(F, (draws - center.theta).T).T
    g = gradients @ F
    mean_x, mean_g = x.mean(0), g.mean(0)
    slope = -np.linalg.lstsq(x - mean_x, g - mean_g, rcond=None)[0]
    values, vectors = eigh(0.5 * (slope + slope.T))
    lengths = np.clip(1 / np.sqrt(np.clip(values, 1e-2, 1e2)), 0.2, 5.0)
    root = vectors * lengths
    mode = mean_x + root @ (root.T @ mean_g)
    reach = np.linalg.norm(mode - mean_x) / np.sqrt(len(mode))
    if reach > 1:  # the regression is not to be trusted further than the draws reach
        mode = mean_x
    return center.theta + F @ mode, F @ root


def gradient_noise(
    problem: Problem,
    method: Method,
    draws: np.ndarray,
    factor: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Covariance of the gradient noise in whitened coordinates, from pairs of estimates.

    Two independent estimates at the same point differ by noise alone: V = E[(ĝ₁−ĝ₂)(ĝ₁−ĝ₂)ᵀ]/2.
    """
    saga = method.estimator in (SAGA, SAGA_BLOCKS)
    chain = Chain(problem, replace(method, estimator=CONTROL_VARIATE) if saga else method)
    points = draws[np.linspace(0, len(draws) - 1, _NOISE_PAIRS).astype(int)]
    differences = chain.pair_differences(points, rng)
    # SAGA's reference points are spread like the chain itself: twice the variance of a fixed
    # center. The rows of a block share theirs, so its distance from the rest stays whole.
    scale = 0.5 * (2.0 if saga else 1.0)
    shared = 1.0 if method.estimator == SAGA_BLOCKS else 0.0
    if factor.ndim == 1:
        return scale * np.mean((differences * factor) ** 2, axis=0) + shared
    white = differences @ factor
    return scale * white.T @ white / len(white) + shared * np.eye(len(factor))


def nonlinearity(
    problem: Problem, center: Center, draws: np.ndarray, gradients: np.ndarray, rng
) -> float:
    """How far the posterior is from Gaussian: variance of the score that no line explains.

    From a pilot's draws and gradients, in whitened coordinates and the worst direction, gradient
    noise taken off: 0 for a Gaussian, up to sampling error.
    """
    factor = center.factor
    noise = gradient_noise(problem, _control_variate(center), draws, factor, rng)
    if factor.ndim == 1:
        x, g = (draws - draws.mean(0)) / factor, gradients * factor
        g = g - g.mean(0)
        rest = g - x * (np.einsum("ij,ij->j", x, g) / np.einsum("ij,ij->j", x, x))
    else:
        x, g = np.linalg.solve(factor, (draws - draws.mean(0)).T).T, gradients @ factor
        g, noise = g - g.mean(0), np.diag(noise)
        rest = g - x @ np.linalg.lstsq(x, g, rcond=None)[0]
        rest *= np.sqrt(len(x) / (len(x) - len(factor)))
    error = 4 * np.sqrt(2 / _NOISE_PAIRS) * noise
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
