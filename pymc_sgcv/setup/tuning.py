# SPDX-License-Identifier: Apache-2.0
"""Choose step size and batch size from the gradient's noise and the posterior's shape.

In coordinates whitened by the posterior covariance FFᵀ one step size fits every model. What limits
it is the gradient noise: of variance v in a whitened direction it adds v B(h) to the stationary
variance (`pymc_sgcv.kernel.stationary`), for Leimkuhler–Matthews (h/4) v / (1 − h/4). Most of that
is taken out of the injected noise again; h is as long as what may remain allows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_sgcv.kernel.dynamics import BADODAB, BAOAB, THERMOSTAT_EULER
from pymc_sgcv.kernel.preconditioners import Preconditioner
from pymc_sgcv.kernel.stationary import Linear, Trajectories, iterations_per_draw, linearised
from pymc_sgcv.setup.noise import pairs, unexplained

LONGEST_STEP = 1.0
SHORT_STEP = 0.05
"""However curved the posterior is."""
SHORTEST_STEP = 1e-4
"""Of the longest one."""
_NONLINEAR = 0.1
"""Curvature of the score (see `nonlinearity`) up to which the longest step is safe."""
_LEFT_AFTER_CORRECTION = 0.25
"""Share of the gradient noise's inflation that is expected to survive its correction."""
_THERMOSTAT_ERROR = 0.35
"""A thermostat takes off too much by this times h² v̄ (v̄ if that is more than 1): measured."""
_LEAST_KEPT = 0.5
"""The injected noise keeps at least this share of its variance."""
_NOISE_SHARES = np.geomspace(100.0, 1e-3, 110)


@dataclass(frozen=True)
class Motion:
    """The dynamics of a step method, apart from the step size.

    `kind`, `friction` and `leapfrog` are those of `pymc_sgcv.kernel.dynamics.Dynamics`.
    """

    kind: int = BAOAB
    friction: float = np.inf
    leapfrog: int = 0

    @property
    def thermostat(self) -> bool:
        """Whether the dynamics themselves correct for gradient noise."""
        return self.kind in (BADODAB, THERMOSTAT_EULER)

    def at(self, h: float) -> Linear | Trajectories:
        """What one iteration with step size h does on a Gaussian."""
        return linearised(self.kind, h, self.friction, self.leapfrog)


@dataclass(frozen=True)
class Tuning:
    """What was chosen for a model, and what is expected of it.

    Attributes
    ----------
    factor
        F of the preconditioner FFᵀ, turned so that the gradient noise is uncorrelated in its
        coordinates.
    kept
        Standard deviations of the injected noise: 1, less what gradient noise will add.
    step_size
        h in whitened coordinates.
    inflation
        Predicted relative error of the posterior standard deviation, of the worst parameter.
    noise_share
        Variance of the gradient noise over the injected noise's, (h/4) v, in the worst direction.
    """

    factor: Preconditioner
    kept: np.ndarray
    step_size: float
    inflation: float
    noise_share: float


def nonlinearity(
    factor: Preconditioner, draws: np.ndarray, gradients: np.ndarray, noise: np.ndarray
) -> float:
    """How far the posterior is from Gaussian: variance of the score that no line explains.

    From a pilot's draws and gradients, in coordinates whitened by `factor` and the worst direction,
    the `noise` of those gradients taken off: 0 for a Gaussian, up to sampling error.
    """
    x = factor.solve(draws - draws.mean(0))
    g = factor.apply_transposed(gradients)
    g -= g.mean(0)
    if not factor.complete:
        slope = np.einsum("ij,ij->j", x, g) / np.einsum("ij,ij->j", x, x)
        rest = (g - x * slope).var(0)
    else:
        rest = unexplained(x, g) * len(x) / (len(x) - factor.size)
    noise = factor.variances(noise)
    error = 4 * np.sqrt(2 / pairs(factor.size)) * noise
    return float(np.max(rest - noise - error))


def bending(factor: Preconditioner, even: np.ndarray) -> float:
    """The same for many parameters, from the part of the score that is even about the center.

    For displacements ±δ of the posterior, ½ (g(+δ) + g(−δ)) is constant on a Gaussian, whatever is
    correlated with what, and has no noise if g is taken over all rows. `even` are these, (n, d); of
    the worst coordinate it is the variance, which of many chance makes too large.
    """
    white = factor.apply_transposed(even)
    variance = white.var(0, ddof=1)
    return float(variance.max() / (1 + np.sqrt(2 * np.log(len(variance)) * 2 / len(even))))


def longest_step(curved: float) -> float:
    """The step that the posterior's shape allows: 1 if it is nearly Gaussian, else shorter."""
    return float(np.clip(np.sqrt(_NONLINEAR / max(curved, 1e-9)), SHORT_STEP, LONGEST_STEP))


def choose(
    noise: np.ndarray,
    factor: Preconditioner,
    target_bias: float,
    motion: Motion | None = None,
    longest: float = LONGEST_STEP,
) -> Tuning:
    """The longest step whose predicted error of the standard deviation is within `target_bias`."""
    motion = motion or Motion()
    noise, factor = factor.principal(noise)
    shortest = SHORTEST_STEP * longest
    grid = np.geomspace(longest, shortest, 120)
    fitting = (h for h in grid if _predict(noise, factor, h, motion)[0] <= target_bias)
    h = float(next(fitting, shortest))
    inflation, kept = _predict(noise, factor, h, motion)
    return Tuning(factor, kept, h, inflation, float(h / 4 * noise.max()))


def affordable_noise(
    noise: np.ndarray, factor: Preconditioner, target_bias: float, motion: Motion, longest: float
) -> float:
    """The share of the gradient noise that a batch may have so that it does not limit the step.

    What noise may cost is then half of `target_bias`: its estimate has an error too.
    """
    noise, factor = factor.principal(noise)
    for share in _NOISE_SHARES:
        if _predict(noise * share, factor, longest, motion)[0] <= 0.5 * target_bias:
            return float(share)
    return float(_NOISE_SHARES[-1])


def _predict(
    noise: np.ndarray, factor: Preconditioner, h: float, motion: Motion
) -> tuple[float, np.ndarray]:
    """Predicted error of the sd of the worst parameter, and √κ that compensates the noise."""
    plain, per_noise = motion.at(h).variances()
    if motion.thermostat:  # it takes off the average by itself
        extra, kept = per_noise * (noise - noise.mean()), np.ones(len(noise))
    else:
        extra = per_noise * noise
        kept = np.maximum(1 - extra, _LEAST_KEPT)
    left = plain * kept + extra - 1
    left = np.maximum(_LEFT_AFTER_CORRECTION * np.abs(extra), np.abs(left))
    if motion.thermostat:
        average = noise.mean()
        left = left + _THERMOSTAT_ERROR * h**2 * average * max(1.0, average)
    worst = factor.by_parameter(left).max()
    return float(np.sqrt(1 + worst) - 1), np.sqrt(kept)


def auto_thin(h: float, motion: Motion | None = None) -> int:
    """Iterations after which a draw is worth about half an effective draw.

    For Leimkuhler–Matthews the autocorrelation of one iteration is 1 − h/2; draws k apart are worth
    half an independent draw each when (1 − h/2)ᵏ = 1/3.
    """
    return iterations_per_draw((motion or Motion()).at(min(h, 1.0)))
