# SPDX-License-Identifier: Apache-2.0
"""The directions in which a posterior is much longer or shorter than its coordinates say.

With S the coordinates' conditional standard deviations and H the Hessian of −log density, SHS has
ones on its diagonal, and most of its eigenvalues are near 1. Those that are not belong to a few
directions in which many parameters move together, say all effects of groups against their mean.
Lanczos' method finds them, at both ends of the spectrum, from products with H alone: differences of
gradients, here averaged over several points, since at a single one H may be indefinite.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh_tridiagonal

from pymc_sgcv.kernel.low_rank import Blocks, LowRank

_STEPS, _MOST_STEPS = 20, 200
"""Products with the Hessian after which it is asked whether there are enough, and in all."""
_MOST_NUMBERS = 4_000_000
"""Numbers in the basis of so many products: of many parameters there are fewer."""
_VERY_FAR = 0.5
"""Directions beyond this are waited for."""
_WIDTH = 0.5
"""Half the width of a difference, in standard deviations of a coordinate, summed over all."""
_FAR = 0.25
"""Directions whose logarithm of the eigenvalue is beyond this are taken into account."""
_RESIDUAL = 0.15
"""Residual of an eigenpair, relative to its distance from 1, up to which it is believed."""
_CLIP = 1e-4, 1e4


def low_rank_factor(
    gradient: Callable[[np.ndarray], np.ndarray],
    points: np.ndarray,
    scales: np.ndarray,
    rng: np.random.Generator,
    blocks: Blocks | None = None,
) -> LowRank:
    """F = S B (I + V (λ^−½ − 1) Vᵀ), (λ, V) the eigenpairs of B S H S B that are far from 1.

    Parameters
    ----------
    gradient
        Of the log density, at each of some points.
    points
        Where the Hessian is taken; the average of these is decomposed.
    scales
        The diagonal of S.
    rng
        Draws the first direction.
    blocks
        B; by default the identity.
    """
    count, blocks = len(points), blocks or Blocks()

    def product(v: np.ndarray) -> np.ndarray:
        move = _WIDTH * scales * blocks.apply(v)
        g = gradient(np.concatenate([points - move, points + move]))
        return blocks.apply(scales * (g[:count] - g[count:]).mean(0) / (2 * _WIDTH))

    d = len(scales)
    most = int(np.clip(_MOST_NUMBERS // d, 2 * _STEPS, _MOST_STEPS))
    values, vectors, residuals = lanczos(product, d, rng, _missing, most)
    lengths = _lengths(values)
    keep = (np.abs(np.log(lengths)) > _FAR / 2) & _believed(values, residuals)
    return LowRank(scales, vectors[:, keep], lengths[keep], blocks)


def _lengths(values: np.ndarray) -> np.ndarray:
    """λ^−½, within bounds, of the modulus of eigenvalues."""
    return 1 / np.sqrt(np.clip(np.abs(values), *_CLIP))


def _believed(values: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """Whether what is left of each in others is small, stretched by its length as it will be."""
    left = residuals * np.maximum(_lengths(values), 1.0)
    return left < _RESIDUAL * np.maximum(np.abs(values - 1), _FAR)


def _missing(values: np.ndarray, residuals: np.ndarray) -> bool:
    """Whether there are odd directions that are not known well enough yet."""
    odd = np.abs(np.log(_lengths(values))) > _VERY_FAR / 2
    return bool((odd & ~_believed(values, residuals)).any())


def lanczos(
    product: Callable[[np.ndarray], np.ndarray],
    d: int,
    rng: np.random.Generator,
    missing: Callable[[np.ndarray, np.ndarray], bool],
    most: int = _MOST_STEPS,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ritz values and vectors of a symmetric matrix given its products, and their residuals.

    Goes on while `missing` says so of values and residuals, to `most` products. The basis is
    orthogonalised in full. ARPACK would go on until its tolerance is met, which the rounding of
    differences may not allow.
    """
    basis = np.empty((min(d, most), d))
    a: list[float] = []
    b: list[float] = []
    v = rng.standard_normal(d)
    v /= np.linalg.norm(v)
    while True:
        basis[len(a)] = v
        w = product(v)
        a.append(float(v @ w))
        known = basis[: len(a)]
        for _ in range(2):
            w = w - (known @ w) @ known
        b.append(float(np.linalg.norm(w)))
        count = len(a)
        ended = count == min(d, most) or not b[-1] > 1e-8 * np.abs(a).max()
        if ended or count % _STEPS == 0:
            values, vectors = eigh_tridiagonal(a, b[:-1])
            residuals = np.abs(b[-1] * vectors[-1])
            if ended or not missing(values, residuals):
                return values, known.T @ vectors, residuals
        v = w / b[-1]
