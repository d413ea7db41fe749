# SPDX-License-Identifier: Apache-2.0
"""Kernel Stein discrepancy: how far the draws are from the posterior, in one number.

Gorham & Mackey (2017), "Measuring sample quality with kernels", with the inverse multiquadric
kernel, which, unlike a Gaussian one, does not lose sight of draws that run off to infinity.
"""

from __future__ import annotations

import numpy as np

from pymc_sgcv.results.containers import Container
from pymc_sgcv.results.groups import (
    GRADIENT,
    UNCONSTRAINED,
    gradient_groups,
    read_scores,
    require_group,
)
from pymc_sgcv.results.parts import column_parts, every

DENSE_LIMIT, DRAWS_PER_PARAMETER = 400, 10
LARGE = 5e8  # bytes of gradients, above which only those of `max_draws` draws are read
ROWS = 2**21  # numbers of the kernel matrix held at a time


def ksd(idata: Container, max_draws: int = 2000, *, group: str = "posterior") -> float:
    r"""Kernel Stein discrepancy between the draws and the posterior.

    .. math:: \mathrm{KSD}^2 = \frac{1}{n(n-1)} \sum_{i \ne j} k_0(x_i, x_j), \quad
              k_0(x, y) = \nabla_x \cdot \nabla_y k + \nabla_x k \cdot g(y)
              + \nabla_y k \cdot g(x) + k\, g(x) \cdot g(y)

    with :math:`k(x, y) = (1 + |x - y|^2)^{-1/2}` in coordinates in which the draws have unit
    covariance (or unit standard deviations, where there are over 400 parameters or fewer than 10
    draws for each), so that the units of the parameters do not matter.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
        Draws with recorded gradients, sorted by `gradient_groups` or not. It is not changed.
    max_draws : int
        Above this number, draws evenly spaced over all chains are taken. The time grows with its
        square.
    group : str
        ``"posterior"``, or ``"warmup_posterior"``.

    Returns
    -------
    float
        Zero for the right posterior, up to Monte Carlo error. To compare runs, use one
        ``max_draws`` and the same model.

    Notes
    -----
    This is the U-statistic: terms i = j are left out, since there the noise of a stochastic
    gradient meets itself, and :math:`k\,|g|^2` would measure that noise. Between different draws it
    averages out. The U-statistic can be negative by chance; the result is then 0. Draws that depend
    on each other count as fewer draws do.

    For orientation, with 2000 independent draws of a normal distribution in 5 dimensions: below
    0.03 if they are exact; 0.08 if standard deviations are 10 % too large, 0.27 for 30 %; 0.4 if
    all means are 0.3 standard deviations off.

    Examples
    --------
    >>> import xarray as xr
    >>> theta = np.random.default_rng(0).normal(size=(2, 500))
    >>> def container(draws):
    ...     groups = {"posterior": draws, "unconstrained_posterior": draws, "gradient": -draws}
    ...     return xr.DataTree.from_dict(
    ...         {k: xr.Dataset({"theta": (("chain", "draw"), v)}) for k, v in groups.items()}
    ...     )
    >>> ksd(container(theta)) < 0.1 < ksd(container(theta + 0.5))
    True
    """
    if max_draws < 2:
        raise ValueError(f"max_draws is {max_draws}, but pairs of draws are compared: pass 2000.")
    idata = gradient_groups(idata)
    warmup = "warmup_" if group.startswith("warmup_") else ""
    recorded = require_group(idata, warmup + GRADIENT)
    if recorded.nbytes > LARGE:
        n = recorded.sizes["chain"] * recorded.sizes["draw"]
        idata = every(idata, max(1, n // max_draws))
        if sum(g[0, 0].size for g in recorded.values()) > DENSE_LIMIT:
            return _root(_by_parts(idata, warmup, max_draws))
    scores = read_scores(idata, require_group(idata, group), group, order=2)
    names = list(scores.gradient)
    n = scores.chains * scores.draws
    rows = np.linspace(0, n - 1, min(n, max_draws)).round().astype(int)
    x = np.hstack([scores.position[v][rows] for v in names])
    g = np.hstack([scores.gradient[v][rows] for v in names])
    return _root(stein_discrepancy(*_standardised(x, g)))


def _root(square: float) -> float:
    return float(np.sqrt(max(0.0, square)))


def _by_parts(idata: Container, warmup: str, max_draws: int) -> float:
    """KSD² of draws with unit standard deviations, from products of some components at a time."""
    recorded = require_group(idata, warmup + GRADIENT)
    where = require_group(idata, warmup + UNCONSTRAINED)
    n = recorded.sizes["chain"] * recorded.sizes["draw"]
    rows = np.linspace(0, n - 1, min(n, max_draws)).round().astype(int)
    xx, gx, gg = np.zeros((3, len(rows), len(rows)))
    size = 0
    for v in recorded:
        for x, g in zip(column_parts(where[v]), column_parts(recorded[v]), strict=True):
            x, g = _scaled(x[rows].astype(float), g[rows].astype(float))
            xx += x @ x.T
            gx += g @ x.T
            gg += g @ g.T
            size += x.shape[1]
    if not np.isfinite(gg.sum()):
        raise ValueError("Gradients are NaN or infinite: the chain diverged. See diagnose.")
    square = np.maximum(np.diag(xx)[:, None] + np.diag(xx) - 2 * xx, 0.0)
    drift = np.diag(gx)[:, None] + np.diag(gx) - gx - gx.T
    k0 = _kernel(square, drift, gg, size)
    return float((k0.sum() - np.trace(k0)) / (len(rows) * (len(rows) - 1)))


def stein_discrepancy(x: np.ndarray, g: np.ndarray) -> float:
    """KSD² of points `x` with gradients `g`, both (n, d), as a U-statistic."""
    n = len(x)
    total, step = 0.0, max(1, ROWS // n)
    for start in range(0, n, step):
        part = slice(start, start + step)
        k0 = stein_kernel(x[part], g[part], x, g)
        total += k0.sum() - np.trace(k0, offset=start)
    return float(total / (n * (n - 1)))


def stein_kernel(x: np.ndarray, gx: np.ndarray, y: np.ndarray, gy: np.ndarray) -> np.ndarray:
    """The matrix k₀(xᵢ, yⱼ), with r = x − y and q = 1 + |r|².

    ∇ₓk = −r q^(−3/2) = −∇ᵧk and ∇ₓ·∇ᵧk = d q^(−3/2) − 3 |r|² q^(−5/2).
    """
    square = (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T
    square = np.maximum(square, 0.0)
    # r·(g(x) − g(y)), without an array of n² differences
    drift = (x * gx).sum(1)[:, None] + (y * gy).sum(1) - gx @ y.T - x @ gy.T
    return _kernel(square, drift, gx @ gy.T, x.shape[1])


def _kernel(square: np.ndarray, drift: np.ndarray, products: np.ndarray, d: int) -> np.ndarray:
    """k₀ from |r|², r·(g(x) − g(y)) and g(x)·g(y)."""
    k = 1 / np.sqrt(1 + square)
    return k * products + k**3 * (drift + d) - 3 * square * k**5


def _standardised(x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws with unit covariance, or unit variances, and the gradients with respect to them."""
    n, d = x.shape
    x, g = _scaled(x, g)
    if d > DENSE_LIMIT or n < DRAWS_PER_PARAMETER * d:
        return x, g
    values, vectors = np.linalg.eigh(x.T @ x / n)
    root = np.sqrt(np.maximum(values, 1e-10 * values.max()))
    return x @ vectors / root, (g @ vectors) * root


def _scaled(x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws with unit variances, and the gradients with respect to them."""
    x = x - x.mean(axis=0)
    sd = x.std(axis=0)
    if np.any(sd == 0):
        raise ValueError(
            f"{np.sum(sd == 0)} of {len(sd)} parameters have the same value in all draws."
        )
    return x / sd, g * sd
