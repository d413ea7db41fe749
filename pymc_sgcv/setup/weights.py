# SPDX-License-Identifier: Apache-2.0
"""Preferential subsampling: draw those rows more often whose gradients vary more.

The estimate (1/n) Σ (1/pᵢ) vᵢ of a sum has the least variance for pᵢ ∝ ‖vᵢ‖. For the control
variate vᵢ = ℓᵢ′(θ) − ℓᵢ′(θ̂), which changes with θ: its root mean square over draws around θ̂ stands
in for it, in the metric of the preconditioner, where directions that matter are equally long.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from pymc_sgcv.rows.minibatch import Scratch, row_gradients
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center

PREFERENTIAL = "preferential"
_DRAWS = 6
_CHUNK_NUMBERS = 1 << 20
_UNIFORM_SHARE = 0.1
"""So often are rows drawn uniformly: a row that seemed to matter little keeps a bounded 1/pᵢ."""
_MOST_NUMBERS = 1e10
"""Rows × parameters × points beyond which looking at every row's gradient takes minutes."""


def can_look_at_rows(problem: Problem) -> bool:
    """Whether the gradient of every single row can be computed in reasonable time."""
    return problem.n_rows * problem.size * (_DRAWS + 1) <= _MOST_NUMBERS


def prefer(problem: Problem, center: Center, plain: bool, rng: np.random.Generator) -> None:
    """Lay out `problem` so that rows are drawn with preferential weights.

    Parameters
    ----------
    problem
        The model.
    center
        With a factor of the covariance of the draws around it.
    plain
        Whether the estimator is the standard one, whose noise is that of ℓᵢ′(θ) itself.
    rng
        Draws the points around the center.
    """
    if not can_look_at_rows(problem):
        raise ValueError(
            f'weights="preferential" looks at the gradient of each of {problem.n_rows} rows with '
            f"respect to {problem.size} parameters, which takes too long. Give weights as an array."
        )
    unweighted = (None,) * len(problem.rows)
    problem.lay_out(replace(problem.layout, subsampling="iid", weights=unweighted))
    positions = center.position + center.factor.apply(rng.standard_normal((_DRAWS, problem.size)))
    if not plain:
        positions = np.vstack([center.position, positions])
    weights = tuple(
        _of_plate(rows.scratch(), problem, center, positions, plain) for rows in problem.rows
    )
    problem.lay_out(replace(problem.layout, weights=weights))


def _of_plate(
    scratch: Scratch, problem: Problem, center: Center, positions: np.ndarray, plain: bool
) -> np.ndarray:
    n_rows, (count, d) = scratch.rows.n_rows, positions.shape
    step = max(1, _CHUNK_NUMBERS // (count * d))
    coordinates = problem.coordinates(center.degree)
    points = np.ascontiguousarray(coordinates.place(positions))

    def chunk(start: int) -> np.ndarray:
        g = np.empty((min(step, n_rows - start), count, d))
        row_gradients(scratch.record, points, start, g)
        if coordinates.change is not None:  # each with the Jacobian of its own point
            g = coordinates.turn(np.tile(positions, (len(g), 1)), g.reshape(-1, d)).reshape(g.shape)
        v = g if plain else g[:, 1:] - g[:, :1]
        white = center.factor.apply_transposed(v.reshape(-1, d))
        return np.sqrt((white.reshape(len(g), -1) ** 2).sum(1))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        spread = np.concatenate(list(pool.map(chunk, range(0, n_rows, step))))
    mean = spread.mean()
    if not np.isfinite(mean) or mean == 0:  # rows that do not vary: none is better than another
        return np.ones(n_rows)
    return (1 - _UNIFORM_SHARE) * spread / mean + _UNIFORM_SHARE
