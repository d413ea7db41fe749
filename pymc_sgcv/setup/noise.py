# SPDX-License-Identifier: Apache-2.0
"""Measure the noise of a gradient estimator, in coordinates whitened by the posterior."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from scipy.linalg import eigh

from pymc_sgcv.kernel.chain import Chain, Divergence, Method
from pymc_sgcv.kernel.dynamics import BAOAB
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE, SAGA, SAGA_BLOCKS, STANDARD
from pymc_sgcv.kernel.preconditioners import COMPLETE_LIMIT, Preconditioner
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center
from pymc_sgcv.setup.probes import FEW

FURTHEST = 2.0
"""Standard deviations that a gradient may move a coordinate by in one iteration."""
_MUCH_WORK, _PARTS = 1_000_000, 4
"""Rows in all pairs of estimates from which on these are made in threads, and in how many parts."""
MOST_NUMBERS = 20_000_000
"""What is kept of a pilot or of pairs of estimates at once: 160 MB."""


def pairs(d: int) -> int:
    """How many pairs of estimates tell the noise in d directions: 2000 at most, 100 at least.

    Of many parameters only coordinates are looked at, for which fewer will do.
    """
    if d <= COMPLETE_LIMIT:
        return int(np.clip(20 * d, 800, 2000))
    return int(np.clip(200_000 // d, 100, 500))


def control_variate(center: Center) -> Method:
    """SGLD-CV as the pilot runs it: preconditioned by the covariance at the center."""
    return Method(
        CONTROL_VARIATE,
        BAOAB,
        center.factor,
        furthest=FURTHEST,
        center=center.theta,
        constant=center.likelihood_gradient,
        exponents=center.exponents,
        degree=center.degree,
        follows=center.follows,
    )


def around(center: Center, rng: np.random.Generator, count: int | None = None) -> np.ndarray:
    """Positions of the Gaussian that the center stands for; by default enough for the noise."""
    d = len(center.theta)
    return center.position + center.factor.apply(rng.standard_normal((count or pairs(d), d)))


def fixed_center(method: Method) -> Method:
    """The method, with a control variate at a fixed center in place of one that moves."""
    if method.fixes_center or method.estimator == STANDARD:
        return method
    return replace(method, estimator=CONTROL_VARIATE, refresh=0)


def gradient_noise(
    problem: Problem,
    method: Method,
    draws: np.ndarray,
    factor: Preconditioner,
    rng: np.random.Generator,
) -> np.ndarray:
    """Second moments of the gradient noise in whitened coordinates, from pairs of estimates.

    Two independent estimates at the same point differ by noise alone: V = E[(ĝ₁−ĝ₂)(ĝ₁−ĝ₂)ᵀ]/2.
    """
    stand_in = fixed_center(method)
    moving = stand_in is not method
    points = draws[np.linspace(0, len(draws) - 1, pairs(problem.size)).astype(int)]
    differences = _pair_differences(problem, stand_in, points, rng)
    finite = np.isfinite(differences).all(1)
    if not finite.any():
        raise Divergence(
            "The gradient is not finite at any of the points around the center: the posterior is "
            "far from Gaussian there, or improper. Check the priors, or give starting values."
        )
    differences = differences[finite]
    # Reference points of SAGA and SVRG are spread like the chain itself: twice the variance of a
    # fixed center. The rows of a block share theirs, so its distance from the rest stays whole.
    scale = 0.5 * (2.0 if moving else 1.0)
    shared = 1.0 if method.estimator == SAGA_BLOCKS else 0.0
    if method.estimator == SAGA and problem.layout.subsampling == "block":
        shared = 0.7  # two or three reference points to a block
    noise = factor.moments(factor.apply_transposed(differences), scale)
    if not factor.complete:
        noise = _steadied(noise, len(differences), problem)
    return noise + shared * factor.identity()


def _pair_differences(
    problem: Problem, method: Method, points: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Differences of two estimates at each of the points; in threads where that is much work.

    In the same parts whatever the cores, for the same result.
    """
    if len(points) * problem.batch_rows < _MUCH_WORK:
        return Chain(problem, method).pair_differences(points, rng)
    parts = np.array_split(points, _PARTS)
    chains = [Chain(problem, method) for _ in parts]
    rngs = [np.random.default_rng(rng.integers(2**63)) for _ in parts]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.concatenate(list(pool.map(Chain.pair_differences, chains, parts, rngs)))


def _steadied(noise: np.ndarray, count: int, problem: Problem) -> np.ndarray:
    """Noise of many parameters, without what chance alone spreads it by.

    The largest of thousands of mean squares of `count` numbers is half as large again by chance.
    Logarithms within a variable are drawn to their mean by the share of their variance that is
    chance, 2 / count, but for those that are further away than chance takes any: groups of about
    equal size come out alike, a few that are noisier than the rest stay so.
    """
    out = np.array(noise)
    for p in problem.target.parameters:
        own = np.log(np.maximum(noise[p.start : p.stop], 1e-300))
        if len(own) > FEW:
            way, chance = own - own.mean(), 2 / count
            shared = min(1.0, chance / max(way.var(), 1e-300))
            near = np.abs(way) < np.sqrt(2 * np.log(len(own)) * chance)
            out[p.start : p.stop] = np.exp(own - np.where(near, shared * way, 0.0))
    return out


def line(x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The least-squares line of each column of g on the columns of x, both centred.

    Eigenvalues and eigenvectors of xᵀx, xᵀg along these, and the variance of g around the line.
    From moments alone: nothing of the size of the draws is made.
    """
    values, vectors = eigh(x.T @ x)
    along = vectors.T @ (x.T @ g)
    share = along**2 / np.maximum(values, 1e-12 * values[-1])[:, None]
    rest = np.maximum(np.einsum("ij,ij->j", g, g) - share.sum(0), 0.0) / len(x)
    return values, vectors, along, rest


def unexplained(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Variance of each column of g around its least-squares line on the columns of x."""
    return line(x, g)[-1]


def worst(factor: Preconditioner, noise: np.ndarray) -> float:
    """The noise variance in the worst whitened direction."""
    return max(factor.largest(noise), 1e-12)  # none at all where a minibatch is all there is
