# SPDX-License-Identifier: Apache-2.0
"""Copies of all rows in random order, on disk."""

import errno
import gc
import shutil
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest
from scipy import stats

from pymc_sgcv.rows import shuffle
from pymc_sgcv.sources import partitions, passes, spill
from pymc_sgcv.sources.base import as_source
from pymc_sgcv.sources.blocks import generated
from pymc_sgcv.sources.spill import shuffled_copy

N = 30_000
X = np.arange(N)[:, None] * [1.0, 10.0]
SOURCES = [as_source(X), as_source(np.arange(N))]
KINDS = "float32", "int32"


@pytest.fixture
def small_buckets(monkeypatch):
    """Some 10 buckets, 20 blocks and 8 streams."""
    monkeypatch.setattr(spill, "_BUCKET_BYTES", 40_000)
    monkeypatch.setattr(spill, "_BLOCK_BYTES", 20_000)
    monkeypatch.setattr(spill, "_DRAWN_AT_ONCE", 4_000)


@pytest.mark.usefixtures("small_buckets")
def test_every_row_is_there_once_and_arrays_stay_aligned(tmp_path):
    x, i = shuffled_copy(SOURCES, KINDS, tmp_path)
    assert isinstance(x, np.memmap) and (x.dtype, i.dtype) == (np.float32, np.int32)
    assert x.shape == (N, 2) and sorted(i) == list(range(N))
    np.testing.assert_array_equal(x, X[i].astype(np.float32))


@pytest.mark.usefixtures("small_buckets")
def test_the_order_is_uniform_by_all_that_neighbours_and_places_tell(tmp_path):
    """Four tests at 1e-4 each: another seed would fail in four of 10,000 cases."""
    (i,) = shuffled_copy(SOURCES[1:], ["int64"], tmp_path)
    cells = np.histogram2d(np.arange(N), i, bins=20)[0]
    steps = np.histogram2d(i[:-1], i[1:], bins=20)[0]
    for table in cells, steps:
        assert stats.chisquare(table.ravel(), ddof=2 * 19).pvalue > 1e-4
    assert stats.pearsonr(i[:-1], i[1:]).pvalue > 1e-4
    fixed = np.count_nonzero(i == np.arange(N))  # Poisson with mean 1
    assert stats.poisson.sf(fixed - 1, 1) > 1e-4


@pytest.mark.usefixtures("small_buckets")
def test_the_order_depends_neither_on_partitions_nor_on_threads(tmp_path, monkeypatch):
    (expected,) = shuffled_copy([as_source(np.arange(N))], ["int64"], tmp_path)
    for block_rows, threads in (700, 1), (N, 3), (11_000, 5):
        monkeypatch.setattr(passes, "n_threads", lambda threads=threads: threads)
        monkeypatch.setattr(partitions, "n_threads", lambda threads=threads: threads)
        source = generated(
            lambda block, rows=block_rows: np.arange(rows) + block * rows, N, block_rows
        )
        (copy,) = shuffled_copy([source], ["int64"], tmp_path)
        np.testing.assert_array_equal(copy, expected)


def test_one_row_and_rows_without_values_are_copied(tmp_path):
    one, none = shuffled_copy([as_source(X[:1]), as_source(np.empty((1, 0)))], ["f8"] * 2, tmp_path)
    assert one.tolist() == [[0, 0]] and none.shape == (1, 0)


def test_the_file_goes_with_the_last_array(tmp_path):
    x, i = shuffled_copy(SOURCES, KINDS, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    part = np.asarray(x)[5:]
    del x
    gc.collect()
    del i
    gc.collect()
    assert len(list(tmp_path.iterdir())) == 1
    del part
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_the_file_goes_with_the_process(tmp_path):
    code = (
        "import numpy as np; from pymc_sgcv.sources.base import as_source;"
        "from pymc_sgcv.sources.spill import shuffled_copy; import sys, os;"
        "kept = shuffled_copy([as_source(np.arange(9))], ['f8'], sys.argv[1]);"
        "print(len(os.listdir(sys.argv[1])))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path], check=True, capture_output=True, text=True
    )
    assert run.stdout == "1\n" and not list(tmp_path.iterdir())


def test_an_error_leaves_no_file(tmp_path):
    def torn(block):
        if block > 3:
            raise KeyError("torn")
        return np.zeros(10)

    with pytest.raises(KeyError, match="torn"):
        shuffled_copy([generated(torn, 100, 10)], ["f8"], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_disk_without_room_is_named_before_any_row_is_read(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 0, 100_000))
    with pytest.raises(OSError, match=r"takes 0\.4 MB, and .* has 0\.1 MB left.*directory=") as no:
        shuffled_copy(SOURCES, KINDS, tmp_path)
    assert no.value.errno == errno.ENOSPC and not list(tmp_path.iterdir())


def test_a_disk_that_fills_up_is_named(tmp_path, monkeypatch):
    def full(file, rows):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spill, "_write_all", full)
    with pytest.raises(OSError, match="no room for the copy"):
        shuffled_copy(SOURCES, KINDS, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NotADirectoryError, match=r"no directory .*elsewhere"):
        shuffled_copy(SOURCES, KINDS, tmp_path / "elsewhere")


@pytest.mark.usefixtures("small_buckets")
def test_the_report_goes_from_nothing_to_one(tmp_path):
    seen = []
    shuffled_copy(SOURCES, KINDS, tmp_path, report=seen.append)
    assert seen == sorted(seen) and seen[0] < 0.1 and seen[-1] == pytest.approx(1)


def test_the_seed_is_that_of_copies_in_memory():
    assert spill.SEED == shuffle.SEED


def test_integers_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ValueError, match="beyond 32 bits"):
        shuffled_copy([as_source(np.full(10, 2**33 + 5))], ["int32"], tmp_path)
    assert not list(tmp_path.iterdir())
