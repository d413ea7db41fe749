# SPDX-License-Identifier: Apache-2.0
"""The files of a store that are written as a whole: their names, and whether one was cut off."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pymc_sgcv.sampling.packing import Damaged, OtherVersion, unpack

GROUP, ARRAY = "sampler", "chain"
PLAN, FILES, LOCK = "plan.npz", "files.npz", "lock"
METADATA = "zarr.json"
_REPLACED = ".npz", ".new", ".partial", LOCK


def read_file(path: Path, name: str) -> Any:
    """A plan or a state; an error that says so if the file is damaged."""
    file = path / GROUP / ARRAY / name
    try:
        return unpack(file)
    except OtherVersion as error:
        raise ValueError(
            f"{path} was written by another version of pymc_sgcv, in a form that this one cannot "
            f"read ({error}). Use that version, or another store."
        ) from error
    except Damaged as error:
        raise ValueError(
            f"{file} is damaged ({error}): the run cannot go on. Delete {path}, or give another "
            "store, to begin anew."
        ) from error


def check_size(file: Path, size: int) -> None:
    """An error unless the file is there and has so many bytes."""
    found = file.stat().st_size if file.exists() else 0
    if found != size:
        raise ValueError(
            f"{file} has {found} bytes, not {size}: it was cut off or deleted after it was "
            "written. Restore it, or delete the store and sample again."
        )


def check_files(path: Path) -> None:
    """See that all files that are written once are there in full."""
    if (path / GROUP / ARRAY / FILES).exists():
        for file, size in read_file(path, FILES)["sizes"].items():
            check_size(path / file, size)


def sizes_of(path: Path, groups: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Files and their sizes, but for blocks of draws."""
    for name in groups:
        for place, folders, files in os.walk(path / name):
            here = Path(place)
            if (here / METADATA).exists() and _dims(here)[1:2] == ["draw"]:
                folders[:] = []
            for file in files:
                if not file.endswith(_REPLACED):
                    found = here / file
                    yield found.relative_to(path).as_posix(), found.stat().st_size


def _dims(place: Path) -> list[str]:
    return json.loads((place / METADATA).read_text()).get("dimension_names") or []
