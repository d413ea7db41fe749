# SPDX-License-Identifier: Apache-2.0
"""Elementary functions as vector instructions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_sgcv.engine.vector_math import vector_mode

FUNCTIONS = {
    "exp": (pt.exp, np.exp, (-700, 700)),
    "log": (pt.log, np.log, (0, 1e6)),
    "log1p": (pt.log1p, np.log1p, (-1, 1e3)),
    "softplus": (pt.softplus, lambda x: np.maximum(x, 0) + np.log1p(np.exp(-abs(x))), (-700, 700)),
    "sigmoid": (pt.sigmoid, lambda x: 1 / (1 + np.exp(-x)), (-700, 700)),
}
x = pt.dvector("x")


@pytest.fixture(scope="module")
def compiled():
    return pytensor.function([x], [own(x) for own, _, _ in FUNCTIONS.values()], mode=vector_mode())


def test_all_of_them_are_in_the_place_of_pytensors(compiled):
    names = [str(node.op) for node in compiled.maker.fgraph.toposort()]
    for name in FUNCTIONS:
        assert any(f"vector{name}" in other.lower() for other in names), names


@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_right_to_the_last_digits(compiled, name):
    _, exact, (low, high) = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.uniform(low, high, 2000), rng.uniform(0, 2, 2000)])
    if low < 0:
        values = np.concatenate([values, rng.uniform(max(low, -1), 0, 2000), [1e-12, -1e-12]])
    found = compiled(values)[list(FUNCTIONS).index(name)]
    expected = exact(values.astype(np.longdouble))
    # 1e-15 where a long double is longer than a double; where it is not, that is exact's own error
    assert np.max(np.abs((found - expected) / expected)) < 1e-15


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("exp", 710.0, np.inf),
        ("exp", -np.inf, 0.0),
        ("exp", -750.0, 0.0),
        ("log", 0.0, -np.inf),
        ("log", -1.0, np.nan),
        ("log", np.inf, np.inf),
        ("log1p", -1.0, -np.inf),
        ("log1p", -2.0, np.nan),
        ("log1p", np.inf, np.inf),
        ("softplus", -np.inf, 0.0),
        ("softplus", np.inf, np.inf),
        ("softplus", 1e300, 1e300),
        ("sigmoid", -np.inf, 0.0),
        ("sigmoid", np.inf, 1.0),
        *[(name, np.nan, np.nan) for name in FUNCTIONS],
    ],
)
def test_they_end_where_they_should(compiled, name, at, value):
    found = compiled(np.array([at, 1.0]))[list(FUNCTIONS).index(name)][0]
    assert found == value or (np.isnan(found) and np.isnan(value))


def test_other_types_are_left_to_pytensor():
    single = pt.fvector()
    function = pytensor.function([single], pt.exp(single), mode=vector_mode())
    assert "vectorexp" not in str(function.maker.fgraph.toposort()).lower()
