# SPDX-License-Identifier: Apache-2.0
"""Predictions of rows agree with the distribution they are drawn from, in bounded memory."""

import tracemalloc

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest

from pymc_sgcv.results.predict import predict
from tests.shared import from_dict

N, DRAWS = 40, 2000
X, Y = np.random.default_rng(0).normal(size=(2, N))


def posterior(**fixed):
    """Every draw the same, so that what is predicted has a known distribution."""
    values = {k: np.broadcast_to(v, (2, DRAWS // 2, *np.shape(v))) for k, v in fixed.items()}
    return from_dict({"posterior": values})


def plain():
    with pm.Model() as model:
        slope = pm.Normal("slope")
        pm.Normal("y", slope * pm.Data("x", X), 0.5, observed=Y)
    return model


def minibatched():
    with pm.Model() as model:
        slope = pm.Normal("slope")
        x, y = pm.Minibatch(pm.Data("x", X), Y, batch_size=10)
        pm.Normal("y", slope * x, 0.5, observed=y, total_size=N)
    return model


def named():
    with pm.Model(coords={"row": range(N)}) as model:
        slope = pmd.Normal("slope", 0, 1)
        observed = pmd.as_xtensor(Y, dims=("row",))
        pmd.Normal("y", slope * pmd.Data("x", X, dims="row"), 0.5, observed=observed)
    return model


@pytest.mark.parametrize("build", [plain, minibatched, named])
def test_predictions_of_new_rows_are_the_normal_distribution_that_they_are_drawn_from(build):
    """A mean of 2,000 draws is within 5 standard errors: 2 rows and 3 models, 3e-6 in all."""
    table = predict(
        posterior(slope=2.0),
        {"x": [0.0, 3.0]},
        summary=("mean", "sd", 0.5),
        draws=DRAWS,
        random_seed=1,
        model=build(),
    )
    error = 0.5 / np.sqrt(DRAWS)
    np.testing.assert_allclose(table["mean"], [0, 6], atol=5 * error)
    np.testing.assert_allclose(table["q0.5"], [0, 6], atol=5 * 1.26 * error)
    np.testing.assert_allclose(table["sd"], 0.5, atol=5 * 0.71 * error)


def test_the_models_own_rows_are_predicted_by_default():
    table = predict(posterior(slope=2.0), summary=["mean"], random_seed=1, model=plain())
    assert table.sizes == {"row": N}
    np.testing.assert_allclose(table["mean"], 2 * X, atol=6 * 0.5 / np.sqrt(500))


def test_blocks_have_the_rows_in_order():
    arguments = {"summary": ["mean"], "random_seed": 1, "model": plain()}
    table = predict(posterior(slope=2.0), megabytes=0.05, **arguments)
    np.testing.assert_allclose(table["mean"], 2 * X, atol=6 * 0.5 / np.sqrt(500))


def test_memory_is_that_of_a_block():
    rows = np.zeros(50_000)
    idata, model = posterior(slope=2.0), plain()
    predict(idata, {"x": rows[:1]}, model=model)
    tracemalloc.start()
    predict(idata, {"x": rows}, draws=200, megabytes=4, model=model)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    assert peak < 8  # all draws at once are 76


def test_outcomes_with_several_columns_keep_them():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        x = pm.Data("x", np.ones((N, 3)))
        pm.Normal("y", x, scale, observed=np.zeros((N, 3)))
    table = predict(posterior(scale=0.1), {"x": np.arange(6.0).reshape(2, 3)}, model=model)
    assert table["mean"].shape == (2, 3)
    np.testing.assert_allclose(table["mean"], np.arange(6).reshape(2, 3), atol=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"new_data": {"z": [1.0]}}, "new_data holds"),
        ({"new_data": {"x": np.ones((2, 2))}}, "has rows of shape"),
        ({"summary": ["median"]}, "summary takes"),
        ({"var_name": "z"}, "var_name must be one of"),
    ],
)
def test_what_cannot_be_predicted_is_said(arguments, message):
    with pytest.raises(ValueError, match=message):
        predict(posterior(slope=2.0), model=plain(), **arguments)


def test_a_posterior_without_a_needed_variable_is_refused():
    with pytest.raises(ValueError, match="lacks"):
        predict(posterior(other=2.0), model=plain())


def test_loo_of_a_sample_of_rows_is_that_of_all_within_its_error():
    """The recipe of docs/front-ends.md; 5 standard errors of the sampling of rows."""
    az = pytest.importorskip("arviz", minversion="1")
    rng = np.random.default_rng(2)
    x = rng.normal(size=400)
    y = 2 * x + 0.5 * rng.normal(size=400)
    with pm.Model() as model:
        data, outcome = pm.Data("x", x), pm.Data("y_data", y)
        pm.Normal("y", pm.Normal("slope") * data, 0.5, observed=outcome)
    slope = 2 + 0.025 * rng.normal(size=(2, 500))
    idata = from_dict({"posterior": {"slope": slope}})
    pm.compute_log_likelihood(idata, model=model, progressbar=False)
    whole = az.loo(idata, pointwise=True)

    rows = rng.choice(400, 100, replace=False)
    part = from_dict({"posterior": {"slope": slope}})
    with model:
        pm.set_data({"x": x[rows], "y_data": y[rows]})
        pm.compute_log_likelihood(part, progressbar=False)
    each = az.loo(part, pointwise=True).elpd_i.values
    error = 400 * each.std() / np.sqrt(100) * np.sqrt(1 - 100 / 400)
    assert abs(400 * each.mean() - whole.elpd) < 5 * error
    np.testing.assert_allclose(each, whole.elpd_i.values[rows], rtol=0.02, atol=1e-3)
