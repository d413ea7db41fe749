# SPDX-License-Identifier: Apache-2.0
"""Models with thousands of parameters: the cost of an effective draw and of the set-up, and errors.

In units of one gradient over all rows, by the same compiled code on one thread; compilation is left
out. An effective draw is that of the worst of all parameters, and costs the time of two threads.
What NUTS takes is told in gradients, those of tuning left out.
"""

from __future__ import annotations

import copy
import resource
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pymc as pm
from scipy.special import ndtri

import pymc_sgcv as sg
from pymc_sgcv.results.batches import batch_means
from pymc_sgcv.sampling.check import halved
from tests.accuracy.compare import CACHE, sample, sample_nuts
from tests.accuracy.groups import MODELS, exact_scale

SEEDS, FEW_ROWS = 3, 250_000
"""So many seeds, and NUTS, for models of at most so many rows; one and a finer run for others."""
WITHOUT_DRAWS = 5_000_000
"""Rows from which on nothing but moments is kept, in a process whose memory is measured."""
_FINER_DRAWS = 500


def measure(name: str) -> dict:
    """One row of the table."""
    model = MODELS[name]()
    if "do not differ" in name:
        return _no_spread(name, model)
    if sum(rv.eval().shape[0] for rv in model.observed_RVs) > WITHOUT_DRAWS:
        with get_context("spawn").Pool(1) as pool:  # nobody else's memory
            return pool.apply(_without_draws, (name,))
    return measured(name, model)


def cost(name: str) -> dict:
    """What it costs, and whether checks pass; nothing to compare with."""
    _, idata, said, row = _run(name, MODELS[name]())
    row["failed checks"] = ", ".join(_failed(idata)) or "none"
    return row | {"warnings": len(said)}


def _run(name: str, model: pm.Model) -> tuple:
    """Step, result, warnings and costs of the first seed."""
    step, idata, said = sample(model, 1, rng=1)
    checks, unit = sg.diagnose(idata), _unit(step.problem)
    attributes = idata["sample_stats"].attrs
    row = _costs(name, step, attributes, float(checks.loc["ess_bulk", "value"]), unit)
    scales = {v: idata["posterior"][v].values for v in _scales(idata)}
    row["scales"] = ", ".join(f"{x.mean():.4f} ± {x.std():.4f}" for x in scales.values())
    return step, idata, said, row


def measured(name: str, model: pm.Model) -> dict:
    """The same for any model, and how far it is from a reference."""
    step, idata, said, row = _run(name, model)
    few = step.problem.n_rows <= FEW_ROWS
    runs = [(idata, said)]
    runs += [sample(model, s, rng=s)[1:] for s in range(2, SEEDS + 1 if few else 2)]
    if few:
        exact, row["NUTS draw"] = _reference(name, model)
        row["agrees with"] = "NUTS"
    else:
        exact, row["agrees with"] = _draws(finer(step), model), "its own finer run"
    apart = [compare(_draws(one, model), exact) for one, _ in runs]
    if name.startswith("Gaussian"):
        row["quadrature"] = "{:.4f} ± {:.4f}".format(*exact_scale(model, 1000))
    row["seeds"] = len(runs)
    row |= {what: max(found[what] for found in apart) for what in apart[0]}
    failed = {check for one, _ in runs for check in _failed(one)}
    row["failed checks"] = ", ".join(sorted(failed)) or "none"
    row["warnings"] = sum(len(said) for _, said in runs)
    return row


def _no_spread(name: str, model: pm.Model) -> dict:
    """Groups whose scale is near 0: right by quadrature, or a warning that names it."""
    mean, sd = exact_scale(model, 12)
    found, told, right = [], 0, 0
    for seed in range(1, 2 * SEEDS + 1):
        step, idata, said = sample(model, seed, rng=seed)
        tau = idata["posterior"]["tau"].values
        error = 2.5 * float(_moments(_flat(tau), 4)[2][0]) / sd
        fine = abs(tau.mean() - mean) / sd < 0.1 + error and abs(tau.std() / sd - 1) < 0.05 + error
        right, told = right + fine, told + any("tau" in one for one in said)
        found.append(f"{tau.mean():.4f} ± {tau.std():.4f}")
    return {
        "model": name, "N": step.problem.n_rows, "d": step.problem.size, "seeds": len(found),
        "scales": ", ".join(found), "quadrature": f"{mean:.4f} ± {sd:.4f}",
        "right": int(right), "told of tau": told,
    }  # fmt: skip


def _costs(name: str, step, attributes: Mapping, ess: float, unit: float) -> dict:
    return {
        "model": name,
        "N": step.problem.n_rows,
        "d": step.problem.size,
        "h": round(attributes["step_size"], 2),
        "rows": attributes["batch_size"],
        "min ESS of 4,000": round(ess),
        "effective draw": round(2 * attributes["sampling_time"] / unit / ess, 2),
        "set-up": round(attributes["setup_seconds"] / unit),
        "unit ms": round(1000 * unit, 2),
        "set-up s": round(attributes["setup_seconds"], 1),
        "sampling s": round(attributes["sampling_time"], 1),
    }


def _scales(idata) -> list[str]:
    return [str(v) for v in idata["posterior"].data_vars if str(v).startswith("tau")]


def _failed(idata) -> list[str]:
    checks = sg.diagnose(idata)
    return list(checks.index[~checks["ok"]])


