# SPDX-License-Identifier: Apache-2.0
"""Many kinds of model at N = 50,000, against NUTS."""

from __future__ import annotations

from tests.accuracy.compare import compare_draws, min_ess, nuts, sample
from tests.models import build

KINDS = (
    "linear", "logistic", "poisson", "negative_binomial", "student", "softmax", "ordered",
    "hierarchical", "censored", "mixture", "beta_regression", "two_likelihoods", "vector_outcome",
)  # fmt: skip
ROWS, BATCH = 50_000, 500


def compare(kind: str) -> dict:
    """One row of the table."""
    reference, nuts_seconds = nuts(f"{kind}_{ROWS}", build(kind, ROWS))
    step, idata, said = sample(build(kind, ROWS, BATCH))
    ours = {name: idata["posterior"][name].values for name in reference}
    errors = compare_draws(ours, reference)
    setup, sampling = step.plan.seconds, idata["posterior"].attrs["sampling_time"]
    rate, nuts_rate = errors["min ESS"] / (setup + sampling), min_ess(reference) / nuts_seconds
    passed = (
        errors["mean error"] <= 0.1
        and 0.95 <= errors["low"]
        and errors["high"] <= 1.05
        and errors["quantile error"] <= 0.15
        and errors["min ESS"] >= 400
    )
    return {
        "kind": kind.replace("_", " "),
        "d": step.problem.size,
        "mean error": round(errors["mean error"], 3),
        "sd ratio": f"{errors['low']:.3f} to {errors['high']:.3f}",
        "quantile error": round(errors["quantile error"], 3),
        "raw mean error, sd ratio": "{}, {} to {}".format(*errors["raw"]),
        "min ESS": round(errors["min ESS"]),
        "h": round(step.plan.step_size, 2),
        "set-up s": round(setup, 2),
        "sampling s": round(sampling, 2),
        "NUTS s": round(nuts_seconds, 1),
        "ESS/s": round(rate),
        "NUTS ESS/s": round(nuts_rate, 1),
        "speed-up": round(rate / nuts_rate, 1),
        "verdict": "agrees" if passed else ("warned" if said else "DISAGREES"),
        "warnings": len(said),
    }
