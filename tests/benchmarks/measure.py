# SPDX-License-Identifier: Apache-2.0
"""One measurement of this package, in a process of its own; prints one JSON line.

python -m tests.benchmarks.measure speed --npy DIR --batch 500 --subsampling block
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

BEGAN = time.perf_counter()

import numpy as np  # noqa: E402
import pymc as pm  # noqa: E402

import pymc_sgcv as sg  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(MEASURES))
    parser.add_argument("--npy", type=Path)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--subsampling", default="block")
    parser.add_argument("--iterations", type=int, default=20_000)
    parser.add_argument("--chains", type=int, default=1)
    parser.add_argument("--setup", choices=("given", "automatic"), default="given")
    options = parser.parse_args()
    print(json.dumps(MEASURES[options.what](options)))


def logistic(options) -> tuple[pm.Model, np.ndarray]:
    """The regression of the peers, on their data, centered at their mode."""
    X, y = np.load(options.npy / "X_f8.npy"), np.load(options.npy / "y_f8.npy")
    mode = np.load(options.npy / "ref.npz")["map"]
    with pm.Model() as model:
        xb, yb = pm.Minibatch(X, (y > 0).astype("float64"), batch_size=options.batch)
        beta = pm.Laplace("beta", 0, 1, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=xb @ beta, observed=yb, total_size=len(y))
    return model, mode


def paper_step(options, mode: np.ndarray, kind=sg.SGLDCV, **arguments):
    """The paper's algorithm with the peers' step size: nothing is tuned or preconditioned."""
    return kind(
        step_size=1e-5, preconditioner=None, integrator="euler", thin=1, center={"beta": mode},
        progressbar=False, **arguments,
    )  # fmt: skip


def run(step, options, chains: int = 1, cores: int = 1, gradients: bool = True):
    return sg.sample(
        options.iterations, tune=0, step=step, chains=chains, cores=cores, random_seed=1,
        gradients=gradients, progressbar=False, compute_convergence_checks=False,
    )  # fmt: skip


def per_iteration(idata, options) -> float:
    return 1e6 * idata["posterior"].attrs["sampling_time"] / options.iterations


def speed(options) -> dict:
    """Microseconds per SGLD-CV iteration; a short run before it loads the compiled code.

    Every draw is stored, as by the peers; `with_gradients` also stores the gradient at each.
    """
    model, mode = logistic(options)
    short = argparse.Namespace(**{**vars(options), "iterations": 100})
    found = {}
    with model:
        step = paper_step(options, mode, subsampling=options.subsampling)
        run(step, short, options.chains, options.chains)
        for name, gradients in (("us", False), ("with_gradients", True)):
            idata = run(step, options, options.chains, options.chains, gradients)
            found[name] = per_iteration(idata, options)
    return {**found, "pymc": pm.__version__}


def saga(options) -> dict:
    """The same for SAGA, with the per-row and the block table."""
    model, mode = logistic(options)
    result = {}
    with model:
        for table in ("blocks", "rows"):
            step = paper_step(options, mode, sg.SAGA, table=table)
            n = options.iterations if table == "blocks" else options.iterations // 20
            short = argparse.Namespace(**{**vars(options), "iterations": n})
            result[table] = min(per_iteration(run(step, short), short) for _ in range(3))
    return result


def driver(options) -> dict:
    """Microseconds per draw that ``pm.sample`` adds to `sg.sample`, for the same draws."""
    model, mode = logistic(options)
    with model:
        step = paper_step(options, mode)
        ours = min(per_iteration(run(step, options), options) for _ in range(2))
        theirs = []
        for _ in range(2):
            idata = pm.sample(
                options.iterations, tune=0, step=step, chains=1, cores=1, random_seed=1,
                progressbar=False, compute_convergence_checks=False,
            )  # fmt: skip
            theirs.append(per_iteration(idata, options))
    return {"sg": ours, "pm": min(theirs), "extra": min(theirs) - ours}


def memory(options) -> dict:
    """Peak resident memory with four chains, over that of the data alone."""
    X = np.load(options.npy / "X_f8.npy")
    data = X.nbytes / 1e6
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    del X
    model, mode = logistic(options)
    with model:
        step = paper_step(options, mode)
        run(step, options, 4, 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    stored = 4 * options.iterations * 55 * 8 * 2 / 1e6
    return {"data_mb": data, "before_mb": before, "peak_mb": peak, "stored_mb": stored}


def building(options) -> dict:
    """What building the step adds to memory, over the data that the model holds."""
    model, mode = logistic(options)
    before = resident()
    with model:
        began = time.perf_counter()
        automatic = options.setup == "automatic"
        step = sg.SGLDCV(progressbar=False) if automatic else paper_step(options, mode)
        seconds = time.perf_counter() - began
    size = sum(a.nbytes for plate in step.problem.target.plates for a in plate.arrays()) / 1e6
    added = resident() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3 * 1.024 - before
    return {"data_mb": size, "added_mb": added, "peak_added_mb": peak, "seconds": seconds}


def resident() -> float:
    """Resident memory now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def first_draw(options) -> dict:
    """Seconds from the start of the process to the first draw, imports included."""
    imported = time.perf_counter() - BEGAN
    model, _ = logistic(options)
    with model:
        step = sg.SGLDCV(progressbar=False)
        sg.sample(1, tune=0, step=step, chains=1, progressbar=False, random_seed=1,
                  compute_convergence_checks=False)  # fmt: skip
    return {"import_s": imported, "first_draw_s": time.perf_counter() - BEGAN}


def factorisation(options) -> dict:
    """Sparse access: 100,000 ratings, 50,000 parameters, minibatches of 5,000."""
    rng, rank, n_rows = np.random.default_rng(0), 10, 100_000
    users, items = rng.integers(0, 1000, n_rows), rng.integers(0, 4000, n_rows)
    ratings = rng.normal(3.5, 1.0, n_rows)
    with pm.Model():
        u, i, r = pm.Minibatch(users, items, ratings, batch_size=5000)
        U = pm.Normal("U", 0, 0.3, shape=(1000, rank))
        V = pm.Normal("V", 0, 0.3, shape=(4000, rank))
        mean = 3.5 + (U[u] * V[i]).sum(axis=1)
        pm.Normal("r", mean, 1.0, observed=r, total_size=n_rows)
        step = sg.SGLD(step_size=1e-5, preconditioner=None, thin=100, progressbar=False)
        idata = sg.sample(20, tune=0, step=step, chains=1, progressbar=False, random_seed=1,
                          compute_convergence_checks=False)  # fmt: skip
        d = step.problem.size
        us = 1e6 * idata["posterior"].attrs["sampling_time"] / 2000
        chain = step.make_chain()
        chain.start(np.zeros(d), np.random.default_rng(0))
        began = time.perf_counter()
        for _ in range(200):
            chain.estimate()
        gradient = 1e6 * (time.perf_counter() - began) / 200
    return {"d": d, "us": us, "gradient_us": gradient, "noise_and_update_us": us - gradient}


MEASURES = {
    f.__name__: f for f in (speed, saga, driver, memory, building, first_draw, factorisation)
}

if __name__ == "__main__":
    sys.exit(main())
