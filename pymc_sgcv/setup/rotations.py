# SPDX-License-Identifier: Apache-2.0
"""Factors of a matrix factorisation: directions in which the likelihood does not change at all.

A likelihood that sees A (n × k) and B (m × k) only in A Bᵀ stays the same for A M and B M⁻ᵀ with
any regular k × k matrix M. Its derivative in such a direction, (A S, −B Sᵀ), is then zero at every
point: one gradient at a random point and one random S tell, to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, product

import numpy as np

from pymc_sgcv.errors import warn
from pymc_sgcv.model.target import Parameter
from pymc_sgcv.rows.problem import Problem

_MOST_FACTORS = 200
_ROUNDING = 1e-9


def warn_about_rotations(problem: Problem, rng: np.random.Generator) -> None:
    """Say of which variables only a product is known."""
    for first, second, k in rotations(problem, rng):
        product = f"{first} and {second}" if first != second else first
        warn(
            f"The likelihood depends on {product} through a product only, in which their {k} "
            f"factors may be mixed at will: {k * k} directions, of which the priors leave at "
            "least the rotations as they are. Chains stay around one of many equivalent "
            "solutions, and step sizes and checks are those of the flattest directions: use "
            "predictions, which depend on the product, and not the factors. To use these, fix "
            "some of them (zeros above the diagonal of k rows, positive values on it)."
        )


def rotations(problem: Problem, rng: np.random.Generator) -> list[tuple[str, str, int]]:
    """Names of pairs of variables whose factors may be mixed, and how many factors these have."""
    tables = [p for p in problem.target.parameters if len(p.shape) == 2 and min(p.shape) > 1]
    pairs = [pair for pair in combinations_with_replacement(tables, 2) if any(_axes(*pair))]
    if not pairs:
        return []
    point = problem.target.flatten(problem.target.start) + rng.normal(size=problem.size)
    with np.errstate(all="ignore"):
        gradient = problem.likelihood_gradient(point[None])[0]
    found = []
    for a, b in pairs:
        for one, other in _axes(a, b):
            k = a.shape[one]
            mixing = rng.normal(size=(k, k))
            if a is b:  # A Aᵀ knows nothing of rotations only
                mixing = mixing - mixing.T
            along, size = _along(a, one, mixing, point, gradient)
            against, more = 0.0, 0.0
            if a is not b:
                against, more = _along(b, other, -mixing.T, point, gradient)
            seen = a is b or min(size, more) > 0
            if seen and abs(along + against) < _ROUNDING * (size + more):
                found.append((a.rv_name, b.rv_name, k))
                break
    return found


def _axes(a: Parameter, b: Parameter) -> Iterator[tuple[int, int]]:
    """Axes of either that may be those of factors: as long as each other, shorter than the rest."""
    for one, other in product((1, 0), (1, 0)):
        k = a.shape[one]
        fits = k == b.shape[other] and 1 < k <= _MOST_FACTORS
        if fits and (a is not b or one == other):
            yield one, other


def _along(
    p: Parameter, axis: int, mixing: np.ndarray, point: np.ndarray, gradient: np.ndarray
) -> tuple[float, float]:
    """The derivative in the direction A S, and the sum of the moduli of its terms."""
    values, slopes = (_factors_last(p, axis, x) for x in (point, gradient))
    terms = slopes * (values @ mixing)
    return float(terms.sum()), float(np.abs(terms).sum())


def _factors_last(p: Parameter, axis: int, x: np.ndarray) -> np.ndarray:
    table = x[p.start : p.stop].reshape(p.shape)
    return table if axis == 1 else table.T
