# SPDX-License-Identifier: Apache-2.0
"""Large regressions, CoverType, cost against N, coverage, and models that must fail loudly."""

from __future__ import annotations

import time

import numpy as np
import pymc as pm

import pymc_sgcv as sg
from tests.accuracy.compare import compare_draws, min_ess, nuts, sample


def regression(X: np.ndarray, y: np.ndarray, batch_size: int | None = 500) -> pm.Model:
    """Logistic regression with a Laplace prior; on the full data if `batch_size` is None."""
    with pm.Model() as model:
        data = (X, y) if batch_size is None else pm.Minibatch(X, y, batch_size=batch_size)
        beta = pm.Laplace("beta", 0, 1, shape=X.shape[1])
        size = {} if batch_size is None else {"total_size": len(y)}
        pm.Bernoulli("y", logit_p=data[0] @ beta, observed=data[1], **size)
    return model


def simulated(n_rows: int, d: int, seed: int = 20190101) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal predictors with an intercept, and outcomes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, d))
    X[:, 0] = 1.0
    truth = rng.standard_normal(d) * 2 / np.sqrt(d)
    return X, (rng.random(n_rows) < 1 / (1 + np.exp(-X @ truth))).astype("int32")


def speeds(step, idata) -> dict:
    """Set-up, sampling and effective draws."""
    sampling = idata["posterior"].attrs["sampling_time"]
    effective = min_ess({"beta": idata["posterior"]["beta"].values})
    return {
        "set-up s": round(step.plan.seconds, 1),
        "sampling s": round(sampling, 2),
        "min ESS": round(effective),
        "ESS/s after set-up": round(effective / sampling),
        "h": round(step.plan.step_size, 3),
        "weighted rows": "yes" if step.plan.layout.weighted else "no",
    }


def large(_=None) -> dict:
    """N = 464,809, d = 55: standard deviations against those of the Laplace approximation."""
    X, y = simulated(464_809, 55)
    step, idata, said = sample(regression(X, y))
    draws = idata["posterior"]["beta"].values.reshape(-1, 55)
    weight = 1 / (2 + 2 * np.cosh(X @ draws.mean(0)))
    sd = np.sqrt(np.diag(np.linalg.inv((X * weight[:, None]).T @ X)))
    ratio = draws.std(0) / sd
    return {
        "data": "simulated, N = 464,809",
        **speeds(step, idata),
        "sd ratio": f"{ratio.min():.3f} to {ratio.max():.3f}, mean {ratio.mean():.3f}",
        "warnings": len(said),
    }


