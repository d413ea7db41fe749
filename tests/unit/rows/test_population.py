# SPDX-License-Identifier: Apache-2.0
"""Where minibatches come from."""

import pytest

from pymc_sgcv.rows.population import Population, _first_rows

C = Population().influence


@pytest.mark.parametrize(("d", "n_rows"), [(20, 10**8), (8, 2 * 10**8), (3, 10**9)])
def test_the_first_center_is_so_near_that_the_second_pass_is_the_last(d, n_rows):
    """It is √(d N / m) sds off; a pass leaves the share √c of that, of which √c may be 0.03."""
    m = _first_rows(d, n_rows, C)
    assert (d * n_rows / m) ** 0.5 * C < 0.03 / 1.4
    assert m <= 0.02 * n_rows


def test_few_rows_begin_with_as_many_as_there_ever_were():
    assert _first_rows(8, 10**6, C) == 50_000
    assert _first_rows(2000, 10**6, C) == 200_000
    assert _first_rows(8, 30_000, C) == 30_000


def test_the_first_rows_are_never_more_than_fit():
    assert _first_rows(100, 10**10, C) == 2_000_000
    assert _first_rows(20, 10**7, 100 * C) == 200_000  # a fiftieth of all
