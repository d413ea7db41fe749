# SPDX-License-Identifier: Apache-2.0
"""What continues a run that is held in memory: a group of its result, which files keep too."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_sgcv.results.containers import Container, get_group, group_names
from pymc_sgcv.sampling.arguments import Asked
from pymc_sgcv.sampling.identity import model_identity
from pymc_sgcv.sampling.packing import pack, unpack
from pymc_sgcv.sampling.runs import Run
from pymc_sgcv.steps.base import StochasticGradientStep

GROUP, NAME = "sampler_state", "state"
_LARGE = 1e8
"""Bytes above which it is left out: tables of SAGA and large samples belong in a store."""


def what_continues(asked: Asked, step: StochasticGradientStep) -> dict[str, Any]:
    """What must be known of a run beside the chains themselves."""
    return {
        "method": type(step).__name__,
        "settings": step.settings,
        "plan": step.plan,
        "batch_size": step.settings.batch_size,
        "rows": [rows.stands_for for rows in step.problem.rows],
        "identity": model_identity(step.problem.target),
        "var_names": asked.names,
        "gradients": asked.gradients,
        "keep_tune": asked.keep_tune,
    }


def state_group(
    asked: Asked, step: StochasticGradientStep, runs: Sequence[Run]
) -> dict[str, xr.Dataset]:
    """The group with all that continues these chains; none if one is ahead of the others."""
    if len({run.done for run in runs}) > 1 or not all(run.begun for run in runs):
        return {}
    states = [run.chain.state(whole=True) for run in runs]
    arrays = [np.asarray(value) for state in states for value in state.values()]
    arrays += [array for sample in step.plan.layout.samples for array in sample.arrays]
    if sum(array.nbytes for array in arrays) > _LARGE:
        return {}
    chains = [
        {"chain": state, "shortened": run.shortened}
        for state, run in zip(states, runs, strict=True)
    ]
    file = io.BytesIO()
    pack(what_continues(asked, step) | {"chains": chains}, file)
    numbers = np.frombuffer(file.getbuffer(), dtype=np.uint8)
    return {GROUP: xr.Dataset({NAME: (("byte",), numbers)})}


def read_state_group(idata: Container) -> Any:
    """What `state_group` has packed, or an error that says that there is none."""
    if GROUP not in group_names(idata):
        raise ValueError(
            f"idata has no group '{GROUP}', so nothing continues its chains. Results of sg.sample "
            "have one, unless they were interrupted, are larger than 100 MB there, or were stored: "
            "pass the path of the store then."
        )
    try:
        return unpack(io.BytesIO(get_group(idata, GROUP)[NAME].values.tobytes()))
    except ValueError as error:
        raise ValueError(
            f"The group '{GROUP}' of idata cannot be read ({error}): it is damaged, or of another "
            "version of pymc_sgcv. Sample anew."
        ) from error
