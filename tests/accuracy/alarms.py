# SPDX-License-Identifier: Apache-2.0
"""False alarms: how often runs that are right are warned about, over many seeds."""

from __future__ import annotations

import numpy as np

import pymc_sgcv as sg
from tests.accuracy.compare import sample_anew
from tests.accuracy.kinds import BATCH, ROWS
from tests.models import build

SEEDS = 20


def count(kind: str) -> dict:
    """One row of the table: seeds of the set-up and of the chains, on the same rows."""
    said, shares = {}, []
    with build(kind, ROWS, BATCH):
        step = sg.SGLDCV(progressbar=False)
    for seed in range(1, SEEDS + 1):
        idata, warned = sample_anew(step, seed)
        if warned:
            said[seed] = warned
        table = sg.diagnose(idata)
        table = table[(table["limit"] > 0) & ~table.index.str.startswith(("ess", "r_hat"))]
        shares.append(float((table["value"].abs() / table["limit"]).max()))
    middle, most = np.median(shares), max(shares)
    return {
        "kind": kind.replace("_", " "),
        "seeds": SEEDS,
        "warned": len(said),
        "worst check, share of its limit": f"median {middle:.2f}, most {most:.2f}",
        "runs": said,
    }
