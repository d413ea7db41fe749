# SPDX-License-Identifier: Apache-2.0
"""Models as other packages and their galleries build them, on simulated rows."""

from __future__ import annotations

from tests.clients import forms, formulas, further, gallery, hierarchies, marketing, named
from tests.clients.registry import CASES, frame

__all__ = [
    "CASES",
    "formulas",
    "forms",
    "frame",
    "further",
    "gallery",
    "hierarchies",
    "marketing",
    "named",
]
