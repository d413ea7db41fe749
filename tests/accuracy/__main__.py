# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Is `sg.sample()` right with nothing given? Against NUTS, on many kinds of model.

    python -m tests.accuracy [PART ...] [--write docs/accuracy.md]

PARTs are kinds, alarms, shapes, tighter, rivals, calibration, hierarchies, large, covtype, scaling, coverage, failures; all but rivals (see there) by default. costs is the part of hierarchies that needs no reference. A part may
name its rows, as in ``kinds:linear;logistic``. Results are kept in ``.cache/accuracy``, NUTS draws too (by
nutpie where it is installed); the page is made of all results that are there,
and of its old sections where there are none.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
from datetime import date
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor

from tests.accuracy import (
    alarms,
    calibration,
    hard,
    hierarchies,
    kinds,
    others,
    rivals,
    tighter,
)
from tests.accuracy.compare import CACHE

PARTS = {
    "kinds": (kinds.compare, kinds.KINDS),
    "alarms": (alarms.count, kinds.KINDS),
    "shapes": (hard.compare, tuple(hard.SHAPES)),
    "tighter": (tighter.compare, tuple(tighter.MODELS)),
    "rivals": (rivals.compare, rivals.KINDS),
    "calibration": (calibration.calibrate, tuple(calibration.MODELS)),
    "hierarchies": (hierarchies.measure, tuple(hierarchies.MODELS)),
    "costs": (hierarchies.cost, tuple(name for name in hierarchies.MODELS if "100000" not in name)),
    "large": (others.large, ("simulated",)),
    "covtype": (others.covtype, ("1 %", "all")),
    "scaling": (others.scaling, ("10000", "100000", "1000000")),
    "coverage": (others.coverage, ("linear",)),
    "failures": (others.failure, tuple(others.FAILURES)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    usual = [name for name in PARTS if name not in ("rivals", "costs")]
    parser.add_argument("parts", nargs="*", default=usual)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    for part in options.parts:
        name, _, only = part.partition(":")
        run(name, only.split(";") if only else PARTS[name][1])
    results = {name: load(name) for name in PARTS}
    text = page(results)
    if options.write and options.write.exists():
        text = with_sections_of(options.write.read_text(), text)
    print(text)
    if options.write:
        options.write.write_text(text)


def run(name: str, rows) -> None:
    for row in rows:
        found = PARTS[name][0](row)
        results = load(name)  # others may have written to it since
        results[row] = found
        print(json.dumps(results[row]), flush=True)
        (CACHE / f"{name}.json").write_text(json.dumps(results))


def load(name: str) -> dict:
    path = CACHE / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def table(rows: list[dict]) -> str:
    """Markdown, with the columns of all rows."""
    columns = list(dict.fromkeys(c for row in rows for c in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row.get(c, "")) for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def with_sections_of(old: str, new: str) -> str:
    """The new page; a section without results is that of the old page, or left out."""
    known = {part.partition("\n")[0]: part.strip() for part in old.split("\n## ")[1:]}
    head, *parts = new.split("\n## ")
    kept, older = [head.strip()], []
    for part in parts:
        title, empty = part.partition("\n")[0], table([]) in part
        if not empty or title in known:
            kept.append(known[title] if empty else part.strip())
            older += [f"*{title}*"] if empty else []
    made = re.search(r"on (\S+):.*?(PyMC \S+), ", old, re.DOTALL)
    if older and made:
        kept[0] += f"\n\nNot measured again, of {made[1]} with {made[2]}: {', '.join(older)}."
    return "\n\n## ".join(kept) + "\n"


def without_runs(row: dict) -> dict:
    return {k: v for k, v in row.items() if k != "runs"}


def silence(rows: list[dict]) -> str:
    """One sentence on all runs."""
    total = {kind: sum(row[kind] for row in rows) for kind in hard.VERDICTS}
    runs, quiet = sum(total.values()), total["wrong, silent"]
    right = total["right"] + total["right but warned"]
    return f"Of {runs} runs {right} were right and {quiet} silently wrong." if runs else ""


def alarmed(rows: list[dict]) -> str:
    """One sentence on all runs."""
    warned, runs = (sum(row[key] for row in rows) for key in ("warned", "seeds"))
    return f"Of {runs} runs {warned} were warned about." if runs else ""


def page(results: dict) -> str:
    """The page of the documentation."""
    found = {name: [rows[k] for k in PARTS[name][1] if k in rows] for name, rows in results.items()}
    speedups = [row["speed-up"] for row in found["kinds"]]
    median = (
        f"Median speed-up per effective draw: {np.median(speedups):.0f} times." if speedups else ""
    )
    return f"""# Agreement with NUTS

Made by `make accuracy` on {date.today()}: `sg.sample()` with no argument that tunes anything, 4 chains of 1,000 draws on 2
cores. PyMC {pm.__version__}, PyTensor {pytensor.__version__}, Python {platform.python_version()}. NUTS is nutpie with
its low-rank adaptation, on the full data, 4 chains of 1,000 draws after 500 to tune. Compilation, and loading of
compiled code, are left out on both sides.

## Kinds of model

{kinds.ROWS:,} simulated rows, minibatches of {kinds.BATCH}. Errors are the worst over all scalar parameters on the user's
scale, in posterior standard deviations of NUTS, beyond Monte Carlo error (2.5 standard errors of the difference); the raw
ones are given too. *Agrees* means: means within 0.1 sd, sds within 5 %, 5 % and 95 % quantiles within 0.15 sd, at least 400
effective draws. ESS/s counts set-up and sampling.

{table(found["kinds"])}

{median}

## False alarms

The same kinds, {alarms.SEEDS} seeds each, of the set-up and of the chains. *Warned* are runs with any warning at all. Of each run the check
that is nearest to its limit is looked at, as a share of that.

{table([without_runs(row) for row in found["alarms"]])}

{alarmed(found["alarms"])}

## Hard shapes

Posteriors that a Gaussian does not describe, {hard.SEEDS} seeds each, everything automatic, against NUTS on the different rows and
how often each is there. *Right* means the limits above; *told* are runs that `sg.sample` warned about. Errors are the worst
of all seeds; cost is rows visited for an effective draw of the worst parameter, in numbers of all rows.

{table([without_runs(row) for row in found["shapes"]])}

{silence(found["shapes"])}

## A smaller target

Set-up and sampling with `target_bias=0.01` beside the default of 0.03, everything else automatic, plain models; the half-step check is left out of the times. The default is the one that no model pays for
with more than it is worth: whoever wants the smaller error can ask for it.

{table(found["tighter"])}

## Beside approximations

Laplace and Pathfinder of pymc-extras and ADVI of PyMC (mean field, 30,000 steps), on some of the same shapes, with their defaults and one seed. They are given the different rows and how often each is there, so their seconds, compilation
included, are less than on all rows. *Told* means any warning; the limits of *right* are the same, but for effective draws.

{table(found["rivals"])}

## Simulation-based calibration

Parameters and data drawn from the prior, everything automatic, {calibration.DATA_SETS} data sets each: the rank of a parameter
among draws of its posterior is uniform if these are right. The smallest p-value is that of χ² on ten bins and of
Kolmogorov and Smirnov, over all parameters, times their number.

{table([without_runs(row) for row in found["calibration"]])}

## Hierarchies

Thousands of group effects, everything automatic. The cost of an effective draw (of the worst parameter, in time of two
threads) and of the set-up is in gradients over all rows, by the same code on one thread.

{table(found["hierarchies"])}

## Large data and real data

Logistic regression, 55 columns, Laplace prior, minibatches of 500. The simulated data are those of the speed benchmark; their
posterior sds are compared with the Laplace approximation at the posterior mean. CoverType has exactly collinear indicators,
some of them of a handful of rows. On 1 % of its rows NUTS is the reference (raw errors, Monte Carlo error included).

{table([*found["large"], *found["covtype"]])}

## Cost against N

The same logistic regression (10 columns, minibatches of 500) with more and more rows.

{table(found["scaling"])}

## Coverage

Linear regression on 5,000 rows, parameters drawn from the prior, two chains of 500 draws.

{table(found["coverage"])}

## Failing loudly

Models that the method cannot do.

{table(found["failures"])}
"""


if __name__ == "__main__":
    main()
