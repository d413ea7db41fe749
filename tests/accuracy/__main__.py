# SPDX-License-Identifier: Apache-2.0
"""Compare `sg.sample()` with nothing else given to full-data NUTS on many kinds of model.

    python -m tests.accuracy [--rows 50000] [--kinds linear,logistic] [--write docs/accuracy.md]

NUTS is nutpie where it is installed (its low-rank adaptation), else PyMC's own. Its draws are kept
in ``.cache/accuracy`` so that a second run only samples with this package.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from datetime import date
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor

import pymc_sgcv as sg
from tests.models import KINDS, build

CACHE = Path(".cache/accuracy")
COLUMNS = (
    "kind", "d", "mean error", "sd ratio", "quantile error", "min ESS", "set-up s", "sampling s",
    "ESS/s", "NUTS ESS/s", "speed-up", "verdict",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    rows = []
    for kind in options.kinds.split(","):
        rows.append(compare(kind, options.rows, options.batch, options.seed))
        print(json.dumps(rows[-1]), flush=True)
    speedups = [row["speed-up"] for row in rows]
    print(table(rows))
    print(f"median speed-up per effective draw: {np.median(speedups):.1f}")
    if options.write:
        options.write.write_text(page(rows, options, np.median(speedups)))


def compare(kind: str, n_rows: int, batch: int, seed: int) -> dict:
    """One row of the table."""
    reference, nuts_seconds = nuts(kind, n_rows)
    with build(kind, n_rows, batch) as model, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.perf_counter()
        step = sg.SGLDCV(progressbar=False, model=model)
        build_seconds = time.perf_counter() - began
        idata = sg.sample(step=step, chains=4, random_seed=seed, progressbar=False)
    said = [w for w in caught if issubclass(w.category, sg.SGCVWarning)]
    ours = {name: idata["posterior"][name].values for name in reference}
    errors = compare_draws(ours, reference)
    setup, sampling = step.plan.seconds, idata["posterior"].attrs["sampling_time"]
    rate = errors["min ESS"] / (setup + sampling)
    nuts_rate = min_ess(reference) / nuts_seconds
    passed = (
        errors["mean error"] <= 0.1
        and 0.95 <= errors["low"]
        and errors["high"] <= 1.05
        and errors["quantile error"] <= 0.15
        and errors["min ESS"] >= 400
    )
    return {
        "kind": kind,
        "d": step.problem.size,
        "mean error": round(errors["mean error"], 3),
        "sd ratio": [round(errors["low"], 3), round(errors["high"], 3)],
        "quantile error": round(errors["quantile error"], 3),
        "min ESS": round(errors["min ESS"]),
        "set-up s": round(setup, 2),
        "sampling s": round(sampling, 2),
        "ESS/s": round(rate),
        "NUTS ESS/s": round(nuts_rate, 1),
        "speed-up": round(rate / nuts_rate, 1),
        "verdict": "agrees" if passed else ("warned" if said else "DISAGREES"),
        "build s": round(build_seconds, 1),
        "h": step.plan.step_size,
        "raw": errors["raw"],
    }


def nuts(kind: str, n_rows: int) -> tuple[dict[str, np.ndarray], float]:
    """NUTS draws by free variable (chain, draw, ...) and the seconds they took."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{kind}_{n_rows}.npz"
    if not path.exists():
        with build(kind, n_rows) as model:
            names = [rv.name for rv in model.free_RVs]
            idata, seconds = sample_nuts(model)
        np.savez(path, seconds=seconds, **{k: idata["posterior"][k].values for k in names})
    stored = np.load(path)
    return {k: stored[k] for k in stored.files if k != "seconds"}, float(stored["seconds"])


def sample_nuts(model: pm.Model):
    """4 chains of 2,000 draws: enough that the reference's own error is small."""
    try:
        import nutpie
    except ImportError:
        began = time.perf_counter()
        idata = pm.sample(2000, chains=4, model=model, random_seed=1, progressbar=False)
        return idata, time.perf_counter() - began
    compiled = nutpie.compile_pymc_model(model)
    began = time.perf_counter()
    idata = nutpie.sample(
        compiled, draws=2000, tune=600, chains=4, cores=2, seed=1, adaptation="low_rank",
        progress_bar=False,
    )  # fmt: skip
    return idata, time.perf_counter() - began


