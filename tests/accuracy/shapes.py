# SPDX-License-Identifier: Apache-2.0
"""Posteriors that a Gaussian does not describe: skewed, bounded, rare, heavy-tailed.

Each function builds a model of many rows. Predictors and outcomes are rounded, so many rows are
the same, and a second model, of the different rows and how often each is there, has the same
posterior: NUTS may run for long on that one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt

Pair = tuple[pm.Model, pm.Model]
LEVELS = np.linspace(-2, 2, 21)
_SHARES = np.exp(-0.5 * LEVELS**2) / np.exp(-0.5 * LEVELS**2).sum()


def pair(build: Callable, *columns: np.ndarray) -> Pair:
    """A model of all rows, and one of the different rows, each with its count."""
    rows, counts = np.unique(np.column_stack(columns), axis=0, return_counts=True)
    built = []
    for given, weights in ((columns, None), ([*rows.T], counts)):
        with pm.Model() as model:
            build(*(np.asarray(g, c.dtype) for g, c in zip(given, columns)), weights)
        built.append(model)
    return built[0], built[1]


def observe(kind, y: np.ndarray, weights: np.ndarray | None, *args, **parameters) -> None:
    """`y` as observations, or the weighted sum of what its different values contribute."""
    if weights is None:
        kind("y", *args, **parameters, observed=y)
    else:
        pm.Potential("y", (weights * pm.logp(kind.dist(*args, **parameters), y)).sum())


def levels(rng: np.random.Generator, n_rows: int, columns: int = 1) -> np.ndarray:
    """Predictors of 21 values, about normal: (columns, n_rows)."""
    return rng.choice(LEVELS, size=(columns, n_rows), p=_SHARES)


def _rare_rows(n_rows: int, rare: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """A predictor, and a category of a few rows anywhere among the others."""
    rng = np.random.default_rng(0)
    category = np.zeros(n_rows, dtype=int)
    category[rng.choice(n_rows, rare, replace=False)] = 1
    return rng.choice(LEVELS, n_rows), category, rng


def _line(x, category, spread: float = 5.0):
    a, slope = pm.Normal("a", 0, 2), pm.Normal("slope", 0, 1)
    return a + slope * x + pm.Normal("b", 0, spread) * category


def rare_logistic(events: int, rare: int = 200, n_rows: int = 100_000, student=False) -> Pair:
    """A category with hardly any events."""
    x, category, rng = _rare_rows(n_rows, rare)
    y = (rng.random(n_rows) < 1 / (1 + np.exp(1.5 - 0.5 * x))).astype(int)
    few = np.flatnonzero(category)
    y[few] = 0
    y[few[:events]] = 1

    def build(x, category, y, weights):
        if student:
            a, slope = pm.Normal("a", 0, 2), pm.Normal("slope", 0, 1)
            eta = a + slope * x + pm.StudentT("b", nu=3, mu=0, sigma=2.5) * category
        else:
            eta = _line(x, category)
        observe(pm.Bernoulli, y, weights, logit_p=eta)

    return pair(build, x, category, y)


def rare_poisson(events: int, rare: int = 100, n_rows: int = 100_000) -> Pair:
    """The same with counts."""
    x, category, rng = _rare_rows(n_rows, rare)
    y = rng.poisson(np.exp(-1 + 0.3 * x))
    few = np.flatnonzero(category)
    y[few] = 0
    y[few[:events]] = 1

    def build(x, category, y, weights):
        observe(pm.Poisson, y, weights, pm.math.exp(_line(x, category)))

    return pair(build, x, category, y)


def rare_weibull(events: int = 2, rare: int = 100, n_rows: int = 20_000) -> Pair:
    """Survival times, most of the category censored."""
    x, category, rng = _rare_rows(n_rows, rare)
    t = np.exp(0.5 + 0.3 * x) * rng.weibull(1.5, n_rows)
    limit = np.full(n_rows, 2.5)
    few = np.flatnonzero(category)
    limit[few], t[few] = 0.3, 9.0
    t[few[:events]] = 0.2
    t = np.maximum(np.round(np.minimum(t, limit), 1), 0.1)

    def build(x, category, t, limit, weights):
        scale = pm.math.exp(_line(x, category, spread=3.0))
        shape = pm.HalfNormal("shape", 2)
        if weights is None:
            times = pm.Weibull.dist(shape, scale)
            pm.Censored("y", times, lower=None, upper=limit, observed=t)
            return
        seen = pt.log(shape / scale) + (shape - 1) * pt.log(t / scale)
        terms = pt.where(t < limit, seen, 0.0) - (t / scale) ** shape
        pm.Potential("y", (weights * terms).sum())

    return pair(build, x, category, t, limit)


def bounded_logistic(n_rows: int = 20_000) -> Pair:
    """A coefficient that must be positive and is 0."""
    rng = np.random.default_rng(0)
    x, z = levels(rng, n_rows, 2)
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-0.5 * x))).astype(int)

    def build(x, z, y, weights):
        eta = pm.Normal("a", 0, 1) + pm.Normal("slope", 0, 1) * x + pm.HalfNormal("b", 1) * z
        observe(pm.Bernoulli, y, weights, logit_p=eta)

    return pair(build, x, z, y)


def bounded_linear(n_rows: int = 20_000) -> Pair:
    """Three such coefficients, and the data would rather have them negative."""
    rng = np.random.default_rng(0)
    X = np.round(levels(rng, n_rows, 3) / 2) * 2
    y = np.round(1 - np.array([0.004, 0.008, 0.0]) @ X + rng.normal(size=n_rows), 1)

    def build(x0, x1, x2, y, weights):
        b = pm.HalfNormal("b", 1, shape=3)
        mu = pm.Normal("a", 0, 1) + b[0] * x0 + b[1] * x1 + b[2] * x2
        observe(pm.Normal, y, weights, mu, pm.HalfNormal("sigma", 1))

    return pair(build, *X, y)


def no_inflation(n_rows: int = 20_000) -> Pair:
    """Counts without the zeros that the model has room for."""
    rng = np.random.default_rng(0)
    [x] = levels(rng, n_rows)
    y = rng.poisson(np.exp(0.7 + 0.2 * x))

    def build(x, y, weights):
        mu = pm.math.exp(pm.Normal("a", 0, 1) + pm.Normal("slope", 0, 1) * x)
        observe(pm.ZeroInflatedPoisson, y, weights, pm.Beta("psi", 2, 2), mu)

    return pair(build, x, y)


def no_overdispersion(n_rows: int = 20_000) -> Pair:
    """Counts with the variance of a Poisson distribution."""
    rng = np.random.default_rng(0)
    [x] = levels(rng, n_rows)
    y = rng.poisson(np.exp(1 + 0.2 * x))

    def build(x, y, weights):
        mu = pm.math.exp(pm.Normal("a", 0, 1) + pm.Normal("slope", 0, 1) * x)
        alpha = pm.Exponential("alpha", 0.01)
        observe(pm.NegativeBinomial, y, weights, mu=mu, alpha=alpha)

    return pair(build, x, y)


def no_groups(offset: bool = False, n_rows: int = 20_000) -> tuple[pm.Model, pm.Model]:
    """Twelve groups that do not differ; their means are sufficient, given sigma's statistic."""
    rng = np.random.default_rng(0)
    group, y = rng.integers(0, 12, n_rows), rng.normal(size=n_rows)
    count = np.bincount(group)
    means = np.bincount(group, y) / count
    within = ((y - means[group]) ** 2).sum()

    def effects():
        a, tau = pm.Normal("a", 0, 1), pm.HalfNormal("tau", 1)
        if offset:
            return a + tau * pm.Normal("z", 0, 1, shape=12)
        return pm.Normal("u", a, tau, shape=12)

    with pm.Model() as model:
        u = effects()
        pm.Normal("y", u[group], pm.HalfNormal("sigma", 1), observed=y)
    with pm.Model() as statistics:
        a, tau = pm.Normal("a", 0, 1), pm.HalfNormal("tau", 1)
        z = pm.Normal("z", 0, 1, shape=12)
        sigma = pm.HalfNormal("sigma", 1)
        u = a + tau * z
        if not offset:
            pm.Deterministic("u", u)
        pm.Normal("means", u, sigma / np.sqrt(count), observed=means)
        pm.Potential("within", -(n_rows - 12) * pm.math.log(sigma) - within / (2 * sigma**2))
    return model, statistics


