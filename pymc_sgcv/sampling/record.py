# SPDX-License-Identifier: Apache-2.0
"""Keep of a run what was asked for, and nothing else of size draws × d.

Chains hand over blocks of unconstrained draws. Each is transformed to the stored variables at once
and forgotten, so a model with 200,000 parameters costs the memory of what is stored.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
import pymc as pm
import xarray as xr

from pymc_sgcv.arguments import names_in
from pymc_sgcv.errors import SGCVWarning
from pymc_sgcv.model.target import Parameter, Target
from pymc_sgcv.results.groups import to_idata_groups
from pymc_sgcv.results.posterior import Transform, named_dataset

_BLOCK_NUMBERS = 1 << 17
"""Numbers in a block of draws and what is computed from it: 1 MB, which stays in the cache."""
_LARGE = 4e9
"""Bytes of stored draws above which a warning says what they are."""


def check_gradients(model: pm.Model, gradients: bool | str | Sequence[str]) -> bool | list[str]:
    """Whether, or of which free variables, gradients are stored."""
    if isinstance(gradients, bool | np.bool_):
        return bool(gradients)
    names = names_in("gradients", gradients)
    known = [rv.name for rv in model.free_RVs]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"gradients must be True, False or names of free variables. It holds {unknown}, but "
            f"the model's free variables are {known}."
        )
    return names


class Record:
    """The stored draws of all chains.

    Parameters
    ----------
    target
        The model.
    names
        Free variables and Deterministics of the posterior group.
    gradients
        Whether to store gradients beside the unconstrained draws: True for those of all value
        variables that `names` depend on, or free variables by name.
    chains, tune, draws
        How many there will be.
    keep_tune
        Whether the first `tune` draws are stored too.
    center
        θ̂, if there is one: the draws' distance from it is measured.
    """

    def __init__(
        self,
        target: Target,
        names: Sequence[str],
        gradients: bool | list[str],
        chains: int,
        tune: int,
        draws: int,
        keep_tune: bool,
        center: np.ndarray | None,
    ):
        self.target, self.center = target, center
        self.transform = Transform(target, names)
        self.values = _stored_values(target, self.transform.needed, gradients)
        spans = {"": (tune, tune + draws)} | ({"warmup_": (0, tune)} if keep_tune and tune else {})
        self._warn_if_large(chains * sum(stop - start for start, stop in spans.values()))
        self.parts = {prefix: _Part(self, chains, *span) for prefix, span in spans.items()}
        self.moments = [Moments(target.size) for _ in range(chains if center is not None else 0)]

    @property
    def longest_block(self) -> int:
        """So many draws at a time keep what is not stored small."""
        computed = sum(math.prod(shape) for shape in self.transform.shapes.values())
        return max(1, _BLOCK_NUMBERS // (self.target.size + computed))

    def put(
        self, chain: int, first: int, draws: np.ndarray, gradients: np.ndarray, steps: np.ndarray
    ) -> None:
        """Take over a block of draws (n, d) with their gradients; `first` counts from the start."""
        for part in self.parts.values():
            part.put(chain, first, draws, gradients, steps)
        if self.moments and first + len(draws) > self.parts[""].start:
            self.moments[chain].add(draws[max(0, self.parts[""].start - first) :])

    def forget(self, chain: int) -> None:
        """Let a chain begin anew."""
        if self.moments:
            self.moments[chain] = Moments(self.target.size)

    def groups(self, length: int, chains: Sequence[int]) -> dict[str, xr.Dataset]:
        """The groups of the container, of the first `length` draws of these chains."""
        groups: dict[str, xr.Dataset] = {}
        for prefix, part in self.parts.items():
            if min(length, part.stop) > part.start:
                part.keep(chains)
                found = part.groups(min(length, part.stop) - part.start)
                groups |= {prefix + name: dataset for name, dataset in found.items()}
        return groups

    def distance(self) -> dict[str, float | str]:
        """How far the draws' mean is from the center in posterior sds, for the worst parameter."""
        pooled = Moments(self.target.size)
        for one in self.moments:
            pooled.merge(one.count, one.mean, one.squares)
        if self.center is None or not pooled.count:
            return {}
        spread = np.sqrt(pooled.squares / pooled.count)
        away = np.abs(pooled.mean - self.center) / np.where(spread > 0, spread, 1.0)
        worst = int(np.argmax(away))
        return {
            "chain_distance": float(away[worst]),
            "chain_distance_where": self.target.describe(worst),
        }

    def _warn_if_large(self, draws: int) -> None:
        shapes, kinds = self.transform.shapes, self.transform.dtypes
        sizes = {name: math.prod(shapes[name]) * kinds[name].itemsize for name in shapes}
        twice = [p for p in self.values if p.name not in self.transform.same.values()]
        beside = 8 * sum(p.stop - p.start for p in [*self.values, *twice])
        total = draws * (sum(sizes.values()) + beside)
        if total > _LARGE:
            largest = max(sizes, key=sizes.__getitem__)
            warnings.warn(
                f"{draws} draws will take {total / 1e9:.1f} GB: {draws * beside / 1e9:.1f} GB for "
                f"gradients and unconstrained draws, {draws * sizes[largest] / 1e9:.1f} GB for "
                f"'{largest}'. Name what you need in var_names, pass gradients=False, or increase "
                "thin.",
                SGCVWarning,
                stacklevel=4,
            )


