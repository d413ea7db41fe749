# SPDX-License-Identifier: Apache-2.0
"""The sampling loop: k iterations of estimator × dynamics in one call of compiled code."""

from __future__ import annotations

import numpy as np

from pymc_sgcv.dynamics import langevin
from pymc_sgcv.gradients import (
    CONTROL_VARIATE,
    SAGA,
    STANDARD,
    add_prior_gradient,
    control_variate,
    saga,
    saga_blocks,
    standard,
)
from pymc_sgcv.native import clear, compiled, put


@compiled
def estimate(estimator, prior, plates, points, constant, tables, sums, fresh, work, rng, out):
    """Fill `out` with the chosen estimate of the gradient at the first of `points`."""
    clear(out)
    add_prior_gradient(prior, points, out)
    if estimator == STANDARD:
        standard(plates, points, rng, out)
    elif estimator == CONTROL_VARIATE:
        control_variate(plates, points, constant, work, rng, out)
    elif estimator == SAGA:
        saga(plates, points, tables, sums, fresh, rng, out)
    else:
        saga_blocks(plates, points, tables, sums, fresh, rng, out)


@compiled
def run(
    estimator,
    prior,
    plates,
    points,
    constant,
    tables,
    sums,
    fresh,
    work,
    integrator,
    drift,
    noise,
    zeta,
    steps,
    thin,
    rng,
    draws,
    gradients,
):
    """Run ``len(draws) * thin`` iterations and record every thin-th θ with the gradient there.

    Returns the number of iterations that went well: fewer than asked for if a gradient or θ was
    not finite, in which case the chain stands at the offending point.
    """
    theta, gradient = points[0], np.empty(points.shape[1])
    k = 0
    for r in range(len(draws)):
        for t in range(thin):
            estimate(
                estimator, prior, plates, points, constant, tables, sums, fresh, work, rng, gradient
            )
            if not np.isfinite(gradient.sum()):
                return k
            if t == thin - 1:
                put(theta, draws[r])
                put(gradient, gradients[r])
            langevin(theta, gradient, steps[k], integrator, drift, noise, zeta, work, rng)
            k += 1
    return k


@compiled
def pair_differences(plain, plates, points, constant, work, thetas, rng, out):
    """Fill `out` with the difference of two independent estimates at each of `thetas`.

    Of the standard estimator if `plain`, else of the control variate; what does not depend on the
    rows cancels.
    """
    for i in range(len(thetas)):
        put(thetas[i], points[0])
        clear(out[i])
        for _ in range(2):
            for j in range(out.shape[1]):
                out[i, j] = -out[i, j]
            if plain:
                standard(plates, points, rng, out[i])
            else:
                control_variate(plates, points, constant, work, rng, out[i])
