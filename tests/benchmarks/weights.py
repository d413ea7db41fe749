# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""What preferential row weights gain and cost, on CoverType and on heavy-tailed predictors.

python -m tests.benchmarks.weights [--write docs/weights.md]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_sgcv as sg
from pymc_sgcv.engine.blas import one_blas_thread
from pymc_sgcv.kernel.chain import Chain
from pymc_sgcv.setup.noise import around, control_variate, gradient_noise
from pymc_sgcv.setup.weights import prefer
from tests.accuracy.others import regression

ITERATIONS = 4000


def heavy_tails(n_rows: int = 200_000, d: int = 10) -> pm.Model:
    """Logistic regression whose rows have lengths of a log-normal distribution."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n_rows, d)) * rng.lognormal(0, 1.5, size=(n_rows, 1))
    y = rng.random(n_rows) < 1 / (1 + np.exp(-X @ rng.normal(size=d) / np.sqrt(d)))
    return regression(X, y.astype("int32"))


def covtype() -> pm.Model:
    data = sg.datasets.covtype()
    return regression(data.X_train, data.y_train)


def measure(name: str, model: pm.Model) -> dict:
    """Noise in whitened units and microseconds per iteration, with and without weights."""
    with model:
        step = sg.SGLDCV(progressbar=False, weights="uniform", thin=1)
    problem, center, rng = step.problem, step.plan.center, np.random.default_rng(0)
    draws = around(center, rng)
    row: dict = {"data": name}
    layouts = {"block": problem.layout, "iid": replace(problem.layout, subsampling="iid")}
    with one_blas_thread():
        for way, layout in layouts.items():
            problem.lay_out(layout)
            row[f"µs, uniform {way}"] = microseconds(problem, center)
        uniform = noise(problem, center, draws, rng)
        began = time.perf_counter()
        prefer(problem, center, False, rng)
        seconds = time.perf_counter() - began
        row["µs, preferential"] = microseconds(problem, center)
        row["pass, s"] = round(seconds, 1)
        preferred = noise(problem, center, draws, rng)
    row["worst noise, uniform"], row["worst noise, preferential"] = uniform[0], preferred[0]
    row["average noise, uniform"], row["average noise, preferential"] = uniform[1], preferred[1]
    n = problem.batch_rows
    row["rows for the noise of 500 uniform ones, worst / average"] = (
        f"{n * preferred[0] / uniform[0]:.0f} / {n * preferred[1] / uniform[1]:.0f}"
    )
    with model:
        auto = sg.SGLDCV(progressbar=False)
    row["step, uniform"] = round(step.plan.step_size, 3)
    row["step, auto"] = round(auto.plan.step_size, 3)
    return row


def noise(problem, center, draws, rng) -> tuple[float, float]:
    V = gradient_noise(problem, control_variate(center), draws, center.factor, rng)
    values = np.linalg.eigvalsh(V)
    return round(float(values[-1]), 2), round(float(values.mean()), 3)


def microseconds(problem, center) -> float:
    chain, d = Chain(problem, control_variate(center)), problem.size
    out, times = np.empty((2, ITERATIONS, d)), []
    for _ in range(3):
        chain.start(center.theta, np.random.default_rng(1))
        began = time.perf_counter()
        chain.run(np.full(ITERATIONS, 1e-3), 1, *out)
        times.append(time.perf_counter() - began)
    return round(1e6 * min(times) / ITERATIONS, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    rows = [measure("heavy tails, N = 200,000, d = 10", heavy_tails())]
    rows.append(measure("CoverType, N = 435,759, d = 55", covtype()))
    lines = ["| | " + " | ".join(row["data"] for row in rows) + " |", "|---|---|---|"]
    lines += [
        f"| {k} | " + " | ".join(str(row[k]) for row in rows) + " |" for k in list(rows[0])[1:]
    ]
    text = TEXT.format(date=date.today(), table="\n".join(lines))
    print(text)
    if options.write:
        options.write.write_text(text)


TEXT = """# Row weights

Made by `python -m tests.benchmarks.weights` on {date}. Logistic regressions with minibatches of 500 rows: one whose rows have
log-normal lengths (σ = 1.5), and CoverType, where some categories have a handful of rows. Gradient noise of the control variate is its variance in
whitened units, around the center: in the worst direction and on average. Time is per iteration of one chain, preconditioner included.

{table}

What the weights save in noise they save in rows: so many weighted rows have the noise of 500 uniform ones. They cost one pass
over the data at set-up, and rows are gathered from all over memory instead of read in order: compare the times of *uniform block* (the default) and
*preferential*. The default `weights="auto"` measures the noise first and takes preferential weights only where they lengthen the
step by more than 2.5 times.
"""

if __name__ == "__main__":
    main()
