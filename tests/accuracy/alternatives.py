# SPDX-License-Identifier: Apache-2.0
"""What else might be done where a posterior is not Gaussian, in one dimension and in numpy.

    python -m tests.accuracy.alternatives

Two posteriors of the hard shapes, each with one unknown, so that quadrature is exact and thousands
of chains run at once: b of a category of 200 rows with one event among 100,000 rows, b ~ N(0, 5²);
and a coefficient b > 0 of 20,000 rows that would rather have it below 0. Minibatches enter by what
they have of the sums over rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

CHAINS, ITERATIONS, BURN = 1000, 1500, 300


class Shape(NamedTuple):
    """log p(t), its prior's gradient, and the rows' gradient and curvature from their sums s."""

    rows: int
    log_density: Callable
    prior: Callable
    gradient: Callable
    curvature: Callable
    sums: Callable
    grid: np.ndarray
    user: Callable = lambda t: t


def rare(strata: bool = False) -> Shape:
    """The rows of the category in every batch, or left to chance."""
    N, m, a = 100_000, 200, -1.5

    def sigma(b):
        return 1 / (1 + np.exp(-(a + b)))

    def sums(rng, n, size):  # how much of the category a batch stands for
        return 1.0 if strata else rng.hypergeometric(m, N - m, n, size) * (N / n) / m

    return Shape(
        N,
        lambda b: a + b - m * np.logaddexp(0, a + b) - b**2 / 50,
        lambda b: -b / 25,
        lambda b, s: s * (1 - m * sigma(b)),
        lambda b, s: -s * m * sigma(b) * (1 - sigma(b)),
        sums, np.linspace(-25, 5, 40_001),
    )  # fmt: skip


def bounded(transform: str = "log", scale: float = 0.005) -> Shape:
    """b = eᵗ, or b = scale log(1 + eᵗ)."""
    N, rng = 20_000, np.random.default_rng(9)
    z = rng.normal(size=N)
    terms = np.array([z**2, z * (-0.005 * z + rng.normal(size=N))])
    whole, root = terms.sum(1), np.linalg.cholesky(np.cov(terms) * N)

    def logistic(t):
        return 1 / (1 + np.exp(-t))

    if transform == "log":
        b = slope = bent = np.exp
        volume, push = (lambda t: t), (lambda t: 1.0)
    else:
        b, slope = (lambda t: scale * np.logaddexp(0, t)), (lambda t: scale * logistic(t))
        bent = lambda t: slope(t) * logistic(-t)  # noqa: E731
        volume, push = (lambda t: np.log(logistic(t))), (lambda t: logistic(-t))

    def sums(rng, n, size):
        return whole[:, None] + np.sqrt(N / n - 1) * root @ rng.standard_normal((2, size))

    return Shape(
        N,
        lambda t: whole[1] * b(t) - 0.5 * (whole[0] + 1) * b(t) ** 2 + volume(t),
        lambda t: push(t) - b(t) * slope(t),
        lambda t, s: (s[1] - s[0] * b(t)) * slope(t),
        lambda t, s: (s[1] - s[0] * b(t)) * bent(t) - s[0] * slope(t) ** 2,
        sums, np.linspace(-17, -2, 40_001) if transform == "log" else np.linspace(-12, 12, 40_001),
        b,
    )  # fmt: skip


def run(shape: Shape, n: int, h: float, how: str = "") -> list[str]:
    """Errors of mean, sd and quantiles of many chains, and rows visited for an effective draw."""
    rng, grid, log_p = np.random.default_rng(1), shape.grid, shape.log_density(shape.grid)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    center = p @ grid
    sd = np.sqrt(p @ (grid - center) ** 2)
    all_rows = np.ravel(shape.sums(rng, shape.rows, 1))
    all_rows = all_rows if len(all_rows) > 1 else all_rows[0]
    t, noise, kept = rng.choice(grid, CHAINS, p=p), rng.standard_normal(CHAINS), []

    def estimate(t, s):
        way = t - center
        rho = np.exp(np.clip(way, -5, 5)) if "following" in how else 1.0
        known = shape.gradient(center, all_rows) - shape.gradient(center, s)
        g = shape.gradient(t, s) + rho * known
        if "second order" in how:
            g = g + (shape.curvature(center, all_rows) - shape.curvature(center, s)) * way
        return shape.prior(t) + g

    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(BURN + ITERATIONS):
            g, new = estimate(t, shape.sums(rng, n, CHAINS)), rng.standard_normal(CHAINS)
            if "Barker" in how:
                move = np.sqrt(h) * sd * new
                forward = rng.random(CHAINS) < 1 / (1 + np.exp(-g * move))
                proposed = t + np.where(forward, move, -move)
            elif "Metropolis" in how:  # Euler's step, accepted by the densities over all rows
                proposed = t + sd * (h / 2 * sd * g + np.sqrt(h) * new)
                back = h / 2 * sd * estimate(proposed, all_rows)
                ratio = shape.log_density(proposed) - shape.log_density(t) + new**2 / 2
                ratio -= ((t - proposed) / sd - back) ** 2 / (2 * h)
                proposed = np.where(np.log(rng.random(CHAINS)) < ratio, proposed, t)
            else:  # Leimkuhler-Matthews
                drift = h / 2 * sd * g
                if "limited" in how:
                    drift = np.clip(drift, -2, 2)
                proposed = t + sd * (drift + np.sqrt(h) * (noise + new) / 2)
            t, noise = np.where(np.abs(proposed) < 1e3, proposed, center), new
            if k >= BURN:
                kept.append(t)
        x, exact = shape.user(np.array(kept)), shape.user(grid)
    mean = p @ exact
    spread = np.sqrt(p @ (exact - mean) ** 2)
    off = (np.quantile(x, [0.05, 0.95]) - np.interp([0.05, 0.95], np.cumsum(p), exact)) / spread
    return [
        f"{(x.mean() - mean) / spread:+.2f}", f"{x.std() / spread:.3f}", f"{off[0]:+.2f}",
        f"{off[1]:+.2f}", f"{n * _autocorrelation(np.array(kept)):,.0f}",
    ]  # fmt: skip


def _autocorrelation(x: np.ndarray) -> float:
    """Iterations to an effective draw, from all chains together (Geyer's initial sequence)."""
    z, total, k = x - x.mean(), 1.0, 1
    while k < len(z) // 3:
        pair = sum((z[:-j] * z[j:]).mean() / (z**2).mean() for j in (k, k + 1))
        if pair < 0:
            break
        total, k = total + 2 * pair, k + 2
    return total


TRIED = {
    "rare category": [
        ("batches of 500", rare(), 500, 0.3, ""),
        ("moves limited", rare(), 500, 0.3, "limited"),
        ("smaller step", rare(), 500, 0.05, "limited"),
        ("larger batch", rare(), 5000, 0.3, "limited"),
        ("Barker proposal", rare(), 500, 0.3, "Barker"),
        ("second-order control variate", rare(), 500, 0.3, "second order, limited"),
        ("Barker, second order", rare(), 500, 0.3, "Barker, second order"),
        ("Metropolis, all rows", rare(), 100_000, 1.0, "Metropolis"),
        ("category in every batch", rare(True), 300, 0.5, "limited"),
        ("the same, Barker", rare(True), 300, 0.5, "Barker"),
    ],
    "positive coefficient of 0": [
        ("batches of 500", bounded(), 500, 0.2, ""),
        ("moves limited", bounded(), 500, 0.2, "limited"),
        ("smaller step", bounded(), 500, 0.05, "limited"),
        ("larger batch", bounded(), 5000, 0.2, "limited"),
        ("Barker proposal", bounded(), 500, 0.2, "Barker"),
        ("second-order control variate", bounded(), 500, 0.2, "second order, limited"),
        ("softplus", bounded("softplus"), 500, 0.2, "limited"),
        ("Metropolis, all rows", bounded(), 20_000, 0.5, "Metropolis"),
        ("following control variate", bounded(), 50, 0.2, "following, limited"),
        ("following, batches of 500", bounded(), 500, 0.2, "following, limited"),
        ("the same, Barker", bounded(), 50, 0.2, "following, Barker"),
    ],
}


def main() -> None:
    for name, rows in TRIED.items():
        print(f"\n| {name} | n | h | mean | sd ratio | 5 % | 95 % | rows for an effective draw |")
        print(f"|{'---|' * 8}")
        for what, shape, n, h, how in rows:
            cells = " | ".join(run(shape, n, h, how))
            print(f"| {what} | {n:,} | {h} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
