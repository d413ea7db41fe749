# SPDX-License-Identifier: Apache-2.0
"""Stein's identities: how wrong the draws are, measured with the gradients recorded beside them.

With g = ∇ log π and draws of π itself, E[φ u·g] = −E[u·∇φ] for every function φ and direction u,
also with an unbiased estimate in place of g. C is the draws' covariance and u = C₋ⱼ / Cⱼⱼ the
direction in which θⱼ moves together with all that is correlated with it. Then

- φ = 1: E[u·g] = 0, and −E[u·g] √Cⱼⱼ is by how many sds the mean of a Gaussian is off;
- φ = θⱼ − E θⱼ: E[φ u·g] = −1, and −E[φ u·g] is to first order the variance of the draws over the
  right variance: discretisation error and gradient noise together. In the direction of θⱼ alone
  the same identity mixes up the errors of correlated parameters.

A chain at rest has E[g] = 0 whatever its step size, so the first shows chains that still move; the
second shows the bias. C comes from other chains (or the other half of the only one) than those it
is applied to, which keeps both unbiased.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import stdtrit

from pymc_sgcv.results import containers
from pymc_sgcv.results.batches import BATCHES, batch_means, chunks
from pymc_sgcv.results.bounded import BULK_TOLERANCE, TAIL_TOLERANCE, local_ratios
from pymc_sgcv.results.containers import Container, get_group
from pymc_sgcv.results.groups import (
    GRADIENT,
    UNCONSTRAINED,
    Scores,
    gradient_groups,
    read_scores,
    require_group,
)
from pymc_sgcv.results.parts import column_parts

SD_TOLERANCE, SHIFT_TOLERANCE = 0.05, 0.1
EXCURSION_SHARE = 1 / 3
TARGET_BIAS = 0.03
DENSE_LIMIT, DRAWS_PER_PARAMETER = 1000, 10


@dataclass(frozen=True)
class SteinErrors:
    """What the identities say of every parameter.

    Attributes
    ----------
    labels
        Names of the d unconstrained parameters.
    shift, shift_error
        Error of the mean in sds, and its standard error: (d,).
    ratio, ratio_error
        Variance of the draws over the right one, and its standard error: (d + 1,), the last for
        the average over all directions, which is −E[(θ − E θ)·g] / d.
    robust_error
        The same where a single batch has more than a third of the variance, by the median deviation
        of batches: an excursion hides behind the standard error that it causes. Not where gradients
        alone have heavy tails, as in a funnel's neck: there that is the error.
    noise
        Variance of √Cⱼⱼ u·g that is not linear in θ, (d,); the linear part has about ratio².
    batches
        Number of batch means behind the standard errors.
    local, local_error
        The same ratio in the bulk and in the lower and upper tail, by bounded functions
        (`pymc_sgcv.results.bounded`), and its standard error: (3, d).
    """

    labels: list[str]
    shift: np.ndarray
    shift_error: np.ndarray
    ratio: np.ndarray
    ratio_error: np.ndarray
    robust_error: np.ndarray
    noise: np.ndarray
    batches: int
    local: np.ndarray = field(default_factory=lambda: np.empty((3, 0)))
    local_error: np.ndarray = field(default_factory=lambda: np.empty((3, 0)))

    @property
    def sd_error(self) -> np.ndarray:
        """Relative error of the standard deviations, √ratio − 1."""
        return np.sqrt(np.maximum(self.ratio, 0.0)) - 1

    def interval(self, errors: float) -> tuple[np.ndarray, np.ndarray]:
        """`sd_error` for a `ratio` that is so many standard errors smaller, and larger."""
        low = np.maximum(self.ratio - errors * self.ratio_error, 0.0)
        high = np.maximum(self.ratio + errors * self.ratio_error, 0.0)
        return np.sqrt(low) - 1, np.sqrt(high) - 1

    def limits(self, target_bias: float, alarms: float) -> tuple[np.ndarray, np.ndarray]:
        """How large `shift` and `sd_error` may be.

        A value is too large if it is above its tolerance, and chance makes it from one of
        `target_bias` with a probability below `alarms`, over all parameters together.
        """
        t = -stdtrit(self.batches - 1, alarms / (2 * len(self.ratio)))
        shift = np.maximum(max(SHIFT_TOLERANCE, target_bias), target_bias + t * self.shift_error)
        sd = _sd_limits(self.sd_error, target_bias, t * self.robust_error)
        return shift, np.maximum(max(SD_TOLERANCE, target_bias), sd)

    @property
    def local_sd_error(self) -> np.ndarray:
        """Relative error of the standard deviations by `local`: (3, d)."""
        return np.sqrt(np.maximum(self.local, 0.0)) - 1

    def local_limits(self, target_bias: float, alarms: float) -> np.ndarray:
        """How large `local_sd_error` may be; in the tails twice `target_bias` is tolerated."""
        t = -stdtrit(self.batches - 1, alarms / (2 * max(self.local.size, 1)))
        tolerated = np.array([target_bias, 2 * target_bias, 2 * target_bias])[:, None]
        least = np.array([BULK_TOLERANCE, TAIL_TOLERANCE, TAIL_TOLERANCE])[:, None]
        limits = _sd_limits(self.local_sd_error, tolerated, t * self.local_error)
        return np.maximum(np.maximum(least, tolerated), limits)


def _sd_limits(sd_error: np.ndarray, bias: float | np.ndarray, chance: np.ndarray) -> np.ndarray:
    """How far chance takes an error of an sd from `bias`, if it takes its ratio by `chance`."""
    above = np.sqrt((1 + bias) ** 2 + chance) - 1
    below = 1 - np.sqrt(np.maximum((1 - bias) ** 2 - chance, 0.0))
    return np.where(sd_error > 0, above, below)


def stein_errors(idata: Container) -> SteinErrors:
    """Measure the errors of means and standard deviations with the recorded gradients.

    Up to 1000 parameters with 10 effective draws each, directions follow the covariance; beyond
    that every parameter stands alone.

    Examples
    --------
    >>> import xarray as xr
    >>> theta = np.random.default_rng(0).normal(size=(4, 1000))
    >>> groups = {"posterior": theta, "unconstrained_posterior": theta, "gradient": -1.21 * theta}
    >>> idata = xr.DataTree.from_dict(
    ...     {k: xr.Dataset({"theta": (("chain", "draw"), v)}) for k, v in groups.items()}
    ... )
    >>> bool(abs(stein_errors(idata).sd_error[0] - 0.1) < 0.03)
    True
    """
    idata = gradient_groups(idata)
    recorded = get_group(idata, GRADIENT)
    labels = [label for v in recorded for label in containers.labels(recorded[v])]
    chains, draws = recorded.sizes["chain"], recorded.sizes["draw"]
    if len(labels) > DENSE_LIMIT:
        separate = _separate_parts(recorded, require_group(idata, UNCONSTRAINED))
    else:
        separate = _parts(
            read_scores(idata, require_group(idata, "posterior"), "posterior", order=2)
        )
    products: Any = 0.0  # an array from the first part on
    parts = []
    for x, g, along, noise in separate:
        products = products - np.einsum("ij,ij->i", x, g)
        parts.append(_measure(x, along, noise, chains))
    measured = np.hstack(parts)
    shift, shift_error, ratio, ratio_error, robust_error, noise = measured[:6]
    average = _mean_and_error(products[:, None] / len(labels), chains)
    return SteinErrors(
        labels=labels,
        shift=shift,
        shift_error=shift_error,
        ratio=np.append(ratio, average[0]),
        ratio_error=np.append(ratio_error, average[1]),
        robust_error=np.append(robust_error, average[1]),
        noise=noise,
        batches=chains * min(BATCHES, draws),
        local=measured[6:9],
        local_error=measured[9:],
    )


def _parts(scores: Scores) -> Iterator[tuple[np.ndarray, ...]]:
    """Centred positions, gradients, both g and its noise along u, for some parameters at a time."""
    d = sum(g.shape[1] for g in scores.gradient.values())
    if d <= DENSE_LIMIT and scores.effective >= DRAWS_PER_PARAMETER * d:
        x = np.hstack([scores.position[v] for v in scores.gradient])
        g = np.hstack(list(scores.gradient.values()))
        x -= x.mean(axis=0)
        slope = np.linalg.lstsq(x, g, rcond=None)[0]
        noise = (g - x @ slope) * np.sqrt(len(x) / (len(x) - d))
        yield x, g, _along(x, g, scores.chains), _along(x, noise, scores.chains)
        return
    for v, gradient in scores.gradient.items():
        for part in chunks(gradient):
            yield _alone(scores.position[v][:, part], gradient[:, part])


def _separate_parts(recorded: xr.Dataset, where: xr.Dataset) -> Iterator[tuple[np.ndarray, ...]]:
    """The same where every parameter stands alone, of draws that may be in a file."""
    for v in recorded:
        pairs = zip(column_parts(where[v]), column_parts(recorded[v]), strict=True)
        yield from (_alone(x.astype(float), g.astype(float)) for x, g in pairs)


def _alone(x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, ...]:
    x = x - x.mean(axis=0)
    square = np.einsum("ij,ij->j", x, x)
    slope = np.einsum("ij,ij->j", x, g) / np.where(square > 0, square, 1.0)
    return x, g, g, g - x * slope


def _along(x: np.ndarray, g: np.ndarray, chains: int) -> np.ndarray:
    """Gradients in the directions u of the other chains' covariance."""
    rows = np.arange(len(x))
    draws = len(x) // chains
    fold = (rows // draws) % 2 if chains > 1 else 2 * rows // len(rows)
    along = np.empty_like(g)
    for k in (0, 1):
        covariance = np.atleast_2d(np.cov(x[fold == k], rowvar=False))
        scale = np.diag(covariance)
        along[fold != k] = g[fold != k] @ (covariance / np.where(scale > 0, scale, 1.0))
    return along


def _measure(x: np.ndarray, along: np.ndarray, noise: np.ndarray, chains: int) -> np.ndarray:
    """Rows: shift, its error, ratio, its two errors, variance of the noise; local ones, errors."""
    sd = x.std(axis=0)
    shift = _mean_and_error(-along * sd, chains)
    products = -x * along
    ratio, error = _mean_and_error(products, chains)
    squares = batch_means(x * x, chains)
    excursion = squares.max(axis=0) > EXCURSION_SHARE * squares.sum(axis=0)
    robust = np.where(excursion, np.minimum(error, _robust_error(products, chains)), error)
    rows = np.stack([*shift, ratio, error, robust, noise.var(axis=0) * sd**2])
    return np.vstack([rows, *local_ratios(x, along, chains)])


def _mean_and_error(x: np.ndarray, chains: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of columns, and their standard errors from batch means."""
    means = batch_means(x, chains)
    return x.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(len(means))


def _robust_error(x: np.ndarray, chains: int) -> np.ndarray:
    """Standard errors by the median deviation of batch means, deaf to outliers, and half more."""
    means = batch_means(x, chains)
    deviation = np.median(np.abs(means - np.median(means, axis=0)), axis=0)
    return 1.5 * 1.4826 * deviation / np.sqrt(len(means))
