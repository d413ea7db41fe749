# SPDX-License-Identifier: Apache-2.0
"""ArviZ' summary of draws that need not fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from pymc_sgcv.results import containers
from pymc_sgcv.results.containers import Container
from pymc_sgcv.results.groups import require_group, select_names
from pymc_sgcv.results.parts import parts_of


def summary(
    idata: Container,
    var_names: str | Sequence[str] | None = None,
    *,
    group: str = "posterior",
    **kwargs: Any,
) -> pd.DataFrame:
    """Compute ``arviz.summary`` of some components after the others, so that memory stays bounded.

    Its numbers are those of ``arviz.summary``, which reads all draws of a variable at once.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
        Such as `open_run` returns.
    var_names : str or sequence of str, optional
        Variables to show; all by default.
    group : str
        The group that they are in.
    **kwargs
        Passed on to ``arviz.summary``.

    Returns
    -------
    pandas.DataFrame
        One row for each component.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> theta = np.random.default_rng(0).normal(size=(2, 100, 3))
    >>> posterior = xr.Dataset({"theta": (("chain", "draw", "k"), theta)})
    >>> list(summary(xr.DataTree.from_dict({"posterior": posterior})).index)
    ['theta[0]', 'theta[1]', 'theta[2]']
    """
    containers.check_container(idata)
    draws = require_group(idata, group)
    draws = draws[select_names(draws, var_names, group)]
    return pd.concat([containers.summary(part, **kwargs) for part in parts_of(draws)])
