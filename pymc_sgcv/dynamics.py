# SPDX-License-Identifier: Apache-2.0
"""Discretised Langevin dynamics. They know nothing of where the gradient comes from.

With drift matrix A and noise factor B (BBᵀ = A unless gradient noise is compensated):

Euler (the paper)        θ ← θ + (h/2) A ĝ + √h B ζₖ
Leimkuhler–Matthews      θ ← θ + (h/2) A ĝ + √h B (ζₖ + ζₖ₋₁)/2

Euler's stationary variance on a Gaussian is 1/(1 − h/4) too large in whitened coordinates;
averaging two successive noises removes that error at no cost (Leimkuhler & Matthews 2013).
"""

from __future__ import annotations

import numpy as np

from pymc_sgcv.native import compiled
from pymc_sgcv.xoshiro import normal

EULER, LEIMKUHLER_MATTHEWS = range(2)
INTEGRATORS = {"euler": EULER, "lm": LEIMKUHLER_MATTHEWS}


@compiled
def multiply(matrix, vector, out):
    """Matrix (2-d) or diagonal (1-d) times vector."""
    if matrix.ndim == 2:
        np.dot(matrix, vector, out)
    else:
        for j in range(len(out)):
            out[j] = matrix[j] * vector[j]


@compiled
def langevin(theta, gradient, h, integrator, drift, noise, zeta, work, rng):
    """One update of `theta` in place; `zeta` carries the noise from one call to the next."""
    d = len(theta)
    step, force = work[0], work[1]
    root = np.sqrt(h)
    for j in range(d):
        fresh = normal(rng)
        if integrator == LEIMKUHLER_MATTHEWS:
            force[j] = 0.5 * root * (zeta[j] + fresh)
            zeta[j] = fresh
        else:
            force[j] = root * fresh
    multiply(noise, force, step)
    for j in range(d):
        theta[j] += step[j]
    multiply(drift, gradient, step)
    for j in range(d):
        theta[j] += 0.5 * h * step[j]
