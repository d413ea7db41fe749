# SPDX-License-Identifier: Apache-2.0
"""Step sizes: the formula, the iterations they are for, and what is refused."""

import numpy as np
import pytest

from pymc_sgcv.kernel.schedules import PolynomialDecay, check_step_size, step_sizes


def test_polynomial_decay_is_a_times_b_plus_k_to_the_minus_gamma():
    decay = PolynomialDecay(a=0.3, b=2.0, gamma=0.55)
    assert [decay(k) for k in (0, 1, 10)] == [0.3 * (2.0 + k) ** -0.55 for k in (0, 1, 10)]


def test_polynomial_decay_takes_arrays():
    decay = PolynomialDecay(a=0.3, b=2.0, gamma=0.55)
    np.testing.assert_allclose(decay(np.arange(5)), [decay(k) for k in range(5)], rtol=1e-15)


@pytest.mark.parametrize(
    "arguments", [(0.0, 1.0, 0.5), (-1.0, 1.0, 0.5), (1.0, 0.0, 0.5), (1.0, 1.0, -0.1)]
)
def test_polynomial_decay_that_is_not_positive_and_decreasing_is_refused(arguments):
    with pytest.raises(ValueError, match="a > 0, b > 0 and gamma >= 0"):
        PolynomialDecay(*arguments)


def test_a_number_is_the_step_of_every_iteration():
    np.testing.assert_array_equal(step_sizes(0.25, first=7, n=3), [0.25, 0.25, 0.25])


def test_a_schedule_goes_on_from_the_iteration_that_comes_next():
    np.testing.assert_array_equal(step_sizes(lambda k: 1.0 / (1 + k), 3, 2), [1 / 4, 1 / 5])


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_schedule_that_leaves_the_positive_numbers_is_refused_with_its_iteration(bad):
    with pytest.raises(ValueError, match="at iteration 12"):
        step_sizes(lambda k: bad if k == 12 else 0.1, 10, 5)


@pytest.mark.parametrize("good", ["auto", 0.1, 1, np.float32(0.5), PolynomialDecay(1.0, 1.0, 0.5)])
def test_auto_positive_numbers_and_callables_are_step_sizes(good):
    check_step_size(good)


@pytest.mark.parametrize("bad", ["fast", 0, -0.1, np.nan, np.inf, True, None, [0.1]])
def test_anything_else_is_not_a_step_size(bad):
    with pytest.raises(ValueError, match='step_size must be "auto", a positive number'):
        check_step_size(bad)
