# SPDX-License-Identifier: Apache-2.0
"""Figures that ArviZ does not have: what ZV gains, and what gradient noise costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from pymc_sgcv.results import containers
from pymc_sgcv.results.batches import batch_means
from pymc_sgcv.results.containers import Container, check_container, get_group, group_names
from pymc_sgcv.results.groups import GRADIENT, flat_draws, gradient_groups, rv_name, select_names
from pymc_sgcv.results.identities import SD_TOLERANCE, SteinErrors, stein_errors
from pymc_sgcv.results.zv import zv

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY, BLUE, ORANGE, INK = "#b8bec6", "#2a78b8", "#d9711c", "#333333"
INTERVAL = 1.96  # standard errors on either side


def plot_zv(
    idata: Container,
    var_names: str | Sequence[str] | None = None,
    *,
    max_parameters: int = 12,
    ax: Axes | None = None,
) -> Axes:
    """Box plots of estimated means, from plain and from zero-variance draws.

    A box shows the means of 20 equal parts of every chain, in posterior standard deviations from
    the ZV mean of all draws: how far an estimate from so many draws is off. Above every pair stands
    the factor by which ZV divides the variance of those means.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
        The result of `zv`; without the group ``zv_posterior``, `zv` is applied first.
    var_names : str or sequence of str, optional
        Variables to show; all corrected ones by default.
    max_parameters : int
        The first so many components are shown.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> theta, noise = np.random.default_rng(0).normal(size=(2, 4, 500))
    >>> groups = {"posterior": theta, "gradient": -theta + 0.1 * noise}
    >>> idata = xr.DataTree.from_dict(
    ...     {k: xr.Dataset({"theta": (("chain", "draw"), v)}) for k, v in groups.items()}
    ... )
    >>> plot_zv(idata).get_xticklabels()[0].get_text()
    'theta'
    """
    check_container(idata)
    if "zv_posterior" not in group_names(idata):
        idata = zv(idata, var_names)
    after = get_group(idata, "zv_posterior")
    names = select_names(after, var_names, "zv_posterior")
    before = _plain(idata)
    labels = [label for name in names for label in containers.labels(after[name])]
    shown = slice(0, max_parameters)
    plain, corrected = (_columns(draws, names, max_parameters) for draws in (before, after))
    center, sd = corrected.mean(axis=0), plain.std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    chains = after.sizes["chain"]
    boxes = [batch_means((x - center) / sd, chains) for x in (plain, corrected)]
    ax = (
        ax or _new_axes(1, width=float(np.clip(3 + 0.75 * boxes[0].shape[1], 6, 12)), height=4.2)[0]
    )
    _draw_boxes(ax, boxes, labels[shown])
    length = after.sizes["draw"] // min(20, after.sizes["draw"])
    ax.set_ylabel(f"mean of {length} draws,\nin posterior standard deviations")
    hidden = len(labels) - max_parameters
    more = f" (first {max_parameters} of {len(labels)} parameters)" if hidden > 0 else ""
    ax.set_title(f"Posterior means{more}\n", loc="left", fontsize="medium")
    return ax


def plot_gradient_noise(
    idata: Container,
    var_names: str | Sequence[str] | None = None,
    *,
    max_parameters: int = 20,
    axes: Sequence[Axes] | None = None,
) -> np.ndarray:
    """Noise of every parameter's gradient, and the error of the standard deviation it leads to.

    Left: the variance of the gradient, in the share that the parameter's position explains and the
    rest: gradient noise, and curvature where the posterior is not Gaussian (and, with fewer than 10
    effective draws per parameter, other parameters' positions). Right: the error of the standard
    deviation in these draws by Stein's identity (see `diagnose`), with 95 % intervals, beside the
    tolerance of 5 %.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
        Draws with recorded gradients, sorted by `gradient_groups` or not.
    var_names : str or sequence of str, optional
        Variables to show, by their posterior name (``sigma``) or unconstrained one
        (``sigma_log__``); all by default.
    max_parameters : int
        Those with the largest error of the standard deviation are shown.
    axes : sequence of two matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    numpy.ndarray of two matplotlib.axes.Axes

    Examples
    --------
    >>> theta, noise = np.random.default_rng(0).normal(size=(2, 4, 500))
    >>> groups = {"posterior": theta, "unconstrained_posterior": theta, "gradient": noise - theta}
    >>> idata = xr.DataTree.from_dict(
    ...     {k: xr.Dataset({"theta": (("chain", "draw"), v)}) for k, v in groups.items()}
    ... )
    >>> len(plot_gradient_noise(idata))
    2
    """
    check_container(idata)
    idata = gradient_groups(idata)
    errors = stein_errors(idata)
    chosen = _chosen(idata, var_names)
    worst = np.argsort(-np.abs(errors.sd_error[:-1][chosen]), kind="stable")[:max_parameters]
    shown = np.sort(chosen[worst])
    pair = _new_axes(2, width=10, height=1.8 + 0.26 * len(shown)) if axes is None else axes
    left, right = pair
    _draw_shares(left, errors, shown)
    _draw_errors(right, errors, shown)
    left.set_yticks(range(len(shown)), [errors.labels[i] for i in shown])
    right.set_yticks([])
    for ax in (left, right):
        ax.set_ylim(len(shown) - 0.4, -0.6)
    if len(shown) < len(chosen):
        left.set_ylabel(f"the {len(shown)} worst of {len(chosen)} parameters")
    return np.asarray(pair)


def _new_axes(columns: int, width: float, height: float) -> np.ndarray:
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, columns, figsize=(width, height), squeeze=False, layout="constrained")
    return axes[0]


def _plain(idata: Container) -> xr.Dataset:
    """Uncorrected draws of posterior variables and functions."""
    draws = get_group(idata, "posterior")
    if "zv_posterior_functions" in group_names(idata):
        draws = draws.merge(get_group(idata, "zv_posterior_functions"))
    return draws


def _columns(draws: xr.Dataset, names: Sequence[str], count: int) -> np.ndarray:
    """Draws of the first `count` components, (chain * draw, count)."""
    parts: list[np.ndarray] = []
    for name in names:
        room = count - sum(part.shape[1] for part in parts)
        parts.append(flat_draws(draws[name], f"'{name}'")[:, : max(0, room)])
    return np.hstack(parts)


def _draw_boxes(ax: Axes, boxes: list[np.ndarray], labels: list[str]) -> None:
    """Pairs of boxes: plain draws to the left of each tick, ZV to the right."""
    ticks = np.arange(len(labels))
    for x, offset, color, name in zip(
        boxes, (-0.19, 0.19), (GREY, BLUE), ("plain draws", "zero variance (÷ variance)")
    ):
        drawn = ax.boxplot(
            x,
            positions=ticks + offset,
            widths=0.32,
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": color, "edgecolor": INK, "linewidth": 0.7},
            medianprops={"color": INK},
            whiskerprops={"color": INK, "linewidth": 0.7},
            capprops={"color": INK, "linewidth": 0.7},
            flierprops={"marker": ".", "markersize": 3, "markeredgecolor": color},
        )
        drawn["boxes"][0].set_label(name)
    gain = boxes[0].var(axis=0) / np.maximum(boxes[1].var(axis=0), 1e-300)
    top = ax.get_xaxis_transform()
    for tick, factor in enumerate(gain):
        ax.text(tick, 1.01, _factor(factor), transform=top, ha="center", size="small", color=BLUE)
    long = max(map(len, labels)) > 9 and len(labels) > 4
    ax.set_xticks(ticks, labels)
    if long:
        ax.tick_params("x", rotation=30)
        for label in ax.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    ax.axhline(0, color=INK, linewidth=0.5, zorder=0)
    ax.set_xlim(-0.6, len(labels) - 0.4)
    ax.spines[["top", "right"]].set_visible(False)
    _legend_above(ax, "right", 1.06)


def _factor(gain: float) -> str:
    if gain > 1e6:
        return "÷ over 10⁶"
    return f"÷ {gain:,.0f}" if gain >= 10 else f"÷ {gain:.1f}"


def _chosen(idata: Container, var_names: str | Sequence[str] | None) -> np.ndarray:
    """Numbers of the components of some variables, in the order of the gradient group."""
    recorded, posterior = get_group(idata, GRADIENT), get_group(idata, "posterior")
    owners = {str(v): rv_name(str(v), posterior) or str(v) for v in recorded}
    known = xr.Dataset(dict.fromkeys([*owners, *owners.values()], 0))
    wanted = set(select_names(known, var_names, GRADIENT))
    flags = [
        np.full(recorded[v].isel(chain=0, draw=0).size, not wanted.isdisjoint((v, rv)))
        for v, rv in owners.items()
    ]
    return np.flatnonzero(np.concatenate(flags))


def _draw_shares(ax: Axes, errors: SteinErrors, shown: np.ndarray) -> None:
    """Stacked bars: the share of the gradient's variance that position explains, and the rest."""
    signal, noise = errors.ratio[shown] ** 2, errors.noise[shown]
    explained = 100 * signal / np.maximum(signal + noise, 1e-300)
    rows = np.arange(len(shown))
    ax.barh(rows, explained, height=0.7, color=BLUE, label="explained by position")
    ax.barh(
        rows, 100 - explained, left=explained, height=0.7, color=GREY, label="not explained: noise"
    )
    ax.set_xlim(0, 100)
    ax.set_xlabel("share of the gradient's variance (%)")
    ax.spines[["top", "right"]].set_visible(False)
    _legend_above(ax)


def _draw_errors(ax: Axes, errors: SteinErrors, shown: np.ndarray) -> None:
    """Errors of standard deviations with intervals, and the band in which they should be."""
    value = 100 * errors.sd_error[shown]
    low, high = (100 * bound[shown] for bound in errors.interval(INTERVAL))
    rows = np.arange(len(shown))
    band = 100 * SD_TOLERANCE
    ax.axvspan(-band, band, color=BLUE, alpha=0.12, linewidth=0, label=f"tolerance of {band:.0f} %")
    ax.axvline(0, color=INK, linewidth=0.5)
    outside = (low > band) | (high < -band)
    for rule, color, name in ((~outside, BLUE, "estimate"), (outside, ORANGE, "outside")):
        if rule.any():
            bars = np.abs(np.stack([low, high]) - value)[:, rule]
            style: dict[str, Any] = {"fmt": "o", "markersize": 4, "color": color, "elinewidth": 1.2}
            ax.errorbar(value[rule], rows[rule], xerr=bars, label=name, **style)
    ax.set_xlabel("error of the standard deviation (%), 95 % interval")
    ax.spines[["top", "right"]].set_visible(False)
    _legend_above(ax)


def _legend_above(ax: Axes, side: Literal["left", "right"] = "left", height: float = 1.0) -> None:
    corner = (0 if side == "left" else 1, height)
    ax.legend(
        loc="lower left" if side == "left" else "lower right",
        bbox_to_anchor=corner,
        frameon=False,
        ncols=3,
        fontsize="small",
    )
