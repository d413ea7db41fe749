# SPDX-License-Identifier: Apache-2.0
"""Models with thousands of parameters, on simulated rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pymc as pm


def logistic(groups: int, n_rows: int, offset: bool = False, zipf: bool = False) -> pm.Model:
    """Eight predictors and an intercept for each group."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, groups, n_rows)
    if zipf:
        share = 1 / np.arange(1, groups + 1)
        drawn = rng.choice(groups, n_rows - groups, p=share / share.sum())
        group = np.concatenate([np.arange(groups), drawn])
    X = rng.normal(size=(n_rows, 8))
    eta = X @ (0.3 * rng.normal(size=8)) + (-0.5 + 0.7 * rng.normal(size=groups))[group]
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-eta))).astype("int32")
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=8)
        u = _effects(groups, offset)
        pm.Bernoulli("y", logit_p=X @ beta + u[group], observed=y)
    return model


def _effects(groups: int, offset: bool):
    a, tau = pm.Normal("a", 0, 2), pm.HalfNormal("tau", 1)
    if offset:
        return a + tau * pm.Normal("z", 0, 1, shape=groups)
    return pm.Normal("u", a, tau, shape=groups)


def gaussian(
    groups: int = 1000, n_rows: int = 5000, spread: float = 0.7, offset: bool = False
) -> pm.Model:
    """Groups of equally many rows, in order."""
    rng = np.random.default_rng(0)
    group = np.arange(n_rows) * groups // n_rows
    y = spread * rng.normal(size=groups)[group] + rng.normal(size=n_rows)
    with pm.Model() as model:
        u = _effects(groups, offset)
        pm.Normal("y", u[group], pm.HalfNormal("sigma", 2), observed=y)
    return model


def exact_scale(model: pm.Model, groups: int) -> tuple[float, float]:
    """Mean and standard deviation of tau of `gaussian`, by quadrature over it and sigma."""
    y = model.rvs_to_values[model["y"]].data
    rows = np.array_split(y, groups)
    n, mean = np.array([len(r) for r in rows]), np.array([r.mean() for r in rows])
    within, N = sum(((r - r.mean()) ** 2).sum() for r in rows), len(y)
    s = np.sqrt(within / (N - groups))
    sigma = np.linspace(1 - 8 / np.sqrt(N), 1 + 8 / np.sqrt(N), 81)[:, None] * s
    tau = (np.arange(4000) + 0.5) / 4000 * 4 * (mean.std() + s / np.sqrt(n.min()))
    total, shift, square = 1 / 4.0, 0.0, 0.0  # of the mean a, N(0, 2) a priori
    log = -0.5 * (sigma / 2) ** 2 - 0.5 * tau**2 - (N - groups) * np.log(sigma)
    log = log - 0.5 * within / sigma**2
    for m, k in zip(mean, n, strict=True):
        v = tau**2 + sigma**2 / k
        log = log - 0.5 * np.log(v)
        total, shift, square = total + 1 / v, shift + m / v, square + m**2 / v
    log = log - 0.5 * np.log(total) - 0.5 * (square - shift**2 / total)
    weight = np.exp(log - log.max()).sum(0)
    weight /= weight.sum()
    average = weight @ tau
    return float(average), float(np.sqrt(weight @ (tau - average) ** 2))


def slopes(offset: bool = False, groups: int = 500, each: int = 100) -> pm.Model:
    """Correlated random intercepts and slopes."""
    rng = np.random.default_rng(0)
    group, x = np.repeat(np.arange(groups), each), rng.normal(size=groups * each)
    root = np.linalg.cholesky(np.array([[0.5, 0.2], [0.2, 0.3]]))
    u = np.array([1.0, 0.5]) + rng.normal(size=(groups, 2)) @ root.T
    y = u[group, 0] + u[group, 1] * x + rng.normal(size=len(x))
    with pm.Model() as model:
        mu, sds = pm.Normal("mu", 0, 2, shape=2), pm.HalfNormal.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sds)
        if offset:
            ab = mu + pm.Normal("z", 0, 1, shape=(groups, 2)) @ chol.T
        else:
            ab = pm.MvNormal("ab", mu, chol=chol, shape=(groups, 2))
        mean = ab[group, 0] + ab[group, 1] * x
        pm.Normal("y", mean, pm.HalfNormal("s", 2), observed=y)
    return model


