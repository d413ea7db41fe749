# SPDX-License-Identifier: Apache-2.0
"""Estimators of the gradient of the log posterior from a minibatch.

Each fills `out` with ĝ(θ), E ĝ(θ) = ∇ log p(θ | data). They know nothing of the dynamics that use
them. `points` holds θ in its first row and the center θ̂ in its second.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pymc_sgcv.engine.native import call, clear, compiled, put
from pymc_sgcv.engine.xoshiro import below
from pymc_sgcv.rows.minibatch import (
    BATCH,
    FULL_TABLE,
    FUNCTION,
    METHOD,
    N_ROWS,
    PIECE,
    PIECES,
    add_batch_gradient,
    add_pieces,
    add_row_sum,
    choose,
    row_of,
)


class Kind(IntEnum):
    """The estimators, as numbers for compiled code."""

    STANDARD, CONTROL_VARIATE, SAGA, SAGA_BLOCKS = range(4)

    @property
    def tabled(self) -> bool:
        """Whether it keeps a table of past gradients."""
        return self in (SAGA, SAGA_BLOCKS)


STANDARD, CONTROL_VARIATE, SAGA, SAGA_BLOCKS = Kind
_FURTHEST = 5.0
"""|log ρ| grows no further."""


class Estimator(NamedTuple):
    """What compiled code needs to estimate a gradient.

    Attributes
    ----------
    kind
        One of the estimators above.
    prior, plates
        Records (see `pymc_sgcv.rows.minibatch`) of ℓ₀ and of every plate.
    points
        (2, d): θ and the center θ̂.
    constant
        Σᵢ ℓᵢ′(θ̂), of (d,).
    exponents
        α, of (d,): by how much the control variate follows each parameter; 0 leaves it constant.
    refresh
        Iterations after which θ̂ moves to where the chain stands (SVRG); 0: never.
    tables, sums, fresh
        SAGA's tables of gradients, their sums, and room for the gradients of one minibatch. Without
        tables, None, nothing that needs them is compiled.
    work
        (2, d) numbers of scratch.
    """

    kind: int
    prior: np.ndarray
    plates: np.ndarray
    points: np.ndarray
    constant: np.ndarray
    exponents: np.ndarray
    refresh: int
    tables: tuple | None
    sums: np.ndarray
    fresh: np.ndarray
    work: np.ndarray


@compiled
def estimate(estimator, rng, out):
    """Fill `out` with an estimate of the gradient at the first of the points."""
    e = estimator
    clear(out)
    add_prior_gradient(e.prior, e.points, out)
    if e.kind == STANDARD:
        standard(e.plates, e.points, rng, out)
    elif e.kind == CONTROL_VARIATE:
        control_variate(e, rng, out)
    else:
        _by_tables(e.kind, e.plates, e.points, e.tables, e.sums, e.fresh, rng, out)


@compiled
def recenter(estimator):
    """Move the center to where the chain stands: one pass over the data (Johnson & Zhang 2013)."""
    e = estimator
    put(e.points[0], e.points[1])
    clear(e.work[0])
    for p in range(len(e.plates)):
        plate = e.plates[p]
        ones = np.ones(plate[PIECE])
        add_row_sum(plate, e.points[1:], 0, plate[N_ROWS], ones, e.work[:1])
    put(e.work[0], e.constant)


@compiled
def add_prior_gradient(prior, points, out):
    """Add ∇ℓ₀(θ) to `out`."""
    call(prior[FUNCTION], points.ctypes.data, 1, 0, prior[FULL_TABLE], 0, 0, out.ctypes.data)


@compiled
def standard(plates, points, rng, out):
    """ℓ₀′(θ) + (N/n) Σ ℓᵢ′(θ), eq. (2) of the paper (there for −log p)."""
    for p in range(len(plates)):
        plate = plates[p]
        choose(plate, rng)
        add_batch_gradient(plate, points, 1, out)


@compiled
def control_variate(estimator, rng, out):
    """ℓ₀′(θ) + Σ (1/pᵢ) ℓᵢ′(θ)/n + ρ(θ) (Σᵢ ℓᵢ′(θ̂) − Σ (1/pᵢ) ℓᵢ′(θ̂)/n), eq. (4) of the paper.

    `constant` is the full sum Σᵢ ℓᵢ′(θ̂). The prior at θ̂ cancels against that in the full gradient.
    The paper has ρ = 1. The mean of the second part is zero whatever ρ is: componentwise
    ρⱼ = exp(αⱼ (θⱼ − θ̂ⱼ)) lets it follow a gradient that grows or dies away exponentially with its
    parameter, as those of transformed parameters do (the logarithm of a scale near 0). That part
    is left in the second row of `work`.
    """
    e = estimator
    clear(e.work[0])
    clear(e.work[1])
    for p in range(len(e.plates)):
        plate = e.plates[p]
        choose(plate, rng)
        if plate[METHOD] == PIECES:
            add_pieces(plate, e.points, e.work)
        else:
            add_batch_gradient(plate, e.points, 2, e.work)
    for j in range(len(out)):
        e.work[1, j] = e.constant[j] - e.work[1, j]
        if e.exponents[j] != 0.0:
            way = e.exponents[j] * (e.points[0, j] - e.points[1, j])
            e.work[1, j] *= np.exp(min(max(way, -_FURTHEST), _FURTHEST))
        out[j] += e.work[0, j] + e.work[1, j]


@compiled
def _by_tables(kind, plates, points, tables, sums, fresh, rng, out):
    if tables is None:  # numba leaves out what follows, for an argument that is always None
        return
    if kind == SAGA:
        saga(plates, points, tables, sums, fresh, rng, out)
    else:
        saga_blocks(plates, points, tables, sums, fresh, rng, out)


@compiled
def saga(plates, points, tables, sums, fresh, rng, out):
    """ℓ₀′(θ) + (N/n) Σ (ℓᵢ′(θ) − αᵢ) + Σ α, then αᵢ ← ℓᵢ′(θ) for the rows seen (Dubey et al. 2016).

    The table is changed only after the whole minibatch is summed: rows drawn twice stay unbiased.
    """
    one = np.ones(1)
    for p in range(len(plates)):
        plate, table, total = plates[p], tables[p], sums[p]
        n = plate[BATCH]
        choose(plate, rng)
        scale = plate[N_ROWS] / n
        for j in range(len(out)):
            out[j] += total[j]
        for i in range(n):
            row = row_of(plate, i)
            clear(fresh[i])
            add_row_sum(plate, points[:1], row, row + 1, one, fresh[i : i + 1])
            for j in range(len(out)):
                out[j] += scale * (fresh[i, j] - table[row, j])
        for i in range(n):
            _replace(table, row_of(plate, i), fresh[i], total)


@compiled
def saga_blocks(plates, points, tables, sums, fresh, rng, out):
    """SAGA with one entry per fixed block of n rows: ℓ₀′(θ) + B (G_b(θ) − T_b) + Σ T."""
    for p in range(len(plates)):
        plate, table, total = plates[p], tables[p], sums[p]
        b = below(rng, len(table))
        start = b * plate[BATCH]
        clear(fresh[0])
        ones = np.ones(plate[BATCH])
        stop = min(start + plate[BATCH], plate[N_ROWS])
        add_row_sum(plate, points[:1], start, stop, ones, fresh[:1])
        for j in range(len(out)):
            out[j] += len(table) * (fresh[0, j] - table[b, j]) + total[j]
        _replace(table, b, fresh[0], total)


@compiled
def _replace(table, row, new, total):
    """Put `new` into a row of the table and keep the running sum of what is stored."""
    for j in range(len(new)):
        old = np.float64(table[row, j])
        table[row, j] = new[j]
        total[j] += np.float64(table[row, j]) - old


@compiled
def fill_table(plate, points, rows_per_entry, table, total):
    """Fill a SAGA table at the first of `points`, one entry per `rows_per_entry` rows."""
    ones, entry = np.ones(rows_per_entry), np.empty((1, points.shape[1]))
    for e in range(len(table)):
        start = e * rows_per_entry
        clear(entry[0])
        stop = min(start + rows_per_entry, plate[N_ROWS])
        add_row_sum(plate, points[:1], start, stop, ones, entry)
        put(entry[0], table[e])
        for j in range(len(total)):
            total[j] += table[e, j]
