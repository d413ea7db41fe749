# SPDX-License-Identifier: Apache-2.0
"""Customer lifetime value, as pymc-marketing builds it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pymc as pm

from tests.clients.registry import CASES


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


def _bought_with_covariates(n: int) -> pm.Model:
    from pymc_extras.prior import Prior
    from pymc_marketing import clv

    data = _customers(n)
    data[["ads", "age"]] = np.random.default_rng(2).normal(size=(n, 2))
    columns = {"purchase_covariate_cols": ["ads"], "dropout_covariate_cols": ["ads", "age"]}
    slopes = ("purchase_coefficient", "dropout_coefficient")
    priors = {name: Prior("Normal", mu=0, sigma=1) for name in slopes}
    model = clv.BetaGeoModel(model_config={**columns, **priors})
    model.build_model(data)
    return model.model


def _opportunities(n: int) -> pm.Model:
    """Whether customers bought at each of ten opportunities."""
    from pymc_marketing import clv

    rng = np.random.default_rng(1)
    bought = rng.random((n, 10)) < rng.beta(2, 3, n)[:, None]
    alive = np.arange(10) < rng.geometric(rng.beta(1, 6, n))[:, None]
    seen = bought & alive
    recency = np.where(seen.any(1), 10 - seen[:, ::-1].argmax(1), 0)
    columns = {"frequency": seen.sum(1), "recency": recency, "T": np.full(n, 10)}
    model = clv.BetaGeoBetaBinomModel()
    model.build_model(pd.DataFrame({"customer_id": np.arange(n), **columns}))
    return model.model


def _contracts(n: int) -> pm.Model:
    """After how many periods contracts of three cohorts were not renewed."""
    from pymc_marketing import clv

    rng = np.random.default_rng(1)
    cohort = rng.integers(0, 3, n)
    left = 1 + rng.geometric(np.clip(rng.beta(1.0, 3.0, n), 0.01, 1))
    last = np.array([12, 10, 8])[cohort]
    columns = {"recency": np.minimum(left, last), "T": last, "cohort": cohort.astype(str)}
    model = clv.ShiftedBetaGeoModel()
    model.build_model(pd.DataFrame({"customer_id": np.arange(n), **columns}))
    return model.model


CASES["marketing_ModifiedBetaGeo"] = lambda n: _marketing("ModifiedBetaGeoModel", n)
CASES["marketing_BetaGeo_covariates"] = _bought_with_covariates
CASES["marketing_BetaGeoBetaBinom"] = _opportunities
CASES["marketing_ShiftedBetaGeo"] = _contracts
