# SPDX-License-Identifier: Apache-2.0
"""The numbers and the figure of docs/theory.md: bound, truth and automatic tuning on one model.

Run from the repository's root: python docs/figures/theory.py

The model is a linear regression with known residual variance. Its posterior is Gaussian, and the
moments of every iterate follow from a linear map, also with gradient noise: with z = (1, θ − θ̂) an
iteration is z ← T_S z + noise, so E zzᵀ ← E[T_S E zzᵀ T_Sᵀ] + Q, a matrix of size (d + 1)² that can
be raised to any power. No chain is run.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_sgcv as sg

N, D, BATCH, EPSILON = 20_000, 5, 500, 0.1


def data():
    rng = np.random.default_rng(1)
    mix = np.linalg.cholesky(0.7 * np.ones((D, D)) + 0.3 * np.eye(D))
    X = rng.normal(size=(N, D)) @ mix.T
    return X, X @ rng.normal(size=D) + rng.normal(size=N)


def declare(X, y):
    with pm.Model() as model:
        xb, yb = pm.Minibatch(X, y, batch_size=BATCH)
        beta = pm.Normal("beta", 0, 10, shape=D)
        pm.Normal("y", xb @ beta, 1, observed=yb, total_size=N)
    return model


class Truth:
    """Exact W₂ of SGLD-CV's iterates in coordinates F⁻¹θ, up to their not being quite Gaussian."""

    def __init__(self, X, y, center, factor):
        self.x = X @ factor  # one row each, in coordinates
        self.prior = factor.T @ factor / 100
        self.hessian = self.x.T @ self.x + self.prior
        self.gradient = factor.T @ center.gradient
        self.mean = np.linalg.solve(self.hessian, self.gradient)  # from the center
        self.covariance = np.linalg.inv(self.hessian)

    def _moves(self, h, drift, likelihoods):
        """T_S for a stack of estimates of the likelihood's Hessian."""
        T = np.zeros((len(likelihoods), D + 1, D + 1))
        T[:, 0, 0] = 1.0
        T[:, 1:, 0] = h / 2 * drift @ self.gradient
        T[:, 1:, 1:] = np.eye(D) - h / 2 * drift @ (self.prior + likelihoods)
        return T

    def map(self, h, n, drift=None, noise=None, integrator="euler", blocks=None, first=False):
        """The linear map of vec E zzᵀ, for n independent rows or for given `blocks` of rows."""
        drift = np.eye(D) if drift is None else drift
        noise = np.eye(D) if noise is None else noise
        mean = self._moves(h, drift, (self.hessian - self.prior)[None])[0]
        if blocks is None:
            rows = self._moves(h, drift, N * self.x[:, :, None] * self.x[:, None])
            steady = np.kron(mean, mean)
            linear = steady + (_mean_kron(rows) - steady) / n
        else:
            linear = _mean_kron(self._moves(h, drift, blocks))
        injected = h * noise @ noise.T
        if integrator == "lm":
            overlap = mean[1:, 1:] @ injected / 4  # with the noise of the step before
            injected = injected / 2 + (0 if first else overlap + overlap.T)
        Q = np.zeros((D + 1, D + 1))
        Q[1:, 1:] = injected
        linear[:, 0] += Q.ravel()  # E z₀² = 1
        return linear

    def second_moments(self, linear, K, first=None):
        """E zzᵀ of iterate K from the center; the first iteration may have a map of its own."""
        start = np.zeros((D + 1) ** 2)
        start[0] = 1.0
        start = linear @ start if first is None else first @ start
        return (np.linalg.matrix_power(linear, K - 1) @ start).reshape(D + 1, D + 1)

    def w2(self, linear, K, first=None):
        """W₂ between iterate K, from the center, and the posterior."""
        P = self.second_moments(linear, K, first)
        mean, covariance = P[1:, 0], P[1:, 1:] - np.outer(P[1:, 0], P[1:, 0])
        root = np.linalg.cholesky(self.covariance)
        cross = np.linalg.eigvalsh(root.T @ covariance @ root)
        bures = np.trace(covariance + self.covariance) - 2 * np.sqrt(np.maximum(cross, 0)).sum()
        return np.sqrt(np.sum((mean - self.mean) ** 2) + max(bures, 0.0))


def _mean_kron(T):
    return np.einsum("sij,skl->ikjl", T, T, optimize=True).reshape(2 * [(D + 1) ** 2]) / len(T)


def block_hessians(problem, factor):
    """Estimates of the likelihood's Hessian from every block of the samplers' shuffled copy.

    After the last row comes the first.
    """
    x = next(a for a in problem.rows[0].arrays if a.ndim == 2) @ factor
    x = np.concatenate([x, x[:BATCH]])
    sums = np.concatenate([np.zeros((1, D, D)), np.cumsum(x[:, :, None] * x[:, None], axis=0)])
    return N / BATCH * (sums[BATCH : BATCH + N] - sums[:N])


def iterations_to(truth, linear, epsilon, first):
    """Iterations after which W₂ is at most epsilon."""
    return next(k for k in range(1, 10**6) if truth.w2(linear, k, first) <= epsilon)


def longest(accuracy, epsilon, low=1e-6, high=1.9):
    """The longest step whose `accuracy` is at most epsilon."""
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if accuracy(middle) <= epsilon else (low, middle)
    return low


