# SPDX-License-Identifier: Apache-2.0
"""Zero-variance (ZV) control variates: less Monte Carlo error from gradients already recorded.

With g = ∇ log π, every polynomial Q gives a control variate c = ΔQ + ∇Q·g whose posterior mean is
zero (Mira et al. 2013), also with an unbiased estimate of g in place of g (Friel et al. 2016). A
draw g(θ) of any function becomes g(θ) − Σⱼ βⱼ cⱼ(θ), with β the least-squares slopes of g on c.

The paper prints ĝ = g + âᵀz and â = V(z)⁻¹Cov(z, g) for z = −g/2; the minimiser is **−**V⁻¹Cov,
and the term ΔQ has the factor −½ beside z. Both are put right here, in terms of g itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from pymc_sgcv.arguments import check_mapping
from pymc_sgcv.results import containers
from pymc_sgcv.results.containers import Container, get_group, group_names, with_groups
from pymc_sgcv.results.groups import (
    flat_draws,
    gradient_groups,
    read_scores,
    require_group,
    select_names,
)
from pymc_sgcv.results.on_disk import corrected_on_disk, stays_on_disk
from pymc_sgcv.results.parts import parts_of
from pymc_sgcv.results.stein import Correction, choose

METHODS = ("auto", "lstsq", "ridge", "block")


def zv(
    idata: Container,
    var_names: str | Sequence[str] | None = None,
    functions: Mapping[str, Callable[[xr.Dataset], xr.DataArray]] | None = None,
    order: int = 1,
    *,
    method: str = "auto",
    holdout: bool = False,
    group: str = "posterior",
) -> Container:
    """Add the group ``zv_posterior``: draws with the same mean and a smaller variance.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
        Draws with recorded gradients, sorted by `gradient_groups` or not. It is not changed.
    var_names : str or sequence of str, optional
        Posterior variables to correct; all by default.
    functions : dict of str to callable, optional
        Further functions of the parameters by name; each is called with the posterior Dataset and
        returns a DataArray with the dimensions chain and draw.
    order : {1, 2}
        Degree of Q. Order 1 removes the variance of means of a Gaussian posterior, order 2 that
        of its second moments too.
    method : {"auto", "lstsq", "ridge", "block"}
        How coefficients are found, for n draws in d dimensions and p coefficients per function.

        - ``lstsq``: least squares. ``auto`` takes it if there are at least 10 effective draws per
          coefficient, where effective is n (1 − ρ) / (1 + ρ) for the median lag-1
          autocorrelation ρ of the gradients.
        - ``ridge``: a component's own gradient by least squares, then all control variates with
          a penalty that is chosen for every component by the variance over 5 contiguous folds.
          Coefficients always come from the other folds, since a fit with so many would look
          better than it is. ``auto`` takes it next, if n p min(n, p) ≤ 2e9.
        - ``block``: a component's own gradient only; a function without one gets the smallest
          variables, as many as least squares allows. ``auto`` takes it when d is too large.

        With order 2, products θᵢθⱼ are left out and squares kept where the table grows too large.
    holdout : bool
        Take the coefficients from other folds than the draws they correct, so that the estimate
        is unbiased for any number of draws.
    group : str
        The group to correct; its result is called ``zv_<group>``.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        A new container with ``zv_posterior``, in the names, dims and coords of the posterior. Its
        attributes say what was done: ``zv_method``, ``zv_order``, ``zv_control_variates``,
        ``zv_coefficients``, ``zv_holdout``, ``zv_effective_draws`` and the median ``zv_penalty``
        of ridge. Uncorrected draws of ``functions`` are kept in ``zv_posterior_functions``.

    Raises
    ------
    ValueError
        Without gradients, with fewer draws than the fit needs, with NaN, or for an unknown name.

    Examples
    --------
    A standard normal posterior: the gradient is −θ, and the corrected draws are its mean, 0.

    >>> theta = np.random.default_rng(0).normal(size=(2, 100))
    >>> groups = {"posterior": theta, "gradient": -theta}
    >>> idata = xr.DataTree.from_dict(
    ...     {k: xr.Dataset({"theta": (("chain", "draw"), v)}) for k, v in groups.items()}
    ... )
    >>> bool(np.allclose(zv(idata)["zv_posterior"]["theta"], 0))
    True
    """
    _check_options(order, method)
    idata = gradient_groups(idata)
    draws = require_group(idata, group)
    if order == 1 and not functions and not holdout and method != "ridge" and group == "posterior":
        if stays_on_disk(idata):
            names = select_names(draws, var_names, group)
            return _with_lazy(idata, draws, *corrected_on_disk(idata, names))
    targets = {name: draws[name] for name in select_names(draws, var_names, group)}
    computed = _call(functions or {}, draws)
    if not {**targets, **computed}:
        raise ValueError("There is nothing to correct: name a variable or a function.")
    scores = read_scores(idata, draws, group, order)
    correct = Correction(scores, choose(scores, order, method, holdout))
    corrected = {}
    for name, array in {**targets, **computed}.items():
        array = array.transpose("chain", "draw", ...)
        values = flat_draws(array, f"'{name}' in group '{group}'", "Leave it out of var_names.")
        hat = correct(values, str(name))
        corrected[name] = array.copy(data=hat.reshape(array.shape))
    done = xr.Dataset(corrected, attrs={**draws.attrs, "zv_order": int(order), **correct.attrs()})
    plain = xr.Dataset(computed)
    return with_groups(idata, {f"zv_{group}": done, f"zv_{group}_functions": plain})


def _with_lazy(
    idata: Container, draws: xr.Dataset, corrected: dict[str, xr.DataArray], attrs: Mapping
) -> Container:
    done = xr.Dataset(corrected, attrs={**draws.attrs, "zv_order": 1, **attrs})
    return with_groups(idata, {"zv_posterior": done})


def zv_summary(
    idata: Container, var_names: str | Sequence[str] | None = None, *, group: str = "posterior"
) -> pd.DataFrame:
    """Compare plain and ZV-corrected estimates of every scalar component.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
        The result of `zv`; without the group ``zv_posterior``, `zv` is applied first.
    var_names : str or sequence of str, optional
        Variables to show; all corrected ones by default.
    group : str
        The group that was corrected.

    Returns
    -------
    pandas.DataFrame
        One row per component, named as in ``arviz.summary``: ``mean``, ``sd`` and ``mcse`` of the
        plain draws, ``mean_zv`` and ``mcse_zv``, ``variance_ratio`` = (mcse / mcse_zv)², by
        which factor more plain draws would be needed, and ``r_hat`` of the plain draws. Where
        coefficients were fitted on the draws they correct, ``mcse_zv`` allows for them.

    Examples
    --------
    A gradient whose noise has a hundredth of its variance saves a factor of about a hundred.

    >>> theta, noise = np.random.default_rng(0).normal(size=(2, 4, 500))
    >>> groups = {"posterior": theta, "gradient": -theta + 0.1 * noise}
    >>> idata = xr.DataTree.from_dict(
    ...     {k: xr.Dataset({"theta": (("chain", "draw"), v)}) for k, v in groups.items()}
    ... )
    >>> bool(50 < zv_summary(idata).loc["theta", "variance_ratio"] < 200)
    True
    """
    containers.check_container(idata)
    if f"zv_{group}" not in group_names(idata):
        idata = zv(idata, var_names, group=group)
    after = get_group(idata, f"zv_{group}")
    after = after[select_names(after, var_names, f"zv_{group}")]
    before = _plain_draws(idata, group, [str(name) for name in after])
    pairs = zip(parts_of(before), parts_of(after), strict=True)
    return _with_ratio(pd.concat([_compared(plain, hat) for plain, hat in pairs]))


def _compared(before: xr.Dataset, after: xr.Dataset) -> pd.DataFrame:
    over, before = ("chain", "draw"), before.astype(float)
    table = {
        "mean": before.mean(over),
        "sd": before.std(over, ddof=1),
        "mcse": containers.mcse(before),
        "mean_zv": after.mean(over),
        "mcse_zv": containers.mcse(after) * _fit_inflation(after),
        "r_hat": containers.rhat(before),
    }
    rows = [label for name in after for label in containers.labels(after[name])]
    columns = {
        key: np.concatenate([np.ravel(dataset[name].values) for name in after])
        for key, dataset in table.items()
    }
    return pd.DataFrame(columns, index=rows)


def _check_options(order: int, method: str) -> None:
    if order not in (1, 2):
        raise ValueError(f"order is {order!r}, but only 1 (linear) and 2 (quadratic) are offered.")
    if method not in METHODS:
        raise ValueError(f"method is {method!r}, but it must be one of {', '.join(METHODS)}.")


def _call(functions: Mapping[str, Callable], draws: xr.Dataset) -> dict[str, xr.DataArray]:
    """Values of the user's functions, after a check that there is one for every draw."""
    check_mapping("functions", functions, "functions by name")
    values = {}
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"The function '{name}' cannot be called: {function!r}.")
        if name in draws:
            raise ValueError(f"A function is named '{name}' like a variable: rename the function.")
        value = function(draws)
        sizes = getattr(value, "sizes", {})
        if not isinstance(value, xr.DataArray) or any(
            sizes.get(dim) != draws.sizes[dim] for dim in ("chain", "draw")
        ):
            raise ValueError(
                f"The function '{name}' returned {type(value).__name__} with sizes {dict(sizes)}, "
                "but it must return a DataArray with one value for every 'chain' and 'draw'. Let "
                "it work on the draws and leave their mean to zv."
            )
        if np.iscomplexobj(value):
            raise TypeError(f"The function '{name}' returned complex numbers: take a real part.")
        values[name] = value
    return values


