# SPDX-License-Identifier: Apache-2.0
"""Models with named dimensions, `pymc.dims`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pymc as pm

from tests.clients.registry import case, frame


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


@case
def dims_counts_and_shapes(n):
    """Link functions, positive parameters, several families over the same rows."""
    import pymc.dims as pmd

    coords, d, of = _named(n)
    with pm.Model(coords=coords) as model:
        b, a = pmd.Normal("b", 0, 1, dims="predictor"), pmd.Gamma("a", 2, 1)
        eta = pmd.Normal("c", 0, 1) + (of(d[["x", "z"]], "row", "predictor") * b).sum("predictor")
        pmd.NegativeBinomial("y", mu=pmd.math.exp(eta), alpha=a, observed=of(d["count"]))
        pmd.Poisson("v", mu=pmd.math.exp(eta), observed=of(d["count"]))
    return model


@case
def dims_noncentred_groups(n):
    """Intercepts and slopes of groups by their scores."""
    import pymc.dims as pmd

    coords, d, of = _named(n)
    with pm.Model(coords=coords) as model:
        tau = pmd.HalfNormal("tau", 1, dims="predictor")
        z = pmd.Normal("score", 0, 1, dims=("group", "predictor"))
        effect = (tau * z).isel(group=of(d.group.astype(int)))
        mean = (effect * of(d[["x", "z"]], "row", "predictor")).sum("predictor")
        pmd.Normal("y", mean, pmd.HalfNormal("s", 1), observed=of(d.by_group))
    return model


@case
def dims_robust_with_data(n):
    """Data containers with coords, a Deterministic with dims, Student's t."""
    import pymc.dims as pmd

    coords, d, _ = _named(n)
    with pm.Model(coords=coords) as model:
        x, y = pmd.Data("x", d.x.values, dims="row"), pmd.Data("y_data", d.heavy.values, dims="row")
        mean = pmd.Normal("a", 0, 1) + pmd.Normal("b", 0, 1) * x
        mean = pmd.Deterministic("mean", mean)
        nu, s = pmd.Gamma("nu", 2, 0.1), pmd.HalfNormal("s", 1)
        pmd.StudentT("y", nu=nu, mu=mean, sigma=s, observed=y)
    return model
