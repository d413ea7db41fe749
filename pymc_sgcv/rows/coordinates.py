# SPDX-License-Identifier: Apache-2.0
"""The coordinates φ that a sampler moves in, and the parameters θ(φ) that the user knows.

They are the same thing, unless the model has group effects (`pymc_sgcv.model.geometry`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
import pytensor

from pymc_sgcv.engine.compile import Gradient, compile_geometry
from pymc_sgcv.engine.native import call_at
from pymc_sgcv.model.geometry import DEGREE, Geometry
from pymc_sgcv.model.graph import name_of
from pymc_sgcv.model.start import PYTHON
from pymc_sgcv.model.target import Target

# The words of the record that compiled code reads.
PLACE, PULL, PUSH, PLACE_TABLE, PULL_TABLE, PUSH_TABLE, RECORD_WORDS = range(7)


class Reparametrization:
    """A model's group effects and their compiled change of variables, for any degrees λ."""

    def __init__(self, target: Target, geometry: Geometry, compile_kwargs: dict | None = None):
        self.target, self.geometry = target, geometry
        self.functions = compile_geometry(target, geometry, compile_kwargs)
        self._lock = Lock()  # a function of PyTensor's has one storage for all threads

    @cached_property
    def _inverse(self) -> Callable:
        g, values = self.geometry, list(self.target.values)
        outputs = [g.phi.get(value, value) for value in values]
        return pytensor.function(
            [*values, g.degree], outputs, mode=PYTHON, on_unused_input="ignore"
        )

    def find(self, theta: np.ndarray, degree: np.ndarray) -> np.ndarray:
        """φ of one θ."""
        with self._lock:
            values = self._inverse(*self._values(theta), degree)
            return np.concatenate([np.ravel(x) for x in values])

    @cached_property
    def _log_scales(self) -> Callable:
        return pytensor.function(
            list(self.target.values),
            list(self.geometry.log_scale),
            mode=PYTHON,
            on_unused_input="ignore",
        )

    def log_scales(self, theta: np.ndarray) -> np.ndarray:
        """Log τ of every effect at one θ."""
        return np.concatenate([np.ravel(x) for x in self._log_scales(*self._values(theta))])

    def _values(self, theta: np.ndarray) -> list[np.ndarray]:
        values = self.target.unflatten(np.asarray(theta, dtype=float))
        return [np.asarray(values[name_of(v)], dtype=v.dtype) for v in self.target.values]


@dataclass(frozen=True)
class Coordinates:
    """φ of one choice of degrees; without a change, φ is θ.

    Attributes
    ----------
    change
        The change of variables, or None.
    degree
        λ of each effect: 1 is centred, 0 non-centred.
    """

    change: Reparametrization | None = None
    degree: np.ndarray | None = None

    @cached_property
    def record(self) -> np.ndarray:
        """What compiled code takes: addresses of the three functions and of their arguments."""
        record = np.zeros(RECORD_WORDS, dtype=np.intp)
        for word, (function, _, table) in enumerate(self._calls):
            record[word], record[PLACE_TABLE + word] = function.address, table.ctypes.data
        return record

    @cached_property
    def _calls(self) -> list[tuple[Gradient, list, np.ndarray]]:
        """θ(φ), its transposed Jacobian and that of φ(θ): functions, arguments, tables of these."""
        calls: list[tuple[Gradient, list, np.ndarray]] = []
        if self.change is None or self.degree is None:
            return calls
        for function in self.change.functions:
            values = function.fixed_values({DEGREE: self.degree})
            calls.append((function, values, function.arguments([], values)))
        return calls

    def place(self, phi: np.ndarray) -> np.ndarray:
        """θ of each of the points φ, (d,) or (n, d)."""
        if self.change is None:
            return phi
        points, out = np.atleast_2d(phi).astype(float), np.zeros(np.atleast_2d(phi).shape)
        record = self.record
        call_at(record[PLACE], points, np.zeros((1, 1)), record[PLACE_TABLE], out)
        return out.reshape(np.shape(phi))

    def pull(self, phi: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """∇_φ of the log density of φ, from that of θ at the same points."""
        if self.change is None:
            return gradients
        points, out = np.atleast_2d(phi).astype(float), np.zeros(np.atleast_2d(phi).shape)
        weights = np.ascontiguousarray(np.atleast_2d(gradients), dtype=float)
        record = self.record
        call_at(record[PULL], points, weights, record[PULL_TABLE], out)
        return out.reshape(np.shape(phi))

    def turn(self, phi: np.ndarray, changes: np.ndarray) -> np.ndarray:
        """(∂θ/∂φ)ᵀ times changes of ∇_θ."""
        if self.change is None:
            return changes
        return self.pull(phi, changes) - self.pull(phi, np.zeros(np.shape(changes)))

    def find(self, theta: np.ndarray) -> np.ndarray:
        """φ of each of the points θ, (d,) or (n, d)."""
        if self.change is None or self.degree is None:
            return theta
        if np.ndim(theta) > 1:
            return np.stack([self.find(one) for one in theta])
        return self.change.find(theta, self.degree)

    def jacobian(self, other: Coordinates, position: np.ndarray) -> np.ndarray:
        """∂φ′/∂φ, with φ′ the coordinates `other`, at φ = `position`: (d, d)."""
        d, record = len(position), other.record
        theta, pushed = np.tile(self.place(position), (d, 1)), np.zeros((d, d))
        call_at(record[PUSH], theta, np.eye(d), record[PUSH_TABLE], pushed)
        return self.turn(np.tile(position, (d, 1)), pushed)
