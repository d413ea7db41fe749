# SPDX-License-Identifier: Apache-2.0
"""Hard posteriors that were written after the method was finished: nothing was tuned on them."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from tests.accuracy.shapes import LEVELS, Pair, levels, observe, pair


def rare_strata(n_rows: int = 50_000) -> Pair:
    """Exponential survival times, three strata of 60 rows with 0, 1 and 3 deaths."""
    rng = np.random.default_rng(1)
    x = rng.choice(LEVELS, n_rows)
    stratum = np.zeros(n_rows, dtype=int)
    stratum[rng.choice(n_rows, 180, replace=False)] = np.repeat([1, 2, 3], 60)
    t = rng.exponential(np.exp(0.5 - 0.4 * x))
    limit = np.full(n_rows, 3.0)
    for k, deaths in ((1, 0), (2, 1), (3, 3)):
        few = np.flatnonzero(stratum == k)
        limit[few], t[few] = 0.4, 9.0
        t[few[:deaths]] = 0.2
    t = np.maximum(np.round(np.minimum(t, limit), 1), 0.1)

    def build(x, stratum, t, limit, weights):
        b = pt.concatenate([[0.0], pm.Normal("b", 0, 3, shape=3)])
        eta = pm.Normal("a", 0, 2) + pm.Normal("slope", 0, 1) * x + b[stratum]
        if weights is None:
            times = pm.Exponential.dist(pm.math.exp(eta))
            pm.Censored("y", times, lower=None, upper=limit, observed=t)
            return
        terms = pt.where(t < limit, eta, 0.0) - t * pt.exp(eta)
        pm.Potential("y", (weights * terms).sum())

    return pair(build, x, stratum, t, limit)


def separated_counts(n_rows: int = 20_000) -> Pair:
    """Overdispersed counts, a predictor of 40 rows that all have none."""
    rng = np.random.default_rng(2)
    [x] = levels(rng, n_rows)
    z = np.zeros(n_rows)
    z[rng.choice(n_rows, 40, replace=False)] = rng.choice([1.0, 2.0], 40)
    y = rng.negative_binomial(2, 2 / (2 + np.exp(0.3 * x)))
    y[z > 0] = 0

    def build(x, z, y, weights):
        eta = pm.Normal("a", 0, 1) + pm.Normal("slope", 0, 1) * x + pm.Normal("b", 0, 3) * z
        alpha = pm.Exponential("alpha", 0.5)
        observe(pm.NegativeBinomial, y, weights, mu=pm.math.exp(eta), alpha=alpha)

    return pair(build, x, z, y)


def separated_cauchy(n_rows: int = 20_000) -> Pair:
    """Logistic regression, a category of 30 rows without events, a Cauchy prior."""
    rng = np.random.default_rng(3)
    [x] = levels(rng, n_rows)
    z = np.zeros(n_rows, dtype=int)
    z[rng.choice(n_rows, 30, replace=False)] = 1
    y = ((rng.random(n_rows) < 1 / (1 + np.exp(0.5 - x))) & (z == 0)).astype(int)

    def build(x, z, y, weights):
        eta = pm.Normal("a", 0, 2) + pm.Normal("slope", 0, 1) * x
        observe(pm.Bernoulli, y, weights, logit_p=eta + pm.Cauchy("b", 0, 2.5) * z)

    return pair(build, x, z, y)


def empty_class(n_rows: int = 20_000) -> Pair:
    """Five ordered categories, of which the fourth was never chosen."""
    rng = np.random.default_rng(4)
    [x] = levels(rng, n_rows)
    latent = 0.7 * x + rng.logistic(size=n_rows)
    y = np.digitize(latent, [-1.0, 0.5, 2.0])
    y[y == 3] = 4

    def build(x, y, weights):
        slope = pm.Normal("slope", 0, 1)
        cuts = pm.Normal("cuts", [-1.0, 0.0, 1.0, 2.0], 2, shape=4, initval=[-1.0, 0.0, 1.0, 2.0],
                         transform=pm.distributions.transforms.ordered)  # fmt: skip
        observe(pm.OrderedLogistic, y, weights, eta=slope * x, cutpoints=cuts)

    return pair(build, x, y)


def gamma_outliers(n_rows: int = 20_000) -> Pair:
    """Positive outcomes, ten of them a hundred times too large, ten too small."""
    rng = np.random.default_rng(5)
    x, z = np.round(levels(rng, n_rows, 2) * 2) / 2
    mu = np.exp(0.5 + 0.3 * x - 0.2 * z)
    y = np.maximum(np.round(rng.gamma(2.0, mu / 2), 2), 0.01)
    y[:10] *= 100
    y[10:20] = 1e-4

    def build(x, z, y, weights):
        b = pm.Normal("b", 0, 1, shape=2)
        mu = pm.math.exp(pm.Normal("a", 0, 1) + b[0] * x + b[1] * z)
        alpha = pm.HalfNormal("alpha", 5)
        observe(pm.Gamma, y, weights, alpha=alpha, beta=alpha / mu)

    return pair(build, x, z, y)


def few_trials(n_rows: int = 4_000, groups: int = 100) -> tuple[pm.Model, pm.Model]:
    """Hundred groups of 40 rows of two trials, one in a hundred successful: 80 in all."""
    rng = np.random.default_rng(6)
    group = np.repeat(np.arange(groups), n_rows // groups)
    effect = 0.5 * rng.normal(size=groups)
    y = rng.binomial(2, 1 / (1 + np.exp(4.5 - effect[group])))
    events = np.bincount(group, y).astype(int)

    with pm.Model() as model:
        u = pm.Normal("u", pm.Normal("a", 0, 3), pm.HalfNormal("tau", 1), shape=groups)
        pm.Binomial("y", 2, logit_p=u[group], observed=y)
    with pm.Model() as statistics:
        a, tau = pm.Normal("a", 0, 3), pm.HalfNormal("tau", 1)
        u = pm.Deterministic("u", a + tau * pm.Normal("z", 0, 1, shape=groups))
        pm.Binomial("y", 2 * n_rows // groups, logit_p=u, observed=events)
    return model, statistics


UNSEEN = {
    "unseen: survival, strata of 0, 1, 3 deaths": rare_strata,
    "unseen: negative binomial, separated": separated_counts,
    "unseen: logistic, separated, Cauchy prior": separated_cauchy,
    "unseen: ordered, an empty category": empty_class,
    "unseen: gamma, outliers": gamma_outliers,
    "unseen: binomial, groups of few events": few_trials,
}
