# SPDX-License-Identifier: Apache-2.0
"""Models of other packages are read, and what comes back is theirs. Skipped where they are not."""

import matplotlib
import numpy as np
import pytest

from pymc_sgcv.errors import SGCVWarning
from pymc_sgcv.sampling.clients import fit
from pymc_sgcv.sampling.sample import sample
from pymc_sgcv.steps.methods import SGLDCV
from pymc_sgcv.steps.unbound import Sampler
from tests.reading import check_reading
from tests.shared import QUIET

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
matplotlib.use("Agg")
pytest.importorskip("bambi", minversion="0.21")
cases = pytest.importorskip("tests.clients.cases")

READ = ["multinomial", "weighted", "weighted_poisson", "truncated", "censored", "group"]


@pytest.mark.parametrize("name", READ)
def test_the_gradient_of_what_bambi_builds_is_pymcs_own(name):
    check_reading(cases.formulas.formula(name, 60))


def test_priors_of_bambi_that_are_not_finite_are_the_reason_given():
    import bambi as bmb

    model = bmb.Model("truncated(above, lb=0) ~ x", cases.frame(60))
    model.build()
    with pytest.raises(ValueError, match="Bambi's automatic priors"):
        sample(10, model=model.backend.model, **QUIET)


@pytest.fixture(scope="module")
def fitted():
    """Predictors far from zero, so that a centred intercept is another number."""
    import bambi as bmb

    data = cases.frame(600)
    data["x"] += 3
    model = bmb.Model("y ~ x + z", data)
    return model, data, fit(model, draws=400, chains=2, random_seed=1, **QUIET)


def test_bambi_gets_its_intercept_names_and_dims(fitted):
    """The least-squares fit, whose distance to the posterior mean is below 5 of its errors."""
    _, data, idata = fitted
    X = np.column_stack([np.ones(600), data.x, data.z])
    right = np.linalg.lstsq(X, data.y, rcond=None)[0]
    spread = np.sqrt(np.diag(np.linalg.inv(X.T @ X)))
    posterior = idata["posterior"]
    assert set(posterior.data_vars) == {"Intercept", "x", "z", "sigma"}
    got = [float(posterior[name].mean()) for name in ("Intercept", "x", "z")]
    np.testing.assert_allclose(got, right, atol=(5 / np.sqrt(150) * spread).max())
    assert abs(got[0] - right[0]) < 5 / np.sqrt(150) * spread[0]
    assert posterior.attrs["modeling_interface"] == "bambi"


def test_bambi_predicts_plots_and_leaves_one_out(fitted):
    import arviz as az
    import bambi as bmb

    model, data, idata = fitted
    model.predict(idata)
    mean = idata["posterior"]["mu"].mean(("chain", "draw")).values
    assert np.corrcoef(mean, data.y)[0, 1] > 0.4
    bmb.interpret.plot_predictions(model, idata, "x")
    bmb.interpret.plot_comparisons(model, idata, contrast="x", conditional="z")
    model.compute_log_likelihood(idata)
    assert 2 < az.loo(idata).p < 7


def test_bambis_own_driver_takes_a_step_method(fitted):
    model, _, _ = fitted
    with model.backend.model:
        step = SGLDCV(progressbar=False)
    idata = model.fit(draws=50, tune=50, chains=1, step=step, **QUIET)
    assert idata["posterior"].sizes["draw"] == 50


def test_pm_sample_is_itself_again_after_an_error():
    import pymc as pm

    class Fails:
        def fit(self):
            raise RuntimeError("no")

    original = pm.sample
    with pytest.raises(RuntimeError):
        fit(Fails())
    assert pm.sample is original


@pytest.mark.parametrize("name", ["GammaGamma", "BetaGeo"])
def test_customers_are_rows(name):
    pytest.importorskip("pymc_marketing")
    (plate,) = check_reading(cases.CASES[f"marketing_{name}"](60)).plates
    assert len(plate.arrays()[0]) == 60


def test_a_marketing_model_fits_itself():
    clv = pytest.importorskip("pymc_marketing.clv")
    data = cases.marketing._customers(600)
    data["frequency"] = data.frequency.clip(lower=1)
    model = clv.GammaGammaModel()
    idata = fit(model, data, draws=100, chains=2, random_seed=1, step=SGLDCV(), **QUIET)
    assert model.idata is idata
    assert model.expected_customer_spend(data).sizes["customer_id"] == 600


def test_a_wide_table_is_sampled_with_a_warning():
    model = cases.gallery.gallery_item_response_wide(2000)
    with pytest.warns(SGCVWarning, match="local latents"):
        idata = sample(50, chains=1, model=model, step=Sampler(SGLDCV, {}), **QUIET)
    assert idata["posterior"]["theta"].shape == (1, 50, 100)