def correlated(rho: float = 0.995, n_rows: int = 20_000) -> Pair:
    """Two outcomes that are almost one."""
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(np.array([[1, rho], [rho, 1]]))
    y = np.array([0.5, -0.5]) + rng.normal(size=(n_rows, 2)) @ root.T
    mean, within = y.mean(0), np.cov(y.T, bias=True) * n_rows

    def priors():
        chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1))
        return pm.Normal("mu", 0, 1, shape=2), chol

    with pm.Model() as model:
        mu, chol = priors()
        pm.MvNormal("y", mu, chol=chol, observed=y)
    with pm.Model() as statistics:
        mu, chol = priors()
        scatter = within + n_rows * pt.outer(mean - mu, mean - mu)
        white = pt.linalg.solve_triangular(chol, pt.linalg.cholesky(scatter), lower=True)
        size = n_rows * pt.log(pt.diagonal(chol)).sum()
        pm.Potential("y", -size - 0.5 * (white**2).sum())
    return model, statistics


def horseshoe(n_rows: int = 5_000, d: int = 10) -> Pair:
    """Eight coefficients of ten are 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, d))
    y = X[:, 0] - 0.5 * X[:, 1] + rng.normal(size=n_rows)

    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 0.1)
        lam = pm.HalfCauchy("lam", 1, shape=d)
        beta = pm.Normal("beta", 0, tau * lam, shape=d)
        pm.Normal("y", X @ beta, pm.HalfNormal("sigma", 1), observed=y)
    R = np.linalg.qr(np.column_stack([X, y]), mode="r")
    with pm.Model() as statistics:
        tau = pm.HalfCauchy("tau", 0.1)
        lam = pm.HalfCauchy("lam", 1, shape=d)
        beta = pm.Deterministic("beta", pm.Normal("z", 0, 1, shape=d) * tau * lam)
        sigma = pm.HalfNormal("sigma", 1)
        rest = R[:, d] - R[:, :d] @ beta
        pm.Potential("y", -n_rows * pt.log(sigma) - (rest**2).sum() / (2 * sigma**2))
    return model, statistics


def close_mixture(n_rows: int = 20_000) -> Pair:
    """Two components 2 sd apart."""
    rng = np.random.default_rng(0)
    y = np.round(rng.normal(np.where(rng.random(n_rows) < 0.4, 2.0, 0.0), 1.0), 1)

    def build(y, weights):
        mu = pm.Normal("mu", [0.0, 2.0], 1, shape=2, transform=pm.distributions.transforms.ordered,
                       initval=np.array([-0.5, 2.5]))  # fmt: skip
        share = pm.Beta("share", 2, 2)
        shares = pt.stack([1 - share, share])
        observe(pm.NormalMixture, y, weights, shares, mu, pm.HalfNormal("sigma", 1))

    return pair(build, y)


def few_rows(kind: str = "logistic", d: int = 20, times: int = 5) -> pm.Model:
    """Hardly more rows than parameters."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(times * d, d))
    eta = X @ rng.normal(size=d) / np.sqrt(d)
    with pm.Model() as model:
        line = pm.Normal("a", 0, 1) + X @ pm.Normal("beta", 0, 1, shape=d)
        if kind == "linear":
            y = eta + rng.normal(size=len(X))
            pm.Normal("y", line, pm.HalfNormal("sigma", 1), observed=y)
        else:
            y = (rng.random(len(X)) < 1 / (1 + np.exp(-2 * eta))).astype(int)
            pm.Bernoulli("y", logit_p=line, observed=y)
    return model


