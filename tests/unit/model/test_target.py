# SPDX-License-Identifier: Apache-2.0
"""A model is read right: the compiled gradients are PyMC's own, whole and row by row."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

from pymc_sgcv.errors import SGCVWarning
from pymc_sgcv.model.proof import prove_rows
from pymc_sgcv.model.start import PYTHON
from pymc_sgcv.model.target import read_model
from pymc_sgcv.rows.minibatch import add_row_sum
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import unconstrained
from tests import models
from tests.reading import check_reading
from tests.shared import no_warning

N, n = 60, 20
EXACT = 1e-8

MINIBATCHED = [
    "two_likelihoods",  # scalar outcomes, two plates, an exact observed variable, a transform
    "hierarchical",  # integer outcomes, parameters indexed by a minibatched group
    "vector_outcome",
    "trailing_axis",
    "censored",
    "mixture",
]
PLAIN = ["hierarchical", "vector_outcome", "mixture", "gaussian_process"]
KIND = pytest.mark.parametrize("kind", MINIBATCHED)
PLAIN_KIND = pytest.mark.parametrize("kind", PLAIN)


# The zoo's own of these two take four times as long to compile.


def vector_outcome(data, rng):
    (y,) = data(rng.normal(size=(data.n_rows, 2)))
    mu = pm.Normal("mu", 0, 1, shape=2)
    pm.MvNormal("y", mu, cov=np.array([[1.0, 0.4], [0.4, 2.0]]), observed=y, **data.size())


def trailing_axis(data, rng):
    x, y = data(data.X[:, 0], rng.normal(size=(data.n_rows, 2)))
    b, s = pm.Normal("b", 0, 1, shape=2), pm.HalfNormal("s", 1, shape=2)
    pm.Normal("y", x[:, None] * b, s, observed=y, **data.size())


def gaussian_process(data, rng):
    """PyMC's approximation for many rows, which knows their number as a constant."""
    scale = pm.HalfNormal("scale", 1)
    gp = pm.gp.HSGP(m=[5], c=1.5, cov_func=pm.gp.cov.ExpQuad(1, ls=scale))
    pm.Normal("y", gp.prior("f", X=data.X[:, :1]), 1.0, observed=rng.normal(size=data.n_rows))


KINDS = models.KINDS | {f.__name__: f for f in (vector_outcome, trailing_axis, gaussian_process)}


def build(kind, batch_size=None):
    """A model of the zoo on N rows; plain full-data without a batch size."""
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        KINDS[kind](models.Declare(N, batch_size, rng), rng)
    return model


@pytest.fixture(scope="module")
def problems():
    """Problems by kind and way of declaration, each built on first use."""
    found = {}

    def problem(kind, plain=False):
        if (kind, plain) not in found:
            model = build(kind, None if plain else n)
            found[kind, plain] = Problem(model, batch_size=n if plain else None)
        return found[kind, plain]

    return problem


def points(problem, count=3, seed=0):
    return np.random.default_rng(seed).normal(scale=0.5, size=(count, problem.size))


def pymc_gradient(model, target, theta):
    """The plain model's own gradient, in the order of the target's parameters."""
    by_name = {v.name: v for v in model.value_vars}
    values = [by_name[p.name] for p in target.parameters]
    gradient = model.compile_dlogp(vars=[model.values_to_rvs[v] for v in values], mode=PYTHON)
    return np.array([gradient(target.unflatten(t)) for t in theta])


def check_full_gradient(problem, plain_model):
    theta = points(problem)
    expected = pymc_gradient(plain_model, problem.target, theta)
    scale = np.abs(expected).max(axis=1, keepdims=True)
    np.testing.assert_allclose(
        problem.gradient(theta) / scale, expected / scale, rtol=0, atol=EXACT
    )


def row_gradients(problem, theta):
    """Gradient of every row of every plate, one row at a time: (rows, points, d)."""
    gradients = []
    for rows in problem.rows:
        scratch = rows.scratch()
        for i in range(rows.n_rows):
            out = np.zeros(theta.shape)
            add_row_sum(scratch.record, theta, i, i + 1, np.ones(1), out)
            gradients.append(out)
    return np.array(gradients)