def compare_draws(ours: dict, reference: dict) -> dict:
    """Worst errors over all scalar components, in reference sds, beyond Monte Carlo error.

    The Monte Carlo error taken off is 2.5 standard errors of the difference, so that the worst of
    some dozens of exact comparisons stays at zero.
    """
    mean, low, high, quantile, raw = 0.0, 1.0, 1.0, 0.0, [0.0, 1.0, 1.0]
    for name, r in reference.items():
        a = ours[name].reshape(ours[name].shape[0], ours[name].shape[1], -1)
        b = r.reshape(r.shape[0], r.shape[1], -1)
        for j in range(b.shape[2]):
            x, y = a[:, :, j], b[:, :, j]
            sd = y.std()
            if sd < 1e-9 * (1 + abs(y.mean())):
                continue
            slack = 2.5 * np.sqrt(1 / ess(x) + 1 / ess(y))
            ratio, slack_sd = x.std() / sd, 2.5 * np.sqrt(0.5 / ess_sd(x) + 0.5 / ess_sd(y))
            shift = abs(x.mean() - y.mean()) / sd
            mean = max(mean, shift - slack)
            low, high = min(low, ratio + slack_sd), max(high, ratio - slack_sd)
            raw = [max(raw[0], shift), min(raw[1], ratio), max(raw[2], ratio)]
            for q in (0.05, 0.95):
                off = abs(np.quantile(x, q) - np.quantile(y, q)) / sd
                quantile = max(quantile, off - 2.1 * slack)  # sd of a 5 % quantile: 2.1 sd/√ESS
    return {
        "mean error": mean, "low": low, "high": high, "quantile error": quantile,
        "min ESS": min_ess(ours), "raw": [round(float(v), 3) for v in raw],
    }  # fmt: skip


def ess(x: np.ndarray) -> float:
    import arviz as az

    return float(az.ess(x)) if np.ndim(az.ess(x)) == 0 else float(np.min(az.ess(x)))


def ess_sd(x: np.ndarray) -> float:
    """Effective draws for the spread: of the squared deviations."""
    return ess((x - x.mean()) ** 2)


def min_ess(draws: dict[str, np.ndarray]) -> float:
    return min(
        ess(x[..., j])
        for x in (v.reshape(v.shape[0], v.shape[1], -1) for v in draws.values())
        for j in range(x.shape[2])
        if x[..., j].std() > 1e-12
    )


def table(rows: list[dict]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        cells = [row[c] for c in COLUMNS]
        lines.append("| " + " | ".join(_cell(c) for c in cells) + " |")
    return "\n".join(lines)


def _cell(value) -> str:
    return " to ".join(map(str, value)) if isinstance(value, list) else str(value)


def page(rows: list[dict], options, median: float) -> str:
    """The page of the documentation."""
    return f"""# Agreement with NUTS

Made by `make accuracy` on {date.today()}: `sg.sample()` with no argument that tunes anything, on
{options.rows:,} simulated rows with minibatches of {options.batch}, against full-data NUTS (nutpie,
low-rank adaptation, 4 chains of 2,000 draws). PyMC {pm.__version__}, PyTensor
{pytensor.__version__}, Python {platform.python_version()}, 2 cores.

Errors are the worst over all scalar parameters on the user's scale, in posterior standard
deviations, beyond Monte Carlo error (2.5 standard errors of the difference). *Agrees* means: means
within 0.1 sd, sds within 5 %, 5 % and 95 % quantiles within 0.15 sd, at least 400 effective draws.
ESS/s counts set-up and sampling, and leaves compilation out on both sides.

{table(rows)}

Median speed-up per effective draw: {median:.0f} times.
"""


if __name__ == "__main__":
    main()
