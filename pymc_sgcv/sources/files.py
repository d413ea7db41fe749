# SPDX-License-Identifier: Apache-2.0
"""Whether files are still those that were opened."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


class Files:
    """Sizes and times of files, as they were when they were opened."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._stamps = {path: _stamp(path) for path in paths}

    def check(self) -> None:
        """Raise an error that names the first file which is another one now."""
        for path, stamp in self._stamps.items():
            if (now := _stamp(path)) == stamp:
                continue
            how = "is no longer there" if now is None else "changed"
            raise RuntimeError(
                f"The file {path} {how} since it was opened. What was computed from its rows does "
                "not hold any more: open the data again, and begin anew."
            )


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns
