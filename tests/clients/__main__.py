# SPDX-License-Identifier: Apache-2.0
"""Build models as other packages do, sample them, and print what happened: ``make clients``.

``make clients ARGS="bambi_gaussian dims"`` takes cases, or parts of their names; ``--rows`` sets
their size, and ``--reference`` samples with NUTS too and compares.
"""

from __future__ import annotations

import argparse
import time
import traceback
import warnings

import arviz as az
import numpy as np
import pymc as pm

import pymc_sgcv as sg
from tests.clients.cases import CASES


def main() -> None:
    arguments = _arguments()
    chosen = [n for n in CASES if not arguments.cases or any(p in n for p in arguments.cases)]
    print("| case | d | set-up and sampling, CPU s | least ESS | worst R-hat | warnings |", end="")
    print(" means apart, sd | ratio of sds |" if arguments.reference else "")
    print("|---|---|---|---|---|---|" + ("---|---|" if arguments.reference else ""))
    for name in chosen:
        print(f"| {name} | {_outcome(name, arguments)} |", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="cases, or parts of their names")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--reference", action="store_true", help="compare with NUTS")
    parser.add_argument("--trace", action="store_true", help="show where a case fails")
    return parser.parse_args()


def _outcome(name: str, arguments: argparse.Namespace) -> str:
    """A row of the table, or why there is none."""
    quiet = {"progressbar": False, "random_seed": 1}
    try:
        model = CASES[name](arguments.rows)
        began = time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", sg.SGCVWarning)
            names = [rv.name for rv in model.free_RVs]
            idata = sg.sample(arguments.draws, var_names=names, model=model, **quiet)
        seconds = time.process_time() - began
        told = sum(issubclass(w.category, sg.SGCVWarning) for w in caught)
        table = az.summary(idata, var_names=names, round_to="none")
        size = idata["posterior"].attrs["parameters"]
        cells = [size, f"{seconds:.0f}", f"{float(table['ess_bulk'].min()):.0f}"]
        cells += [f"{float(table['r_hat'].max()):.3f}", told]
        if arguments.reference:
            cells += _apart(model, names, table, arguments.draws, quiet)
        return " | ".join(map(str, cells))
    except Exception as error:  # the table goes on, whatever a model does
        if arguments.trace:
            traceback.print_exc()
        return f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"


def _apart(model, names, table, draws, quiet) -> list[str]:
    """The largest difference of means in sds, and the ratio of sds that is furthest from one."""
    with model:
        idata = pm.sample(draws, chains=2, var_names=names, **quiet)
    right = az.summary(idata, var_names=names, round_to="none")
    mean, sd = right["mean"].astype(float), right["sd"].astype(float)
    ratio = table["sd"].astype(float) / sd
    furthest = ratio.iloc[int(np.argmax(np.abs(np.log(ratio))))]
    return [f"{((table['mean'].astype(float) - mean).abs() / sd).max():.2f}", f"{furthest:.2f}"]


if __name__ == "__main__":
    main()
