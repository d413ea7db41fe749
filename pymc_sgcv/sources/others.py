# SPDX-License-Identifier: Apache-2.0
"""Types of other packages that hold rows of the engines, or that say where the rows are."""

from __future__ import annotations

from typing import Any

from pymc_sgcv.sources.base import Source, as_source, unreadable
from pymc_sgcv.sources.parquets import parquet


def open_source(thing: Any, name: str | None) -> Source:
    """The rows inside an xarray.DataArray, or of the files behind pymc-extras' parquet_source."""
    if hasattr(thing, "variable") and hasattr(thing, "chunks"):
        label = name or (str(thing.name) if thing.name is not None else None)
        if thing.chunks is None and not thing.variable._in_memory:
            raise unreadable(thing, label, "It is not read yet: give .chunk(), or .load().")
        return as_source(thing.data, label)
    if type(thing).__module__.startswith("pymc_extras"):
        if hasattr(thing, "_paths") and hasattr(thing, "_columns"):  # its parquet_source
            return parquet(thing._paths, columns=thing._columns, name=name)
        instead = (
            "It yields rows in another order each time, and passes over data need the same rows "
            "again: give its files, sg.parquet('rows/*.parquet', columns=[...])."
        )
        raise unreadable(thing, name, instead)
    raise unreadable(thing, name)
