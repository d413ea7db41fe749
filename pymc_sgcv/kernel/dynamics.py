# SPDX-License-Identifier: Apache-2.0
"""Discretised dynamics. They know nothing of where the gradient comes from.

All of them live in whitened coordinates x = F⁻¹θ, where FFᵀ is the preconditioner and w = Fᵀĝ the
gradient; with time step ε = √h, noise ζ ~ N(0, K), K = I less what gradient noise is known to add:

Langevin, Euler (the paper)   x ← x + (h/2) w + √h ζₖ
Leimkuhler–Matthews           x ← x + (h/2) w + √h (ζₖ + ζₖ₋₁)/2
SGHMC, Euler                  r ← r + ε w − γε r + √(2γε) ζ;  x ← x + ε r     (Chen et al. 2014)
SGHMC, BAOAB                  r ← r + ε w;  x ← x + (ε/2) r;  r ← c r + √(1−c²) ζ;  x ← x + (ε/2) r
SGNHT, Euler                  as SGHMC with γ → ξ but noise √(2γε);  ξ ← ξ + ε (r·r/d − 1)
SGNHT, BADODAB                as BAOAB with c = exp(−ξε), ξ moved half a step before and after

with friction γ and c = exp(−γε). Leimkuhler–Matthews is BAOAB with infinite friction, c = 0: its
ζₖ₋₁ is the momentum. A draw is the x at which w was taken, where BAOAB's kicks by half of w join.

Euler's stationary variance on a Gaussian is 1/(1 − h/4) too large; Leimkuhler–Matthews and BAOAB
have none of that error at the same cost (Leimkuhler & Matthews 2013). BADODAB: Leimkuhler & Shang
2016, after Ding et al. 2014.

In coordinates that are whitened, (h/2) w is limited to a few standard deviations. Beyond a wall of
the density, where its logarithm falls like −exp(x), a gradient would throw the chain as far as it
is large, and it would take long to come back; there is hardly any mass for which that matters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_sgcv.engine.native import compiled
from pymc_sgcv.engine.xoshiro import normal
from pymc_sgcv.kernel.forms import Form, apply, apply_transposed

EULER, BAOAB, HAMILTON_EULER, THERMOSTAT_EULER, BADODAB = range(5)
INTEGRATORS = {
    "langevin": {"lm": BAOAB, "euler": EULER},
    "hamiltonian": {"baoab": BAOAB, "euler": HAMILTON_EULER},
    "thermostat": {"badodab": BADODAB, "euler": THERMOSTAT_EULER},
}
"""The integrators of each kind of dynamics by name, the default one first."""
WITH_FRICTION = (HAMILTON_EULER, THERMOSTAT_EULER, BADODAB)
"""Those that read ξ."""


class Dynamics(NamedTuple):
    """What compiled code needs to move a chain.

    Attributes
    ----------
    kind
        One of the integrators above.
    factor
        F, in the form of `pymc_sgcv.kernel.preconditioners`.
    kept
        √K, the standard deviations of the injected noise: (d,).
    friction
        γ per unit of time; infinite for Leimkuhler–Matthews.
    leapfrog
        Iterations after which the momentum is drawn afresh; 0: never.
    furthest
        What (h/2) w is limited to, in each coordinate; may be infinite.
    momentum, thermostat
        r, of (d,), and ξ, of (1,): what the chain carries along beside θ. ξ is None for Langevin
        dynamics and BAOAB, and then nothing else is compiled.
    work
        (2, d) numbers of scratch.
    """

    kind: int
    factor: Form
    kept: np.ndarray
    friction: float
    leapfrog: int
    furthest: float
    momentum: np.ndarray
    thermostat: np.ndarray | None
    work: np.ndarray


@compiled
def move(dynamics, theta, gradient, h, iteration, rng):
    """One update of `theta` in place."""
    white, shift = dynamics.work[0], dynamics.work[1]
    kick = 1.0
    if dynamics.leapfrog > 0 and iteration % dynamics.leapfrog == 0:
        kick = 0.5  # the other half ended the trajectory before, whose momentum is forgotten
        for j in range(len(theta)):
            dynamics.momentum[j] = dynamics.kept[j] * normal(rng)
    apply_transposed(dynamics.factor, gradient, white)
    if h > 0 and dynamics.furthest < np.inf:
        limit = 2 * dynamics.furthest / h
        for j in range(len(white)):
            white[j] = min(max(white[j], -limit), limit)
    if dynamics.kind == EULER:
        _euler(white, h, dynamics.kept, rng, shift)
    elif dynamics.kind == BAOAB:
        _baoab(white, h, kick, dynamics, rng, shift)
    else:
        _by_friction(white, h, dynamics, dynamics.thermostat, rng, shift)
    apply(dynamics.factor, shift, white)
    for j in range(len(theta)):
        theta[j] += white[j]


@compiled
def _by_friction(w, h, dynamics, xi, rng, shift):
    if xi is None:  # numba leaves out what follows, for an argument that is always None
        return
    if dynamics.kind == BADODAB:
        _badodab(w, h, dynamics, xi, rng, shift)
    else:
        _momentum_euler(w, h, dynamics, xi, rng, shift)


@compiled
def _euler(w, h, kept, rng, shift):
    root = np.sqrt(h)
    for j in range(len(w)):
        shift[j] = 0.5 * h * w[j] + root * kept[j] * normal(rng)


@compiled
def _baoab(w, h, kick, dynamics, rng, shift):
    step, r = np.sqrt(h), dynamics.momentum
    c = np.exp(-dynamics.friction * step)
    spread = np.sqrt(1 - c * c)
    for j in range(len(w)):
        kicked = r[j] + kick * step * w[j]
        r[j] = c * kicked + spread * dynamics.kept[j] * normal(rng)
        shift[j] = 0.5 * step * (kicked + r[j])


@compiled
def _temperature(r):
    """r·r/d − 1: by how much the momentum is too hot."""
    total = 0.0
    for j in range(len(r)):
        total += r[j] * r[j]
    return total / len(r) - 1.0


@compiled
def _badodab(w, h, dynamics, xi, rng, shift):
    step, r = np.sqrt(h), dynamics.momentum
    for j in range(len(w)):
        r[j] += step * w[j]
        shift[j] = 0.5 * step * r[j]
    xi[0] += 0.5 * step * _temperature(r)
    c = np.exp(-xi[0] * step)
    # the variance of the noise of dr = −ξ r dt + √(2γ) dB over one step, also for ξ → 0 and below
    ratio = step if abs(xi[0] * step) < 1e-8 else (1 - c * c) / (2 * xi[0])
    spread = np.sqrt(2 * dynamics.friction * ratio)
    for j in range(len(w)):
        r[j] = c * r[j] + spread * dynamics.kept[j] * normal(rng)
    xi[0] += 0.5 * step * _temperature(r)
    for j in range(len(w)):
        shift[j] += 0.5 * step * r[j]


@compiled
def _momentum_euler(w, h, dynamics, xi, rng, shift):
    step, r = np.sqrt(h), dynamics.momentum
    drag = xi[0] if dynamics.kind == THERMOSTAT_EULER else dynamics.friction
    spread = np.sqrt(2 * dynamics.friction * step)
    for j in range(len(w)):
        r[j] += step * (w[j] - drag * r[j]) + spread * dynamics.kept[j] * normal(rng)
        shift[j] = step * r[j]
    xi[0] += step * _temperature(r)
