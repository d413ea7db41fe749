# SPDX-License-Identifier: Apache-2.0
"""Hierarchies of PyMC's example gallery, as they are written there."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from tests.clients.registry import CASES, case, frame


def radon(n: int, centred: bool, slopes: bool) -> pm.Model:
    """Houses in counties: uranium explains counties, the floor explains houses."""
    d, rng = frame(n), np.random.default_rng(2)
    county, uranium = d.group.astype(int).values, rng.normal(size=50)
    floor = (d.z.values > 0.5).astype(float)
    with pm.Model(coords={"county": range(50)}) as model:
        g, tau = pm.Normal("g", 0, 2, shape=2), pm.Exponential("tau", 1)
        mean = g[0] + g[1] * uranium
        if centred:
            a = pm.Normal("a", mean, tau, dims="county")
        else:
            a = pm.Deterministic("a", mean + pm.Normal("z", 0, 1, dims="county") * tau)
        if slopes:
            b0, tau_b = pm.Normal("b0", 0, 2), pm.Exponential("tau_b", 0.5)
            if centred:
                b = pm.Normal("b", b0, tau_b, dims="county")[county]
            else:
                b = (b0 + pm.Normal("z_b", 0, 1, dims="county") * tau_b)[county]
        else:
            b = pm.Normal("b", 0, 2)
        s = pm.Exponential("s", 1)
        pm.Normal("y", a[county] + b * floor, s, observed=d.by_group)
    return model


for _centred in (True, False):
    for _slopes in (True, False):
        _name = f"radon_{'slopes_' if _slopes else ''}{'centred' if _centred else 'noncentred'}"
        CASES[_name] = lambda n, c=_centred, s=_slopes: radon(n, c, s)


def radon_lkj(n: int, centred: bool) -> pm.Model:
    """Intercepts and slopes of counties that are correlated."""
    d = frame(n)
    county, floor = d.group.astype(int).values, (d.z.values > 0.5).astype(float)
    with pm.Model(coords={"county": range(50), "effect": ["intercept", "slope"]}) as model:
        size = pm.Exponential.dist(0.5, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=size)
        mean, s = pm.Normal("mean", 0, 5, dims="effect"), pm.Exponential("s", 1)
        if centred:
            ab = pm.MvNormal("ab", mean, chol=chol, dims=("county", "effect"))
        else:
            z = pm.Normal("z", 0, 1, dims=("effect", "county"))
            ab = pm.Deterministic("ab", mean + pt.dot(chol, z).T, dims=("county", "effect"))
        pm.Normal("y", ab[county, 0] + ab[county, 1] * floor, s, observed=d.by_group)
    return model


CASES["radon_lkj_centred"] = lambda n: radon_lkj(n, True)
CASES["radon_lkj_noncentred"] = lambda n: radon_lkj(n, False)


@case
def gallery_foul_calls(n):
    """Who commits and who suffers fouls in basketball: two non-centred effects, d = 463."""
    rng, players = np.random.default_rng(1), 230
    one, other = rng.integers(0, players, (2, n))
    skill = 0.4 * rng.normal(size=(2, players))
    season = rng.integers(0, 2, n)
    called = (rng.random(n) < 1 / (1 + np.exp(-(skill[0][one] - skill[1][other])))).astype(int)
    coords = {"player": range(players), "season": range(2)}
    with pm.Model(coords=coords) as model:
        base = pm.Normal("base", 0, 1, dims="season")
        t1, t2 = pm.HalfNormal("t1", 1), pm.HalfNormal("t2", 1)
        raw, raw2 = pm.Normal("raw", dims="player"), pm.Normal("raw2", dims="player")
        a, b = pm.Deterministic("a", t1 * raw, dims="player"), t2 * raw2
        eta = pm.Deterministic("eta", base[season] + a[one] - b[other])
        pm.Bernoulli("y", p=pm.math.sigmoid(eta), observed=called)
    return model


@case
def gallery_item_response_long(n):
    """Two parameters for every item, an ability for every person, d = 522."""
    rng = np.random.default_rng(1)
    person, item = rng.integers(0, 480, n), rng.integers(0, 20, n)
    ability, easy, sharp = rng.normal(size=480), rng.normal(size=20), rng.lognormal(0, 0.3, 20)
    chance = 1 / (1 + np.exp(-sharp[item] * (ability[person] - easy[item])))
    with pm.Model(coords={"person": range(480), "item": range(20)}) as model:
        theta = pm.Normal("theta", 0, 1, dims="person")
        m, t = pm.Normal("m", 0, 1), pm.HalfNormal("t", 1)
        b = pm.Normal("b", m, t, dims="item")
        a = pm.LogNormal("a", 0, 0.5, dims="item")
        eta = a[item] * (theta[person] - b[item])
        pm.Bernoulli("y", logit_p=eta, observed=(rng.random(n) < chance).astype(int))
    return model


@case
def gallery_disease_map(n):
    """Besag, York and Mollie: effects of 50 areas alone and of their neighbours (ICAR)."""
    d = frame(n)
    area = d.group.astype(int).values
    W = np.zeros((50, 50), int)
    for i in range(49):
        W[i, i + 1] = W[i + 1, i] = 1
    with pm.Model() as model:
        b0, b1 = pm.Normal("b0", 0, 1), pm.Normal("b1", 0, 1)
        theta, phi = pm.Normal("theta", 0, 1, shape=50), pm.ICAR("phi", W=W)
        s, rho = pm.HalfNormal("s", 1), pm.Beta("rho", 0.5, 0.5)
        mixed = s * (pt.sqrt(1 - rho) * theta + pt.sqrt(rho / 0.7) * phi)
        rate = pt.exp(d.log_exposure.values + b0 + b1 * d.x.values + mixed[area])
        pm.Poisson("y", rate, observed=d["count"].values)
    return model


def within_between(n: int, centred: bool) -> pm.Model:
    """Mundlak: means of the groups as predictors of their effects, d = 304."""
    rng = np.random.default_rng(3)
    group = rng.integers(0, 300, n)
    u = 0.5 * rng.normal(size=300)
    x = u[group] + rng.normal(size=n)
    count = np.maximum(np.bincount(group, minlength=300), 1)
    means = np.bincount(group, x, minlength=300) / count
    y = u[group] + 0.7 * x + rng.normal(size=n)
    with pm.Model() as model:
        b, tau, s = pm.Normal("b", 0, 1, shape=2), pm.HalfNormal("tau", 1), pm.HalfNormal("s", 1)
        if centred:
            a = pm.Normal("a", b[1] * means, tau, shape=300)
        else:
            a = b[1] * means + tau * pm.Normal("z", 0, 1, shape=300)
        pm.Normal("y", a[group] + b[0] * x, s, observed=y)
    return model


CASES["gallery_mundlak_centred"] = lambda n: within_between(n, True)
CASES["gallery_mundlak_noncentred"] = lambda n: within_between(n, False)


def _three_options(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    group, price = rng.integers(0, 500, n), rng.normal(size=(n, 3))
    slope = -1 + 0.5 * rng.normal(size=500)
    score = slope[group][:, None] * price + [0.0, 0.3, -0.2] + rng.gumbel(size=(n, 3))
    return group, price, score.argmax(1)


@case
def gallery_discrete_choice(n):
    """Conditional logit: predictors of alternatives, one constant per alternative."""
    _, price, chosen = _three_options(n)
    with pm.Model() as model:
        b, c = pm.Normal("b", 0, 1), pm.Normal("c", 0, 1, shape=2)
        constants = pm.math.concatenate([[0.0], c])
        p = pm.Deterministic("p", pm.math.softmax(b * price + constants, axis=1))
        pm.Categorical("y", p=p, observed=chosen)
    return model


@case
def gallery_mixed_logit(n):
    """A price sensitivity for each of 500 buyers."""
    group, price, chosen = _three_options(n)
    with pm.Model() as model:
        b, tau, c = pm.Normal("b"), pm.HalfNormal("tau", 1), pm.Normal("c", 0, 1, shape=2)
        slope = b + tau * pm.Normal("z", 0, 1, shape=500)
        scores = slope[group][:, None] * price + pt.concatenate([pt.zeros(1), c])
        pm.Categorical("y", logit_p=scores, observed=chosen)
    return model


@case
def gallery_choice_with_correlated_tastes(n):
    group, price, chosen = _three_options(n)
    with pm.Model() as model:
        size = pm.Exponential.dist(1.0, shape=3)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=size)
        tastes = pm.MvNormal("tastes", np.zeros(3), chol=chol, shape=(100, 3))
        b = pm.Normal("b", 0, 1)
        pm.Categorical("y", logit_p=tastes[group % 100] + b * price, observed=chosen)
    return model


@case
def gallery_horseshoe(n):
    """The regularised horseshoe of 50 predictors, 5 of which matter."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(n, 50))
    y = X[:, :5] @ np.array([1.0, -1.0, 0.5, -0.5, 0.3]) + rng.normal(size=n)
    with pm.Model() as model:
        s, tau = pm.HalfNormal("s", 1), pm.HalfStudentT("tau", 2, 0.1)
        local, c2 = pm.HalfStudentT("local", 5, 1, shape=50), pm.InverseGamma("c2", 2, 2)
        z = pm.Normal("z", 0, 1, shape=50)
        b = pm.Deterministic("b", z * tau * local * pt.sqrt(c2 / (c2 + tau**2 * local**2)))
        pm.Normal("y", X @ b, s, observed=y)
    return model
