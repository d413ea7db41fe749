# SPDX-License-Identifier: Apache-2.0
"""Draws a part at a time, whether they are in memory or in files."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import xarray as xr

from pymc_sgcv.results.containers import Container, get_group, group_names, new_container

PART = 2**22  # numbers of an array that are looked at together
MOST, LEAST = 2**24, 10_000  # numbers of a group, and draws, that `fewer` leaves at least
SLAB = 2**25  # numbers that are read from a file at a time: each time all its blocks are opened


def every(idata: Container, step: int) -> Container:
    """Every so many draws, of all groups that have draws."""
    groups = {name: get_group(idata, name) for name in group_names(idata)}
    thinned = {
        name: ds.isel(draw=slice(None, None, step))
        for name, ds in groups.items()
        if "draw" in ds.dims
    }
    return new_container(groups | thinned)


def fewer(idata: Container) -> Container:
    """Draws evenly spaced, if they are in files and each group has more than `MOST` numbers."""
    posterior = get_group(idata, "posterior")
    if all(v.variable._in_memory for v in posterior.values()):
        return idata
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    size = sum(v[0, 0].size for v in posterior.values())
    step = chains * draws // max(LEAST, MOST // max(1, size))
    return every(idata, step) if step > 1 else idata


def column_parts(array: xr.DataArray) -> Iterator[np.ndarray]:
    """Draws as matrices (chain * draw, components) of some 30 MB, one after the other.

    Of an array that is in a file, no more than `SLAB` is in memory.
    """
    array = array.transpose("chain", "draw", ...)
    n = math.prod(array.shape[:2])
    for part in _slices(array):
        yield np.asarray(part.values).reshape(n, -1)


def row_parts(array: xr.DataArray) -> Iterator[np.ndarray]:
    """Some draws of one chain after the other, as they lie in files: each is read once."""
    array = array.transpose("chain", "draw", ...)
    length = max(1, PART // max(1, math.prod(array.shape[2:])))
    for chain in range(array.shape[0]):
        for start in range(0, array.shape[1], length):
            yield array[chain, start : start + length].values


def parts_of(dataset: xr.Dataset) -> Iterator[xr.Dataset]:
    """Draws of one variable after the other, in memory, in parts like `column_parts`."""
    for name, array in dataset.items():
        for part in _slices(array.transpose("chain", "draw", ...)):
            yield part.to_dataset(name=name).assign_attrs(dataset.attrs)


def _slices(array: xr.DataArray) -> Iterator[xr.DataArray]:
    """Parts along the first axis beside chain and draw: read in slabs, handed out in parts."""
    in_memory = array.variable._in_memory
    if array.ndim < 3 or array.size <= PART:
        yield array if in_memory else array.compute()
        return
    step = max(1, PART * array.shape[2] // array.size)
    step *= 1 if in_memory else SLAB // PART
    for start in range(0, array.shape[2], step):
        part = array[:, :, start : start + step]
        if in_memory:
            yield part
        else:
            yield from _slices(part.compute())