@KIND
def test_the_gradient_over_all_rows_is_the_plain_models(problems, kind):
    check_full_gradient(problems(kind), build(kind))


@PLAIN_KIND
def test_the_gradient_of_a_plain_model_is_its_own(problems, kind):
    check_full_gradient(problems(kind, plain=True), build(kind))


@KIND
def test_gradients_of_single_rows_sum_to_the_whole(problems, kind):
    problem = problems(kind)
    theta = points(problem)
    rows = row_gradients(problem, theta)
    assert len(rows) == problem.n_rows
    total = problem.prior_gradient(theta) + rows.sum(0)
    np.testing.assert_allclose(total, problem.gradient(theta), rtol=1e-9, atol=1e-9)


def test_a_fraction_of_the_rows_stands_for_all_of_them(problems):
    """Of each plate its own share, scaled up by its own number of rows."""
    problem = problems("two_likelihoods")
    theta = points(problem)
    rows, first, expected = row_gradients(problem, theta), 0, problem.prior_gradient(theta)
    for plate in problem.rows:
        k = -(-plate.n_rows * 2 // 5)
        expected = expected + rows[first : first + k].sum(0) * plate.n_rows / k
        first += plate.n_rows
    np.testing.assert_allclose(problem.gradient(theta, 0.4), expected, rtol=1e-9)


@KIND
def test_rows_have_gradients_of_their_own(problems, kind):
    """What sums to the whole might be the same N-th part of it for every row: it is not."""
    rows = row_gradients(problems(kind), points(problems(kind), count=1))
    assert len(np.unique(np.round(rows, 12), axis=0)) > len(rows) / 3


@KIND
def test_minibatched_and_plain_declarations_are_the_same_sum(problems, kind):
    target, plain = problems(kind).target, read_model(build(kind), batch_size=n)
    assert [p.name for p in target.parameters] == [p.name for p in plain.parameters]
    assert [p.observed for p in target.plates] == [p.observed for p in plain.plates]
    assert {p.batch_size for p in (*target.plates, *plain.plates)} == {n}


def test_plates_have_their_own_rows_and_the_rest_is_exact(problems):
    target = problems("two_likelihoods").target
    assert [plate.observed for plate in target.plates] == [("y",), ("z",)]
    assert [rows.n_rows for rows in problems("two_likelihoods").rows] == [N, N // 2]


@KIND
def test_the_point_on_the_models_own_scale_leads_back(problems, kind):
    problem = problems(kind)
    theta = points(problem, count=1)[0]
    again = unconstrained(problem.target, problem.constrained(theta))
    np.testing.assert_allclose(again, theta, rtol=1e-9, atol=1e-9)


def test_a_batch_size_of_the_step_method_replaces_that_of_the_declaration():
    target = read_model(build("linear", n), batch_size=7)
    assert [plate.batch_size for plate in target.plates] == [7]


def test_likelihoods_of_the_same_rows_are_one_plate():
    rng = np.random.default_rng(2)
    x, y, z = rng.normal(size=(3, N))
    with pm.Model() as model:
        xb, yb, zb = pm.Minibatch(x, y, z, batch_size=n)
        a = pm.Normal("a")
        pm.Normal("y", a * xb, 1, observed=yb, total_size=N)
        pm.Normal("z", a + xb, 1, observed=zb, total_size=N)
    (plate,) = read_model(model).plates
    assert plate.observed == ("y", "z")
    assert len(plate.data) == 3


# pm.Data containers, and that data stay out of the compiled graph

EXACT_ROWS = 1500


def contained(minibatched, x, y):
    with pm.Model() as model:
        data = pm.Data("x_data", x), pm.Data("y_data", y)
        if minibatched:
            data = pm.Minibatch(*data, batch_size=n)
        beta = pm.Normal("beta", 0, 1, shape=3)
        size = {"total_size": len(y)} if minibatched else {}
        pm.Normal("y", data[0] @ beta, 1, observed=data[1], **size)
        exact = pm.Data("exact_data", np.linspace(-1, 1, EXACT_ROWS)[None])
        pm.Normal("exact", beta[0], 1, observed=exact)
    return model


def fresh_data(seed, rows=N):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 3)), rng.normal(size=rows)


