# SPDX-License-Identifier: Apache-2.0
"""Preconditioners FFᵀ, the approximate posterior covariance, as things with one interface.

A chain moves in coordinates x = F⁻¹θ, in which the posterior is about standard normal. All that the
rest of the package asks of F is here: products with F and Fᵀ, a solution, the standard deviations
that belong to it, and second moments in its coordinates. What is d × d stays inside `Dense`;
`LowRank` takes d (k + 1) numbers and as much time for a product.

Vectors are rows: every product takes (..., d) and gives the same shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import eigh, lu_factor, lu_solve

from pymc_sgcv.engine.native import compiled

DENSE, DIAGONAL, LOW_RANK = range(3)


class Form(NamedTuple):
    """F as compiled code takes it, of the same type for every kind.

    Attributes
    ----------
    kind
        One of those above.
    matrix
        F itself if dense, Vᵀ of (k, d) if of low rank, else of no size.
    scales
        S, the diagonal part, of no size if dense.
    stretch
        What low rank adds along the directions V, of (k,), else of no size.
    """

    kind: int
    matrix: np.ndarray
    scales: np.ndarray
    stretch: np.ndarray


@compiled
def apply(form, vector, out):
    """Fill `out` with F times `vector`."""
    if form.kind == DENSE:
        np.dot(form.matrix, vector, out)
    elif form.kind == DIAGONAL:
        _scale(form.scales, vector, out)
    else:
        _stretch(form, vector, out)
        _scale(form.scales, out, out)


@compiled
def apply_transposed(form, vector, out):
    """Fill `out` with Fᵀ times `vector`."""
    if form.kind == DENSE:
        np.dot(form.matrix.T, vector, out)
    elif form.kind == DIAGONAL:
        _scale(form.scales, vector, out)
    else:
        scaled = np.empty(len(vector))
        _scale(form.scales, vector, scaled)
        _stretch(form, scaled, out)


@compiled
def _scale(scales, vector, out):
    for j in range(len(out)):
        out[j] = scales[j] * vector[j]


@compiled
def _stretch(form, vector, out):
    """Fill `out` with (I + V diag(stretch) Vᵀ) times `vector`."""
    along = np.empty(len(form.stretch))
    np.dot(form.matrix, vector, along)
    for k in range(len(along)):
        along[k] *= form.stretch[k]
    np.dot(form.matrix.T, along, out)
    for j in range(len(out)):
        out[j] += vector[j]


class Preconditioner(ABC):
    """F of a preconditioner FFᵀ; ``np.asarray`` gives its numbers."""

    name: str
    complete: bool
    """Whether second moments in its coordinates are whole matrices: then nothing is left out."""

    @property
    @abstractmethod
    def size(self) -> int:
        """d, the number of parameters."""

    @abstractmethod
    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """F times each of `vectors`."""

    @abstractmethod
    def apply_transposed(self, vectors: np.ndarray) -> np.ndarray:
        """Fᵀ times each of `vectors`, as a gradient becomes one with respect to x."""

    @abstractmethod
    def solve(self, vectors: np.ndarray) -> np.ndarray:
        """F⁻¹ times each of `vectors`, in the memory that they came in where that is possible."""

    @abstractmethod
    def spread(self) -> np.ndarray:
        """Standard deviations of the Gaussian with covariance FFᵀ."""

    @abstractmethod
    def scaled(self, factors: np.ndarray) -> Preconditioner:
        """F with each parameter's standard deviation times a factor."""

    @abstractmethod
    def form(self) -> Form:
        """What compiled code takes."""

    @abstractmethod
    def ratios(self, other: Preconditioner) -> np.ndarray:
        """Singular values of F⁻¹G for another factor G: all 1 where the two are the same."""

    @abstractmethod
    def moments(self, white: np.ndarray, scale: float = 1.0) -> np.ndarray:
        """Mean squares of rows, × `scale`: a matrix if complete, else of each coordinate."""

    @abstractmethod
    def identity(self) -> np.ndarray:
        """The `moments` of independent coordinates of variance 1."""

    @abstractmethod
    def variances(self, moments: np.ndarray) -> np.ndarray:
        """The mean square of each coordinate."""

    @abstractmethod
    def largest(self, moments: np.ndarray) -> float:
        """The mean square in the worst direction."""

    @abstractmethod
    def principal(self, moments: np.ndarray) -> tuple[np.ndarray, Preconditioner]:
        """Mean squares in uncorrelated directions, and F turned so that these are coordinates."""

    @abstractmethod
    def by_parameter(self, share: np.ndarray) -> np.ndarray:
        """For each parameter, the mean of `share` over coordinates, by their part in its variance.

        If the variance of coordinate j is 1 + shareⱼ, that of a parameter is 1 + this of its own.
        """

    @abstractmethod
    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size} parameters)"


