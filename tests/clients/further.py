# SPDX-License-Identifier: Apache-2.0
"""Further likelihoods of the gallery."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from tests.clients.registry import case, frame


@case
def gallery_gaussian_mixture(n):
    """Three components, ordered."""
    rng = np.random.default_rng(1)
    y = rng.normal(np.array([-4.0, 0.0, 5.0])[rng.integers(0, 3, n)], 1.0)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        ordered = pm.distributions.transforms.ordered
        mu = pm.Normal("mu", 0, 5, shape=3, transform=ordered, initval=[-3.0, 0.0, 3.0])
        s = pm.HalfNormal("s", 2, shape=3)
        pm.NormalMixture("y", w, mu, s, observed=y)
    return model


@case
def gallery_ordinal_features(n):
    """The effect of a grade as a sum of Dirichlet increments."""
    d = frame(n)
    grade = d.grade.cat.codes.values
    with pm.Model() as model:
        b, s = pm.Normal("b", 0, 1, shape=3), pm.HalfNormal("s", 1)
        steps = pm.Dirichlet("steps", np.ones(4))
        up = pm.Deterministic("up", pt.concatenate([[0.0], pt.cumsum(steps)]))
        pm.Normal("y", b[0] + b[1] * up[grade] + b[2] * d.x.values, s, observed=d.y.values)
    return model


@case
def gallery_extreme_values(n):
    """Generalised extreme values, by their formula."""
    y = np.random.default_rng(1).gumbel(3.0, 0.5, n)
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 3.0, 0.5), pm.HalfNormal("s", 0.3)
        xi = pm.TruncatedNormal("xi", 0.0, 0.2, lower=-0.6, upper=0.6)

        def logp(value, mu, s, xi):
            z = (value - mu) / s
            t = 1 + xi * z
            gumbel = -pt.log(s) - z - pt.exp(-z)
            power = pt.switch(t > 0, t, 1.0) ** (-1 / xi)
            frechet = -pt.log(s) - (xi + 1) / xi * pt.log(pt.switch(t > 0, t, 1.0)) - power
            return pt.switch(pt.isclose(xi, 0), gumbel, pt.switch(t > 0, frechet, -np.inf))

        pm.CustomDist("y", mu, s, xi, logp=logp, observed=y)
    return model


@case
def gallery_proportional_hazards(n):
    """Cox with piecewise hazards: a row for a person, a column for an interval."""
    d = frame(max(n // 10, 20))
    ends = np.array([0.0, 0.5, 1.0, 2.0, 4.0])
    time, died = np.minimum(d.positive.values, 4.0), d.positive.values < 4
    exposure = np.clip(time[:, None] - ends[:-1], 0, np.diff(ends))
    last = np.minimum(np.searchsorted(ends, time) - 1, 3)
    death = np.zeros((len(d), 4))
    death[np.arange(len(d)), last] = died
    with pm.Model(coords={"interval": range(4), "person": range(len(d))}) as model:
        base = pm.Gamma("base", 0.01, 0.01, dims="interval")
        b = pm.Normal("b", 0, 10)
        hazard = pt.exp(pt.outer(b * d.x.values, pt.ones(4))) * base
        pm.Poisson("y", exposure * hazard, observed=death, dims=("person", "interval"))
    return model


@case
def gallery_gumbel_survival(n):
    """Accelerated failure: log times are Gumbel, the censored a Potential of their own."""
    d = frame(n)
    time = np.log(np.minimum(d.positive.values, 2.0))
    dead = d.positive.values < 2
    X = np.column_stack([np.ones(n), d.x.values])
    with pm.Model() as model:
        b, s = pm.Normal("b", 0, 5, shape=2), pm.HalfNormal("s", 5)
        eta = pt.dot(b, X.T)
        pm.Gumbel("event", eta[dead], s, observed=time[dead])
        late = -pt.log1p(pt.exp((time[~dead] - eta[~dead]) / s))
        pm.Potential("censored", late)
    return model


@case
def gallery_weibull_censored_by_switch(n):
    d = frame(n)
    time, dead = np.minimum(d.positive.values, 2.0), (d.positive < 2).values
    with pm.Model() as model:
        b, k = pm.Normal("b", 0, 1, shape=2), pm.HalfNormal("k", 2)
        dist = pm.Weibull.dist(k, pt.exp(b[0] + b[1] * d.x.values))
        late = pt.log1mexp(pm.logcdf(dist, time))
        pm.Potential("y", pt.switch(dead, pm.logp(dist, time), late))
    return model


@case
def gallery_copula(n):
    """Two outcomes with margins of their own and a Gaussian copula."""
    rng = np.random.default_rng(1)
    z = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], n)
    a, b = 2 + 1.5 * z[:, 0], np.exp(0.5 * z[:, 1])
    with pm.Model() as model:
        m, s, t = pm.Normal("m", 0, 5), pm.HalfNormal("s", 3), pm.HalfNormal("t", 1)
        pm.Normal("a", m, s, observed=a)
        pm.LogNormal("b", 0, t, observed=b)
        chol, _, _ = pm.LKJCholeskyCov("c", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
        joint = pt.stack([(a - m) / s, pt.log(b) / t], axis=1)
        pm.Potential("copula", pm.logp(pm.MvNormal.dist(np.zeros(2), chol=chol), joint).sum())
    return model


@case
def gallery_vector_autoregression(n):
    """VAR(1) as a regression on lags."""
    rng = np.random.default_rng(1)
    y = np.zeros((n + 1, 3))
    for i in range(n):
        y[i + 1] = 0.5 * y[i] + rng.normal(size=3)
    with pm.Model() as model:
        A, c = pm.Normal("A", 0, 0.5, shape=(3, 3)), pm.Normal("c", 0, 1, shape=3)
        chol, _, _ = pm.LKJCholeskyCov("L", n=3, eta=2, sd_dist=pm.Exponential.dist(1, shape=3))
        pm.MvNormal("y", c + y[:-1] @ A.T, chol=chol, observed=y[1:])
    return model


@case
def gallery_gaussian_process_basis(n):
    d = frame(n)
    with pm.Model() as model:
        length, size = pm.InverseGamma("length", 3, 3), pm.HalfNormal("size", 1)
        cov = size**2 * pm.gp.cov.Matern52(1, ls=length)
        gp = pm.gp.HSGP(m=[12], c=1.5, cov_func=cov)
        f = gp.prior("f", X=d[["x"]].values)
        pm.Normal("y", f, pm.HalfNormal("s", 1), observed=d.y.values)
    return model
