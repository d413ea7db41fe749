# SPDX-License-Identifier: Apache-2.0
"""Where the loaders of `pymc_sgcv.datasets` look: a local copy, a download, look-alike data."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pymc_sgcv.errors import SGCVWarning

ENVIRONMENT = "SGCV_DATA"
LOCAL, DOWNLOAD, GENERATED = "local copy", "download", "generated look-alike"
_PATIENCE = 30.0
"""Seconds without a byte after which a download is given up."""

_log = logging.getLogger("pymc.sgcv")
Raw = TypeVar("Raw")


def look_up(
    what: str,
    names: Sequence[str],
    path: str | os.PathLike | None,
    read: Callable[[Path], Raw],
    fetch: Callable[[], Raw] | None,
    generate: Callable[[], Raw],
) -> tuple[Raw, str]:
    """Raw data and their source: `LOCAL`, `DOWNLOAD` or `GENERATED`, in that order of preference.

    Parameters
    ----------
    what
        The data's name, for messages.
    names
        File names to look for in a directory, the best first.
    path
        A file, or a directory that holds one of `names`. None: the directory in ``SGCV_DATA``.
    read, fetch, generate
        Read a local file; download (None: do not); make look-alike data.

    Examples
    --------
    >>> look_up("numbers", ["n.txt"], None, Path.read_text, lambda: "1 2 3", str)
    ('1 2 3', 'download')
    """
    found = local_copy(what, names, path)
    if found is not None:
        return read(found), LOCAL
    if fetch is not None:
        try:
            with _limited_patience():
                return fetch(), DOWNLOAD
        except Exception as problem:  # no network, no package, a changed address: never fatal
            _log.info("%s could not be downloaded: %s: %s", what, type(problem).__name__, problem)
    warnings.warn(
        f"There is neither a local copy of {what} nor a download: these are generated data of the "
        "same layout, and results say nothing about the real ones. Pass path=, or set the "
        f"environment variable {ENVIRONMENT} to a directory that holds {names[0]}.",
        SGCVWarning,
        stacklevel=3,
    )
    return generate(), GENERATED


def local_copy(what: str, names: Sequence[str], path: str | os.PathLike | None) -> Path | None:
    """The file named by `path`, or found by its name there or in ``SGCV_DATA``; else None.

    A `path` that leads nowhere is an error; a directory in ``SGCV_DATA`` without the file is not,
    since it may hold other data.
    """
    asked = path if path is not None else os.environ.get(ENVIRONMENT)
    if not asked:
        return None
    place = Path(asked).expanduser()
    if place.is_file() and path is not None:
        return place
    for name in names:
        if (place / name).is_file():
            return place / name
    if path is not None:
        raise FileNotFoundError(
            f"{what}: '{place}' is neither a file nor a directory with one of {', '.join(names)}."
        )
    _log.warning("%s: the directory in %s has none of %s.", what, ENVIRONMENT, ", ".join(names))
    return None


@contextmanager
def _limited_patience() -> Iterator[None]:
    """A network that swallows packets without an answer must not hang a notebook."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_PATIENCE)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