def _draws(idata, model: pm.Model) -> dict[str, np.ndarray]:
    """Draws by free variable."""
    return {rv.name: idata["posterior"][rv.name].values for rv in model.free_RVs}


def finer(step, draws: int = _FINER_DRAWS):
    """The same chains with a quarter of the step and four times the batch, begun anew."""
    for _ in range(2):
        problem, method = halved(step)
        plan = replace(
            step.plan, method=method, step_size=step.plan.step_size / 2, thin=2 * step.plan.thin,
            layout=problem.layout,
        )  # fmt: skip
        step = copy.copy(step)
        step._problem, step._plan, step._first_plan, step._chain = problem, plan, plan, None
    with step.model:
        return sg.sample(
            draws, step=step, chains=4, random_seed=99, progressbar=False, check=False,
            tune=draws // 5, compute_convergence_checks=False,
        )  # fmt: skip


def compare(ours: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray]) -> dict:
    """The worst of all parameters beyond Monte Carlo error, in sds, and whether errors are chance.

    Of d parameters the largest error that chance makes of none is taken off. The root mean square
    of z, errors over standard errors, is 1 if there is nothing but chance.
    """
    columns = [np.hstack([_flat(one[v]) for v in exact]) for one in (ours, exact)]
    chains = [next(iter(one.values())).shape[0] for one in (ours, exact)]
    (mean, variance, *errors), (mean0, variance0, *errors0) = (
        _moments(x, n) for x, n in zip(columns, chains, strict=True)
    )
    moves = variance0 > 1e-18 * (1 + mean0**2)
    chance = -ndtri(0.025 / moves.sum()) * 1.1  # standard errors come from eighty batches
    shift = (mean - mean0)[moves] / np.sqrt(variance0[moves])
    shift_error = np.hypot(errors[0], errors0[0])[moves] / np.sqrt(variance0[moves])
    ratio = 0.5 * np.log(variance / variance0)[moves]
    ratio_error = 0.5 * np.hypot(errors[1] / variance, errors0[1] / variance0)[moves]
    return {
        "mean error": round(float(np.max(np.abs(shift) - chance * shift_error).clip(0)), 3),
        "sd error": round(float(np.max(np.abs(ratio) - chance * ratio_error).clip(0)), 3),
        "rms z": round(float(np.sqrt(np.mean((shift / shift_error) ** 2))), 2),
        "average sd ratio": round(float(np.exp(ratio.mean())), 3),
    }


def _flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(x.shape[0] * x.shape[1], -1)


def _moments(x: np.ndarray, chains: int) -> tuple[np.ndarray, ...]:
    """Means and variances of columns, and standard errors of both."""
    mean = x.mean(0)
    square = (x - mean) ** 2
    means = [batch_means(y, chains) for y in (x, square)]
    errors = [m.std(0, ddof=1) / np.sqrt(len(m)) for m in means]
    return mean, square.mean(0), *errors


def _reference(name: str, model: pm.Model) -> tuple[dict[str, np.ndarray], float]:
    """NUTS draws by free variable, and gradients for an effective draw of the worst; on disk."""
    path = CACHE / f"groups_{name.replace(' ', '_')}.npz"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        idata, _ = sample_nuts(model, 1000)
        stats, draws = idata["sample_stats"], _draws(idata, model)
        steps = next(stats[key] for key in ("n_steps", "tree_size") if key in stats)
        ess = min(_least_ess(x) for x in draws.values())
        np.savez(path, gradients=float(steps.sum()) / ess, **draws)
    stored = np.load(path)
    draws = {k: stored[k] for k in stored.files if k != "gradients"}
    return draws, round(float(stored["gradients"]), 1)


def _least_ess(x: np.ndarray) -> float:
    """By batch means: of thousands of parameters a rough one will do."""
    _, variance, error, _ = _moments(_flat(x), x.shape[0])
    moves = variance > 0
    return float((variance[moves] / error[moves] ** 2).min())


def _without_draws(name: str) -> dict:
    """Moments only, and the memory that all took: of the data, and the most that was in use."""
    model = MODELS[name]()
    with model:
        sg.SGLDCV(progressbar=False, step_size=1e-3, preconditioner=None)  # compiles
        step = sg.SGLDCV(progressbar=False)
        began = time.perf_counter()
        moments = sg.sample(
            step=step, chains=4, random_seed=1, progressbar=False, keep="moments", check=False
        )
    seconds, unit = time.perf_counter() - began, _unit(step.problem)
    table = moments.summary()
    attributes = {**step.plan.attributes(), "sampling_time": seconds}
    row = _costs(name, step, attributes, float(table["ess"].min()), unit)
    tau = table.loc["tau"]
    row["scales"] = f"{tau['mean']:.4f} ± {tau['sd']:.4f}"
    data = sum(a.nbytes for plate in step.problem.target.plates for a in plate.arrays())
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    row["memory"] = f"{most / 1e9:.1f} GB, data {data / 1e9:.1f} GB"
    return row


def _unit(problem, repeats: int = 5) -> float:
    """Seconds of one gradient over all rows on one thread, the best of some."""
    point, best = problem.target.flatten(problem.target.start)[None], np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        problem.likelihood_gradient(point, cores=1)
        best = min(best, time.perf_counter() - began)
    return best
