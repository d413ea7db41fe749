# SPDX-License-Identifier: Apache-2.0
"""A pass over all rows of a plate, wherever they are: their gradient, and a sample of them.

What is done with a block of rows is a `Job`, which can be sent to where the rows are. There it
compiles the gradient once in a process, or loads it from the cache on disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import cloudpickle
import numpy as np
import pytensor.tensor as pt

from pymc_sgcv.engine.compile import Gradient, compile_plate, compile_row_terms
from pymc_sgcv.model.target import Plate, Target
from pymc_sgcv.rows.minibatch import FULL_TABLE, FUNCTION, RECORD_LENGTH, add_row_sum
from pymc_sgcv.rows.sample import LEVELS, Sample, collected
from pymc_sgcv.rows.sums import rows_of_a_piece
from pymc_sgcv.rows.terms import judged
from pymc_sgcv.sources.base import Source, as_type
from pymc_sgcv.sources.passes import over_rows

_BLOCK_BYTES = 1 << 24
LEAST_INFLUENCE = 1 / 8
"""No row counts for less than this share of the mean: what a few displacements say is rough."""


class Code:
    """The compiled functions of a plate, which a process that gets this makes once for itself."""

    def __init__(self, target: Target, plate: Plate, kwargs: dict | None, gradient: Gradient):
        bare = replace(
            plate, data=(), declared_rows=(), declared_loglike=plate.loglike, outcomes=()
        )
        nothing = cast(Any, None)  # a model brings its data along
        self._target = replace(target, model=nothing, start={}, prior=pt.constant(0.0), plates=())
        self._plate, self._kwargs = bare, kwargs
        self._made: dict[str, Gradient] = {"gradient": gradient}

    @property
    def gradient(self) -> Gradient:
        """Σ wᵢ ∇ℓᵢ."""
        return self._get("gradient", compile_plate)

    @property
    def terms(self) -> Gradient:
        """ℓᵢ, row by row."""
        return self._get("terms", compile_row_terms)

    def _get(self, name: str, compiles: Callable[..., Gradient]) -> Gradient:
        if name not in self._made:
            self._made[name] = compiles(self._target, self._plate, self._kwargs)
        return self._made[name]

    def __reduce__(self) -> tuple:
        state = cloudpickle.dumps((self._target, self._plate, self._kwargs))
        return _code_of, (hashlib.sha256(state).hexdigest(), state)


_CODES: dict[str, Code] = {}


def _code_of(digest: str, state: bytes) -> Code:
    """The code that came with an earlier block, or this one."""
    if digest not in _CODES:
        code = object.__new__(Code)
        code._target, code._plate, code._kwargs = cloudpickle.loads(state)
        code._made = {}
        _CODES[digest] = code
    return _CODES[digest]


@dataclass(frozen=True)
class Scoring:
    """How rows are chosen for the sample.

    Their influence is measured at `points`: the middle, and displacements of the posterior from it
    in one direction and the other. `c` is the influence of rows that are always in, `least` the
    smallest that counts.
    """

    points: np.ndarray
    c: float
    least: float


@dataclass
class Found:
    """What a block of rows, or several of them, came to."""

    gradient: np.ndarray
    kept: list[list[np.ndarray]]
    level: list[np.ndarray]
    counts: np.ndarray
    bad: int | None = None


@dataclass(frozen=True)
class Job:
    """What is done with a block of rows."""

    code: Code
    points: np.ndarray
    fixed: dict[str, np.ndarray]
    scoring: Scoring | None = None

    def __call__(self, arrays: list[np.ndarray], first: int) -> Found:
        """The block's gradient at `points`, and the rows of it that are in the sample."""
        gradient = self.code.gradient
        rows = as_rows(gradient, arrays)
        values = gradient.fixed_values(self.fixed)
        total = self._summed(rows, values)
        found = Found(total, [], [], np.zeros(LEVELS, dtype=np.int64))
        if not np.isfinite(total).all():
            found.bad = self._first_bad(rows, values, first)
        if self.scoring is not None and found.bad is None:
            self._choose(rows, first, found)
        return found

    def _summed(self, rows: list[np.ndarray], fixed: list[np.ndarray]) -> np.ndarray:
        """Σ ∇ℓᵢ over these rows, at `points`."""
        gradient, total = self.code.gradient, np.zeros(self.points.shape)
        table = gradient.arguments(rows, fixed)
        record = np.zeros(RECORD_LENGTH, dtype=np.intp)
        record[FUNCTION], record[FULL_TABLE] = gradient.address, table.ctypes.data
        piece = rows_of_a_piece(len(rows[0]), sum(array.strides[0] for array in rows))
        add_row_sum(record, self.points, 0, len(rows[0]), np.ones(piece), total)
        return total

    def _choose(self, rows: list[np.ndarray], first: int, found: Found) -> None:
        assert self.scoring is not None
        how, terms = self.scoring, self.code.terms
        fixed = terms.fixed_values(self.fixed)
        level, taken, found.bad = judged(terms, how.points, rows, fixed, how.c, how.least, first)
        if found.bad is not None:
            return
        found.counts += np.bincount(level, minlength=LEVELS)
        kept = np.flatnonzero(taken)
        found.kept.append([array[kept] for array in rows])
        found.level.append(level[kept])

    def _first_bad(self, rows: list[np.ndarray], fixed: list[np.ndarray], first: int) -> int:
        """The first row whose gradient is not finite."""
        low, high = 0, len(rows[0])
        while high - low > 1:  # halve what holds it
            middle = (low + high) // 2
            total = self._summed([array[low:middle] for array in rows], fixed)
            low, high = (low, middle) if not np.isfinite(total).all() else (middle, high)
        return first + low

    def merge(self, a: Found, b: Found) -> Found:
        """Both of them, the rows of `a` first."""
        bad = b.bad if a.bad is None else a.bad
        return Found(
            a.gradient + b.gradient, a.kept + b.kept, a.level + b.level, a.counts + b.counts, bad
        )