def scales(n_rows: int = 5_000) -> Pair:
    """Predictors from millionths to millions, with priors to match."""
    rng = np.random.default_rng(0)
    unit = 10.0 ** np.array([-6, -3, 0, 3, 6])
    X = rng.normal(size=(n_rows, 5)) * unit
    y = rng.random(n_rows) < 1 / (1 + np.exp(-X @ (np.array([0.5, -0.5, 0.3, 0.2, -0.1]) / unit)))
    built = []
    for scaled in (False, True):
        with pm.Model() as model:
            if scaled:
                beta = pm.Deterministic("beta", pm.Normal("z", 0, 2, shape=5) / unit)
            else:
                beta = pm.Normal("beta", 0, 2 / unit, shape=5)
            pm.Bernoulli("y", logit_p=pm.Normal("a", 0, 1) + X @ beta, observed=y.astype(int))
        built.append(model)
    return built[0], built[1]


def collinear(n_rows: int = 20_000) -> Pair:
    """Two predictors that differ by a thousandth."""
    rng = np.random.default_rng(0)
    x, z, w = np.round(levels(rng, n_rows, 3))
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-0.8 * x))).astype(int)

    def build(x, z, w, y, weights):
        b = pm.Normal("beta", 0, 1, shape=3)
        eta = pm.Normal("a", 0, 1) + b[0] * x + b[1] * (x + 1e-3 * z) + b[2] * w
        observe(pm.Bernoulli, y, weights, logit_p=eta)

    return pair(build, x, z, w, y)


