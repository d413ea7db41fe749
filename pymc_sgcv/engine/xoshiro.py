# SPDX-License-Identifier: Apache-2.0
"""Random numbers inside compiled code: xoshiro256++ (Blackman & Vigna 2021) and a ziggurat.

numba's support of ``numpy.random.Generator`` costs about 0.1 ms at every call of compiled code and
a quarter of its compile time. A generator here is four words of state, seeded from numpy's.
"""

from __future__ import annotations

import numpy as np

from pymc_sgcv.engine.native import compiled

_TAIL = 3.6541528853610088
_AREA = 0.00492867323399
_LAYERS = 256


def seeded(rng: np.random.Generator) -> np.ndarray:
    """A new state, drawn from a numpy generator."""
    return rng.integers(1, 2**64 - 1, size=4, dtype=np.uint64, endpoint=True)


def _edges() -> np.ndarray:
    """Right edges of the ziggurat's layers of equal area (Marsaglia & Tsang 2000, Doornik 2005)."""
    x = np.zeros(_LAYERS + 1)
    x[0], x[1] = _AREA / np.exp(-0.5 * _TAIL**2), _TAIL
    for i in range(2, _LAYERS):
        x[i] = np.sqrt(-2 * np.log(_AREA / x[i - 1] + np.exp(-0.5 * x[i - 1] ** 2)))
    return x


_EDGE = _edges()
_RATIO = _EDGE[1:] / _EDGE[:-1]


@compiled
def word(state):
    """64 random bits."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    mixed = s0 + s3
    result = ((mixed << np.uint64(23)) | (mixed >> np.uint64(41))) + s0
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    state[0], state[1] = s0 ^ s3, s1 ^ s2
    state[2] = s2 ^ shifted
    state[3] = (s3 << np.uint64(45)) | (s3 >> np.uint64(19))
    return result


@compiled
def uniform(state):
    """A number in [0, 1) on a grid of 2⁻⁵³."""
    return np.float64(word(state) >> np.uint64(11)) * 1.1102230246251565e-16


@compiled
def below(state, n):
    """A whole number in 0, …, n − 1; off uniform by less than n 2⁻⁵³."""
    return min(np.intp(uniform(state) * n), n - 1)


@compiled
def normal(state):
    """A standard normal number."""
    while True:
        bits = word(state)
        i = np.intp(bits & np.uint64(255))
        u = np.float64(bits >> np.uint64(11)) * 2.220446049250313e-16 - 1.0
        if abs(u) < _RATIO[i]:
            return u * _EDGE[i]
        if i == 0:
            x, y = 1.0, 0.0
            while 2 * y < x * x:
                x = -np.log(1.0 - uniform(state)) / _TAIL
                y = -np.log(1.0 - uniform(state))
            return _TAIL + x if u > 0 else -_TAIL - x
        x = u * _EDGE[i]
        upper = np.exp(-0.5 * (_EDGE[i] * _EDGE[i] - x * x))
        lower = np.exp(-0.5 * (_EDGE[i + 1] * _EDGE[i + 1] - x * x))
        if lower + uniform(state) * (upper - lower) < 1.0:
            return x
