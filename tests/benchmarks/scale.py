# SPDX-License-Identifier: Apache-2.0
"""Data of any size: memory, disk and generated rows. Makes docs/scale.md.

``python -m tests.benchmarks.scale --write docs/scale.md`` takes some 20 minutes, 30 GB of disk and
8 GB of memory; ``--share 0.01`` does the same with a hundredth of the rows. Every measurement has a
process of its own, in which a million rows are sampled first, so that compilation is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_sgcv as sg
from pymc_sgcv.rows.population import Population
from pymc_sgcv.rows.problem import Problem

D = 20
BETA = np.linspace(-0.5, 0.5, D)
BLOCK = 1_000_000
QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}


def block(number: int, d: int = D, kind: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """A million rows of a logistic regression."""
    rng = np.random.default_rng([1, number])
    X = rng.standard_normal((BLOCK, d), dtype=np.float32).astype(kind, copy=False)
    chance = 1 / (1 + np.exp(-X @ BETA[:d].astype(kind)))
    return X, (rng.random(BLOCK, dtype=np.float32) < chance).astype(np.int8)


class Memory:
    """The peak of what belongs to this process alone: pages of files that it has mapped do not."""

    def __init__(self) -> None:
        self.peak, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.peak = max(self.peak, self.now())

    @staticmethod
    def now() -> float:
        """In GB."""
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e6

    def stop(self) -> float:
        self._stop.set()
        self._thread.join()
        return self.peak


def regression(X, y, d: int = D) -> pm.Model:
    """Declared on any source of rows."""
    with pm.Model() as model:
        xb, yb = sg.Minibatch(X, y)
        beta = pm.Normal("beta", 0, 2, shape=d)
        pm.Bernoulli("y", logit_p=xb @ beta, observed=yb, total_size=y.shape[0])
    return model


def plain(X, y) -> pm.Model:
    """Declared on arrays."""
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=D)
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return model


def timed(function) -> tuple[float, object]:
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def measured(model: pm.Model, warm: pm.Model) -> dict:
    """Set-up, sampling and one pass, with the code that `warm` has compiled."""
    sg.sample(10, model=warm, step=sg.SGLDCV(model=warm, progressbar=False), chains=1, **QUIET)
    one_pass = time_of_a_pass(model)  # first: what the system keeps of files is then the same
    memory, before = Memory(), Memory.now()
    setup, step = timed(lambda: sg.SGLDCV(model=model, progressbar=False))
    sampling, idata = timed(lambda: sg.sample(1000, step=step, model=model, chains=4, **QUIET))
    peak = memory.stop()
    attrs = idata["posterior"].attrs
    return {
        "rows": step.problem.target.plates[0].n_rows,
        "from": attrs["rows_from"],
        "passes": attrs["data_passes"],
        "sampled": attrs.get("sampled_rows"),
        "setup": setup,
        "sampling": sampling,
        "one_pass": one_pass,
        "units": setup / one_pass,
        "total_units": (setup + sampling) / one_pass,
        "peak": peak,
        "before": before,
    }


def time_of_a_pass(model: pm.Model) -> float:
    """The better of two; of long ones the first."""
    problem = Problem(model, population=Population("sample"))
    theta = np.zeros(problem.size)
    taken, _ = timed(lambda: problem.pass_over_all(theta))
    return taken if taken > 60 else min(taken, timed(lambda: problem.pass_over_all(theta))[0])


def in_memory(share: float, _: Path) -> dict:
    """N = 10⁷ × 20 float64."""
    n_blocks = max(2, round(10 * share))
    X, y = np.empty((n_blocks * BLOCK, D)), np.empty(n_blocks * BLOCK)
    for i in range(n_blocks):
        part = slice(i * BLOCK, (i + 1) * BLOCK)
        X[part], y[part] = block(i, kind=np.float64)
    found = measured(plain(X, y), plain(X[:BLOCK], y[:BLOCK]))
    data = (X.nbytes + y.nbytes) / 1e9
    return found | {"data": data, "beyond": (found["peak"] - found["before"]) / data}


def prepared(share: float, folder: Path) -> int:
    """Files of 10⁸ × 20 float32: .npy, Zarr, Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import zarr

    n_blocks = max(2, round(100 * share))
    n_rows = n_blocks * BLOCK
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (n_rows, D))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.int8, (n_rows,))
    group = zarr.open_group(folder / "rows.zarr", mode="w")
    chunk = 250_000
    zx = group.create_array("X", shape=(n_rows, D), chunks=(chunk, D), dtype="float32")
    zy = group.create_array("y", shape=(n_rows,), chunks=(chunk,), dtype="int8")
    names = [f"x{j}" for j in range(D)]
    per_file = 10
    for i in range(n_blocks):
        part = slice(i * BLOCK, (i + 1) * BLOCK)
        X[part], y[part] = rows = block(i)
        zx[part], zy[part] = rows
        table = pa.table({n: rows[0][:, j] for j, n in enumerate(names)} | {"y": rows[1]})
        if i % per_file == 0:
            writer = pq.ParquetWriter(folder / f"{i // per_file:03d}.parquet", table.schema)
        writer.write_table(table, row_group_size=chunk)
        if i % per_file == per_file - 1 or i == n_blocks - 1:
            writer.close()
    return n_rows


