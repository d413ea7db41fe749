# SPDX-License-Identifier: Apache-2.0
"""A reference by full-data NUTS, and how far draws are from it."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm

import pymc_sgcv as sg
from pymc_sgcv.setup.automatic import make_plan

CACHE = Path(".cache/accuracy")


def sample(model: pm.Model, seed: int = 1, **arguments):
    """`sg.sample` with nothing that tunes it: the step, the result, and the warnings."""
    with model, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        sg.SGLDCV(progressbar=False, **arguments)  # compiles and loads; the next one is timed
        warnings.simplefilter("always")
        step = sg.SGLDCV(progressbar=False, **arguments)
        idata = sg.sample(step=step, chains=4, random_seed=seed, progressbar=False)
    return step, idata, ours(caught)


def sample_anew(step: sg.SGLDCV, seed: int):
    """The same of a step method that is there: set up from the start, with another seed."""
    with step.model, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step.problem.lay_out(step.problem.first_layout())
        rng = np.random.default_rng(seed)
        step.adopt(make_plan("SGLDCV", step.problem, step.settings, None, rng))
        idata = sg.sample(step=step, chains=4, random_seed=seed, progressbar=False)
    return idata, ours(caught)


def ours(caught: list[warnings.WarningMessage]) -> list[str]:
    """What this package has warned about."""
    return [str(w.message) for w in caught if issubclass(w.category, sg.SGCVWarning)]


def nuts(name: str, model: pm.Model, draws: int = 1000) -> tuple[dict[str, np.ndarray], float]:
    """NUTS draws by free variable (chain, draw, ...) and the seconds they took; kept on disk."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{name}.npz"
    if not path.exists():
        names = [rv.name for rv in model.free_RVs]
        idata, seconds = sample_nuts(model, draws)
        np.savez(path, seconds=seconds, **{k: idata["posterior"][k].values for k in names})
    stored = np.load(path)
    return {k: stored[k] for k in stored.files if k != "seconds"}, float(stored["seconds"])


def sample_nuts(model: pm.Model, draws: int, target_accept: float = 0.8):
    """4 chains on 2 cores, by nutpie where it is installed; compilation is not timed."""
    try:
        import nutpie
    except ImportError:
        began = time.perf_counter()
        idata = pm.sample(
            draws, chains=4, model=model, random_seed=1, progressbar=False,
            target_accept=target_accept,
        )  # fmt: skip
        return idata, time.perf_counter() - began
    compiled = nutpie.compile_pymc_model(model)
    began = time.perf_counter()
    idata = nutpie.sample(
        compiled, draws=draws, tune=500, chains=4, cores=2, seed=1, adaptation="low_rank",
        progress_bar=False, target_accept=target_accept,
    )  # fmt: skip
    return idata, time.perf_counter() - began


def compare_draws(ours: dict, reference: dict) -> dict:
    """Worst errors over all scalar components, in reference sds, beyond Monte Carlo error.

    The Monte Carlo error taken off is 2.5 standard errors of the difference, so that the worst of
    some dozens of exact comparisons stays at zero. Those of standard deviations and quantiles are
    from their influence functions (`pymc_sgcv.results.halfstep`), so that they hold where a
    posterior is skewed: √((κ − 1)/4/ESS) with the kurtosis κ, and √(p (1 − p)/ESS)/f at a quantile.
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
            ratio, slack_sd = x.std() / sd, 2.5 * np.hypot(sd_error(x), sd_error(y))
            shift = abs(x.mean() - y.mean()) / sd
            mean = max(mean, shift - slack)
            low, high = min(low, ratio + slack_sd), max(high, ratio - slack_sd)
            raw = [max(raw[0], shift), min(raw[1], ratio), max(raw[2], ratio)]
            for q in (0.05, 0.95):
                off = abs(np.quantile(x, q) - np.quantile(y, q)) / sd
                chance = np.hypot(quantile_error(x, q), quantile_error(y, q)) / sd
                quantile = max(quantile, off - 2.5 * chance)
    return {
        "mean error": mean, "low": low, "high": high, "quantile error": quantile,
        "min ESS": min_ess(ours), "raw": [round(float(v), 3) for v in raw],
    }  # fmt: skip


def ess(x: np.ndarray) -> float:
    """Effective draws for the mean."""
    return float(np.min(az.ess(x)))


def sd_error(x: np.ndarray) -> float:
    """Relative standard error of the standard deviation."""
    squares = (x - x.mean()) ** 2
    kurtosis = (squares**2).mean() / squares.mean() ** 2
    return float(np.sqrt((kurtosis - 1) / 4 / ess(squares)))


def quantile_error(x: np.ndarray, p: float) -> float:
    """Standard error of a quantile."""
    below, q, above = np.quantile(x, [p - 0.02, p, p + 0.02])
    return float(np.sqrt(p * (1 - p) / ess((x < q).astype(float))) * (above - below) / 0.04)


def min_ess(draws: dict[str, np.ndarray]) -> float:
    return min(
        ess(x[..., j])
        for x in (v.reshape(v.shape[0], v.shape[1], -1) for v in draws.values())
        for j in range(x.shape[2])
        if x[..., j].std() > 1e-12
    )
