# SPDX-License-Identifier: Apache-2.0
"""ZV of order 1 for draws that stay on disk: corrected where they are read, never held together.

One pass over draws and gradients sums their products, and with them the slopes (those of
`pymc_sgcv.results.moments`). A corrected draw is then its plain one less what the gradients beside
it explain, so nothing but the slopes is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from pymc_sgcv.results.containers import Container, get_group
from pymc_sgcv.results.groups import GRADIENT
from pymc_sgcv.results.moments import run_through
from pymc_sgcv.results.parts import PART
from pymc_sgcv.results.running import enough_for_all, slopes

LARGE = 5e8
"""Bytes of gradients, above which those in files are not brought into memory."""


def stays_on_disk(idata: Container) -> bool:
    """Whether the gradients are in files, and more than should be in memory."""
    recorded = get_group(idata, GRADIENT)
    lazy = any(not v.variable._in_memory for v in recorded.values())
    return lazy and recorded.nbytes > LARGE


def corrected_on_disk(
    idata: Container, names: Sequence[str]
) -> tuple[dict[str, xr.DataArray], dict[str, Any]]:
    """Corrected variables of the posterior, as lazy arrays, and attributes that say how."""
    posterior, recorded = get_group(idata, "posterior"), get_group(idata, GRADIENT)
    running, _ = run_through(idata, names)
    chain, beta = running[0], slopes(running)
    dense, start = enough_for_all(running), 0
    widths = {str(v): recorded[v][0, 0].size for v in recorded}
    bounds = dict(zip(widths, np.cumsum([0, *widths.values()]), strict=False))
    found = {}
    for name in names:
        draws = posterior[name].transpose("chain", "draw", ...)
        stop = start + draws[0, 0].size
        parts: dict[str, np.ndarray] = {}
        if dense:
            for v, at in bounds.items():
                parts[v] = beta[at : at + widths[v], start:stop]
        elif stop > start and chain.own[start] >= 0:
            v = next(v for v, at in bounds.items() if at <= chain.own[start] < at + widths[v])
            parts[v] = beta[start:stop]
        lazy = _Corrected(draws, {v: recorded[v] for v in parts}, parts)
        variable = xr.Variable(draws.dims, indexing.LazilyIndexedArray(lazy), draws.attrs)
        found[name] = xr.DataArray(variable, draws.coords, name=name)
        start = stop
    attrs = {
        "zv_method": "lstsq" if dense else "block",
        "zv_control_variates": "linear",
        "zv_coefficients": chain.gradients if dense else 1,
        "zv_holdout": 0,
    }
    return found, attrs


class _Corrected(BackendArray):
    """Draws less what their gradients explain.

    Parameters
    ----------
    draws
        (chain, draw, ...), in a file.
    gradients
        By value variable.
    slopes
        For each of these, of all its components, (components, size of a draw), or one for each
        component of a draw, which has as many: (size of a draw,).
    """

    def __init__(
        self,
        draws: xr.DataArray,
        gradients: Mapping[str, xr.DataArray],
        slopes: Mapping[str, np.ndarray],
    ):
        self.draws, self.slopes = draws, slopes
        self.gradients = {v: g.transpose("chain", "draw", ...) for v, g in gradients.items()}
        self.shape, self.dtype = draws.shape, np.dtype(float)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    def _read(self, key: tuple) -> np.ndarray:
        """So many draws at a time that their gradients take some 30 MB."""
        at = tuple(k if isinstance(k, slice) else slice(k, k + 1) for k in key)
        chains, draws = np.arange(self.shape[0])[at[0]], np.arange(self.shape[1])[at[1]]
        shape = [len(range(n)[k]) for n, k in zip(self.shape, at, strict=True)]
        out = np.empty(shape)
        widest = sum(g[0, 0].size for g in self.gradients.values()) + self.draws[0, 0].size
        step = max(1, PART // max(1, widest))
        for i, chain in enumerate(chains):
            for start in range(0, len(draws), step):
                rows = draws[start : start + step]
                every = int(rows[1] - rows[0]) if len(rows) > 1 else 1
                some = slice(int(rows.min()), int(rows.max()) + 1, abs(every))
                values = self._some(int(chain), some, at[2:])
                out[i, start : start + len(rows)] = values if every > 0 else values[::-1]
        return out[tuple(slice(None) if isinstance(k, slice) else 0 for k in key)]

    def _some(self, chain: int, draws: slice, rest: tuple) -> np.ndarray:
        values = self.draws[(chain, draws, *rest)].values.astype(float)
        like = self.draws.shape[2:]
        for v, slope in self.slopes.items():
            if slope.ndim > 1:
                g = self.gradients[v][chain, draws].values
                each = slope.reshape(len(slope), *like)[(slice(None), *rest)]
                values -= np.tensordot(g.reshape(len(g), -1), each, axes=1)
            else:
                values -= (
                    self.gradients[v][(chain, draws, *rest)].values * slope.reshape(like)[rest]
                )
        return values
