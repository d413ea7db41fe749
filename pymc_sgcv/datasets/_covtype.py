# SPDX-License-Identifier: Apache-2.0
"""Forest CoverType: the data of the paper's logistic regression."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pymc_sgcv.datasets._files import look_up

_NUMERIC = (
    "elevation", "aspect", "slope", "distance to water", "height above water", "distance to road",
    "hillshade 9am", "hillshade noon", "hillshade 3pm", "distance to fire",
)  # fmt: skip
_WILDERNESS = ("Rawah", "Neota", "Comanche Peak", "Cache la Poudre")
_SOILS = 40
_ROWS = 581_012
_FILES = ("covtype_compact.npz", "covtype.data.gz", "covtype.data")


class _Raw(NamedTuple):
    """CoverType before encoding: (10, N) numbers, and three (N,) arrays of classes."""

    num: np.ndarray
    wilderness: np.ndarray
    soil: np.ndarray
    cover_type: np.ndarray


@dataclass(frozen=True)
class CoverType:
    """Forest CoverType as a binary classification, split into training and test rows.

    Attributes
    ----------
    X_train, X_test
        Predictors, 55 columns: an intercept, ten numeric features scaled to [0, 1], four wilderness
        areas and forty soil types as indicators. Rows are in random order, so that the first k
        training rows are a random sample.
    y_train, y_test
        1 for lodgepole pine (class 2), 0 for every other cover type, as ``int32``.
    names
        Names of the columns.
    source
        ``"local copy"``, ``"download"`` or ``"generated look-alike"``.
    """

    X_train: np.ndarray = field(repr=False)
    y_train: np.ndarray = field(repr=False)
    X_test: np.ndarray = field(repr=False)
    y_test: np.ndarray = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    source: str

    def __str__(self) -> str:
        return (
            f"CoverType ({self.source}): {len(self.y_train):,} training and "
            f"{len(self.y_test):,} test rows, {len(self.names)} columns, "
            f"{100 * self.y_train.mean():.1f} % lodgepole pine"
        )


def covtype(
    path: str | os.PathLike | None = None,
    *,
    n_rows: int | None = None,
    test_share: float = 0.25,
    seed: int = 1,
    download: bool = True,
) -> CoverType:
    """Forest CoverType (Blackard & Dean 1999): 581,012 patches of forest in Colorado.

    The indicators of wilderness areas and of soil types each sum to one, as does the intercept, so
    two directions of the coefficients are identified by the prior alone.

    Parameters
    ----------
    path
        A file, or a directory with one of ``covtype_compact.npz``, ``covtype.data.gz`` and
        ``covtype.data`` (as the UCI repository has it). Default: the directory in ``SGCV_DATA``.
    n_rows
        Keep so many random rows, test rows included; all by default.
    test_share
        Share of the rows in the test set.
    seed
        Of the order of rows, and so of the split.
    download
        Whether to try ``sklearn.datasets.fetch_covtype`` where there is no local copy.

    Returns
    -------
    CoverType

    Examples
    --------
    >>> data = covtype(n_rows=1000, download=False)
    >>> data.X_train.shape, data.X_test.shape
    ((750, 55), (250, 55))
    """
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must lie between 0 and 1, not {test_share!r}.")
    if n_rows is not None and n_rows < 2:
        raise ValueError(
            f"n_rows must be at least 2, one row to train on and one to test, not {n_rows!r}."
        )
    fetch = _fetch if download else None
    raw, source = look_up("CoverType", _FILES, path, _read, fetch, lambda: _look_alike(n_rows))
    order = np.random.default_rng(seed).permutation(len(raw.soil))[:n_rows]
    n_test = min(max(round(test_share * len(order)), 1), len(order) - 1)
    X, y = _encode(raw, order), (raw.cover_type[order] == 2).astype("int32")
    names = ("intercept", *_NUMERIC, *_WILDERNESS, *(f"soil {k + 1}" for k in range(_SOILS)))
    return CoverType(X[n_test:], y[n_test:], X[:n_test], y[:n_test], names, source)


def _encode(raw: _Raw, order: np.ndarray) -> np.ndarray:
    """The 55 columns of the rows in `order`; the ranges are those of all rows."""
    low, high = raw.num.min(1).astype(float), raw.num.max(1).astype(float)
    X = np.zeros((len(order), 1 + len(_NUMERIC) + len(_WILDERNESS) + _SOILS))
    X[:, 0] = 1.0
    X[:, 1:11] = (raw.num[:, order].T - low) / np.maximum(high - low, 1.0)
    row = np.arange(len(order))
    X[row, 11 + raw.wilderness[order].astype(int)] = 1.0
    X[row, 15 + raw.soil[order].astype(int)] = 1.0
    return X


def _read(file: Path) -> _Raw:
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            missing = [name for name in _Raw._fields if name not in arrays]
            if missing:
                raise ValueError(f"CoverType: '{file}' has no array {', '.join(missing)}.")
            return _Raw(*(arrays[name] for name in _Raw._fields))
    return _from_table(np.loadtxt(file, delimiter=",", dtype=np.int16))


def _from_table(table: np.ndarray) -> _Raw:
    """UCI's layout: 10 numbers, 4 and 40 indicators, the cover type."""
    if table.ndim != 2 or table.shape[1] != 55:
        raise ValueError(f"CoverType: a table of 55 columns is needed, not of shape {table.shape}.")
    return _Raw(table[:, :10].T, table[:, 10:14].argmax(1), table[:, 14:54].argmax(1), table[:, 54])


def _fetch() -> _Raw:
    from sklearn.datasets import fetch_covtype

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about retries; a failure is reported once, by `look_up`
        X, y = fetch_covtype(return_X_y=True, n_retries=1)
    return _from_table(np.column_stack([X, y]))


def _look_alike(n_rows: int | None) -> _Raw:
    """Rows of the same layout, rare soil types included, from a logistic model."""
    n, rng = n_rows or _ROWS, np.random.default_rng(581012)
    num = rng.beta(2.0, 2.0, size=(len(_NUMERIC), n))
    num[6] = 0.6 * num[1] + 0.4 * num[6]  # hillshade follows aspect
    num[8] = np.clip(1.1 - num[6] + 0.1 * num[8], 0, 1)
    wilderness = rng.choice(len(_WILDERNESS), size=n, p=[0.45, 0.05, 0.44, 0.06])
    common = 1.0 / (1.0 + np.arange(_SOILS)) ** 1.5
    soil = (rng.choice(_SOILS, size=n, p=common / common.sum()) + 10 * wilderness) % _SOILS
    effects = rng.normal(size=(_SOILS, 1))[soil, 0] + rng.normal(size=4)[wilderness]
    logit = effects + rng.normal(size=len(_NUMERIC)) @ (num - 0.5) * 2
    cover = np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), 2, 1)
    return _Raw((1000 * num).astype(np.int16), wilderness, soil, cover)
