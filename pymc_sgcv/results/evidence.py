# SPDX-License-Identifier: Apache-2.0
"""The sections of `report` with figures: the draws, a run beside them, their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

import numpy as np
import xarray as xr

from pymc_sgcv.results import containers, drawings
from pymc_sgcv.results.batches import batch_means, chunks
from pymc_sgcv.results.containers import Container, get_group, group_names
from pymc_sgcv.results.groups import GRADIENT, MIN_DRAWS, UNCONSTRAINED
from pymc_sgcv.results.halfstep import HALF_STEP, PROBABILITIES, QUANTILES, QUANTITIES, TOLERANCES
from pymc_sgcv.results.identities import SD_TOLERANCE, SteinErrors
from pymc_sgcv.results.zv import zv

_FEW = 20
"""So many changes are drawn one by one."""
_MOST_ZV = 4e8
"""Draws times parameters beyond which the gain of zero variance is not computed for the page."""


def parameters(idata: Container, posterior: xr.Dataset, most: int) -> str:
    """Rank plots and marginals of the worst components."""
    floats = posterior[[n for n in posterior if posterior[n].dtype.kind == "f"]]
    second = get_group(idata, QUANTILES) if QUANTILES in group_names(idata) else None
    if second is not None:
        floats = floats[[str(name) for name in second]]
    badness = _by_half_step(idata) if second is not None else _by_slowness(floats)
    if not badness.size:
        return ""
    shown = np.argsort(-badness, kind="stable")[:most]
    cards = []
    for name, label, place in _components(floats, shown):
        x = floats[name].transpose("chain", "draw", ...).values
        x = x.reshape(*x.shape[:2], -1)[..., place].astype(float)
        one = xr.Dataset({"x": (("chain", "draw"), x)})
        bulk, tail = (float(containers.ess(one, kind)["x"]) for kind in ("bulk", "tail"))
        curves = [np.quantile(x, PROBABILITIES)]
        note = ""
        if second is not None:
            pair = second[name].values.reshape(2, len(PROBABILITIES), -1)[..., place]
            curves = list(pair)
            change = _estimates(idata, name, place)
            note = (
                f"at half the step: mean {change['mean']:+.2f} sd, sd {100 * change['sd']:+.1f} %, "
                f"quantiles {change['q5']:+.2f} and {change['q95']:+.2f} sd"
            ).replace("-", "−")
        r_hat = float(containers.rhat(one)["x"]) if len(x) > 1 else np.nan
        low, high = np.quantile(x, [0.05, 0.95])
        text = (
            f"{drawings.number(x.mean())} ± {drawings.number(x.std())}, 90 % in "
            f"[{drawings.number(low)}, {drawings.number(high)}]"
        )
        told = f"R-hat {r_hat:.3f}, ESS {bulk:.0f} (bulk), {tail:.0f} (tail)"
        cards.append(
            f"<div class='card'><h3>{escape(label)}</h3><div>{text}</div>"
            f"<p class='note'>{told}</p>{drawings.marginals(curves, PROBABILITIES)}"
            f"<p class='note'>{note}</p>{drawings.ranks(x, bulk if bulk > 0 else x.size)}</div>"
        )
    which = f"all {len(badness)}" if len(badness) <= most else f"{len(cards)} of {len(badness):,}"
    order = "change most at half the step" if second is not None else "mix worst"
    said = (
        f"Components: {which}, those first that {order}. Upper figure: the density of the draws "
        "<span class='key run'></span>this run"
        + ("<span class='key half'></span>at half the step" if second is not None else "")
        + ". Lower figure: ranks of each chain's draws among all. Chains that agree have flat "
        "histograms, within the band for 99 of 100 bars."
    )
    return section("Marginals and chains", said, f"<div class='grid'>{''.join(cards)}</div>")


def _components(floats: xr.Dataset, shown: np.ndarray) -> Iterator[tuple[str, str, int]]:
    """Variable, label and place in the variable of some components."""
    names = [str(name) for name in floats]
    sizes = [floats[name].isel(chain=0, draw=0).size for name in names]
    first = np.concatenate([[0], np.cumsum(sizes)])
    labels = {names[k]: None for k in np.unique(np.searchsorted(first, shown, side="right") - 1)}
    found = {name: containers.labels(floats[name]) for name in labels}
    for i in shown:
        k = int(np.searchsorted(first, i, side="right") - 1)
        place = int(i - first[k])
        yield names[k], found[names[k]][place], place


def _by_half_step(idata: Container) -> np.ndarray:
    """How near each component's largest change at half the step is to its limit."""
    found = get_group(idata, HALF_STEP)
    parts = []
    for v in found.values():
        change, limit = (
            v.sel(half_step_estimate=name).values.reshape(v.sizes["half_step_quantity"], -1)
            for name in ("change", "limit")
        )
        parts.append(np.nan_to_num(np.abs(change) / limit, nan=-1.0).max(axis=0))
    return np.concatenate(parts)


