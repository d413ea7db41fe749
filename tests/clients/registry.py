# SPDX-License-Identifier: Apache-2.0
"""What the cases share: their table, and predictors and outcomes of every kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pymc as pm

CASES: dict[str, Callable[[int], pm.Model]] = {}
"""Models of about n rows, by name."""


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
    d["said"] = np.where(d.yes == 1, "yes", "no")
    d["angle"] = rng.vonmises(0.3 + 0.2 * d.x, 2.0)
    d["spent"] = np.where(d.zeros == 0, 0.0, d.positive)
    d["grade"] = pd.Categorical(rng.integers(0, 5, n).astype(str), ordered=True)
    d["site"] = rng.integers(0, 5, n).astype(str)
    d["ward"] = rng.integers(0, 30, n).astype(str)
    d["shop"] = rng.integers(0, min(2000, max(n // 10, 2)), n).astype(str)
    d["choice"] = pd.Categorical(rng.choice(list("abc"), n))
    d[["y1", "y2", "y3"]] = np.stack(
        [rng.multinomial(k, [0.2, 0.3, 0.5]) for k in rng.integers(5, 15, n)]
    )
    return d