@pytest.fixture(scope="module", params=[True, False], ids=["minibatched", "plain"])
def container(request):
    """A problem on pm.Data, and the graphs that were compiled for it."""
    graphs, original = [], pytensor.function

    def spy(inputs, outputs, *args, **kwargs):
        graphs.append(outputs)
        return original(inputs, outputs, *args, **kwargs)

    model = contained(request.param, *fresh_data(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytensor, "function", spy)
        problem = Problem(model, batch_size=None if request.param else n)
    return problem, graphs


def test_data_containers_are_read(container):
    problem, _ = container
    x, y = fresh_data(0)
    with problem.model:
        pm.set_data({"x_data": x, "y_data": y})
    problem.refresh()
    check_full_gradient(problem, contained(False, x, y))


def test_no_data_are_left_in_the_compiled_graph(container):
    _, graphs = container
    assert graphs
    variables = ancestors([v for outputs in graphs for v in np.ravel(outputs)])
    constants = [v for v in variables if isinstance(v, Constant)]
    assert max(np.size(v.data) for v in constants) < N


def test_potentials_of_parameters_are_part_of_the_prior():
    x, y = fresh_data(0)
    with pm.Model() as model:
        a, s = pm.Normal("a"), pm.HalfNormal("s")
        pm.Potential("soft_bound", -(a**4) / s)
        pm.Potential("sum_to_zero", pm.logp(pm.Normal.dist(0, [0.1, 0.2]), a))
        pm.Normal("y", a * x[:, 0], s, observed=y)
    check_full_gradient(Problem(model, batch_size=n), model)


def test_large_exact_data_are_arguments_too():
    x, y = fresh_data(0)
    with pm.Model() as model:
        xb, yb = pm.Minibatch(x, y, batch_size=n)
        a = pm.Normal("a")
        pm.Normal("y", a * xb[:, 0], 1, observed=yb, total_size=N)
        pm.Normal("exact", a, 1, observed=np.linspace(-1, 1, EXACT_ROWS))
    problem = Problem(model)
    assert any(np.size(value) == EXACT_ROWS for value in problem.functions.prior.fixed_values({}))


def test_data_set_afterwards_are_respected(container):
    problem, _ = container
    x, y = fresh_data(1)
    with problem.model:
        pm.set_data({"x_data": x, "y_data": y})
    assert problem.refresh()
    check_full_gradient(problem, contained(False, x, y))


def test_exact_data_set_afterwards_are_respected(container):
    problem, _ = container
    theta, before = points(problem), problem.prior_gradient(points(problem))
    with problem.model:
        pm.set_data({"exact_data": np.linspace(0, 2, EXACT_ROWS)[None]})
    assert problem.refresh()
    shift = problem.prior_gradient(theta) - before
    np.testing.assert_allclose(shift, [[EXACT_ROWS, 0, 0]] * len(theta), rtol=1e-9, atol=1e-9)


def test_without_new_data_nothing_is_laid_out_again(container):
    problem, _ = container
    problem.refresh()
    rows = problem.rows
    assert not problem.refresh()
    assert problem.rows is rows


def test_a_plain_model_takes_data_of_another_length():
    """Compiled for the plain container above, so this costs no compilation."""
    problem = Problem(contained(False, *fresh_data(0)), batch_size=n)
    x, y = fresh_data(2, rows=N + 31)
    with problem.model:
        pm.set_data({"x_data": x, "y_data": y})
    assert problem.refresh()
    assert problem.n_rows == N + 31
    check_full_gradient(problem, contained(False, x, y))


def test_new_data_do_not_change_the_batch_size():
    problem = Problem(contained(True, *fresh_data(0)), batch_size=7)
    x, y = fresh_data(3)
    with problem.model:
        pm.set_data({"x_data": x, "y_data": y})
    assert problem.refresh()
    assert [rows.batch_size for rows in problem.rows] == [7]


# The proof that rows are rows

X, Y = fresh_data(4)
REFUSAL = "The rows of observed variable 'y' cannot be identified"


def proven(declare, plain, batch_size=n):
    """Read and prove a model that `declare(x, y, size)` fills in."""
    with pm.Model() as model:
        x, y = (X, Y) if plain else pm.Minibatch(X, Y, batch_size=batch_size)
        declare(x, y, {} if plain else {"total_size": N})
    prove_rows(read_model(model, batch_size=batch_size if plain else None))


def regression(of):
    """Declares a regression of y on `of(x)`."""

    def declare(x, y, size):
        beta = pm.Normal("beta", 0, 1, shape=3)
        x = pm.math.stack([x[:, j] for j in range(3)], axis=1)  # a tensor in plain models, too
        pm.Normal("y", of(x) @ beta, 1, observed=y, **size)

    return declare


DECLARATION = pytest.mark.parametrize("plain", [False, True], ids=["minibatched", "plain"])


@DECLARATION
def test_rows_that_are_rows_are_proven(plain):
    proven(regression(lambda x: 2 * x + 1), plain)


COUPLINGS = {
    "centred": lambda x: x - x.mean(axis=0),
    "scaled": lambda x: x / x.max(),
    "differenced": lambda x: x - pm.math.concatenate([x[1:], x[:1]]),
    "cumulated": lambda x: x.cumsum(axis=0),
    "reversed": lambda x: x[::-1],
}


@DECLARATION
@pytest.mark.parametrize("coupling", COUPLINGS)
def test_rows_that_depend_on_each_other_are_refused(coupling, plain):
    with pytest.raises(ValueError, match=REFUSAL):
        proven(regression(COUPLINGS[coupling]), plain)


@DECLARATION
@pytest.mark.parametrize("batch_size", [2, 5, 7])
def test_rows_that_depend_on_each_other_are_refused_in_small_batches(batch_size, plain):
    with pytest.raises(ValueError, match=REFUSAL):
        proven(regression(COUPLINGS["centred"]), plain, batch_size)


def test_a_transposed_design_is_read():
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        pm.Normal("y", beta @ np.ascontiguousarray(X.T), 1, observed=Y)
    check_reading(model)


def test_a_square_transposed_design_is_refused():
    square = np.random.default_rng(5).normal(size=(N, N))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=N)
        pm.Normal("y", pm.math.dot(beta, square), 1, observed=Y)
    with pytest.raises(ValueError, match=REFUSAL):
        prove_rows(read_model(model, batch_size=n))


