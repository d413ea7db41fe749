# SPDX-License-Identifier: Apache-2.0
"""Stein control variates and the fit of their coefficients: plain arrays, n draws in rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_sgcv.errors import warn
from pymc_sgcv.results.groups import Scores

DRAWS_PER_COEFFICIENT = 10
FOLDS = 5
PENALTIES = (np.inf, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 0.0)
MAX_SVD_WORK = 2e9  # n p min(n, p): a few seconds
MAX_TABLE = 2.5e7  # numbers in a table of control variates: 200 MB
CHUNK = 2**18  # numbers in one pass over the components: about what a cache holds


@dataclass(frozen=True)
class Choice:
    """How coefficients are found and which control variates they are for."""

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


class Correction:
    """Subtract the chosen control variates from one variable after the other."""

    def __init__(self, scores: Scores, choice: Choice):
        self.scores, self.choice = scores, choice
        self.penalties = PENALTIES if choice.method == "ridge" else (0.0,)
        self.chosen: list[np.ndarray] = []

    def __call__(self, values: np.ndarray, name: str) -> np.ndarray:
        """Corrected `values` of the variable `name`, one column for each component."""
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
        attrs: dict[str, str | int | float] = {
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
            warn(
                f"'{name}' is left as it is: it has no gradient of its own, and every variable "
                f"has too many components for {self.scores.effective} effective draws. Draw more, "
                "or pass method='ridge'.",
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


def choose(scores: Scores, order: int, method: str, holdout: bool) -> Choice:
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
        return Choice("lstsq", terms, p, holdout)
    for terms, p in counts.items():
        if method == "auto" and scores.effective >= DRAWS_PER_COEFFICIENT * p:
            return Choice("lstsq", terms, p, holdout)
        if method == "auto" and n * p * min(n, p) <= MAX_SVD_WORK:
            return Choice("ridge", terms, p, True)
        if method == "ridge" and (terms != "quadratic" or n * p <= MAX_TABLE):
            return Choice("ridge", terms, p, True)
    return Choice("block", terms if order == 1 else "squares", order, holdout)


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


def _partial_out(
    values: np.ndarray, own: list[np.ndarray], train: np.ndarray | slice
) -> np.ndarray:
    """Subtract from every column its own control variates, with slopes from the training rows."""
    done: list[np.ndarray] = []
    for c in own:
        for previous in done:  # Frisch-Waugh: with orthogonal regressors slopes come one by one
            c = c - previous * _slope(previous, c, train)
        values = values - c * _slope(c, values, train)
        done.append(c)
    return values


def _slope(c: np.ndarray, values: np.ndarray, train: np.ndarray | slice) -> np.ndarray:
    centred = c[train] - c[train].mean(axis=0)
    square = np.einsum("ij,ij->j", centred, centred)
    cross = np.einsum("ij,ij->j", centred, values[train])
    return np.divide(cross, square, out=np.zeros_like(cross), where=square > 0)
