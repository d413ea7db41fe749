# SPDX-License-Identifier: Apache-2.0
"""Corollary 1 of the paper: what a fixed accuracy costs as the data grow, SGLD against SGLD-CV.

Linear regression with known noise has a Gaussian posterior N(μ, Σ) in closed form, so the error of
a chain is known and not estimated. It is the 2-Wasserstein distance between N(μ, Σ) and the normal
distribution with the mean and covariance of the draws so far, in coordinates where Σ is the
identity, divided by √d: posterior standard deviations per parameter. The cost of a chain is what it
has read when that error falls below ACCURACY for good. Step sizes are the automatic ones.

    python examples/scaling.py                      # all sizes; writes docs/gallery/scaling.png
    SGCV_SCALE=quick python examples/scaling.py     # small sizes, two seeds, no file
    python examples/scaling.py --cache runs.json    # keep finished sizes, for a run in parts
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_sgcv as sg

QUICK = os.environ.get("SGCV_SCALE") == "quick"
SIZES = (1_000, 10_000) if QUICK else (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
SEEDS = range(2 if QUICK else 5)
DRAWS = 1000 if QUICK else 2000
D, BATCH, ACCURACY = 5, 200, 0.1
METHODS = {"SGLD": sg.SGLD, "SGLD-CV": sg.SGLDCV}
COLORS = {"SGLD": "#b8602b", "SGLD-CV": "#1f6fb4"}
FIGURE = Path(__file__).parents[1] / "docs" / "gallery" / "scaling.png"


def simulate(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictors with correlated columns, and outcomes with unit noise."""
    rng = np.random.default_rng(n_rows)
    X = rng.normal(size=(n_rows, D)) + 0.5 * rng.normal(size=(n_rows, 1))
    return X, X @ rng.normal(size=D) + rng.normal(size=n_rows)


