# SPDX-License-Identifier: Apache-2.0
"""Draws that are not kept: taken up into moments block by block, and forgotten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import xarray as xr

from pymc_sgcv.errors import warn
from pymc_sgcv.results import moments
from pymc_sgcv.results.moments import Moments
from pymc_sgcv.results.posterior import named_dataset
from pymc_sgcv.results.running import Running
from pymc_sgcv.results.sketch import Sketch
from pymc_sgcv.sampling.arguments import Asked, checked_step
from pymc_sgcv.sampling.driver import Sampling, record_of
from pymc_sgcv.sampling.record import Part, Record
from pymc_sgcv.sampling.runs import Run, make_runs

_R_HAT = 1.01


class SummaryRecord(Record):
    """A `Record` that keeps moments, and quantiles of some variables.

    Parameters
    ----------
    quantiles
        Names of variables; None: all, if they have no more than 100 components.
    """

    def __init__(self, quantiles: Sequence[str] | None, *args: Any):
        super().__init__(*args)
        shapes, sizes = self.transform.shapes, {}
        for name in self.transform.names:
            sizes[name] = math.prod(shapes[name])
        self.places = _places(sizes)
        few = sum(sizes.values()) <= 100
        named = (list(sizes) if few else []) if quantiles is None else list(quantiles)
        p, q = sum(sizes.values()), sum(v.stop - v.start for v in self.values)
        dense = p + q <= moments.DENSE_COLUMNS
        self.columns = np.concatenate(
            [np.arange(v.start, v.stop) for v in self.values] or [np.empty(0, dtype=int)]
        )
        self.running = [Running(p, q, self._own(p), dense) for _ in range(self.chains)]
        self.sketches = [{name: Sketch(sizes[name]) for name in named} for _ in self.running]
        self.under_way: list[tuple | None] = [None] * self.chains

    def make_parts(self) -> dict[str, Part]:
        """None: draws have no arrays."""
        return {}

    def _own(self, size: int) -> np.ndarray:
        """The column of its own gradient for each component that has one, else −1."""
        own, start = np.full(size, -1), 0
        for v in self.values:
            stop, place = start + v.stop - v.start, self.places.get(v.rv_name)
            if place is not None and place.stop - place.start == stop - start:
                own[place] = np.arange(start, stop)
            start = stop
        return own

    def put(
        self,
        chain: int,
        first: int,
        draws: np.ndarray,
        gradients: np.ndarray,
        steps: np.ndarray,
        whole: bool = True,
    ) -> None:
        """Take up a block."""
        super().put(chain, first, draws, gradients, steps, whole)
        skip = max(0, self.tune - first)
        block = draws[skip:], gradients[skip:]
        self.under_way[chain] = None if whole else tuple(a.copy() for a in block)
        if whole:
            self._add(self.running[chain], self.sketches[chain], *block)

    def _add(
        self,
        running: Running,
        sketches: dict[str, Sketch],
        draws: np.ndarray,
        gradients: np.ndarray,
    ) -> None:
        for start in range(0, len(draws), self.piece):
            part = slice(start, start + self.piece)
            values = self.transform(draws[part])
            flat = [values[name].reshape(len(draws[part]), -1) for name in self.transform.names]
            running.add(np.hstack([*flat, gradients[part][:, self.columns]]).astype(float))
            for name, sketch in sketches.items():
                sketch.add(values[name].reshape(len(draws[part]), -1).astype(float))

    def forget(self, run: Run) -> None:
        """Let a chain begin anew."""
        super().forget(run)
        old, i = self.running[run.number], run.number
        self.running[i] = Running(old.size, old.gradients, old.own, old.dense)
        self.sketches[i] = {name: Sketch(one.size) for name, one in self.sketches[i].items()}
        self.under_way[i] = None

    def summarise(self, chains: Sequence[int], attrs: dict) -> Moments:
        """The result, with the draws of blocks that have not been filled."""
        running, sketches = [], []
        for i in chains:
            one, several, rest = self.running[i], self.sketches[i], self.under_way[i]
            if rest is not None and len(rest[0]):
                one, several = deepcopy(one), deepcopy(several)
                self._add(one, several, *rest)
            running.append(one)
            sketches.append(several)
        by_name = {name: [one[name] for one in sketches] for name in sketches[0]}
        return Moments(self._like(), running, by_name, attrs)

    def _like(self) -> xr.Dataset:
        shapes, names = self.transform.shapes, self.transform.names
        empty = {name: np.broadcast_to(0.0, (1, 1, *shapes[name])) for name in names}
        return named_dataset(self.target.model, empty).isel(chain=0, draw=0, drop=True)


def _places(sizes: dict[str, int]) -> dict[str, slice]:
    places, start = {}, 0
    for name, size in sizes.items():
        places[name] = slice(start, start + size)
        start += size
    return places


class SummarySampling(Sampling):
    """One that ends in moments."""

    record: SummaryRecord

    def package(self, runs: list[Run]) -> Moments:
        """The moments of these chains."""
        return self.record.summarise([run.number for run in runs], self.attributes())

    def result(self) -> Moments:
        """The moments, after a warning if chains do not agree."""
        asked, self.asked.checks = self.asked.checks, False
        found = super().result()
        table = found.summary()
        if asked and np.nanmax(table["r_hat"], initial=0.0) > _R_HAT:
            worst = table["r_hat"].idxmax()
            warn(
                f"R-hat of {worst} is {table['r_hat'].max():.3f}, above {_R_HAT}: the chains do "
                "not agree. Increase draws and tune."
            )
        return found

    def judge(self, idata: Moments) -> Moments:
        """Moments of a second run would be compared with these; that is not done."""
        return idata

    def inspect(self) -> Moments:
        """There is no looking into moments that are being made."""
        raise ValueError('keep="moments" cannot be looked at while it runs: use progress.')


def summarised(asked: Asked, quantiles: Sequence[str] | None) -> SummarySampling:
    """A run that keeps moments alone."""
    if asked.until is not None and asked.until.precise:
        raise ValueError('until={"seconds": ...} is all that keep="moments" can wait for.')
    if unknown := [name for name in quantiles or () if name not in asked.names]:
        raise ValueError(f"quantiles names {unknown}, but what is kept is {asked.names}.")
    step = checked_step(asked.step, asked.model, asked.progressbar)
    tune, chains = asked.lengths(step)
    record = SummaryRecord(quantiles, *record_of(asked, step, chains, tune, asked.draws))
    runs = make_runs(step, record, asked.starts(step, chains))
    return SummarySampling(asked, step, record, runs)
