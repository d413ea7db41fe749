# SPDX-License-Identifier: Apache-2.0
"""Quasi-Newton steps reach the mode from gradients alone."""

import numpy as np
import pytest

from pymc_sgcv.setup.quasi_newton import _EVALUATIONS, _NEAR, climb

D = 30
_rng = np.random.default_rng(95)
MODE = _rng.normal(size=D)
ROTATION = np.linalg.qr(_rng.normal(size=(D, D)))[0]


def quadratic(values, scales=1.0):
    """−∇ of ½ (θ − mode)ᵀ H (θ − mode), and H."""
    H = ROTATION @ np.diag(values) @ ROTATION.T / np.outer(scales * np.ones(D), scales * np.ones(D))
    return (lambda point: -H @ (point - MODE)), H


@pytest.mark.parametrize(("widest", "near"), [(1.0, 2 * _NEAR), (30.0, 1.0), (1000.0, 1.0)])
def test_the_maximum_of_an_ill_conditioned_quadratic_is_reached(widest, near):
    """A few directions are odd, and coordinates have scales between 0.01 and 100 beside.

    It stops by the distance that its own estimate of the curvature tells. Of directions that are
    a thousand times too long that knows little: there, no further than draws are from the mode.
    """
    scales, values = np.geomspace(0.01, 100, D), np.ones(D)
    values[:4] = widest ** np.array([-1.0, -0.5, 0.5, 1.0])
    gradient, H = quadratic(values, scales)
    start = MODE + 20 * scales * np.random.default_rng(96).normal(size=D)
    end = climb(gradient, start, np.diag(H) ** -0.5)
    before, after = (np.sqrt((x - MODE) @ H @ (x - MODE)) for x in (start, end))
    assert before > 20 * np.sqrt(D) / 2
    assert after < near * np.sqrt(D)


def test_at_the_mode_no_step_is_taken():
    gradient, _ = quadratic(np.ones(D))
    np.testing.assert_array_equal(climb(gradient, MODE, np.ones(D)), MODE)


def test_a_gradient_that_is_infinite_somewhere_shortens_the_step():
    """The support ends one deviation behind the mode, and the first steps would leave it."""

    def gradient(point):
        return np.where(point < 1, -point, np.inf) if (point < 1).all() else np.full(3, np.nan)

    end = climb(gradient, np.full(3, -50.0), np.full(3, 3.0))
    assert np.isfinite(end).all() and np.linalg.norm(end) < 2 * _NEAR * np.sqrt(3)


def test_where_every_step_leads_out_of_the_support_it_stays():
    start = np.zeros(3)

    def gradient(point):
        return np.ones(3) if (point == start).all() else np.full(3, np.nan)

    np.testing.assert_array_equal(climb(gradient, start, np.ones(3)), start)


def test_evaluations_are_limited_where_there_is_no_maximum():
    count = 0

    def gradient(point):
        nonlocal count
        count += 1
        return np.ones(3)

    climb(gradient, np.zeros(3), np.ones(3))
    assert count <= _EVALUATIONS + 8
