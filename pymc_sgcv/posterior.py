# SPDX-License-Identifier: Apache-2.0
"""From flat unconstrained draws to a posterior group with the model's names, dims and coords."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants
from pymc.util import get_default_varnames
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph

from pymc_sgcv.model import Target

_PYTHON = Mode(linker="py", optimizer="fast_compile")
_CHUNK = 500


def check_names(model: pm.Model, var_names: list[str] | None) -> list[str]:
    """The free variables and Deterministics to store: all, or those asked for."""
    known = [v.name for v in get_default_varnames(model.unobserved_RVs, include_transformed=False)]
    unknown = sorted(set(var_names or ()) - set(known))
    if unknown:
        raise ValueError(f"var_names holds {unknown}, but the model's variables are {known}.")
    return known if var_names is None else [name for name in known if name in var_names]


def posterior_group(target: Target, draws: np.ndarray, names: list[str]) -> xr.Dataset:
    """Free variables and Deterministics on the model's own scale.

    `draws` has shape (chain, draw, d). All draws of a chunk are transformed at once by the
    vectorised graph of the model.
    """
    model = target.model
    graphs = model.replace_rvs_by_values([model[name] for name in names])
    inputs = list(target.values)
    batched = [value.type.clone(shape=(None, *value.type.shape))() for value in inputs]
    outputs = vectorize_graph(graphs, dict(zip(inputs, batched, strict=True)))
    function = pytensor.function(batched, outputs, mode=_PYTHON, on_unused_input="ignore")
    flat = draws.reshape(-1, draws.shape[-1])
    parts = []
    for start in range(0, max(len(flat), 1), _CHUNK):
        values = target.unflatten(flat[start : start + _CHUNK])
        arrays = [np.asarray(values[v.name], dtype=v.dtype) for v in inputs]
        parts.append(function(*arrays))
    values = {}
    for i, name in enumerate(names):
        stacked = np.concatenate([np.asarray(part[i]) for part in parts])
        values[name] = stacked.reshape(draws.shape[:2] + stacked.shape[1:])
    return named_dataset(model, values)


def named_dataset(
    model: pm.Model, values: dict[str, np.ndarray], lead: tuple[str, ...] = ("chain", "draw")
) -> xr.Dataset:
    """Arrays with leading dims `lead` as a Dataset with the model's dims and coords."""
    coords, dims = coords_and_dims_for_inferencedata(model)
    arrays, used = {}, {}
    for name, value in values.items():
        shape = value.shape[len(lead) :]
        given = dims.get(name) or [None] * len(shape)
        named = [dim or f"{name}_dim_{i}" for i, dim in enumerate(given)]
        arrays[name] = ((*lead, *named), value)
        for dim, length in zip((*lead, *named), value.shape, strict=True):
            labels = coords.get(dim)
            used[dim] = labels if labels is not None and len(labels) == length else range(length)
    return xr.Dataset(arrays, coords={dim: list(labels) for dim, labels in used.items()})


def constant_data(model: pm.Model) -> xr.Dataset:
    """The model's data containers, as ``pm.sample`` stores them."""
    values = {name: np.asarray(value) for name, value in find_constants(model).items()}
    return named_dataset(model, values, lead=())
