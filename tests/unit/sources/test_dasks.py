# SPDX-License-Identifier: Apache-2.0
"""Dask arrays and dataframes as sources, with Dask's schedulers of one process."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from pymc_sgcv.sources import clusters
from pymc_sgcv.sources.base import as_source
from pymc_sgcv.sources.passes import over_rows, take_rows

N = 95
X = np.random.default_rng(0).normal(size=(N, 3))
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
INNER = 20, 20, 0, 50, 5


def parts(array, sizes=INNER):
    """A Dask array in chunks of these numbers of rows."""
    cuts = np.split(array, np.cumsum(sizes)[:-1])
    return da.concatenate([da.from_array(cut, chunks=-1) for cut in cuts])


def frame():
    cuts = [FRAME[start : start + 30] for start in (0, 30)] + [FRAME[:0], FRAME[60:]]
    return dd.from_delayed([dask.delayed(cut) for cut in cuts], meta=FRAME[:0])


THINGS = {
    "array": (lambda: parts(X), [0, 20, 40, 90, N]),
    "chunks of columns": (lambda: da.from_array(X, chunks=(40, 2)), [0, 40, 80, N]),
    "unknown chunks": (lambda: frame().to_dask_array(), [0, 30, 60, N]),
    "frame": (frame, [0, 30, 60, N]),
    "computed": (lambda: da.from_array(X * 2, chunks=50) / 2, [0, 50, N]),
    "nullable": (lambda: dd.from_pandas(FRAME.astype("Float64"), npartitions=2), [0, 48, N]),
}


@pytest.mark.parametrize(("make", "bounds"), THINGS.values(), ids=THINGS)
def test_rows_are_those_of_the_collection(make, bounds):
    source = as_source(make())
    assert (source.n_rows, source.row_shape, source.dtype) == (N, (3,), np.dtype(float))
    assert source.remote and not source.resident and not source.scattered
    assert source.bounds().tolist() == bounds
    for start, stop in (0, N), (20, 40), (3, 7), (35, 92):
        rows = source.read(start, stop)
        np.testing.assert_array_equal(rows, X[start:stop])
        assert rows.flags.c_contiguous and type(rows) is np.ndarray
    index = np.array([0, 3, 50, 94])
    np.testing.assert_array_equal(source.take(index), X[index])


def first_and_rows(arrays, first_row):
    return first_row, [array.copy() for array in arrays]


@pytest.mark.parametrize("rows_at_once", [7, 20, 1000])
@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_every_row_is_in_one_block_in_order_with_other_sources_aligned(rows_at_once, scheduler):
    sources = [
        as_source(da.from_array(X[:, 0], chunks=30)),
        as_source(parts(X)),
        as_source(np.arange(N)),
        as_source(frame()["b"]),
    ]
    with dask.config.set(scheduler=scheduler):
        results = list(over_rows(sources, first_and_rows, rows_at_once=rows_at_once))
    assert max(len(arrays[0]) for _, arrays in results) <= min(rows_at_once, 50)
    assert {0, 20, 40, 90} <= {first for first, _ in results}
    for j, whole in enumerate((X[:, 0], X, np.arange(N), X[:, 1])):
        np.testing.assert_array_equal(np.concatenate([rows[j] for _, rows in results]), whole)
    assert [first for first, _ in results] == sorted(first for first, _ in results)


class Total:
    """A job that says how it was merged."""

    def __call__(self, arrays, first_row):
        return arrays[0].sum(), [first_row]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


def test_results_are_merged_within_a_partition():
    results = list(over_rows([as_source(parts(X))], Total(), rows_at_once=25))
    assert [rows for _, rows in results] == [[0], [20], [40, 65], [90]]
    assert sum(total for total, _ in results) == pytest.approx(X.sum())


def test_the_report_says_how_far_it_is():
    seen = []
    list(over_rows([as_source(parts(X))], Total(), rows_at_once=25, report=seen.append))
    assert seen == [20 / N, 40 / N, 90 / N, 1]


def test_no_more_than_some_batches_are_computed_ahead(monkeypatch):
    begun = []

    def job(arrays, first_row):
        begun.append(first_row)
        return first_row

    done = over_rows([as_source(da.from_array(X, chunks=1))], job, rows_at_once=1)
    next(done)
    assert len(begun) <= 2 * clusters.n_threads()
    assert list(done) == list(range(1, N))


def test_the_first_error_of_a_job_is_raised_as_it_is():
    def job(arrays, first_row):
        if first_row >= 40:
            raise ZeroDivisionError(first_row)
        return first_row

    found = []
    with pytest.raises(ZeroDivisionError, match=r"^40$"):
        found.extend(over_rows([as_source(parts(X))], job, rows_at_once=10))


def test_rows_are_taken_where_they_are():
    index = np.array([0, 19, 20, 94])
    x, i = take_rows([as_source(parts(X)), as_source(np.arange(N))], index)
    np.testing.assert_array_equal(x, X[index])
    np.testing.assert_array_equal(i, index)


def test_columns_have_one_type_that_holds_all():
    mixed = pd.DataFrame({"n": np.arange(4), "yes": [True, False] * 2, "f": np.ones(4, "f4")})
    whole = dd.from_pandas(mixed, npartitions=2)
    assert as_source(whole).dtype == float
    assert as_source(whole[["n", "yes"]]).read(0, 2).tolist() == [[0, 1], [1, 0]]
    assert as_source(whole["f"]).dtype == np.float32 and as_source(whole["f"]).row_shape == ()
    assert as_source(whole["yes"]).dtype == bool


def test_a_row_is_named_by_its_partition():
    assert as_source(parts(X), "X").where(41) == "row 1 of partition 2 of X"


def test_what_has_no_rows_of_numbers_is_refused():
    texts = pd.DataFrame({"s": ["a", "b"], "c": pd.Categorical(["u", "v"])})
    for column in "s", "c":
        says = rf"Column '{column}' of .*cat\.as_known\(\)\.cat\.codes"
        with pytest.raises(TypeError, match=says):
            as_source(dd.from_pandas(texts, npartitions=1)[[column]])
    with pytest.raises(TypeError, match="days since"):
        dates = pd.DataFrame({"t": pd.to_datetime(["2026-01-01"])})
        as_source(dd.from_pandas(dates, npartitions=1)["t"])
    with pytest.raises(TypeError, match="Convert them to numbers"):
        as_source(da.from_array(np.array([None, 1]), chunks=1), "X")
    with pytest.raises(TypeError, match="Of Dask, arrays"):
        as_source(dask.delayed(X))
    with pytest.raises(ValueError, match="single number"):
        as_source(da.from_array(X, chunks=50).sum())
    with pytest.raises(ValueError, match="no columns"):
        as_source(frame()[[]])


def test_missing_values_are_refused():
    missing = pd.DataFrame({"a": pd.array([1, None, 3], "Int64")}, index=[7, 8, 9])
    with pytest.raises(ValueError, match=r"missing values, one of them in row 1 of .* index 8"):
        as_source(dd.from_pandas(missing, npartitions=1))


class Cluster:
    """As much of a client as the check needs."""

    def __init__(self, versions, scheduler=clusters.version):
        self.versions, self.scheduler = versions, scheduler

    def run_on_scheduler(self, function, package):
        return self.scheduler(package)

    def run(self, function, package, on_error):
        return {"tcp://a": clusters.version(package), "tcp://b": self.versions[package]}


def test_a_cluster_without_the_package_or_with_another_version_is_refused():
    here = {package: clusters.version(package) for package in clusters._PACKAGES}
    clusters.check_cluster(Cluster(here))
    missing = clusters.PackageNotFoundError("pymc-sgcv")
    with pytest.raises(RuntimeError, match=r"pymc-sgcv .* worker tcp://b does not have it.*pip"):
        clusters.check_cluster(Cluster({**here, "pymc-sgcv": missing}))
    with pytest.raises(RuntimeError, match=r"pytensor .* worker tcp://b has 1\.0"):
        clusters.check_cluster(Cluster({**here, "pytensor": "1.0"}))
    clusters.check_cluster(Cluster({**here, "pymc": OSError("gone")}))

    def absent(package):
        raise missing

    with pytest.raises(RuntimeError, match=r"the scheduler does not have it"):
        clusters.check_cluster(Cluster(here, absent))
