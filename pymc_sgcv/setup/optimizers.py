# SPDX-License-Identifier: Apache-2.0
"""Minibatch ascent of the log posterior, compiled: SGD and Adam."""

from __future__ import annotations

import numpy as np

from pymc_sgcv.engine.native import clear, compiled
from pymc_sgcv.kernel.estimators import estimate
from pymc_sgcv.kernel.frame import is_apart, place, pull

SGD, ADAM = range(2)


@compiled
def ascend(
    kind, estimator, frame, scale, steps, moments, rng, mean_theta, mean_gradient, mean_square
):
    """Take ``len(steps)`` steps uphill and average iterates and gradients over them.

    SGD   θ ← θ + hₖ s² ĝ                       (s: the coordinates' scales)
    Adam  θ ← θ + hₖ s m̂ / (√v̂ + ε)             (Kingma & Ba 2015)

    `moments` holds Adam's m and v and, at [2, 0], the number of steps so far. Returns whether
    everything stayed finite.
    """
    theta, gradient = estimator.points[0], np.empty(estimator.points.shape[1])
    apart = is_apart(frame)
    position, slope = (frame.position, frame.slope) if apart else (theta, gradient)
    clear(mean_theta)
    clear(mean_gradient)
    clear(mean_square)
    n = len(steps)
    for k in range(n):
        estimate(estimator, rng, gradient)
        if not np.isfinite(gradient.sum()):
            return False
        if apart:
            pull(frame, estimator, gradient)
        moments[2, 0] += 1
        age = moments[2, 0]
        for j in range(len(theta)):
            g = slope[j]
            mean_gradient[j] += g / n
            mean_square[j] += g * g / n
            if kind == ADAM:
                moments[0, j] = 0.9 * moments[0, j] + 0.1 * g
                moments[1, j] = 0.999 * moments[1, j] + 0.001 * g * g
                m = moments[0, j] / (1 - 0.9**age)
                v = moments[1, j] / (1 - 0.999**age)
                position[j] += steps[k] * scale[j] * m / (np.sqrt(v) + 1e-12)
            else:
                position[j] += steps[k] * scale[j] ** 2 * g
            mean_theta[j] += position[j] / n
        if apart:
            place(frame, theta)
    return True
