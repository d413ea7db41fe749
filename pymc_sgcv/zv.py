# SPDX-License-Identifier: Apache-2.0
"""Zero-variance (ZV) control variates: less Monte Carlo error from gradients already recorded.

With g = ∇ log π, every polynomial Q gives a control variate c = ΔQ + ∇Q·g whose posterior mean is
zero (Mira et al. 2013), also with an unbiased estimate of g in place of g (Friel et al. 2016). A
draw g(θ) of any function becomes g(θ) − Σⱼ βⱼ cⱼ(θ), with β the least-squares slopes of g on c.

The paper prints ĝ = g + âᵀz and â = V(z)⁻¹Cov(z, g) for z = −g/2; the minimiser is **−**V⁻¹Cov,
and the term ΔQ has the factor −½ beside z. Both are put right here, in terms of g itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import xarray as xr

from pymc_sgcv import _arviz
from pymc_sgcv._arviz import Container, get_group, group_names, with_groups
from pymc_sgcv.errors import SGCVWarning
from pymc_sgcv.idata import (
    Scores,
    flat_draws,
    gradient_groups,
    read_scores,
    require_group,
    select_names,
)

METHODS = ("auto", "lstsq", "ridge", "block")
DRAWS_PER_COEFFICIENT = 10
FOLDS = 5
PENALTIES = (np.inf, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 0.0)
MAX_SVD_WORK = 2e9  # n p min(n, p): a few seconds
MAX_TABLE = 2.5e7  # numbers in a table of control variates: 200 MB
CHUNK = 2**18  # numbers in one pass over the components: about what a cache holds


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
    targets = {name: draws[name] for name in select_names(draws, var_names, group)}
    computed = _call(functions or {}, draws)
    if not {**targets, **computed}:
        raise ValueError("There is nothing to correct: name a variable or a function.")
    scores = read_scores(idata, draws, group, order)
    correct = _Correction(scores, _choose(scores, order, method, holdout))
    corrected = {}
    for name, array in {**targets, **computed}.items():
        array = array.transpose("chain", "draw", ...)
        values = flat_draws(array, f"'{name}' in group '{group}'", "Leave it out of var_names.")
        hat = correct(values, str(name))
        corrected[name] = array.copy(data=hat.reshape(array.shape))
    done = xr.Dataset(corrected, attrs={**draws.attrs, "zv_order": int(order), **correct.attrs()})
    plain = xr.Dataset(computed)
    return with_groups(idata, {f"zv_{group}": done, f"zv_{group}_functions": plain})


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
    _arviz.check_container(idata)
    if f"zv_{group}" not in group_names(idata):
        idata = zv(idata, var_names, group=group)
    after = get_group(idata, f"zv_{group}")
    after = after[select_names(after, var_names, f"zv_{group}")]
    before = _plain_draws(idata, group, list(after)).astype(float)
    over = ("chain", "draw")
    table = {
        "mean": before.mean(over),
        "sd": before.std(over, ddof=1),
        "mcse": _arviz.mcse(before),
        "mean_zv": after.mean(over),
        "mcse_zv": _arviz.mcse(after) * _fit_inflation(after),
        "r_hat": _arviz.rhat(before),
    }
    rows = [label for name in after for label in _arviz.labels(after[name])]
    columns = {
        key: np.concatenate([np.ravel(dataset[name].values) for name in after])
        for key, dataset in table.items()
    }
    return _with_ratio(pd.DataFrame(columns, index=rows))


# Between xarray and arrays.


def _check_options(order: int, method: str) -> None:
    if order not in (1, 2):
        raise ValueError(f"order is {order!r}, but only 1 (linear) and 2 (quadratic) are offered.")
    if method not in METHODS:
        raise ValueError(f"method is {method!r}, but it must be one of {', '.join(METHODS)}.")


def _call(functions: Mapping[str, Callable], draws: xr.Dataset) -> dict[str, xr.DataArray]:
    """Values of the user's functions, after a check that there is one for every draw."""
    values = {}
    for name, function in functions.items():
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


# Numerical core: plain arrays, n draws in rows.


@dataclass(frozen=True)
class _Choice:
    method: str
    terms: str  # monomials in Q: "linear", "squares" (and linear) or "quadratic" (all)
    coefficients: int
    holdout: bool


@dataclass(frozen=True)
class _Fold:
    """Rows to fit on, rows to correct, and the control variates' singular vectors and values."""

    train: np.ndarray | slice
    test: np.ndarray | slice
    left: np.ndarray
    s: np.ndarray
    rotated: np.ndarray  # control variates of the test rows along the right vectors, not centred


