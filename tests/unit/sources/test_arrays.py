# SPDX-License-Identifier: Apache-2.0
"""Arrays, memory maps and pandas' objects as sources."""

import os

import numpy as np
import pandas as pd
import pytest

from pymc_sgcv.sources.base import as_source, same_length

N = 50
X = np.random.default_rng(0).normal(size=(N, 3))


def memory_map(directory, array=X):
    np.save(directory / "x.npy", array)
    return np.load(directory / "x.npy", mmap_mode="r")


def raw_map(directory):
    X.tofile(directory / "x.raw")
    return np.memmap(directory / "x.raw", X.dtype, "r", shape=X.shape)


THINGS = {
    "array": lambda directory: X,
    "columns first": lambda directory: np.asfortranarray(X),
    "every second": lambda directory: np.repeat(X, 2, axis=0)[::2],
    "another byte order": lambda directory: X.astype(">f8"),
    "list": lambda directory: X.tolist(),
    "np.load": memory_map,
    "np.memmap": raw_map,
    "view of a map": lambda directory: np.asarray(raw_map(directory))[:],
    "frame": lambda directory: pd.DataFrame(X),
    "frame of columns": lambda directory: pd.DataFrame({str(j): X[:, j] for j in range(3)}),
    "nullable frame": lambda directory: pd.DataFrame(X).astype("Float64"),
}


@pytest.mark.parametrize("make", THINGS.values(), ids=THINGS)
def test_rows_are_those_of_the_array(make, tmp_path):
    source = as_source(make(tmp_path))
    assert (source.n_rows, source.row_shape, source.dtype) == (N, (3,), np.dtype(float))
    assert source.nbytes == X.nbytes and source.scattered
    for start, stop in (0, N), (7, 31), (N - 1, N), (4, 4):
        rows = source.read(start, stop)
        np.testing.assert_array_equal(rows, X[start:stop])
        assert rows.flags.c_contiguous and rows.dtype.isnative and type(rows) is np.ndarray
    index = np.array([0, 3, 4, 49])
    np.testing.assert_array_equal(source.take(index), X[index])
    assert source.bounds().tolist() == [0, N]


@pytest.mark.parametrize("name", ["array", "np.load", "frame"])
def test_contiguous_rows_are_not_copied(name, tmp_path):
    thing = THINGS[name](tmp_path)
    thing = np.ascontiguousarray(X) if name == "frame" else thing
    rows = as_source(thing).read(3, 9)
    assert np.shares_memory(rows, thing)


@pytest.mark.parametrize("name", THINGS)
def test_memory_maps_are_not_resident(name, tmp_path):
    mapped = name in ("np.load", "np.memmap", "view of a map")
    assert as_source(THINGS[name](tmp_path)).resident is not mapped


def test_slices_of_memory_maps_are_memory_maps(tmp_path):
    source = as_source(memory_map(tmp_path)[5:, :2])
    assert not source.resident and source.name == "x.npy"
    np.testing.assert_array_equal(source.read(0, 2), X[5:7, :2])


def test_a_frame_of_one_type_is_not_copied():
    frame = pd.DataFrame(X)
    assert np.shares_memory(as_source(frame)._array, frame.to_numpy())


def test_columns_of_several_types_have_one_that_holds_all():
    frame = pd.DataFrame({"a": np.arange(4), "b": np.arange(4, dtype=np.float32)})
    assert as_source(frame).dtype == np.float64
    assert as_source(frame.astype("float32")).dtype == np.float32
    assert as_source(frame[["a"]] > 1).dtype == bool
    np.testing.assert_array_equal(as_source(frame).read(1, 3), [[1, 1], [2, 2]])


def test_a_series_is_a_vector_and_has_its_name():
    source = as_source(pd.Series([1, 2, 3], name="age"))
    assert source.row_shape == () and source.where(1) == "row 1 of 'age'"


def test_a_file_that_changes_is_named(tmp_path):
    source = as_source(memory_map(tmp_path))
    source.check()
    os.utime(tmp_path / "x.npy", ns=(0, 0))
    with pytest.raises(RuntimeError, match=r"x\.npy changed since"):
        source.check()
    os.remove(tmp_path / "x.npy")
    with pytest.raises(RuntimeError, match="no longer there"):
        source.check()


REFUSED = {
    "objects": (np.array([1, "a"], object), TypeError, r"type object.*np\.asarray"),
    "strings": (np.array(["a", "b"]), TypeError, r"<U1.*pandas\.factorize"),
    "dates": (np.array(["2026-01-01"], "M8[D]"), TypeError, "days since"),
    "fields": (np.zeros(3, [("a", float)]), TypeError, r"data\['a'\]"),
    "complex": (np.zeros(3, complex), TypeError, "Convert them to float64"),
    "number": (np.array(3.0), ValueError, "single number"),
    "masked": (np.ma.masked_array([1.0, 2.0], [True, False]), TypeError, "masked rows"),
    "file name": ("rows.parquet", TypeError, r"sg\.parquet"),
    "generator": ((i for i in range(3)), TypeError, "cannot be read as rows: builtins.generator"),
    "none": (None, TypeError, "NoneType is none of"),
    "categories": (pd.Series(["a", "b"], dtype="category"), TypeError, r"\.cat\.codes"),
    "column of strings": (pd.DataFrame({"x": [1], "s": ["a"]}), TypeError, "Column 's'.*factorize"),
    "missing": (pd.Series([1, 2, None], dtype="Int64"), ValueError, "first in row 2"),
    "no columns": (pd.DataFrame(index=[1, 2]), ValueError, "no columns"),
}


@pytest.mark.parametrize(("thing", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_rows_of_numbers_is_refused(thing, error, says):
    with pytest.raises(error, match=says):
        as_source(thing)


def test_a_name_is_used_in_refusals():
    with pytest.raises(TypeError, match="X has values of type object"):
        as_source(np.array([None]), "X")
    with pytest.raises(TypeError, match="'X' cannot be read"):
        as_source({1: 2}, "X")


def test_lengths_must_agree():
    sources = [as_source(X, "X"), as_source(X[:10, 0], "y")]
    assert same_length(sources[:1] * 2) == N
    with pytest.raises(ValueError, match="X has 50, y has 10"):
        same_length(sources)
    with pytest.raises(ValueError, match="no rows in y"):
        same_length([as_source(X[:0], "y")])