class Dense(Preconditioner):
    """A square matrix F."""

    name, complete = "dense", True

    def __init__(self, matrix: np.ndarray):
        self.matrix = matrix

    @property
    def size(self) -> int:
        """D."""
        return len(self.matrix)

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """F v."""
        return self.matrix @ vectors if vectors.ndim == 1 else vectors @ self.matrix.T

    def apply_transposed(self, vectors: np.ndarray) -> np.ndarray:
        """Fᵀ v."""
        return self.matrix.T @ vectors if vectors.ndim == 1 else vectors @ self.matrix

    def solve(self, vectors: np.ndarray) -> np.ndarray:
        """F⁻¹ v, by LU decomposition."""
        decomposed = lu_factor(self.matrix)
        return lu_solve(decomposed, vectors.T, overwrite_b=True, check_finite=False).T

    def spread(self) -> np.ndarray:
        """The norms of the rows of F."""
        return np.sqrt((self.matrix**2).sum(1))

    def scaled(self, factors: np.ndarray) -> Preconditioner:
        """Rows times factors."""
        return Dense(factors[:, None] * self.matrix)

    def form(self) -> Form:
        """The matrix."""
        return Form(DENSE, np.ascontiguousarray(self.matrix), np.empty(0), np.empty(0))

    def ratios(self, other: Preconditioner) -> np.ndarray:
        """By singular value decomposition."""
        numbers = np.asarray(other)
        matrix = numbers if numbers.ndim == 2 else np.diag(numbers)
        return np.linalg.svd(np.linalg.solve(self.matrix, matrix), compute_uv=False)

    def moments(self, white: np.ndarray, scale: float = 1.0) -> np.ndarray:
        """A (d, d) matrix."""
        return scale * white.T @ white / len(white)

    def identity(self) -> np.ndarray:
        """The identity matrix."""
        return np.eye(self.size)

    def variances(self, moments: np.ndarray) -> np.ndarray:
        """Its diagonal."""
        return np.diag(moments)

    def largest(self, moments: np.ndarray) -> float:
        """Its largest eigenvalue."""
        return float(np.linalg.eigvalsh(moments)[-1])

    def principal(self, moments: np.ndarray) -> tuple[np.ndarray, Preconditioner]:
        """Eigenvalues, and F in the directions of the eigenvectors."""
        values, vectors = eigh(moments)
        return np.maximum(values, 0.0), Dense(self.matrix @ vectors)

    def by_parameter(self, share: np.ndarray) -> np.ndarray:
        """Σⱼ Fᵢⱼ² shareⱼ / Σⱼ Fᵢⱼ²."""
        return (self.matrix**2 @ share) / (self.matrix**2).sum(1)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.matrix, dtype=dtype)


class Coordinatewise(Preconditioner):
    """What is known of second moments is known coordinate by coordinate."""

    complete = False
    scales: np.ndarray

    @property
    def size(self) -> int:
        """The number of parameters."""
        return len(self.scales)

    def moments(self, white: np.ndarray, scale: float = 1.0) -> np.ndarray:
        """Mean squares, of (d,)."""
        return scale * np.mean(white**2, axis=0)

    def identity(self) -> np.ndarray:
        """Ones."""
        return np.ones(self.size)

    def variances(self, moments: np.ndarray) -> np.ndarray:
        """They are."""
        return moments

    def largest(self, moments: np.ndarray) -> float:
        """Their maximum."""
        return float(moments.max())

    def principal(self, moments: np.ndarray) -> tuple[np.ndarray, Preconditioner]:
        """Coordinates are taken as uncorrelated."""
        return moments, self


