# SPDX-License-Identifier: Apache-2.0
"""Passes over rows on a Dask cluster of two processes."""

import os
import signal

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import zarr
from distributed import Client, LocalCluster

import pymc_sgcv as sg
from pymc_sgcv.rows.population import Population
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.sources.base import as_source
from pymc_sgcv.sources.passes import over_rows
from pymc_sgcv.sources.spill import shuffled_copy

N = 6_000
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, 3)), RNG.random(N) < 0.5


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Two processes, told not to look for a network."""
    settings = {"temporary-directory": str(tmp_path_factory.mktemp("dask"))}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def collections(tmp_path_factory):
    """The same rows as Zarr arrays and as Parquet files, in partitions of different lengths."""
    at = tmp_path_factory.mktemp("rows")
    for name, array, chunk in ("x", X, 700), ("y", Y, 1_500):
        chunks = (chunk, *array.shape[1:])
        stored = zarr.create_array(at / name, shape=array.shape, dtype=array.dtype, chunks=chunks)
        stored[:] = array
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=Y)
    for j, start in enumerate(range(0, N, 900)):
        frame[start : start + 900].to_parquet(at / f"{j}.parquet")
    rows = dd.read_parquet(str(at / "*.parquet"))
    return {
        "zarr": (da.from_zarr(str(at / "x")), da.from_zarr(str(at / "y"))),
        "parquet": (rows[["a", "b", "c"]], rows["y"]),
        "mixed": (da.from_zarr(str(at / "x")), Y),
    }


class Gradient:
    """Sums over rows, as gradients are; it can kill the process that it runs in, once."""

    def __init__(self, kill_at=None, flag=None, fail_at=None):
        self.kill_at, self.flag, self.fail_at = kill_at, flag, fail_at

    def __call__(self, arrays, first_row):
        x, y = arrays
        if self.kill_at is not None and first_row >= self.kill_at and not os.path.exists(self.flag):
            open(self.flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fail_at is not None and first_row >= self.fail_at:
            raise ZeroDivisionError(f"row {first_row}")
        # Without BLAS, which adds up in another order where Dask gives it other threads.
        return (x * (y - 0.5)[:, None]).sum(axis=0), len(x)

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


def passed(collection, job, report=None):
    """The sum over all rows, and how many results it was added up from."""
    sources = [as_source(part) for part in collection]
    results = list(over_rows(sources, job, rows_at_once=400, report=report))
    assert sum(n for _, n in results) == N
    return sum(total for total, _ in results), len(results)


@pytest.mark.parametrize("kind", ["zarr", "parquet", "mixed"])
def test_sums_are_those_of_one_process_to_the_last_bit(client, collections, kind):
    seen = []
    on_cluster, n_results = passed(collections[kind], Gradient(), seen.append)
    with dask.config.set(scheduler="threads"):
        here, _ = passed(collections[kind], Gradient())
    np.testing.assert_array_equal(on_cluster, here)
    np.testing.assert_allclose(on_cluster, X.T @ (Y - 0.5), rtol=1e-12)
    assert n_results == len(seen) == (7 if kind == "parquet" else 9)  # partitions of x
    assert seen == sorted(seen) and seen[-1] == pytest.approx(1)


@pytest.mark.parametrize("kind", ["zarr", "parquet"])
def test_a_worker_that_is_killed_changes_nothing(client, collections, kind, tmp_path):
    expected, _ = passed(collections[kind], Gradient())
    flag = tmp_path / "killed"
    found, _ = passed(collections[kind], Gradient(kill_at=2_500, flag=str(flag)))
    assert flag.exists()
    np.testing.assert_array_equal(found, expected)


def test_an_error_of_a_job_is_raised_as_it_is(client, collections):
    with pytest.raises(ZeroDivisionError, match=r"^row 2800$"):
        passed(collections["zarr"], Gradient(fail_at=2_800))


def test_a_shuffled_copy_is_that_of_rows_in_memory(client, collections, tmp_path):
    far = [as_source(part) for part in collections["zarr"]]
    copies = shuffled_copy(far, ["f8", "?"], tmp_path)
    expected = shuffled_copy([as_source(X), as_source(Y)], ["f8", "?"], tmp_path)
    for copy, like in zip(copies, expected):
        np.testing.assert_array_equal(copy, like)


THETA = np.array([0.2, -0.1, 0.3])


@pytest.mark.parametrize("kind", ["zarr", "parquet"])
def test_the_gradient_of_a_model_survives_the_death_of_a_worker(client, collections, kind):
    """A worker compiles the gradient, or loads it; another takes over where one dies."""
    with pm.Model() as model:
        xb, yb = sg.Minibatch(*collections[kind])
        beta = pm.Normal("beta", 0, 2, shape=3)
        pm.Bernoulli("y", logit_p=xb @ beta, observed=yb, total_size=N)
    problem = Problem(model, population=Population("sample"))
    exact = X.T @ (Y - 1 / (1 + np.exp(-X @ THETA)))
    gradient, _ = problem.pass_over_all(THETA)
    assert gradient == pytest.approx(exact, rel=1e-10)
    killed = []

    def kill(share: float) -> None:
        if share > 0.3 and not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    again, _ = problem.pass_over_all(THETA, report=kill)
    assert killed and again == pytest.approx(gradient, rel=1e-12)
