# SPDX-License-Identifier: Apache-2.0
"""Progress of all chains, as bars or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from pymc_sgcv.sampling.runs import Run


def make_bars(show: bool) -> Progress:
    """One line for each chain, if they are to be shown."""
    return Progress(
        TextColumn("Chain {task.fields[chain]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("draws, {task.fields[speed]:,.0f} iterations/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        disable=not show,
    )


def show_progress(bars: Progress, tasks: list[TaskID], runs: Sequence[Run], seconds: float) -> None:
    """Bring every chain's bar up to date."""
    for task, run in zip(tasks, runs, strict=True):
        speed = run.done * run.plan.thin / max(seconds, 1e-9)
        bars.update(task, completed=run.done, speed=speed)
