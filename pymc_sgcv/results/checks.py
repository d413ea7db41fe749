# SPDX-License-Identifier: Apache-2.0
"""What each check of `diagnose` says when it fails: what is wrong, and what to change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_LESS_NOISE = "Take a larger batch_size or a smaller step_size"
_TOO_WIDE = f'{_LESS_NOISE}, and the default integrator "lm".'
_TOO_NARROW = "Increase draws and tune, and take a smaller step_size if it stays."
_SDS = (
    " in these draws {is_are} {about} % too {large_small}, as their gradients show; "
    "chance and the intended accuracy explain no more than {limit_percent:.0f} %."
)
_EFFECTIVE = (
    "The draws of {where} are worth {value:.0f} independent ones, fewer than {limit:.0f}",
    "Take about {more:.0f} times as many draws, or increase thin.",
)

_HALF = (
    " at half the step and twice the batch, where chance and the intended accuracy explain no more "
    "than {limit_percent:.0f} %: the step is too long, or chains go where they should not."
)
_HALVE = (
    "Sample again with half the step_size and twice the batch_size, and compare: what changes then "
    "is about a quarter of this if it is an error of the step alone."
)

# By check: what is wrong, and what to change.
_TEXTS = {
    "finite": (
        "{value:.0f} values are NaN or infinite, of {where}.",
        "The chain diverged there: sample again with a smaller step_size.",
    ),
    "r_hat": (
        "R-hat of {where} is {value:.3f}, above {limit:.3f}: the chains do not agree.",
        "Increase draws and tune. If it stays, the posterior has several modes or directions that "
        "the data hardly determine: narrow the priors or write the model differently.",
    ),
    "ess_bulk": (f"{_EFFECTIVE[0]} (bulk ESS).", _EFFECTIVE[1]),
    "ess_tail": (f"{_EFFECTIVE[0]} in the tails (tail ESS).", _EFFECTIVE[1]),
    "mean_shift": (
        "The mean of {where} is {about} % of a standard deviation too {high_low}, as "
        "the gradients show (limit {limit_percent:.0f} %): the chains have not come to rest.",
        "Increase tune and draws.",
    ),
    "sd_error": ("The standard deviation of {where}" + _SDS, "{sd_fix}"),
    "bulk_sd_error": ("The standard deviation of the bulk of {where}" + _SDS, "{sd_fix}"),
    "tail_sd_error": (
        "A tail of {where} reaches {about} % too {far_short}, as its gradients show; "
        "chance and the intended accuracy explain no more than {limit_percent:.0f} %.",
        "{sd_fix}",
    ),
    "sd_error_average": ("Standard deviations" + _SDS, "{sd_fix}"),
    "half_step_mean": (
        "The mean of {where} moves by {percent:.0f} % of a standard deviation" + _HALF,
        _HALVE,
    ),
    "half_step_sd": (
        "The standard deviation of {where} changes by {signed:+.0f} %" + _HALF,
        _HALVE,
    ),
    "half_step_sd_average": (
        "Standard deviations change by {signed:+.0f} % on average" + _HALF,
        _HALVE,
    ),
    "half_step_quantile": (
        "The 5 or 95 % quantile of {where} moves by {percent:.0f} % of a standard deviation"
        + _HALF,
        _HALVE,
    ),
    "half_step_diverged": (
        "At half the step and twice the batch {where} is not finite: the chains of this run were "
        "lucky.",
        "Sample again with a smaller step_size; narrow the priors if it stays.",
    ),
    "excursion": (
        "A chain was carried away: the log density at {where} (unconstrained) is {value:.0f} lower "
        "than nearer the center, and draws of the posterior go no further than {limit:.0f}. "
        "Standard deviations and tails are too wide.",
        f"{_LESS_NOISE}: gradient noise, or the step, is too large in that tail.",
    ),
    "gradient_noise_share": (
        "In the worst direction the variance of the gradient noise is {value:.2f} of the injected "
        "noise's, above {limit:.2f}.",
        f"{_LESS_NOISE}, or SGLDCV in place of SGLD.",
    ),
    "predicted_sd_error": (
        "Gradient noise is expected to make standard deviations {percent:.1f} % wrong, more than "
        "target_bias={limit:.2g}.",
        f"{_LESS_NOISE}.",
    ),
    "center_distance": (
        "The center is {value:.1f} standard deviations from the mode, more than {limit:.1f}.",
        "Give find_center more passes or a better start, and check that the data determine every "
        "parameter.",
    ),
    "chain_distance": (
        "The draws' mean of {where} is {value:.1f} standard deviations from the center, more than "
        "{limit:.1f}: the control variate is noisy there.",
        "Sample again with center set to the posterior means of this run.",
    ),
}


@dataclass(frozen=True)
class Check:
    """One row of `diagnose`; `problem` and `advice` are sentences for when it fails."""

    name: str
    value: float
    limit: float
    ok: bool
    where: str
    problem: str
    advice: str


def worst(name: str, values: np.ndarray, limits: np.ndarray, labels: list[str]) -> Iterator[Check]:
    """Check the value that is furthest beyond its limit, or nearest to it; none if all are NaN."""
    excess = np.abs(values) / limits
    if not np.isnan(excess).all():
        i = int(np.nanargmax(excess))
        yield check(name, values[i], limits[i], labels[i])


def largest(
    name: str, values: np.ndarray, limits: np.ndarray, labels: list[str]
) -> Iterator[Check]:
    """Check the largest value, or the largest of those beyond their limits; none if all are NaN."""
    if not np.isnan(values).all():
        beyond = np.where(values > limits, values, np.nan)
        i = int(np.nanargmax(values if np.isnan(beyond).all() else beyond))
        yield check(name, values[i], limits[i], labels[i])


def check(name: str, value: float, limit: float, where: str) -> Check:
    """Judge a value: effective draws must reach their limit, the rest must not exceed it."""
    value, limit = float(value), float(limit)
    ok = value >= limit if name.startswith("ess") else abs(value) <= limit * (1 + 1e-9)
    words = {
        "value": value,
        "limit": limit,
        "where": where or "a parameter",
        "percent": min(100 * abs(value), 999.0),
        "about": f"about {100 * abs(value):.0f}" if abs(value) < 10 else "more than 999",
        "signed": float(np.clip(100 * value, -999.0, 999.0)),
        "limit_percent": 100 * limit,
        "more": math.ceil(limit / max(value, 1.0)),
        "is_are": "is" if where else "are on average",
        "large_small": "large" if value > 0 else "small",
        "far_short": "far" if value > 0 else "short",
        "high_low": "high" if value > 0 else "low",
        "sd_fix": _TOO_WIDE if value > 0 else _TOO_NARROW,
    }
    problem, advice = (text.format(**words) for text in _TEXTS[name])
    return Check(name, value, limit, ok, where, problem, advice)
