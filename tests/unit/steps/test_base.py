# SPDX-License-Identifier: Apache-2.0
"""What building a step leaves in memory."""

import tracemalloc

import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg

GIVEN = {"step_size": 0.1, "preconditioner": None, "center": {"b": np.zeros(29)}}


@pytest.mark.parametrize("plain", [False, True], ids=["minibatched", "plain"])
@pytest.mark.parametrize("arguments", [GIVEN, {}], ids=["given", "automatic"])
def test_building_a_step_holds_one_copy_of_the_data(arguments, plain):
    """48 MB of data: one shuffled copy, and never a second; 8 bytes a row for their order."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200_000, 29)), rng.normal(size=200_000)
    with pm.Model():
        x, observed = (X, y) if plain else pm.Minibatch(X, y, batch_size=100)
        size = {} if plain else {"total_size": len(y)}
        pm.Normal("y", x @ pm.Normal("b", 0, 1, shape=29), 1, observed=observed, **size)
        sg.SGLDCV(**arguments, progressbar=False)  # what is compiled or imported is there now
        tracemalloc.start()
        step = sg.SGLDCV(**arguments, progressbar=False)
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    data = sum(array.nbytes for array in step.problem.target.plates[0].arrays())
    assert data < held < 1.1 * data
    assert peak < 1.2 * data