def memory_map(_: float, folder: Path) -> dict:
    return measured(
        regression(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "y"))),
        regression(*block(0)),
    )


def of_zarr(_: float, folder: Path) -> dict:
    import zarr

    group = zarr.open_group(folder / "rows.zarr", mode="r")
    return measured(regression(group["X"], group["y"]), regression(*block(0)))


def of_parquet(_: float, folder: Path) -> dict:
    files = folder / "*.parquet"
    X = sg.parquet(files, columns=[f"x{j}" for j in range(D)])
    return measured(regression(X, sg.parquet(files, columns="y")), regression(*block(0)))


def generated(share: float, _: Path, power: int = 9) -> dict:
    """10⁶ to 10⁹ rows × 8, never anywhere."""
    n_rows = max(BLOCK, int(10**power * share))
    X, y = sg.generated(lambda number: block(number, 8), n_rows, BLOCK)
    return measured(regression(X, y, 8), regression(*block(0, 8), 8))


def rare(share: float, _: Path) -> dict:
    """A category of 200 among 10⁸ rows, with an offset known from its sufficient statistics.

    Two binary predictors: all there is to know are counts, and the posterior is a sum over four
    cells, integrated here on a grid.
    """
    n_rows = max(BLOCK, int(1e8 * share))
    every = n_rows // 200

    def rows(number: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng([2, number])
        index = np.arange(number * BLOCK, (number + 1) * BLOCK)
        group = (index % every == 17).astype(np.int8)
        chance = np.where(group == 1, 0.02, 0.2).astype(np.float32)
        return group, (rng.random(BLOCK, dtype=np.float32) < chance).astype(np.int8)

    group, y = sg.generated(rows, n_rows, BLOCK)
    with pm.Model():
        gb, yb = sg.Minibatch(group, y)
        a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, 5)
        pm.Bernoulli("y", logit_p=a + b * gb, observed=yb, total_size=n_rows)
        step = sg.SGLDCV(progressbar=False)
        idata = sg.sample(1000, step=step, chains=4, **QUIET)
    counts = np.zeros((2, 2))
    for i in range(0, n_rows, BLOCK):
        g, out = group.read(i, i + BLOCK), y.read(i, i + BLOCK)
        counts += np.bincount(2 * g + out, minlength=4).reshape(2, 2)
    mean, sd = rare_exactly(counts)
    draws = idata["posterior"]["b"].values
    return {
        "events": counts[1].tolist(),
        "exact": [mean, sd],
        "found": [float(draws.mean()), float(draws.std())],
        "passes": idata["posterior"].attrs["data_passes"],
        "sampled": idata["posterior"].attrs["sampled_rows"],
    }


