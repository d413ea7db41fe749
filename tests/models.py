# SPDX-License-Identifier: Apache-2.0
"""A zoo of models with data simulated from them, each declared with pm.Minibatch or plainly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pymc as pm

ORDERED = pm.distributions.transforms.ordered
KINDS: dict[str, Callable] = {}


def build(kind: str, n_rows: int, batch_size: int | None = None, seed: int = 1) -> pm.Model:
    """The model `kind` on `n_rows` simulated rows; plain full-data if `batch_size` is None."""
    rng = np.random.default_rng(seed)
    with pm.Model() as model:
        KINDS[kind](Declare(n_rows, batch_size, rng), rng)
    return model


def regression(X, y, batch_size: int | None = None, prior=1.0, sigma=1.0) -> pm.Model:
    """y ~ N(Xβ, σ²) with β ~ N(0, prior²), whose posterior is Gaussian."""
    with pm.Model() as model:
        x, observed, size = X, y, {}
        if batch_size is not None:
            (x, observed), size = pm.Minibatch(X, y, batch_size=batch_size), {"total_size": len(y)}
        beta = pm.Normal("beta", 0, prior, shape=X.shape[1])
        pm.Normal("y", x @ beta, sigma, observed=observed, **size)
    return model


class Declare:
    """Wraps data in pm.Minibatch, or leaves them alone."""

    def __init__(self, n_rows: int, batch_size: int | None, rng: np.random.Generator):
        self.n_rows, self.batch_size = n_rows, batch_size
        self.X = rng.normal(size=(n_rows, 3))
        self.beta = np.array([0.5, -0.3, 0.2])
        self.eta = self.X @ self.beta

    def __call__(self, *arrays):
        if self.batch_size is None:
            return arrays
        batches = pm.Minibatch(*arrays, batch_size=self.batch_size)
        return batches if len(arrays) > 1 else [batches]

    def size(self, n_rows: int | None = None) -> dict:
        return {} if self.batch_size is None else {"total_size": n_rows or self.n_rows}


def kind(function: Callable) -> Callable:
    KINDS[function.__name__] = function
    return function


def logistic_of(eta):
    return 1 / (1 + np.exp(-eta))


@kind
def linear(data, rng):
    x, y = data(data.X, data.eta + rng.normal(size=data.n_rows))
    beta, sigma = pm.Normal("beta", 0, 1, shape=3), pm.HalfNormal("sigma", 1)
    pm.Normal("y", x @ beta, sigma, observed=y, **data.size())


@kind
def logistic(data, rng):
    x, y = data(data.X, (rng.random(data.n_rows) < logistic_of(data.eta)).astype("int32"))
    beta = pm.Laplace("beta", 0, 1, shape=3)
    pm.Bernoulli("y", logit_p=x @ beta, observed=y, **data.size())


@kind
def poisson(data, rng):
    exposure = rng.uniform(0.5, 2.0, data.n_rows)
    counts = rng.poisson(exposure * np.exp(data.eta)).astype("int32")
    x, e, y = data(data.X, exposure, counts)
    beta = pm.Normal("beta", 0, 1, shape=3)
    pm.Poisson("y", e * pm.math.exp(x @ beta), observed=y, **data.size())


@kind
def negative_binomial(data, rng):
    counts = rng.poisson(np.exp(data.eta) * rng.gamma(2.0, 0.5, data.n_rows)).astype("int32")
    x, y = data(data.X, counts)
    beta, alpha = pm.Normal("beta", 0, 1, shape=3), pm.Gamma("alpha", 2, 1)
    pm.NegativeBinomial("y", mu=pm.math.exp(x @ beta), alpha=alpha, observed=y, **data.size())


@kind
def student(data, rng):
    x, y = data(data.X, data.eta + 0.7 * rng.standard_t(4.0, data.n_rows))
    beta, sigma = pm.Normal("beta", 0, 1, shape=3), pm.HalfNormal("sigma", 1)
    nu = pm.Gamma("nu", 2, 0.1)
    pm.StudentT("y", nu=nu, mu=x @ beta, sigma=sigma, observed=y, **data.size())


@kind
def softmax(data, rng):
    B = np.array([[0.5, -0.5], [0.2, 0.3], [-0.4, 0.1]])
    eta = np.column_stack([data.X @ B, np.zeros(data.n_rows)])
    choice = (eta + rng.gumbel(size=eta.shape)).argmax(1).astype("int32")
    x, y = data(data.X, choice)
    free = pm.Normal("B", 0, 1, shape=(3, 2))
    logits = pm.math.concatenate([x @ free, (x @ free)[:, :1] * 0.0], axis=1)
    pm.Categorical("y", logit_p=logits, observed=y, **data.size())


@kind
def ordered(data, rng):
    latent = data.eta + rng.logistic(size=data.n_rows)
    x, y = data(data.X, np.searchsorted([-1.0, 0.5], latent).astype("int32"))
    beta = pm.Normal("beta", 0, 1, shape=3)
    cut = pm.Normal("cut", 0, 2, shape=2, transform=ORDERED, initval=[-1.0, 1.0])
    pm.OrderedLogistic("y", eta=x @ beta, cutpoints=cut, compute_p=False, observed=y, **data.size())


@kind
def hierarchical(data, rng):
    n_groups = 40
    group = rng.integers(0, n_groups, data.n_rows).astype("int32")
    effect = rng.normal(0.3, 0.8, n_groups)
    y = (rng.random(data.n_rows) < logistic_of(effect[group] + data.eta)).astype("int32")
    x, g, y = data(data.X, group, y)
    mu, s = pm.Normal("mu", 0, 1), pm.HalfNormal("s", 1)
    a, beta = pm.Normal("a", mu, s, shape=n_groups), pm.Normal("beta", 0, 1, shape=3)
    pm.Bernoulli("y", logit_p=a[g] + x @ beta, observed=y, **data.size())


@kind
def censored(data, rng):
    time = np.exp(data.eta) * rng.weibull(1.5, data.n_rows)
    x, y = data(data.X, np.minimum(time, 1.5))
    beta, alpha = pm.Normal("beta", 0, 1, shape=3), pm.HalfNormal("alpha", 2)
    latent = pm.Weibull.dist(alpha=alpha, beta=pm.math.exp(x @ beta))
    pm.Censored("y", latent, lower=None, upper=1.5, observed=y, **data.size())


@kind
def mixture(data, rng):
    first = rng.random(data.n_rows) < 0.3
    (y,) = data(np.where(first, -1.0, 1.5) + rng.normal(size=data.n_rows))
    w = pm.Dirichlet("w", np.ones(2))
    mu = pm.Normal("mu", 0, 2, shape=2, transform=ORDERED, initval=[-1.0, 1.0])
    pm.NormalMixture("y", w=w, mu=mu, sigma=1.0, observed=y, **data.size())


@kind
def beta_regression(data, rng):
    mean, kappa = logistic_of(data.eta), 10.0
    share = np.clip(rng.beta(mean * kappa, (1 - mean) * kappa), 1e-6, 1 - 1e-6)
    x, y = data(data.X, share)
    beta, k = pm.Normal("beta", 0, 1, shape=3), pm.Gamma("kappa", 2, 0.1)
    m = pm.math.invlogit(x @ beta)
    pm.Beta("y", alpha=m * k, beta=(1 - m) * k, observed=y, **data.size())


@kind
def two_likelihoods(data, rng):
    n_other = data.n_rows // 2
    x, y = data(data.X, data.eta + rng.normal(size=data.n_rows))
    (z,) = data(0.5 + rng.normal(size=n_other))
    beta, sigma = pm.Normal("beta", 0, 1, shape=3), pm.HalfNormal("sigma", 1)
    pm.Normal("y", x @ beta, sigma, observed=y, **data.size())
    pm.Normal("z", beta[0], sigma, observed=z, **data.size(n_other))
    pm.Normal("exact", beta[1], 1.0, observed=np.array([-0.2, -0.4]))


@kind
def vector_outcome(data, rng):
    chol = np.array([[1.0, 0.0], [0.4, 0.8]])
    (y,) = data(np.array([0.3, -0.2]) + rng.normal(size=(data.n_rows, 2)) @ chol.T)
    mu = pm.Normal("mu", 0, 1, shape=2)
    L, _, _ = pm.LKJCholeskyCov("L", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1.0, shape=2))
    pm.MvNormal("y", mu, chol=L, observed=y, **data.size())


@kind
def multinomial(data, rng):
    (y,) = data(rng.multinomial(10, [0.2, 0.3, 0.5], size=data.n_rows).astype("int32"))
    p = pm.Dirichlet("p", np.ones(3))
    pm.Multinomial("y", n=10, p=p, observed=y, **data.size())


@kind
def trailing_axis(data, rng):
    x, y = data(data.X, np.column_stack([data.eta, -data.eta]) + rng.normal(size=(data.n_rows, 2)))
    B, s = pm.Normal("B", 0, 1, shape=(3, 2)), pm.HalfNormal("s", 1, shape=2)
    pm.Normal("y", x @ B, s, observed=y, **data.size())


@kind
def zero_inflated(data, rng):
    counts = rng.poisson(np.exp(data.eta)) * (rng.random(data.n_rows) < 0.7)
    x, y = data(data.X, counts.astype("int32"))
    beta, psi = pm.Normal("beta", 0, 1, shape=3), pm.Beta("psi", 1, 1)
    pm.ZeroInflatedPoisson("y", psi=psi, mu=pm.math.exp(x @ beta), observed=y, **data.size())
