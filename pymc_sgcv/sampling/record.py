# SPDX-License-Identifier: Apache-2.0
"""Keep of a run what was asked for, and nothing else of size draws × d.

Chains hand over blocks of unconstrained draws. Each is transformed to the stored variables at once
and forgotten, so a model with 200,000 parameters costs the memory of what is stored.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pymc as pm
import xarray as xr

from pymc_sgcv.arguments import names_in
from pymc_sgcv.errors import SGCVWarning
from pymc_sgcv.model.target import Parameter, Target
from pymc_sgcv.results.groups import GRADIENT, UNCONSTRAINED, to_idata_groups
from pymc_sgcv.results.posterior import Transform, named_dataset
from pymc_sgcv.results.running import Group

if TYPE_CHECKING:
    from pymc_sgcv.sampling.runs import Run

Arrays: TypeAlias = Callable[[str, str, tuple[int, ...], np.dtype], Any]
"""What makes an array: of a group, by name, of a shape and type."""
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
        self.tune, self.total, self.chains = tune, tune + draws, chains
        self.spans = spans
        self.parts = self.make_parts()
        self.handed = [0] * chains
        self.watched = False
        measured = chains if center is not None else 0
        self.moments = [Group(target.size) for _ in range(measured)]
        self.rest = [Group(target.size) for _ in range(measured)]

    def make_parts(self) -> dict[str, Part]:
        """The arrays of draws, by the prefix of their groups: here in memory."""
        self._warn_if_large(self.chains * sum(stop - start for start, stop in self.spans.values()))

        def make(group: str, name: str, shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
            return np.empty(shape, kind)

        return {prefix: Part(self, *span, make) for prefix, span in self.spans.items()}

    @cached_property
    def piece(self) -> int:
        """Draws that Deterministics are computed for at a time: what is not stored stays small.

        How many that are decides the last bits of a product of matrices, so it is always as many.
        """
        computed = sum(math.prod(shape) for shape in self.transform.shapes.values())
        return max(1, _BLOCK_NUMBERS // (self.target.size + computed))

    @property
    def block(self) -> int:
        """Draws that are handed over at a time: some pieces."""
        return self.piece

    def end_of_block(self, first: int) -> int:
        """Where the block ends that begins at a draw: the same however many draws are asked for.

        Tuning draws have blocks of their own, the last of them as short as it must be.
        """
        start = 0 if first < self.tune else self.tune
        end = first + self.block - (first - start) % self.block
        return min(self.tune, end) if first < self.tune else end

    def put(
        self,
        chain: int,
        first: int,
        draws: np.ndarray,
        gradients: np.ndarray,
        steps: np.ndarray,
        whole: bool = True,
    ) -> None:
        """Take over a block of draws (n, d) with their gradients; `first` counts from the start.

        If it is not `whole`, it will come again, with more draws.
        """
        for part in self.parts.values():
            part.put(chain, first, draws, gradients, steps)
        self.handed[chain] = first + len(draws)
        if self.moments and first + len(draws) > self.tune:
            self.rest[chain] = Group(self.target.size)
            into = self.moments[chain] if whole else self.rest[chain]
            into.merge(Group.of(draws[max(0, self.tune - first) :]))

    def forget(self, run: Run) -> None:
        """Let a chain begin anew."""
        self.handed[run.number] = 0
        if self.moments:
            self.moments[run.number] = Group(self.target.size)
            self.rest[run.number] = Group(self.target.size)

    def save(self, run: Run, now: bool = False) -> None:
        """Keep what it takes to go on, if this is a record that does."""
        if self.watched and not now and run.done > 1.2 * self.handed[run.number]:
            run.hand_over()

    def state(self, chain: int) -> dict[str, Any]:
        """What has been computed of a chain's whole blocks."""
        return {"moments": vars(self.moments[chain]).copy()} if self.moments else {}

    def resume(self, chain: int, state: Mapping[str, Any]) -> None:
        """Take up what another record's `state` says."""
        if self.moments:
            vars(self.moments[chain]).update(state["moments"])

    def groups(self, length: int, chains: Sequence[int]) -> dict[str, xr.Dataset]:
        """The groups of the container, of the first `length` draws of these chains."""
        groups: dict[str, xr.Dataset] = {}
        for prefix, part in self.parts.items():
            if min(length, part.stop) > part.start:
                part.keep(chains)
                found = part.groups(min(length, part.stop) - part.start)
                groups |= {prefix + name: dataset for name, dataset in found.items()}
        return groups

    def present(self, length: int) -> xr.Dataset:
        """The posterior of the first `length` draws, those of tuning included."""
        part = self.parts[""]
        return named_dataset(self.target.model, _first(part.posterior, length - self.tune))

    def seen(self) -> dict[str, xr.Dataset]:
        """Copies of the groups as far as all chains have handed over draws."""
        chains = [i for i, n in enumerate(self.handed) if n > self.tune]
        if not chains:
            raise ValueError("There are no draws yet.")
        length, found = min(self.handed[i] for i in chains), copy(self)
        found.parts = {prefix: part.copied(length) for prefix, part in self.parts.items()}
        return found.groups(length, chains)

    def distance(self) -> dict[str, float | str]:
        """How far the draws' mean is from the center in posterior sds, for the worst parameter."""
        pooled = Group(self.target.size)
        for one in [*self.moments, *self.rest]:
            pooled.merge(one)
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
                stacklevel=5,
            )