def _by_slowness(floats: xr.Dataset) -> np.ndarray:
    """Variance of batch means over that of draws, of each component."""
    parts = []
    for v in floats.values():
        a = v.transpose("chain", "draw", ...).values
        x = a.reshape(a.shape[0] * a.shape[1], -1)
        for part in chunks(x):
            variance = x[:, part].var(axis=0)
            ratio = batch_means(x[:, part], len(a)).var(axis=0)
            parts.append(np.divide(ratio, variance, out=np.zeros_like(ratio), where=variance > 0))
    return np.concatenate(parts) if parts else np.empty(0)


def _estimates(idata: Container, name: str, place: int) -> dict[str, float]:
    v = get_group(idata, HALF_STEP)[name].sel(half_step_estimate="change")
    values = v.values.reshape(v.sizes["half_step_quantity"], -1)[:, place]
    return dict(zip(v["half_step_quantity"].values.tolist(), values.tolist(), strict=True))


def half_step(idata: Container, attrs: Mapping) -> str:
    """What a second run at half the step changes, over all components."""
    if HALF_STEP not in group_names(idata):
        return ""
    found = get_group(idata, HALF_STEP)
    one = found.isel(half_step_estimate=0, half_step_quantity=0, drop=True)

    def all_of(estimate: str, quantity: str) -> np.ndarray:
        chosen = found.sel(half_step_estimate=estimate, half_step_quantity=quantity)
        return np.concatenate([np.ravel(v.values) for v in chosen.values()])

    cards = []
    for quantity, title, scale, unit in (
        ("mean", "means, in sds", 1.0, ""),
        ("sd", "standard deviations", 100.0, " %"),
        ("q5", "5 % quantiles, in sds", 1.0, ""),
        ("q95", "95 % quantiles, in sds", 1.0, ""),
    ):
        change, limit = scale * all_of("change", quantity), scale * all_of("limit", quantity)
        error = scale * all_of("standard_error", quantity)
        moving = np.isfinite(change) & (error > 0)
        if not moving.any():
            continue
        title = f"Change of {title}"
        if moving.sum() <= _FEW:
            labels = [label for name in one for label in containers.labels(one[name])]
            wide, tolerance = 1.96 * error, scale * TOLERANCES[QUANTITIES.index(quantity)]
            drawn = drawings.intervals(
                labels, change, change - wide, change + wide, tolerance, unit
            )
            note = "95 % intervals, and what is tolerated"
        else:
            share = float((np.abs(change[moving]) > 1.96 * error[moving]).mean())
            drawn = drawings.histogram(change, float(np.nanmedian(limit)), title, unit)
            note = (
                f"{100 * share:.1f} % of {moving.sum():,} changes are beyond 1.96 standard errors "
                "(by chance: 5 %); dashed: the median of the limits"
            )
        cards.append(_card(title, f"{drawn}<p class='note'>{note}</p>"))
    return section(
        "At half the step",
        "A second run with half the step and twice the batch, started where this one ended. What "
        "the scheme and gradient noise do to the posterior is a quarter there, so a change is "
        "three quarters of the error of this run. " + escape(str(attrs.get("half_step", ""))),
        f"<div class='grid'>{''.join(cards)}</div>",
    )


