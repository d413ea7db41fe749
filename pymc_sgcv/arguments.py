# SPDX-License-Identifier: Apache-2.0
"""Arguments that many functions take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pymc as pm
from pymc.util import get_random_generator

Seed: TypeAlias = int | Sequence[int] | np.ndarray | np.random.Generator | None
"""What numpy takes as a seed."""


def given_model(model: pm.Model | None) -> pm.Model:
    """The model, or that of the context."""
    if model is not None and not isinstance(model, pm.Model):
        raise TypeError(f"model must be a pm.Model, not {type(model).__name__}.")
    return pm.modelcontext(model)


def given_generator(what: str, seed: Seed) -> np.random.Generator:
    """A generator from whatever numpy takes as a seed."""
    try:
        return get_random_generator(seed)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what} must be a seed or a numpy Generator, not {seed!r}.") from None


def names_in(what: str, names: str | Sequence[str]) -> list[str]:
    """One name or several as a list."""
    found = [names] if isinstance(names, str) else names
    if not isinstance(found, Iterable) or not all(isinstance(name, str) for name in found):
        raise TypeError(f"{what} must be a name or a list of names, not {names!r}.")
    return list(found)


def check_mapping(what: str, value: object, of: str) -> None:
    """Refuse anything but a dict, or None."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{what} must be a dict of {of}, not {type(value).__name__}.")