class Moments:
    """Running mean and sum of squared deviations of each parameter (Chan et al. 1983)."""

    def __init__(self, size: int):
        self.count, self.mean, self.squares = 0, np.zeros(size), np.zeros(size)

    def add(self, draws: np.ndarray) -> None:
        """Take in draws (n, d)."""
        mean = draws.mean(axis=0)
        self.merge(len(draws), mean, ((draws - mean) ** 2).sum(axis=0))

    def merge(self, count: int, mean: np.ndarray, squares: np.ndarray) -> None:
        """Take in the moments of other draws."""
        total = self.count + count
        if count:
            shift = mean - self.mean
            self.squares += squares + shift**2 * (self.count * count / total)
            self.mean += shift * (count / total)
            self.count = total


class _Part:
    """Arrays for draws `start` to `stop` of all chains, written once and never copied.

    A variable without a transform has one array, read-only in the end, for both groups.
    """

    def __init__(self, record: Record, chains: int, start: int, stop: int):
        self.target, self.transform = record.target, record.transform
        self.start, self.stop, self.values = start, stop, record.values
        lead = (chains, stop - start)
        shapes, kinds = self.transform.shapes, self.transform.dtypes
        self.posterior = {name: np.empty(lead + shapes[name], kinds[name]) for name in shapes}
        same = {v: n for n, v in self.transform.same.items() if kinds[n] == np.float64}
        self.shared = {p.name: same[p.name] for p in self.values if p.name in same}
        own = [p for p in self.values if p.name not in self.shared]
        self.draws = {p.name: np.empty(lead + p.shape) for p in own}
        self.gradients = {p.name: np.empty(lead + p.shape) for p in self.values}
        self.steps = np.empty(lead)

    def put(
        self, chain: int, first: int, draws: np.ndarray, gradients: np.ndarray, steps: np.ndarray
    ) -> None:
        begin, end = max(first, self.start), min(first + len(draws), self.stop)
        if begin >= end:
            return
        source = slice(begin - first, end - first)
        place = slice(begin - self.start, end - self.start)
        for name, value in self.transform(draws[source]).items():
            self.posterior[name][chain, place] = value
        for p in self.values:
            for flat, arrays in ((draws, self.draws), (gradients, self.gradients)):
                if p.name in arrays:
                    value = flat[source, p.start : p.stop]
                    arrays[p.name][chain, place] = value.reshape(end - begin, *p.shape)
        self.steps[chain, place] = steps[source]

    def keep(self, chains: Sequence[int]) -> None:
        """Forget all other chains."""
        if len(chains) == len(self.steps):
            return
        self.steps = self.steps[chains]
        for arrays in (self.posterior, self.draws, self.gradients):
            arrays.update((name, array[chains]) for name, array in arrays.items())

    def groups(self, n: int) -> dict[str, xr.Dataset]:
        model = self.target.model
        for name in self.shared.values():  # a change of one group must not change the other
            self.posterior[name].flags.writeable = False
        both = self.draws | {value: self.posterior[name] for value, name in self.shared.items()}
        draws = {p.name: both[p.name] for p in self.values}
        posterior = named_dataset(model, _first(self.posterior, n))
        stats = named_dataset(model, {"step_size": self.steps[:, :n]})
        beside = to_idata_groups(
            _first(self.gradients, n), _first(draws, n), self._dims_of_free_variables(n)
        )
        return {"posterior": posterior, "sample_stats": stats, **beside}

    def _dims_of_free_variables(self, n: int) -> xr.Dataset:
        """Free variables as the posterior would hold them, of no size: also those not in it."""
        shapes = self.target.model.eval_rv_shapes()
        names = [p.rv_name for p in self.target.parameters]
        lead = (len(self.steps), n)
        empty = {name: np.broadcast_to(np.nan, lead + tuple(shapes[name])) for name in names}
        return named_dataset(self.target.model, empty)


def _first(arrays: dict[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    return {name: array[:, :n] for name, array in arrays.items()}


def _stored_values(
    target: Target, needed: list[str], gradients: bool | list[str]
) -> list[Parameter]:
    if isinstance(gradients, list):
        return [p for p in target.parameters if p.rv_name in gradients]
    return [p for p in target.parameters if gradients and p.name in needed]
