# SPDX-License-Identifier: Apache-2.0
"""From Parquet files to a posterior, with sums over all rows on a cluster of two processes.

    pip install 'pymc-sgcv[dask,parquet]'
    python examples/cluster.py [--rows 2000000]

Writes trips of taxis to Parquet files in a temporary directory, so many rows to a file, and asks
how often a tip is paid, by the hour, the fare and a payment method that next to nobody uses.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import arviz as az
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pymc as pm
from distributed import Client, LocalCluster

import pymc_sgcv as sg

PREDICTORS = ["one", "night", "fare", "voucher"]
TRUTH = np.array([-0.4, 0.3, 0.25, -1.0])
PER_FILE = 250_000


def write(folder: Path, n_rows: int) -> None:
    """Simulated trips; one in 20,000 is paid with a voucher."""
    for number, start in enumerate(range(0, n_rows, PER_FILE)):
        rng = np.random.default_rng([1, number])
        n = min(PER_FILE, n_rows - start)
        X = np.ones((n, len(PREDICTORS)), np.float32)
        X[:, 1] = rng.random(n) < 0.3
        X[:, 2] = rng.standard_normal(n)
        X[:, 3] = rng.random(n) < 1 / 20_000
        tip = rng.random(n) < 1 / (1 + np.exp(-X @ TRUTH))
        pd.DataFrame(X, columns=PREDICTORS).assign(tip=tip).to_parquet(
            folder / f"{number:04d}.parquet"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.rows)
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster),
        ):
            trips = dd.read_parquet(f"{folder}/*.parquet")
            with pm.Model(coords={"predictor": PREDICTORS}):
                xb, yb = sg.Minibatch(trips[PREDICTORS], trips["tip"])
                beta = pm.Normal("beta", 0, 2, dims="predictor")
                pm.Bernoulli("tip", logit_p=xb @ beta, observed=yb, total_size=options.rows)
                idata = sg.sample(random_seed=1)
    attrs = idata["posterior"].attrs
    print(
        f"{options.rows:,} rows were read {attrs['data_passes']:.0f} times, and "
        f"{attrs.get('sampled_rows', options.rows):,} of them used for all the rest."
    )
    print(az.summary(idata, var_names=["beta"], kind="stats").assign(truth=TRUTH))


if __name__ == "__main__":
    main()