def _plain_draws(idata: Container, group: str, names: list[str]) -> xr.Dataset:
    """Uncorrected draws of posterior variables and functions."""
    draws = get_group(idata, group)
    functions = f"zv_{group}_functions"
    extra = get_group(idata, functions) if functions in group_names(idata) else {}
    return xr.Dataset({name: draws[name] if name in draws else extra[name] for name in names})


def _fit_inflation(corrected: xr.Dataset) -> float:
    """Factor of the standard error for p slopes fitted on the n draws they correct.

    Residuals are too small by (n − p − 1)/n, and the mean varies by (n − 2)/(n − p − 2) more
    (Lavenberg & Welch 1981).
    """
    if corrected.attrs.get("zv_holdout", 1):
        return 1.0
    n, p = corrected.sizes["chain"] * corrected.sizes["draw"], corrected.attrs["zv_coefficients"]
    return float(np.sqrt(n / (n - p - 1) * (n - 2) / (n - p - 2)))


def _with_ratio(table: pd.DataFrame) -> pd.DataFrame:
    """Add the ratio of variances, which is one for a constant."""
    ratio = (table["mcse"] / table["mcse_zv"]) ** 2
    table["variance_ratio"] = ratio.mask((table["mcse"] == 0) & (table["mcse_zv"] == 0), 1.0)
    return table[["mean", "sd", "mcse", "mean_zv", "mcse_zv", "variance_ratio", "r_hat"]]
