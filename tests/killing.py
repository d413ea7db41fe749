# SPDX-License-Identifier: Apache-2.0
"""Runs that are killed at random moments and gone on with, compared with runs that were not.

``python -m tests.killing --runs 50`` does that for every step method in turn, on 1 and 2 threads.
The process that is killed is a fork: it has nothing to import and nothing to compile.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_sgcv as sg
from pymc_sgcv.sampling import record, stored
from pymc_sgcv.sampling.files import ARRAY, GROUP
from pymc_sgcv.sampling.packing import peek
from tests.shared import QUIET

N, DRAWS, TUNE, BLOCK = 300, 150, 40, 25
_rng = np.random.default_rng(2)
X = _rng.normal(size=(N, 3))
Y = X @ np.array([1.0, -0.5, 0.3]) + _rng.normal(size=N)
HOW = {"draws": DRAWS, "tune": TUNE, "chains": 2, "random_seed": 5, **QUIET}
GROUPS = "posterior", "gradient", "unconstrained_posterior", "sample_stats"
FIXED = {"step_size": 3e-4, "preconditioner": None, "thin": 3, "batch_size": 20}
AROUND = {**FIXED, "center": {"beta": np.array([1.0, -0.5, 0.3])}}
METHODS = {
    "SGLD": lambda: sg.SGLD(**FIXED),
    "SGLD, without replacement": lambda: sg.SGLD(subsampling="without", **FIXED),
    "SGLD, a schedule": lambda: sg.SGLD(
        **FIXED | {"step_size": sg.PolynomialDecay(a=3e-4, b=1.0, gamma=0.1)}
    ),
    "SGLDCV": lambda: sg.SGLDCV(**AROUND),
    "SGLDCV, weights": lambda: sg.SGLDCV(weights=np.linspace(1, 2, N), **AROUND),
    "SAGA": lambda: sg.SAGA(**AROUND),
    "SAGA, blocks, float32": lambda: sg.SAGA(table="blocks", table_dtype="float32", **AROUND),
    "SVRG": lambda: sg.SVRG(refresh=17, **AROUND),
    "SGHMC": lambda: sg.SGHMC(leapfrog=7, **FIXED),
    "SGHMCCV": lambda: sg.SGHMCCV(**AROUND),
    "SGNHT": lambda: sg.SGNHT(**FIXED),
    "SGNHTCV": lambda: sg.SGNHTCV(**AROUND),
}


def make_model() -> pm.Model:
    """A regression with a Deterministic whose bits depend on how many draws it is computed for."""
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Deterministic("fit", X @ beta)
        pm.Normal("y", X @ beta, sigma, observed=Y)
    return model


def small_blocks() -> None:
    """Blocks of `BLOCK` draws of `make_model`: 4 parameters, and 4 + N numbers computed.

    The state is stored with each of them.
    """
    stored._SHARE = np.inf
    record._BLOCK_NUMBERS = stored._BLOCK_NUMBERS = BLOCK * (8 + N)


def assert_same(a, b) -> None:
    """Every number of two results is the same."""
    for group in GROUPS:
        assert set(a[group].data_vars) == set(b[group].data_vars)
        for name in a[group].data_vars:
            np.testing.assert_array_equal(a[group][name].values, b[group][name].values)


def killed(step: sg.SGLD, path: Path, cores: int, rng: np.random.Generator) -> list[int]:
    """Run in another process until it is killed; how many draws of each chain count then.

    The moment is random among the blocks and within the time that a block takes.
    """
    child = os.fork()
    if child == 0:
        try:
            with step.model:
                sg.sample(step=step, store=path, cores=cores, **HOW)
        finally:
            os._exit(0)
    block, state = rng.integers(-1, (DRAWS + TUNE) // BLOCK), path / GROUP / ARRAY / "0.npz"
    until = time.monotonic() + 20
    while block >= 0 and time.monotonic() < until:
        if state.exists() and peek(state, "done") >= block * BLOCK:
            break
        time.sleep(0.001)
    time.sleep(rng.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        return stored.draws_done(path)
    except (FileNotFoundError, KeyError):  # not so far
        return []


def main() -> None:
    """Kill and resume, and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    small_blocks()
    rng, folder = np.random.default_rng(asked.seed), Path(tempfile.mkdtemp())
    steps, whole, within = {}, {}, 0
    with make_model() as model:
        for k in range(asked.runs):
            name = list(METHODS)[k % len(METHODS)]
            if name not in steps:
                steps[name] = METHODS[name]()
                whole[name] = sg.sample(step=steps[name], **HOW)
            cores, path = 1 + (k // len(METHODS)) % 2, folder / f"{k}.zarr"
            found = []
            for _ in range(1 + k % 2):  # every second one is killed twice
                found.append(killed(steps[name], path, cores, rng))
            with model:
                result = sg.sample(step=steps[name], store=path, cores=cores, **HOW)
            assert_same(whole[name], result)
            within += any(0 < n < DRAWS + TUNE for n in found[-1])
            print(f"{k + 1:3d} {name:28s} {cores} threads, killed at {found}: the same", flush=True)
            shutil.rmtree(path)
    print(f"{asked.runs} runs, {within} of them killed between the first and the last draw.")


if __name__ == "__main__":
    main()