def test_a_parameter_as_long_as_the_data_is_read_as_the_rows_own_and_warned_about():
    with pm.Model() as model:
        mean, spread = pm.Normal("mean"), pm.HalfNormal("spread")
        effect = pm.Normal("effect", mean, spread, shape=N)
        easy = pm.Normal("easy", 0, 1, shape=4)
        table = np.random.default_rng(6).integers(0, 2, (N, 4))
        pm.Bernoulli("y", logit_p=effect[:, None] + easy, observed=table)
    with pytest.warns(SGCVWarning, match="'effect': one value for every row of 'y'"):
        (plate,) = check_reading(model).plates
    assert plate.local == ("effect",)


def test_effects_of_as_many_groups_as_rows_are_looked_up_as_ever():
    group = np.random.default_rng(6).permutation(N)
    with pm.Model() as model:
        effect = pm.Normal("effect", 0, 1, shape=N)
        pm.Normal("y", effect[group], 1, observed=Y)
    with no_warning():
        (plate,) = check_reading(model).plates
    assert plate.local == ()


def test_a_parameter_as_long_as_the_minibatch_is_refused():
    def declare(x, y, size):
        effect = pm.Normal("effect", 0, 1, shape=n)
        pm.Normal("y", effect + x[:, 0], 1, observed=y, **size)

    with pytest.raises(ValueError, match=REFUSAL):
        proven(declare, plain=False)
