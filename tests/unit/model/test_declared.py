# SPDX-License-Identifier: Apache-2.0
"""`Minibatch`: rows of any source in a PyMC model."""

import copy
import pickle

import numpy as np
import pymc as pm
import pytest

import pymc_sgcv as sg
from pymc_sgcv.model.declared import Head, head_of, length_of, some_rows, source_of
from pymc_sgcv.model.target import read_model
from pymc_sgcv.sources.base import as_source
from tests.shared import QUIET

N = 30_000
X = np.arange(2.0 * N).reshape(N, 2)
Y = np.arange(N) % 3


def full_data(batch):
    return list(batch.owner.inputs[:-1])


def declared(x=X, y=Y, **size):
    with pm.Model() as model:
        xb, yb = sg.Minibatch(x, y, **size)
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Poisson("y", pm.math.exp(xb @ beta * 1e-5), observed=yb, total_size=len(y))
    return model


@pytest.fixture(scope="module")
def model():
    return declared()


def test_the_model_holds_some_rows_and_knows_all():
    xb, yb = sg.Minibatch(X, Y)
    x, y = full_data(xb)
    assert isinstance(head_of(x), Head) and len(head_of(x)) < N
    assert length_of(x) == length_of(y) == N
    assert source_of(x).read(5, 7).tolist() == X[5:7].tolist()
    rows = np.asarray(head_of(x))
    assert (Y[(rows[:, 0] / 2).astype(int)] == np.asarray(head_of(y))).all()  # of the same rows
    assert xb.type.shape == (500, 2) and yb.type.dtype == "int32"


def test_a_plate_has_all_rows_and_an_automatic_batch(model):
    [plate] = read_model(model).plates
    assert plate.n_rows == N and plate.automatic and plate.batch_size == 500
    [plate] = read_model(declared(batch_size=70)).plates
    assert not plate.automatic and plate.batch_size == 70


def test_heads_go_with_their_source_into_other_processes():
    head = head_of(full_data(sg.Minibatch(X))[0])
    for other in copy.deepcopy(head), pickle.loads(pickle.dumps(head)):
        assert isinstance(other, Head) and other.source.n_rows == N and other.automatic
        assert np.array_equal(other, head)
    assert head[:3].source is None  # a part stands for no source


def test_what_pymc_does_with_minibatches_works(model):
    with model:
        drawn = pm.sample_prior_predictive(3, random_seed=1)
        assert drawn.prior_predictive["y"].shape == (1, 3, 500)
        assert pm.fit(5, progressbar=False, random_seed=1).hist.shape == (5,)


def test_few_rows_are_all_in_the_model():
    [head] = [head_of(v) for v in full_data(sg.Minibatch(np.arange(7.0)))]
    assert np.asarray(head).tolist() == list(range(7))


def test_many_rows_of_an_array_come_in_short_runs(monkeypatch):
    monkeypatch.setattr("pymc_sgcv.model.declared._PLACES", 100)
    rows = some_rows([as_source(np.arange(1_000_000))], 800)[0]
    places = np.flatnonzero(np.diff(rows) != 1) + 1
    runs = np.split(rows, places)
    assert len(runs) <= 100 and all(len(run) % 8 == 0 for run in runs) and len(rows) == 800
    assert rows[0] < 50_000 and rows[-1] > 950_000


def test_some_rows_come_from_several_partitions():
    source = sg.generated(lambda block: block * 1000 + np.arange(1000), 20_000, 1000)
    rows = some_rows([source], 400)[0]
    assert len(np.unique(rows)) == len(rows) == 400
    assert len(np.unique(rows // 1000)) == 20
    scattered = some_rows([as_source(np.arange(20_000))], 400)[0]
    assert len(np.unique(scattered // 1000)) == 20


@pytest.mark.parametrize(
    ("arguments", "size", "error", "sentence"),
    [
        ((), {}, TypeError, "at least one"),
        ((X, Y[:-1]), {}, ValueError, "same number of rows, but .* 30,000.* 29,999"),
        ((X[:0],), {}, ValueError, "no rows"),
        ((np.array(["a", "b"]),), {}, TypeError, "codes"),
        ((np.array([1, None]),), {}, TypeError, "object"),
        ((X,), {"batch_size": 2.5}, TypeError, "batch_size must be a whole number"),
        ((X,), {"batch_size": N + 1}, ValueError, "between 1 and the 30000 rows"),
        ((object(),), {}, TypeError, "cannot be read as rows"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(arguments, size, error, sentence):
    with pytest.raises(error, match=sentence):
        sg.Minibatch(*arguments, **size)


def test_a_total_size_that_is_not_the_number_of_rows_is_refused():
    with pm.Model() as model:
        yb = sg.Minibatch(Y.astype(float))
        pm.Normal("y", pm.Normal("mu"), 1, observed=yb, total_size=len(Y) - 1)
    with pytest.raises(ValueError, match=f"Write total_size={N}"):
        read_model(model)


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"population": "cluster"}, ValueError, "population must be one of"),
        ({"directory": "/nowhere/at/all"}, ValueError, "does not exist"),
        ({"directory": 3}, TypeError, "must be a path"),
        ({"population": "sample", "subsampling": "iid"}, ValueError, "blocks of rows"),
    ],
)
def test_bad_places_for_rows_are_refused(model, arguments, error, sentence):
    with pytest.raises(error, match=sentence):
        sg.SGLDCV(model=model, progressbar=False, **arguments)


def test_one_row_is_enough():
    with pm.Model() as model:
        yb = sg.Minibatch(np.array([2.0]))
        pm.Normal("y", pm.Normal("mu", 0, 1), 1, observed=yb, total_size=1)
    idata = sg.sample(
        300, model=model, chains=4, random_seed=1, check=False,
        step=sg.SGLDCV(model=model, progressbar=False), **QUIET,
    )  # fmt: skip
    draws = idata.posterior["mu"].values  # N(1, 1/2); six standard errors of 300 effective draws
    assert abs(draws.mean() - 1) < 6 * np.sqrt(0.5 / 300)
