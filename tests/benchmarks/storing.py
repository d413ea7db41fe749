# SPDX-License-Identifier: Apache-2.0
"""What storing a run costs, what memory it takes, and what starting from an earlier run saves.

``python -m tests.benchmarks.storing``: processor time, of runs in turn, and peak memory by
tracemalloc, on a logistic regression with 55 parameters and batches of 500 rows.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_sgcv as sg

QUIET = {"chains": 2, "random_seed": 1, "progressbar": False, "compute_convergence_checks": False}


def logistic(n_rows: int, d: int, total: int | None = None) -> pm.Model:
    """The first rows of always the same data."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(total or n_rows, d))
    chance = 1 / (1 + np.exp(-X @ rng.normal(size=d) / np.sqrt(d)))
    y = (rng.random(len(X)) < chance).astype("int32")
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=d)
        pm.Bernoulli("y", logit_p=X[:n_rows] @ beta, observed=y[:n_rows])
    return model


def storing(folder: Path, times: int = 3, draws: int = 60_000) -> None:
    """Processor time of all of `sample`, with and without a store."""
    with logistic(100_000, 55):
        step = sg.SGLDCV(batch_size=500, progressbar=False)
        sg.sample(10, step=step, store=folder / "warm", **QUIET)
        spent: dict[str, list[float]] = {"memory": [], "store": []}
        for i in range(times):
            for where in spent:
                path = folder / str(i) if where == "store" else None
                began = time.process_time()
                sg.sample(draws, step=step, store=path, **QUIET)
                spent[where].append(time.process_time() - began)
    ratios = np.divide(spent["store"], spent["memory"]) - 1
    print(f"storing {draws} draws of 55 parameters: {np.round(100 * ratios, 1)} % more time")
    print({where: np.round(found, 2).tolist() for where, found in spent.items()})


def memory(folder: Path) -> None:
    """Peak memory against the number of draws."""
    with logistic(2_000, 5):
        step = sg.SGLDCV(thin=1, batch_size=50, step_size=0.3, progressbar=False)
        for keep in ("store", "moments"):
            for draws in (100_000, 1_000_000):
                how = {"store": folder / f"m{draws}"} if keep == "store" else {"keep": "moments"}
                tracemalloc.start()
                sg.sample(draws, step=step, **how, **QUIET)
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                print(f"{keep}: {draws} draws, peak {peak / 1e6:.1f} MB", flush=True)


def new_rows() -> None:
    """Processor time until the first draw, anew and from an earlier run."""
    with logistic(400_000, 55, 500_000):
        first = sg.sample(50, **QUIET)
    spent: dict[str, list[float]] = {"anew": [], "from the earlier run": []}
    with logistic(500_000, 55):
        sg.sample(50, **QUIET)
        for _ in range(2):
            for how in spent:
                source = None if how == "anew" else first
                result = sg.sample(50, continue_from=source, **QUIET)
                spent[how].append(result["posterior"].attrs["setup_seconds"])
    print({how: np.round(found, 2).tolist() for how, found in spent.items()}, "s of set-up")


def main() -> None:
    """All of it."""
    logging.disable(logging.INFO)
    folder = Path(tempfile.mkdtemp())
    try:
        storing(folder)
        new_rows()
        memory(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
