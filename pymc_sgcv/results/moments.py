# SPDX-License-Identifier: Apache-2.0
"""The result of a run whose draws were not kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_sgcv.results import containers
from pymc_sgcv.results.containers import Container, get_group, group_names
from pymc_sgcv.results.groups import (
    GRADIENT,
    flat_draws,
    require_group,
    rv_name,
    select_names,
)
from pymc_sgcv.results.parts import PART
from pymc_sgcv.results.running import (
    Running,
    corrected,
    pooled,
    slopes,
    split_r_hat,
    standard_error,
)
from pymc_sgcv.results.sketch import Sketch
from pymc_sgcv.results.sketch import quantiles as quantiles_of

PROBABILITIES = 0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975
DENSE_COLUMNS = 1000
"""Components and gradients together, up to which all are multiplied with all."""


class Moments:
    """What ``sample(keep="moments")`` returns: moments of the posterior, and no draws.

    Printing it shows the summary.

    Attributes
    ----------
    draws
        How many draws of how many chains there were, (chains, draws).
    attrs
        The attributes that a result with draws has.
    rank_error
        By how much the share of draws below a quantile may be wrong; None without quantiles.
    """

    def __init__(
        self,
        like: xr.Dataset,
        chains: Sequence[Running],
        sketches: Mapping[str, Sequence[Sketch]],
        attrs: Mapping[str, Any],
    ):
        self._like, self._chains, self.attrs = like, list(chains), dict(attrs)
        self.draws = len(self._chains), min(chain.all.count for chain in self._chains)
        errors = [one.rank_error for several in sketches.values() for one in several]
        self.rank_error = max(errors, default=None)
        self._statistics = self._computed(bool(self._chains[0].gradients))
        self._quantiles = {
            name: quantiles_of(several, PROBABILITIES) for name, several in sketches.items()
        }

    def _computed(self, zv: bool) -> dict[str, np.ndarray]:
        """Statistics by name, of all components one after the other."""
        chains, p = self._chains, self._chains[0].size
        whole, _ = pooled(chains)
        variance = whole.squares[:p] / max(whole.count - 1, 1)
        error = standard_error(chains)
        found = {"mean": whole.mean[:p], "sd": np.sqrt(variance), "mcse": error}
        if zv:
            beta = slopes(chains)
            found["mean_zv"] = corrected(chains[0], whole.mean, beta)
            found["mcse_zv"] = standard_error(chains, beta)
        with np.errstate(divide="ignore", invalid="ignore"):
            found["ess"] = np.minimum(variance / error**2, 1.0 * whole.count)
        return found | {"r_hat": split_r_hat(chains)}

    @property
    def covariance(self) -> xr.DataArray | None:
        """Of all components with all others; None if there are too many for that."""
        chains, p = self._chains, self._chains[0].size
        if not chains[0].dense:
            return None
        whole, products = pooled(chains)
        labels = self.labels
        matrix = products[:p, :p] / max(whole.count - 1, 1)
        return xr.DataArray(matrix, dims=("a", "b"), coords={"a": labels, "b": labels})

    @property
    def labels(self) -> list[str]:
        """A name for each component."""
        return [label for name in self._like for label in containers.labels(self._like[name])]

    def summary(self) -> pd.DataFrame:
        """One row for each component: mean, sd, errors, effective draws, R-hat, quantiles."""
        table = pd.DataFrame(self._statistics, index=self.labels)
        start = 0
        for name in self._like:
            rows = slice(start, start + self._size(name))
            for i, q in enumerate(PROBABILITIES if name in self._quantiles else ()):
                column = f"q{100 * q:g}"
                if column not in table:
                    table[column] = np.nan
                table.iloc[rows, table.columns.get_loc(column)] = self._quantiles[str(name)][i]
            start = rows.stop
        return table

    def to_dataset(self) -> xr.Dataset:
        """The same as a Dataset: variables with their own dims and a first one, ``statistic``."""
        table, variables, start = self.summary(), {}, 0
        for name, like in self._like.items():
            stop = start + self._size(name)
            values = table.iloc[start:stop].to_numpy().T.reshape(-1, *like.shape)
            variables[name] = (("statistic", *like.dims), values)
            start = stop
        coords = {**self._like.coords, "statistic": list(table.columns)}
        return xr.Dataset(variables, coords=coords, attrs=self.attrs)

    def _size(self, name: Any) -> int:
        return int(self._like[name].size)

    def __repr__(self) -> str:
        chains, draws = self.draws
        head = f"Moments of {chains} chains of {draws} draws, which were not kept"
        if self.rank_error is not None:
            head += f"; quantiles to {100 * self.rank_error:.2g} % of the draws"
        with pd.option_context("display.max_rows", 40, "display.width", 120):
            return f"{head}\n{self.summary()}"


def moments(
    idata: Container,
    var_names: str | Sequence[str] | None = None,
    quantiles: str | Sequence[str] | None = None,
) -> Moments:
    """Summarise draws that need not fit into memory, block by block.

    What ``sample(keep="moments")`` gives, of draws that were kept: means, standard deviations,
    means corrected by `zv` of order 1, their errors from batch means, effective draws, R-hat.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
        Such as `open_run` returns; with gradients there are corrected means.
    var_names, quantiles
        Posterior variables to summarise, and those to have quantiles of: all and none by default.

    Returns
    -------
    Moments
        Memory is that of some 30 MB of draws, and 64 batch means for each component and chain.

    Examples
    --------
    >>> theta = np.random.default_rng(0).normal(size=(2, 500))
    >>> groups = {"posterior": theta, "gradient": -theta}
    >>> idata = xr.DataTree.from_dict(
    ...     {k: xr.Dataset({"theta": (("chain", "draw"), v)}) for k, v in groups.items()}
    ... )
    >>> bool(abs(moments(idata).summary().loc["theta", "mean_zv"]) < 1e-12)
    True
    """
    posterior = require_group(idata, "posterior")
    names = select_names(posterior, var_names, "posterior")
    sketched = [] if quantiles is None else select_names(posterior, quantiles, "posterior")
    running, sketches = run_through(idata, names, sketched)
    like = posterior[names].isel(chain=0, draw=0, drop=True)
    return Moments(like, running, sketches, posterior.attrs)


def run_through(
    idata: Container, names: Sequence[str], sketched: Sequence[str] = ()
) -> tuple[list[Running], dict[str, list[Sketch]]]:
    """Moments of each chain's draws and gradients, and sketches by name, read block by block."""
    posterior = require_group(idata, "posterior")
    recorded = get_group(idata, GRADIENT) if GRADIENT in group_names(idata) else xr.Dataset()
    sizes = {name: math.prod(posterior[name].shape[2:]) for name in names}
    widths = {str(v): math.prod(recorded[v].shape[2:]) for v in recorded}
    p, q = sum(sizes.values()), sum(widths.values())
    own = _own_gradients(posterior, sizes, widths)
    running: list[Running] = []
    sketches: dict[str, list[Sketch]] = {name: [] for name in sketched}
    length = max(1, PART // max(1, p + q))
    for chain in range(posterior.sizes["chain"]):
        running.append(Running(p, q, own, dense=p + q <= DENSE_COLUMNS))
        here = {name: Sketch(sizes[name]) for name in sketched}
        for start in range(0, posterior.sizes["draw"], length):
            part = {"chain": slice(chain, chain + 1), "draw": slice(start, start + length)}
            flat = {name: flat_draws(posterior[name].isel(part), f"'{name}'") for name in names}
            beside = [flat_draws(recorded[v].isel(part), f"Of '{v}' a gradient") for v in recorded]
            running[-1].add(np.hstack([*flat.values(), *beside]))
            for name, sketch in here.items():
                sketch.add(flat[name])
        for name, sketch in here.items():
            sketches[name].append(sketch)
    return running, sketches


def _own_gradients(
    posterior: xr.Dataset, sizes: Mapping[str, int], widths: Mapping[str, int]
) -> np.ndarray:
    """The column of each component's own gradient, or −1."""
    own, start = np.full(sum(sizes.values()), -1), 0
    places = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
    for value, width in widths.items():
        name = rv_name(value, posterior)
        if name is not None and sizes.get(name) == width:
            own[places[name] : places[name] + width] = np.arange(start, start + width)
        start += width
    return own
