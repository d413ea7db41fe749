# SPDX-License-Identifier: Apache-2.0
"""Hard shapes against NUTS, several seeds each: right, or told so."""

from __future__ import annotations

import numpy as np
import pymc as pm

import pymc_sgcv as sg
from tests.accuracy.compare import CACHE, compare_draws, sample_anew, sample_nuts
from tests.accuracy.shapes import SHAPES as DESIGNED
from tests.accuracy.unseen import UNSEEN

SHAPES = {**DESIGNED, **UNSEEN}
SEEDS = 5


def models(name: str) -> tuple[pm.Model, pm.Model]:
    """The model to sample, and one with the same posterior for NUTS."""
    made = SHAPES[name]()
    return made if isinstance(made, tuple) else (made, made)


def reference(name: str, model: pm.Model) -> dict[str, np.ndarray]:
    """NUTS draws by variable (chain, draw, ...), in single precision; kept on disk."""
    path = CACHE / f"shape_{name.replace(' ', '_').replace(',', '').replace(':', '')}.npz"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        idata, _ = sample_nuts(model, draws=1500, target_accept=0.9)
        names = [v.name for v in (*model.free_RVs, *model.deterministics)]
        draws = {k: idata["posterior"][k].values.astype("float32") for k in names}
        np.savez(path, **draws)
    stored = np.load(path)
    return {k: stored[k].astype(float) for k in stored.files}


def compare(name: str) -> dict:
    """One row of the table: the worst over seeds."""
    model, counts = models(name)
    exact = reference(name, counts)
    with model:
        step = sg.SGLDCV(progressbar=False)
    runs = [one_run(step, exact, seed) for seed in range(1, SEEDS + 1)]
    costs = [run["cost"] for run in runs]
    count = {kind: sum(run["verdict"] == kind for run in runs) for kind in VERDICTS}
    sd = [value for run in runs for value in run["sd"]]
    return {
        "kind": name,
        "d": runs[0]["d"],
        **count,
        "mean error": round(max(run["mean"] for run in runs), 3),
        "sd ratio": f"{min(sd):.2f} to {max(sd):.2f}",
        "quantile error": round(max(run["quantile"] for run in runs), 3),
        "min ESS": round(min(run["ess"] for run in runs)),
        "cost": f"{min(costs):.2g} to {max(costs):.2g}",
        "ratio": round(max(costs) / min(costs), 1),
        "set-up s": round(float(np.median([run["setup"] for run in runs])), 1),
        "sampling s": round(max(run["sampling"] for run in runs), 1),
        "runs": runs,
    }


VERDICTS = "right", "right but warned", "wrong, warned", "wrong, silent"


def one_run(step: sg.SGLDCV, exact: dict[str, np.ndarray], seed: int) -> dict:
    """One seed, of the set-up too; `cost` is rows visited for an effective draw."""
    try:
        idata, said = sample_anew(step, seed)
    except (FloatingPointError, ValueError) as error:
        return {
            "verdict": "wrong, warned", "said": [str(error)], "mean": np.inf, "sd": [1.0, 1.0],
            "quantile": np.inf, "ess": 0.0, "cost": np.inf, "setup": 0.0, "sampling": 0.0,
            "d": 0, "h": 0.0, "rows": 0,
        }  # fmt: skip
    shared = [name for name in exact if name in idata["posterior"]]
    ours = {name: idata["posterior"][name].values for name in shared}
    errors = compare_draws(ours, {name: exact[name] for name in shared})
    fine = (
        errors["mean error"] <= 0.1
        and 0.95 <= errors["low"]
        and errors["high"] <= 1.05
        and errors["quantile error"] <= 0.15
    )
    right = fine and errors["min ESS"] >= 400
    kinds = ("wrong, silent", "wrong, warned", "right", "right but warned")
    verdict = kinds[2 * right + bool(said)]
    if fine and not right and not said:  # right, but worth too few draws, is no lie
        verdict = "right but warned"
    attrs = idata["posterior"].attrs
    draws = idata["posterior"].sizes["chain"] * (idata["posterior"].sizes["draw"] + 200)
    rows = draws * attrs["thin"] * attrs["batch_size"]
    return {
        "verdict": verdict, "said": said, "mean": errors["mean error"],
        "sd": [errors["low"], errors["high"]], "raw": errors["raw"],
        "quantile": errors["quantile error"], "ess": errors["min ESS"],
        "cost": rows / errors["min ESS"] / step.problem.n_rows, "setup": step.plan.seconds,
        "sampling": attrs["sampling_time"], "d": step.problem.size,
        "h": attrs.get("step_size", 0.0), "rows": attrs["batch_size"],
    }  # fmt: skip
