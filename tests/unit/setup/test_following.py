# SPDX-License-Identifier: Apache-2.0
"""What the control variate follows: parameters that enter rows as e^θ and are uncertain."""

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import center_at
from pymc_sgcv.setup.following import follow
from pymc_sgcv.setup.noise import around

N = 2000
_rng = np.random.default_rng(6)
X, Z = _rng.normal(size=(2, N))
Y = 0.5 * X + _rng.normal(size=N)


def followed(declare, start):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("slope", 0, 1) * X + declare() * Z, 1.0, observed=Y)
    problem, rng = Problem(model, batch_size=100), np.random.default_rng(0)
    center = center_at(problem, np.array([0.5, start]))
    before = problem.layout
    center = follow(problem, center, around(center, rng), rng)
    assert problem.layout == before
    return center.exponents


@pytest.mark.parametrize(
    ("declare", "start", "exponent"),
    [
        (lambda: pm.HalfNormal("b", 1), -3.5, 1.0),
        (lambda: pm.HalfNormal("b", 1) ** 2, -2.0, 2.0),
        (lambda: 0.001 / pm.HalfNormal("b", 1), -3.5, -1.0),
    ],
    ids=["b", "b²", "1/b"],
)
def test_a_coefficient_near_its_bound_is_followed(declare, start, exponent):
    """∂ℓᵢ/∂θ = rᵢ zᵢ b for a coefficient b = e^θ near 0, where residuals rᵢ hardly depend on it."""
    exponents = followed(declare, start)
    assert exponents is not None
    np.testing.assert_array_equal(exponents, [0.0, exponent])


def test_a_straight_coefficient_is_not():
    assert followed(lambda: pm.Normal("b", 0, 1), 0.0) is None
