# SPDX-License-Identifier: Apache-2.0
"""Purchases in many shops: group effects from their declaration to a plot of their shrinkage.

    python examples/shops.py                                   # 60,000 visits to 600 shops
    python examples/shops.py --rows 1000000 --shops 10000      # the same at scale

The figure goes to docs/figures/shops.png, or where --figure says.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_sgcv as sg

N_PREDICTORS, MEAN, SPREAD = 8, -1.5, 0.5
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "shops.png"


def simulate(rows: int, shops: int, seed: int = 1) -> tuple[np.ndarray, ...]:
    """Visits to shops of very different sizes: predictors, shop and whether something was bought.

    The effects of the shops and the coefficients behind them come last.
    """
    rng = np.random.default_rng(seed)
    size = rng.lognormal(0, 1.2, shops)
    shop = rng.choice(shops, size=rows, p=size / size.sum())
    effect = MEAN + SPREAD * rng.standard_normal(shops)
    beta = 0.4 * rng.standard_normal(N_PREDICTORS)
    X = rng.standard_normal((rows, N_PREDICTORS))
    y = (rng.random(rows) < 1 / (1 + np.exp(-X @ beta - effect[shop]))).astype("int32")
    return X, shop, y, effect, beta


def declare(X: np.ndarray, shop: np.ndarray, y: np.ndarray, shops: int) -> pm.Model:
    """Logistic regression with an effect for each shop."""
    with pm.Model(coords={"shop": np.arange(shops), "predictor": np.arange(X.shape[1])}) as model:
        a = pm.Normal("a", 0, 2)
        tau = pm.HalfNormal("tau", 1)
        u = pm.Normal("u", a, tau, dims="shop")
        beta = pm.Normal("beta", 0, 1, dims="predictor")
        pm.Bernoulli("y", logit_p=X @ beta + u[shop], observed=y)
    return model


def main() -> None:
    """Simulate, sample, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000, help="visits")
    parser.add_argument("--shops", type=int, default=600)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    args = parser.parse_args()

    X, shop, y, effect, beta = simulate(args.rows, args.shops)
    began = time.perf_counter()
    with declare(X, shop, y, args.shops):
        step = sg.SGLDCV()
        ready = time.perf_counter()
        idata = sg.sample(args.draws, step=step, chains=4, random_seed=1)
    ended = time.perf_counter()

    posterior = idata["posterior"]
    draws = {name: posterior[name].values for name in ("a", "tau", "beta", "u")}
    visits = np.bincount(shop, minlength=args.shops)
    print(f"\n{args.rows:,} visits to {args.shops:,} shops, {N_PREDICTORS} predictors")
    print(f"Visits to a shop: {visits.min()} to {visits.max():,}, median {np.median(visits):.0f}")
    print(f"Set-up {ready - began:.0f} s, compilation included; 4 chains {ended - ready:.0f} s\n")
    truth = {"a": MEAN, "tau": SPREAD} | {f"beta[{j}]": b for j, b in enumerate(beta)}
    columns = {"a": draws["a"], "tau": draws["tau"]}
    columns |= {f"beta[{j}]": draws["beta"][..., j] for j in range(N_PREDICTORS)}
    print(f"{'':8} {'truth':>7} {'mean':>7} {'sd':>7}")
    for name, x in columns.items():
        print(f"{name:8} {truth[name]:7.3f} {x.mean():7.3f} {x.std():7.3f}")
    mean, sd = draws["u"].mean((0, 1)), draws["u"].std((0, 1))
    for k in (1, 2):
        inside = np.mean(np.abs(mean - effect) < k * sd)
        print(f"{'' if k > 1 else chr(10)}True effect within {k} sd of its mean: {inside:.1%}")
    raw = raw_effects(X, shop, y, draws["beta"].mean((0, 1)), args.shops)
    seen = np.isfinite(raw)
    print(f"Root mean square error of a shop's effect: {rms(mean - effect):.3f}", end=", ")
    print(f"of its raw log-odds (where there are any) {rms((raw - effect)[seen]):.3f}")
    print(f"Shops with no raw log-odds, since all or none bought: {args.shops - seen.sum()}")
    print("\n" + sg.diagnose(idata).to_string())
    draw_figure(args.figure, visits, raw, mean, draws)


def rms(x: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(x**2)))


def raw_effects(X, shop, y, beta, shops: int) -> np.ndarray:
    """Each shop's own estimate: where its expected purchases are those seen, without a prior.

    Newton's method, all shops at once; NaN where all or none bought.
    """
    bought, visits = np.bincount(shop, y, shops), np.bincount(shop, minlength=shops)
    some = (bought > 0) & (bought < visits)
    effect, offset = np.zeros(shops), X @ beta
    for _ in range(30):
        p = 1 / (1 + np.exp(-offset - effect[shop]))
        slope = bought - np.bincount(shop, p, shops)
        curvature = np.bincount(shop, p * (1 - p), shops)
        effect[some] += np.clip(slope[some] / curvature[some], -1, 1)
    return np.where(some, effect, np.nan)


def draw_figure(path: Path, visits, raw, mean, draws) -> None:
    """Raw log-odds against posterior means, and how far each shop is drawn to the others."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    order = np.argsort(visits)[::-1]
    order = order[np.isfinite(raw[order])][:: max(1, len(order) // 3000)]
    size = np.log10(visits[order])
    points = left.scatter(raw[order], mean[order], c=size, s=12, cmap="viridis", lw=0)
    ends = np.nanmin(raw), np.nanmax(raw)
    left.plot(ends, ends, color="0.5", lw=1, label="no shrinkage")
    left.axhline(draws["a"].mean(), color="0.5", lw=1, ls="--", label="mean of all shops, a")
    left.set(xlabel="a shop's own log-odds", ylabel="posterior mean of its effect")
    left.legend(loc="upper left")
    bar = fig.colorbar(points, ax=left, label="visits")
    ticks = np.arange(np.ceil(size.min()), size.max())
    bar.set_ticks(ticks, labels=[f"{10**t:,.0f}" for t in ticks])
    for k in order:
        right.plot([visits[k]] * 2, [raw[k], mean[k]], color="0.8", lw=0.6, zorder=1)
    for x, colour, label in ((raw, "C1", "own log-odds"), (mean, "C0", "posterior mean")):
        right.scatter(visits[order], x[order], s=7, color=colour, lw=0, label=label, zorder=2)
    right.set(xscale="log", xlabel="visits to the shop", ylabel="effect")
    right.legend(loc="lower right")
    fig.savefig(path, dpi=110)
    print(f"\nFigure: {path.name}")


if __name__ == "__main__":
    main()
