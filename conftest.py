# SPDX-License-Identifier: Apache-2.0
"""For tests and for the examples in docstrings alike."""

import pytest


@pytest.fixture(autouse=True)
def no_local_data(monkeypatch):
    """Loaders find no data unless a test puts them there."""
    monkeypatch.delenv("SGCV_DATA", raising=False)
