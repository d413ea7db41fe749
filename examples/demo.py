# SPDX-License-Identifier: Apache-2.0
"""Logistic regression on 200,000 rows: declared in PyMC, sampled with SGLD-CV, sharpened by ZV."""

from __future__ import annotations

import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_sgcv as sg

N_ROWS, N_PREDICTORS, BATCH = 200_000, 20, 500
FIGURE = Path(__file__).with_name("demo.png")


def simulate(seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictors with correlated columns, 0/1 outcomes, and the coefficients behind them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, N_PREDICTORS)) + 0.5 * rng.normal(size=(N_ROWS, 1))
    beta = rng.normal(size=N_PREDICTORS) / np.sqrt(N_PREDICTORS)
    y = (rng.random(N_ROWS) < 1 / (1 + np.exp(-X @ beta))).astype("int32")
    return X, y, beta


def main() -> None:
    """Run the demonstration."""
    began = time.perf_counter()
    X, y, beta = simulate()
    with pm.Model(coords={"predictor": [f"x{i + 1}" for i in range(N_PREDICTORS)]}):
        xb, yb = pm.Minibatch(X, y, batch_size=BATCH)
        coefficients = pm.Laplace("beta", 0, 1, dims="predictor")
        pm.Bernoulli("y", logit_p=xb @ coefficients, observed=yb, total_size=N_ROWS)
        idata = pm.sample(1000, tune=200, step=sg.SGLDCV(), chains=4, cores=1, random_seed=1)
    idata = sg.zv(idata)
    table = sg.zv_summary(idata)
    print(f"\n{N_ROWS:,} rows, {N_PREDICTORS} predictors, minibatches of {BATCH}")
    print(table.to_string(float_format=lambda x: f"{x:.4g}"))
    inside = np.abs(table["mean_zv"] - beta) < 2 * table["sd"]
    print(f"\nTrue coefficient within 2 sd of its posterior mean: {inside.sum()} of {len(beta)}")
    draw_figure(idata, beta)
    print(f"Figure: {FIGURE.name}. {time.perf_counter() - began:.0f} s, compilation included.")


def draw_figure(idata, beta: np.ndarray) -> None:
    """Running means of one coefficient before and after ZV, and all posteriors."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    plain = idata["posterior"]["beta"].values[0, :, 0]
    corrected = idata["zv_posterior"]["beta"].values[0, :, 0]
    draws = np.arange(1, len(plain) + 1)
    left.plot(draws, np.cumsum(plain) / draws, label="plain draws")
    left.plot(draws, np.cumsum(corrected) / draws, label="ZV-corrected draws")
    left.set(xlabel="draws (one chain)", ylabel="running mean of beta[x1]")
    left.set_ylim(plain.mean() - plain.std(), plain.mean() + plain.std())
    left.legend()
    draws = idata["posterior"]["beta"].values.reshape(-1, len(beta))
    right.errorbar(
        np.arange(1, len(beta) + 1),
        draws.mean(0) - beta,
        yerr=2 * draws.std(0),
        fmt="o",
        ms=4,
        label="posterior mean ± 2 sd",
    )
    right.axhline(0, color="0.5", lw=1)
    right.set(xlabel="predictor", ylabel="coefficient − truth")
    right.legend(loc="lower left")
    right.xaxis.get_major_locator().set_params(integer=True)
    fig.savefig(FIGURE, dpi=120)


if __name__ == "__main__":
    main()
