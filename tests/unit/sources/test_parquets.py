# SPDX-License-Identifier: Apache-2.0
"""Columns of Parquet files as sources."""

import logging
import os
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pymc_sgcv as sg
from pymc_sgcv.sources.base import as_source
from pymc_sgcv.sources.passes import over_rows

N = 95
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "x1": RNG.normal(size=N),
        "x2": RNG.normal(size=N),
        "f1": RNG.normal(size=N).astype(np.float32),
        "f2": RNG.normal(size=N).astype(np.float32),
        "n": RNG.integers(9, size=N),
        "yes": RNG.random(N) < 0.5,
        "shop": RNG.choice(["north", "east", "süd"], N),
    }
)
FRAME["kind"] = pd.Categorical(RNG.choice(["u", "v"], N), categories=["v", "nowhere", "u"])
CUTS = 0, 40, 40, 70, N


@pytest.fixture
def rows(tmp_path):
    """Four files, one of them without rows, in row groups of up to 15 rows."""
    for j, (start, stop) in enumerate(pairwise(CUTS)):
        FRAME[start:stop].to_parquet(tmp_path / f"part-{j}.parquet", row_group_size=15)
    return tmp_path


def written(directory, **columns):
    """A directory with one file for each list of columns' values."""
    for j, values in enumerate(zip(*columns.values())):
        table = pa.table({name: value for name, value in zip(columns, values) if value is not None})
        pq.write_table(table, directory / f"{j}.parquet")
    return directory


@pytest.mark.parametrize("columns", ["x1", ["x1"], ["x2", "x1"], ["f1", "f2"], "n", "yes"])
def test_rows_are_those_of_the_files(rows, columns):
    expected = FRAME[columns].to_numpy()
    source = sg.parquet(str(rows / "*.parquet"), columns=columns)
    assert (source.n_rows, source.row_shape) == (N, expected.shape[1:])
    assert source.dtype == expected.dtype and not source.resident and not source.scattered
    assert source.bounds().tolist() == [0, 15, 30, 40, 55, 70, 85, N]
    for start, stop in (0, N), (15, 30), (15, 55), (3, 7), (8, 63), (94, N):
        read = source.read(start, stop)
        np.testing.assert_array_equal(read, expected[start:stop])
        assert read.flags.c_contiguous and read.dtype == source.dtype
    index = np.array([0, 3, 50, 94])
    np.testing.assert_array_equal(source.take(index), expected[index])
    blocks = over_rows([source], lambda arrays, first: arrays[0].copy(), rows_at_once=7)
    np.testing.assert_array_equal(np.concatenate(list(blocks)), expected)


def test_columns_have_one_type_that_holds_all(rows):
    for columns, dtype in (
        (["x1", "f1"], float),
        (["f1", "n"], float),
        (["n", "yes"], int),
        (["f1", "f2"], np.float32),
        (["n", "shop"], int),
        (["x1", "shop"], float),
    ):
        assert sg.parquet(rows, columns).dtype == dtype


def test_files_may_be_named_in_several_ways(rows):
    paths = [rows / f"part-{j}.parquet" for j in range(4)]
    for pattern in rows, str(rows), rows / "part-*", paths, [str(path) for path in paths], [rows]:
        np.testing.assert_array_equal(sg.parquet(pattern, "n").read(0, N), FRAME["n"])
    assert sg.parquet(paths[::-1], "n").read(0, 1)[0] == FRAME["n"][70]
    assert sg.parquet(paths[0]).row_shape == (8,)


def test_files_that_writers_hide_are_left_out_of_directories(rows):
    (rows / "_metadata.parquet").write_bytes(b"")
    (rows / "_temporary").mkdir()
    (rows / "_temporary" / "part-9.parquet").write_bytes(b"")
    assert sg.parquet(rows, "n").n_rows == N


@pytest.mark.parametrize("column", ["shop", "kind"])
def test_strings_and_categories_are_codes_of_their_sorted_values(rows, column, caplog):
    with caplog.at_level(logging.INFO, "pymc.sgcv"):
        source = sg.parquet(rows, column, name="sales")
    values = sorted(set(FRAME[column]))
    assert source.dtype == np.int32 and source.categories[column].tolist() == values
    codes = source.read(0, N)
    assert [values[code] for code in codes] == FRAME[column].tolist()
    assert f"sales: '{column}' is read as codes 0 … {len(values) - 1}" in caplog.text
    assert f"{len(values)} sorted values: {values[0]}, {values[1]}" in caplog.text


def test_categories_of_files_with_dictionaries_of_their_own_agree(tmp_path):
    pieces = [["b", "b", "a"], ["c", "a", "a"], ["d", "c", "b"]]
    kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
    source = sg.parquet(written(tmp_path, s=[pa.array(p).cast(k) for p, k in zip(pieces, kinds)]))
    assert source.read(0, 9)[:, 0].tolist() == [1, 1, 0, 2, 0, 0, 3, 2, 1]


def test_types_that_differ_between_files_are_one(tmp_path):
    written(tmp_path, x=[pa.array([1, 2]), pa.array([0.5]), pa.array([True])])
    source = sg.parquet(tmp_path, "x")
    assert source.dtype == float and source.read(0, 4).tolist() == [1, 2, 0.5, 1]


