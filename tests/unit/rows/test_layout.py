# SPDX-License-Identifier: Apache-2.0
"""Two layouts are the same if they draw the same minibatches."""

from dataclasses import replace

import numpy as np

from pymc_sgcv.rows.layout import Layout


def test_layouts_differ_by_their_strata_too():
    one = Layout("block", (5, 5), (None,), (np.array([0, 0, 1, 1]),))
    assert one.equals(replace(one, strata=(np.array([0, 0, 1, 1]),)))
    assert not one.equals(replace(one, strata=(np.array([0, 1, 0, 1]),)))
    assert not one.equals(replace(one, strata=(None,)))
