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

from pymc_sgcv.kernel.preconditioners import LowRank

_STEPS = 30
"""Products with the Hessian: a fixed cost, and more than twice the directions usually found."""
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
) -> LowRank:
    """F = S (I + V (λ^−½ − 1) Vᵀ), (λ, V) the eigenpairs of SHS that are far from 1.

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
    """
    count = len(points)

    def product(v: np.ndarray) -> np.ndarray:
        move = _WIDTH * scales * v
        g = gradient(np.concatenate([points - move, points + move]))
        return scales * (g[:count] - g[count:]).mean(0) / (2 * _WIDTH)

    values, vectors, residuals = lanczos(product, len(scales), rng, min(_STEPS, len(scales)))
    far = np.abs(np.log(np.clip(np.abs(values), *_CLIP))) > _FAR
    keep = far & (residuals < _RESIDUAL * np.maximum(np.abs(values - 1), _FAR))
    lengths = 1 / np.sqrt(np.clip(np.abs(values[keep]), *_CLIP))
    return LowRank(scales, vectors[:, keep], lengths)


def lanczos(
    product: Callable[[np.ndarray], np.ndarray], d: int, rng: np.random.Generator, steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ritz values and vectors of a symmetric matrix after so many products, and their residuals.

    The basis is orthogonalised in full. ARPACK would go on until its tolerance is met, which the
    rounding of differences may not allow.
    """
    basis, a, b = np.zeros((steps, d)), np.zeros(steps), np.zeros(steps)
    v = rng.standard_normal(d)
    v /= np.linalg.norm(v)
    for k in range(steps):
        basis[k] = v
        w = product(v)
        a[k] = v @ w
        for _ in range(2):
            w = w - basis[: k + 1].T @ (basis[: k + 1] @ w)
        b[k] = np.linalg.norm(w)
        if not np.isfinite(b[k]) or b[k] < 1e-8 * np.abs(a[: k + 1]).max():
            steps = k + 1
            break
        v = w / b[k]
    values, vectors = eigh_tridiagonal(a[:steps], b[: steps - 1])
    return values, basis[:steps].T @ vectors, np.abs(b[steps - 1] * vectors[-1])