def test_half_floats_and_decimals_are_floats(tmp_path):
    half = pa.array(np.array([0.5, 1], np.float16))
    written(tmp_path, h=[half], d=[pa.array([0.25, 3]).cast(pa.decimal128(8, 2))])
    assert sg.parquet(tmp_path, "h").dtype == np.float32
    assert sg.parquet(tmp_path, ["h", "d"]).read(0, 2).tolist() == [[0.5, 0.25], [1, 3]]


def test_a_file_without_rows_may_have_no_types(tmp_path):
    written(tmp_path, x=[pa.array([], pa.null()), pa.array([1.5])])
    assert sg.parquet(tmp_path, "x").read(0, 1).tolist() == [1.5]


def test_files_without_any_rows_have_length_zero(tmp_path):
    assert sg.parquet(written(tmp_path, x=[pa.array([], pa.int64())]), "x").n_rows == 0


def test_a_row_is_named_by_its_file(rows):
    source = sg.parquet(rows, "n")
    assert source.where(39).endswith("part-0.parquet") and "row 39 " in source.where(39)
    assert source.where(72).endswith("part-3.parquet") and "row 2 " in source.where(72)


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("values", [[1.0, None, 3.0], ["a", None, "b"], [True, None, False]])
def test_missing_values_are_refused_with_their_place(tmp_path, values, statistics):
    pq.write_table(pa.table({"x": values[:1] * 3}), tmp_path / "0.parquet")
    table = pa.table({"x": values[:1] * 4 + values})
    pq.write_table(table, tmp_path / "1.parquet", row_group_size=3, write_statistics=statistics)
    says = r"Column 'x' has missing values, the first in row 5 of .*1\.parquet"
    with pytest.raises(ValueError, match=says):
        sg.parquet(tmp_path, "x").read(0, 10)


REFUSED = {
    "dates": (pd.to_datetime(["2026-01-01"]).to_numpy(), "timestamp.*days since"),
    "lists": (pa.array([[1, 2]]), "list<.*entries as columns"),
    "structs": (pa.array([{"a": 1}]), "struct<.*fields as columns"),
    "bytes": (pa.array([b"a"]), "binary.*numbers or strings"),
    "nothing": (pa.array([None]), "null.*no values at all"),
}


@pytest.mark.parametrize(("values", "says"), REFUSED.values(), ids=REFUSED)
def test_columns_that_are_no_numbers_are_refused(tmp_path, values, says):
    with pytest.raises(TypeError, match=f"Column 'x' of .*0.parquet has the type {says}"):
        sg.parquet(written(tmp_path, x=[pa.array(values)]), "x")


def test_a_column_that_one_file_misses_is_named(tmp_path):
    written(tmp_path, x=[pa.array([1])] * 2, y=[pa.array([1]), None])
    with pytest.raises(ValueError, match=r"1\.parquet has no column 'y'. Its columns are x\."):
        sg.parquet(tmp_path, ["x", "y"])


def test_numbers_here_and_strings_there_are_refused(tmp_path):
    written(tmp_path, x=[pa.array([1]), pa.array(["a"])])
    with pytest.raises(TypeError, match=r"numbers in .*0\.parquet and strings in .*1\.parquet"):
        sg.parquet(tmp_path, "x")


def test_files_that_are_not_there_or_no_parquet_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no Parquet files at '.*\*\.parquet'"):
        sg.parquet(tmp_path / "*.parquet")
    with pytest.raises(FileNotFoundError, match="no Parquet files"):
        sg.parquet(tmp_path)
    with pytest.raises(FileNotFoundError, match="empty"):
        sg.parquet([])
    (tmp_path / "x.parquet").write_text("a,b\n1,2\n" * 10)
    with pytest.raises(ValueError, match=r"x\.parquet cannot be read as a Parquet file"):
        sg.parquet(tmp_path)
    with pytest.raises(ValueError, match="one column at least"):
        sg.parquet(written(tmp_path, x=[pa.array([1])]) / "0.parquet", [])


def test_a_file_that_changes_between_passes_is_named(rows):
    source = sg.parquet(rows, "n")
    source.check()
    FRAME[:10].to_parquet(rows / "part-1.parquet")
    with pytest.raises(RuntimeError, match=r"part-1\.parquet changed since"):
        source.check()


def test_names_are_short(rows):
    pattern = os.path.join(rows, "*.parquet")
    assert sg.parquet(pattern).name == f"{pattern}: x1, x2, … kind"
    assert sg.parquet([rows, rows], ["x1", "n"]).name == "2 Parquet files: x1, n"
    assert sg.parquet([rows], ["x1", "n"], name="X").name == "X"


def test_sources_of_pymc_extras_are_read_from_their_files(rows):
    files = [str(path) for path in sorted(rows.glob("*.parquet"))]
    streamed = type("S", (SimpleNamespace,), {"__module__": "pymc_extras.variational.dataloader"})
    source = as_source(streamed(_paths=files, _columns=["x1", "n"]))
    np.testing.assert_array_equal(source.read(0, N), FRAME[["x1", "n"]])
    with pytest.raises(TypeError, match=r"sg\.parquet"):
        as_source(streamed(batch_size=3))


def test_importing_the_package_imports_no_engine():
    engines = "dask", "distributed", "pandas", "pyarrow", "zarr"
    code = f"import sys, pymc_sgcv; print([name for name in {engines!r} if name in sys.modules])"
    without = f"import sys, pymc; print([name for name in {engines!r} if name in sys.modules])"
    ours, pymc = (
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
        for text in (code, without)
    )
    assert ours.stdout == pymc.stdout
