# SPDX-License-Identifier: Apache-2.0
"""F = S B (I + V diag(a) Vᵀ): coordinates, blocks of a few of them, and a few directions of all."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import DTypeLike

from pymc_sgcv.kernel.forms import LOW_RANK, NO_CORNERS, NO_MEMBERS, Form
from pymc_sgcv.kernel.preconditioners import Coordinatewise, Preconditioner


@dataclass(frozen=True)
class Blocks:
    """B: parameters that belong to one group, say its intercept and its slope, and are correlated.

    Attributes
    ----------
    members
        The parameters of each block, (g, m); none is in two blocks.
    corners
        What multiplies them, symmetric matrices of (g, m, m).
    """

    members: np.ndarray = field(default_factory=lambda: NO_MEMBERS)
    corners: np.ndarray = field(default_factory=lambda: NO_CORNERS)

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """B times each of `vectors`."""
        if not len(self.members):
            return vectors
        out = np.array(vectors)
        out[..., self.members] = np.einsum("gab,...gb->...ga", self.corners, out[..., self.members])
        return out

    def inverse(self) -> Blocks:
        """B⁻¹."""
        return Blocks(
            self.members, np.linalg.inv(self.corners) if len(self.members) else NO_CORNERS
        )

    def squared(self) -> Blocks:
        """The squares of the entries of B."""
        return Blocks(self.members, self.corners**2)


class LowRank(Coordinatewise):
    """Coordinates, blocks of them, and a few directions that are longer or shorter.

    Parameters
    ----------
    scales
        The diagonal of S, (d,).
    directions
        V, orthonormal columns, (d, k).
    lengths
        1 + a: the standard deviations along V in units of S B, (k,).
    blocks
        B; by default the identity.
    """

    name = "lowrank"

    def __init__(
        self,
        scales: np.ndarray,
        directions: np.ndarray,
        lengths: np.ndarray,
        blocks: Blocks | None = None,
    ):
        self.scales, self.directions, self.lengths = scales, directions, lengths
        self.blocks = blocks or Blocks()

    def _stretched(self, vectors: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return vectors + ((vectors @ self.directions) * (lengths - 1)) @ self.directions.T

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """S B (v + V a Vᵀ v)."""
        return self.scales * self.blocks.apply(self._stretched(vectors, self.lengths))

    def apply_transposed(self, vectors: np.ndarray) -> np.ndarray:
        """(I + V a Vᵀ) B S v."""
        return self._stretched(self.blocks.apply(self.scales * vectors), self.lengths)

    def solve(self, vectors: np.ndarray) -> np.ndarray:
        """(I + V (1 / (1 + a) − 1) Vᵀ) B⁻¹ S⁻¹ v."""
        unmixed = self.blocks.inverse().apply(np.divide(vectors, self.scales, out=vectors))
        return self._stretched(unmixed, 1 / self.lengths)

    def spread(self) -> np.ndarray:
        """S √(Σ B² + Σ (B V)² ((1 + a)² − 1))."""
        return self.scales * np.sqrt(self._variances())

    def _variances(self) -> np.ndarray:
        along = self.blocks.apply(self.directions.T).T
        own = self.blocks.squared().apply(np.ones(self.size))
        return own + along**2 @ (self.lengths**2 - 1)

    def scaled(self, factors: np.ndarray) -> LowRank:
        """S times factors."""
        return LowRank(factors * self.scales, self.directions, self.lengths, self.blocks)

    def form(self) -> Form:
        """S, Vᵀ, a and B."""
        return Form(
            LOW_RANK,
            np.ascontiguousarray(self.directions.T),
            np.ascontiguousarray(self.scales),
            self.lengths - 1,
            np.ascontiguousarray(self.blocks.members, dtype=np.intp),
            np.ascontiguousarray(self.blocks.corners),
        )

    def ratios(self, other: Preconditioner) -> np.ndarray:
        """Ratios of the standard deviations."""
        return other.spread() / self.spread()

    def by_parameter(self, share: np.ndarray) -> np.ndarray:
        """Σⱼ Fᵢⱼ² shareⱼ / Σⱼ Fᵢⱼ², without F."""
        V, a, B = self.directions, self.lengths - 1, self.blocks
        W = B.apply(V.T).T
        cross = (W * a * B.apply((share[:, None] * V).T).T).sum(1)
        squares = np.einsum("ij,jk,ik->i", W * a, V.T @ (share[:, None] * V), W * a)
        return (B.squared().apply(share) + 2 * cross + squares) / self._variances()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.apply(np.eye(self.size)).T, dtype=dtype)
