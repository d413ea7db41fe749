# SPDX-License-Identifier: Apache-2.0
"""Where a chain is: its position φ, and the parameters θ(φ) whose gradients are known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_sgcv.engine.native import call, clear, compiled
from pymc_sgcv.rows.coordinates import PLACE, PLACE_TABLE, PULL, PULL_TABLE


class Frame(NamedTuple):
    """What compiled code needs to go from φ to θ and back with a gradient.

    Attributes
    ----------
    record
        Of `pymc_sgcv.rows.coordinates`; zeros where φ is θ.
    position, slope
        φ and ∇_φ, of (d,), unused where φ is θ.
    """

    record: np.ndarray
    position: np.ndarray
    slope: np.ndarray


@compiled
def moves_itself(frame):
    """Whether φ is not θ."""
    return frame.record[PLACE] != 0


@compiled
def place(frame, theta):
    """Fill `theta` with θ(φ)."""
    clear(theta)
    call(
        frame.record[PLACE],
        frame.position.ctypes.data,
        1,
        0,
        frame.record[PLACE_TABLE],
        0,
        0,
        theta.ctypes.data,
    )


@compiled
def pull(frame, gradient):
    """Fill the slope with the gradient with respect to φ."""
    clear(frame.slope)
    call(
        frame.record[PULL],
        frame.position.ctypes.data,
        1,
        gradient.ctypes.data,
        frame.record[PULL_TABLE],
        0,
        len(gradient),
        frame.slope.ctypes.data,
    )
