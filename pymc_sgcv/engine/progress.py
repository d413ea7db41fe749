# SPDX-License-Identifier: Apache-2.0
"""What is being compiled, for those who wait for it.

Whoever shows something lends a function that takes a line; whatever compiles hands it one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.errors import LiveError
from rich.progress import Progress, TextColumn, TimeElapsedColumn

_PATIENCE = 0.5
"""Seconds before anything is shown: what is loaded takes less."""
_LISTENERS: list[Callable[[str], None]] = []


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Hand what is being compiled meanwhile to `listener`, and to no other one."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


def compiling(what: str) -> None:
    """Say that from now on `what` is compiled; an empty string: nothing any more."""
    if _LISTENERS:
        _LISTENERS[-1](what)


@contextmanager
def compilation_shown(show: bool) -> Iterator[None]:
    """Show a line like "compiling the gradient of y, 0:00:06" while anything takes so long."""
    line = _Line()
    with listening(line.say if show else lambda what: None):
        try:
            yield
        finally:
            line.say("")


class _Line:
    """A line with a clock, which appears if it stands long enough and then goes away."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self._bar: Progress | None = None
        self._lock = threading.Lock()

    def say(self, what: str) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None
            if what:
                self._timer = threading.Timer(_PATIENCE, self._appear, [what])
                self._timer.daemon = True
                self._timer.start()

    def _appear(self, what: str) -> None:
        with self._lock:
            if self._timer is threading.current_thread():
                columns = TextColumn("compiling {task.description},"), TimeElapsedColumn()
                bar = Progress(*columns, transient=True)
                with suppress(LiveError):  # the user's own display has the terminal
                    bar.start()
                    bar.add_task(what, total=None)
                    self._bar = bar