def rare_exactly(counts: np.ndarray) -> tuple[float, float]:
    """Mean and sd of b: a is known to 10⁻⁴, and b given a is a one-dimensional integral."""
    from scipy.special import log_expit, logit

    a = logit(counts[0, 1] / counts[0].sum())
    b = np.linspace(-40, 40, 400_001)
    density = counts[1, 1] * log_expit(a + b) + counts[1, 0] * log_expit(-a - b) - b**2 / 50
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    mean = float((weight * b).sum())
    return mean, float(np.sqrt((weight * (b - mean) ** 2).sum()))


PARTS = {
    "in memory": in_memory,
    "memory map": memory_map,
    "zarr": of_zarr,
    "parquet": of_parquet,
    "rare": rare,
    **{f"generated {p}": lambda s, f, p=p: generated(s, f, p) for p in (6, 7, 8, 9)},
}


def alone(part: str, share: float, folder: Path) -> dict:
    """One part in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.scale", "--part", part]
    command += ["--share", str(share), "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{part}: {done.stderr[-2000:]}")
    found: dict = json.loads(done.stdout.splitlines()[-1])
    print(part, json.dumps(found), flush=True)
    return found


def page(found: dict[str, dict], share: float) -> str:
    """The numbers as docs/scale.md."""
    memory, rare_ = found["in memory"], found["rare"]
    lines = [
        "# Cost against the size of the data",
        "",
        f"Made by `python -m tests.benchmarks.scale` on {time.strftime('%Y-%m-%d')}, on "
        f"{os.cpu_count()} cores. Logistic regressions, everything automatic, `sg.sample(1000)` "
        "with four chains.",
        "A *unit* is the time in which that source can be read and the gradient of all rows summed "
        "once, by the same code on all cores. Compilation is left out. Memory is what belongs to "
        "the process alone, without pages of mapped files.",
        "",
        "| data | rows | minibatches from | passes | rows in the sample | a unit | set-up | in "
        "units | sampling | all in units | peak memory |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, one in found.items():
        if "setup" in one:
            lines.append(
                f"| {name} | {one['rows']:,} | {one['from']} | {one['passes']:.3g} | "
                f"{one['sampled'] or one['rows']:,} | {one['one_pass']:.2f} s | "
                f"{one['setup']:.1f} s | {one['units']:.1f} | {one['sampling']:.1f} s | "
                f"{one['total_units']:.1f} | {one['peak']:.2f} GB |"
            )
    excess = memory["setup"] - 4 * memory["one_pass"]
    lines += [
        "",
        f"In memory, arrays of {memory['data']:.2f} GB: set-up takes four units and "
        f"{excess:.1f} s; beyond the arrays it needs {memory['beyond']:.2f} times their memory.",
        "",
        f"A category of 200 rows, {rare_['events'][1]:.0f} of them events: its coefficient is "
        f"{rare_['found'][0]:.3f} ± {rare_['found'][1]:.3f}, by counts "
        f"{rare_['exact'][0]:.3f} ± {rare_['exact'][1]:.3f}; {rare_['passes']:.0f} passes, "
        f"{rare_['sampled']:,} rows in the sample.",
    ]
    if share != 1:
        lines.append(f"\nWith {share} of the rows that the measurement is meant for.")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part](options.share, options.folder)))
        return
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        parts = options.parts.split(",")
        if {"memory map", "zarr", "parquet"} & set(parts):
            print(f"{prepared(options.share, folder):,} rows on disk", flush=True)
        found = {part: alone(part, options.share, folder) for part in parts}
    finally:
        shutil.rmtree(folder)
    if options.write:
        options.write.write_text(page(found, options.share), encoding="utf-8")


if __name__ == "__main__":
    main()
