# SPDX-License-Identifier: Apache-2.0
"""Laplace, ADVI and Pathfinder on the hard shapes: how far off they are, and whether they say so.

They are given the different rows and how often each is there, not all rows: their answers are those
on all rows, and the seconds, compilation included, less. Needs pymc-extras, in an environment of
its own if it asks for another PyMC:

    python -m tests.accuracy rivals --write docs/accuracy.md
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable

import numpy as np
import pymc as pm

from tests.accuracy.compare import compare_draws
from tests.accuracy.hard import SHAPES, models, reference

DRAWS = 4000
KINDS = (
    "logistic, rare, 1 event", "Poisson, rare, 0 events", "positive coefficient of 0, logistic",
    "no zero inflation", "no overdispersion", "groups that do not differ, centred",
    "close components", "nearly collinear", "outliers of 50 sd",
    "Student, 1.5 degrees of freedom", "sorted, repeated, float32",
    "unseen: survival, strata of 0, 1, 3 deaths", "unseen: binomial, groups of few events",
)  # fmt: skip
assert set(KINDS) <= set(SHAPES)


def laplace(model: pm.Model):
    """pymc-extras, as it comes."""
    from pymc_extras import fit_laplace

    return fit_laplace(model=model, draws=DRAWS, random_seed=1, progressbar=False)


def advi(model: pm.Model):
    """Mean field, 30,000 steps."""
    fit = pm.fit(30_000, method="advi", model=model, random_seed=1, progressbar=False)
    return fit.sample(DRAWS, random_seed=1)


def pathfinder(model: pm.Model):
    """pymc-extras, multi-path, as it comes."""
    from pymc_extras import fit_pathfinder

    return fit_pathfinder(model=model, random_seed=1, progressbar=False, parallel=False)


METHODS: dict[str, Callable] = {"Laplace": laplace, "ADVI": advi, "Pathfinder": pathfinder}


def compare(name: str) -> dict:
    """One row of the table: every method's verdict."""
    _, counts = models(name)
    exact = reference(name, counts)
    row = {"kind": name}
    for method, fit in METHODS.items():
        row |= _verdict(method, fit, counts, exact)
    return row


def _verdict(method: str, fit: Callable, model: pm.Model, exact: dict) -> dict:
    heard = _Heard()
    logging.getLogger("pymc").addHandler(heard)
    logging.getLogger("pymc_extras").addHandler(heard)
    began = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            posterior = fit(model)["posterior"]
    except Exception as error:
        return {method: f"failed: {str(error)[:60]}"}
    finally:
        logging.getLogger("pymc").removeHandler(heard)
        logging.getLogger("pymc_extras").removeHandler(heard)
    seconds = time.perf_counter() - began
    told = heard.said or any(issubclass(w.category, UserWarning) for w in caught)
    shared = [k for k in exact if k in posterior]
    # independent draws, as four chains: the Monte Carlo error is theirs
    draws = {k: _as_chains(posterior[k].values) for k in shared}
    found = compare_draws(draws, {k: exact[k] for k in shared})
    right = (
        found["mean error"] <= 0.1 and 0.95 <= found["low"] and found["high"] <= 1.05
        and found["quantile error"] <= 0.15
    )  # fmt: skip
    verdict = "right" if right else f"**wrong**, {'told' if told else 'silent'}"
    return {
        method: verdict,
        f"{method}: mean": round(found["mean error"], 2),
        f"{method}: sd ratio": f"{found['low']:.2f} to {found['high']:.2f}",
        f"{method}: s": round(seconds),
    }


def _as_chains(values: np.ndarray) -> np.ndarray:
    flat = values.reshape(-1, *values.shape[2:])
    return flat[: len(flat) // 4 * 4].reshape(4, -1, *values.shape[2:])


class _Heard(logging.Handler):
    """Whether anything was logged as a warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said = False

    def emit(self, record: logging.LogRecord) -> None:
        self.said = True