class Part:
    """Arrays for draws `start` to `stop` of all chains, written once and never copied.

    A variable without a transform has one array, read-only in the end, for both groups, if `share`.
    """

    def __init__(
        self,
        record: Record,
        start: int,
        stop: int,
        make: Arrays,
        share: bool = True,
    ):
        self.target, self.transform = record.target, record.transform
        self.start, self.stop, self.values = start, stop, record.values
        self.piece = record.piece
        lead = (record.chains, stop - start)
        shapes, kinds = self.transform.shapes, self.transform.dtypes
        self.posterior = {
            name: make("posterior", name, lead + shapes[name], kinds[name]) for name in shapes
        }
        same = {v: n for n, v in self.transform.same.items() if share and kinds[n] == np.float64}
        self.shared = {p.name: same[p.name] for p in self.values if p.name in same}
        own = [p for p in self.values if p.name not in self.shared]
        real = np.dtype(float)
        self.draws = {p.name: make(UNCONSTRAINED, p.name, lead + p.shape, real) for p in own}
        self.gradients = {p.name: make(GRADIENT, p.name, lead + p.shape, real) for p in self.values}
        self.steps = make("sample_stats", "step_size", lead, real)

    def put(
        self, chain: int, first: int, draws: np.ndarray, gradients: np.ndarray, steps: np.ndarray
    ) -> None:
        """Take over what a block has of these draws."""
        begin, end = max(first, self.start), min(first + len(draws), self.stop)
        if begin >= end:
            return
        source = slice(begin - first, end - first)
        place = slice(begin - self.start, end - self.start)
        for name, value in self._computed(draws[source]).items():
            self.posterior[name][chain, place] = value
        for p in self.values:
            for flat, arrays in ((draws, self.draws), (gradients, self.gradients)):
                if p.name in arrays:
                    value = flat[source, p.start : p.stop]
                    arrays[p.name][chain, place] = value.reshape(end - begin, *p.shape)
        self.steps[chain, place] = steps[source]

    def copied(self, length: int) -> Part:
        """The draws before `length` in arrays of their own."""
        other, n = copy(self), max(0, min(length, self.stop) - self.start)
        other.steps = self.steps[:, :n].copy()
        for name in ("posterior", "draws", "gradients"):
            arrays = getattr(self, name)
            setattr(other, name, {v: a[:, :n].copy() for v, a in arrays.items()})
        return other

    def _computed(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """The variables of the posterior."""
        pieces = range(0, len(draws), self.piece)
        computed = [self.transform(draws[i : i + self.piece]) for i in pieces]
        if len(computed) == 1:
            return computed[0]
        return {name: np.concatenate([one[name] for one in computed]) for name in computed[0]}

    def keep(self, chains: Sequence[int]) -> None:
        """Forget all other chains."""
        if len(chains) == len(self.steps):
            return
        self.steps = self.steps[chains]
        for arrays in (self.posterior, self.draws, self.gradients):
            arrays.update((name, array[chains]) for name, array in arrays.items())

    def groups(self, n: int) -> dict[str, xr.Dataset]:
        """Groups by name, of the first n draws."""
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
