# SPDX-License-Identifier: Apache-2.0
"""Where a chain is: its position φ, and the parameters θ(φ) whose gradients are known.

An estimate ĝ of ∇_θ log p is the sum of a part A that was taken at θ and, for a control variate, a
part B with mean zero that was taken at the center θ̂. Each goes to φ by the Jacobian of its own
point,

    ∇_φ ≈ (∂θ/∂φ)ᵀ A + ∇ log |∂θ/∂φ| + (∂θ̂/∂φ̂)ᵀ B,

which is the control variate of the density of φ: as B is known there, it cancels against A the
better, the straighter the posterior is in φ. Where effects have a scale that is uncertain by
factors, and may be next to 0, the rows' part of ∇_φ dies away with it. B does better there as the
gradient with respect to the effects themselves, (∂θ̂/∂ψ̂)ᵀ B with ψ the coordinates with centred
effects, and goes to φ by the Jacobian of where the chain is, (∂ψ/∂φ)ᵀ.
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
    follows
        1 if B takes the Jacobian of where the chain is, else 0.
    centred, centred_center, centred_volume
        The record of ψ, ψ̂, and ∇ log |∂θ/∂ψ| there.
    """

    record: np.ndarray
    position: np.ndarray
    slope: np.ndarray
    center: np.ndarray
    volume: np.ndarray
    near: np.ndarray
    far: np.ndarray
    follows: int
    centred: np.ndarray
    centred_center: np.ndarray
    centred_volume: np.ndarray


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
def _pull(record, position, gradient, out):
    """Fill `out` with (∂θ/∂φ)ᵀ times a gradient, plus ∇ log |∂θ/∂φ|."""
    clear(out)
    d, given, where = len(out), gradient.ctypes.data, position.ctypes.data
    call(record[PULL], where, 1, given, record[PULL_TABLE], 0, d, out.ctypes.data)


@compiled
def _push(record, theta, gradient, out):
    """Add (∂φ/∂θ)ᵀ times a gradient to `out`."""
    d, given, where = len(out), gradient.ctypes.data, theta.ctypes.data
    call(record[PUSH], where, 1, given, record[PUSH_TABLE], 0, d, out.ctypes.data)


@compiled
def recenter_frame(frame, center):
    """Take up where the center is."""
    put(center, frame.center)
    clear(frame.near)
    _pull(frame.record, frame.center, frame.near, frame.volume)
    _pull(frame.centred, frame.centred_center, frame.near, frame.centred_volume)


@compiled
def pull(frame, estimator, gradient):
    """Fill the slope with the estimate of ∇_φ that belongs to an estimate of ∇_θ just made."""
    e, near, far = estimator, frame.near, frame.far
    put(gradient, near)
    clear(far)
    if e.kind == CONTROL_VARIATE:
        for j in range(len(near)):
            near[j] -= e.work[1, j]
        if frame.follows == 0:
            _pull(frame.record, frame.center, e.work[1], far)
            for j in range(len(far)):
                far[j] -= frame.volume[j]
        else:
            _pull(frame.centred, frame.centred_center, e.work[1], frame.slope)
            for j in range(len(far)):
                frame.slope[j] -= frame.centred_volume[j]
            _push(frame.centred, e.points[0], frame.slope, near)
    _pull(frame.record, frame.position, near, frame.slope)
    for j in range(len(far)):
        frame.slope[j] += far[j]


@compiled
def put_gradient(frame, theta, out):
    """Fill `out` with the estimate of ∇_θ that has as little noise as the slope."""
    put(frame.near, out)
    _push(frame.record, theta, frame.far, out)