def crossed(first: int = 5000, second: int = 1000, n_rows: int = 1_000_000) -> pm.Model:
    """Counts with two crossed effects."""
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, first, n_rows), rng.integers(0, second, n_rows)
    eta = 0.2 + 0.5 * rng.normal(size=first)[i] + 0.3 * rng.normal(size=second)[j]
    y = rng.poisson(np.exp(eta)).astype("int32")
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        u = pm.Normal("u", 0, pm.HalfNormal("tau_u", 1), shape=first)
        v = pm.Normal("v", 0, pm.HalfNormal("tau_v", 1), shape=second)
        pm.Poisson("y", pm.math.exp(a + u[i] + v[j]), observed=y)
    return model


def item_response(persons: int = 2000, items: int = 100) -> pm.Model:
    """Two parameters for each item, one for each person."""
    rng = np.random.default_rng(0)
    p, i = np.repeat(np.arange(persons), items), np.tile(np.arange(items), persons)
    theta, b = rng.normal(size=persons), rng.normal(size=items)
    a = np.exp(0.3 * rng.normal(size=items))
    y = (rng.random(persons * items) < 1 / (1 + np.exp(-a[i] * (theta[p] - b[i])))).astype("int32")
    with pm.Model() as model:
        ability = pm.Normal("ability", 0, 1, shape=persons)
        slope = pm.LogNormal("slope", 0, 0.5, shape=items)
        difficulty = pm.Normal("difficulty", 0, 1.5, shape=items)
        pm.Bernoulli("y", logit_p=slope[i] * (ability[p] - difficulty[i]), observed=y)
    return model


def regression(d: int = 2000, n_rows: int = 200_000, correlation: float = 0.5) -> pm.Model:
    """A dense logistic regression on correlated predictors; no groups at all."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(n_rows, 1))
    X = np.sqrt(1 - correlation) * rng.normal(size=(n_rows, d)) + np.sqrt(correlation) * shared
    eta = X @ (rng.normal(size=d) / np.sqrt(d))
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-eta))).astype("int32")
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=X @ pm.Normal("beta", 0, 1, shape=d), observed=y)
    return model


MODELS: dict[str, Callable[[], pm.Model]] = {
    "logistic 1000 groups": lambda: logistic(1000, 100_000),
    "logistic 1000 groups non-centred": lambda: logistic(1000, 100_000, offset=True),
    "logistic 10000 groups": lambda: logistic(10_000, 1_000_000),
    "logistic 10000 groups non-centred": lambda: logistic(10_000, 1_000_000, offset=True),
    "logistic 10000 groups of Zipf sizes": lambda: logistic(10_000, 1_000_000, zipf=True),
    "logistic 10000 groups of Zipf sizes non-centred": lambda: logistic(
        10_000, 1_000_000, offset=True, zipf=True
    ),
    "logistic 100000 groups": lambda: logistic(100_000, 10_000_000),
    **{
        f"Gaussian 12 groups that do not differ, {n} rows{form}": partial(
            gaussian, 12, n, 0.0, bool(form)
        )
        for n in (2000, 20_000)
        for form in ("", " non-centred")
    },
    "Gaussian 1000 groups of 5 rows": gaussian,
    "Gaussian 1000 groups of 5 rows non-centred": lambda: gaussian(offset=True),
    "intercepts and slopes LKJ 500 groups": slopes,
    "intercepts and slopes LKJ 500 groups non-centred": lambda: slopes(offset=True),
    "Poisson crossed 5000 × 1000": crossed,
    "item response 2000 × 100": item_response,
    "dense logistic 2000 predictors": regression,
}
