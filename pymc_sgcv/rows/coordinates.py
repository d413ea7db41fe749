# SPDX-License-Identifier: Apache-2.0
"""The coordinates φ that a sampler moves in, and the parameters θ(φ) that the user knows.

They are the same thing, unless the model has group effects (`pymc_sgcv.model.geometry`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytensor

from pymc_sgcv.engine.compile import Gradient, compile_geometry
from pymc_sgcv.engine.native import call_at
from pymc_sgcv.model.geometry import DEGREE, Geometry
from pymc_sgcv.model.start import PYTHON
from pymc_sgcv.model.target import Target

# The words of the record that compiled code reads.
PLACE, PULL, PLACE_TABLE, PULL_TABLE, RECORD_WORDS = range(5)


class Reparametrization:
    """A model's group effects and their compiled change of variables, for any degrees λ."""

    def __init__(self, target: Target, geometry: Geometry, compile_kwargs: dict | None = None):
        self.target, self.geometry = target, geometry
        self.place, self.pull = compile_geometry(target, geometry, compile_kwargs)

    @cached_property
    def _location_and_scale(self) -> Callable:
        g = self.geometry
        outputs = [*g.location, *g.log_scale, *(m for m in g.mixing if m is not None)]
        return pytensor.function(
            list(self.target.values), outputs, mode=PYTHON, on_unused_input="ignore"
        )

    def location_and_scale(self, theta: np.ndarray) -> list[tuple]:
        """μ, log τ and L of each block of effects at one θ."""
        values = self.target.unflatten(np.asarray(theta, dtype=float))
        found = self._location_and_scale(
            *(np.asarray(values[v.name], dtype=v.dtype) for v in self.target.values)
        )
        k = len(self.geometry.blocks)
        mixing = iter(found[2 * k :])
        return [
            (mu, log_tau, next(mixing) if block.effect.mixing is not None else None)
            for block, mu, log_tau in zip(
                self.geometry.blocks, found[:k], found[k : 2 * k], strict=True
            )
        ]


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
    def _arguments(self) -> tuple[list, list]:
        place, pull = self.change.place, self.change.pull
        given = {DEGREE: self.degree}
        return place.fixed_values(given), pull.fixed_values(given)

    @cached_property
    def record(self) -> np.ndarray:
        """What compiled code takes: addresses of the two functions and of their arguments."""
        record = np.zeros(RECORD_WORDS, dtype=np.intp)
        if self.change is not None:
            for word, table, function, table_word in zip(
                (PLACE, PULL), self._tables, self._functions, (PLACE_TABLE, PULL_TABLE), strict=True
            ):
                record[word], record[table_word] = function.address, table.ctypes.data
        return record

    @property
    def _functions(self) -> tuple[Gradient, Gradient]:
        return self.change.place, self.change.pull

    @cached_property
    def _tables(self) -> list[np.ndarray]:
        pairs = zip(self._functions, self._arguments, strict=True)
        return [function.arguments([], values) for function, values in pairs]

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
        if self.change is None:
            return theta
        if np.ndim(theta) > 1:
            return np.stack([self.find(one) for one in theta])
        phi, blocks = np.array(theta, dtype=float), self.change.geometry.blocks
        for block, (mu, log_tau, mixing) in zip(
            blocks, self.change.location_and_scale(theta), strict=True
        ):
            p, effect = block.parameter, block.effect
            value = np.reshape(theta[p.start : p.stop], p.shape)
            degree = np.reshape(self.degree[block.start : block.stop], p.shape)
            if not effect.offset:
                w = np.exp((degree - 1) * log_tau) * (value - mu)
            elif mixing is None:
                w = np.exp(degree * log_tau) * value
            else:
                deviation = mixing @ value if effect.columns else value @ mixing.T
                w = np.exp((degree - 1) * log_tau) * deviation
            phi[p.start : p.stop] = np.ravel(w + degree * mu)
        return phi
