# SPDX-License-Identifier: Apache-2.0
"""What differs between ArviZ 0.23 (``InferenceData``) and ArviZ 1.x (``xarray.DataTree``).

The rest of the package knows a *container*: named groups, each an ``xarray.Dataset``. Both kinds
are accepted under either ArviZ, since a DataTree is also how ArviZ 0.23 reads Zarr 3.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr

# Each name is there under one ArviZ only, so it is looked up by name.
_InferenceData: Any = xr.DataTree
if version("arviz").startswith("0."):
    _InferenceData = import_module("arviz").InferenceData

Container: TypeAlias = Any  # an arviz.InferenceData or an xarray.DataTree


def is_container(obj: object) -> bool:
    """Whether ``obj`` is an InferenceData or a DataTree."""
    return isinstance(obj, (xr.DataTree, _InferenceData))


def check_container(obj: object) -> None:
    """Raise a TypeError that says what to pass instead if ``obj`` is not a container."""
    if not is_container(obj):
        raise TypeError(
            f"idata is a {type(obj).__name__}, not an arviz.InferenceData or xarray.DataTree. "
            "Pass what pm.sample or pymc_sgcv.sample returned (with return_inferencedata=True)."
        )


def group_names(idata: Container) -> list[str]:
    """Names of the groups, warmup groups included."""
    if isinstance(idata, xr.DataTree):
        return list(idata.children)
    return list(idata.groups())


def get_group(idata: Container, name: str) -> xr.Dataset:
    """One group as a Dataset of its own that shares the arrays."""
    group = idata[name]
    return group.to_dataset() if isinstance(group, xr.DataTree) else group.copy(deep=False)


def new_container(groups: Mapping[str, xr.Dataset], attrs: Mapping | None = None) -> Container:
    """Make a container of the installed ArviZ's kind; a group without variables is left out."""
    groups = {name: ds.copy(deep=False) for name, ds in groups.items() if ds.data_vars}
    if _InferenceData is not xr.DataTree:
        return _InferenceData(attrs=attrs, **groups)
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = dict(attrs or {})
    return tree


def with_groups(idata: Container, groups: Mapping[str, xr.Dataset]) -> Container:
    """Make a container of the same kind with groups added or replaced, sharing the arrays.

    A group given without variables is removed: a Dataset of nothing but coordinates is dropped
    by ``InferenceData`` and would not come back from a file.
    """
    if not isinstance(idata, xr.DataTree):
        kept = {name: get_group(idata, name) for name in group_names(idata)}
        return _InferenceData(attrs=idata.attrs, **{**kept, **groups})
    tree = idata.copy(deep=False)
    for name, dataset in groups.items():
        if dataset.data_vars:
            tree[name] = xr.DataTree(dataset)
        elif name in tree.children:
            del tree[name]
    return tree


def _stats() -> ModuleType:
    """ArviZ's statistics, without the plots: they take seconds to import, after a first draw."""
    return import_module("arviz_stats" if _InferenceData is xr.DataTree else "arviz")


def ess(dataset: xr.Dataset, method: str) -> xr.Dataset:
    """Effective sample size of every component; `method` as in ArviZ."""
    with np.errstate(invalid="ignore"):
        return _stats().ess(dataset, method=method)


def ess_mean(dataset: xr.Dataset) -> xr.Dataset:
    """Effective sample size for the mean of every component.

    ArviZ gets standardised draws: it sees a range below 1e-15 as constant, and its variance of
    draws far from zero is inexact, and both are likely after a good correction.
    """
    over = ("chain", "draw")
    sd = dataset.std(over)
    return ess((dataset - dataset.mean(over)) / sd.where(sd > 0, 1.0), "mean")


def mcse(dataset: xr.Dataset) -> xr.Dataset:
    """Monte Carlo standard error of the mean of every component."""
    return dataset.std(("chain", "draw"), ddof=1) / ess_mean(dataset) ** 0.5


def rhat(dataset: xr.Dataset) -> xr.Dataset:
    """Rank-normalised split R-hat of every component; NaN for a constant."""
    with np.errstate(invalid="ignore"):
        return _stats().rhat(dataset)


def summary(dataset: xr.Dataset, **kwargs: Any) -> pd.DataFrame:
    """ArviZ' table of some draws."""
    return _stats().summary(new_container({"posterior": dataset}), **kwargs)


def labels(array: xr.DataArray) -> list[str]:
    """Row names of an ArviZ summary: ``beta[a, 0]`` by coordinate, else by position."""
    axes = [
        array[dim].values if dim in array.coords else range(array.sizes[dim])
        for dim in array.dims
        if dim not in ("chain", "draw")
    ]
    if not axes:
        return [str(array.name)]
    return [f"{array.name}[{', '.join(map(str, at))}]" for at in itertools.product(*axes)]
