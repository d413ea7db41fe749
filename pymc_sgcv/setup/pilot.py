# SPDX-License-Identifier: Apache-2.0
"""Refine the center and the preconditioner with short control-variate chains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from pymc_sgcv.kernel.chain import Chain, Divergence
from pymc_sgcv.kernel.preconditioners import Coordinatewise, Dense, Preconditioner, Wide, square
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center, center_at
from pymc_sgcv.setup.centring import best_degree, scale_parameters, widest
from pymc_sgcv.setup.curvature import largest_curvature
from pymc_sgcv.setup.directions import low_rank_factor
from pymc_sgcv.setup.following import follow
from pymc_sgcv.setup.linked import group_blocks
from pymc_sgcv.setup.noise import (
    MOST_NUMBERS,
    around,
    control_variate,
    gradient_noise,
    line,
    worst,
)
from pymc_sgcv.setup.probes import colours, probed_scales
from pymc_sgcv.setup.tuner import resize
from pymc_sgcv.setup.tuning import longest_step, nonlinearity

_ITERATIONS = 4000
_FEWER_ITERATIONS = 1000
"""Where only coordinates and a few directions are refined; fewer by far of longer steps."""
_BENT, _LONG_AT, _LONG = 0.9, 4000, 16_000
"""Where steps will be shorter than the first: iterations at a step of 1, and the most of them."""
_STEP, _LONGER_STEP = 0.2, 0.4
_EVEN = 24
"""Pairs of points at which the score is compared with a line."""
_POINTS = 1
"""Pairs of points over which the curvature of many parameters is averaged."""
_TRUST = 0.3
"""How far, as a prior standard deviation, the precision may be from its first estimate."""
_ROUNDS, _MORE_ROUNDS = 2, 4
"""The latter where covariances are not regressed."""
_APPROACHES, _APPROACH = 10, 400
"""Short runs, and their iterations, until the scales of group effects have come to rest."""
_MOST_UNKNOWN = 0.5
"""Standard deviation of a scale's logarithm that such a run believes in at most."""
_STILL = 1.5
"""Standard deviations that a mean may move, or a Newton step with the mean gradient go: five
standard errors of some ten effective draws."""
_DEGREE_CHANGE = 0.05
_ON_ITS_WAY = 2.0
"""How far a center may be from the mode before the last round, in units of what draws are."""
_NOISE = 1.0
"""Gradient noise, in the worst direction, up to which a pilot of many parameters goes well."""


class Piloted(NamedTuple):
    """What a pilot has found.

    Attributes
    ----------
    center
        The refined one.
    draws, gradients
        Of φ, from the last chain.
    noise
        That of these gradients, in coordinates whitened by the new center's factor; None where
        parameters are too many for it to be of use.
    """

    center: Center
    draws: np.ndarray
    gradients: np.ndarray
    noise: np.ndarray | None


def pilot(
    problem: Problem,
    center: Center,
    rng: np.random.Generator,
    noise: np.ndarray | None = None,
) -> Piloted:
    """Refine the center and the covariance factor.

    The gradients are regressed on the draws: the slope is minus
    the inverse covariance, its root the posterior mean, both far sharper than the draws' own
    moments. Where gradient noise drowns the slope, the first estimate stays. `noise` is that around
    the center, if it is known. Before each round group effects are centred as far as is best at the
    present center.
    """
    draws = center.position[None] if center.degree is None else around(center, rng)
    sizes = problem.layout.batch_sizes
    try:
        return _rounds(problem, center, draws, rng, noise)
    finally:
        problem.resize(sizes)  # a batch that a first guess of the posterior needed is none to keep


