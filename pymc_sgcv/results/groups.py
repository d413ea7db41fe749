# SPDX-License-Identifier: Apache-2.0
"""Recorded gradients as groups of their own, beside the posterior.

``pm.sample`` has no hook for groups, so a step method's gradients arrive in ``sample_stats`` as
``gradient__<value name>`` and ``unconstrained__<value name>``. `gradient_groups` sorts them out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from pymc_sgcv.arguments import names_in
from pymc_sgcv.results.containers import (
    Container,
    check_container,
    get_group,
    group_names,
    with_groups,
)

GRADIENT = "gradient"
UNCONSTRAINED = "unconstrained_posterior"
MIN_DRAWS = 10

_DIVERGED = (
    "The chain diverged there: sample again with a smaller step size, or keep only the draws "
    "before it in all groups with idata.isel(draw=...)."
)

# PyMC's Zarr trace puts the step's number in front of a statistic's name.
_STAT = re.compile(r"(?:sampler_\d+__)?(gradient|unconstrained)__(.+)")


@dataclass(frozen=True)
class Scores:
    """Gradients (n, d) and, for order 2, positions (n, d) by value variable."""

    gradient: dict[str, np.ndarray]
    position: dict[str, np.ndarray]
    owner: dict[str, str]  # posterior variable -> value variable of the same shape
    chains: int
    draws: int
    effective: int


def gradient_groups(idata: Container) -> Container:
    """Move recorded gradients from ``sample_stats`` to groups of their own.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
        What ``pm.sample`` returned for one of this package's step methods. It is not changed.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        A new container that shares the arrays of ``idata``, with the groups ``gradient`` and
        ``unconstrained_posterior`` (``warmup_*`` too, when the warmup was kept): one variable per
        unconstrained value variable, such as ``beta`` or ``sigma_log__``, with the dims and coords
        of the posterior variable where the shapes agree. The gradient is the estimated gradient of
        the log posterior at that very draw. A container that is sorted already comes back as is.

    Raises
    ------
    ValueError
        If no gradient was recorded.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> dims = ("chain", "draw", "gradient__beta_dim_0")
    >>> idata = xr.DataTree.from_dict(
    ...     {
    ...         "posterior": xr.Dataset({"beta": (("chain", "draw", "k"), np.zeros((1, 5, 2)))}),
    ...         "sample_stats": xr.Dataset({"gradient__beta": (dims, np.ones((1, 5, 2)))}),
    ...     }
    ... )
    >>> gradient_groups(idata)["gradient"]["beta"].dims
    ('chain', 'draw', 'k')
    """
    check_container(idata)
    groups: dict[str, xr.Dataset] = {}
    for warmup in ("", "warmup_"):
        groups |= _sorted_stats(idata, warmup)
    if groups:
        return with_groups(idata, groups)
    if GRADIENT not in group_names(idata):
        raise ValueError(
            "idata holds no gradients: neither a group 'gradient' nor a variable 'gradient__*' in "
            f"'sample_stats' (its groups are {', '.join(group_names(idata)) or 'none'}). Sample "
            "with one of this package's step methods, such as SGLDCV, SGLD or SAGA, which record "
            "the gradient of every draw (in sg.sample unless gradients=False was given); NUTS, HMC "
            "and the Metropolis methods do not."
        )
    return idata


def to_idata_groups(
    gradient: Mapping[str, np.ndarray],
    unconstrained: Mapping[str, np.ndarray],
    posterior: xr.Dataset,
) -> dict[str, xr.Dataset]:
    """Build the groups ``gradient`` and ``unconstrained_posterior`` from arrays.

    Parameters
    ----------
    gradient, unconstrained : mapping of str to array, shape (chain, draw, *shape)
        By value name, such as ``beta`` or ``sigma_log__``. The arrays are not copied.
    posterior : xarray.Dataset
        The posterior group of the same draws: it gives dims and coords.

    Returns
    -------
    dict of str to xarray.Dataset
        The two groups by name; an empty mapping makes no group.

    Examples
    --------
    >>> posterior = xr.Dataset({"s": (("chain", "draw"), np.ones((2, 5)))})
    >>> groups = to_idata_groups({"s_log__": np.zeros((2, 5))}, {}, posterior)
    >>> list(groups), groups["gradient"]["s_log__"].shape
    (['gradient'], (2, 5))
    """
    groups = {}
    for group, arrays in ((GRADIENT, gradient), (UNCONSTRAINED, unconstrained)):
        if arrays:
            variables = {v: _like_posterior(v, a, posterior) for v, a in arrays.items()}
            groups[group] = xr.Dataset(variables, attrs=posterior.attrs)
    return groups


def rv_name(value_name: str, posterior: xr.Dataset) -> str | None:
    """Name of the posterior variable a value variable belongs to: ``sigma_log__`` to ``sigma``."""
    if value_name in posterior.data_vars:
        return value_name
    matches = [
        str(name)
        for name in posterior.data_vars
        if value_name.startswith(f"{name}_")
        and value_name.endswith("__")
        and len(value_name) > len(f"{name}___")  # between the two stands the transform's name
    ]
    return max(matches, key=len, default=None)


def require_group(idata: Container, group: str, fix: str = "") -> xr.Dataset:
    """Get a group, or raise a ValueError that ends with how to fix that it is missing."""
    if group not in group_names(idata):
        names = ", ".join(group_names(idata))
        raise ValueError(f"idata has no group '{group}'. Its groups are {names}. {fix}".strip())
    return get_group(idata, group)


def select_names(
    dataset: xr.Dataset, var_names: str | Sequence[str] | None, group: str
) -> list[str]:
    """Names to work on, after a check that they are there."""
    if var_names is None:
        return [str(name) for name in dataset.data_vars]
    names = names_in("var_names", var_names)
    if unknown := [name for name in names if name not in dataset.data_vars]:
        raise ValueError(
            f"Group '{group}' has no variable {', '.join(map(repr, unknown))}. "
            f"Choose var_names from {', '.join(map(str, dataset.data_vars))}."
        )
    return names


def flat_draws(array: xr.DataArray, what: str, fix: str = _DIVERGED) -> np.ndarray:
    """Draws as a float matrix (chain * draw, components), without a copy where possible.

    NaN or infinite values are a ValueError that begins with ``what`` and ends with ``fix``.
    """
    array = array.transpose("chain", "draw", ...)
    values = np.asarray(array.values, dtype=np.float64)
    matrix = values.reshape(math.prod(values.shape[:2]), math.prod(values.shape[2:]))
    if not np.isfinite(matrix.sum()):  # one cheap pass; a sum may also overflow, so look again
        _check_finite(matrix, array.sizes["draw"], what, fix)
    return matrix


def read_scores(idata: Container, draws: xr.Dataset, group: str, order: int) -> Scores:
    """Gradients and positions that belong to the draws of a group."""
    warmup = "warmup_" if group.startswith("warmup_") else ""
    recorded = require_group(idata, warmup + GRADIENT)
    _check_same_draws(draws, recorded, group)
    chains, length = draws.sizes["chain"], draws.sizes["draw"]
    if chains * length < MIN_DRAWS:
        raise ValueError(
            f"Group '{group}' has {chains * length} draws in all, too few to fit a coefficient. "
            f"Draw at least {MIN_DRAWS}."
        )
    gradient = {str(v): flat_draws(recorded[v], f"The gradient of '{v}'") for v in recorded}
    position = {}
    if order == 2:
        where = require_group(idata, warmup + UNCONSTRAINED, "Without it only order=1 is possible.")
        position = {v: flat_draws(where[v], f"'{v}' in '{UNCONSTRAINED}'") for v in gradient}
    owner = {
        rv: v for v, g in gradient.items() if (rv := rv_name(v, draws)) and draws[rv].size == g.size
    }
    owner |= {v: v for v in owner if v in gradient}  # an equal name beats one that begins alike
    effective = _effective_draws(gradient, chains, length)
    return Scores(gradient, position, owner, chains, length, effective)


def _sorted_stats(idata: Container, warmup: str) -> dict[str, xr.Dataset]:
    """Gradient groups of one sample_stats group, and what is left of it, by group name."""
    name = f"{warmup}sample_stats"
    if name not in group_names(idata):
        return {}
    stats = get_group(idata, name)
    arrays: dict[str, dict[str, np.ndarray]] = {"gradient": {}, "unconstrained": {}}
    moved = []
    for stat in stats.data_vars:
        if match := _STAT.fullmatch(str(stat)):
            kind, value_name = match.groups()
            arrays[kind][value_name] = stats[stat].transpose("chain", "draw", ...).values
            moved.append(stat)
    if not moved:
        return {}
    posterior = f"{warmup}posterior"
    like = get_group(idata, posterior) if posterior in group_names(idata) else stats
    groups = to_idata_groups(arrays["gradient"], arrays["unconstrained"], like)
    rest = stats.drop_vars(moved)
    unused = {dim for var in moved for dim in stats[var].dims} - set(_dims(rest))
    return {name: rest.drop_dims(unused, errors="ignore")} | {
        f"{warmup}{g}": ds for g, ds in groups.items()
    }


def _dims(dataset: xr.Dataset) -> set:
    return {"chain", "draw"}.union(*(var.dims for var in dataset.data_vars.values()))


def _like_posterior(value_name: str, values: np.ndarray, posterior: xr.Dataset) -> xr.DataArray:
    """Wrap an array in the dims and coords of the posterior variable it belongs to."""
    rv = rv_name(value_name, posterior)
    if rv is not None:
        template = posterior[rv].transpose("chain", "draw", ...)
        if template.shape == values.shape:
            return xr.DataArray(values, dims=template.dims, coords=template.coords)
    sizes = (posterior.sizes["chain"], posterior.sizes["draw"])
    if values.shape[:2] != sizes:
        raise ValueError(
            f"The array of '{value_name}' has shape {values.shape}, but the posterior has "
            f"{sizes[0]} chains of {sizes[1]} draws. Pass arrays of shape (chain, draw, ...)."
        )
    own = {f"{value_name}_dim_{i}": np.arange(n) for i, n in enumerate(values.shape[2:])}
    shared = {dim: posterior[dim] for dim in ("chain", "draw")}
    return xr.DataArray(values, dims=(*shared, *own), coords={**shared, **own})


def _check_finite(matrix: np.ndarray, draws: int, what: str, fix: str) -> None:
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if bad.size:
        raise ValueError(
            f"{what} is NaN or infinite in {bad.size} of {len(matrix)} draws, first in chain "
            f"{bad[0] // draws} at draw {bad[0] % draws}. {fix}"
        )


def _check_same_draws(draws: xr.Dataset, recorded: xr.Dataset, group: str) -> None:
    """Raise a ValueError unless both Datasets hold the same chains and draws."""
    for dim in ("chain", "draw"):
        if dim not in draws.dims:
            raise ValueError(
                f"Group '{group}' has no dimension '{dim}', so its variables are not draws. "
                "Pass group='posterior'."
            )
        if not np.array_equal(draws[dim].values, recorded[dim].values):
            raise ValueError(
                f"Group '{group}' and the recorded gradients differ in their '{dim}' coordinate "
                f"({draws.sizes[dim]} and {recorded.sizes[dim]} values). Select or thin all "
                "groups together, as idata.sel(draw=...) or idata.isel(draw=...) does."
            )


def _effective_draws(gradients: Mapping[str, np.ndarray], chains: int, draws: int) -> int:
    """Draws n (1 − ρ) / (1 + ρ), ρ the median lag-1 autocorrelation of some 50 columns each."""
    rho = [0.0]
    for gradient in gradients.values():
        step = max(1, gradient.shape[1] // 50)
        x = gradient[:, ::step].reshape(chains, draws, len(gradient[0, ::step]))
        x = x - x.mean(axis=(0, 1))
        lagged, square = (x[:, 1:] * x[:, :-1]).sum(axis=(0, 1)), (x**2).sum(axis=(0, 1))
        rho.extend(lagged[square > 0] / square[square > 0])
    r = max(0.0, float(np.median(rho[1:] or rho)))
    return int(chains * draws * (1 - r) / (1 + r))
