# SPDX-License-Identifier: Apache-2.0
"""What a smaller `target_bias` costs: set-up and sampling at 0.01 beside the default of 0.03."""

from __future__ import annotations

from functools import partial

from tests.accuracy.compare import min_ess, sample
from tests.accuracy.groups import gaussian, logistic, slopes
from tests.accuracy.kinds import KINDS as EASY
from tests.accuracy.kinds import ROWS
from tests.accuracy.shapes import SHAPES
from tests.models import build

MODELS = {
    **{kind.replace("_", " "): partial(build, kind, ROWS) for kind in EASY},
    **{
        name: lambda name=name: SHAPES[name]()[0]
        for name in ("logistic, rare, 1 event", "positive coefficient of 0, logistic", "truncated")
    },
    "Gaussian 1000 groups of 5 rows": gaussian,
    "intercepts and slopes LKJ 500 groups": slopes,
    "logistic 1000 groups": lambda: logistic(1000, 100_000),
}
BIASES = 0.03, 0.01


def compare(name: str) -> dict:
    """One row of the table."""
    row, seconds = {"model": name}, []
    for bias in BIASES:
        step, idata, said = sample(MODELS[name](), 1, target_bias=bias)
        sampling = idata["posterior"].attrs["sampling_time"]
        seconds.append(step.plan.seconds + sampling)
        free = [rv.name for rv in step.model.free_RVs]
        row |= {
            f"{bias}: rows": step.problem.batch_rows,
            f"{bias}: h": round(step.plan.step_size, 2),
            f"{bias}: min ESS": round(min_ess({v: idata["posterior"][v].values for v in free})),
            f"{bias}: set-up s": round(step.plan.seconds, 2),
            f"{bias}: sampling s": round(sampling, 2),
            f"{bias}: warnings": len(said),
        }
    return row | {"time ratio": round(seconds[1] / seconds[0], 1)}
