# SPDX-License-Identifier: Apache-2.0
"""Small figures as SVG text, for a page that needs nothing else: no fonts, scripts or files."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from scipy.special import ndtri

WIDTH = 320
CHAIN_COLORS = ("#2a78b8", "#d9711c", "#3a8f5d", "#8b5fbf", "#b8488a", "#7a6a4f")
_BINS = 20


def number(value: float) -> str:
    """Three digits, without an exponent where that is short."""
    if value == 0 or not np.isfinite(value) or not 1e-3 <= abs(value) < 1e5:
        text = f"{value:.3g}"
    else:
        text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text.replace("-", "−")


def ranks(x: np.ndarray, effective: float) -> str:
    """Ranks of the draws (chain, draw) among all, a histogram for each chain.

    The band is where 99 of 100 bars of chains that agree are, for so many `effective` draws.
    """
    chains, draws = x.shape
    from scipy.stats import rankdata  # half a second of imports, for a figure

    place = (rankdata(x).reshape(x.shape) - 0.5) / x.size
    counts = np.stack([np.histogram(one, _BINS, (0, 1))[0] for one in place]) / draws * _BINS
    spread = -ndtri(0.005) * np.sqrt(_BINS * (1 - 1 / _BINS) / max(effective / chains, 1.0))
    row, top = 34, max(2.0, float(counts.max()))
    height, parts = chains * row + 4, []
    for i, bars in enumerate(counts):
        base, unit = (i + 1) * row, (row - 6) / top
        low, high = max(0.0, 1 - spread), min(top, 1 + spread)
        parts.append(_rect(0, base - high * unit, WIDTH, (high - low) * unit, "band"))
        width = WIDTH / _BINS
        for k, bar in enumerate(bars):
            fill = CHAIN_COLORS[i % len(CHAIN_COLORS)]
            parts.append(_rect(k * width + 0.5, base - bar * unit, width - 1, bar * unit, "", fill))
        parts.append(_line(0, base - unit, WIDTH, base - unit, "rule"))
    return _svg(height, parts, f"rank histograms of {chains} chains")


def marginals(curves: Sequence[np.ndarray], probabilities: np.ndarray) -> str:
    """Densities behind quantile functions: the first filled, the second a line."""
    ends = [np.interp([0.001, 0.999], probabilities, q) for q in curves]
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    if not high > low:
        return ""
    grid, height = np.linspace(low, high, 120), 110
    densities = [_density(q, probabilities, grid) for q in curves]
    top = max(d.max() for d in densities)
    parts = []
    for density, kind in zip(densities, ("area", "second")):
        xs, ys = (grid - low) / (high - low) * WIDTH, height - 4 - density / top * (height - 12)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(xs, ys))
        if kind == "area":
            points = f"0,{height - 4} {points} {WIDTH},{height - 4}"
        tag = "polygon" if kind == "area" else "polyline"
        parts.append(f'<{tag} points="{points}" class="{kind}"/>')
    parts.append(_line(0, height - 4, WIDTH, height - 4, "axis"))
    for at, anchor in ((low, "start"), ((low + high) / 2, "middle"), (high, "end")):
        x = (at - low) / (high - low) * WIDTH
        parts.append(_text(x, height + 10, number(at), anchor))
    return _svg(height + 14, parts, "marginal density")


def intervals(
    labels: Sequence[str],
    value: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    band: float,
    unit: str = " %",
) -> str:
    """A dot and an interval for each label, around a band of tolerance."""
    ends = np.concatenate([low, high, [-2 * band, 2 * band]])
    least, most = float(np.nanmin(ends)), float(np.nanmax(ends))
    left, row = _label_width(labels), 20
    height = row * len(labels) + 22

    def at(v: float) -> float:
        return left + (v - least) / (most - least) * (WIDTH - left - 8)

    parts = [_rect(at(-band), 0, at(band) - at(-band), height - 20, "band")]
    parts.append(_line(at(0), 0, at(0), height - 20, "rule"))
    for i, label in enumerate(labels):
        y = row * i + 11
        outside = low[i] > band or high[i] < -band
        kind = "bad" if outside else "good"
        parts.append(_text(left - 6, y + 4, _short(label), "end"))
        parts.append(_line(at(low[i]), y, at(high[i]), y, kind))
        parts.append(f'<circle cx="{at(value[i]):.1f}" cy="{y}" r="3" class="{kind}"/>')
    wide = at(band) - at(-band) > 70  # else the numbers would run into each other
    for v in (-band, 0.0, band) if wide else (0.0,):
        parts.append(_text(at(v), height - 6, f"{v:+.3g}{unit}".replace("-", "−") if v else "0"))
    return _svg(height, parts, "estimates with intervals")


def bars(labels: Sequence[str], value: np.ndarray, texts: Sequence[str], most: float) -> str:
    """A bar for each label, with a text behind it."""
    left, row = _label_width(labels), 20
    room = WIDTH - left - 62
    parts = []
    for i, label in enumerate(labels):
        width = float(np.clip(value[i] / most, 0, 1)) * room
        parts.append(_text(left - 6, row * i + 15, _short(label), "end"))
        parts.append(_rect(left, row * i + 4, width, row - 8, "bar"))
        parts.append(_text(left + width + 5, row * i + 15, texts[i], "start"))
    return _svg(row * len(labels) + 4, parts, "bars")


def histogram(values: np.ndarray, limit: float, caption: str, unit: str = "") -> str:
    """All values, and two lines at the limit on either side."""
    values = values[np.isfinite(values)]
    if not values.size:
        return ""
    reach = 1.3 * max(limit, float(np.abs(values).max()))
    counts, _ = np.histogram(values, 41, (-reach, reach))
    height, width = 110, WIDTH / len(counts)
    scale = (height - 12) / max(counts.max(), 1)
    parts = [
        _rect(i * width, height - 4 - n * scale, width - 0.6, n * scale, "bar")
        for i, n in enumerate(counts)
    ]
    for side in (-1, 1):
        x = WIDTH / 2 * (1 + side * limit / reach)
        parts.append(_line(x, 6, x, height - 4, "limit"))
        parts.append(_text(x, height + 10, f"{side * limit:+.3g}{unit}".replace("-", "−")))
    parts += [_line(0, height - 4, WIDTH, height - 4, "axis"), _text(WIDTH / 2, height + 10, "0")]
    return _svg(height + 14, parts, caption)


def _density(q: np.ndarray, probabilities: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """A kernel density of draws that have these quantiles."""
    draws = np.interp((np.arange(400) + 0.5) / 400, probabilities, q)
    spread = min(draws.std(), np.subtract(*np.interp([0.75, 0.25], probabilities, q)) / 1.35)
    width = max(0.25 * spread, 1e-3 * float(np.ptp(grid)))
    return np.exp(-0.5 * ((grid[:, None] - draws) / width) ** 2).mean(axis=1) / width


def _label_width(labels: Sequence[str]) -> int:
    return 12 + 6 * max((len(_short(label)) for label in labels), default=0)


def _short(label: str) -> str:
    return label if len(label) <= 17 else f"{label[:8]}…{label[-8:]}"


def _rect(x: float, y: float, width: float, height: float, kind: str, fill: str = "") -> str:
    style = f'fill="{fill}"' if fill else f'class="{kind}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {style}/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(height: float, parts: Sequence[str], caption: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(caption)}">'
        f"{''.join(parts)}</svg>"
    )
