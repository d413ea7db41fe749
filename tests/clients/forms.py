# SPDX-License-Identifier: Apache-2.0
"""Forms in which people declare models: containers, types, shapes, ways to say the same."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt

from tests.clients.registry import case, frame


@case
def form_data_with_coords(n):
    """Containers with dims and coords, pandas, and a Deterministic with dims of rows."""
    d = frame(n)
    coords = {"row": d.index, "predictor": ["x", "z"], "group": np.unique(d.group)}
    with pm.Model(coords=coords) as model:
        X = pm.Data("X", d[["x", "z"]], dims=("row", "predictor"))
        g = pm.Data("g", pd.factorize(d.group, sort=True)[0], dims="row")
        y = pm.Data("y_data", d.by_group, dims="row")
        b, u = pm.Normal("b", dims="predictor"), pm.Normal("u", dims="group")
        mu = pm.Deterministic("mu", pm.math.dot(X, b) + u[g], dims="row")
        pm.Normal("y", mu, pm.HalfNormal("s"), observed=y, dims="row")
    return model


@case
def form_pandas(n):
    """Series and frames as they are."""
    d = frame(n)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Normal("y", pm.math.dot(d[["x", "z"]], b), pm.HalfNormal("s"), observed=d["y"])
    return model


@case
def form_types(n):
    """Booleans, bytes, single precision and 64-bit integers as predictors."""
    d = frame(n)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=4)
        sign, half = d.x.values > 0, d.z.values.astype("float32")
        many, few = d.trials.values.astype("int64"), d.weight.values.astype("int8")
        mu = b[0] * sign + b[1] * half + b[2] * many / 10 + b[3] * few
        pm.Bernoulli("y", logit_p=mu, observed=d.yes.values.astype(bool))
    return model


@case
def form_column_outcome(n):
    """Everything as columns of shape (n, 1)."""
    d = frame(n)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=(2, 1))
        mu = pm.math.dot(d[["x", "z"]].values, b)
        pm.Normal("y", mu, pm.HalfNormal("s"), observed=d[["y"]].values)
    return model


@case
def form_two_index_arrays(n):
    """A table of effects, looked up by two arrays; pt.take; flat indices."""
    d = frame(n)
    i, j = d.group.astype(int).values, d.site.astype(int).values
    with pm.Model() as model:
        cell, u = pm.Normal("cell", 0, 1, shape=(50, 5)), pm.Normal("u", 0, 1, shape=50)
        v = pm.Normal("v", 0, 1, shape=5)
        mu = cell[i, j] + pt.take(u, i) + pt.take(v, j, axis=0) + cell.ravel()[i * 5 + j]
        pm.Normal("y", mu, 1.0, observed=d.by_group.values)
    return model


@case
def form_ordered_cutpoints(n):
    d = frame(n)
    with pm.Model() as model:
        ordered = pm.distributions.transforms.ordered
        c = pm.Normal("c", 0, 2, shape=2, transform=ordered, initval=[-1.0, 1.0])
        eta = pm.Normal("b", 0, 1) * d.x.values
        pm.OrderedLogistic("y", eta=eta, cutpoints=c, observed=d.level.cat.codes.values)
    return model


@case
def form_other_parameters(n):
    """Precisions, means with sds, alpha with beta."""
    d = frame(n)
    with pm.Model() as model:
        b, a = pm.Normal("b", 0, tau=1.0, shape=2), pm.Gamma("a", mu=2, sigma=1)
        mean = pt.exp(b[0] + b[1] * d.x.values)
        pm.Gamma("y", alpha=a, beta=a / mean, observed=d.positive.values)
        pm.LogNormal("v", mu=b[0], tau=pm.Gamma("t", 2, 2), observed=d.positive.values)
        pm.Beta("w", mu=pm.math.sigmoid(b[0]), nu=10.0, observed=d.share.values)
    return model


@case
def form_counts_in_categories(n):
    d = frame(n)
    counts = d[["y1", "y2", "y3"]].values
    with pm.Model() as model:
        p = pm.math.softmax(d[["x", "z"]].values @ pm.Normal("b", shape=(2, 3)), axis=-1)
        pm.Multinomial("y", n=counts.sum(1), p=p, observed=counts)
        a = pm.Gamma("a", 2, 0.1, shape=3)
        pm.DirichletMultinomial("v", n=counts.sum(1), a=a, observed=counts)
    return model


@case
def form_truncated_counts(n):
    """Only those who bought at least once are seen."""
    d = frame(n)
    seen = d[d["count"] > 0]
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        rate = pt.exp(b[0] + b[1] * seen.x.values)
        pm.Truncated("y", pm.Poisson.dist(rate), lower=1, observed=seen["count"].values)
    return model


@case
def form_zeros(n):
    d = frame(n)
    with pm.Model() as model:
        b, psi, a = pm.Normal("b", shape=2), pm.Beta("psi", 2, 2), pm.HalfNormal("a", 2)
        mean = pt.exp(b[0] + b[1] * d.x.values)
        pm.ZeroInflatedNegativeBinomial("y", psi, mu=mean, alpha=a, observed=d.zeros.values)
        k = pm.HalfNormal("k", 2)
        pm.HurdleGamma("v", psi, alpha=k, beta=k / mean, observed=d.spent.values)
    return model


@case
def form_skewed(n):
    d = frame(n)
    with pm.Model() as model:
        b, s, a = pm.Normal("b", shape=2), pm.HalfNormal("s"), pm.Normal("a", 0, 2)
        pm.SkewNormal("y", mu=b[0] + b[1] * d.x.values, sigma=s, alpha=a, observed=d.y.values)
        nu = pm.Exponential("nu", 1)
        pm.ExGaussian("v", mu=b[0], sigma=s, nu=nu, observed=d.above.values)
    return model


@case
def form_observed_later(n):
    """A generative model, with some of its variables fixed and others observed."""
    d = frame(n)
    with pm.Model() as generative:
        b, c = pm.Normal("b", 0, 1, shape=2), pm.Normal("c", 0, 1)
        mu = b[0] + b[1] * d.x.values + c
        pm.Normal("y", mu, pm.HalfNormal("s"), shape=n)
    return pm.observe(pm.do(generative, {"c": 0.0}), {"y": d.y.values})


@case
def form_nested_models(n):
    d = frame(n)
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        with pm.Model(name="first"):
            pm.Normal("y", pm.Normal("b") * d.x.values, s, observed=d.y.values)
        with pm.Model(name="second"):
            pm.Normal("y", pm.Normal("b") * d.z.values, s, observed=d.heavy.values)
    return model


@case
def form_simulated_likelihood(n):
    """A distribution given by how it is simulated."""
    d = frame(n)

    def dist(mean, s, size):
        return pt.exp(pm.Normal.dist(mean, s, size=size))

    with pm.Model() as model:
        mean = pm.Normal("b") * d.x.values
        pm.CustomDist("y", mean, pm.HalfNormal("s"), dist=dist, observed=d.positive.values)
    return model


@case
def form_loops_of_python(n):
    """A sum over predictors written as a loop, and columns joined."""
    d = frame(n)
    with pm.Model() as model:
        mu = pm.Normal("a")
        for name in ("x", "z"):
            mu += pm.Normal(f"b_{name}") * d[name].values
        joined = pt.stack([mu, pt.zeros_like(mu)], axis=1)
        pm.Categorical("y", logit_p=joined, observed=1 - d.yes.values)
    return model


@case
def form_slices_and_lags(n):
    """Differences of rows with those before them, of containers and of a predictor."""
    d = frame(n)
    with pm.Model() as model:
        x, before = pm.Data("x", d.x.values), pm.Data("before", d.y.values)
        mu = pm.Normal("a") + pm.Normal("b") * x
        rho = pm.Normal("rho", 0, 0.5)
        later = mu[1:] + rho * (before[:-1] - mu[:-1])
        pm.Normal("y", later, pm.HalfNormal("s"), observed=d.y.values[1:])
    return model


@case
def form_repeated_effects(n):
    """A balanced panel: effects of persons repeated, those of waves tiled."""
    d, waves = frame(n - n % 20), 20
    persons = len(d) // waves
    with pm.Model() as model:
        u = pm.HalfNormal("tau", 1) * pm.Normal("z", 0, 1, shape=persons)
        wave = pm.Normal("wave", 0, 1, shape=waves)
        mu = pt.repeat(u, waves) + pt.tile(wave, persons) + pm.Normal("b") * d.x.values
        pm.Normal("y", mu, pm.HalfNormal("s"), observed=d.y.values)
    return model