def covtype(part: str) -> dict:
    """CoverType: all rows, or 1 % of them beside NUTS on the same rows."""
    data = sg.datasets.covtype()
    X, y = np.vstack([data.X_train, data.X_test]), np.hstack([data.y_train, data.y_test])
    if part == "1 %":
        X, y = X[: len(y) // 100], y[: len(y) // 100]
    step, idata, said = sample(regression(X, y))
    row = {
        "data": f"CoverType ({data.source}), {part} of the rows",
        **speeds(step, idata),
        "sd ratio": "",
        "warnings": len(said),
    }
    if part == "1 %":
        reference, seconds = nuts("covtype_1", regression(X, y, None), draws=1500)
        errors = compare_draws({"beta": idata["posterior"]["beta"].values}, reference)
        low, high = errors["raw"][1:]
        row["sd ratio"] = f"{low:.3f} to {high:.3f}"
        row["mean error"] = errors["raw"][0]
        row["NUTS ESS/s"] = round(min_ess(reference) / seconds, 1)
    return row


def scaling(n_rows: str) -> dict:
    """The same regression with more and more rows."""
    X, y = simulated(int(n_rows), 10, seed=3)
    step, idata, said = sample(regression(X, y))
    row = speeds(step, idata)
    return {
        "N": f"{int(n_rows):,}",
        "ms per effective draw": round(1000 * row["sampling s"] / row["min ESS"], 3),
        **row,
        "warnings": len(said),
    }


def coverage(_=None, datasets: int = 100) -> dict:
    """How often 90 % intervals hold the truth, over data sets drawn from the prior's bulk."""
    rng = np.random.default_rng(5)
    inside, warned, began = [], 0, time.perf_counter()
    n_rows = 5000
    X = rng.normal(size=(n_rows, 2))
    with pm.Model() as model:
        x, y = pm.Data("x", X), pm.Data("y_data", np.zeros(n_rows))
        beta, sigma = pm.Normal("beta", 0, 1, shape=2), pm.HalfNormal("sigma", 1)
        pm.Normal("y", x @ beta, sigma, observed=y)
        step = None
        for _i in range(datasets):
            truth = np.array([*rng.normal(size=2), abs(rng.normal())])
            pm.set_data({"y_data": X @ truth[:2] + truth[2] * rng.normal(size=n_rows)})
            step = step or sg.SGLDCV(batch_size=200, progressbar=False)
            idata = sg.sample(500, step=step, chains=2, random_seed=_i, progressbar=False,
                              compute_convergence_checks=False)  # fmt: skip
            warned += int((~sg.diagnose(idata)["ok"]).any())
            post = idata["posterior"]
            draws = np.column_stack(
                [post["beta"].values.reshape(-1, 2), post["sigma"].values.ravel()]
            )
            low, high = np.quantile(draws, [0.05, 0.95], axis=0)
            inside.append((low < truth) & (truth < high))
    del model
    return {
        "data sets": datasets,
        "coverage of 90 % intervals": f"{100 * np.mean(inside):.1f} %",
        "by parameter": ", ".join(f"{100 * v:.0f} %" for v in np.mean(inside, axis=0)),
        "runs with a failed check": warned,
        "seconds": round(time.perf_counter() - began),
    }


def funnel(batch_size: int | None = 20) -> pm.Model:
    """A centred hierarchy with two observations in each of 30 groups."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(30), 2).astype("int32")
    y = 0.05 * rng.normal(size=30)[group] + rng.normal(size=60)
    with pm.Model() as model:
        (g, y), size = batches(batch_size, group, y)
        scale = pm.HalfNormal("scale", 1)
        effect = pm.Normal("effect", 0, scale, shape=30)
        pm.Normal("y", effect[g], 1.0, observed=y, **size)
    return model


def two_modes(batch_size: int | None = 50) -> pm.Model:
    """Only the square of the parameter is identified."""
    y = 1.0 + np.random.default_rng(2).normal(size=200)
    with pm.Model() as model:
        (y,), size = batches(batch_size, y)
        a = pm.Normal("a", 0, 2)
        pm.Normal("y", a**2, 3.0, observed=y, **size)
    return model


def one_row(batch_size: int | None = 1) -> pm.Model:
    """Minibatches of a single row, some of them with far larger predictors than others."""
    X, y = simulated(20_000, 5, seed=4)
    X = X * np.random.default_rng(0).lognormal(0, 1.5, size=(len(X), 1))
    return regression(X, y, batch_size)


def batches(n: int | None, *arrays):
    """The arrays, or minibatches of them, and what the likelihood must be told."""
    if n is None:
        return arrays, {}
    found = pm.Minibatch(*arrays, batch_size=n)
    return found if len(arrays) > 1 else (found,), {"total_size": len(arrays[0])}


FAILURES = {"funnel, 2 rows a group": funnel, "two modes": two_modes, "minibatches of 1": one_row}


def failure(name: str) -> dict:
    """What a difficult model gives: a warning, an error, or after all the right posterior."""
    try:
        _, idata, said = sample(FAILURES[name]())
    except (FloatingPointError, ValueError) as error:
        said = [f"error: {error}"]
    if said:
        return {"model": name, "outcome": "loud", "what it says": " / ".join(said)}
    reference, _ = nuts(FAILURES[name].__name__, FAILURES[name](None))
    ours = {k: idata["posterior"][k].values for k in reference}
    shift, low, high = compare_draws(ours, reference)["raw"]
    right = shift < 0.15 and 0.9 < low and high < 1.1
    says = f"means within {shift:.3f} sd of NUTS, sds {low:.3f} to {high:.3f} of its"
    return {"model": name, "outcome": "right" if right else "SILENTLY WRONG", "what it says": says}
