# SPDX-License-Identifier: Apache-2.0
"""The paper's bounds in our step size, with its slips corrected.

Notation. f = −log posterior = f₀ + Σᵢ fᵢ is m-strongly convex with M-Lipschitz gradient, ∇fᵢ is
Lᵢ-Lipschitz. θ̂ is the center, θ̄ the posterior mean, θ₀ the start. Errors of points are root mean
squares, √E‖θ̂ − θ̄‖². An accuracy ε is relative: W₂ ≤ ε/√m.

The step size is that of the samplers, θ ← θ − (h/2)∇f̂ + N(0, h). The paper's proofs write
θ ← θ − t∇f̂ + √(2t)ζ; their t = h/2 is what the code below calls `t`. Under a preconditioner FFᵀ
everything holds in the coordinates F⁻¹θ, with the constants and errors measured there.

The paper uses M for two things: the smoothness of f, and the size of the gradient noise, for which
it needs M ≥ ΣLᵢ and rows drawn with pᵢ ∝ Lᵢ. Here the second is an argument of its own,
`lipschitz`, so that M may be what it is and the rows may be drawn uniformly (`lipschitz_constant`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, log, sqrt

from pymc_sgcv.theory.arguments import check_count, check_not_negative, check_positive, check_target

ALPHA = 7 * sqrt(2) / 6
"""α of Proposition 1, from the discretisation error of one step (Dalalyan 2017, Lemma 4)."""


def wasserstein_bound(
    h: float,
    n: int,
    K: int,
    m: float,
    M: float,
    d: int,
    center_error: float = 0.0,
    start_error: float | None = None,
    *,
    lipschitz: float | None = None,
) -> float:
    """Bound on W₂ between iterate K of SGLD-CV and the posterior (Proposition 1 of the paper).

    With our h, twice that of the proof, and W₂²(ν₀, π) ≤ E‖θ₀ − θ̄‖² + d/m::

        W₂(ν_K, π) ≤ (1 − A)ᴷ W₂(ν₀, π) + C/A + B²/(C + √A B)

        A = 1 − √[h²L²/(2n) + (1 − mh/2)²]
        B = √{h²L²/(2n) · [E‖θ̂ − θ̄‖² + d/m]}
        C = α M √(h³d/8),   α = 7√2/6

    Corrected: the main text prints 2h²M/n in A for the appendix's 2h²M²/n. The proof needs A > 0
    and h ≤ 4/(m + M), which is asked for here; the paper's condition, h < 4m/(2M² + m²) in our
    units, implies both for every n when L ≤ M.

    Parameters
    ----------
    h, n, K
        Step size, rows per minibatch, iterations.
    m, M, d
        Strong convexity and smoothness of −log posterior; number of parameters.
    center_error
        √E‖θ̂ − θ̄‖², from the center to the posterior mean.
    start_error
        √E‖θ₀ − θ̄‖²; default: the chain starts at the center.
    lipschitz
        L of the gradient noise (`lipschitz_constant`); default: M, as in the paper, which is right
        only if M ≥ ΣLᵢ (or √(N ΣLᵢ²) for uniform rows). 0 for full gradients.

    Returns
    -------
    float
        The bound, in the units of θ.

    Examples
    --------
    >>> round(wasserstein_bound(h=1e-6, n=10, K=20_000, m=1000.0, M=2000.0, d=2), 4)
    0.0035
    """
    check_target(m, M, d)
    check_positive(h=h)
    check_count(n=n)
    check_count(least=0, K=K)
    center_error, start_error, L = _errors(M, center_error, start_error, lipschitz)
    t = h / 2
    noise = 2 * t**2 * L**2 / n
    A = 1 - sqrt(noise + (1 - m * t) ** 2)
    if A <= 0 or t > 2 / (m + M):
        longest = 2 * min(2 / (m + M), 2 * m * n / (2 * L**2 + n * m**2))
        raise ValueError(
            f"h is {h:.3g}, but the bound holds only for steps shorter than {longest:.3g} "
            f"with m = {m:.3g}, M = {M:.3g}, lipschitz = {L:.3g} and n = {n}."
        )
    B = sqrt(noise * (center_error**2 + d / m))
    C = ALPHA * M * sqrt(t**3 * d)
    start = sqrt(start_error**2 + d / m)
    return (1 - A) ** K * start + C / A + B**2 / (C + sqrt(A) * B)


@dataclass(frozen=True)
class Guarantee:
    """Settings of SGLD-CV for which an accuracy is proven.

    Attributes
    ----------
    h, n, K
        Step size, rows per minibatch, iterations.
    epsilon
        The accuracy asked for: W₂ ≤ ε/√m.
    target
        ε/√m, the same in the units of θ.
    bound
        What Proposition 1 says of these settings: at most `target`.
    """

    h: float
    n: int
    K: int
    epsilon: float
    target: float
    bound: float

    @property
    def cost(self) -> int:
        """K·n, the rows that are looked at."""
        return self.K * self.n


def plan(
    epsilon: float,
    m: float,
    M: float,
    d: int,
    center_error: float = 0.0,
    start_error: float | None = None,
    *,
    lipschitz: float | None = None,
    n: int | None = None,
) -> Guarantee:
    """Step size, batch size and iterations that reach W₂ ≤ ε/√m (Theorem 1 of the paper).

    With R = M/m, R_L = L/m and our h, twice that of the proof::

        h = 2β/m
        Kh ≥ (2/m) log[(4m/ε²)(E‖θ₀ − θ̄‖² + d/m)]
        n ≥ (64 R_L² β/ε²)(m E‖θ̂ − θ̄‖² + d)

        β = min{1/(2R_L² + 1), ε²/(64R²α²d), 2/(1 + R)}

    The longest such step and the smallest such K and n are returned. If `n` is given, the step is
    the longest for that n: the condition on n is solved for h instead.

    Corrected: the paper prints max for min in the condition on h and in β, and L for R in the proof
    of β and n. Its condition h ≤ (1/m)·n/(2R² + n) also allows longer steps than β does, for which
    its n is too small; h = 2β/m does not. The last entry of β only matters if L < M.

    Parameters
    ----------
    epsilon
        Accuracy, about in posterior standard deviations (of the widest direction).
    m, M, d, center_error, start_error, lipschitz
        As in `wasserstein_bound`.
    n
        Rows per minibatch, if they are not to be chosen.

    Examples
    --------
    >>> settings = plan(0.5, m=1000.0, M=2000.0, d=2)
    >>> settings.n, settings.K
    (1, 19322)
    >>> settings.bound <= settings.target
    True

    From a PyMC model, with the preconditioner of the samplers:

    >>> found = constants(model, center)  # doctest: +SKIP
    >>> plan(0.1, **found.preconditioned.as_arguments())  # doctest: +SKIP
    """
    check_target(m, M, d)
    check_positive(epsilon=epsilon)
    center_error, start_error, L = _errors(M, center_error, start_error, lipschitz)
    spread, noise = m * center_error**2 + d, (L / m) ** 2
    if n is None:
        beta = _beta(epsilon, m, M, d, L)
        n = max(1, ceil(64 * noise * beta / epsilon**2 * spread))
    else:
        check_count(n=n)
        enough = n * epsilon**2 / (64 * noise * spread) if L else inf
        beta = min(_beta(epsilon, m, M, d, L, n), enough)
    h = 2 * beta / m
    K = max(1, ceil(log(4 / epsilon**2 * (m * start_error**2 + d)) / beta))
    bound = wasserstein_bound(h, n, K, m, M, d, center_error, start_error, lipschitz=L)
    return Guarantee(h, n, K, epsilon, epsilon / sqrt(m), bound)


def cost_bound(
    epsilon: float,
    m: float,
    M: float,
    d: int,
    center_error: float = 0.0,
    start_error: float | None = None,
    *,
    lipschitz: float | None = None,
) -> float:
    """Bound on K·n, the rows looked at to reach W₂ ≤ ε/√m (Corollary 1 of the paper).

    With β of `plan`, C₁ = 1/β and C₂ = 64R_L²β/ε²::

        Kn ≤ {C₁ log[4(m E‖θ₀ − θ̄‖² + d)/ε²] + 1} {C₂(m E‖θ̂ − θ̄‖² + d) + 1}

    Nothing in it grows with N as long as R and R_L do not and the two errors are
    O(1/√m): the cost is that of a few posterior standard deviations, whatever the data.

    Corrected: with β a minimum, C₁ = 1/β is the maximum of what the paper prints as a minimum.

    Parameters
    ----------
    epsilon, m, M, d, center_error, start_error, lipschitz
        As in `plan`.

    Examples
    --------
    >>> one = cost_bound(0.5, m=1e3, M=2e3, d=2)
    >>> round(one) == round(cost_bound(0.5, m=1e6, M=2e6, d=2))  # a thousand times the data
    True
    """
    check_target(m, M, d)
    check_positive(epsilon=epsilon)
    center_error, start_error, L = _errors(M, center_error, start_error, lipschitz)
    beta = _beta(epsilon, m, M, d, L)
    iterations = max(0.0, log(4 / epsilon**2 * (m * start_error**2 + d))) / beta + 1
    rows = 64 * (L / m) ** 2 * beta / epsilon**2 * (m * center_error**2 + d) + 1
    return iterations * rows


def _beta(epsilon: float, m: float, M: float, d: int, L: float, n: int = 1) -> float:
    """Largest mh/2 that Theorem 1 allows for n rows."""
    R, noise = M / m, (L / m) ** 2
    return min(n / (2 * noise + n), epsilon**2 / (64 * R**2 * ALPHA**2 * d), 2 / (1 + R))


def _errors(
    M: float, center_error: float, start_error: float | None, lipschitz: float | None
) -> tuple[float, float, float]:
    """Check and fill in the defaults: start at the center, L = M."""
    start_error = center_error if start_error is None else start_error
    lipschitz = M if lipschitz is None else lipschitz
    check_not_negative(center_error=center_error, start_error=start_error, lipschitz=lipschitz)
    return center_error, start_error, lipschitz