def as_rows(gradient: Gradient, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Rows as the compiled code takes them."""
    kinds = (row.dtype for row in gradient.row_types)
    return [as_type(array, kind) for array, kind in zip(arrays, kinds, strict=True)]


def full_pass(
    code: Code,
    plate: Plate,
    sources: Sequence[Source],
    points: np.ndarray,
    others: Mapping[str, np.ndarray],
    scoring: Scoring | None = None,
    report: Callable[[float], None] | None = None,
    most_bytes: float = np.inf,
) -> tuple[np.ndarray, Sample | None]:
    """Σᵢ ∇ℓᵢ at each of `points` over all rows of a plate, and a sample of them if asked for.

    An error for a sample that takes more than `most_bytes`.
    """
    for source in sources:
        source.check()
    job = Job(code, np.ascontiguousarray(points, dtype=float), dict(others), scoring)
    row_bytes = max(1, sum(s.nbytes // s.n_rows for s in sources))
    at_once = int(np.clip(_BLOCK_BYTES // row_bytes, 1000, 1 << 18))
    total, kept, level = np.zeros(job.points.shape), [], []
    counts, kept_bytes = np.zeros(LEVELS, dtype=np.int64), 0
    for found in over_rows(sources, job, rows_at_once=at_once, report=report):
        if found.bad is not None:
            raise _bad_row(plate, sources, found.bad)
        total += found.gradient
        counts += found.counts
        kept += found.kept
        level += found.level
        kept_bytes += sum(array.nbytes for arrays in found.kept for array in arrays)
        if kept_bytes > most_bytes:
            raise _too_many(plate, sum(map(len, level)), int(counts.sum()))
    for source in sources:
        source.check()
    if scoring is None:
        return total, None
    arrays = [np.concatenate(parts) for parts in zip(*kept, strict=True)]
    return total, collected(arrays, np.concatenate(level), counts, scoring.c)


def _too_many(plate: Plate, kept: int, seen: int) -> ValueError:
    return ValueError(
        f"Of the first {seen:,} rows of '{plate.name}' {kept:,} would have to stand for all, more "
        "than fit in memory: most rows are the only evidence of something, or they are sorted by "
        "what the posterior depends on, so that a first look at some of them did not see the rest. "
        'Pass population="disk", or store the rows in random order.'
    )


def _bad_row(plate: Plate, sources: Sequence[Source], row: int) -> ValueError:
    """Which row has no finite gradient, and which of its values is the cause."""
    for source in sources:
        if source.dtype.kind == "f" and not np.isfinite(source.read(row, row + 1)).all():
            return ValueError(
                f"The data of '{plate.name}' hold NaN or infinite values: {source.where(row)}. "
                "Remove or impute such rows."
            )
    return ValueError(
        f"The gradient of the log-likelihood of '{plate.name}' is not finite for "
        f"{sources[0].where(row)}: the observation is impossible under the model, or nearly so. "
        "Check the data."
    )


def refuse_nan_rows(plate: Plate) -> None:
    """Raise an error that names the first row that holds NaN."""
    sources = plate.sources()
    for found in over_rows(sources, _first_nan, rows_at_once=1 << 17):
        if found is not None:
            raise _bad_row(plate, sources, found)


def _first_nan(arrays: list[np.ndarray], first: int) -> int | None:
    floats = [array for array in arrays if array.dtype.kind == "f"]
    bad = [np.isnan(array).reshape(len(array), -1).any(axis=1) for array in floats]
    rows = [first + int(np.argmax(some)) for some in bad if some.any()]
    return min(rows, default=None)


def all_rows(gradient: Gradient, sources: Sequence[Source]) -> list[np.ndarray]:
    """All rows in memory, of the types that the compiled code takes."""
    n_rows = sources[0].n_rows
    out = [
        np.empty((n_rows, *source.row_shape), kind.dtype)
        for source, kind in zip(sources, gradient.row_types, strict=True)
    ]

    def put(arrays: list[np.ndarray], first: int) -> None:
        for target, rows in zip(out, as_rows(gradient, arrays), strict=True):
            target[first : first + len(rows)] = rows

    done: Iterator[None] = over_rows(sources, put, rows_at_once=1 << 17)
    for _ in done:
        pass
    return out
