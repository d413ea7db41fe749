# SPDX-License-Identifier: Apache-2.0
"""Preconditioners FFᵀ, the approximate posterior covariance, as things with one interface.

A chain moves in coordinates x = F⁻¹θ, in which the posterior is about standard normal. All that the
rest of the package asks of F is here: products with F and Fᵀ, a solution, the standard deviations
that belong to it, and second moments in its coordinates. What is d × d stays inside `Dense`;
`pymc_sgcv.kernel.low_rank` takes d (k + 1) numbers and as much time for a product.

Vectors are rows: every product takes (..., d) and gives the same shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import eigh, lu_factor, lu_solve

from pymc_sgcv.kernel.forms import DENSE, DIAGONAL, NO_CORNERS, NO_MEMBERS, Form

COMPLETE_LIMIT = 400
"""Up to this many parameters second moments are measured as whole matrices."""


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
        return type(self)(factors[:, None] * self.matrix)

    def form(self) -> Form:
        """The matrix."""
        matrix = np.ascontiguousarray(self.matrix)
        return Form(DENSE, matrix, np.empty(0), np.empty(0), NO_MEMBERS, NO_CORNERS)

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


class _ByCoordinate(Preconditioner):
    """What is known of second moments is known coordinate by coordinate."""

    complete = False

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


class Coordinatewise(_ByCoordinate):
    """One with a scale for each parameter."""

    scales: np.ndarray

    @property
    def size(self) -> int:
        """The number of parameters."""
        return len(self.scales)


class Wide(_ByCoordinate, Dense):
    """A square matrix F of more parameters than second moments can be measured for as a matrix."""

    def ratios(self, other: Preconditioner) -> np.ndarray:
        """Ratios of the standard deviations."""
        return other.spread() / self.spread()


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
        scales = np.ascontiguousarray(self.scales)
        return Form(DIAGONAL, np.empty((0, 0)), scales, np.empty(0), NO_MEMBERS, NO_CORNERS)

    def ratios(self, other: Preconditioner) -> np.ndarray:
        """Ratios of the standard deviations."""
        return other.spread() / self.scales

    def by_parameter(self, share: np.ndarray) -> np.ndarray:
        """A parameter is a coordinate."""
        return share

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.scales, dtype=dtype)


def square(matrix: np.ndarray) -> Dense:
    """F as a matrix, of few parameters or of many."""
    return Dense(matrix) if len(matrix) <= COMPLETE_LIMIT else Wide(matrix)


def from_array(factor: np.ndarray) -> Preconditioner:
    """F as a matrix, or as the vector of its diagonal."""
    return Diagonal(factor) if factor.ndim == 1 else square(factor)


def from_covariance(matrix: np.ndarray) -> Preconditioner | None:
    """F of a covariance matrix or a vector of variances; None if it is neither."""
    if not np.isfinite(matrix).all():
        return None
    if matrix.ndim == 1:
        return Diagonal(np.sqrt(matrix)) if (matrix > 0).all() else None
    if not np.allclose(matrix, matrix.T):
        return None
    try:
        return square(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        return None