def main():
    X, y = data()
    model = declare(X, y)
    step = sg.SGLDCV(model=model, rng=1, progressbar=False)
    center, tuned = step.plan.center, step.plan
    F = np.asarray(center.factor)
    found = sg.theory.constants(model, center)
    white = found.preconditioned
    for name, c in (("plain", found), ("preconditioned", white)):
        print(
            f"{name}: m {c.m:.4g}, M {c.M:.4g}, M/m {c.condition:.3g}, "
            f"L/m {c.lipschitz / c.m:.3g}, "
            f"L weighted/m {c.lipschitz_weighted / c.m:.3g}, rows' error {c.rows_error:.1%}, "
            f"center {c.center_error * np.sqrt(c.m):.2g}"
        )
    arguments = white.as_arguments()
    truth = Truth(X, y, center, F)
    plain = Truth(X, y, center, np.eye(D))

    print("\nsettings                    h        n        K          K n    W2")
    for name, c, t in (("Theorem 1, plain", found, plain), ("Theorem 1, whitened", white, truth)):
        s = sg.theory.plan(EPSILON, **c.as_arguments())
        w2 = t.w2(t.map(s.h, s.n), s.K) * np.sqrt(c.m)
        bound = s.bound * np.sqrt(c.m)
        cost = sg.theory.cost_bound(EPSILON, **c.as_arguments())
        print(
            f"{name:22s} {s.h * c.m:8.2e} {s.n:8d} {s.K:11.3g} {s.cost:9.2g}  {w2:.2g} "
            f"(bound {bound:.2g}, Corollary 1 {cost:.2g})"
        )
    planned = sg.theory.plan(EPSILON, **arguments)

    turn = np.linalg.solve(F, np.asarray(tuned.method.factor))
    drift, L = turn @ turn.T, turn * tuned.method.kept
    blocks = block_hessians(step.problem, F)
    auto, first = (
        truth.map(tuned.step_size, BATCH, drift, L, "lm", blocks, first=first)
        for first in (False, True)
    )
    # Half of the accuracy for the limit, as Theorem 1 has it, half for the start.
    h = longest(lambda h: truth.w2(truth.map(h, BATCH), 10**6), EPSILON / 2)
    euler = truth.map(h, BATCH)
    for name, linear, begin, step_size in (
        ("Euler, truth", euler, euler, h),
        ("automatic", auto, first, tuned.step_size),
    ):
        K = iterations_to(truth, linear, EPSILON, begin)
        limit = truth.w2(linear, 10**6)
        print(
            f"{name:22s} {step_size:8.3g} {BATCH:8d} {K:11d} {K * BATCH:9.2g}  "
            f"{limit:.2g} in the limit"
        )
    print(f"largest sd error of the automatic settings: {_sd_error(truth, auto):.2%}")

    def proven(h, n=BATCH):
        try:
            return sg.theory.wasserstein_bound(h, n, 10**9, **arguments)
        except ValueError:
            return np.nan

    same = longest(lambda h: np.nan_to_num(proven(h), nan=np.inf), EPSILON)
    print(
        f"Proposition 1 with n = {BATCH} allows h = {same:.3g}; there the truth is "
        f"{truth.w2(truth.map(same, BATCH), 10**8):.2g}"
    )
    draw(truth, white, planned, auto, first, tuned.step_size, proven)


def _sd_error(truth, linear):
    """Relative error of the standard deviations in the long run, in coordinates, the largest."""
    P = truth.second_moments(linear, 10**6)
    variance = np.diag(P)[1:] - P[1:, 0] ** 2
    return np.abs(np.sqrt(variance / np.diag(truth.covariance)) - 1).max()


def draw(truth, white, planned, auto, first, h_auto, proven):
    blue, orange, green = "#4477aa", "#cc7711", "#228833"
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    k = np.unique(np.geomspace(1, planned.K, 120).astype(int))
    linear = truth.map(planned.h, planned.n)
    bound = [
        sg.theory.wasserstein_bound(planned.h, planned.n, int(i), **white.as_arguments()) for i in k
    ]
    left.loglog(k, bound, color=blue, label="bound, Theorem 1's settings")
    left.loglog(
        k, [truth.w2(linear, int(i)) for i in k], color=orange, label="truth, same settings"
    )
    left.loglog(
        k,
        [truth.w2(auto, int(i), first) for i in k],
        color=green,
        label="truth, automatic settings",
    )
    left.axhline(EPSILON, color="0.6", lw=1, ls=":")
    left.annotate(f"ε = {EPSILON}", (300, EPSILON * 1.15), color="0.4")
    left.set(xlabel="iteration", ylabel="W₂ to the posterior (whitened)")
    left.legend(frameon=False, fontsize=9, loc="lower left")

    h = np.geomspace(1e-4, 1.9, 60)
    right.loglog(h, [proven(x) for x in h], color=blue, label="bound, Proposition 1")
    limits = [truth.w2(truth.map(x, BATCH), 10**8) for x in h]
    right.loglog(h, limits, color=orange, label="truth, Euler")
    limits = [truth.w2(truth.map(x, BATCH, integrator="lm"), 10**8) for x in h]
    right.loglog(h, limits, color=green, label="truth, Leimkuhler–Matthews")
    right.plot(h_auto, truth.w2(auto, 10**6), "o", color=green, label="automatic settings")
    right.axhline(EPSILON, color="0.6", lw=1, ls=":")
    right.set(xlabel="step size h", ylabel=f"W₂ in the long run, n = {BATCH}")
    right.legend(frameon=False, fontsize=9)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    fig.savefig(Path(__file__).with_name("theory.png"), dpi=130)


if __name__ == "__main__":
    main()
