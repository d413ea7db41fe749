# SPDX-License-Identifier: Apache-2.0
"""Bad input is refused when a step method is made, with a sentence that names it and its repair."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import pymc_sgcv as sg
from pymc_sgcv.kernel.preconditioners import Dense

RNG = np.random.default_rng(0)
N, BATCH = 40, 8
X = RNG.normal(size=(N, 2))
Y = X @ np.array([1.0, -1.0]) + RNG.normal(size=N)
METHODS = sg.SGLD, sg.SGLDCV, sg.SAGA
FIXED = {"step_size": 1e-4, "preconditioner": None}


def likelihood(x, y, **kwargs):
    beta = pm.Normal("beta", 0, 1, shape=2)
    return pm.Normal("y", x @ beta, 1, observed=y, **kwargs)


@pytest.fixture
def minibatched():
    with pm.Model() as model:
        x, y = pm.Minibatch(X, Y, batch_size=BATCH)
        likelihood(x, y, total_size=N)
    return model


@pytest.fixture
def plain():
    with pm.Model() as model:
        likelihood(X, Y)
    return model


def refusal(method, model, error=ValueError, **kwargs) -> str:
    """What `method` says when it refuses."""
    with pytest.raises(error) as caught, model:
        method(progressbar=False, **kwargs)
    return str(caught.value)


def assert_says(message, *parts):
    assert not [part for part in parts if part not in message], message


# Likelihoods


@pytest.mark.parametrize("method", METHODS)
def test_a_minibatch_without_total_size_is_refused(method):
    with pm.Model() as model:
        likelihood(*pm.Minibatch(X, Y, batch_size=BATCH))
    assert_says(refusal(method, model), "'y'", "no total_size", f"total_size={N}")


@pytest.mark.parametrize("size", [N - 1, 10 * N, BATCH, (N, 2)])
def test_a_wrong_total_size_is_refused(size):
    with pm.Model() as model:
        x, y = pm.Minibatch(X, np.column_stack([Y, Y]), batch_size=BATCH)
        beta = pm.Normal("beta", 0, 1, shape=(2, 2))
        pm.Normal("y", x @ beta, 1, observed=y, total_size=size)
    assert_says(refusal(sg.SGLDCV, model), "'y'", f"{N} rows", f"Write total_size={N}")


def test_total_size_without_a_minibatch_is_refused():
    with pm.Model() as model:
        likelihood(X, Y, total_size=10 * N)
    message = refusal(sg.SGLDCV, model, batch_size=BATCH)
    assert_says(message, "'y'", "total_size", "pm.Minibatch", "batch_size")


def test_two_minibatch_calls_for_one_likelihood_are_refused():
    with pm.Model() as model:
        x, y = pm.Minibatch(X, batch_size=BATCH), pm.Minibatch(Y, batch_size=BATCH)
        likelihood(x, y, total_size=N)
    message = refusal(sg.SGLDCV, model)
    assert_says(message, "'y'", "2 pm.Minibatch calls", "in one call", "pm.Minibatch(X, y")


def test_two_minibatch_calls_for_two_predictors_are_refused():
    with pm.Model() as model:
        x, y = pm.Minibatch(X, Y, batch_size=BATCH)
        offset = pm.Minibatch(Y, batch_size=BATCH)
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Normal("y", x @ beta + offset, 1, observed=y, total_size=N)
    assert_says(refusal(sg.SGLDCV, model), "'y'", "2 pm.Minibatch calls", "in one call")


@pytest.mark.parametrize("observed", [Y, Y[:BATCH]], ids=["all rows", "as many rows as a batch"])
def test_a_minibatched_predictor_with_plain_observations_is_refused(observed):
    with pm.Model() as model:
        likelihood(pm.Minibatch(X, batch_size=BATCH), observed, total_size=N)
    message = refusal(sg.SGLDCV, model)
    assert_says(message, "'y'", "predictor", "not minibatched", "same pm.Minibatch call")


def test_a_minibatched_predictor_with_plain_observations_and_no_total_size_is_refused():
    with pm.Model() as model:
        likelihood(pm.Minibatch(X, batch_size=BATCH), Y[:BATCH])
    assert_says(refusal(sg.SGLDCV, model), "'y'", "not minibatched", "same pm.Minibatch call")


def test_minibatched_observations_with_a_plain_predictor_are_refused():
    with pm.Model() as model:
        likelihood(X, pm.Minibatch(Y, batch_size=BATCH), total_size=N)
    message = refusal(sg.SGLDCV, model)
    assert_says(message, "'y'", "pm.Minibatch")


@pytest.mark.parametrize("kind", [pm.Deterministic, pm.Potential])
def test_a_deterministic_or_potential_on_a_minibatch_is_refused(kind):
    with pm.Model() as model:
        x, y = pm.Minibatch(X, Y, batch_size=BATCH)
        beta = pm.Normal("beta", 0, 1, shape=2)
        kind("extra", (x @ beta).sum())
        pm.Normal("y", x @ beta, 1, observed=y, total_size=N)
    message = refusal(sg.SGLDCV, model)
    assert_says(message, f"{kind.__name__} 'extra'", "pm.Minibatch", "full data", "batch_size")


def test_a_prior_on_a_minibatch_is_refused():
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=BATCH)
        mu = pm.Normal("mu", y.mean(), 1)
        pm.Normal("y", mu, 1, observed=y, total_size=N)
    assert_says(refusal(sg.SGLDCV, model), "prior of 'mu'", "pm.Minibatch", "full data")


# Variables


@pytest.mark.parametrize("method", METHODS)
def test_a_discrete_variable_is_refused(method):
    with pm.Model() as model:
        x, y = pm.Minibatch(X, Y, batch_size=BATCH)
        z = pm.Bernoulli("z", 0.5)
        pm.Normal("y", x[:, 0] * pm.Normal("beta") + z, 1, observed=y, total_size=N)
    assert_says(refusal(method, model), "'z'", "discrete", "Marginalise", "vars=")


@pytest.mark.parametrize("method", [sg.SGLDCV, sg.SAGA])
def test_a_fixed_control_variate_refuses_to_share_the_model(method):
    with pm.Model() as model:
        x, y = pm.Minibatch(X, Y, batch_size=BATCH)
        beta, sigma = pm.Normal("beta", 0, 1, shape=2), pm.HalfNormal("sigma", 1)
        pm.Normal("y", x @ beta, sigma, observed=y, total_size=N)
    for share in ([beta], beta, ["beta"], [model.rvs_to_values[beta]]):
        message = refusal(method, model, vars=share)
        assert_says(message, method.__name__, "leave 'sigma'", "Sample all variables", "SGLD")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("share", [["gamma"], "gamma", ["y"]])
def test_an_unknown_variable_is_refused(method, share, minibatched):
    message = refusal(method, minibatched, vars=share)
    assert_says(message, repr(share if isinstance(share, str) else share[0]), "beta")


def test_a_variable_of_another_model_is_refused(minibatched):
    with pm.Model():
        other = pm.Normal("gamma")
    assert_says(refusal(sg.SGLD, minibatched, vars=[other]), "'gamma'", "beta")


def test_no_variables_at_all_are_refused(minibatched):
    assert_says(refusal(sg.SGLD, minibatched, vars=[]), "variables")


# Batches


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [0, -3])
def test_a_batch_of_less_than_one_row_is_refused(method, size, plain):
    assert_says(refusal(method, plain, batch_size=size), "batch_size", "at least 1", str(size))


@pytest.mark.parametrize("size", [2.5, 8.0, "8", True, [8]])
def test_a_batch_size_that_is_no_whole_number_is_refused(size, plain):
    message = refusal(sg.SGLDCV, plain, error=(TypeError, ValueError), batch_size=size)
    assert_says(message, "batch_size", "whole number", repr(size))


def test_a_batch_larger_than_the_data_is_refused_for_a_minibatch_model(minibatched):
    message = refusal(sg.SGLDCV, minibatched, batch_size=N + 1)
    assert_says(message, f"batch_size={N + 1}", f"{N} rows", "'y'", "smaller")


def test_a_minibatch_larger_than_the_data_is_refused():
    with pm.Model() as model:
        likelihood(*pm.Minibatch(X, Y, batch_size=N + 1), total_size=N)
    message = refusal(sg.SGLDCV, model)
    assert_says(message, f"batch_size={N + 1}", f"{N} rows", "'y'", "smaller")


def test_a_batch_larger_than_the_data_is_refused_for_a_plain_model(plain):
    message = refusal(sg.SGLDCV, plain, batch_size=N + 1)
    assert_says(message, f"batch_size={N + 1}", "'y'", "smaller")


@pytest.mark.parametrize("friction", [0, -1.0, np.nan, "much", True])
@pytest.mark.parametrize("method", [sg.SGHMC, sg.SGHMCCV, sg.SGNHT, sg.SGNHTCV])
def test_a_friction_that_is_none_is_refused(method, friction, minibatched):
    message = refusal(method, minibatched, friction=friction)
    assert_says(message, "friction", "positive number", repr(friction))


@pytest.mark.parametrize("count", [0, -3, 2.5, "often", True])
def test_counts_that_are_none_are_refused(count, minibatched):
    message = refusal(sg.SGHMCCV, minibatched, leapfrog=count)
    assert_says(message, "leapfrog", "whole number", repr(count))
    message = refusal(sg.SVRG, minibatched, refresh=count)
    assert_says(message, "refresh", '"auto"', "whole number", repr(count))


def test_unknown_weights_are_refused(minibatched):
    message = refusal(sg.SGLDCV, minibatched, weights="clever")
    assert_says(message, "weights", '"preferential"', '"uniform"', "'clever'")


@pytest.mark.parametrize("argument", ["center", "weights", "friction", "foo"])
def test_an_argument_of_another_method_is_refused(argument, minibatched):
    method = sg.SGLD if argument == "center" else sg.SAGA
    message = refusal(method, minibatched, TypeError, **{argument: 1})
    assert_says(message, f"{method.__name__} has no argument '{argument}'", "step_size")


@pytest.mark.parametrize("method", [sg.SGHMC, sg.SGNHTCV])
def test_an_integrator_of_other_dynamics_is_refused(method, minibatched):
    message = refusal(method, minibatched, integrator="lm")
    assert_says(message, "integrator", "'euler'", "'lm'")


@pytest.mark.parametrize("size", ["large", 2.5, True])
def test_a_batch_size_that_is_no_number_is_refused(size, minibatched):
    message = refusal(sg.SGLDCV, minibatched, TypeError, batch_size=size)
    assert_says(message, "batch_size", '"auto"', repr(size))


def test_a_model_without_observations_is_refused():
    with pm.Model() as model:
        pm.Normal("beta")
    for arguments in ({}, {"batch_size": 3}):
        message = refusal(sg.SGLDCV, model, **arguments)
        assert_says(message, "no observed variable", "observed=")
        assert "batch_size" not in message


@pytest.mark.parametrize("way", ["minibatched", "plain"])
def test_observations_without_a_row_are_refused(way):
    with pm.Model() as model:
        y, size = np.empty(0), {}
        if way == "minibatched":
            y, size = pm.Minibatch(y, batch_size=1), {"total_size": 1}
        pm.Normal("y", pm.Normal("mu"), 1, observed=y, **size)
    assert_says(refusal(sg.SGLDCV, model), "'y'", "no rows")


def test_a_single_row_is_enough():
    with pm.Model():
        pm.Normal("y", pm.Normal("mu"), 1, observed=np.ones(1))
        assert sg.SGLDCV(progressbar=False).plan.layout.batch_sizes == (1,)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"vars": ["beta", "beta"]}, ("vars", "'beta'", "twice")),
        ({"vars": 3}, ("vars", "names", "3")),
        ({"compile_kwargs": 3}, ("compile_kwargs", "dict", "int")),
        ({"rng": "seed"}, ("rng", "Generator", "'seed'")),
        ({"rng": -3}, ("rng", "Generator", "-3")),
        ({"weights": ["a"] * N}, ("weights", "'y'", "numbers")),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(arguments, says, minibatched):
    assert_says(refusal(sg.SGLD, minibatched, (TypeError, ValueError), **arguments), *says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"draws": None}, ("draws", "whole number", "None")),
        ({"draws": True}, ("draws", "whole number", "True")),
        ({"var_names": 3}, ("var_names", "names", "3")),
        ({"gradients": 3}, ("gradients", "names", "3")),
        ({"model": 3}, ("model", "pm.Model", "int")),
        ({"initvals": 3}, ("initvals", "dict", "int")),
        ({"initvals": {"gamma": 1.0}}, ("initvals", "'gamma'", "'beta'")),
        ({"initvals": [{"beta": 1.0}, {"gamma": 1.0}]}, ("initvals", "'gamma'", "'beta'")),
        ({"random_seed": "seed"}, ("random_seed", "Generator", "'seed'")),
    ],
)
def test_sample_refuses_arguments_of_the_wrong_kind(arguments, says, minibatched):
    with pytest.raises((TypeError, ValueError)) as caught, minibatched:
        sg.sample(**{"draws": 5, "progressbar": False, **arguments})
    assert_says(str(caught.value), *says)


# Data


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["predictor", "observation"])
def test_data_that_are_not_finite_are_refused(bad, where):
    x, y = X.copy(), Y.copy()
    (x[:, 1] if where == "predictor" else y)[N - 1] = bad
    with pm.Model() as model:
        likelihood(*pm.Minibatch(x, y, batch_size=BATCH), total_size=N)
    said = ("NaN or infinite", "Remove or impute")
    if where == "observation" and np.isinf(bad):  # an impossible one: the row is named
        said = (f"Row {N - 1}", "impossible", "Check the data")
    assert_says(refusal(sg.SGLDCV, model), "'y'", *said)


def test_predictors_of_a_plain_model_that_are_not_finite_are_refused():
    x = X.copy()
    x[3, 0] = np.inf  # pm.Data refuses NaN itself
    with pm.Model() as model:
        likelihood(pm.Data("predictors", x), Y)
    message = refusal(sg.SGLDCV, model, batch_size=BATCH)
    assert_says(message, "'y'", "predictors", "NaN or infinite", "Remove or impute")


@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
def test_missing_observations_of_a_plain_model_are_refused():
    y = Y.copy()
    y[3] = np.nan
    with pm.Model() as model:
        likelihood(X, y)
    message = refusal(sg.SGLDCV, model, batch_size=BATCH)
    assert "missing" in message or "NaN" in message, message
    assert_says(message, "'y", "Remove or impute")


def test_predictors_and_observations_of_different_lengths_are_refused():
    with pm.Model() as model:
        likelihood(*pm.Minibatch(X[:-1], Y, batch_size=BATCH), total_size=N)
    assert_says(refusal(sg.SGLDCV, model), "'y'", "different numbers of rows", f"{N - 1}, {N}")


@pytest.mark.parametrize("method", METHODS)
def test_impossible_observations_are_refused(method):
    y = np.abs(Y)
    y[5] = -1.0
    with pm.Model() as model:
        yb = pm.Minibatch(y, batch_size=BATCH)
        pm.Exponential("y", pm.HalfNormal("rate", 1), observed=yb, total_size=N)
    assert_says(refusal(method, model), "'y'", "impossible")


# Rows of a plain model


def test_rows_that_depend_on_each_other_are_refused():
    with pm.Model() as model:
        x = pm.Data("x", X)
        likelihood(x - x.mean(0), Y)
    message = refusal(sg.SGLDCV, model, batch_size=BATCH)
    assert_says(message, "'y'", "cannot be identified", "centre or scale predictors before")


def test_rows_of_a_minibatch_that_depend_on_each_other_are_refused():
    with pm.Model() as model:
        x, y = pm.Minibatch(X, Y, batch_size=BATCH)
        likelihood(x - x.mean(0), y, total_size=N)
    message = refusal(sg.SGLDCV, model)
    assert_says(message, "'y'", "cannot be identified", "centre or scale predictors before")


def test_rows_along_the_second_axis_are_refused():
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=12)
        pm.Normal("y", beta[:, None] * X[:, 0], 1, observed=np.stack([Y] * 12))
    message = refusal(sg.SGLDCV, model, batch_size=BATCH)
    assert_says(message, "'y'", "cannot be identified", "along its first axis")


def test_one_vector_observation_is_refused():
    with pm.Model() as model:
        pm.MvNormal("y", pt.ones(N) * pm.Normal("mu"), np.eye(N), observed=Y)
    assert_says(refusal(sg.SGLDCV, model, batch_size=BATCH), "'y'", "cannot be identified")


def test_a_time_series_is_refused():
    with pm.Model() as model:
        pm.AR("y", pm.Normal("rho", 0, 1, shape=1), sigma=1, observed=Y, steps=N - 1)
    assert_says(refusal(sg.SGLDCV, model, batch_size=BATCH), "'y'", "cannot be identified")


# Options


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("step_size", [0, 0.0, -0.1, np.nan, np.inf, "fast", None, True, [0.1]])
def test_a_step_size_that_is_none_is_refused(method, step_size, minibatched):
    message = refusal(method, minibatched, error=(TypeError, ValueError), step_size=step_size)
    assert_says(message, "step_size", '"auto"', "positive number", repr(step_size))


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_integrator_is_refused(method, minibatched):
    message = refusal(method, minibatched, integrator="leapfrog")
    assert_says(message, "integrator", "'lm'", "'euler'", "'leapfrog'")


@pytest.mark.parametrize("method", METHODS)
def test_unknown_subsampling_is_refused(method, minibatched):
    message = refusal(method, minibatched, subsampling="random")
    assert_says(message, "subsampling", "'iid'", "'without'", "'block'", "'random'")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("thin", [0, -1, 1.5, "often", None, True])
def test_a_thinning_that_is_none_is_refused(method, thin, minibatched):
    message = refusal(method, minibatched, error=(TypeError, ValueError), thin=thin)
    assert_says(message, "thin", '"auto"', "whole number", repr(thin))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bias", [0, 1, -0.1, np.nan, "small", None])
def test_a_target_bias_outside_its_range_is_refused(method, bias, minibatched):
    message = refusal(method, minibatched, error=(TypeError, ValueError), target_bias=bias)
    assert_says(message, "target_bias", "between 0 and 1", repr(bias))


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_preconditioner_is_refused(method, minibatched):
    message = refusal(method, minibatched, preconditioner="full")
    assert_says(message, "preconditioner", '"dense"', '"diagonal"', "None", "array", "'full'")


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (3, 3), (2, 2, 2)])
def test_a_preconditioner_of_the_wrong_shape_is_refused(shape, minibatched):
    message = refusal(sg.SGLDCV, minibatched, preconditioner=np.ones(shape))
    assert_says(message, "preconditioner", "(2,) or (2, 2)", str(shape))


@pytest.mark.parametrize(
    "matrix",
    [
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.array([[1.0, 0.0], [0.0, 0.0]]),
        np.array([[1.0, np.nan], [np.nan, 1.0]]),
        np.array([[1.0, 0.9], [0.0, 1.0]]),
        np.array([1.0, 0.0]),
        np.array([1.0, -1.0]),
        np.array([1.0, np.inf]),
    ],
    ids=["indefinite", "singular", "NaN", "not symmetric", "zero", "negative", "infinite"],
)
def test_a_preconditioner_that_is_no_covariance_is_refused(matrix, minibatched):
    message = refusal(sg.SGLDCV, minibatched, preconditioner=matrix)
    assert_says(message, "preconditioner", "positive definite", "positive variances")


def test_a_preconditioner_that_is_no_array_is_refused(minibatched):
    message = refusal(sg.SGLD, minibatched, error=(TypeError, ValueError), preconditioner={"a": 1})
    assert_says(message, "preconditioner", "array")


@pytest.mark.parametrize("schedule", [lambda k: -1.0, lambda k: 0.0, lambda k: np.nan])
def test_a_schedule_without_a_first_step_is_refused(schedule, minibatched):
    message = refusal(sg.SGLD, minibatched, step_size=schedule, preconditioner=None)
    assert_says(message, "schedule", "iteration 0", "positive")


@pytest.mark.parametrize("schedule", [lambda k: None, lambda k: "fast", lambda: 0.1])
def test_a_schedule_that_gives_no_number_is_refused(schedule, minibatched):
    message = refusal(
        sg.SGLD, minibatched, (TypeError, ValueError), step_size=schedule, preconditioner=None
    )
    assert_says(message, "schedule", "iteration 0", "positive")


@pytest.mark.parametrize(
    "numbers",
    [(0, 1, 0.5), (1, 0, 0.5), (1, 1, -1), (np.nan, 1, 0.5), (1, np.inf, 1), (None, 1, 1)],
)
def test_a_polynomial_decay_that_does_not_decay_is_refused(numbers):
    with pytest.raises(ValueError, match="a > 0, b > 0 and gamma >= 0"):
        sg.PolynomialDecay(*numbers)


@pytest.mark.parametrize("mode", ["FAST_COMPILE", Mode(linker="py")], ids=["by name", "python"])
def test_another_mode_than_numba_is_refused(mode, minibatched):
    message = refusal(sg.SGLD, minibatched, compile_kwargs={"mode": mode}, **FIXED)
    assert_says(message, "compile_kwargs", "numba mode")


# Weights


@pytest.mark.parametrize("method", [sg.SGLD, sg.SGLDCV])
@pytest.mark.parametrize("shape", [(N - 1,), (BATCH,), (N, 1), ()])
def test_weights_of_the_wrong_shape_are_refused(method, shape, minibatched):
    message = refusal(method, minibatched, weights=np.ones(shape))
    assert_says(message, "weights for 'y'", "one entry per row", f"({N},)", str(shape))


@pytest.mark.parametrize("method", [sg.SGLD, sg.SGLDCV])
@pytest.mark.parametrize("bad", [-1.0, 0.0, np.nan, np.inf])
def test_weights_that_are_no_probabilities_are_refused(method, bad, minibatched):
    weights = np.ones(N)
    weights[4] = bad
    message = refusal(method, minibatched, weights=weights)
    assert_says(message, "weights for 'y'", "finite and positive")


@pytest.mark.parametrize("method", [sg.SGLD, sg.SGLDCV])
@pytest.mark.parametrize("subsampling", ["block", "without"])
def test_weights_need_independent_rows(method, subsampling, minibatched):
    message = refusal(method, minibatched, weights=np.ones(N), subsampling=subsampling)
    assert_says(message, "weights", 'subsampling must be "iid"', repr(subsampling))


def test_weights_of_an_unknown_likelihood_are_refused(minibatched):
    message = refusal(sg.SGLDCV, minibatched, weights={"z": np.ones(N)})
    assert_says(message, "weights", "'z'", "'y'")


def test_weights_of_two_likelihoods_must_be_named():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        for name in ("y", "z"):
            batch = pm.Minibatch(Y, batch_size=BATCH)
            pm.Normal(name, mu, 1, observed=batch, total_size=N)
    message = refusal(sg.SGLDCV, model, weights=np.ones(N))
    assert_says(message, "weights must be a dict by observed variable", "'y'", "'z'")


# SAGA


def test_an_unknown_table_is_refused(minibatched):
    message = refusal(sg.SAGA, minibatched, table="columns")
    assert_says(message, "table", '"rows"', '"blocks"', "'columns'")


@pytest.mark.parametrize("dtype", ["float16", "int", None])
def test_an_unknown_table_dtype_is_refused(dtype, minibatched):
    message = refusal(sg.SAGA, minibatched, table_dtype=dtype)
    assert_says(message, "table_dtype", '"float64"', '"float32"', repr(dtype))


@pytest.mark.parametrize("subsampling", ["iid", "without"])
def test_a_table_of_blocks_needs_blocks(subsampling, minibatched):
    message = refusal(sg.SAGA, minibatched, table="blocks", subsampling=subsampling)
    assert_says(message, 'table="blocks"', repr(subsampling), "Leave subsampling out")


def test_a_table_of_rows_above_the_limit_names_the_table_of_blocks(minibatched):
    message = refusal(sg.SAGA, minibatched, memory_limit=500)
    assert_says(message, "640 B per chain", "memory_limit", 'table="blocks" (80 B)')


def test_a_table_of_rows_names_sgldcv_where_blocks_are_above_the_limit_too(minibatched):
    message = refusal(sg.SAGA, minibatched, memory_limit=50)
    assert_says(message, "640 B per chain", "memory_limit", "SGLDCV")
    assert "blocks" not in message


def test_a_table_of_blocks_above_the_limit_names_sgldcv(minibatched):
    message = refusal(sg.SAGA, minibatched, table="blocks", memory_limit=50)
    assert_says(message, "80 B per chain", "memory_limit", "SGLDCV")


@pytest.mark.parametrize("limit", ["4 GB", None, np.nan, -1])
def test_a_memory_limit_that_is_none_is_refused(limit, minibatched):
    message = refusal(sg.SAGA, minibatched, (TypeError, ValueError), memory_limit=limit)
    assert_says(message, "memory_limit", repr(limit))


# Centers and starting points


@pytest.fixture
def transformed():
    """A mean whose gradient is NaN for c < 0, and whose scale is positive."""
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=BATCH)
        c = pm.Normal("c", 0, 1, initval=0.5)
        pm.Normal("y", pm.math.sqrt(c), pm.HalfNormal("s"), observed=y, total_size=N)
    return model


@pytest.mark.parametrize("method", METHODS)
def test_a_gradient_that_is_not_finite_at_the_start_is_refused(method):
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=BATCH)
        c = pm.Normal("c", 0, 1, initval=-0.5)
        pm.Normal("y", pm.math.sqrt(c), 1, observed=y, total_size=N)
    for arguments in ({}, FIXED):
        message = refusal(method, model, **arguments)
        assert_says(message, "respect to c ", "not finite", "starting point", "initval")


@pytest.mark.parametrize("method", [sg.SGLDCV, sg.SAGA])
def test_a_gradient_that_is_not_finite_at_a_given_center_is_refused(method, transformed):
    message = refusal(method, transformed, center={"c": -0.5})
    assert_says(message, "center", " c", "not finite")
    assert "initval" not in message


@pytest.mark.parametrize("method", [sg.SGLDCV, sg.SAGA])
def test_a_center_of_unknown_variables_is_refused(method, transformed):
    message = refusal(method, transformed, center={"c": 0.3, "scale": 1.0})
    assert_says(message, "center", "'scale'", "'c'", "'s'")


def test_a_center_given_by_value_names_is_refused(transformed):
    message = refusal(sg.SGLDCV, transformed, center={"s_log__": 0.0})
    assert_says(message, "center", "'s_log__'", "'s'")


@pytest.mark.parametrize("value", [np.zeros(3), np.zeros((2, 1)), 0.0])
def test_a_center_of_the_wrong_shape_is_refused(value, minibatched):
    message = refusal(sg.SGLDCV, minibatched, center={"beta": value})
    assert_says(message, "center", "'beta'", "(2,)", str(np.shape(value)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_center_that_is_not_finite_is_refused(value, transformed):
    message = refusal(sg.SGLDCV, transformed, center={"c": value})
    assert_says(message, "center", "'c'", "not finite")


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_center_outside_the_support_is_refused(value, transformed):
    message = refusal(sg.SGLDCV, transformed, center={"s": value})
    assert_says(message, "center", "outside the support", "s_log__")


def test_an_empty_center_is_refused(minibatched):
    assert_says(refusal(sg.SGLDCV, minibatched, center={}), "center is empty", "'beta'")


def test_a_center_of_words_is_refused(minibatched):
    message = refusal(sg.SGLDCV, minibatched, TypeError, center={"beta": "middle"})
    assert_says(message, "center", "'beta'", "no number", "'middle'")


@pytest.mark.parametrize("center", [np.zeros(2), "mode", 3])
def test_a_center_that_is_none_is_refused(center, minibatched):
    message = refusal(sg.SGLDCV, minibatched, (TypeError, ValueError), center=center)
    assert_says(message, "center", "find_center", "dict", type(center).__name__)


def center_of(names_and_values):
    theta = np.concatenate([np.ravel(v) for v in names_and_values.values()])
    return sg.Center(
        point=names_and_values,
        theta=theta,
        gradient=np.zeros(len(theta)),
        likelihood_gradient=np.zeros(len(theta)),
        factor=Dense(np.eye(len(theta))),
        distance=0.0,
        passes=1.0,
        converged=True,
    )


@pytest.mark.parametrize(
    "point",
    [{"beta": np.zeros(3)}, {"alpha": np.zeros(2)}, {"beta": np.zeros(1), "gamma": np.zeros(1)}],
    ids=["another size", "another name", "another layout"],
)
def test_a_center_of_another_model_is_refused(point, minibatched):
    message = refusal(sg.SGLDCV, minibatched, center=center_of(point))
    assert_says(message, "center", "another model")


# find_center


def center_refusal(model, error=ValueError, **kwargs) -> str:
    with pytest.raises(error) as caught:
        sg.find_center(model, progressbar=False, **kwargs)
    return str(caught.value)


def test_find_center_refuses_an_unknown_method(minibatched):
    message = center_refusal(minibatched, method="newton")
    assert_says(message, "method", "'adam'", "'sgd'", "'newton'")


def test_find_center_refuses_to_start_at_unknown_variables(minibatched):
    message = center_refusal(minibatched, start={"gamma": 0.0})
    assert_says(message, "start", "'gamma'", "'beta'")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [({"start": 3}, ("start", "dict", "int")), ({"random_seed": "x"}, ("random_seed", "'x'"))],
)
def test_find_center_refuses_arguments_of_the_wrong_kind(arguments, says, minibatched):
    assert_says(center_refusal(minibatched, TypeError, **arguments), *says)


def test_find_center_refuses_what_is_no_model():
    assert_says(center_refusal(3, TypeError), "model", "pm.Model", "int")


@pytest.mark.parametrize("step_size", [0, -1.0, np.nan, "long"])
def test_find_center_refuses_a_step_size_that_is_none(step_size, minibatched):
    message = center_refusal(minibatched, (TypeError, ValueError), step_size=step_size)
    assert_says(message, "step_size", "positive", repr(step_size))


@pytest.mark.parametrize("passes", [0, -1, np.nan, "many"])
def test_find_center_refuses_passes_that_are_none(passes, minibatched):
    message = center_refusal(minibatched, (TypeError, ValueError), passes=passes)
    assert_says(message, "passes", "positive", repr(passes))
