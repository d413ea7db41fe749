# SPDX-License-Identifier: Apache-2.0
"""Where a chain is: its position φ, and the parameters θ(φ) whose gradients are known.

An estimate ĝ of ∇_θ log p is the sum of a part A that was taken at θ and, for a control variate, a
part B with mean zero that was taken at the center θ̂. Each goes to φ by the Jacobian of its own
point,

    ∇_φ ≈ (∂θ/∂φ)ᵀ A + ∇ log |∂θ/∂φ| + (∂θ̂/∂φ̂)ᵀ B,

which is the control variate of the density of φ: as B is known there, it cancels against A the
better, the straighter the posterior is in φ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_sgcv.engine.native import call, clear, compiled, put
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE
from pymc_sgcv.rows.coordinates import PLACE, PLACE_TABLE, PULL, PULL_TABLE, PUSH, PUSH_TABLE


class Frame(NamedTuple):
    """What compiled code needs to go from φ to θ and back with a gradient.

    Attributes
    ----------
    record
        Of `pymc_sgcv.rows.coordinates`; zeros where φ is θ, and then nothing else is used.
    position, slope
        φ and ∇_φ, of (d,).
    center, volume
        φ̂, and ∇ log |∂θ/∂φ| there.
    near, far
        A, and B after it went to φ.
    """

    record: np.ndarray
    position: np.ndarray
    slope: np.ndarray
    center: np.ndarray
    volume: np.ndarray
    near: np.ndarray
    far: np.ndarray


@compiled
def is_apart(frame):
    """Whether φ is not θ."""
    return frame.record[PLACE] != 0


@compiled
def place(frame, theta):
    """Fill `theta` with θ(φ)."""
    clear(theta)
    r, where = frame.record, frame.position.ctypes.data
    call(r[PLACE], where, 1, 0, r[PLACE_TABLE], 0, 0, theta.ctypes.data)


@compiled
def _pull(frame, position, gradient, out):
    """Fill `out` with (∂θ/∂φ)ᵀ times a gradient, plus ∇ log |∂θ/∂φ|."""
    clear(out)
    r, d = frame.record, len(out)
    given = gradient.ctypes.data
    call(r[PULL], position.ctypes.data, 1, given, r[PULL_TABLE], 0, d, out.ctypes.data)


@compiled
def recenter_frame(frame, center):
    """Take up where the center is."""
    put(center, frame.center)
    clear(frame.near)
    _pull(frame, frame.center, frame.near, frame.volume)


@compiled
def pull(frame, estimator, gradient):
    """Fill the slope with the estimate of ∇_φ that belongs to an estimate of ∇_θ just made."""
    e, near, far = estimator, frame.near, frame.far
    put(gradient, near)
    clear(far)
    if e.kind == CONTROL_VARIATE:
        for j in range(len(near)):  # the slope is free until the end
            frame.slope[j] = e.constant[j] - e.work[1, j]
            near[j] -= frame.slope[j]
        _pull(frame, frame.center, frame.slope, far)
        for j in range(len(far)):
            far[j] -= frame.volume[j]
    _pull(frame, frame.position, near, frame.slope)
    for j in range(len(far)):
        frame.slope[j] += far[j]


@compiled
def put_gradient(frame, theta, out):
    """Fill `out` with the estimate of ∇_θ that has as little noise as the slope."""
    put(frame.near, out)
    r, d, given = frame.record, len(out), frame.far.ctypes.data
    call(r[PUSH], theta.ctypes.data, 1, given, r[PUSH_TABLE], 0, d, out.ctypes.data)
