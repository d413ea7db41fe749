# SPDX-License-Identifier: Apache-2.0
"""The warnings of this package."""

import sys
import warnings


class SGCVWarning(UserWarning):
    """A result of this package that should not be trusted as it is, and what to do about it."""


def warn(message: str) -> None:
    """Emit an `SGCVWarning` at the user's line: the first outside this package and PyMC."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, SGCVWarning, stacklevel=level)


_OURS = "pymc", "pymc_sgcv"
