# SPDX-License-Identifier: Apache-2.0
"""The loader of CoverType: where it looks, what it makes of it, and that it admits made-up data."""

import numpy as np
import pytest

from pymc_sgcv import SGCVWarning
from pymc_sgcv.datasets import _covtype, covtype
from tests.shared import no_warning


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch):
    """No network: each test adds what it needs."""

    def refuse():
        raise OSError("no network in tests")

    monkeypatch.setattr(_covtype, "_fetch", refuse)


@pytest.fixture
def tiny(tmp_path):
    """Forty rows in the compact layout; row i has elevation i, so that rows can be told apart."""
    i = np.arange(40)
    num = np.tile(i, (10, 1)).astype(np.int16)
    np.savez(
        tmp_path / "covtype_compact.npz",
        num=num,
        wilderness=(i % 4).astype(np.int8),
        soil=i.astype(np.int8),
        cover_type=(1 + i % 7).astype(np.int8),
    )
    return tmp_path


def row_numbers(X):
    return np.rint(39 * X[:, 1]).astype(int)


def test_a_directory_a_file_and_the_environment_variable_lead_to_the_same_data(tiny, monkeypatch):
    from_directory = covtype(tiny)
    from_file = covtype(tiny / "covtype_compact.npz")
    monkeypatch.setenv("SGCV_DATA", str(tiny))
    for data in (from_file, covtype()):
        np.testing.assert_array_equal(data.X_train, from_directory.X_train)
        assert data.source == "local copy"


def test_a_path_goes_before_the_environment_variable(tiny, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SGCV_DATA", str(tmp_path_factory.mktemp("empty")))
    assert covtype(tiny).source == "local copy"


def test_columns_are_intercept_scaled_numbers_and_indicators(tiny):
    data = covtype(tiny)
    X, i = data.X_train, row_numbers(data.X_train)
    assert X.shape[1] == len(data.names) == 55
    np.testing.assert_array_equal(X[:, 0], 1.0)
    np.testing.assert_allclose(X[:, 1:11], np.tile(i[:, None] / 39, 10))
    np.testing.assert_array_equal(X[:, 11:15], np.eye(4)[i % 4])
    np.testing.assert_array_equal(X[:, 15:], np.eye(40)[i])


def test_the_label_is_class_two_against_the_rest(tiny):
    data = covtype(tiny)
    np.testing.assert_array_equal(data.y_train, row_numbers(data.X_train) % 7 == 1)
    np.testing.assert_array_equal(data.y_test, row_numbers(data.X_test) % 7 == 1)


def test_every_row_is_in_exactly_one_part_and_a_quarter_in_the_test(tiny):
    data = covtype(tiny)
    assert len(data.y_test) == 10
    together = np.concatenate([row_numbers(data.X_train), row_numbers(data.X_test)])
    np.testing.assert_array_equal(np.sort(together), np.arange(40))


def test_the_seed_decides_the_split(tiny):
    one, again, other = (row_numbers(covtype(tiny, seed=s).X_test) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_labels_have_a_type_that_a_minibatch_can_observe(tiny):
    assert covtype(tiny).y_train.dtype == np.int32  # PyMC refuses int64 and int8


def test_the_uci_table_gives_the_same_as_the_compact_file(tiny, tmp_path_factory):
    with np.load(tiny / "covtype_compact.npz") as raw:
        table = np.column_stack(
            [raw["num"].T, np.eye(4)[raw["wilderness"]], np.eye(40)[raw["soil"]], raw["cover_type"]]
        )
    uci = tmp_path_factory.mktemp("uci")
    np.savetxt(uci / "covtype.data.gz", table, fmt="%d", delimiter=",")
    np.testing.assert_array_equal(covtype(uci).X_train, covtype(tiny).X_train)


def test_a_download_is_used_where_there_is_no_local_copy(tiny, monkeypatch):
    with np.load(tiny / "covtype_compact.npz") as raw:
        downloaded = _covtype._Raw(**raw)
    monkeypatch.setattr(_covtype, "_fetch", lambda: downloaded)
    data = covtype()
    assert data.source == "download"
    np.testing.assert_array_equal(data.X_train, covtype(tiny).X_train)


def test_made_up_data_are_announced_and_have_the_same_layout():
    with pytest.warns(SGCVWarning, match="generated data of the same layout"):
        data = covtype(n_rows=2000)
    assert data.source == "generated look-alike"
    assert data.X_train.shape == (1500, 55)
    assert 0.2 < data.y_train.mean() < 0.8
    assert "generated look-alike" in str(data)


def test_a_variable_that_names_a_directory_without_the_file_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("SGCV_DATA", str(tmp_path))
    with pytest.warns(SGCVWarning, match="SGCV_DATA"):
        assert covtype(n_rows=100).source == "generated look-alike"


def test_a_local_copy_is_silent(tiny):
    with no_warning():
        covtype(tiny)


def test_a_path_that_leads_nowhere_is_an_error_that_says_what_was_looked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither a file nor.*covtype_compact\.npz"):
        covtype(tmp_path / "nowhere")


def test_a_file_with_missing_arrays_is_named(tmp_path):
    np.savez(tmp_path / "covtype_compact.npz", num=np.zeros((10, 3)))
    with pytest.raises(ValueError, match="has no array wilderness, soil, cover_type"):
        covtype(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"test_share": 1.0}, "between 0 and 1"), ({"n_rows": 1}, "at least 2")],
)
def test_impossible_splits_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        covtype(**arguments)