class _Correction:
    """Subtract the chosen control variates from one variable after the other."""

    def __init__(self, scores: Scores, choice: _Choice):
        self.scores, self.choice = scores, choice
        self.penalties = PENALTIES if choice.method == "ridge" else (0.0,)
        self.chosen: list[np.ndarray] = []

    def __call__(self, values: np.ndarray, name: str) -> np.ndarray:
        own = None if self.choice.method == "lstsq" else self.scores.owner.get(name)
        folds = self._folds_for(name, own)
        hat = np.empty_like(values)
        step = max(1, CHUNK // len(values))
        for start in range(0, values.shape[1], step):
            part = slice(start, start + step)
            hat[:, part], chosen = _fit(
                values[:, part], self._own_variates(own, part), folds, self.penalties
            )
            self.chosen.append(chosen)
        return hat

    def attrs(self) -> dict[str, str | int | float]:
        """What was done, in types that every file format can hold."""
        attrs = {
            "zv_method": self.choice.method,
            "zv_control_variates": self.choice.terms,
            "zv_coefficients": self.choice.coefficients,
            "zv_holdout": int(self.choice.holdout),
            "zv_effective_draws": self.scores.effective,
        }
        if self.choice.method == "ridge" and self.chosen:
            attrs["zv_penalty"] = float(np.median(np.concatenate(self.chosen)))
        return attrs

    def _folds_for(self, name: str, own: str | None) -> list[_Fold]:
        if self.choice.method != "block":
            return self._all_folds
        if own is not None:
            return self._no_folds
        if not self._small_folds[0].s.size:
            warnings.warn(
                f"'{name}' is left as it is: it has no gradient of its own, and every variable "
                f"has too many components for {self.scores.effective} effective draws. Draw more, "
                "or pass method='ridge'.",
                SGCVWarning,
                stacklevel=4,
            )
        return self._small_folds

    @cached_property
    def _all_folds(self) -> list[_Fold]:
        return self._folds(list(self.scores.gradient))

    @cached_property
    def _no_folds(self) -> list[_Fold]:
        return self._folds([])

    @cached_property
    def _small_folds(self) -> list[_Fold]:
        sizes = {v: g.shape[1] for v, g in self.scores.gradient.items()}
        names: list[str] = []
        room = self.scores.effective // (DRAWS_PER_COEFFICIENT * self.choice.coefficients)
        for name in sorted(sizes, key=sizes.__getitem__):
            room -= sizes[name]
            names += [name] if room >= 0 else []
        return self._folds(names)

    def _folds(self, names: list[str]) -> list[_Fold]:
        """Decompose the control variates of some value variables."""
        n = self.scores.chains * self.scores.draws
        gradient = np.hstack([np.empty((n, 0)), *(self.scores.gradient[v] for v in names)])
        position = gradient
        if self.scores.position:
            position = np.hstack([np.empty((n, 0)), *(self.scores.position[v] for v in names)])
        c = _control_variates(position, gradient, self.choice.terms)
        count = FOLDS if self.choice.holdout else 1
        return [_factor(c, *rows) for rows in _splits(self.scores.chains, self.scores.draws, count)]

    def _own_variates(self, own: str | None, part: slice) -> list[np.ndarray]:
        """A component's own control variates, one column for each component."""
        if own is None:
            return []
        gradient = self.scores.gradient[own][:, part]
        if self.choice.terms == "linear":
            return [gradient]
        position = self.scores.position[own][:, part]
        return [gradient, 1 + (position - position.mean(axis=0)) * gradient]


def _choose(scores: Scores, order: int, method: str, holdout: bool) -> _Choice:
    """Decide between the methods and the monomials, as told in `zv`."""
    n, d = scores.chains * scores.draws, sum(g.shape[1] for g in scores.gradient.values())
    pairs = d * (d - 1) // 2
    counts = {"linear": d} if order == 1 else {"quadratic": 2 * d + pairs, "squares": 2 * d}
    if method == "lstsq":
        terms, p = next(iter(counts.items()))
        rows = n - -(-n // FOLDS) if holdout else n
        if rows < p + 3:
            raise ValueError(
                f"Least squares for {p} coefficients needs more than {p + 2} draws to fit on, but "
                f"there are {rows}. Draw more, or pass method='auto', which then regularises."
            )
        return _Choice("lstsq", terms, p, holdout)
    for terms, p in counts.items():
        if method == "auto" and scores.effective >= DRAWS_PER_COEFFICIENT * p:
            return _Choice("lstsq", terms, p, holdout)
        if method == "auto" and n * p * min(n, p) <= MAX_SVD_WORK:
            return _Choice("ridge", terms, p, True)
        if method == "ridge" and (terms != "quadratic" or n * p <= MAX_TABLE):
            return _Choice("ridge", terms, p, True)
    return _Choice("block", terms if order == 1 else "squares", order, holdout)


def _control_variates(position: np.ndarray, gradient: np.ndarray, terms: str) -> np.ndarray:
    """ΔQ + ∇Q·g for the monomials Q of standardised θ, in units of one standard deviation each.

    For θᵢ: gᵢ; for θᵢ²/2: 1 + θᵢgᵢ; for θᵢθⱼ: θᵢgⱼ + θⱼgᵢ. With θ standardised the result does not
    depend on the units of the parameters, and the table is well conditioned.
    """
    c = gradient
    if terms != "linear":
        scale = _scale(position)
        x, g = (position - position.mean(axis=0)) / scale, gradient * scale
        c = np.hstack([g, 1 + x * g])
    if terms == "quadratic":
        i, j = np.triu_indices(x.shape[1], k=1)
        c = np.hstack([c, x[:, i] * g[:, j] + x[:, j] * g[:, i]])
    return c / _scale(c)


def _scale(x: np.ndarray) -> np.ndarray:
    sd = x.std(axis=0)
    return np.where(sd > 0, sd, 1.0)


def _splits(chains: int, draws: int, folds: int) -> Iterator[tuple]:
    """Rows to fit on and rows to correct: contiguous parts of every chain, or all rows at once."""
    if folds == 1:
        yield slice(None), slice(None)
        return
    rows = np.arange(chains * draws)
    place, length = (rows % draws, draws) if draws >= folds else (rows, len(rows))
    fold = place * folds // length
    for k in range(folds):
        yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)


def _factor(c: np.ndarray, train: np.ndarray | slice, test: np.ndarray | slice) -> _Fold:
    """Singular value decomposition of the centred control variates of the training rows."""
    if c.shape[1] == 0:
        return _Fold(train, test, c[train], np.empty(0), c[test])
    centred = c[train] - c[train].mean(axis=0)
    left, s, right = np.linalg.svd(centred, full_matrices=False)
    keep = s > s[0] * np.finfo(float).eps * max(centred.shape)
    return _Fold(train, test, left[:, keep], s[keep], c[test] @ right[keep].T)


def _fit(
    values: np.ndarray, own: list[np.ndarray], folds: list[_Fold], penalties: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Corrected values, and for every column the penalty that gave the smallest variance.

    The penalty is relative to the largest squared singular value; infinity leaves only ``own``.
    """
    bases = [_partial_out(values, own, fold.train) for fold in folds]
    slopes = [f.left.T @ (b[f.train] - b[f.train].mean(axis=0)) for f, b in zip(folds, bases)]
    best, chosen = values, np.full(values.shape[1], np.nan)
    smallest = np.full(values.shape[1], np.inf)
    for penalty in penalties:
        hat = np.empty_like(values)
        for f, base, slope in zip(folds, bases, slopes):
            shrink = f.s / (f.s**2 + penalty * f.s.max(initial=0.0) ** 2)
            hat[f.test] = base[f.test] - f.rotated @ (shrink[:, None] * slope)
        if len(penalties) == 1:
            return hat, np.full(values.shape[1], penalty)
        variance = hat.var(axis=0)
        better = variance < smallest
        best, chosen = np.where(better, hat, best), np.where(better, penalty, chosen)
        smallest = np.where(better, variance, smallest)
    return best, chosen


def _partial_out(values: np.ndarray, own: list[np.ndarray], train) -> np.ndarray:
    """Subtract from every column its own control variates, with slopes from the training rows."""
    done: list[np.ndarray] = []
    for c in own:
        for previous in done:  # Frisch-Waugh: with orthogonal regressors slopes come one by one
            c = c - previous * _slope(previous, c, train)
        values = values - c * _slope(c, values, train)
        done.append(c)
    return values


def _slope(c: np.ndarray, values: np.ndarray, train) -> np.ndarray:
    centred = c[train] - c[train].mean(axis=0)
    square = np.einsum("ij,ij->j", centred, centred)
    cross = np.einsum("ij,ij->j", centred, values[train])
    return np.divide(cross, square, out=np.zeros_like(cross), where=square > 0)
