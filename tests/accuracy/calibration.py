# SPDX-License-Identifier: Apache-2.0
"""Simulation-based calibration: are ranks of parameters drawn from the prior uniform?

A parameter drawn from the prior is one more draw of the posterior given the data drawn with it
(Talts et al. 2018), whatever the data are. So its rank among the posterior's draws is uniform.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from scipy import stats

import pymc_sgcv as sg
from pymc_sgcv.results.containers import get_group
from tests.accuracy.compare import ess

DATA_SETS = 200
_BINS = 10
Outcome = np.ndarray | None


def _observed(y: Outcome):
    """Data that can be replaced, or none: then the outcome is one more unknown."""
    return None if y is None else pm.Data("outcome", y)


def rare(y: Outcome = None) -> pm.Model:
    """A logistic regression with a category of 20 rows among 5,000."""
    x, category = np.random.default_rng(0).normal(size=5000), np.zeros(5000)
    category[:20] = 1.0
    with pm.Model() as model:
        eta = pm.Normal("a", -1, 1) + pm.Normal("slope", 0, 1) * x
        pm.Bernoulli("y", logit_p=eta + pm.Normal("b", 0, 2) * category, observed=_observed(y))
    return model


def hierarchical(y: Outcome = None) -> pm.Model:
    """Twelve groups, whose spread may be near 0."""
    group = np.random.default_rng(0).integers(0, 12, 3000)
    with pm.Model() as model:
        u = pm.Normal("u", pm.Normal("a", 0, 1), pm.HalfNormal("tau", 0.3), shape=12)
        pm.Normal("y", u[group], pm.HalfNormal("sigma", 1), observed=_observed(y), shape=3000)
    return model


def mixture(y: Outcome = None) -> pm.Model:
    """Two components at any distance, the lower one first."""
    with pm.Model() as model:
        low, gap = pm.Normal("low", 0, 1), pm.Gamma("gap", 4, 1)
        share, sigma = pm.Beta("share", 4, 4), pm.Gamma("sigma", 10, 10)
        mu, shares = pt.stack([low, low + gap]), pt.stack([1 - share, share])
        pm.NormalMixture("y", shares, mu, sigma, observed=_observed(y), shape=4000)
    return model


MODELS: dict[str, Callable[..., pm.Model]] = {
    "logistic, rare category": rare,
    "twelve groups": hierarchical,
    "mixture": mixture,
}


def calibrate(name: str) -> dict:
    """One row of the table."""
    prior = MODELS[name]()
    free = [rv.name for rv in prior.free_RVs if rv.name != "y"]
    idata = pm.sample_prior_predictive(
        DATA_SETS, model=prior, var_names=[*free, "y"], random_seed=1
    )
    drawn = get_group(idata, "prior").isel(chain=0)
    with MODELS[name](drawn["y"].values[0]):
        step = sg.SGLDCV(progressbar=False)
        runs = [one_run(step, drawn[free], drawn["y"].values, i) for i in range(DATA_SETS)]
    silent = [run for run in runs if not run["said"]]
    return {
        "model": name,
        "data sets": len(runs),
        "warned": len(runs) - len(silent),
        "smallest p × tests, all runs": smallest_p(runs),
        "without warned runs": smallest_p(silent),
        "min ESS": round(min(run["ess"] for run in runs)),
        "runs": runs,
    }


def one_run(step, drawn: xr.Dataset, outcomes: np.ndarray, i: int) -> dict:
    """The place of each parameter, drawn from the prior, in its posterior: from 0 to 1.

    The set-up is made anew for every data set.
    """
    pm.set_data({"outcome": outcomes[i]})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = sg.sample(step=step, chains=4, random_seed=i, progressbar=False)["posterior"]
    said = [str(w.message) for w in caught if issubclass(w.category, sg.SGCVWarning)]
    rng, places, smallest = np.random.default_rng(i), {}, np.inf
    for variable, values in drawn.isel(draw=i).items():
        draws = posterior[variable].values
        draws = draws.reshape(*draws.shape[:2], -1)
        for j, value in enumerate(np.ravel(values)):
            effective = ess(draws[..., j])
            smallest = min(smallest, effective)
            places[f"{variable}[{j}]"] = _place(draws[..., j], value, effective, rng)
    return {"data set": i, "said": said, "ess": smallest, "places": places}


def _place(draws: np.ndarray, value: float, effective: float, rng: np.random.Generator) -> float:
    """The rank among draws thinned to independence, made continuous: uniform on (0, 1)."""
    thinned = draws.ravel()[:: max(1, int(np.ceil(draws.size / effective)))]
    return float(((thinned < value).sum() + rng.random()) / (len(thinned) + 1))


def smallest_p(runs: list[dict]) -> float:
    """The least of χ² and Kolmogorov-Smirnov p-values over parameters, times their number."""
    if not runs:
        return np.nan
    columns = {k: np.array([run["places"][k] for run in runs]) for k in runs[0]["places"]}
    p = []
    for places in columns.values():
        counts = np.histogram(places, bins=_BINS, range=(0, 1))[0]
        p += [stats.chisquare(counts).pvalue, stats.kstest(places, "uniform").pvalue]
    return round(min(1.0, min(p) * len(p)), 4)
