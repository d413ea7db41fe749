# SPDX-License-Identifier: Apache-2.0
"""What is known about gradient noise: its size, and what it costs the center and ZV.

The notation is that of `pymc_sgcv.theory.bounds`.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from pymc_sgcv.theory.arguments import check_count, check_not_negative, check_positive


def lipschitz_constant(row_constants: np.ndarray, weights: np.ndarray | None = None) -> float:
    """L of the gradient noise, √(Σ Lᵢ²/pᵢ), from the Lipschitz constants Lᵢ of the rows.

    With pᵢ ∝ Lᵢ, the paper's choice, it is ΣLᵢ and smallest; with pᵢ = 1/N it is √(N ΣLᵢ²).

    Parameters
    ----------
    row_constants
        L₁, …, L_N.
    weights
        Probabilities pᵢ of the rows, on any scale; default: uniform.

    Examples
    --------
    >>> rows = np.array([1.0, 1.0, 4.0])
    >>> lipschitz_constant(rows, weights=rows)
    6.0
    >>> round(lipschitz_constant(rows), 3)
    7.348
    """
    rows = np.asarray(row_constants, dtype=float)
    if rows.ndim != 1 or not len(rows) or not np.isfinite(rows).all() or (rows < 0).any():
        raise ValueError("row_constants must be a vector of finite numbers, none negative.")
    if weights is None:
        return float(np.sqrt(len(rows) * np.sum(rows**2)))
    weights = np.asarray(weights, dtype=float)
    if weights.shape != rows.shape or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            f"weights must be finite, not negative and as many as row_constants, {len(rows)}."
        )
    if ((weights == 0) & (rows > 0)).any():
        raise ValueError("A row with weight 0 is never drawn, but its Lipschitz constant is not 0.")
    seen = rows > 0
    return float(np.sqrt(np.sum(rows[seen] ** 2 / weights[seen]) * weights.sum()))


def gradient_noise_bound(n: int, lipschitz: float, distance: float) -> float:
    """Bound on E‖ξ‖², the variance of SGLD-CV's gradient estimate (Lemma 1 of the paper).

    For n independent rows::

        E‖ξ‖² ≤ (L²/n) E‖θ − θ̂‖²

    It holds as well for rows drawn without replacement, whose variance is
    smaller; for blocks of a shuffled copy it holds on average over the shuffles.

    The paper has L = ΣLᵢ and pᵢ ∝ Lᵢ; its proof prints 1/p_I where 1/p_I² is meant.

    Parameters
    ----------
    n
        Rows per minibatch.
    lipschitz
        L, see `lipschitz_constant`.
    distance
        √E‖θ − θ̂‖². Under the posterior it is at most √(E‖θ̂ − θ̄‖² + d/m).

    Examples
    --------
    >>> gradient_noise_bound(n=100, lipschitz=50.0, distance=2.0)
    100.0
    """
    check_count(n=n)
    check_not_negative(lipschitz=lipschitz, distance=distance)
    return lipschitz**2 / n * distance**2


def sgd_center_error(K: int, m: float, D: float) -> float:
    """Bound on √E‖θ̂ − θ*‖² after K steps of SGD (the lemma of §Setup costs).

    For steps θ ← θ − ∇f̂/(mk), k = 1, …, K, where E‖∇f̂(θ)‖² ≤ D² wherever the iterates go and θ* is
    the mode::

        E‖θ̂ − θ*‖² ≤ 4D²/(m²K)

    There is no h/2 in it, so no convention to convert. The result can be given as
    `center_error` where mean and mode coincide; they are never further apart than √(d/m).

    Parameters
    ----------
    K
        Steps of stochastic gradient descent.
    m
        Strong convexity of −log posterior.
    D
        √E‖∇f̂‖², at most. It is O(N/√n), so that K = O(N/n), a pass, gives an error of O(1/√m).

    Notes
    -----
    Nemirovski et al. (2009), whom the paper cites, have D²/(m²K): the factor 4 can be left out. It
    is kept, as printed.

    Examples
    --------
    >>> sgd_center_error(K=400, m=1000.0, D=2000.0)
    0.2
    """
    check_positive(m=m, D=D)
    check_count(K=K)
    return 2 * D / (m * sqrt(K))


def zv_reduction_bound(noise: float, m: float, reduction: float = 1.0) -> float:
    """Bound on the variance that zero-variance post-processing removes (Theorem 2 of the paper).

    If post-processing of order 1 with the full gradient removes a share R of the variance, then
    with noisy gradients it removes::

        R̂ ≥ R/(1 + E‖ξ‖²/m)

    Corrected: the paper prints σ(N + 1) in place of m, an *upper* bound on E‖∇f‖², where the
    proof divides by it and so needs a lower bound on E(a·∇f)²/‖a‖². The printed statement fails:
    in one dimension R̂ = R/(1 + E ξ²/E f′²) exactly, and E f′² ≤ σ(N + 1). What is true follows from
    E ∇f ∇fᵀ = E ∇²f ≥ m I under the posterior: with a = −V⁻¹C the reduction is Cᵀ(J + Ξ)⁻¹C, where
    J = E ∇f ∇fᵀ and Ξ = E ξξᵀ ≤ (E‖ξ‖²/m) J.

    By `gradient_noise_bound` E‖ξ‖²/m is O(1/n) for SGLD-CV with a good center, whatever N; for
    SGLD it is O(N/n).

    Parameters
    ----------
    noise
        E‖ξ‖² under the posterior, of the gradients that are used.
    m
        Strong convexity of −log posterior.
    reduction
        R, the share removed with full gradients: 1 for linear functions of a Gaussian.

    Examples
    --------
    >>> zv_reduction_bound(noise=250.0, m=1000.0)
    0.8
    """
    check_positive(m=m)
    check_not_negative(noise=noise, reduction=reduction)
    if reduction > 1:
        raise ValueError(f"reduction must be a share of the variance, at most 1, not {reduction}.")
    return reduction / (1 + noise / m)
