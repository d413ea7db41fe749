# SPDX-License-Identifier: Apache-2.0
"""Measure the noise of a gradient estimator, in coordinates whitened by the posterior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pymc_sgcv.center import Center
from pymc_sgcv.chain import Chain, Method
from pymc_sgcv.gradients import CONTROL_VARIATE, SAGA, SAGA_BLOCKS
from pymc_sgcv.problem import Problem

NOISE_PAIRS = 2000


def control_variate(center: Center) -> Method:
    """SGLD-CV as the pilot runs it: preconditioned by the covariance at the center."""
    factor = center.factor
    drift = factor @ factor.T if factor.ndim == 2 else factor**2
    return Method(CONTROL_VARIATE, "lm", drift, factor, center.theta, center.likelihood_gradient)


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
    points = draws[np.linspace(0, len(draws) - 1, NOISE_PAIRS).astype(int)]
    differences = chain.pair_differences(points, rng)
    # SAGA's reference points are spread like the chain itself: twice the variance of a fixed
    # center. The rows of a block share theirs, so its distance from the rest stays whole.
    scale = 0.5 * (2.0 if saga else 1.0)
    shared = 1.0 if method.estimator == SAGA_BLOCKS else 0.0
    if method.estimator == SAGA and problem.subsampling == "block":
        shared = 0.7  # two or three reference points to a block
    if factor.ndim == 1:
        return scale * np.mean((differences * factor) ** 2, axis=0) + shared
    white = differences @ factor
    return scale * white.T @ white / len(white) + shared * np.eye(len(factor))


def worst(noise: np.ndarray) -> float:
    """The noise variance in the worst whitened direction."""
    return float(noise.max() if noise.ndim == 1 else np.linalg.eigvalsh(noise)[-1])
