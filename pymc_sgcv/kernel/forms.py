# SPDX-License-Identifier: Apache-2.0
"""Products with F of a preconditioner FFᵀ in compiled code, for every kind of F in one form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_sgcv.engine.native import compiled

DENSE, DIAGONAL, LOW_RANK = range(3)


class Form(NamedTuple):
    """F as compiled code takes it, of the same type for every kind.

    Attributes
    ----------
    kind
        One of those above.
    matrix
        F itself if dense, Vᵀ of (k, d) if of low rank, else of no size.
    scales
        S, the diagonal part, of no size if dense.
    stretch
        What low rank adds along the directions V, of (k,), else of no size.
    members, corners
        The blocks of B, which low rank may have between S and the rest: which parameters, (g, m),
        and symmetric matrices, (g, m, m).
    """

    kind: int
    matrix: np.ndarray
    scales: np.ndarray
    stretch: np.ndarray
    members: np.ndarray
    corners: np.ndarray


NO_MEMBERS, NO_CORNERS = np.empty((0, 0), dtype=np.intp), np.empty((0, 0, 0))


@compiled
def apply(form, vector, out):
    """Fill `out` with F times `vector`."""
    if form.kind == DENSE:
        np.dot(form.matrix, vector, out)
    elif form.kind == DIAGONAL:
        _scale(form.scales, vector, out)
    else:
        _stretch(form, vector, out)
        _mix(form, out)
        _scale(form.scales, out, out)


@compiled
def apply_transposed(form, vector, out):
    """Fill `out` with Fᵀ times `vector`."""
    if form.kind == DENSE:
        np.dot(form.matrix.T, vector, out)
    elif form.kind == DIAGONAL:
        _scale(form.scales, vector, out)
    else:
        scaled = np.empty(len(vector))
        _scale(form.scales, vector, scaled)
        _mix(form, scaled)
        _stretch(form, scaled, out)


@compiled
def _scale(scales, vector, out):
    for j in range(len(out)):
        out[j] = scales[j] * vector[j]


@compiled
def _mix(form, vector):
    """Multiply `vector` by B, which is symmetric."""
    m = form.members.shape[1]
    old = np.empty(m)
    for g in range(len(form.members)):
        for a in range(m):
            old[a] = vector[form.members[g, a]]
        for a in range(m):
            total = 0.0
            for b in range(m):
                total += form.corners[g, a, b] * old[b]
            vector[form.members[g, a]] = total


@compiled
def _stretch(form, vector, out):
    """Fill `out` with (I + V diag(stretch) Vᵀ) times `vector`."""
    along = np.empty(len(form.stretch))
    np.dot(form.matrix, vector, along)
    for k in range(len(along)):
        along[k] *= form.stretch[k]
    np.dot(form.matrix.T, along, out)
    for j in range(len(out)):
        out[j] += vector[j]
