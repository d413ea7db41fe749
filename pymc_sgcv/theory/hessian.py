# SPDX-License-Identifier: Apache-2.0
"""Ends of the spectrum of −log posterior's Hessian, and norms of single rows', from gradients.

Hessian-vector products are central differences of gradients over a thousandth of a posterior
standard deviation. A kink of the prior (Laplace) is not seen unless a difference straddles it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh
from scipy.sparse.linalg import LinearOperator, cg, eigsh

from pymc_sgcv.kernel.preconditioners import Preconditioner
from pymc_sgcv.rows.minibatch import Scratch, add_row_sum
from pymc_sgcv.rows.problem import Problem

WIDTH = 1e-3
"""Half the width of a difference, in posterior standard deviations."""
_DENSE = 128
"""Up to so many parameters the whole Hessian is formed: Lanczos would need as many products."""
_KRYLOV = 20
"""Lanczos vectors kept between restarts."""
_TOLERANCE = 1e-3
_POWER_ITERATIONS = 8
_AT_ONCE = 32
"""Hessian-vector products per call: the data are read once for all of them."""
_TINY = 1e-300


@dataclass(frozen=True)
class Coordinates:
    """Coordinates z of θ = T z: θ itself, T = I, or `whitened` ones, T = F.

    F is the factor of the approximate posterior covariance FFᵀ.
    """

    factor: Preconditioner
    whitened: bool

    def apply(self, v: np.ndarray) -> np.ndarray:
        """T times the rows of v: displacements of θ."""
        return self.factor.apply(v) if self.whitened else v

    def apply_transposed(self, v: np.ndarray) -> np.ndarray:
        """Tᵀ times the rows of v: gradients with respect to z."""
        return self.factor.apply_transposed(v) if self.whitened else v

    def lengths(self, v: np.ndarray) -> np.ndarray:
        """How many posterior standard deviations long the rows of v are, as a column."""
        white = v if self.whitened else self.factor.solve(v.copy())
        return np.linalg.norm(white, axis=1, keepdims=True)

    def covariance(self, v: np.ndarray) -> np.ndarray:
        """The approximate posterior covariance of z times the rows of v."""
        return v if self.whitened else self.factor.apply(self.factor.apply_transposed(v))

    def newton_step(self, gradient: np.ndarray) -> float:
        """Length of the Newton step that belongs to a gradient with respect to θ."""
        return float(np.linalg.norm(self.covariance(self.apply_transposed(gradient))))


def extreme_eigenvalues(
    problem: Problem, point: np.ndarray, coordinates: Coordinates, rng: np.random.Generator
) -> tuple[float, float]:
    """Smallest and largest eigenvalue of the Hessian of −log posterior over all rows at `point`."""

    def products(V: np.ndarray) -> np.ndarray:
        parts = []
        for first in range(0, len(V), _AT_ONCE):
            v = V[first : first + _AT_ONCE]
            moves, u = _moves(coordinates, v)
            g = problem.gradient(np.concatenate([point - moves, point + moves]))
            slopes = (g[: len(v)] - g[len(v) :]) / (2 * u)
            parts.append(coordinates.apply_transposed(slopes))
        return np.concatenate(parts)

    return ends_of_spectrum(products, coordinates.covariance, problem.size, rng)


def row_norms(
    scratch: Scratch,
    point: np.ndarray,
    coordinates: Coordinates,
    rows: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Norms of the Hessians of single rows at `point`, by power iteration on all of them at once.

    For at most `rows` of them: the copy of the data is shuffled, so its first are a random sample.
    """
    n, one = min(rows, scratch.rows.n_rows), np.ones(1)
    norms, v = np.zeros(n), rng.standard_normal((n, len(point)))
    for _ in range(_POWER_ITERATIONS):
        v /= np.maximum(np.linalg.norm(v, axis=1, keepdims=True), _TINY)
        moves, u = _moves(coordinates, v)
        pairs = np.stack([point - moves, point + moves], axis=1)
        g = np.zeros_like(pairs)
        for i in range(n):
            add_row_sum(scratch.record, pairs[i], i, i + 1, one, g[i])
        v = coordinates.apply_transposed((g[:, 0] - g[:, 1]) / (2 * u))
        norms = np.maximum(norms, np.linalg.norm(v, axis=1))
    return norms


def _moves(coordinates: Coordinates, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Displacements of θ along the rows of v, and their lengths in units of v."""
    u = WIDTH / np.maximum(coordinates.lengths(v), _TINY)
    return coordinates.apply(v * u), u


def ends_of_spectrum(
    products: Callable[[np.ndarray], np.ndarray],
    precondition: Callable[[np.ndarray], np.ndarray],
    d: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Smallest and largest eigenvalue of a symmetric matrix, given its products with rows of V.

    `precondition` multiplies the same way with an approximate inverse of it.
    """
    if d <= _DENSE:
        matrix = products(np.eye(d))
        values = eigvalsh(0.5 * (matrix + matrix.T))
        return float(values[0]), float(values[-1])
    hessian, approximate = _operator(products, d), _operator(precondition, d)
    start = rng.standard_normal(d)
    high = _largest(hessian, start)
    low = high - _largest(_operator(lambda V: high * V - products(V), d), start)
    if low < -_TOLERANCE * high:
        return low, high
    # That was to a fraction of M, which may be more than m: so 1/m, as the largest of the inverse.
    inverse = _operator(lambda V: _solve(hessian, V[0], approximate)[None], d)
    return 1 / _largest(inverse, start), high


def _operator(products: Callable[[np.ndarray], np.ndarray], d: int) -> LinearOperator:
    return LinearOperator((d, d), matvec=lambda v: products(np.reshape(v, (1, d)))[0], dtype=float)


def _largest(operator: LinearOperator, start: np.ndarray) -> float:
    """The largest eigenvalue, by Lanczos."""
    options = {"which": "LA", "v0": start, "ncv": min(len(start), _KRYLOV), "tol": _TOLERANCE}
    return float(eigsh(operator, k=1, return_eigenvectors=False, **options)[0])


def _solve(operator: LinearOperator, v: np.ndarray, approximate: LinearOperator) -> np.ndarray:
    solution, failed = cg(operator, v, rtol=_TOLERANCE, maxiter=10 * len(v), M=approximate)
    if failed:
        raise RuntimeError(
            "The smallest eigenvalue of the Hessian at the center was not found: conjugate "
            "gradients did not converge. The posterior is too flat in some direction, or not "
            "log-concave at the center."
        )
    return solution
