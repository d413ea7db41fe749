# SPDX-License-Identifier: Apache-2.0
"""Zarr arrays as sources."""

import numpy as np
import pytest
import xarray as xr
import zarr

from pymc_sgcv.sources.base import as_source
from pymc_sgcv.sources.passes import over_rows

N = 95
X = np.random.default_rng(0).normal(size=(N, 3))


def stored(path, array=X, **kwargs):
    made = zarr.create_array(path, shape=array.shape, dtype=array.dtype, **kwargs)
    made[:] = array
    return made


LAYOUTS = {
    "chunks": {"chunks": (10, 3)},
    "chunks of columns": {"chunks": (10, 2)},
    "shards": {"chunks": (10, 3), "shards": (40, 3)},
    "one chunk": {"chunks": (N, 3)},
    "Zarr 2": {"chunks": (10, 3), "zarr_format": 2},
    "columns first": {"chunks": (10, 3), "zarr_format": 2, "order": "F"},
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_rows_are_those_of_the_array(layout, tmp_path):
    source = as_source(stored(tmp_path / "x.zarr", **layout))
    assert (source.n_rows, source.row_shape, source.dtype) == (N, (3,), X.dtype)
    assert source.name == "x.zarr" and not source.resident and not source.scattered
    size = layout["chunks"][0]
    assert source.bounds().tolist() == [*range(0, N, size), N]
    for start, stop in (0, N), (10, 20), (10, 50), (3, 7), (8, 33), (90, N):
        rows = source.read(start, stop)
        np.testing.assert_array_equal(rows, X[start:stop])
        assert rows.flags.c_contiguous
    index = np.array([0, 3, 50, 94])
    np.testing.assert_array_equal(source.take(index), X[index])
    blocks = over_rows([source], lambda arrays, first: arrays[0].copy(), rows_at_once=17)
    np.testing.assert_array_equal(np.concatenate(list(blocks)), X)


def test_types_are_those_of_the_array_in_this_machine_s_byte_order():
    for given, dtype in (">f4", "f4"), ("i1", "i1"), ("?", "?"), ("u8", "u8"):
        array = stored({}, (X[:, 0] > 0).astype(given), chunks=(10,))
        rows = as_source(array).read(0, N)
        assert rows.dtype == np.dtype(dtype) and rows.dtype.isnative
        np.testing.assert_array_equal(rows, X[:, 0] > 0)


@pytest.mark.skipif(not hasattr(zarr.Array, "read_chunk_sizes"), reason="needs Zarr 3.2")
def test_chunks_may_be_of_different_lengths():
    with zarr.config.set({"array.rectilinear_chunks": True}):
        source = as_source(stored({}, X[:, 0], chunks=[[30, 30, 35]]))
        assert source.bounds().tolist() == [0, 30, 60, N]
        np.testing.assert_array_equal(source.read(10, 70), X[10:70, 0])


def test_files_that_change_are_named(tmp_path):
    array = stored(tmp_path / "x.zarr", chunks=(10, 3))
    source = as_source(array)
    source.check()
    array[20:30] = np.random.default_rng(1).normal(size=(10, 3))
    with pytest.raises(RuntimeError, match=r"x\.zarr/c/2/0 changed"):
        source.check()


def test_a_change_elsewhere_than_on_disk_is_seen_in_the_metadata():
    array = stored({}, chunks=(10, 3))
    source = as_source(array, "X")
    source.check()
    array.resize((N + 1, 3))
    with pytest.raises(RuntimeError, match="Zarr array X changed"):
        source.check()


def test_what_has_no_rows_of_numbers_is_refused():
    with pytest.raises(TypeError, match=r"group\['x'\]"):
        as_source(zarr.group({}))
    with pytest.raises(ValueError, match="single number"):
        as_source(zarr.create_array({}, shape=(), dtype="f8"))
    with pytest.raises(TypeError, match=r"s has values of type .*factorize"):
        as_source(zarr.create_array({}, shape=(3,), dtype=str), "s")


def test_arrays_of_xarray_are_those_that_they_hold(tmp_path):
    array = xr.DataArray(X, name="x")
    source = as_source(array)
    assert source.name == "x" and source.resident
    np.testing.assert_array_equal(source.read(0, N), X)
    array.to_dataset().to_zarr(tmp_path / "x.zarr", consolidated=False)
    lazy = xr.open_zarr(tmp_path / "x.zarr", chunks=None, consolidated=False)["x"]
    with pytest.raises(TypeError, match=r"give \.chunk\(\), or \.load\(\)"):
        as_source(lazy)
