# SPDX-License-Identifier: Apache-2.0
"""A run in the background: how far it is, what it has, and how to end it."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from dataclasses import dataclass

from pymc_sgcv.results.containers import Container
from pymc_sgcv.sampling.driver import Sampling

_log = logging.getLogger("pymc.sgcv")


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes
    ----------
    done
        Draws of each chain so far, those of tuning included.
    total
        Draws that each will have.
    seconds
        Since the chains began.
    running
        Whether they still run.
    """

    done: tuple[int, ...]
    total: int
    seconds: float
    running: bool

    @property
    def share(self) -> float:
        """The part that is done, from 0 to 1."""
        return sum(self.done) / (self.total * len(self.done))

    def __str__(self) -> str:
        each = ", ".join(map(str, self.done))
        state = "running" if self.running else "ended"
        return f"{state}: {each} of {self.total} draws in {self.seconds:.0f} s ({self.share:.0%})"


_runs: weakref.WeakSet[BackgroundRun] = weakref.WeakSet()


def _wait_for_all() -> None:
    """What a script that ends waits for: the chains that are under way."""
    for run in list(_runs):
        try:
            run._thread.join()
        except KeyboardInterrupt:
            run._sampling.stop.set()
            run._thread.join()
        if run._error is not None and not run._told:
            _log.error("A run in the background ended with an error: %s", run._error)


# Later than this no thread can be made, as chains and Zarr need; `atexit` would be too late.
_at_exit = getattr(threading, "_register_atexit", atexit.register)
_at_exit(_wait_for_all)


class BackgroundRun:
    """What ``sample(blocking=False)`` returns: the chains run in threads of this process."""

    def __init__(self, sampling: Sampling):
        self._sampling = sampling
        self._error: BaseException | None = None
        self._result: Container | None = None
        self._began, self._seconds = time.perf_counter(), 0.0
        sampling.asked.progressbar = False
        sampling.record.watched = True
        self._thread = threading.Thread(target=self._run, name="pymc_sgcv run", daemon=True)
        self._told = False
        _runs.add(self)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._sampling.run()
        except BaseException as error:  # raised where the result is asked for
            self._error = error
        finally:
            self._seconds = time.perf_counter() - self._began
            self._sampling.close()

    @property
    def progress(self) -> Progress:
        """How far it is."""
        runs, running = self._sampling.runs, self._thread.is_alive()
        seconds = time.perf_counter() - self._began if running else self._seconds
        return Progress(tuple(run.done for run in runs), runs[0].total, seconds, running)

    def inspect(self) -> Container:
        """The draws that there are, as far as all chains have come; the run goes on."""
        if not self._thread.is_alive():
            return self.wait()
        return self._sampling.inspect()

    def stop(self) -> Container:
        """End the run and return the draws that there are.

        A run in a store goes on with the same call of ``sample``.
        """
        self._sampling.stop.set()
        return self.wait()

    def wait(self, timeout: float | None = None) -> Container:
        """Wait for the end, `timeout` seconds at most, and return the result.

        An error in a chain is raised here.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"The run has not ended after {timeout} s ({self.progress}).")
        self._told = True
        if self._error is not None:
            raise self._error
        if self._result is None:
            self._result = self._sampling.result()
        return self._result

    def __repr__(self) -> str:
        return f"<BackgroundRun {self.progress}>"
