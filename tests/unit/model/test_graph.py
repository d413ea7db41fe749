# SPDX-License-Identifier: Apache-2.0
"""A rebuilt graph takes any number of rows, and is otherwise the graph that it was."""

import inspect
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

from pymc_sgcv.model.graph import rebuild, rows_like, value_of
from pymc_sgcv.model.start import PYTHON
from tests.reading import check_reading, read
from tests.shared import QUIET


def rebuilt(output, data):
    """The graph on an input in the place of `data`, and as a function of it."""
    rows = rows_like(data, "rows")
    (new,) = rebuild([output], {data: rows})
    return new, pytensor.function([rows], new, mode="FAST_COMPILE")


def test_an_input_like_a_variable_has_its_type_and_any_number_of_rows():
    rows = rows_like(pt.tensor(dtype="float32", shape=(500, 3)), "x")
    assert (rows.type.dtype, rows.type.shape, rows.name) == ("float32", (None, 3), "x")


@pytest.mark.parametrize("n_rows", [1, 4, 9])
def test_a_length_that_the_graph_has_fixed_becomes_free(n_rows):
    data = pt.tensor(dtype="float64", shape=(4, 3))
    _, function = rebuilt((2 * data).sum(axis=1), data)
    x = np.random.default_rng(0).normal(size=(n_rows, 3))
    np.testing.assert_allclose(function(x), 2 * x.sum(1))


def test_a_specified_shape_is_kept_of_the_trailing_axes_alone():
    data = pt.matrix("data")
    new, function = rebuilt(pt.specify_shape(data, (4, 3)), data)
    assert new.type.shape == (None, 3)
    assert function(np.ones((7, 3))).shape == (7, 3)
    with pytest.raises(AssertionError):
        function(np.ones((4, 2)))


@pytest.mark.parametrize("shape", [(4,), (4, None)], ids=["a vector", "nothing else specified"])
def test_a_specified_number_of_rows_is_dropped(shape):
    data = pt.tensor(shape=(None,) * len(shape), dtype="float64")
    _, function = rebuilt(pt.specify_shape(data, shape), data)
    assert len(function(np.ones((7,) * len(shape)))) == 7


def test_the_scaling_of_a_minibatch_is_unwrapped():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1, observed=np.ones(4), total_size=100)
    scaled = model["y"]
    (new,) = rebuild([scaled], {}, stop=[mu])
    assert new is scaled.owner.inputs[0]


def test_variables_at_which_to_stop_stay_the_same_objects():
    with pm.Model():
        mu = pm.Normal("mu", 0, 1, shape=3)
    data = pt.tensor(dtype="float64", shape=(4, 3))
    rows = rows_like(data, "rows")
    (new,) = rebuild([data @ mu], {data: rows}, stop=[mu])
    assert mu in new.owner.inputs or mu in pytensor.graph.ancestors([new])


def test_the_value_of_data_is_the_present_one_however_they_are_given():
    x = np.arange(3.0)
    shared = pytensor.shared(x)
    for variable in (pt.constant(x), shared, pt.constant(x) * 1.0, shared + 0.0):
        np.testing.assert_array_equal(value_of(variable), x)
    shared.set_value(x + 1)
    np.testing.assert_array_equal(value_of(shared), x + 1)


def worked_out(output):
    """Let PyTensor work out the shape of an output from those of the inputs, as compilers do."""
    node = output.owner
    shapes = [tuple(map(pt.constant, node.inputs[0].type.shape))]
    old = "fgraph" in inspect.signature(node.op.infer_shape).parameters
    node.op.infer_shape(*([None] if old else []), node, shapes)
    return output


INNER = {
    "its own": lambda x: OpFromGraph([x], [pt.exp(x)])(x),
    "softmax": lambda x: pt.special.softmax(x, axis=1),
}


@pytest.mark.parametrize("inner", INNER)
def test_shapes_of_an_inner_graph_that_were_worked_out_before_are_forgotten(inner):
    data = pt.tensor(dtype="float64", shape=(4, 3))
    rows = rows_like(data, "rows")
    (new,) = rebuild([worked_out(INNER[inner](data))], {data: rows})
    length = pytensor.function([rows], new.shape[0], mode="FAST_COMPILE")
    assert length(np.ones((7, 3))) == 7


def softmax_with_shares():
    with pm.Model() as model:
        scores = X @ pm.Normal("b", 0, 1, shape=(3, 3))
        shares = pm.Deterministic("shares", pm.math.softmax(scores, axis=1))
        pm.Categorical("y", p=shares, observed=Y % 3)
    return model


def censored():
    with pm.Model() as model:
        latent = pm.Normal.dist(X @ pm.Normal("b", 0, 1, shape=3), 1)
        pm.Censored("y", latent, lower=None, upper=1.0, observed=np.minimum(X[:, 0], 1.0))
    return model


X, Y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60)
BEFORE = {
    "debug": lambda model: model.debug(verbose=False),
    "point_logps": lambda model: model.point_logps(),
    "gradient": lambda model: model.compile_dlogp(mode=PYTHON)(model.initial_point()),
    "reading": lambda model: read(model),
    "NUTS": lambda model: pm.sample(1, tune=1, chains=1, model=model, **QUIET),
}
ORDERS = [
    (softmax_with_shares, ("debug", "point_logps")),
    (softmax_with_shares, ("reading", "gradient", "NUTS")),
    (censored, ("debug", "reading", "gradient")),
]


@pytest.mark.parametrize(("build", "order"), ORDERS, ids=lambda v: getattr(v, "__name__", None))
def test_reading_does_not_depend_on_what_was_done_before(build, order):
    model = build()
    with redirect_stdout(StringIO()):
        for name in order:
            BEFORE[name](model)
    check_reading(model)
