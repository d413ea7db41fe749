# SPDX-License-Identifier: Apache-2.0
"""Time this package beside the C floor and the JAX libraries, in one run; write a table.

    python -m tests.benchmarks --peers DIR [--other PYTHON] [--write docs/benchmarks.md] [--quick]

DIR holds the peers' scripts (`floor_c.py`, `sgmcmcjax_sgld.py`, `blackjax_sgld.py`), whose own
environments are under ``$PEERS_HOME``. Without --peers only this package is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import numba
import pymc as pm
import pytensor

HOME = Path(os.environ.get("PEERS_HOME", Path.home() / ".cache/sgcv-peers"))
BATCHES = (50, 500, 5000)
ITERATIONS = {50: 200_000, 500: 40_000, 5000: 20_000}
PEERS = {
    "C floor": ("jaxnew", "floor_c.py", ["--method", "recompute"]),
    "SGMCMCJax (jax 0.4.30)": ("jaxold", "sgmcmcjax_sgld.py", ["--method", "sgldcv"]),
    "BlackJAX (current jax)": ("jaxnew", "blackjax_sgld.py", ["--method", "sgldcv"]),
}
STORING = "this package, gradients stored too"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--other", help="Python of another environment to time as well")
    parser.add_argument(
        "--repeats", type=int, default=2, help="runs of each, of which the best counts"
    )
    parser.add_argument("--quick", action="store_true", help="a quarter of the iterations")
    options = parser.parse_args()
    results = measure_all(options)
    text = page(results)
    print(text)
    if options.write:
        options.write.write_text(text)


def measure_all(options) -> dict:
    """All the figures; peers and package alternate, and the best of each is kept."""
    if options.peers:
        peer(options, "C floor", 500, 100)  # makes the data
    data = HOME / "data" / "synth_N464809_d55"
    ours = {"block": "this package", "iid": 'this package, `"iid"`'}
    speed: dict[str, dict[int, float]] = {}
    for n in BATCHES:
        k = ITERATIONS[n] // (4 if options.quick else 1)
        for _ in range(options.repeats):
            for name in PEERS if options.peers else ():
                keep(speed, name, n, peer(options, name, n, k))
            for subsampling, name in ours.items():
                found = own("speed", npy=data, batch=n, subsampling=subsampling, iterations=k)
                keep(speed, name, n, found["us"])
                if subsampling == "block":
                    keep(speed, STORING, n, found["with_gradients"])
            if options.other:
                found = own("speed", python=options.other, npy=data, batch=n, iterations=k)
                keep(speed, f"this package, PyMC {found['pymc']}", n, found["us"])
    results = {"speed": speed, "saga": own("saga", npy=data, iterations=10_000)}
    results["driver"] = own("driver", npy=data, batch=50)
    results["memory"] = own("memory", npy=data)
    results["building"] = {setup: building(data, setup) for setup in ("given", "automatic")}
    results["two"] = two_chains(options, data) if options.peers else None
    with tempfile.TemporaryDirectory() as fresh:
        flags = {"PYTENSOR_FLAGS": f"base_compiledir={fresh}"}
        results["cold"] = own("first_draw", flags, npy=data)
        cached = [own("first_draw", flags, npy=data) for _ in range(3)]
        results["cached"] = min(cached, key=lambda found: found["first_draw_s"])
    results["factorisation"] = own("factorisation")
    return results


def building(data: Path, setup: str) -> dict:
    """What building a step takes where nothing is compiled yet, and once more."""
    with tempfile.TemporaryDirectory() as fresh:
        flags = {"PYTENSOR_FLAGS": f"base_compiledir={fresh}"}
        return {name: own("building", flags, npy=data, setup=setup) for name in ("cold", "cached")}


def keep(speed: dict, name: str, n: int, us: float) -> None:
    row = speed.setdefault(name, {})
    row[n] = min(us, row.get(n, us))
    print(f"{name:28s} n={n:<5d} {us:9.1f} us", flush=True)


def own(what: str, flags: dict | None = None, python: str = sys.executable, **arguments) -> dict:
    command = [python, "-W", "ignore", "-m", "tests.benchmarks.measure", what]
    for name, value in arguments.items():
        command += [f"--{name}", str(value)]
    return last_json(command, flags or {})


def peer(options, name: str, n: int, k: int) -> float:
    return last_json(peer_command(options, name, n, k), {}, options.peers)["us_per_iter"]


def peer_command(options, name: str, n: int, k: int) -> list[str]:
    environment, script, arguments = PEERS[name]
    python = str(HOME / environment / "bin" / "python")
    return [python, script, *arguments, "--batch", str(n), "--K", str(k)]


def last_json(command: list[str], flags: dict, folder: Path | None = None) -> dict:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **ONE_THREAD, **flags},
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def two_chains(options, data: Path) -> dict:
    """Slowdown of two chains on two cores, beside that of two copies of the C floor."""
    command = peer_command(options, "C floor", 500, 40_000)
    single = min(peer(options, "C floor", 500, 40_000) for _ in range(2))
    running = [
        subprocess.Popen(command, cwd=options.peers, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    both = [json.loads(p.communicate()[0].strip().splitlines()[-1])["us_per_iter"] for p in running]
    one = own("speed", npy=data, chains=1, iterations=40_000)["us"]
    two = own("speed", npy=data, chains=2, iterations=40_000)["us"]
    return {"floor": max(both) / single, "ours": two / one}


def page(results: dict) -> str:
    """The page of the documentation."""
    speed = results["speed"]
    floor = speed.get("C floor")
    lines = [
        "# Speed",
        "",
        f"Made by `make benchmark` on {date.today()}. SGLD-CV for logistic regression with a "
        "Laplace "
        "prior, N = 464,809, d = 55, float64, one chain, one thread; microseconds per iteration, "
        "best of the runs, every draw stored, all in one run on 2 cores "
        f"({platform.machine()}). PyMC {pm.__version__}, PyTensor {pytensor.__version__}, numba "
        f"{numba.__version__}, Python {platform.python_version()}.",
        "",
        "| | " + " | ".join(f"n = {n}" for n in BATCHES) + " |",
        "|---|" + "---|" * len(BATCHES),
    ]
    for name, row in speed.items():
        cells = []
        for n in BATCHES:
            ratio = f" ({row[n] / floor[n]:.2f} × C)" if floor else ""
            cells.append(f"{row[n]:.1f}{ratio}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    best = speed["this package"]
    for name in ("SGMCMCJax (jax 0.4.30)", "BlackJAX (current jax)"):
        if name in speed:
            cells = [f"{speed[name][n] / best[n]:.1f}" for n in BATCHES]
            lines.append(f"| times faster than {name} | " + " | ".join(cells) + " |")
    lines += ["", *other_figures(results)]
    return "\n".join(lines) + "\n"


def building_figures(given: dict, automatic: dict) -> str:
    """In a sentence each: memory and time of building a step."""
    size = given["cold"]["data_mb"]

    def figures(found: dict) -> str:
        added = max(found["added_mb"], found["peak_added_mb"])
        return f"{added:.0f} MB ({added / size:.2f} ×, {found['seconds']:.1f} s)"

    return (
        f"Building the step for {size:.0f} MB of data adds, at the peak, {figures(given['cold'])} "
        f"with step size and center given and nothing cached, {figures(given['cached'])} when the "
        f"compiled gradient is cached. With everything automatic: {figures(automatic['cold'])} "
        f"where neither the gradient nor the loop was ever compiled, "
        f"{figures(automatic['cached'])} afterwards."
    )


def other_figures(results: dict) -> list[str]:
    driver, memory, cold = results["driver"], results["memory"], results["cold"]
    saga, sparse, two = results["saga"], results["factorisation"], results["two"]
    lines = [
        f"- `pm.sample` costs {driver['extra']:.0f} µs per draw more than `sg.sample`.",
        f"- Four chains: peak memory {memory['peak_mb']:.0f} MB for {memory['data_mb']:.0f} MB "
        "of data "
        f"and {memory['stored_mb']:.0f} MB of stored draws and gradients (the process takes "
        "about 350 MB with its libraries before any data are read).",
        "- " + building_figures(**results["building"]),
        f"- From the start of Python to the first draw: {cold['first_draw_s']:.0f} s with nothing "
        f"cached, {results['cached']['first_draw_s']:.1f} s when the gradient and the loop are "
        f"cached on disk (imports alone: {results['cached']['import_s']:.1f} s).",
        f"- SAGA, n = 500: {saga['blocks']:.0f} µs per iteration with the block table, "
        f"{saga['rows']:.0f} µs with the per-row table.",
        f"- Matrix factorisation, 100,000 ratings, {sparse['d']:,} parameters, n = 5,000: "
        f"{sparse['us']:.0f} µs per SGLD iteration, of which the gradient takes "
        f"{sparse['gradient_us']:.0f} µs and noise and update "
        f"{sparse['noise_and_update_us']:.0f} µs.",
    ]
    if two:
        lines.insert(
            1,
            f"- Two chains on two cores take {two['ours']:.2f} times as long as one; two copies of "
            f"the C floor {two['floor']:.2f} times.",
        )
    return lines


if __name__ == "__main__":
    main()
