# SPDX-License-Identifier: Apache-2.0
"""How long a run goes on: until it is precise enough, or for so many seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_sgcv.results import containers
from pymc_sgcv.results.diagnostics import least_ess

_KNOWN = "ess", "mcse", "seconds"
_FIRST, _GROWTH = 100, 1.5
"""Draws before the first look, and how many more there are at each after it."""


class Until:
    """What ``sample(until=...)`` asks for.

    Parameters
    ----------
    asked
        ``ess``: effective draws of the worst variable, ``mcse``: largest Monte Carlo standard error
        of the mean by variable, ``seconds``: of sampling.
    names
        Variables that there will be.
    """

    def __init__(self, asked: Mapping[str, Any], names: Sequence[str]):
        if not isinstance(asked, Mapping) or not asked or set(asked) - set(_KNOWN):
            raise ValueError(
                f"until must be a dict with some of {_KNOWN}, such as "
                f"{{'ess': 400, 'mcse': {{'beta': 0.01}}, 'seconds': 600}}, not {asked!r}."
            )
        self.ess = _positive("ess", asked.get("ess", 0.0))
        self.seconds = _positive("seconds", asked.get("seconds", math.inf))
        mcse = asked.get("mcse", {})
        if not isinstance(mcse, Mapping):
            raise ValueError(f"until['mcse'] must be a dict by variable, not {mcse!r}.")
        if unknown := [name for name in mcse if name not in names]:
            raise ValueError(f"until['mcse'] names {unknown}, but what is kept is {list(names)}.")
        self.mcse = {name: _positive(f"mcse of {name}", limit) for name, limit in mcse.items()}
        self.precise = bool(self.ess or self.mcse)

    def goals(self, tune: int, total: int, done: int) -> list[int]:
        """After how many draws, those of tuning included, to look whether it is enough."""
        if not self.precise:
            return [total]
        goals, n = [], float(_FIRST)
        while tune + n < total:
            goals.append(tune + int(n))
            n *= _GROWTH
        return [goal for goal in [*goals, total] if goal >= done]

    def missing(self, posterior: xr.Dataset) -> list[str]:
        """What is not reached yet, in words; nothing if all is."""
        found = []
        if self.ess:
            ess, where = least_ess(posterior)
            if not ess >= self.ess:
                found.append(f"{ess:.0f} effective draws of {where}, of {self.ess:.0f}")
        for name, limit in self.mcse.items():
            error = float(np.max(containers.mcse(posterior[[name]])[name]))
            if not error <= limit:
                found.append(f"a standard error of {error:.2g} of {name}, above {limit:.2g}")
        return found


def _positive(what: str, value: Any) -> float:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not value >= 0:
        raise ValueError(f"until: {what} must be a positive number, not {value!r}.")
    return float(value)
