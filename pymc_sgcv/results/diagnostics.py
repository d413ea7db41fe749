# SPDX-License-Identifier: Apache-2.0
"""Is a run to be trusted? Convergence, errors that its gradients reveal, gradient noise, center.

Limits allow for Monte Carlo error, and for the number of parameters by Bonferroni's inequality, so
that an exact sampler gets a warning in fewer than six of 1000 runs: one in 1000 for each of R-hat,
means, standard deviations, and these in bulk and tails; two for the comparison with half the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import chdtri

from pymc_sgcv.errors import warn
from pymc_sgcv.results import containers
from pymc_sgcv.results.batches import batch_means, chunks
from pymc_sgcv.results.checks import Check, check, largest, worst
from pymc_sgcv.results.containers import Container, check_container, get_group, group_names
from pymc_sgcv.results.groups import (
    GRADIENT,
    MIN_DRAWS,
    UNCONSTRAINED,
    gradient_groups,
    require_group,
    rv_name,
)
from pymc_sgcv.results.halfstep import HALF_STEP
from pymc_sgcv.results.identities import TARGET_BIAS, SteinErrors, stein_errors
from pymc_sgcv.results.parts import column_parts, fewer, row_parts
from pymc_sgcv.setup.plan import SETUP_STATISTICS
from pymc_sgcv.setup.search import near_enough

R_HAT, ESS_PER_CHAIN = 1.01, 100
NOISE_SHARE, CHAIN_DISTANCE = 0.5, 1.0
FALSE_ALARMS = 1e-3  # for each of R-hat, means, standard deviations, and these locally
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
        - ``bulk_sd_error``, ``tail_sd_error``: the same from the bulk of the draws and from either
          tail, by bounded functions, which a few draws far out cannot blind.
        - ``half_step_mean``, ``half_step_sd``, ``half_step_sd_average``, ``half_step_quantile``:
          what changes at half the step, if `sample` has made that check: means and 5 and 95 %
          quantiles in standard deviations, standard deviations relative to themselves.
        - ``excursion``: of the draws far from those of other chains, by how much the log density is
          lower than on the way to the center; the limit is what a log-concave posterior allows.
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
    ['sd_error', 'sd_error_average', 'bulk_sd_error', 'tail_sd_error']
    >>> print(table.loc["sd_error", "value"].round(1))
    0.4
    """
    checks = all_checks(idata)
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
    for one in all_checks(idata):
        if not one.ok:
            warn(f"{one.problem} {one.advice}")


def all_checks(idata: Container) -> list[Check]:
    """The rows of `diagnose`, with sentences for those that fail."""
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
    idata = fewer(idata)
    draws = get_group(idata, "posterior")[list(draws)]
    finite = draws.drop_vars([name for group, name in bad if group == "posterior"])
    checks = [_finite_check(bad), *_convergence_checks(finite)]
    count = draws.sizes["chain"] * draws.sizes["draw"]
    if all(groups.values()) and not bad and count >= MIN_DRAWS:
        checks += _stein_checks(stein_errors(idata), float(attrs.get("target_bias", TARGET_BIAS)))
    checks += _half_step_checks(_group(idata, HALF_STEP), attrs)
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
            count = sum(map(_infinite, row_parts(array)))
            if count:
                counts[group, str(name)] = count
    return counts


def _infinite(values: np.ndarray) -> int:
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum()  # one cheap pass; a sum may overflow, so count
    return 0 if np.isfinite(total) else int((~np.isfinite(values)).sum())


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
        yield from largest("r_hat", containers.rhat(slow)["x"].values, limits, labels)
    for name, values in (("ess_bulk", bulk), ("ess_tail", tail)):
        if not np.isnan(values).all():
            i = int(np.nanargmin(values))
            yield check(name, values[i], ESS_PER_CHAIN * chains, labels[i])


def least_ess(draws: xr.Dataset) -> tuple[float, str]:
    """Bulk ESS of the component that has least of it, and its name."""
    slow, labels = _slowest(draws)
    ess = containers.ess(slow, "bulk")["x"].values
    if np.isnan(ess).all():
        return 0.0, labels[0]
    worst = int(np.nanargmin(ess))
    return float(ess[worst]), labels[worst]


def _slowest(draws: xr.Dataset) -> tuple[xr.Dataset, list[str]]:
    """The components that mix worst, in their value or their square, as one variable ``x``."""
    columns, labels, slowness = [], [], []
    chains = draws.sizes["chain"]
    for name in draws:
        names = containers.labels(draws[name].transpose("chain", "draw", ...))
        for x in column_parts(draws[name]):
            times = np.hstack([_autocorrelation(x[:, part], chains) for part in chunks(x)])
            slow = np.unique(np.argsort(-times, axis=1, kind="stable")[:, :SLOWEST])
            columns.append(x[:, slow])
            labels += [names[i] for i in slow]
            names = names[x.shape[1] :]
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
    local, limits = errors.local_sd_error, errors.local_limits(target_bias, FALSE_ALARMS)
    yield from worst("bulk_sd_error", local[0], limits[0], errors.labels)
    yield from worst("tail_sd_error", local[1:].ravel(), limits[1:].ravel(), errors.labels * 2)


def _half_step_checks(found: xr.Dataset, attrs: Mapping) -> Iterator[Check]:
    """What a second run at half the step has changed."""
    if "half_step_diverged" in attrs:
        yield check("half_step_diverged", 1, 0, str(attrs["half_step_diverged"]))
    if not found.data_vars:
        return
    one = found.isel(half_step_estimate=0, half_step_quantity=0, drop=True)
    labels = [label for name in one for label in containers.labels(one[name])]
    rows = {"half_step_mean": ["mean"], "half_step_sd": ["sd"], "half_step_quantile": ["q5", "q95"]}
    for row, quantities in rows.items():
        change, limit = (
            np.concatenate(
                [
                    np.ravel(v.sel(half_step_estimate=estimate, half_step_quantity=quantity).values)
                    for quantity in quantities
                    for v in found.values()
                ]
            )
            for estimate in ("change", "limit")
        )
        yield from worst(row, change, limit, labels * len(quantities))
    average, limit = (found.attrs[f"average_sd_change{end}"] for end in ("", "_limit"))
    yield check("half_step_sd_average", average, limit, "")


def _setup_checks(attrs: Mapping, size: int) -> Iterator[Check]:
    """What the set-up stored as attributes; what it did not store is left out."""
    limits = {
        "excursion": float(attrs.get("excursion_limit", np.inf)),
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