def _rounds(
    problem: Problem,
    center: Center,
    draws: np.ndarray,
    rng: np.random.Generator,
    noise: np.ndarray | None,
) -> Piloted:
    """`pilot`, from `draws` to begin with; leaves batches as large as it needed.

    What the step follows is decided by a few draws in a tail: where the posterior is far from
    Gaussian, a longer round comes last.
    """
    rounds, iterations = _ROUNDS if center.factor.complete else _MORE_ROUNDS, None
    for number in range(rounds + 1):
        centred = _centred_anew(problem, center, draws, rng)
        same = centred is center
        points = draws if same and len(draws) > 1 else around(centred, rng)
        draws, gradients = _run(problem, centred, noise if same else None, points, rng, iterations)
        noise, last = None, iterations is not None
        refined = _nearest(problem, centred, draws, gradients, rng)
        if refined is centred:
            last = True
        own = _own_noise(problem, centred, refined, draws, rng)
        center = refined if refined is centred else follow(problem, refined, draws, rng)
        found = Piloted(center, draws, gradients, own)
        if number >= rounds - 1 or _alike(centred, refined):
            iterations = iterations or _further(found)
            last = last or iterations is None
        if last:
            break
    return found


def _nearest(
    problem: Problem,
    center: Center,
    draws: np.ndarray,
    gradients: np.ndarray,
    rng: np.random.Generator,
) -> Center:
    """The center refined, or itself if that leads away from the posterior.

    Where a mode is far from the mean, as that of an item response model, a first run is still on
    its way: a Newton step from there may go too far, and the mean of its draws not.
    """
    size = np.sqrt(problem.size)
    near = max(1.0, size, 2 * center.distance)
    refined = _refined(problem, center, draws, gradients, rng)
    if refined.distance <= near:
        return refined
    if center.factor.complete or isinstance(center.factor, Wide):
        return center
    plain = _refined(problem, center, draws, np.zeros_like(gradients), rng)
    best = min(refined, plain, key=lambda one: np.nan_to_num(one.distance, nan=np.inf))
    return best if best.distance <= max(near, _ON_ITS_WAY * size) else center


