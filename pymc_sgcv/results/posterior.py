# SPDX-License-Identifier: Apache-2.0
"""From flat unconstrained draws to a posterior group with the model's names, dims and coords."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants
from pymc.util import get_default_varnames
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.arguments import names_in
from pymc_sgcv.model.graph import name_of, value_of
from pymc_sgcv.model.start import PYTHON
from pymc_sgcv.model.target import Target


def check_names(model: pm.Model, var_names: str | Sequence[str] | None) -> list[str]:
    """The free variables and Deterministics to store: all, or those asked for."""
    known = [v.name for v in get_default_varnames(model.unobserved_RVs, include_transformed=False)]
    if var_names is None:
        return known
    wanted = set(names_in("var_names", var_names))
    unknown = sorted(wanted - set(known))
    if unknown:
        raise ValueError(f"var_names holds {unknown}, but the model's variables are {known}.")
    if not wanted:
        raise ValueError(f"var_names is empty: name at least one of {known}, or leave it out.")
    return [name for name in known if name in wanted]


class Transform:
    """Free variables and Deterministics on the model's own scale, from flat unconstrained draws.

    Parameters
    ----------
    target
        The model.
    names
        Variables to compute.

    Attributes
    ----------
    needed
        Names of the value variables that any of them depends on, in the order of θ.
    same
        The value variable of each variable that has no transform, by name.
    shapes, dtypes
        What one draw of each variable looks like.
    """

    def __init__(self, target: Target, names: Sequence[str]):
        model = target.model
        graphs = dict(zip(names, model.replace_rvs_by_values([model[n] for n in names])))
        behind = {name: set(ancestors([graph])) for name, graph in graphs.items()}
        self.target, self.names = target, list(names)
        self.needed = [name_of(v) for v in target.values if any(v in b for b in behind.values())]
        self.same = {n: g.name for n, g in graphs.items() if g in target.values}
        self._fixed = [n for n in names if not behind[n].intersection(target.values)]
        self._computed = [n for n in names if n not in self.same]
        self._function, self._inputs = self._compile({n: graphs[n] for n in self._computed}, behind)
        self._lock = Lock()  # a PyTensor function has one set of cells for all threads
        one = self(target.flatten(target.start)[None])  # what cannot be computed fails before a run
        self.shapes = {name: value.shape[1:] for name, value in one.items()}
        self.dtypes = {name: value.dtype for name, value in one.items()}

    def _compile(
        self, graphs: dict[str, TensorVariable], behind: dict[str, set[Variable]]
    ) -> tuple[Callable[..., list[np.ndarray]], list[TensorVariable]]:
        """A function of some value variables, each with a leading axis of draws."""
        inputs = [v for v in self.target.values if any(v in behind[n] for n in graphs)]
        batched = [v.type.clone(shape=(None, *v.type.shape))() for v in inputs]
        outputs: list[Variable] = list(graphs.values())
        if inputs:
            outputs = vectorize_graph(outputs, dict(zip(inputs, batched, strict=True)))
        return pytensor.function(batched, outputs, mode=PYTHON), inputs

    def __call__(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Values by name, with a leading axis, of `draws` (n, d)."""
        flat = self.target.unflatten(draws)
        arrays = [np.asarray(flat[name_of(v)], dtype=v.dtype) for v in self._inputs]
        values = {n: np.asarray(flat[v], dtype=self._kind(v)) for n, v in self.same.items()}
        if self._computed:
            with self._lock:
                values |= dict(zip(self._computed, map(np.asarray, self._function(*arrays))))
        for name in self._fixed:  # depends on no variable, so it has no axis of draws yet
            values[name] = np.broadcast_to(values[name], (len(draws), *values[name].shape))
        return {name: values[name] for name in self.names}

    def _kind(self, value_name: str) -> str:
        return next(v.dtype for v in self.target.values if v.name == value_name)


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
            fits = labels is not None and len(labels) == length
            used[dim] = (dim, _labels(labels)) if fits else np.arange(length)
    return xr.Dataset(arrays, coords=used)


def _labels(given: Sequence) -> Any:
    """One label for each position: tuples are labels too, not rows of a table."""
    if not any(isinstance(label, tuple | np.ndarray) for label in given):
        return list(given)
    found = np.empty(len(given), dtype=object)
    found[:] = [tuple(np.atleast_1d(label).tolist()) for label in given]
    return found


def constant_data(model: pm.Model) -> xr.Dataset:
    """The model's data containers, as ``pm.sample`` stores them."""
    return _data(model, find_constants(model))


def observed_data(model: pm.Model) -> xr.Dataset:
    """What was observed, as ``pm.sample`` stores it: not where it is minibatched."""
    whole = [
        rv
        for rv in model.observed_RVs
        if isinstance(model.rvs_to_values[rv], Constant | SharedVariable)
    ]
    return _data(model, {rv.name: value_of(model.rvs_to_values[rv]) for rv in whole})


def _data(model: pm.Model, values: Mapping[str, np.ndarray]) -> xr.Dataset:
    return named_dataset(model, {name: np.asarray(v) for name, v in values.items()}, lead=())
