# SPDX-License-Identifier: Apache-2.0
"""What a new user waits for: from the start of Python to the first draw, with nothing cached.

    python -m tests.benchmarks.first_minute [KIND ...] [--nutpie]

Every figure is the processor time of a process of its own, all its threads together, which on an
idle machine is about the time that passes, and on a busy one is still a measure of the work.
Python's own byte code is there, as after an installation with pip. With ``--nutpie`` what nutpie
compiles for the same model, with a cache of its own, stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

KINDS = (
    "linear", "logistic", "poisson", "negative_binomial", "student", "softmax", "ordered",
    "hierarchical", "censored", "mixture", "beta_regression", "two_likelihoods", "vector_outcome",
    "lkj_regression",
)  # fmt: skip
ROWS = 50_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help=", ".join(KINDS))
    parser.add_argument("--nutpie", action="store_true", help="compile with nutpie too")
    parser.add_argument("--child", choices=("ours", "nutpie", "nothing"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measures = {"ours": first_draw, "nutpie": nutpie, "nothing": nothing}
        print(json.dumps(measures[options.child](options.kinds[0])))
        return
    head = "| | cold: imports | model's functions | first draw | cached: first draw | imports |"
    print(head + (" nutpie | ratio |" if options.nutpie else ""))
    print("|---" * (8 if options.nutpie else 6) + "|")
    with tempfile.TemporaryDirectory() as fresh:
        child("nothing", "", fresh)  # Python's byte code
    colds, ratios = [], []
    for kind in options.kinds or KINDS:
        with tempfile.TemporaryDirectory() as fresh:
            cold, cached = child("ours", kind, fresh), child("ours", kind, fresh)
        colds.append(cold["draw"])
        cells = [cold["imports"], cold["compiling"], cold["draw"], cached["draw"]]
        cells.append(cached["imports"])
        if options.nutpie:
            with tempfile.TemporaryDirectory() as fresh:
                theirs = child("nutpie", kind, fresh)["compiling"]
            ratios.append(cold["compiling"] / theirs)
            cells += [theirs, ratios[-1]]
        print(f"| {kind} | " + " | ".join(f"{c:.2f}" for c in cells) + " |", flush=True)
    print(f"\nworst cold first draw {max(colds):.1f} s", end="")
    if ratios:
        print(f"; ours ÷ nutpie's: median {statistics.median(ratios):.2f}, ", end="")
        print(f"worst {max(ratios):.2f}", end="")
    print()


def child(what: str, kind: str, cache: str) -> dict:
    """Run one of the measurements below in a new process, with `cache` for all compiled code."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.first_minute"]
    environment = {**os.environ, "PYTENSOR_FLAGS": f"base_compiledir={cache}"}
    environment["NUMBA_CACHE_DIR"] = f"{cache}/numba_of_others"
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [*command, kind, "--child", what], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"{what} {kind} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def first_draw(kind: str) -> dict:
    """Seconds of processor time from the start of Python: to the end of imports, to a draw."""
    import pymc_sgcv as sg

    imports = time.process_time()
    from pymc_sgcv.rows import problem

    model, spent = build(kind), [0.0]
    compile_target = problem.compile_target

    def timed(*arguments, **further):
        began = time.process_time()
        functions = compile_target(*arguments, **further)
        spent[0] += time.process_time() - began
        return functions

    problem.compile_target = timed
    with model:
        step = sg.SGLDCV(progressbar=False)
        sg.sample(1, tune=0, step=step, chains=1, progressbar=False, random_seed=1,
                  compute_convergence_checks=False)  # fmt: skip
    whole = time.process_time()
    return {
        "imports": imports,
        "compiling": spent[0],
        "draw": whole,
    }


def nothing(kind: str) -> dict:
    """Import what is imported."""
    import tests.models  # noqa: F401

    return {}


def nutpie(kind: str) -> dict:
    """Processor time of ``nutpie.compile_pymc_model``."""
    import nutpie

    model = build(kind)
    began = time.process_time()
    nutpie.compile_pymc_model(model)
    return {"compiling": time.process_time() - began}


def build(kind: str):
    from tests.models import build

    return lkj_regression() if kind == "lkj_regression" else build(kind, ROWS)


def lkj_regression():
    """Three outcomes with correlated errors: matrix products in every layout."""
    import numpy as np
    import pymc as pm

    rng = np.random.default_rng(1)
    X = rng.normal(size=(ROWS, 4))
    Y = X @ rng.normal(size=(4, 3)) + rng.normal(size=(ROWS, 3))
    with pm.Model() as model:
        B = pm.Normal("B", 0, 1, shape=(4, 3))
        L, _, _ = pm.LKJCholeskyCov("L", n=3, eta=2, sd_dist=pm.HalfNormal.dist(1.0, shape=3))
        pm.MvNormal("y", X @ B, chol=L, observed=Y)
    return model


if __name__ == "__main__":
    main()
