# SPDX-License-Identifier: Apache-2.0
"""What all sources have in common."""

import pickle

import cloudpickle
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr

import pymc_sgcv as sg
from pymc_sgcv.sources.base import as_source
from pymc_sgcv.sources.passes import over_rows

N = 20_000
X = np.random.default_rng(0).normal(size=(N, 2))


def numpy_map(at, **kwargs):
    np.save(at / "x.npy", X)
    return np.load(at / "x.npy", mmap_mode="r")


def raw_map(at):
    X.tofile(at / "x.raw")
    return np.memmap(at / "x.raw", X.dtype, "r", offset=16 * 5000, shape=(N - 5000, 2))


def zarr_array(at):
    array = zarr.create_array(at / "x.zarr", shape=X.shape, dtype=X.dtype, chunks=(3_000, 2))
    array[:] = X
    return array


def parquet(at):
    pd.DataFrame(X, columns=["a", "b"]).to_parquet(at / "x.parquet", row_group_size=3_000)
    return sg.parquet(at / "x.parquet")


SOURCES = {
    "array": lambda at: X,
    "np.load": numpy_map,
    "part of a map": lambda at: numpy_map(at)[10:-20:2, ::-1],
    "map from an offset": raw_map,
    "rewritten map": lambda at: np.memmap(at / "x", "f4", "w+", shape=(30, 2)),
    "zarr": zarr_array,
    "parquet": parquet,
    "dask": lambda at: da.from_array(X, chunks=3_000),
    "generated": lambda at: sg.generated(lambda block: X[block * 1000 :][:1000], N, 1000),
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_sources_are_the_same_in_another_process(make, tmp_path):
    source = as_source(make(tmp_path), "x")
    rows = source.read(0, source.n_rows).copy()
    other = pickle.loads(cloudpickle.dumps(source))
    assert repr(other) == repr(source)
    assert (other.resident, other.scattered) == (source.resident, source.scattered)
    np.testing.assert_array_equal(other.read(0, source.n_rows), rows)
    blocks = over_rows([other], lambda arrays, first: arrays[0].copy(), rows_at_once=700)
    np.testing.assert_array_equal(np.concatenate(list(blocks)), rows)
    other.check()


@pytest.mark.parametrize("name", ["np.load", "part of a map", "map from an offset", "zarr"])
def test_files_are_not_pickled(name, tmp_path):
    assert len(pickle.dumps(as_source(SOURCES[name](tmp_path)))) < 5_000


def test_pages_that_were_changed_in_memory_alone_are_pickled(tmp_path):
    np.save(tmp_path / "x.npy", X)
    changed = np.load(tmp_path / "x.npy", mmap_mode="c")
    changed[:3] = 7
    other = pickle.loads(pickle.dumps(as_source(changed)))
    np.testing.assert_array_equal(other.read(0, N), changed)


def test_what_a_source_is_can_be_read():
    assert repr(as_source(X, "X")) == "<ArraySource X: 20000 × (2,) float64>"


def test_sources_are_what_they_are():
    source = as_source(X)
    assert as_source(source) is source
