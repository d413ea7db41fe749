# SPDX-License-Identifier: Apache-2.0
"""Moments of draws x and gradients g that are not kept, in memory that does not grow.

Means and sums of squared deviations are merged by the formula of Chan, Golub & LeVeque (1983), so
that they are those of all draws to rounding. Of each chain there are up to `BATCHES` batch means;
when there are as many, pairs of them are joined. Standard errors come from their spread, which is
also that of a ZV-corrected mean, since that is linear in the batch's means of x and g.
"""

from __future__ import annotations

import numpy as np

BATCHES = 64
DRAWS_PER_COEFFICIENT = 10


class Group:
    """Number, mean and sum of squared deviations of some rows."""

    def __init__(self, size: int):
        self.count, self.mean, self.squares = 0, np.zeros(size), np.zeros(size)

    @classmethod
    def of(cls, rows: np.ndarray) -> Group:
        """Those of `rows` (n, size)."""
        made = cls.__new__(cls)
        made.count, made.mean = len(rows), rows.mean(axis=0)
        made.squares = ((rows - made.mean) ** 2).sum(axis=0)
        return made

    def merge(self, other: Group) -> None:
        """Take in those of other rows."""
        if not other.count:
            return
        total, shift = self.count + other.count, other.mean - self.mean
        self.squares = self.squares + other.squares
        self.squares += shift**2 * (self.count * other.count / total)
        self.mean = self.mean + shift * (other.count / total)
        self.count = total


class Running:
    """One chain: its batches, and the sums of products of x and g.

    Parameters
    ----------
    size, gradients
        Numbers of columns of x and of g.
    own
        For each column of x, the column of g that is its own, or −1.
    dense
        Whether products are summed for all pairs of columns, or each one with its own alone.
    """

    def __init__(self, size: int, gradients: int, own: np.ndarray, dense: bool):
        self.size, self.gradients, self.own, self.dense = size, gradients, own, dense
        self.all, self.length = Group(size + gradients), 1
        self.batches: list[Group] = []
        self.now = Group(size + gradients)
        shape = (size + gradients,) * 2 if dense else (size,)
        self.products = np.zeros(shape)

    def add(self, rows: np.ndarray) -> None:
        """Take in rows of x beside g, (n, size + gradients)."""
        block = Group.of(rows)
        shift, total = block.mean - self.all.mean, self.all.count + block.count
        centred, weight = rows - block.mean, self.all.count * block.count / total
        if self.dense:
            self.products += centred.T @ centred + weight * np.outer(shift, shift)
        else:
            x, g = slice(0, self.size), self.size + self.own
            self.products += np.einsum("ij,ij->j", centred[:, x], centred[:, g])
            self.products += weight * shift[x] * shift[g]
        self.all.merge(block)
        self._batch(rows)

    def _batch(self, rows: np.ndarray) -> None:
        start = 0
        while start < len(rows):
            stop = min(len(rows), start + self.length - self.now.count)
            self.now.merge(Group.of(rows[start:stop]))
            start = stop
            if self.now.count == self.length:
                self.batches.append(self.now)
                self.now = Group(len(self.now.mean))
                self._join()

    def _join(self) -> None:
        if len(self.batches) == BATCHES:
            for first, second in zip(self.batches[::2], self.batches[1::2], strict=True):
                first.merge(second)
            self.batches, self.length = self.batches[::2], 2 * self.length

    def halves(self) -> list[Group]:
        """The first and the second half, of whole batches."""
        middle, found = len(self.batches) // 2, []
        for part in (self.batches[:middle], self.batches[len(self.batches) - middle :]):
            found.append(Group(len(self.now.mean)))
            for one in part:
                found[-1].merge(one)
        return found


def pooled(chains: list[Running]) -> tuple[Group, np.ndarray]:
    """Moments and sums of products of all chains together."""
    whole, products = Group(len(chains[0].all.mean)), np.zeros(chains[0].products.shape)
    for chain in chains:
        shift, total = chain.all.mean - whole.mean, whole.count + chain.all.count
        weight = whole.count * chain.all.count / total
        products += chain.products
        if chain.dense:
            products += weight * np.outer(shift, shift)
        else:
            x, g = slice(0, chain.size), chain.size + chain.own
            products += weight * shift[x] * shift[g]
        whole.merge(chain.all)
    return whole, products


def enough_for_all(chains: list[Running]) -> bool:
    """Whether there are 10 effective draws for each slope on all gradients.

    With fewer, the fit of x is better than what it finds. Effective ones are those of the gradients
    in the middle.
    """
    if not chains[0].dense:
        return False
    p, (whole, _) = chains[0].size, pooled(chains)
    g = np.r_[p : p + chains[0].gradients]
    variance, total = np.zeros(len(g)), whole.count
    for chain in chains:
        means = np.array([batch.mean[g] for batch in chain.batches])
        variance += (chain.all.count / total) ** 2 * means.var(axis=0, ddof=1) / len(means)
    spread = whole.squares[g] / max(total - 1, 1)
    effective = np.divide(spread, variance, out=np.full(len(g), np.inf), where=variance > 0)
    return bool(min(np.median(effective), total) >= DRAWS_PER_COEFFICIENT * len(g))


def slopes(chains: list[Running]) -> np.ndarray:
    """β of the least-squares fit of x on g: (gradients, size), or (size,) on each one's own."""
    whole, products = pooled(chains)
    p, own = chains[0].size, chains[0].own
    if enough_for_all(chains):
        gg, gx = products[p:, p:], products[p:, :p]
        scale = np.sqrt(np.maximum(np.diag(gg), 1e-300))
        fit = np.linalg.lstsq(gg / np.outer(scale, scale), gx / scale[:, None], rcond=1e-12)[0]
        return fit / scale[:, None]
    if chains[0].dense:
        products = products[np.arange(p), p + own]
    squares = whole.squares[p + own]
    slope = np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)
    return np.where(own >= 0, slope, 0.0)


def corrected(chain: Running, mean: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """The mean of x, of (..., size + gradients), less what g explains of it."""
    x, g = mean[..., : chain.size], mean[..., chain.size :]
    return x - (g @ beta if beta.ndim > 1 else g[..., chain.own] * beta)


def split_r_hat(chains: list[Running]) -> np.ndarray:
    """√(variance of the pooled draws over that within half chains) of each x (Gelman et al.)."""
    halves = [half for chain in chains for half in chain.halves()]
    p, n = chains[0].size, np.mean([half.count for half in halves])
    if n < 2:
        return np.full(p, np.nan)
    within = np.mean([half.squares[:p] / (half.count - 1) for half in halves], axis=0)
    between = n * np.var([half.mean[:p] for half in halves], axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((within * (n - 1) / n + between / n) / within)


def standard_error(chains: list[Running], beta: np.ndarray | None = None) -> np.ndarray:
    """Of the mean of x, or of the corrected one, from batch means; chains count by their draws."""
    variance, total = np.zeros(chains[0].size), sum(chain.all.count for chain in chains)
    for chain in chains:
        means = np.array([batch.mean for batch in chain.batches])
        x = means[:, : chain.size] if beta is None else corrected(chain, means, beta)
        one = x.var(axis=0, ddof=1) / len(means)
        variance = variance + (chain.all.count / total) ** 2 * one
    return np.sqrt(variance) * _fitted(total, 0 if beta is None or beta.ndim < 2 else len(beta))


def _fitted(n: int, p: int) -> float:
    """By how much p slopes that were fitted on n draws themselves make an error look too small."""
    return float(np.sqrt(n / (n - p - 1) * (n - 2) / (n - p - 2))) if p else 1.0
