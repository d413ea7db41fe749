# SPDX-License-Identifier: Apache-2.0
"""Rows that matter more are seen more often: strata by influence, and a share of each per batch.

The influence sᵢ of a row is what it contributes to the precision of the posterior, summed over its
directions: the mean of −δᵀ ℓᵢ″ δ over displacements δ of the posterior, got from second differences
of ℓᵢ. In sum it is the number of parameters that the data determine. A row that carries a parameter
alone has sᵢ near 1, one of m rows of a group 1/m, whatever else is in the model.

A row that is in the share r of all batches adds (1/r − 1) sᵢ² to the noise of a control variate, so
m of them (1/r − 1) / m to that of the direction they carry. That is the same for all directions if
r = s / (s + c), and a batch then has about as many rows as there are parameters, times 1/c.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pymc_sgcv.rows.population import SAMPLE
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center

_PAIRS = 16
_WIDTH = 4.0
"""Influences within a stratum differ by this factor."""
_FEWEST = 64
"""A stratum with fewer rows is made one with the next."""
_FIRST = 0.1
"""c, before the noise is known."""


def influences(
    problem: Problem, center: Center, plain: bool, rng: np.random.Generator
) -> list[np.ndarray]:
    """The influence of every row of each plate, and of those that it stands for.

    For the `plain` minibatch gradient it is ℓᵢ′ itself that counts, in the same units.
    """
    coordinates, d = problem.coordinates(center.degree), problem.size
    moves = center.factor.apply(rng.standard_normal((_PAIRS, d)))
    points = [center.position[None], center.position + moves, center.position - moves]
    theta = coordinates.place(np.concatenate(points))
    found: list[list[np.ndarray]] = [[] for _ in problem.target.plates]
    for number, terms in problem.row_terms(theta):
        middle, up, down = terms[0], terms[1 : _PAIRS + 1], terms[_PAIRS + 1 :]
        change = 0.5 * (up - down) if plain else up + down - 2 * middle
        change = np.nan_to_num(np.abs(change), nan=0.0, posinf=0.0)
        found[number].append(np.sqrt((change**2).mean(0)) if plain else change.mean(0))
    scores = [np.concatenate(parts) for parts in found]
    for number, score in enumerate(scores):
        weight = problem.multiplicity(number)
        if weight is not None:
            score *= weight
    return scores


def strata(scores: np.ndarray) -> np.ndarray | None:
    """The number of each row's stratum, least influence first; None if one will do."""
    highest = scores.max(initial=0.0)
    if not highest > 0:
        return None
    level = np.log(np.maximum(scores, highest * 1e-8) / highest) / np.log(_WIDTH)
    labels = np.floor(level - level.min()).astype(int)
    counts = np.bincount(labels)
    target, rows = np.zeros(len(counts), dtype=np.int8), 0
    for k in range(1, len(counts)):  # a few rows join those with more influence, never with less
        rows += counts[k - 1]
        full = rows >= _FEWEST
        target[k] = target[k - 1] + full
        rows = 0 if full else rows
    labels = target[labels]
    return labels if labels.max() > 0 else None


def stratify(problem: Problem, scores: list[np.ndarray], keeps_size: bool) -> bool:
    """Lay out `problem` in strata; whether any plate has more than one.

    With `keeps_size` a minibatch has as many rows of each plate as now, else what c says. A sample
    of the rows is in strata already.
    """
    samples = problem.layout.samples if problem.population == SAMPLE else ()
    labels: tuple[np.ndarray | None, ...] = tuple(sample.labels for sample in samples)
    labels = labels or tuple(strata(one) for one in scores)
    if all(one is None for one in labels):
        return False
    sizes: list[int] = []
    now = [plate.batch_size for plate in problem.target.plates]
    for own, score, size in zip(labels, scores, now, strict=True):
        groups = [score] if own is None else [score[own == k] for k in range(own.max() + 1)]
        counts = np.array([len(group) for group in groups])
        typical = np.array([np.sqrt(np.mean(group**2)) for group in groups])
        sizes += _allocated(counts, typical, size if keeps_size else None)
    problem.lay_out(replace(problem.layout, batch_sizes=tuple(sizes), strata=labels))
    return True


def _allocated(counts: np.ndarray, scores: np.ndarray, total: int | None) -> list[int]:
    """Rows of each stratum in a batch, by the rule r = s / (s + c), or so that they are `total`."""

    def sizes(c: float) -> np.ndarray:
        return np.clip(np.ceil(counts * scores / (scores + c)), 1, counts).astype(int)

    if total is None:
        return sizes(_FIRST).tolist()
    low, high = 1e-12, 1e12  # the more, the fewer rows
    for _ in range(200):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if sizes(middle).sum() > total else (low, middle)
    return sizes(high).tolist()
