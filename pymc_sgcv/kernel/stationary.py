# SPDX-License-Identifier: Apache-2.0
"""Where the dynamics come to rest on a Gaussian, exactly: variance and memory of one direction.

In whitened coordinates a Gaussian posterior has w = −x + η in each direction, with gradient noise
η of variance v. One iteration is then linear in the state s = (x, r), s ← M s + a √κ ζ + b η, and
the stationary variance of x is κ A + v B with numbers A and B that depend on the step alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from pymc_sgcv.kernel.dynamics import BADODAB, BAOAB, EULER

_LONGEST_MEMORY = 100_000


@dataclass(frozen=True)
class Linear:
    """One direction of the dynamics on a standard normal: s ← map·s + injected·√κ ζ + noise·η."""

    map: np.ndarray
    injected: np.ndarray
    noise: np.ndarray

    def variances(self) -> tuple[float, float]:
        """A and B: the variance of x per unit of κ and per unit of v."""
        return self._variance(self.injected), self._variance(self.noise)

    def _variance(self, source: np.ndarray) -> float:
        return float(solve_discrete_lyapunov(self.map, np.outer(source, source))[0, 0])

    def autocorrelation(self) -> np.ndarray:
        """Of x without gradient noise, at lags 0, 1, … until it has died away."""
        state = solve_discrete_lyapunov(self.map, np.outer(self.injected, self.injected))[:, 0]
        slowest = np.clip(np.abs(np.linalg.eigvals(self.map)).max(), 1e-3, 1 - 1e-9)
        values = np.empty(int(min(_LONGEST_MEMORY, 10 + 12 / -np.log(slowest))))
        for k in range(len(values)):
            values[k] = state[0]
            state = self.map @ state
        return values / values[0]


@dataclass(frozen=True)
class Trajectories:
    """The same where r is drawn afresh before every `length` iterations, the first of them other.

    `r` has variance κ when it is fresh.
    """

    opening: Linear
    rest: Linear
    length: int

    def variances(self) -> tuple[float, float]:
        """A and B, averaged over the iterations of a trajectory."""
        return self._variance("injected", 1.0), self._variance("noise", 0.0)

    def _variance(self, source: str, momentum: float) -> float:
        """The variance of x before a trajectory and after it is linear in the one before."""
        ends, averages = [], []
        for x0 in (0.0, 1.0):
            covariance, total = np.diag([x0, momentum]), 0.0
            for part in self._parts():
                total += covariance[0, 0]
                added = getattr(part, source)
                covariance = part.map @ covariance @ part.map.T + np.outer(added, added)
            ends.append(covariance[0, 0])
            averages.append(total / self.length)
        kept = ends[1] - ends[0]
        if not kept < 1:
            return np.inf
        return float(averages[0] + ends[0] / (1 - kept) * (averages[1] - averages[0]))

    def _parts(self) -> list[Linear]:
        return [self.opening] + [self.rest] * (self.length - 1)

    def autocorrelation(self) -> np.ndarray:
        """From one trajectory to the next, and taken to be constant within one."""
        whole = np.eye(2)
        for part in self._parts():
            whole = part.map @ whole
        kept = float(np.clip(whole[0, 0], -1 + 1e-6, 1 - 1e-6))
        count = int(min(_LONGEST_MEMORY // self.length, 3 + 12 / -np.log(max(abs(kept), 1e-3))))
        return np.repeat(kept ** np.arange(count), self.length)


def linearised(kind: int, h: float, friction: float, leapfrog: int = 0) -> Linear | Trajectories:
    """One direction of the dynamics `kind` of `pymc_sgcv.kernel.dynamics`.

    A thermostat is taken to stand still at the friction.

    Examples
    --------
    Euler's variance is 1/(1 − h/4), to which gradient noise adds (h/4) v/(1 − h/4):

    >>> A, B = linearised(EULER, 0.4, np.inf).variances()
    >>> print(round(A * 0.9, 12), round(B * 0.9, 12))
    1.0 0.1
    """
    if leapfrog:
        opening = _one_step(kind, h, friction, kick=0.5 if kind == BAOAB else 1.0)
        return Trajectories(opening, _one_step(kind, h, friction), leapfrog)
    return _one_step(kind, h, friction)


def _one_step(kind: int, h: float, friction: float, kick: float = 1.0) -> Linear:
    e = np.sqrt(h)
    if kind == EULER:
        still = np.array([[1 - h / 2, 0.0], [0.0, 0.0]])
        return Linear(still, np.array([e, 0.0]), np.array([h / 2, 0.0]))
    if kind in (BAOAB, BADODAB):
        c, kick = np.exp(-friction * e), kick * e
        spread, half = np.sqrt(1 - c**2), e / 2 * (1 + c)
        return Linear(
            np.array([[1 - kick * half, half], [-c * kick, c]]),
            np.array([e / 2 * spread, spread]),
            np.array([kick * half, c * kick]),
        )
    drag, spread = 1 - friction * e, np.sqrt(2 * friction * e)
    return Linear(
        np.array([[1 - h, e * drag], [-e, drag]]),
        np.array([e * spread, spread]),
        np.array([h, e]),
    )


def iterations_per_draw(linear: Linear | Trajectories, worth: float = 0.5) -> int:
    """Iterations after which a draw is worth `worth` independent draws, for x and for x²."""
    rho = linear.autocorrelation()
    for k in range(1, len(rho)):
        along = rho[k::k]
        if 1 + 2 * max(along.sum(), (along**2).sum()) <= 1 / worth:
            return k
    return len(rho)
