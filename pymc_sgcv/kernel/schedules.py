# SPDX-License-Identifier: Apache-2.0
"""Step sizes that change with the iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

import numpy as np


@dataclass(frozen=True)
class PolynomialDecay:
    """Step sizes hₖ = a (b + k)^−γ (Welling & Teh 2011).

    Examples
    --------
    >>> PolynomialDecay(a=0.1, b=1.0, gamma=0.5)(3)
    0.05
    """

    a: float
    b: float
    gamma: float

    def __post_init__(self) -> None:
        numbers = self.a, self.b, self.gamma
        real = all(isinstance(x, int | float | np.number) for x in numbers)
        if not (
            real and self.a > 0 and self.b > 0 and self.gamma >= 0 and np.isfinite(numbers).all()
        ):
            raise ValueError(f"PolynomialDecay needs a > 0, b > 0 and gamma >= 0, not {numbers}.")

    @overload
    def __call__(self, k: int) -> float: ...

    @overload
    def __call__(self, k: np.ndarray) -> np.ndarray: ...

    def __call__(self, k: int | np.ndarray) -> float | np.ndarray:
        """The step size of iteration k (a number or an array)."""
        return self.a * (self.b + k) ** -self.gamma


def step_sizes(schedule: float | Callable, first: int, n: int) -> np.ndarray:
    """The step sizes of iterations first, …, first + n − 1."""
    if not callable(schedule):
        return np.full(n, float(schedule))
    return np.array([_scheduled(schedule, k) for k in range(first, first + n)])


def _scheduled(schedule: Callable, k: int) -> float:
    try:
        h = schedule(k)
        if np.isfinite(h) and h > 0:
            return float(h)
        problem = f"gives {h!r}"
    except TypeError as error:
        problem = f"fails ({error})"
    raise ValueError(
        f"The step size schedule {problem} at iteration {k}: it must map the iteration to a "
        "positive number."
    )


def check_step_size(step_size: float | str | Callable) -> None:
    """Refuse what is neither ``"auto"``, a positive number nor a callable."""
    if isinstance(step_size, str) and step_size == "auto":
        return
    if callable(step_size):
        _scheduled(step_size, 0)
        return
    number = isinstance(step_size, int | float | np.number) and not isinstance(step_size, bool)
    if isinstance(step_size, str) or not number or not np.isfinite(step_size) or step_size <= 0:
        raise ValueError(
            f'step_size must be "auto", a positive number or a callable, not {step_size!r}.'
        )
