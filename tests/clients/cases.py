# SPDX-License-Identifier: Apache-2.0
"""Models as other packages and their galleries build them, on simulated rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pymc as pm

CASES: dict[str, Callable[[int], pm.Model]] = {}
PARTS = ("bambi", "dims", "marketing", "gallery")


def case(function: Callable) -> Callable:
    CASES[function.__name__] = function
    return function


def frame(n: int, seed: int = 1) -> pd.DataFrame:
    """Predictors and outcomes of every kind that a formula may ask for."""
    rng = np.random.default_rng(seed)
    d = pd.DataFrame(rng.normal(size=(n, 2)), columns=["x", "z"])
    eta = 0.3 + 0.5 * d.x - 0.3 * d.z
    d["group"] = rng.integers(0, 50, n).astype(str)
    d["y"] = eta + rng.normal(size=n)
    d["by_group"] = d.y + rng.normal(size=50)[d.group.astype(int)]
    d["yes"] = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
    d["trials"] = rng.integers(1, 20, n)
    d["successes"] = rng.binomial(d.trials, 1 / (1 + np.exp(-eta)))
    d["exposure"] = rng.uniform(0.5, 2, n)
    d["log_exposure"] = np.log(d.exposure)
    d["count"] = rng.poisson(d.exposure * np.exp(eta))
    d["zeros"] = np.where(rng.random(n) < 0.3, 0, d["count"])
    d["share"] = np.clip(rng.beta(3, 4, n), 1e-4, 1 - 1e-4)
    d["positive"] = rng.gamma(2.0, np.exp(eta) / 2)
    d["heavy"] = eta + 0.5 * rng.standard_t(4, n)
    d["weight"] = rng.integers(1, 5, n)
    d["cut"], d["status"] = np.minimum(d.y, 1.0), np.where(d.y > 1, "right", "none")
    d["above"] = np.abs(d.y) + 0.05
    d["level"] = pd.Categorical(
        np.searchsorted([-0.5, 1.0], d.y + rng.logistic(size=n)).astype(str), ordered=True
    )
    d["choice"] = pd.Categorical(rng.choice(list("abc"), n))
    d[["y1", "y2", "y3"]] = np.stack(
        [rng.multinomial(k, [0.2, 0.3, 0.5]) for k in rng.integers(5, 15, n)]
    )
    return d


FORMULAS: dict[str, tuple] = {
    "gaussian": ("y ~ x + z", "gaussian"),
    "bernoulli": ("yes ~ x + z", "bernoulli"),
    "binomial": ("p(successes, trials) ~ x + z", "binomial"),
    "poisson_offset": ("count ~ x + z + offset(log_exposure)", "poisson"),
    "negative_binomial": ("count ~ x + z", "negativebinomial"),
    "student": ("heavy ~ x + z", "t"),
    "beta": ("share ~ x + z", "beta"),
    "gamma": ("positive ~ x + z", "gamma", {"link": "log"}),
    "categorical": ("choice ~ x + z", "categorical"),
    "cumulative": ("level ~ 0 + x + z", "cumulative"),
    "multinomial": ("c(y1, y2, y3) ~ x", "multinomial"),
    "dirichlet_multinomial": ("c(y1, y2, y3) ~ x", "dirichlet_multinomial"),
    "zero_inflated": ("zeros ~ x + z", "zero_inflated_poisson"),
    "censored": ("censored(cut, status) ~ x + z", "gaussian"),
    "weighted": ("weighted(y, weight) ~ x + z", "gaussian"),
    "weighted_poisson": ("weighted(count, weight) ~ x + z", "poisson"),
    "truncated": ("truncated(above, lb=0) ~ x", "gaussian", {"proper": True}),
    "constrained": ("constrained(above, lb=0) ~ x", "gaussian", {"proper": True}),
    "splines": ("y ~ bs(x, df=6) + poly(z, 2)", "gaussian"),
    "distributional": ("y ~ x", "gaussian", {"sigma": "sigma ~ z"}),
    "group_centred": ("by_group ~ x + (1|group)", "gaussian", {"noncentered": False}),
    "group": ("by_group ~ x + (1|group)", "gaussian"),
}


def formula(name: str, n: int) -> pm.Model:
    """The model that Bambi builds of a formula."""
    import bambi as bmb

    text, family, *rest = FORMULAS[name]
    options = dict(rest[0]) if rest else {}
    if options.pop("proper", False):  # Bambi's own are not finite where an end is open
        options["priors"] = {
            "Intercept": bmb.Prior("Normal", mu=0, sigma=2),
            "x": bmb.Prior("Normal", mu=0, sigma=2),
            "sigma": bmb.Prior("HalfNormal", sigma=2),
        }
    sigma = options.pop("sigma", None)
    written = bmb.Formula(text, sigma) if sigma else text
    model = bmb.Model(written, frame(n), family=family, **options)
    model.build()
    return model.backend.model


def _named(n: int) -> tuple[dict, pd.DataFrame, Callable]:
    import pymc.dims as pmd

    d = frame(n)
    coords = {"row": range(n), "group": range(50), "predictor": ["x", "z"], "class": list("abc")}
    return coords, d, lambda v, *dims: pmd.as_xtensor(np.asarray(v), dims=dims or ("row",))


@case
def dims_regression(n):
    import pymc.dims as pmd

    coords, d, of = _named(n)
    with pm.Model(coords=coords) as model:
        slope, s = pmd.Normal("slope", 0, 1, dims="predictor"), pmd.HalfNormal("s", 1)
        design = pmd.Data("design", d[["x", "z"]].T.values, dims=("predictor", "row"))
        mean = pmd.Normal("a", 0, 1) + design.dot(slope, dim="predictor")
        pmd.Normal("y", mean, s, observed=of(d.y))
    return model


@case
def dims_softmax(n):
    import pymc.dims as pmd

    coords, d, of = _named(n)
    with pm.Model(coords=coords) as model:
        slope = pmd.Normal("slope", 0, 1, dims=("predictor", "class"))
        scores = of(d[["x", "z"]], "row", "predictor").dot(slope, dim="predictor")
        pmd.Categorical("y", logit_p=scores, core_dims="class", observed=of(d.choice.cat.codes))
    return model


@case
def dims_groups(n):
    import pymc.dims as pmd

    coords, d, of = _named(n)
    with pm.Model(coords=coords) as model:
        a, tau = pmd.Normal("a", 0, 1), pmd.HalfNormal("tau", 1)
        u, b, s = pmd.Normal("u", a, tau, dims="group"), pmd.Normal("b", 0, 1), pmd.HalfNormal("s")
        effect = u.isel(group=of(d.group.astype(int)))
        pmd.Normal("y", effect + b * of(d.x), s, observed=of(d.by_group))
    return model


def _customers(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    T, rate, drop = rng.uniform(20, 40, n), rng.gamma(1.0, 0.2, n), rng.gamma(1.0, 0.05, n)
    alive = np.minimum(T, rng.exponential(1 / np.maximum(drop, 1e-9)))
    bought = rng.poisson(rate * alive)
    recency = np.where(bought > 0, alive * rng.beta(np.maximum(bought, 1), 1), 0.0)
    spend = rng.gamma(6.0, 1 / rng.gamma(4.0, 1 / 15, n))
    columns = {"frequency": bought, "recency": recency, "T": T, "monetary_value": spend}
    return pd.DataFrame({"customer_id": np.arange(n), **columns})


def _marketing(name: str, n: int) -> pm.Model:
    from pymc_marketing import clv

    model, data = getattr(clv, name)(), _customers(n)
    if name == "GammaGammaModel":
        data["frequency"] = data.frequency.clip(lower=1)
    model.build_model(data)
    return model.model


for _name in ("BetaGeoModel", "GammaGammaModel", "ParetoNBDModel"):
    CASES[f"marketing_{_name.removesuffix('Model')}"] = lambda n, name=_name: _marketing(name, n)


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


for _name in FORMULAS:
    CASES[f"bambi_{_name}"] = lambda n, name=_name: formula(name, n)
