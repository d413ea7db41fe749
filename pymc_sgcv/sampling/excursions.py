# SPDX-License-Identifier: Apache-2.0
"""Draws that the posterior cannot have made: chains carried away by gradient noise or a long step.

The control variate's noise grows with the way from the center, so that a chain which is far out in
a tail may be thrown further. What it draws there is too rare to see in averages, and wide enough to
spoil a standard deviation.

The draw of each chain that is furthest from the other chains' in some parameter, if it is more than
six of their standard deviations away and such draws widen the standard deviation by more than 2 %,
is judged by the posterior itself: the log density is integrated along the line from it to where
that parameter is at the center, in the direction in which the others move with it, with gradients
over all rows. For X drawn from a log-concave density f on a line, and so for a draw of a
log-concave posterior on every line of a fixed direction,

    P(log max f − log f(X) ≥ 1 + t) ≤ (1 + t) e⁻ᵗ

(Fradelizi, Madiman & Wang 2016). The limit is the 1 + t at which this is 1 in 10,000 for all draws
and parameters together. Student's t with three degrees of freedom goes beyond it in one of some
1000 runs; heavier tails more often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import lambertw

from pymc_sgcv.engine.blas import one_blas_thread
from pymc_sgcv.results.batches import CHUNK
from pymc_sgcv.results.containers import Container, get_group, group_names
from pymc_sgcv.results.groups import UNCONSTRAINED
from pymc_sgcv.steps.base import StochasticGradientStep

FALSE_ALARMS = 1e-4
FAR = 6.0
"""Standard deviations of other chains; of 10⁸ normal draws the furthest is nearer."""
MATTERS = 0.02
"""A standard deviation that its furthest draws make wider by less is left in peace."""
LINES, _POINTS = 4, 15


@dataclass(frozen=True)
class Extreme:
    """A draw far from those of other chains: its place, and how many of their sds it is away."""

    chain: int
    draw: int
    parameter: int
    away: float


def excursions(
    step: StochasticGradientStep, idata: Container, lines: int = LINES
) -> dict[str, float | str]:
    """The deepest of the furthest draws, as attributes; none if not all parameters are stored.

    At most so many `lines` are looked at.
    """
    draws = _all_draws(step, idata) if lines else None
    if draws is None:
        return {}
    limit = deepest(sum(one[..., 0].size * one.shape[-1] for one in draws))
    found: dict[str, float | str] = {"excursion": 0.0, "excursion_limit": limit}
    far = [extreme for extreme in furthest(draws)[:lines] if _widens(extreme, draws) > MATTERS]
    if not far:
        return found
    points = [np.concatenate([one[e.chain, e.draw] for one in draws]) for e in far]
    depths = _depths(step, np.stack(points), far, draws)
    worst = int(np.argmax(depths))
    extreme = far[worst]
    name = step.problem.target.describe(extreme.parameter)
    where = f"{name} = {points[worst][extreme.parameter]:.3g} in chain {extreme.chain}"
    return {**found, "excursion": float(max(depths[worst], 0.0)), "excursion_where": where}


def affordable(step: StochasticGradientStep, visits: int, seconds: float, budget: float) -> int:
    """How many lines to look at within `budget`, if sampling took `seconds` to visit rows.

    Every visit of a row is a gradient at the chain and one at the center.
    """
    each = seconds / (2 * max(visits, 1)) * step.problem.n_rows * _POINTS
    return int(min(budget / max(each, 1e-9), float(LINES)))


def deepest(count: int) -> float:
    """How far below its maximum the log density may be in `count` draws: (1 + t) e⁻ᵗ = α / count.

    Examples
    --------
    >>> t = deepest(10_000) - 1
    >>> print(round(10_000 * (1 + t) * np.exp(-t) / FALSE_ALARMS, 6))
    1.0
    """
    return float(-lambertw(-FALSE_ALARMS / count / math.e, -1).real)


def furthest(draws: list[np.ndarray]) -> list[Extreme]:
    """The extremes of single chains furthest from the draws of the others, at most four.

    Of a single chain, each half is compared with the other. `draws` have shape (chain, draw, k).
    """
    found: list[Extreme] = []
    first = 0
    for x in draws:
        step = max(1, CHUNK // (x.shape[0] * x.shape[1]))
        for start in range(0, x.shape[-1], step):
            found += _furthest(x[..., start : start + step], first + start)
        first += x.shape[-1]
    found.sort(key=lambda extreme: -extreme.away)
    return found[:LINES]


def _furthest(x: np.ndarray, first: int) -> list[Extreme]:
    """Those beyond `FAR`, the furthest of every chain on either side at most four each."""
    whole, n = x.shape[0], x.shape[1]
    if whole == 1:
        x = x[:, : n // 2 * 2].reshape(2, n // 2, -1)
    means, variances, found = x.mean(axis=1), x.var(axis=1), []
    for c in range(len(x)):
        others = np.arange(len(x)) != c
        mean = means[others].mean(axis=0)
        sd = np.sqrt(variances[others].mean(axis=0) + means[others].var(axis=0))
        sd = np.where(sd > 0, sd, np.inf)
        for place in (x[c].argmin(axis=0), x[c].argmax(axis=0)):
            value = np.take_along_axis(x[c], place[None], axis=0)[0]
            away = np.abs(value - mean) / sd
            for j in np.argsort(-away)[:LINES]:
                at = divmod(c * (n // 2) + place[j], n) if whole == 1 else (c, place[j])
                if away[j] > FAR:
                    found.append(Extreme(int(at[0]), int(at[1]), first + int(j), float(away[j])))
    return found


def _all_draws(step: StochasticGradientStep, idata: Container) -> list[np.ndarray] | None:
    """Unconstrained draws (chain, draw, k) of all variables in the order of θ, if stored."""
    if UNCONSTRAINED not in group_names(idata):
        return None
    group = get_group(idata, UNCONSTRAINED)
    names = [p.name for p in step.problem.target.parameters]
    if any(name not in group for name in names) or group.sizes["draw"] < 4:
        return None
    arrays = [group[name].transpose("chain", "draw", ...).values for name in names]
    return [a.reshape(*a.shape[:2], -1) for a in arrays]


def _depths(
    step: StochasticGradientStep, theta: np.ndarray, far: list[Extreme], draws: list[np.ndarray]
) -> np.ndarray:
    """How much the log density rises from each point to where its parameter is at the center.

    Along a column of the covariance at the center; without one, of the other chains' draws and to
    their mean.
    """
    problem, plan = step.problem, step.plan
    coordinates = problem.coordinates(plan.method.degree)
    start, each = coordinates.find(theta), np.arange(len(theta))
    parameters = np.array([extreme.parameter for extreme in far])
    if plan.center is None:
        found = [_column(extreme, draws) for extreme in far]
        ways, middle = (np.stack(part) for part in zip(*found))
    else:
        ways = np.zeros(theta.shape)
        ways[each, parameters] = 1.0
        factor = plan.center.factor
        ways = factor.apply(factor.apply_transposed(ways))
        middle = np.broadcast_to(plan.center.position, ways.shape)
    ways = ways / ways[each, parameters][:, None]
    ways = ways * (middle - start)[each, parameters][:, None]
    t, weights = np.polynomial.legendre.leggauss(_POINTS)
    points = start[:, None] + ((t + 1) / 2)[:, None] * ways[:, None]
    with one_blas_thread():
        gradients = problem.gradient_in(coordinates, points.reshape(-1, problem.size))
    slopes = np.einsum("lpd,ld->lp", gradients.reshape(points.shape), ways)
    return np.nan_to_num(slopes @ (weights / 2), nan=np.inf)


def _own(extreme: Extreme, draws: list[np.ndarray]) -> np.ndarray:
    """Draws (chain, draw) of the extreme's parameter."""
    first = 0
    for one in draws:
        if extreme.parameter < first + one.shape[-1]:
            break
        first += one.shape[-1]
    return one[..., extreme.parameter - first]


def _widens(extreme: Extreme, draws: list[np.ndarray]) -> float:
    """By what share draws as far as that make the standard deviation wider."""
    x = _own(extreme, draws)
    middle = np.median(x)
    reach = np.abs(x - middle)
    rest = x[reach < FAR / extreme.away * reach[extreme.chain, extreme.draw]]
    return float(x.std() / rest.std() - 1) if rest.size and rest.std() > 0 else np.inf


def _column(extreme: Extreme, draws: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Covariances of all parameters with one, and all means, in the draws of the other chains."""
    others = np.arange(len(draws[0])) != extreme.chain
    parts = [one[others if others.any() else slice(None)] for one in draws]
    means = [part.mean(axis=(0, 1)) for part in parts]
    own = _own(extreme, parts)
    own = own - own.mean()
    own = own / own.size
    columns = [np.einsum("cd,cdk->k", own, part) for part in parts]  # the mean of `own` is 0
    return np.concatenate(columns), np.concatenate(means)
