# SPDX-License-Identifier: Apache-2.0
"""The process that compiles a gradient and those that load it run the same code."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.engine.compile import _multiplies_rows
from pymc_sgcv.model.target import read_model

GRADIENTS = """
import numpy as np
from pymc_sgcv.rows.problem import Problem
from tests.models import build

problem = Problem(build("hierarchical", 300, 100))
points = np.random.default_rng(0).normal(size=(20, problem.size))
print(problem.gradient(points).tobytes().hex())
"""


def gradients(cache: Path) -> str:
    """Gradients to the last bit, from a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", GRADIENTS],
        env={**os.environ, "PYTENSOR_FLAGS": f"base_compiledir={cache}"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_compiled_gradient_rounds_like_a_loaded_one(tmp_path):
    compiled = gradients(tmp_path)
    code = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.nbc")}
    loaded = gradients(tmp_path)
    assert code
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.nbc")} == code
    assert len(compiled) > 1000
    assert loaded == compiled


X = np.random.default_rng(0).normal(size=(60, 3))


@pytest.mark.parametrize(("shape", "pays"), [((3,), True), ((3, 4), False)])
def test_points_are_stacked_where_memory_and_not_arithmetic_takes_the_time(shape, pays):
    with pm.Model() as model:
        mean = pm.math.dot(X, pm.Normal("b", shape=shape))
        pm.Normal("y", mean, 1, observed=X @ np.ones(shape))
    (plate,) = read_model(model, batch_size=20).plates
    assert _multiplies_rows(plate) is pays
