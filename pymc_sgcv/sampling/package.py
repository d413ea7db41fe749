# SPDX-License-Identifier: Apache-2.0
"""From what the chains have left to the container that `sample` returns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pymc as pm
import xarray as xr

from pymc_sgcv.errors import warn
from pymc_sgcv.results import containers
from pymc_sgcv.results.containers import Container
from pymc_sgcv.results.posterior import constant_data, observed_data
from pymc_sgcv.sampling.runs import Run
from pymc_sgcv.steps.base import StochasticGradientStep

_log = logging.getLogger("pymc.sgcv")


def with_draws(runs: list[Run], tune: int, interrupted: bool = True) -> list[Run]:
    """The chains that an interruption, or an end that was asked for, has left with draws."""
    found = [run for run in runs if run.done > tune]
    if not found and not interrupted:
        raise ValueError(
            "The run was stopped, or its time was up, before the first draw after tuning: there is "
            "nothing to return. A run in a store goes on with the same call."
        )
    if not found:
        raise KeyboardInterrupt("Sampling was interrupted before the first draw after tuning.")
    if len(found) < len(runs):
        _log.warning("%d of %d chains had no draws yet.", len(runs) - len(found), len(runs))
    return found


def warn_if_shortened(runs: list[Run], step_size: float | Callable) -> None:
    """Say which chains have diverged and begun again."""
    troubled = [run for run in runs if run.trouble]
    if troubled and not callable(step_size):
        shortest = min(run.shortened for run in troubled) * step_size
        warn(
            f"{len(troubled)} of {len(runs)} chains diverged ({troubled[0].trouble}) and were run "
            f"again with steps as short as {shortest:.2g}. Tails that need such steps may still be "
            "missing: take a larger batch_size and a smaller step_size, and compare."
        )


def package(
    step: StochasticGradientStep,
    groups: Mapping[str, xr.Dataset],
    attrs: Mapping,
) -> Container:
    """The container, with the model's own data."""
    for name in ("posterior", "sample_stats"):
        groups[name].attrs.update(attrs)
    return containers.new_container({**groups, **data_groups(step.model)})


def data_groups(model: pm.Model) -> dict[str, xr.Dataset]:
    """What was observed, and the model's data containers."""
    return {"observed_data": observed_data(model), "constant_data": constant_data(model)}


def attributes(step: StochasticGradientStep, tune: int) -> dict[str, Any]:
    """What is known of a result before there are draws."""
    from pymc_sgcv import __version__

    return {
        "inference_library": "pymc_sgcv",
        "inference_library_version": __version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "tuning_steps": tune,
        "step_method": step.name,
        "parameters": step.problem.size,
        "target_bias": step.settings.target_bias,
        **step.plan.attributes(),
    }
