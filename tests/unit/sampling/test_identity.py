# SPDX-License-Identifier: Apache-2.0
"""Two models have one identity if they are the same, whoever wrote them down when."""

import numpy as np
import pymc as pm
import pytest

from pymc_sgcv.model.target import read_model
from pymc_sgcv.sampling import identity
from pymc_sgcv.sampling.identity import differences, model_identity
from tests.models import build

X = np.linspace(-1, 1, 60).reshape(20, 3)
Y = X.sum(1)


def make(scale=1.0, link=pm.math.exp, prior=pm.HalfNormal, double=2.0, x=X, exact=0.3, name="s"):
    with pm.Model() as model:
        beta, sigma = pm.Normal("beta", 0, scale, shape=3), prior(name, 1)
        pm.Deterministic("twice", double * beta)
        pm.Normal("y", link(x @ beta), sigma, observed=Y)
        pm.Normal("exact", beta[0], 1.0, observed=exact)
    return model


def found(model, other):
    return list(differences(model_identity(read_model(other)), model_identity(read_model(model))))


@pytest.mark.parametrize("kind", ["hierarchical", "mixture", "vector_outcome"])
@pytest.mark.parametrize("batch_size", [None, 10])
def test_a_model_built_twice_is_the_same(kind, batch_size):
    assert not found(build(kind, 50, batch_size), build(kind, 50, batch_size))


@pytest.mark.parametrize(
    "change, name",
    [
        ({"scale": 1.1}, "beta"),
        ({"prior": pm.HalfCauchy}, "s"),
        ({"double": 2.5}, "twice"),
        ({"link": pm.math.sin}, "y"),
        ({"exact": 0.4}, "exact"),
    ],
)
def test_a_change_is_named_by_its_variable(change, name):
    assert found(make(), make(**change)) == [
        ("variables", f"the definition of '{name}' is another one")
    ]


def test_other_data_are_named_as_such():
    kinds = [kind for kind, _ in found(make(), make(x=X + 1e-9 * (X > 0.9)))]
    assert kinds == ["data"]
    assert "'y' are 20" in found(make(), make(x=2 * X))[0][1]


def test_another_name_is_new_and_the_old_one_missing():
    sentences = [sentence for _, sentence in found(make(), make(name="t"))]
    assert "'t' is new" in sentences
    assert "'s' is missing now" in sentences


def test_of_large_arrays_some_rows_are_looked_at(monkeypatch):
    monkeypatch.setattr(identity, "_WHOLE_BYTES", 100)
    monkeypatch.setattr(identity, "_SAMPLED_ROWS", 2)
    assert not found(make(), make(x=np.where(np.arange(20)[:, None] == 5, 7.0, X)))
    assert found(make(), make(x=np.where(np.arange(20)[:, None] == 19, 7.0, X)))
