# SPDX-License-Identifier: Apache-2.0
"""The sampling loop: k iterations of estimator × dynamics in one call of compiled code."""

from __future__ import annotations

import numpy as np

from pymc_sgcv.engine.native import clear, compiled, put
from pymc_sgcv.kernel.dynamics import move
from pymc_sgcv.kernel.estimators import STANDARD, control_variate, estimate, recenter, standard
from pymc_sgcv.kernel.frame import is_apart, place, pull, put_gradient, recenter_frame


@compiled
def run(estimator, frame, dynamics, steps, first, thin, rng, draws, gradients, own):
    """Run ``len(draws) * thin`` iterations and record every thin-th θ with the gradient there.

    If `own`, the chain's own coordinates φ are recorded in place of θ, and ∇_φ in place of ∇_θ.
    `first` is the number of iterations before these. Returns the number of iterations that went
    well: fewer than asked for if a gradient or θ was not finite, in which case the chain stands at
    the offending point.
    """
    theta, gradient = estimator.points[0], np.empty(estimator.points.shape[1])
    apart = is_apart(frame)
    position, slope = (frame.position, frame.slope) if apart else (theta, gradient)
    k = 0
    for r in range(len(draws)):
        for t in range(thin):
            if estimator.refresh > 0 and (first + k) % estimator.refresh == 0:
                recenter(estimator)
                if apart:
                    recenter_frame(frame, position)
            estimate(estimator, rng, gradient)
            if not np.isfinite(gradient.sum()):
                return k
            if apart:
                pull(frame, estimator, gradient)
            if t == thin - 1:
                put(position if own else theta, draws[r])
                put(slope, gradients[r])
                if apart and not own:
                    put_gradient(frame, theta, gradients[r])
            move(dynamics, position, slope, steps[k], first + k, rng)
            if apart:
                place(frame, theta)
            k += 1
    return k


@compiled
def pair_differences(estimator, frame, positions, rng, out):
    """Fill `out` with the difference of two independent estimates of ∇_φ at each of `positions`.

    Of the standard estimator or else of the control variate; what does not depend on the rows
    cancels.
    """
    e, apart, gradient = estimator, is_apart(frame), np.empty(out.shape[1])
    for i in range(len(positions)):
        put(positions[i], e.points[0])
        if apart:
            put(positions[i], frame.position)
            place(frame, e.points[0])
        clear(out[i])
        for _ in range(2):
            clear(gradient)
            if e.kind == STANDARD:
                standard(e.plates, e.points, rng, gradient)
            else:
                control_variate(e, rng, gradient)
            if apart:
                pull(frame, e, gradient)
                put(frame.slope, gradient)
            for j in range(out.shape[1]):
                out[i, j] = gradient[j] - out[i, j]
