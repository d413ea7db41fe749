# SPDX-License-Identifier: Apache-2.0
"""Which rows minibatches come from: the model's arrays, all rows read in, a sample, or a copy."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pymc_sgcv.engine.compile import Gradient
from pymc_sgcv.model.declared import head_of, some_rows
from pymc_sgcv.model.target import Plate, Target
from pymc_sgcv.rows.full_pass import all_rows, as_rows
from pymc_sgcv.rows.sample import Sample, whole

MODEL, MEMORY, SAMPLE, DISK = "model", "memory", "sample", "disk"
"""The model's own arrays; all rows read into memory; some that stand for all; a copy on disk."""
POPULATIONS = ("auto", MEMORY, SAMPLE, DISK)
"""What a user may ask for."""

_log = logging.getLogger("pymc.sgcv")
_FEW_ROWS, _FEW_BYTES = 900_000, 1 << 29
"""So many rows are always all looked at: nothing is gained by a sample."""
_LARGEST_SHARE, _LARGEST_BYTES = 0.25, 1 << 30
"""A sample that would be a larger share of the rows, or more memory, is none."""
_FIRST_ROWS, _FIRST_EACH = 50_000, 100
"""Rows of the sample from which the first center comes: so many, or so many for each parameter."""
_REACH = 0.02
"""More rows, if the first center would be more than this / c posterior sds off.

A pass leaves the share √c · √c of that, and the second of 0.03 sd is the last (`setup.represent`).
"""
_FIRST_MOST, _FIRST_SHARE = 2_000_000, 0.02
"""But no more than so many, nor a larger share of all."""
_WASTE = 2.0
"""A sample has at most so many times the rows of one with p = s / c for each of them."""


@dataclass(frozen=True)
class Population:
    """How a step method wants its rows: what kind, where a copy may lie, how small the error.

    With `all_rows` no sample will do.
    """

    kind: str = "auto"
    directory: str | Path | None = None
    error: float = 0.01
    all_rows: bool = False

    @property
    def influence(self) -> float:
        """c: rows of this influence and more are always in the sample."""
        return (2 * self.error) ** 2


def choose_population(target: Target, wanted: Population, subsampling: str) -> str:
    """Where the rows of all plates will be."""
    sources = [plate.sources() for plate in target.plates]
    bytes_in_all = sum(source.nbytes for own in sources for source in own)
    rows_in_all = sum(plate.n_rows for plate in target.plates)
    in_model = all(head_of(v) is None for plate in target.plates for v in plate.data)
    resident = all(source.resident for own in sources for source in own)
    if wanted.kind == SAMPLE and (wanted.all_rows or target.others or subsampling != "block"):
        raise ValueError(
            'population="sample" goes with a control variate at a fixed center, for all variables '
            "of the model and with blocks of rows: SGLDCV, SGHMCCV, SGNHTCV, or their plain kin."
        )
    own = MODEL if in_model and resident else MEMORY
    if wanted.kind != "auto":
        return own if wanted.kind == MEMORY else wanted.kind
    few = rows_in_all <= _FEW_ROWS and bytes_in_all <= _FEW_BYTES
    if few or subsampling != "block":
        return own
    whole = wanted.all_rows or target.others or any(plate.local for plate in target.plates)
    needed = min(rows_in_all, _WASTE * target.size / wanted.influence)
    small = needed * bytes_in_all / rows_in_all <= _LARGEST_BYTES
    if needed <= _LARGEST_SHARE * rows_in_all and small and not whole:
        return SAMPLE
    return own if bytes_in_all <= available_memory() / 2 else DISK


def available_memory() -> float:
    """Bytes that can be had now, as far as the system says."""
    try:
        with open("/proc/meminfo") as file:
            found = dict(line.split(":") for line in file)
        return float(found["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        try:
            return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) / 2
        except (ValueError, OSError, AttributeError):
            return float(1 << 33)


def first_samples(
    target: Target,
    gradients: Sequence[Gradient],
    kind: str,
    wanted: Population,
) -> tuple[Sample, ...]:
    """The rows to begin with, plate by plate; of a sample the first one, plain and rough."""
    return tuple(
        _first_sample(target, plate, gradient, kind, wanted)
        for plate, gradient in zip(target.plates, gradients, strict=True)
    )


def _first_sample(
    target: Target,
    plate: Plate,
    gradient: Gradient,
    kind: str,
    wanted: Population,
) -> Sample:
    sources = plate.sources()
    if kind == SAMPLE:
        rows = some_rows(sources, _first_rows(target.size, plate.n_rows, wanted.influence))
        return whole(as_rows(gradient, rows), plate.n_rows)
    if kind == DISK:
        from pymc_sgcv.sources.spill import shuffled_copy

        _log.info("Copying the %d rows of '%s' in random order.", plate.n_rows, plate.name)
        kinds = [row.dtype for row in gradient.row_types]
        return whole(shuffled_copy(sources, kinds, wanted.directory), in_order=True)
    return whole(all_rows(gradient, sources))


def _first_rows(d: int, n_rows: int, c: float) -> int:
    """How many rows the first center comes from: √(d N / m) posterior sds off with m of them."""
    near = d * n_rows * (c / _REACH) ** 2
    near = min(near, _FIRST_MOST, _FIRST_SHARE * n_rows)
    return min(n_rows, max(_FIRST_ROWS, _FIRST_EACH * d, round(near)))
