# SPDX-License-Identifier: Apache-2.0
"""Two runs compared, one with half the step and twice the batch: what changes is an error.

Means, standard deviations and 5 and 95 % quantiles of every parameter are compared. Each is, to
first order, the mean of a function ψ of the draws (its influence function), for which batch means
give the Monte Carlo error, autocorrelation included:

==========  ==================================  ======================
quantity    ψ(x), with m and s of the draws     in units of
==========  ==================================  ======================
mean        (x − m) / s                         standard deviations
sd          ((x − m)² / s² − 1) / 2             itself
quantile q  (p − 1[x < q]) / (s f(q))           standard deviations
==========  ==================================  ======================

f is the density at q, from the distance between neighbouring quantiles. A change beyond its limit
is seen where there is none in fewer than two of 1000 pairs of runs, over all parameters and
quantities together (Bonferroni's inequality, Student's t for the number of batches).

**What is left.** What gradient noise leaves in a variance grows with h v / n, the step times the
variance of the noise, and the discretisation error of Leimkuhler–Matthews and of BAOAB with h². At
half the step and twice the batch both are a quarter. So of an error e of the first run 3 e / 4 has
gone in the second: 4/3 of the change is the error of the first run, and 1/3 that of the second. For
Euler's scheme, whose discretisation error grows with h, it is up to twice the change, and once.
Neither holds for chains that get lost in a tail now and then: there a change says that it is so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import stdtrit

from pymc_sgcv.results import containers
from pymc_sgcv.results.batches import batch_means, chunks

HALF_STEP, QUANTILES = "half_step", "half_step_quantiles"
"""Names of the groups of a result."""
QUANTITIES = ("mean", "sd", "q5", "q95")
ESTIMATES = ("run", "half_step", "change", "standard_error", "chance", "limit", "error_left")
PROBABILITIES = np.array(
    [0.001, 0.005, 0.01, 0.025, *np.arange(0.05, 0.951, 0.05).round(2), 0.975, 0.99, 0.995, 0.999]
)
"""Of the quantiles that are kept of both runs, to draw marginals from."""
TOLERANCES = np.array([0.1, 0.05, 0.15, 0.15])
"""Changes that are not worth a warning, by quantity."""
FALSE_ALARMS = 2e-3
LEFT = 4 / 3
LEFT_EULER = 2.0
_AROUND = 0.02
"""Quantiles so far on both sides give the density at a quantile."""


@dataclass(frozen=True)
class Comparison:
    """Two runs, parameter by parameter.

    Attributes
    ----------
    labels
        Names of the p components.
    values
        Of the first run and of the second: (2, 4, p).
    change, error
        From the first run to the second, in the units of the table above, and its standard error.
    chance, limit
        How much of a change chance explains, and how large a change may be.
    quantiles
        Of both runs, at `PROBABILITIES`: (2, 27, p).
    average, average_error
        Of the sds' relative changes, over all parameters, and its standard error.
    """

    labels: list[str]
    values: np.ndarray
    change: np.ndarray
    error: np.ndarray
    chance: np.ndarray
    limit: np.ndarray
    quantiles: np.ndarray
    average: float
    average_error: float
    average_limit: float

    def sentence(self) -> str:
        """What a user reads."""
        with np.errstate(invalid="ignore"):
            beyond = np.maximum(np.abs(self.change) - self.chance, 0.0)
        (mean, sd, low, high), chance = (
            np.nanmax(part, axis=1, initial=0.0, where=np.isfinite(part))
            for part in (beyond, self.chance)
        )
        return (
            f"Half-step check: beyond Monte Carlo error means change by at most {mean:.2f} sd, sds "
            f"by {100 * sd:.1f} %, 5 and 95 % quantiles by {max(low, high):.2f} sd (Monte Carlo "
            f"error: {chance[0]:.2f} sd, {100 * chance[1]:.1f} %, {max(chance[2:]):.2f} sd; sds on "
            f"average {100 * self.average:+.1f} ± {100 * self.average_error:.1f} %)."
        )


def compare(first: xr.Dataset, second: xr.Dataset, target_bias: float = 0.03) -> Comparison:
    """Compare the draws of two runs of the same posterior, every component of every variable.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> one, two = (
    ...     xr.Dataset({"a": (("chain", "draw"), scale * rng.normal(size=(4, 1000)))})
    ...     for scale in (1.2, 1.0)
    ... )
    >>> found = compare(one, two)
    >>> print(found.change[1].round(2), bool(abs(found.change[1, 0]) > found.limit[1, 0]))
    [-0.16] True
    """
    labels = [label for name in first for label in containers.labels(first[name])]
    batches = min(_batches(first), _batches(second))
    parts: list[tuple[np.ndarray, ...]] = []
    sums: list[Any] = [0.0, 0.0]  # arrays from the first part on
    for pair in _columns(first, second):
        measured = [_measure(x, chains) for x, chains in pair]
        parts.append(tuple(np.stack(both) for both in zip(*(m[:3] for m in measured))))
        sums = [total + m[3] for total, m in zip(sums, measured)]
    values, quantiles, errors = (np.concatenate(part, axis=-1) for part in zip(*parts))
    sd = np.where(values[0, 1] > 0, values[0, 1], np.nan)
    change = (values[1] - values[0]) / sd
    scale = values[:, 1] / sd  # errors are in sds of the run that they are of
    error = np.sqrt((errors**2 * scale[:, None] ** 2).sum(axis=0))
    moving = max(int(np.isfinite(sd).sum()), 1)
    t = -stdtrit(batches - 1, FALSE_ALARMS / (2 * (4 * moving + 1)))
    tolerance = np.maximum(TOLERANCES, target_bias)[:, None]
    average_error = float(np.hypot(*(np.std(s, ddof=1) / np.sqrt(len(s)) for s in sums)) / moving)
    return Comparison(
        labels,
        values,
        change,
        error,
        t * error,
        np.maximum(tolerance, target_bias / LEFT + t * error),
        quantiles,
        float(np.nanmean(change[1])) if np.isfinite(change[1]).any() else 0.0,
        average_error,
        max(float(TOLERANCES[1]), target_bias / LEFT + t * average_error),
    )


def to_groups(found: Comparison, like: xr.Dataset, euler: bool = False) -> dict[str, xr.Dataset]:
    """The comparison as groups of a result, in the dims and coords of the posterior `like`."""
    left = (LEFT_EULER if euler else LEFT) * -found.change
    table = np.stack([*found.values, found.change, found.error, found.chance, found.limit, left])
    attrs = {
        "average_sd_change": found.average,
        "average_sd_change_error": found.average_error,
        "average_sd_change_limit": found.average_limit,
    }
    estimates: dict = {
        "half_step_estimate": list(ESTIMATES),
        "half_step_quantity": list(QUANTITIES),
    }
    runs: dict = {"half_step_run": list(ESTIMATES[:2]), "half_step_probability": PROBABILITIES}
    groups = {HALF_STEP: (table, estimates), QUANTILES: (found.quantiles, runs)}
    return {
        name: xr.Dataset(_named(array, like, coords), attrs=attrs)
        for name, (array, coords) in groups.items()
    }


def _named(array: np.ndarray, like: xr.Dataset, coords: dict) -> dict[str, xr.DataArray]:
    named, first = {}, 0
    for name in like:
        one = like[name].isel(chain=0, draw=0, drop=True)
        part = array[..., first : first + one.size].reshape(*array.shape[:2], *one.shape)
        named[str(name)] = xr.DataArray(
            part, dims=(*coords, *one.dims), coords={**coords, **one.coords}
        )
        first += one.size
    return named


def _batches(draws: xr.Dataset) -> int:
    return draws.sizes["chain"] * min(20, draws.sizes["draw"])


def _columns(first: xr.Dataset, second: xr.Dataset) -> Iterator[list[tuple[np.ndarray, int]]]:
    """Draws (n, k) of some components of both runs at a time, with the number of chains."""
    for name in first:
        arrays = [run[name].transpose("chain", "draw", ...).values for run in (first, second)]
        flat = [(a.reshape(a.shape[0] * a.shape[1], -1), a.shape[0]) for a in arrays]
        for part in chunks(max((x for x, _ in flat), key=len)):
            yield [(np.asarray(x[:, part], dtype=float), chains) for x, chains in flat]


def _measure(x: np.ndarray, chains: int) -> tuple[np.ndarray, ...]:
    """Quantities, quantiles, standard errors, and batch means of the sum of the sds' ψ."""
    n = len(x)
    mean, sd = x.mean(axis=0), x.std(axis=0)
    scale = np.where(sd > 0, sd, 1.0)
    ordered = np.sort(x, axis=0)

    def at(p: float | np.ndarray) -> np.ndarray:
        place = np.clip(np.asarray(p) * n - 0.5, 0, n - 1)
        low = place.astype(int)
        share = (place - low)[..., None] if np.ndim(p) else place - low
        return ordered[low] * (1 - share) + ordered[np.minimum(low + 1, n - 1)] * share

    quantiles, wide = at(PROBABILITIES), at(np.array([0.05, 0.95]))
    z = (x - mean) / scale
    influences = [z, (z**2 - 1) / 2]
    for p, q in zip((0.05, 0.95), wide):
        apart = (at(p + _AROUND) - at(p - _AROUND)) / (2 * _AROUND * scale)
        influences.append((p - (x < q)) * apart)
    means = np.stack([batch_means(psi, chains) for psi in influences])
    root = np.sqrt(means.shape[1])
    error = means.std(axis=1, ddof=1) / root
    return np.stack([mean, sd, *wide]), quantiles, error, means[1].sum(axis=-1)
