# SPDX-License-Identifier: Apache-2.0
"""Where a result comes from: versions and seed, as attributes of its posterior."""

from __future__ import annotations

import platform
from importlib.metadata import version

import numpy as np

from pymc_sgcv.arguments import Seed

PACKAGES = ("pymc", "pytensor", "numba", "numpy", "arviz")


def provenance(seed: Seed) -> dict[str, str]:
    """Attributes in types that every file format can hold; a generator has no name to give."""
    found = {
        "versions": ", ".join(
            [f"Python {platform.python_version()}"]
            + [f"{name} {version(name)}" for name in PACKAGES]
        ),
    }
    if isinstance(seed, int | np.integer | list | tuple | np.ndarray):
        found["random_seed"] = str(seed)
    return found