def outliers(n_rows: int = 20_000) -> Pair:
    """A predictor with five values 50 sd away."""
    rng = np.random.default_rng(0)
    x, z = levels(rng, n_rows, 2)
    x[:5] = 50.0
    y = rng.poisson(np.exp(0.5 + 0.02 * x + 0.2 * z))

    def build(x, z, y, weights):
        eta = pm.Normal("a", 0, 1) + pm.Normal("slope", 0, 1) * x + pm.Normal("b", 0, 1) * z
        observe(pm.Poisson, y, weights, pm.math.exp(eta))

    return pair(build, x, z, y)


def heavy_tails(n_rows: int = 20_000) -> Pair:
    """Residuals without a variance."""
    rng = np.random.default_rng(0)
    [x] = levels(rng, n_rows)
    x = np.round(x)
    y = np.round(1 + 0.5 * x + rng.standard_t(1.5, n_rows), 1)

    def build(x, y, weights):
        mu = pm.Normal("a", 0, 2) + pm.Normal("slope", 0, 1) * x
        nu, sigma = pm.Gamma("nu", 2, 0.5), pm.HalfNormal("sigma", 2)
        observe(pm.StudentT, y, weights, nu=nu, mu=mu, sigma=sigma)

    return pair(build, x, y)


def truncated(n_rows: int = 20_000) -> Pair:
    """Only the upper tail is seen."""
    rng = np.random.default_rng(0)
    [x] = levels(rng, 4 * n_rows)
    y = np.round(0.3 * x + rng.normal(size=4 * n_rows), 2)
    x, y = x[y > 0.5][:n_rows], y[y > 0.5][:n_rows]

    def build(x, y, weights):
        mu = pm.Normal("a", 0, 1) + pm.Normal("slope", 0, 1) * x
        sigma = pm.HalfNormal("sigma", 1)
        if weights is None:
            pm.Truncated("y", pm.Normal.dist(mu, sigma), lower=0.5, upper=None, observed=y)
            return
        above = pt.log(0.5 * pt.erfc((0.5 - mu) / (sigma * np.sqrt(2))))
        terms = -pt.log(sigma) - 0.5 * ((y - mu) / sigma) ** 2 - above
        pm.Potential("y", (weights * terms).sum())

    return pair(build, x, y)


def sorted_rows(n_rows: int = 20_000) -> Pair:
    """Rows in single precision, most of them several times, in the order of the outcome."""
    rng = np.random.default_rng(0)
    X = np.round(levels(rng, n_rows, 3)).astype("float32")
    y = (rng.random(n_rows) < 1 / (1 + np.exp(2 - X[0]))).astype(int)
    order = np.argsort(y, kind="stable")

    def build(x0, x1, x2, y, weights):
        beta = pm.Normal("beta", 0, 1, shape=3)
        eta = pm.Normal("a", 0, 1) + beta[0] * x0 + beta[1] * x1 + beta[2] * x2
        observe(pm.Bernoulli, y, weights, logit_p=eta)

    return pair(build, *X[:, order], y[order])


SHAPES: dict[str, Callable[[], pm.Model | tuple[pm.Model, pm.Model]]] = {
    "logistic, rare, 0 events": lambda: rare_logistic(0),
    "logistic, rare, 1 event": lambda: rare_logistic(1),
    "logistic, rare, 5 events": lambda: rare_logistic(5),
    "logistic, rare, 1 event, Student prior": lambda: rare_logistic(1, student=True),
    "Poisson, rare, 0 events": lambda: rare_poisson(0),
    "Poisson, rare, 2 events": lambda: rare_poisson(2),
    "Weibull, rare, 0 events": lambda: rare_weibull(0),
    "Weibull, rare, 2 events": rare_weibull,
    "positive coefficient of 0, logistic": bounded_logistic,
    "positive coefficients of 0, linear": bounded_linear,
    "no zero inflation": no_inflation,
    "no overdispersion": no_overdispersion,
    "groups that do not differ, centred": no_groups,
    "groups that do not differ, offsets": lambda: no_groups(offset=True),
    "correlation of 0.995": correlated,
    "correlation of -0.999": lambda: correlated(-0.999),
    "horseshoe": horseshoe,
    "close components": close_mixture,
    "logistic, N = 5 d": few_rows,
    "logistic, N = 20 d": lambda: few_rows(times=20),
    "linear, N = 5 d": lambda: few_rows("linear"),
    "linear, N = 50 d": lambda: few_rows("linear", times=50),
    "scales of 1e-6 to 1e6": scales,
    "nearly collinear": collinear,
    "outliers of 50 sd": outliers,
    "Student, 1.5 degrees of freedom": heavy_tails,
    "truncated": truncated,
    "sorted, repeated, float32": sorted_rows,
}
