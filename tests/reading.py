# SPDX-License-Identifier: Apache-2.0
"""Whether a model is read right, without a compiler: its gradient against PyMC's own."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_sgcv.model.proof import prove_rows
from pymc_sgcv.model.start import PYTHON
from pymc_sgcv.model.target import Target, read_model

EXACT = 1e-8


def read(model: pm.Model, batch_size: int = 20) -> Target:
    """The model taken apart, its rows proven."""
    target = read_model(model, batch_size=batch_size)
    prove_rows(target)
    return target


def check_reading(model: pm.Model, batch_size: int = 20, expected=None) -> Target:
    """The gradient of ℓ₀ + Σ ℓᵢ at two random points is that of the model's own logp."""
    target = read(model, batch_size)
    total = target.prior + sum(plate.loglike.sum() for plate in target.plates)
    slopes = pt.grad(total, list(target.values), disconnected_inputs="ignore")
    rows = [row for plate in target.plates for row in plate.rows]
    inputs = [*target.values, *rows]
    flat = pt.concatenate([slope.ravel() for slope in slopes])
    function = pytensor.function(inputs, flat, mode=PYTHON, on_unused_input="ignore")
    arrays = [a for plate in target.plates for a in plate.arrays()]
    arrays = [np.asarray(a, dtype=row.dtype) for a, row in zip(arrays, rows, strict=True)]
    expected = expected or own_gradient(model, target)
    rng = np.random.default_rng(0)
    for _ in range(2):
        theta = target.flatten(target.start) + 0.3 * rng.normal(size=target.size)
        point = target.unflatten(theta)
        got, right = function(*point.values(), *arrays), expected(point)
        np.testing.assert_allclose(got / np.abs(right).max(), right / np.abs(right).max(), 0, EXACT)
    return target


def own_gradient(model: pm.Model, target: Target):
    """PyMC's gradient, in the order of the target's parameters."""
    by_name = {v.name: v for v in model.value_vars}
    rvs = [model.values_to_rvs[by_name[p.name]] for p in target.parameters]
    return model.compile_dlogp(vars=rvs, mode=PYTHON)
