# SPDX-License-Identifier: Apache-2.0
"""Stein's identity with bounded functions: what a few draws far out cannot hide.

For draws of π with g = ∇ log π and any bounded φ of one parameter, E[φ(θⱼ) u·g] = −E[φ′(θⱼ)] for a
direction u with uⱼ = 1. The ratio of the two sides,

    −E[φ u·g] / E[φ′],

is by how much the draws' variance is too large where φ rises: exactly that for a Gaussian, and the
local curvature of log π against that of the draws otherwise. With φ = θⱼ it is the `sd_error` of
`pymc_sgcv.results.identities`, in which one draw far out outweighs a thousand others, and widens
the standard error so much that nothing is seen. Here φ is

- z / (1 + z²/9) for z = (θⱼ − m) / s, with the median m and s half the distance of the 16 and 84 %
  quantiles: what the bulk of the draws says (`bulk_sd_error`). It falls again beyond 3 s, so that
  with a gradient that grows no faster than θⱼ the product is bounded too;
- tanh((θⱼ − q) / s) ± 1, which is 0 on the side of the median, with the 5 and 95 % quantiles q:
  what the tails say (`tail_sd_error`).
"""

from __future__ import annotations

import numpy as np

from pymc_sgcv.results.batches import batch_means

BULK_TOLERANCE, TAIL_TOLERANCE = 0.05, 0.1
_BULK = 3.0
"""So many s from the median the bulk's function is largest."""
_PLACED_BY = 500
"""So many draws tell m, s and q well enough: the identity holds for all of them."""


def local_ratios(x: np.ndarray, along: np.ndarray, chains: int) -> tuple[np.ndarray, np.ndarray]:
    """Ratios of variances in the bulk, the lower and the upper tail, and standard errors: (3, d).

    From positions (n, d) and gradients along u.

    Examples
    --------
    Draws of a normal whose standard deviation is 20 % too large, one of them far out:

    >>> x = 1.2 * np.random.default_rng(0).normal(size=(4000, 1))
    >>> x[7] = 50
    >>> print((np.sqrt(local_ratios(x, -x, 4)[0]) - 1).round(1).ravel())
    [0.2 0.2 0.2]
    """
    some = x[:: max(1, len(x) // _PLACED_BY)]
    places = np.quantile(some, [0.05, 0.16, 0.5, 0.84, 0.95], axis=0)
    s = (places[3] - places[1]) / 2
    s = np.where(s > 0, s, 1.0)
    z = (x - places[2]) / s
    weight = 1 / (1 + z * z / _BULK**2)
    slope = (2 * weight - 1) * weight
    found = [_ratio(z * weight, slope, s, along, chains)]
    for place, side in ((places[0], -1.0), (places[4], 1.0)):
        z = (x - place) / s
        t = np.tanh(z.astype(np.float32))  # several times faster, and exact enough for averages
        found.append(_ratio(t + np.float32(side), (1 - t * t).astype(float), s, along, chains))
    ratio, error = (np.stack(part) for part in zip(*found))
    return ratio, error


def _ratio(
    phi: np.ndarray, slope: np.ndarray, s: np.ndarray, along: np.ndarray, chains: int
) -> tuple[np.ndarray, np.ndarray]:
    """−E[φ u·g] / E[φ′] and its standard error; `slope` is s φ′."""
    rise = slope.mean(axis=0)
    rise = np.where(rise > 0, rise, np.nan)
    product = phi * along * -s
    ratio = product.mean(axis=0) / rise
    means = batch_means(product - ratio * slope, chains) / rise
    return ratio, means.std(axis=0, ddof=1) / np.sqrt(len(means))