def exact_posterior(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and Cholesky factor of the precision, for coefficients a priori N(0, 1)."""
    precision = X.T @ X + np.eye(D)
    return np.linalg.solve(precision, X.T @ y), np.linalg.cholesky(precision)


def running_error(draws: np.ndarray, mean: np.ndarray, root: np.ndarray) -> np.ndarray:
    """W₂ to the exact posterior per √d, of the first 2, 3, … draws, in whitened coordinates.

    W₂² between N(m, S) and N(0, I) is |m|² + tr(S + I − 2 S^½).
    """
    white = (draws - mean) @ root
    k = np.arange(1, len(white) + 1)
    m = np.cumsum(white, axis=0) / k[:, None]
    second = np.cumsum(white[:, :, None] * white[:, None, :], axis=0) / k[:, None, None]
    values = np.linalg.eigvalsh(second - m[:, :, None] * m[:, None, :])
    spread = ((np.sqrt(np.maximum(values, 0)) - 1) ** 2).sum(1)
    return np.sqrt(((m**2).sum(1) + spread) / D)[1:]


def draws_needed(error: np.ndarray) -> float:
    """After how many draws the error stays below ACCURACY; NaN if it does not."""
    above = np.flatnonzero(error > ACCURACY)
    last = above[-1] if len(above) else -1
    return np.nan if last == len(error) - 1 else float(last + 3)  # error[0] is that of 2 draws


def measure(n_rows: int) -> dict:
    """Costs for one size of the data: per method, one entry a seed."""
    X, y = simulate(n_rows)
    mean, root = exact_posterior(X, y)
    with pm.Model():
        xb, yb = pm.Minibatch(X, y, batch_size=BATCH)
        beta = pm.Normal("beta", 0, 1, shape=D)
        pm.Normal("y", xb @ beta, 1, observed=yb, total_size=n_rows)
        center = sg.find_center(progressbar=False, random_seed=1)
        result = {"center_rows": center.passes * n_rows, "center_distance": center.distance}
        for name, method in METHODS.items():
            step = method(progressbar=False)
            runs = [_cost(step, seed, mean, root) for seed in SEEDS]
            result[name] = {key: [run[key] for run in runs] for key in runs[0]}
    return result


def _cost(step, seed: int, mean: np.ndarray, root: np.ndarray) -> dict[str, float]:
    idata = sg.sample(
        DRAWS, tune=0, step=step, chains=1, random_seed=seed, progressbar=False,
        compute_convergence_checks=False,
    )  # fmt: skip
    chosen, error = idata.posterior.attrs, running_error(idata.posterior.beta.values[0], mean, root)
    needed = draws_needed(error)
    return {
        "rows": needed * chosen["thin"] * BATCH,
        "seconds": needed / DRAWS * chosen["sampling_time"],
        "setup_seconds": chosen["setup_seconds"],
        "step_size": chosen["step_size"],
        "final_error": error[-1],
    }


def slope(sizes: list[int], costs: list[float]) -> float:
    """Exponent a of cost ∝ Nᵃ, from the sizes of 10,000 rows and more."""
    large = [i for i, n in enumerate(sizes) if n >= 10_000 and np.isfinite(costs[i])]
    if len(large) < 2:
        return np.nan
    return np.polyfit(np.log([sizes[i] for i in large]), np.log([costs[i] for i in large]), 1)[0]


def report(results: dict[int, dict]) -> None:
    """Print what was measured."""
    print(f"rows read until the error is below {ACCURACY} sd per parameter (mean of seeds ± sd)")
    for n, result in results.items():
        for name in METHODS:
            r = {key: np.array(value) for key, value in result[name].items()}
            failed = int(np.isnan(r["rows"]).sum())
            print(
                f"N = {n:>9,} {name:8s} step {r['step_size'][0]:8.2g}  rows "
                f"{np.nanmean(r['rows']):10.3g} ± {np.nanstd(r['rows']):8.2g}  "
                f"{np.nanmean(r['seconds']):8.3f} s  set-up {r['setup_seconds'][0]:5.1f} s  "
                f"error at the end {r['final_error'].mean():.3f}"
                + (f"  {failed} not reached" if failed else "")
            )
    for name in METHODS:
        costs = [np.nanmean(r[name]["rows"]) for r in results.values()]
        print(f"{name}: rows grow like N^{slope(list(results), costs):.2f} from N = 10,000 on")


def draw(results: dict[int, dict]) -> None:
    """Two panels: rows read, and seconds."""
    fig, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    sizes = np.array(list(results))
    for ax, key in zip(axes, ("rows", "seconds")):
        for name, color in COLORS.items():
            cost = np.array([results[n][name][key] for n in results], dtype=float)
            mid, low, high = np.nanmean(cost, 1), np.nanmin(cost, 1), np.nanmax(cost, 1)
            ax.errorbar(
                sizes, mid, [mid - low, high - mid], fmt="o-", color=color, capsize=3, label=name
            )
        ax.set(xscale="log", yscale="log", xlabel="rows of data, N")
        ax.grid(alpha=0.25)
    first = np.nanmean(results[sizes[-1]]["SGLD"]["rows"])
    axes[0].plot(sizes, first * sizes / sizes[-1], ":", color="0.5", lw=1, label="slope 1")
    center = [r["center_rows"] for r in results.values()]
    axes[0].plot(sizes, center, "--", color="0.45", lw=1.2, label="finding the center, once")
    setup = [np.mean(r["SGLD-CV"]["setup_seconds"]) for r in results.values()]
    axes[1].plot(sizes, setup, "--", color="0.45", lw=1.2, label="set-up of SGLD-CV, once")
    axes[0].set(ylabel="rows read", title=f"Rows to an error of {ACCURACY} sd")
    axes[1].set(ylabel="seconds, one thread", title=f"Time to an error of {ACCURACY} sd")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False)
    FIGURE.parent.mkdir(exist_ok=True)
    fig.savefig(FIGURE, dpi=110)


def main() -> None:
    """Measure every size that the cache does not hold, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, help="JSON file that keeps finished sizes")
    parser.add_argument("--size", type=int, action="append", help="measure only this size")
    arguments = parser.parse_args()
    logging.getLogger("pymc.sgcv").setLevel(logging.WARNING)
    warnings.simplefilter("ignore", sg.SGCVWarning)  # that SGLD is slow is the point here
    kept = {}
    if arguments.cache and arguments.cache.exists():
        kept = {int(n): result for n, result in json.loads(arguments.cache.read_text()).items()}
    for n in arguments.size or SIZES:
        if n not in kept:
            kept[n] = measure(n)
            if arguments.cache:
                arguments.cache.write_text(json.dumps(kept))
    results = dict(sorted(kept.items()))
    report(results)
    if not QUICK and set(SIZES) <= set(results):
        draw(results)


if __name__ == "__main__":
    main()
