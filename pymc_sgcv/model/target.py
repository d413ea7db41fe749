# SPDX-License-Identifier: Apache-2.0
"""Read a PyMC model as a sum over data: log p(θ) = ℓ₀(θ) + Σᵢ ℓᵢ(θ).

θ are PyMC's unconstrained value variables; ℓ₀ holds the priors, the Jacobians of the transforms,
potentials and observed variables that are not subsampled; each *plate* is one set of N rows with
the log-likelihood of a row (`pymc_sgcv.model.plates`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.model.graph import name_of
from pymc_sgcv.model.likelihoods import (
    first_batch_size,
    group_likelihoods,
    refuse_discrete,
    refuse_minibatch_elsewhere,
    refuse_missing_observations,
)
from pymc_sgcv.model.lowering import plain
from pymc_sgcv.model.plates import Plate, conditional_terms, make_plate
from pymc_sgcv.model.potentials import Term, terms_of
from pymc_sgcv.model.selection import with_slices_of_data
from pymc_sgcv.model.start import initial_point


@dataclass(frozen=True)
class Parameter:
    """One unconstrained value variable and its place in the flat vector θ."""

    name: str
    rv_name: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Target:
    """A model as the sum that stochastic gradients need; `start` is PyMC's initial point."""

    model: pm.Model
    start: dict[str, np.ndarray]
    parameters: tuple[Parameter, ...]
    values: tuple[TensorVariable, ...]
    others: tuple[TensorVariable, ...]
    prior: TensorVariable
    plates: tuple[Plate, ...]

    @property
    def size(self) -> int:
        """The number d of unconstrained parameters."""
        return self.parameters[-1].stop

    def flatten(self, point: Mapping[str, np.ndarray]) -> np.ndarray:
        """The flat θ of a point given by value-variable names."""
        return np.concatenate([np.ravel(point[p.name]) for p in self.parameters]).astype(float)

    def unflatten(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Values by value-variable name; leading axes of `theta` are kept."""
        lead = theta.shape[:-1]
        return {
            p.name: theta[..., p.start : p.stop].reshape(lead + p.shape) for p in self.parameters
        }

    def describe(self, index: int) -> str:
        """The name of component `index` of θ, like ``beta[3]``."""
        for p in self.parameters:
            if p.start <= index < p.stop:
                if not p.shape:
                    return p.name
                place = np.unravel_index(index - p.start, p.shape)
                return f"{p.name}[{', '.join(str(int(i)) for i in place)}]"
        raise IndexError(index)


def read_model(
    model: pm.Model,
    values: Sequence[TensorVariable] | None = None,
    batch_size: int | str | None = None,
) -> Target:
    """Take `model` apart.

    Parameters
    ----------
    model
        Declared with ``pm.Minibatch`` and ``total_size``, or plainly on the full data, with
        `pymc.dims` or without.
    values
        Value variables to sample; all of them by default. The rest become `Target.others`.
    batch_size
        Rows per minibatch. By default what ``pm.Minibatch`` says; for a plain model, or with
        ``"auto"``, 500 or all there are.
    """
    names = [name_of(v) for v in (model.value_vars if values is None else values)]
    model = plain(model)
    by_name = {name_of(v): v for v in model.value_vars}
    values = [by_name[name] for name in names]
    refuse_discrete(model, values)
    refuse_missing_observations(model)
    refuse_minibatch_elsewhere(model)
    terms = [
        replace(term, rows=with_slices_of_data(term.rows, model.free_RVs))
        for potential in model.potentials
        for term in terms_of(potential)
    ]
    batch_size = first_batch_size(model, terms, batch_size)
    groups = group_likelihoods(model, terms, batch_size)
    start = initial_point(model)
    plates = tuple(make_plate(model, group, batch_size, start) for group in groups)
    subsampled = [v for group in groups for v in (*group.rvs, *group.terms)]
    exact = [rv for rv in model.observed_RVs if rv not in subsampled]
    rest = [term for term in terms if term not in subsampled]
    return Target(
        model=model,
        start=start,
        parameters=_lay_out(model, values, start),
        values=tuple(values),
        others=tuple(v for v in model.value_vars if v not in values),
        prior=_prior(model, exact, rest),
        plates=plates,
    )


def _prior(model: pm.Model, exact: list[TensorVariable], rest: list[Term]) -> TensorVariable:
    """ℓ₀: priors with Jacobians, observed variables and potentials that are not subsampled."""
    terms = conditional_terms(model, [*model.free_RVs, *exact])
    potentials = model.replace_rvs_by_values([term.whole() for term in rest]) if rest else []
    return pt.add(pt.constant(0.0), *[term.sum() for term in [*terms, *potentials]])


def _lay_out(
    model: pm.Model, values: Sequence[TensorVariable], point: dict[str, np.ndarray]
) -> tuple[Parameter, ...]:
    parameters, start = [], 0
    for value in values:
        name = name_of(value)
        shape = np.shape(point[name])
        stop = start + int(np.prod(shape, dtype=int))
        rv_name = model.values_to_rvs[value].name
        parameters.append(Parameter(name, rv_name, shape, start, stop))
        start = stop
    return tuple(parameters)
