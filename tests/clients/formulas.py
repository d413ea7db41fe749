# SPDX-License-Identifier: Apache-2.0
"""Formulas, as Bambi builds them."""

from __future__ import annotations

import pymc as pm

from tests.clients.registry import CASES, frame

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
    "interaction": ("y ~ x * z + C(choice) + scale(x)", "gaussian"),
    "string_levels": ("said[yes] ~ x + z", "bernoulli"),
    "cloglog": ("yes ~ x + z", "bernoulli", {"link": "cloglog"}),
    "probit": ("yes ~ x + z", "bernoulli", {"link": "probit"}),
    "beta_binomial": ("p(successes, trials) ~ x + z", "beta_binomial"),
    "quantile": ("y ~ x + z", "asymmetriclaplace", {"fixed": {"kappa": 0.5}}),
    "laplace": ("y ~ x + z", "laplace"),
    "lognormal": ("positive ~ x + z", "lognormal"),
    "exponential": ("positive ~ x + z", "exponential", {"link": "log"}),
    "weibull": ("positive ~ x + z", "weibull", {"link": "log"}),
    "exgaussian": ("above ~ x + z", "exgaussian"),
    "von_mises": ("angle ~ x + z", "vonmises"),
    "wald": ("positive ~ x + z", "wald", {"link": "log"}),
    "hurdle_poisson": ("zeros ~ x + z", "hurdle_poisson"),
    "hurdle_negative_binomial": ("zeros ~ x + z", "hurdle_negativebinomial"),
    "hurdle_gamma": ("spent ~ x + z", "hurdle_gamma", {"link": "log"}),
    "hurdle_lognormal": ("spent ~ x + z", "hurdle_lognormal"),
    "zero_inflated_binomial": ("p(successes, trials) ~ x + z", "zero_inflated_binomial"),
    "zero_inflated_negative_binomial": ("zeros ~ x + z", "zero_inflated_negativebinomial"),
    "sequential": ("level ~ 0 + x + z", "sratio"),
    "cumulative_probit": ("level ~ 0 + x + z", "cumulative", {"link": "probit"}),
    "gaussian_process": ("y ~ hsgp(x, m=10, c=2)", "gaussian"),
    "gaussian_process_by": ("y ~ hsgp(x, by=choice, m=10, c=2)", "gaussian"),
    "group_distributional": ("by_group ~ x", "gaussian", {"sigma": "sigma ~ (1|group)"}),
}

GROUPS = {
    "group": ("by_group ~ x + (1|group)", "gaussian"),
    "slope": ("by_group ~ x + (x|group)", "gaussian"),
    "slope_yes": ("yes ~ x + (x|group)", "bernoulli"),
    "crossed": ("by_group ~ x + (1|group) + (1|site)", "gaussian"),
    "nested": ("by_group ~ x + (1|site/ward)", "gaussian"),
    "many_groups": ("by_group ~ x + (1|shop)", "gaussian"),
}
for _name, _formula in GROUPS.items():  # as Bambi writes them by default, and centred
    FORMULAS[_name] = _formula
    FORMULAS[f"{_name}_centred"] = (*_formula, {"noncentered": False})


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
    if fixed := options.pop("fixed", None):
        options["priors"] = fixed
    sigma = options.pop("sigma", None)
    written = bmb.Formula(text, sigma) if sigma else text
    model = bmb.Model(written, frame(n), family=family, **options)
    model.build()
    return model.backend.model


for _name in FORMULAS:
    CASES[f"bambi_{_name}"] = lambda n, name=_name: formula(name, n)
