# SPDX-License-Identifier: Apache-2.0
"""Likelihoods that PyMC's example gallery, and those who learn from it, write."""

from __future__ import annotations

import numpy as np
import pymc as pm

from tests.clients.registry import case, frame


@case
def gallery_survival_in_a_potential(n):
    d = frame(n)
    dead = (d.positive < 2).values
    time = np.minimum(d.positive.values, 2.0)
    with pm.Model() as model:
        b, shape = pm.Normal("b", 0, 1, shape=2), pm.HalfNormal("shape", 2)
        scale = pm.math.exp(b[0] + b[1] * d.x.values)
        pm.Weibull("event", shape, scale[dead], observed=time[dead])
        pm.Potential("censored", -((time[~dead] / scale[~dead]) ** shape))
    return model


@case
def gallery_softmax_with_shares(n):
    d = frame(n)
    with pm.Model() as model:
        scores = d[["x", "z"]].values @ pm.Normal("b", 0, 1, shape=(2, 3))
        shares = pm.Deterministic("shares", pm.math.softmax(scores, axis=1))
        pm.Categorical("y", p=shares, observed=d.choice.cat.codes.values)
    model.point_logps()
    return model


@case
def gallery_sparse_text(n):
    import pytensor.sparse as ps
    import scipy.sparse

    words = scipy.sparse.random(n, 300, density=0.01, format="csr", random_state=1)
    words.data[:] = 1.0
    truth = np.random.default_rng(2).normal(0, 0.5, 300)
    y = (np.random.default_rng(3).random(n) < 1 / (1 + np.exp(-(words @ truth)))).astype(int)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=300)
        pm.Bernoulli("y", logit_p=ps.dot(ps.as_sparse_variable(words), b), observed=y)
    return model


@case
def gallery_item_response_wide(n):
    rng, persons = np.random.default_rng(1), max(n // 20, 100)
    ability, easy = rng.normal(size=persons), rng.normal(size=20)
    chance = 1 / (1 + np.exp(-(ability[:, None] + easy)))
    table = (rng.random((persons, 20)) < chance).astype(int)
    with pm.Model() as model:
        theta, item = pm.Normal("theta", 0, 1, shape=persons), pm.Normal("item", 0, 1, shape=20)
        pm.Bernoulli("y", logit_p=theta[:, None] + item, observed=table)
    return model


@case
def gallery_weighted_custom(n):
    d = frame(n)
    weight = d.weight.values

    def logp(value, mean, s):
        return weight * pm.logp(pm.Normal.dist(mean, s), value)

    with pm.Model() as model:
        mean, s = pm.Normal("b") * d.x.values, pm.HalfNormal("s")
        pm.CustomDist("y", mean, s, logp=logp, observed=d.y.values)
    return model


@case
def gallery_counted_rows(n):
    """A row for each kind of trial, with how often it was seen: frequency weights."""
    d = frame(n)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        rate = pm.math.exp(b[0] + b[1] * d.x.values)
        loglike = pm.logp(pm.Poisson.dist(rate), d["count"].values)
        pm.Potential("y", (d.weight.values * loglike).sum())
    return model


@case
def gallery_bounds_of_each_row(n):
    """Every measurement has a detection limit of its own."""
    d = frame(n)
    lower = np.random.default_rng(5).normal(-1, 0.5, n)
    with pm.Model() as model:
        b, s = pm.Normal("b", 0, 1, shape=2), pm.HalfNormal("s", 1)
        latent = pm.Normal.dist(b[0] + b[1] * d.x.values, s)
        observed = np.maximum(d.y.values, lower)
        pm.Censored("y", latent, lower=lower, upper=None, observed=observed)
    return model


@case
def gallery_expected_value_of_a_mixture(n):
    """Outliers by hand, as `pm.Mixture` of two distributions with predictors."""
    d = frame(n)
    with pm.Model() as model:
        b, s = pm.Normal("b", 0, 1, shape=2), pm.HalfNormal("s", 1)
        mean, out = b[0] + b[1] * d.x.values, pm.Beta("out", 1, 9)
        parts = [pm.Normal.dist(mean, s), pm.Normal.dist(mean, 5 * s)]
        weights = pm.math.stack([1 - out, out])
        pm.Mixture("y", w=weights, comp_dists=parts, observed=d.heavy.values)
    return model


@case
def gallery_two_outcomes_of_the_same_rows(n):
    """A joint model: whether, and then how much, the second of some rows only."""
    d = frame(n)
    paid = d.yes.values == 1
    with pm.Model() as model:
        b, c, s = pm.Normal("b", shape=2), pm.Normal("c", shape=2), pm.HalfNormal("s")
        score = b[0] + b[1] * d.x.values
        pm.Bernoulli("whether", logit_p=score, observed=d.yes.values)
        mean = c[0] + c[1] * score[paid]
        pm.LogNormal("much", mean, s, observed=d.positive.values[paid])
    return model