def _own_noise(
    problem: Problem,
    old: Center,
    new: Center,
    draws: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray | None:
    """The noise of gradients that were taken around `old`, in the coordinates of `new`."""
    if not new.factor.complete:
        return None
    return gradient_noise(problem, control_variate(old), draws, new.factor, rng)


def _further(found: Piloted) -> int | None:
    """Iterations that tell how far the posterior is from Gaussian; None if it hardly is."""
    if found.noise is None:
        return None
    curved = nonlinearity(found.center.factor, found.draws, found.gradients, found.noise)
    longest = longest_step(curved)
    return int(min(_LONG, _LONG_AT / longest)) if longest < _BENT else None


def approach(problem: Problem, center: Center, rng: np.random.Generator) -> Center:
    """From where a search has left the scales of group effects to where the posterior is.

    A sampler cannot run into the collapse τ → 0 of a joint density: there is no room. Centring and
    curvature are found anew where each short run ends.
    """
    held = scale_parameters(problem.coordinates(center.degree), problem.size)
    for _ in range(_APPROACHES):
        center = _cautious(center, held)
        points = around(center, rng)
        run = _run(problem, center, None, points, rng, _APPROACH)
        draws, gradients = (x[len(x) // 2 :] for x in run)
        position, F = draws.mean(0), center.factor
        spread = F.spread()
        moved = (position - center.position) / spread
        pulled = F.apply(F.apply_transposed(gradients.mean(0))) / spread
        coordinates = problem.coordinates(center.degree)
        degree = best_degree(problem, coordinates, position, draws, rng)
        theta = coordinates.place(position)
        center = center_at(problem, theta, None, degree, spread, F.name == "dense")
        if _at_rest(moved, held) and _at_rest(pulled, held):
            break
    return _cautious(center, held)


def _at_rest(moved: np.ndarray, held: np.ndarray) -> bool:
    """Whether scales of effects have moved little, and the rest as little as ten draws tell."""
    return bool(np.abs(moved[held]).max() < _STILL and np.sqrt(np.mean(moved**2)) < _STILL / 2)


def _cautious(center: Center, held: np.ndarray) -> Center:
    """The same, with short steps for the scales of effects, however little is known of them."""
    most = np.where(held, _MOST_UNKNOWN / center.factor.spread(), 1.0)
    return replace(center, factor=center.factor.scaled(np.minimum(most, 1.0)))


def _alike(old: Center, new: Center) -> bool:
    """Whether center and covariance have hardly changed, so that another round tells no more."""
    change = np.log(old.factor.ratios(new.factor))
    moved = old.factor.solve(new.position - old.position)
    if old.factor.complete:
        return bool(np.abs(change).max() < 0.1 and np.abs(moved).max() < 0.2)
    return bool(np.sqrt(np.mean(change**2)) < 0.1 and np.sqrt(np.mean(moved**2)) < 0.2)


def _centred_anew(
    problem: Problem,
    center: Center,
    draws: np.ndarray,
    rng: np.random.Generator,
) -> Center:
    """The same point, with group effects centred as far as the data tell, at most as now."""
    if center.degree is None:
        return center
    before = problem.coordinates(center.degree)
    degree = np.minimum(best_degree(problem, before, center.position, draws, rng), center.degree)
    if np.abs(degree - center.degree).max() < _DEGREE_CHANGE:
        return center
    factor = None
    if isinstance(center.factor, Dense):
        after = problem.coordinates(degree)
        factor = square(before.jacobian(after, center.position) @ center.factor.matrix)
    spread, dense = center.factor.spread(), center.factor.name == "dense"
    anew = center_at(problem, center.theta, factor, degree, spread, dense)
    return replace(anew, exponents=center.exponents, follows=center.follows)


def _run(
    problem: Problem,
    center: Center,
    noise: np.ndarray | None,
    points: np.ndarray,
    rng: np.random.Generator,
    iterations: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """A chain around the center, with steps short enough for the gradient noise at `points`."""
    d, method = problem.size, control_variate(center)
    if noise is None:
        noise = gradient_noise(problem, method, points, center.factor, rng)
    largest = worst(center.factor, noise)
    n, longest = max(min(_ITERATIONS, 1500 + 50 * d), 20 * d), _STEP
    if not center.factor.complete:
        n, longest = int(min(_FEWER_ITERATIONS, max(200, MOST_NUMBERS // d))), _LONGER_STEP
    n = iterations or n
    if problem.chooses_batch and largest > _NOISE:
        resize(problem, _NOISE / largest)
        largest = _NOISE
    h = min(longest, 0.8 / largest, 1 / stretch(problem, center, center.factor, rng))
    if h > _STEP:  # as long a way in fewer steps
        n = max(round(n * _STEP / h), min(n, 200))
    for _ in range(6):
        draws, gradients = np.empty((n, d)), np.empty((n, d))
        chain = Chain(problem, method)
        chain.start(points[0] if center.degree is None else center.position, rng)
        try:
            chain.run(np.full(n, h), 1, draws, gradients, own=True)
        except Divergence:
            h /= 4
            continue
        return draws[n // 5 :], gradients[n // 5 :]
    raise Divergence(
        "The pilot run diverged at every step size tried: the posterior is too far from "
        "log-concave around its mode, or improper. Check the priors, or use NUTS on this model."
    )


def stretch(
    problem: Problem, center: Center, factor: Preconditioner, rng: np.random.Generator
) -> float:
    """The largest curvature at the center in coordinates F⁻¹φ: 1 for the center's own dense F."""
    if not center.factor.complete:  # of a sample of rows, groups would be curved by chance
        gradient = partial(problem.gradient_in, problem.coordinates(center.degree))
        return largest_curvature(gradient, center.position, factor, rng)
    if factor is center.factor:
        return 1.0
    return float(center.factor.ratios(factor).max() ** 2)


def even_part(problem: Problem, center: Center, draws: np.ndarray) -> np.ndarray:
    """½ (g(φ̂ + δ) + g(φ̂ − δ)) over all rows, for some of the draws φ̂ + δ."""
    some = draws[np.linspace(0, len(draws) - 1, min(_EVEN, len(draws))).astype(int)]
    points = np.concatenate([some, 2 * center.position - some])
    g = problem.gradient_in(problem.coordinates(center.degree), points)
    return 0.5 * (g[: len(some)] + g[len(some) :])


def _refined(
    problem: Problem,
    center: Center,
    draws: np.ndarray,
    gradients: np.ndarray,
    rng: np.random.Generator,
) -> Center:
    """A new center and factor, from the draws seen in the old factor's coordinates."""
    coordinates = problem.coordinates(center.degree)
    if center.factor.complete:
        position, factor = _refine(center, draws, gradients)
    elif isinstance(center.factor, Wide):
        position, factor = _mean(center.factor, draws, gradients), center.factor
    else:
        position = _mean(center.factor, draws, gradients)
        gradient = partial(problem.gradient_in, coordinates)
        assert isinstance(center.factor, Coordinatewise)
        labels, scales = colours(problem.target), center.factor.scales
        scales = probed_scales(gradient, position, labels, rng, scales)
        scales = np.minimum(scales, widest(coordinates, position, problem.size))
        points = _mirrored(gradient, position, draws)
        blocks = group_blocks(gradient, points, problem.target, scales, rng)
        factor = low_rank_factor(gradient, points, scales, rng, blocks)
    return center_at(problem, coordinates.place(position), factor, center.degree)


def _mirrored(
    gradient: Callable[[np.ndarray], np.ndarray], position: np.ndarray, draws: np.ndarray
) -> np.ndarray:
    """Some draws, and their images on the other side of the mean, if these are in the support.

    Over such pairs whatever is odd about the mean cancels from an average of the curvature: a ridge
    that bends has the direction there that it has in the middle.
    """
    some = draws[np.linspace(0, len(draws) - 1, _POINTS + 1).astype(int)[1:]]
    images = 2 * position - some
    return np.concatenate([some, images[np.isfinite(gradient(images)).all(1)]])


def _mean(factor: Preconditioner, draws: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """The mean of the posterior: that of the draws, and a Newton step with the mean gradient.

    On a Gaussian the two errors cancel but for gradient noise (`pymc_sgcv.results.zv`).
    """
    move = factor.apply_transposed(gradients.mean(0))
    if np.linalg.norm(move) > np.sqrt(len(move)):  # further than the draws reach
        return draws.mean(0)
    return draws.mean(0) + factor.apply(move)


def _refine(
    center: Center, draws: np.ndarray, gradients: np.ndarray
) -> tuple[np.ndarray, Preconditioner]:
    """Position and factor of all parameters, by regression."""
    F = center.factor
    assert isinstance(F, Dense)
    x, g = F.solve(draws - center.position), F.apply_transposed(gradients)
    middle, slope_there = x.mean(0), g.mean(0)
    x -= middle
    g -= slope_there
    precision, variance = _precision(x, g)
    values, vectors = eigh(precision)
    root = vectors / np.sqrt(np.clip(values, 0.04, 25.0))
    reliable = 1 / (1 + variance / len(x))
    move = root @ (root.T @ (reliable * slope_there))
    if np.linalg.norm(move) > np.sqrt(len(move)):  # further than the draws reach
        move = 0.0
    return center.position + F.apply(middle + move), Dense(F.matrix @ root)


def _precision(x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minus the slope of g on x, shrunk towards the identity, and the variance around the line.

    Both are centred. The rows of the slope have their own noise: each is shrunk by its own, and a
    pair of entries is averaged by their precisions.
    """
    values, vectors, along, rest = line(x, g)
    variance = np.maximum(rest, 1e-12)
    prior = variance / _TRUST**2
    slope = vectors @ ((vectors.T * prior - along) / (values[:, None] + prior))
    weight = 1 / variance
    share = weight / (weight[:, None] + weight)
    precision = slope * share + slope.T * share.T
    return 0.5 * (precision + precision.T), variance
