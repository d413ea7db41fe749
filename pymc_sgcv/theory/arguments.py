# SPDX-License-Identifier: Apache-2.0
"""Sentences for arguments that the theory cannot use."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_target(m: float, M: float, d: int) -> None:
    """Refuse constants that no strongly log-concave posterior has."""
    check_count(d=d)
    if not (_is_number(m) and m > 0):
        raise ValueError(
            f"m must be a positive number, not {m!r}: these results are for strongly log-concave "
            "posteriors, where the smallest eigenvalue of the Hessian of −log posterior is at "
            "least m."
        )
    check_positive(M=M)
    if m > M:
        raise ValueError(
            f"m = {m!r} is larger than M = {M!r}, but they are the smallest and largest curvature."
        )


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return bool(number and np.isfinite(value))


def check_positive(**numbers: Any) -> None:
    """Refuse what is not a finite number above 0."""
    for name, value in numbers.items():
        if not (_is_number(value) and value > 0):
            raise ValueError(f"{name} must be a positive number, not {value!r}.")


def check_not_negative(**numbers: Any) -> None:
    """Refuse what is not a finite number of at least 0."""
    for name, value in numbers.items():
        if not (_is_number(value) and value >= 0):
            raise ValueError(f"{name} must be a number that is not negative, not {value!r}.")


def check_count(least: int = 1, **numbers: Any) -> None:
    """Refuse what is not a whole number of at least `least`."""
    for name, value in numbers.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not (whole and value >= least):
            raise ValueError(f"{name} must be a whole number, at least {least}, not {value!r}.")
