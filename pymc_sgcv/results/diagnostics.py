# SPDX-License-Identifier: Apache-2.0
"""Is a run to be trusted? Convergence, errors that its gradients reveal, gradient noise, center.

Limits allow for Monte Carlo error, and for the number of parameters by Bonferroni's inequality, so
that an exact sampler gets a warning in fewer than one in 1000 runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import chdtri

from pymc_sgcv.errors import warn
from pymc_sgcv.results import containers
from pymc_sgcv.results.checks import Check, check, worst
from pymc_sgcv.results.containers import Container, check_container, get_group, group_names
from pymc_sgcv.results.groups import (
    GRADIENT,
    MIN_DRAWS,
    UNCONSTRAINED,
    gradient_groups,
    require_group,
    rv_name,
)
from pymc_sgcv.results.identities import TARGET_BIAS, SteinErrors, batch_means, chunks, stein_errors
from pymc_sgcv.setup.plan import SETUP_STATISTICS
from pymc_sgcv.setup.search import near_enough

R_HAT, ESS_PER_CHAIN = 1.01, 100
NOISE_SHARE, CHAIN_DISTANCE = 0.5, 1.0
FALSE_ALARMS = 1e-3 / 3  # for each of R-hat, means and standard deviations
SLOWEST = 50


def diagnose(idata: Container) -> pd.DataFrame:
    """Check a run: convergence, errors that its gradients reveal, gradient noise, the center.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
        What ``sg.sample`` or ``pm.sample`` returned. It is not changed. A check whose group or
        attribute is missing is left out.

    Returns
    -------
    pandas.DataFrame
        One row per check with ``value``, ``limit``, whether it is ``ok``, ``where`` the value is
        worst, and for a failure ``advice`` on what to change. The rows:

        - ``finite``: how many numbers among draws and gradients are NaN or infinite.
        - ``r_hat``, ``ess_bulk``, ``ess_tail``: the worst of the free variables. The limit of R-hat
          is 1.01, or more where chance alone exceeds that. Of many components, those are looked at
          that mix worst by batch means.
        - ``mean_shift``: error of the mean in standard deviations, from E[g] = 0. It shows chains
          that have not come to rest.
        - ``sd_error``: relative error of the standard deviation in these draws, Monte Carlo error
          included, from E[(θ − E θ) g] = −1; ``sd_error_average``: the same over all directions,
          far more precise. They fail above 5 %, if Monte Carlo error does not explain it.
        - ``gradient_noise_share``, ``predicted_sd_error``: what the set-up measured and expects.
        - ``chain_distance``: from the center to the draws' means, in standard deviations;
          ``center_distance``: from the center to the mode, where the former is not known or large.

    Notes
    -----
    No check here sees a mode that no chain has visited; the set-up looks for one. The mathematics
    is in `pymc_sgcv.results.identities`.

    Examples
    --------
    Draws of a standard normal beside the gradients of a normal with half its variance:

    >>> theta = np.random.default_rng(0).normal(size=(4, 1000))
    >>> groups = {"posterior": theta, "unconstrained_posterior": theta, "gradient": -2 * theta}
    >>> idata = xr.DataTree.from_dict(
    ...     {k: xr.Dataset({"theta": (("chain", "draw"), v)}) for k, v in groups.items()}
    ... )
    >>> table = diagnose(idata)
    >>> table.index[~table["ok"]].tolist()
    ['sd_error', 'sd_error_average']
    >>> print(table.loc["sd_error", "value"].round(1))
    0.4
    """
    checks = _checks(idata)
    columns = ("value", "limit", "ok", "where")
    rows = {column: [getattr(one, column) for one in checks] for column in columns}
    rows["advice"] = ["" if one.ok else one.advice for one in checks]
    return pd.DataFrame(rows, index=[one.name for one in checks])


def warn_about(idata: Container) -> None:
    """Emit one `SGCVWarning` for every check of `diagnose` that fails.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
        As for `diagnose`.
    """
    for one in _checks(idata):
        if not one.ok:
            warn(f"{one.problem} {one.advice}")


def _checks(idata: Container) -> list[Check]:
    check_container(idata)
    posterior = require_group(idata, "posterior")
    idata = _sorted(idata)
    groups = {name: _group(idata, name) for name in (GRADIENT, UNCONSTRAINED)}
    stats = _group(idata, "sample_stats")
    names = [name for name in (*SETUP_STATISTICS, "target_bias") if name in stats]
    known = {name: float(stats[name].max()) for name in names}
    attrs = {**known, **stats.attrs, **posterior.attrs}
    size = int(attrs.get("parameters", _size(groups[GRADIENT] or posterior)))
    free = {rv_name(str(v), posterior): None for v in groups[GRADIENT]}
    all_free = None not in free and _size(groups[GRADIENT]) == size
    draws = posterior[list(free)] if free and all_free else posterior
    bad = _not_finite({"posterior": draws, **groups})
    finite = draws.drop_vars([name for group, name in bad if group == "posterior"])
    checks = [_finite_check(bad), *_convergence_checks(finite)]
    count = draws.sizes["chain"] * draws.sizes["draw"]
    if all(groups.values()) and not bad and count >= MIN_DRAWS:
        checks += _stein_checks(stein_errors(idata), float(attrs.get("target_bias", TARGET_BIAS)))
    return checks + list(_setup_checks(attrs, size))


def _sorted(idata: Container) -> Container:
    try:
        return gradient_groups(idata)
    except ValueError:  # another sampler's draws: what needs no gradients can be checked
        return idata


def _group(idata: Container, name: str) -> xr.Dataset:
    return get_group(idata, name) if name in group_names(idata) else xr.Dataset()


def _size(dataset: xr.Dataset) -> int:
    return sum(v.isel(chain=0, draw=0).size for v in dataset.values())


def _not_finite(groups: Mapping[str, xr.Dataset]) -> dict[tuple[str, str], int]:
    """How many values are not finite, by group and variable."""
    counts = {}
    for group, dataset in groups.items():
        for name, array in dataset.items():
            with np.errstate(over="ignore", invalid="ignore"):
                total = array.values.sum()  # one cheap pass; a sum may overflow, so count
            if not np.isfinite(total):
                counts[group, str(name)] = int((~np.isfinite(array.values)).sum())
    return {key: count for key, count in counts.items() if count}


def _finite_check(bad: Mapping[tuple[str, str], int]) -> Check:
    where = ", ".join(f"{name} ({group})" for group, name in bad)
    return check("finite", sum(bad.values()), 0, where)


def _convergence_checks(draws: xr.Dataset) -> Iterator[Check]:
    """R-hat and effective draws, by ArviZ."""
    if not draws.data_vars or draws.sizes["draw"] < 4:
        return
    chains = draws.sizes["chain"]
    slow, labels = _slowest(draws)
    bulk, tail = (containers.ess(slow, kind)["x"].values for kind in ("bulk", "tail"))
    if chains > 1:
        limits = _r_hat_limit(bulk, chains, _size(draws))
        yield from worst("r_hat", containers.rhat(slow)["x"].values, limits, labels)
    for name, values in (("ess_bulk", bulk), ("ess_tail", tail)):
        if not np.isnan(values).all():
            i = int(np.nanargmin(values))
            yield check(name, values[i], ESS_PER_CHAIN * chains, labels[i])


def _slowest(draws: xr.Dataset) -> tuple[xr.Dataset, list[str]]:
    """The components that mix worst, in their value or their square, as one variable ``x``."""
    columns, labels, slowness = [], [], []
    chains = draws.sizes["chain"]
    for name in draws:
        array = draws[name].transpose("chain", "draw", ...)
        x = array.values.reshape(chains * array.sizes["draw"], -1)
        times = np.hstack([_autocorrelation(x[:, part], chains) for part in chunks(x)])
        slow = np.unique(np.argsort(-times, axis=1, kind="stable")[:, :SLOWEST])
        names = containers.labels(array)
        columns.append(x[:, slow])
        labels += [names[i] for i in slow]
        slowness.append(times[:, slow])
    order = np.argsort(-np.hstack(slowness), axis=1, kind="stable")[:, :SLOWEST]
    chosen = np.unique(order)
    slowest = np.hstack(columns)[:, chosen].reshape(chains, draws.sizes["draw"], -1)
    return xr.Dataset({"x": (("chain", "draw", "component"), slowest)}), [labels[i] for i in chosen]


def _autocorrelation(x: np.ndarray, chains: int) -> np.ndarray:
    """Variance of batch means over that of draws, of each column and of its square."""
    z = x - x.mean(axis=0)
    both = np.hstack([z, z**2])
    between, within = batch_means(both, chains).var(axis=0), both.var(axis=0)
    ratio = np.divide(between, within, out=np.zeros_like(within), where=within > 0)
    return ratio.reshape(2, -1)


def _r_hat_limit(ess: np.ndarray, chains: int, size: int) -> np.ndarray:
    """How far chance takes R-hat: R² − 1 is χ² / (m − 1) / n for m half chains, n effective draws.

    n is at least 50 here: where it is less, that itself is a failed check.
    """
    m = 2 * chains
    n = np.fmax(ess / m, ESS_PER_CHAIN / 2)
    quantile = chdtri(m - 1, FALSE_ALARMS / (2 * size)) / (m - 1)
    return np.maximum(R_HAT, np.sqrt(1 + quantile / n))


def _stein_checks(errors: SteinErrors, target_bias: float) -> Iterator[Check]:
    shift_limits, sd_limits = errors.limits(target_bias, FALSE_ALARMS)
    sd = errors.sd_error
    yield from worst("mean_shift", errors.shift, shift_limits, errors.labels)
    yield from worst("sd_error", sd[:-1], sd_limits[:-1], errors.labels)
    yield from worst("sd_error_average", sd[-1:], sd_limits[-1:], [""])


def _setup_checks(attrs: Mapping, size: int) -> Iterator[Check]:
    """What the set-up stored as attributes; what it did not store is left out."""
    limits = {
        "gradient_noise_share": NOISE_SHARE,
        "predicted_sd_error": float(attrs.get("target_bias", TARGET_BIAS)),
        "center_distance": near_enough(size),
        "chain_distance": CHAIN_DISTANCE,
    }
    if attrs.get("chain_distance", np.inf) <= CHAIN_DISTANCE:
        del limits["center_distance"]  # the draws are around the center, wherever the mode is
    for name, limit in limits.items():
        if name in attrs:
            yield check(name, attrs[name], limit, str(attrs.get(f"{name}_where", "")))