def gradients(errors: SteinErrors | None, most: int) -> str:
    """Errors of standard deviations by Stein's identity, and the noise of the gradients."""
    if errors is None:
        return ""
    sd = errors.sd_error[:-1]
    worst = np.argsort(-np.nan_to_num(np.abs(sd)), kind="stable")[:most]
    labels = [errors.labels[i] for i in worst]
    low, high = (bound[worst] for bound in errors.interval(1.96))
    signal, noise = errors.ratio[:-1] ** 2, errors.noise
    share = noise / np.maximum(signal + noise, 1e-300)
    loud = np.argsort(-share, kind="stable")[:most]
    cards = [
        _card(
            "Errors of standard deviations, 95 % intervals",
            drawings.intervals(labels, 100 * sd[worst], 100 * low, 100 * high, 100 * SD_TOLERANCE),
        ),
        _card(
            "Share of the gradient's variance that is noise",
            drawings.bars(
                [errors.labels[i] for i in loud],
                share[loud],
                [f"{100 * s:.1f} %" for s in share[loud]],
                max(float(share[loud].max()), 0.05),
            ),
        ),
    ]
    if len(sd) > most:
        cards.append(
            _card(
                f"Errors of all {len(sd):,} standard deviations",
                drawings.histogram(100 * sd, 100 * SD_TOLERANCE, "errors of sds", " %"),
            )
        )
    return section(
        "What the gradients say",
        "For draws of the posterior E[(θ − E θ) g] = −1 with the recorded gradients g of its log "
        "density. What is missing from that is the error of the standard deviation, measured "
        f"without any reference{_worst_of(len(sd), most)}.",
        f"<div class='grid'>{''.join(cards)}</div>",
    )


def gain(idata: Container, posterior: xr.Dataset, most: int) -> str:
    """By how much zero variance divides the variance of means."""
    groups = group_names(idata)
    if not {GRADIENT, UNCONSTRAINED} <= set(groups):
        return ""
    count = posterior.sizes["chain"] * posterior.sizes["draw"]
    size = sum(v.size for v in get_group(idata, GRADIENT).values())
    if count < MIN_DRAWS or size > _MOST_ZV:
        return ""
    try:
        after = get_group(idata if "zv_posterior" in groups else zv(idata), "zv_posterior")
    except (ValueError, np.linalg.LinAlgError):  # gradients that are not finite
        return ""
    labels: list[str] = []
    gains: list[np.ndarray] = []
    for name in after:
        if name not in posterior or posterior[name].dtype.kind != "f":
            continue
        flat = [
            group[name].transpose("chain", "draw", ...).values.reshape(count, -1)
            for group in (posterior, after)
        ]
        for part in chunks(flat[0]):
            before, corrected = (
                batch_means(x[:, part], posterior.sizes["chain"]).var(axis=0) for x in flat
            )
            gains.append(before / np.maximum(corrected, 1e-300))
        labels += containers.labels(posterior[name])
    if not gains:
        return ""
    gain = np.concatenate(gains)
    least = np.argsort(gain, kind="stable")[:most]
    texts = [f"÷ {g:,.0f}" if g < 1e6 else "÷ over 10⁶" for g in gain[least]]
    scale = np.log10(np.maximum(gain[least], 1.0))
    drawn = drawings.bars([labels[i] for i in least], scale, texts, max(float(scale.max()), 1.0))
    return section(
        "What zero variance gains",
        "Zero-variance post-processing (<code>sg.zv</code>) divides the Monte Carlo variance of "
        f"means by these factors (bars on a logarithmic scale), half of them by more than "
        f"{np.median(gain):,.0f}{_worst_of(len(gain), most)}.",
        f"<div class='grid'>{_card('Variance of means', drawn)}</div>",
    )


def _worst_of(count: int, most: int) -> str:
    return f". Shown: the {most} worst of {count:,}" if count > most else ""


def _card(title: str, content: str) -> str:
    return f"<div class='card'><h3>{escape(title)}</h3>{content}</div>"


def section(title: str, said: str, content: str) -> str:
    """A heading, what is below it, and that."""
    text = f"<p class='note'>{said}</p>" if said else ""
    return f"<section><h2>{title}</h2>{text}{content}</section>"
