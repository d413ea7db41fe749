# SPDX-License-Identifier: Apache-2.0
"""Logarithms of σ and 1 − σ have finite gradients, and the same values as before."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_sgcv.engine.logits import without_division
from pymc_sgcv.rows.problem import Problem

FAR = np.array([-800.0, -50.0, -3.0, 0.0, 3.0, 50.0, 800.0])

x = pt.dvector("x")
y = pt.lvector("y")
p = pt.sigmoid(x)
FORMS = {
    "log σ": pt.log(p),
    "log(1 − σ)": pt.log(1 - p),
    "log1p(−σ)": pt.log1p(-p),
    "Bernoulli": pt.switch(y, pt.log(p), pt.log1p(-p)),
    "Bernoulli of the other outcome": pt.switch(pt.eq(y, 0), pt.log1p(-p), pt.log(p)),
    "inside a sum": pt.sum(3.0 * pt.log(p) + 2.0 * pt.log(1 - p)),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_values_are_the_same_where_they_are_exact(form):
    both = pytensor.function([x, y], [form, without_division(form)], on_unused_input="ignore")
    expected, found = both(np.linspace(-12, 12, 7), np.array([0, 1, 0, 1, 0, 1, 0]))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_gradients_are_finite_everywhere(form):
    slope = pytensor.function(
        [x, y], pt.grad(pt.sum(without_division(form)), x), on_unused_input="ignore"
    )
    assert np.isfinite(slope(FAR, np.array([0, 1, 0, 1, 0, 1, 0]))).all()


def test_a_difference_that_is_no_complement_is_left_alone():
    for other in (pt.log(2 - p), pt.log(x - p), pt.switch(y, pt.log(p), pt.log1p(-pt.sigmoid(y)))):
        graph = without_division(other)
        both = pytensor.function([x, y], [graph, other], on_unused_input="ignore")
        np.testing.assert_array_equal(*both(np.array([1.5]), np.array([2])))


@pytest.mark.parametrize("trials", [None, 5])
def test_gradient_of_a_logistic_model_is_exact_far_out(trials):
    outcome = np.array([0, 1, 0, 1, 0, 1, 1])
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1)
        if trials is None:
            pm.Bernoulli("y", logit_p=FAR * slope, observed=outcome)
        else:
            pm.Binomial("y", trials, logit_p=FAR * slope, observed=outcome)
    found = Problem(model).gradient(np.array([[1.0], [-1.0]]))[:, 0]
    with np.errstate(over="ignore"):
        for theta, value in zip((1.0, -1.0), found, strict=True):
            rest = outcome - (trials or 1) / (1 + np.exp(-FAR * theta))
            np.testing.assert_allclose(value, FAR @ rest - theta, rtol=1e-12)


@pytest.mark.parametrize("asked", [p >= 0, p <= 1, 1 - p >= 0, 1 - p <= 1], ids=str)
def test_whether_a_probability_is_one_is_not_asked(asked):
    """PyMC checks it for every row; the answer is known."""
    function = pytensor.function([x], without_division(asked), mode="NUMBA")
    assert function(FAR).all()
    assert "sigmoid" not in str(function.maker.fgraph.toposort()).lower()
