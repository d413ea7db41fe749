# SPDX-License-Identifier: Apache-2.0
"""What tests of several modules need: quiet runs, runs without a warning, containers and files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import arviz as az
import pytest
import xarray as xr

OLD_ARVIZ = az.__version__.startswith("0.")
QUIET = {"progressbar": False, "compute_convergence_checks": False}
"""Arguments of pm.sample and sg.sample."""


@contextmanager
def no_warning(category: type[Warning] = Warning) -> Iterator[None]:
    """A warning of this category is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", category)
        yield


def from_dict(groups: dict[str, dict], **kwargs):
    """az.from_dict of either ArviZ generation."""
    return az.from_dict(**groups, **kwargs) if OLD_ARVIZ else az.from_dict(groups, **kwargs)


def as_recorded(gradient: dict, unconstrained: dict) -> dict:
    """The statistics in which pm.sample keeps gradients and unconstrained draws."""
    stats = {f"gradient__{name}": array for name, array in gradient.items()}
    return stats | {f"unconstrained__{name}": array for name, array in unconstrained.items()}


def netcdf(idata, path):
    """Write and read back."""
    pytest.importorskip("h5netcdf")
    pytest.importorskip("h5py")
    idata.to_netcdf(path)
    return az.from_netcdf(path)


def zarr(idata, path):
    """Write and read back, as a DataTree: the Zarr writer of ArviZ 0.23 is of Zarr 2."""
    pytest.importorskip("zarr")
    tree = idata if isinstance(idata, xr.DataTree) else idata.to_datatree()
    tree.to_zarr(path)
    return xr.open_datatree(path, engine="zarr")


STORE = pytest.mark.parametrize("store", [netcdf, zarr])