class Diagonal(Coordinatewise):
    """A diagonal F, given by its diagonal: standard deviations."""

    name = "diagonal"

    def __init__(self, scales: np.ndarray):
        self.scales = scales

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """Each coordinate times its scale."""
        return vectors * self.scales

    apply_transposed = apply

    def solve(self, vectors: np.ndarray) -> np.ndarray:
        """Each coordinate over its scale."""
        return np.divide(vectors, self.scales, out=vectors)

    def spread(self) -> np.ndarray:
        """The scales."""
        return self.scales

    def scaled(self, factors: np.ndarray) -> Preconditioner:
        """Scales times factors."""
        return Diagonal(factors * self.scales)

    def form(self) -> Form:
        """The scales."""
        return Form(DIAGONAL, np.empty((0, 0)), np.ascontiguousarray(self.scales), np.empty(0))

    def ratios(self, other: Preconditioner) -> np.ndarray:
        """Ratios of the standard deviations."""
        return other.spread() / self.scales

    def by_parameter(self, share: np.ndarray) -> np.ndarray:
        """A parameter is a coordinate."""
        return share

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.scales, dtype=dtype)


class LowRank(Coordinatewise):
    """F = S (I + V diag(a) Vᵀ): a diagonal, and a few directions that are longer or shorter.

    Parameters
    ----------
    scales
        The diagonal of S, (d,).
    directions
        V, orthonormal columns, (d, k).
    lengths
        1 + a: the standard deviations along V in units of S, (k,).
    """

    name = "lowrank"

    def __init__(self, scales: np.ndarray, directions: np.ndarray, lengths: np.ndarray):
        self.scales, self.directions, self.lengths = scales, directions, lengths

    def _stretched(self, vectors: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return vectors + ((vectors @ self.directions) * (lengths - 1)) @ self.directions.T

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """S (v + V a Vᵀ v)."""
        return self.scales * self._stretched(vectors, self.lengths)

    def apply_transposed(self, vectors: np.ndarray) -> np.ndarray:
        """(I + V a Vᵀ) S v."""
        return self._stretched(self.scales * vectors, self.lengths)

    def solve(self, vectors: np.ndarray) -> np.ndarray:
        """(I + V (1 / (1 + a) − 1) Vᵀ) S⁻¹ v."""
        return self._stretched(np.divide(vectors, self.scales, out=vectors), 1 / self.lengths)

    def spread(self) -> np.ndarray:
        """S √(1 + Σ V² ((1 + a)² − 1))."""
        return self.scales * np.sqrt(1 + self.directions**2 @ (self.lengths**2 - 1))

    def scaled(self, factors: np.ndarray) -> Preconditioner:
        """S times factors."""
        return LowRank(factors * self.scales, self.directions, self.lengths)

    def form(self) -> Form:
        """S, Vᵀ and a."""
        directions = np.ascontiguousarray(self.directions.T)
        return Form(LOW_RANK, directions, np.ascontiguousarray(self.scales), self.lengths - 1)

    def ratios(self, other: Preconditioner) -> np.ndarray:
        """Ratios of the standard deviations."""
        return other.spread() / self.spread()

    def by_parameter(self, share: np.ndarray) -> np.ndarray:
        """Σⱼ Fᵢⱼ² shareⱼ / Σⱼ Fᵢⱼ², without F."""
        V, a = self.directions, self.lengths - 1
        inside = V.T @ (share[:, None] * V)
        squares = np.einsum("ij,jk,ik->i", V * a, inside, V * a)
        total = share + 2 * share * (V**2 @ a) + squares
        return total / (1 + V**2 @ (self.lengths**2 - 1))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.apply(np.eye(self.size)).T, dtype=dtype)


def from_array(factor: np.ndarray) -> Preconditioner:
    """F as a matrix, or as the vector of its diagonal."""
    return Diagonal(factor) if factor.ndim == 1 else Dense(factor)


def from_covariance(matrix: np.ndarray) -> Preconditioner | None:
    """F of a covariance matrix or a vector of variances; None if it is neither."""
    if not np.isfinite(matrix).all():
        return None
    if matrix.ndim == 1:
        return Diagonal(np.sqrt(matrix)) if (matrix > 0).all() else None
    if not np.allclose(matrix, matrix.T):
        return None
    try:
        return Dense(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        return None
