# SPDX-License-Identifier: Apache-2.0
"""`keep="moments"` has the numbers of a run that keeps its draws."""

import tracemalloc

import numpy as np
import pytest

import pymc_sgcv as sg
from pymc_sgcv.kernel.chain import Chain, Divergence
from pymc_sgcv.results import containers
from pymc_sgcv.sampling import record
from tests import killing
from tests.killing import METHODS
from tests.shared import QUIET

HOW = {"draws": 2000, "tune": 30, "chains": 2, "random_seed": 3, **QUIET}


@pytest.fixture(scope="module")
def step():
    with killing.make_model():
        return METHODS["SGLDCV"]()


def sample(step, **how):
    with step.model:
        return sg.sample(step=step, **HOW | how)


@pytest.fixture(scope="module")
def draws(step):
    return sample(step, var_names=["beta", "sigma"], gradients=True)


def moments(step, **how):
    return sample(step, keep="moments", var_names=["beta", "sigma"], **how)


@pytest.mark.parametrize("dense", [True, False], ids=["all gradients", "its own gradient"])
def test_means_and_errors_are_those_of_the_draws(step, draws, dense, monkeypatch):
    if not dense:
        monkeypatch.setattr(sg.results.moments, "DENSE_COLUMNS", 0)
    found = moments(step).summary()
    again = sg.moments(draws, quantiles=["beta", "sigma"]).summary()
    columns = ["mean", "sd", "mcse", "mean_zv", "mcse_zv", "ess", "r_hat"]
    np.testing.assert_allclose(found[columns], again.loc[found.index, columns], rtol=1e-9)
    method = "lstsq" if dense else "block"
    corrected = sg.zv_summary(sg.zv(draws, method=method)).loc[found.index]
    np.testing.assert_allclose(found["mean"], corrected["mean"], rtol=1e-12)
    np.testing.assert_allclose(found["mean_zv"], corrected["mean_zv"], rtol=1e-9)
    flat = draws["posterior"]["beta"].values.reshape(-1, 3)
    np.testing.assert_allclose(found["sd"].iloc[:3], flat.std(0, ddof=1), rtol=1e-10)
    for name in ("mcse", "mcse_zv"):  # both estimates, from about 60 batches of each chain
        assert (np.abs(np.log(found[name] / corrected[name])) < 0.5).all()


def test_covariances_and_quantiles_are_those_of_the_draws(step, draws):
    result = moments(step)
    flat = draws["posterior"]["beta"].values.reshape(-1, 3)
    labels = [f"beta[{i}]" for i in range(3)]
    np.testing.assert_allclose(result.covariance.sel(a=labels, b=labels), np.cov(flat.T), rtol=1e-9)
    low = np.quantile(flat, 0.05 - result.rank_error, axis=0)
    high = np.quantile(flat, 0.05 + result.rank_error, axis=0)
    found = result.to_dataset()["beta"].sel(statistic="q5").values
    assert ((low <= found) & (found <= high)).all()


def test_r_hat_is_arviz_own(step, draws):
    beta = draws["posterior"]["beta"].values[:, :1984]  # whole batches of 32 draws
    with step.model:
        found = sg.sample(
            step=step, keep="moments", **HOW | {"draws": 1984}
        ).to_dataset()["beta"].sel(statistic="r_hat")  # fmt: skip
    halves = beta.reshape(4, 992, 3)
    within = halves.var(1, ddof=1).mean(0)
    total = within * (1 - 1 / 992) + halves.mean(1).var(0, ddof=1)
    np.testing.assert_allclose(found, np.sqrt(total / within), rtol=1e-9)


def test_the_result_prints_and_knows_dims(step):
    result = moments(step, quantiles="sigma")
    assert "which were not kept" in repr(result)
    dataset = result.to_dataset()
    assert dataset["beta"].dims == ("statistic", "beta_dim_0")
    assert np.isnan(dataset["beta"].sel(statistic="q50")).all()
    assert np.isfinite(dataset["sigma"].sel(statistic="q50"))
    assert result.draws == (2, 2000)
    assert result.attrs["step_method"] == "sgldcv"


def test_without_gradients_there_is_no_correction(step):
    assert "mean_zv" not in moments(step, gradients=False).summary()


def test_memory_does_not_grow_with_the_draws(step, monkeypatch):
    monkeypatch.setattr(record, "_BLOCK_NUMBERS", 5000)
    peak = []
    for n in (4000, 24_000):
        tracemalloc.start()
        moments(step, draws=n, quantiles=[])
        peak.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    numbers = 2 * 20_000 * 8 * step.problem.size  # of draws and gradients of one chain
    assert peak[1] - peak[0] < numbers / 4  # other threads and caches take some, too


def test_a_chain_that_begins_again_is_forgotten(monkeypatch):
    run = Chain.run
    with killing.make_model():
        step = sg.SGLDCV(progressbar=False)
    long = 0.6 * step.plan.step_size
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(record, "_BLOCK_NUMBERS", 9000)

        def fragile(chain, steps, *rest, **options):
            if steps[0] > long and chain.iteration > 50 * step.plan.thin:
                raise Divergence("beta[1] is not finite at iteration 3 (step size 1): too long.")
            run(chain, steps, *rest, **options)

        patched.setattr(Chain, "run", fragile)
        with pytest.warns(sg.SGCVWarning, match="diverged"):
            kept, found = sample(step, draws=200), sample(step, draws=200, keep="moments")
    beta = containers.get_group(kept, "posterior")["beta"]
    np.testing.assert_allclose(
        found.to_dataset()["beta"].sel(statistic="mean"), beta.mean(("chain", "draw")), rtol=1e-12
    )


def test_chains_that_disagree_are_warned_about(step, monkeypatch):
    run = Chain.run

    def apart(chain, steps, thin, draws, *rest, **options):
        run(chain, steps, thin, draws, *rest, **options)
        seen.append(chain)
        draws += 3.0 * (chain is seen[0])

    seen: list[Chain] = []
    monkeypatch.setattr(Chain, "run", apart)
    with pytest.warns(sg.SGCVWarning, match="chains do not agree"):
        sample(step, keep="moments", cores=1, compute_convergence_checks=True)


@pytest.mark.parametrize(
    "how, says",
    [
        ({"keep": "means"}, "keep must be"),
        ({"keep": "moments", "store": "run.zarr"}, "no draws to store"),
        ({"keep": "moments", "until": {"ess": 100}}, "seconds"),
        ({"keep": "moments", "quantiles": ["gamma"]}, "quantiles names"),
        ({"quantiles": ["beta"]}, "quantiles are for keep"),
        ({"store": ""}, "must be the path of a directory"),
        ({"store": 3}, "must be the path of a directory"),
        ({"store": "s3://bucket/run"}, "a directory of a file system"),
    ],
)
def test_what_does_not_go_together_is_refused(how, says, step):
    with pytest.raises((ValueError, TypeError), match=says):
        sample(step, **how)
