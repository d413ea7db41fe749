# SPDX-License-Identifier: Apache-2.0
"""A run on disk: a Zarr hierarchy of draws, and beside it the plan and each chain's state.

Everybody can open the draws with xarray. What it takes to go on are files in the directory of one
of its arrays, where Zarr does not look:

``plan.npz``
    What was decided before sampling, and what the run is. A directory without it holds no run.
``<chain>.npz``
    The chain's state after so many draws, replaced by renaming. Whatever the arrays hold beyond
    these draws counts for nothing, so a block is complete or absent.
``files.npz``
    The sizes of all files that are written once: metadata, coordinates, the model's own data.
``lock``
    Held by the process that writes; the system lets go of it when that process dies.

Every chunk and every file carries a checksum.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from filelock import FileLock, Timeout

from pymc_sgcv.sampling.files import (
    ARRAY,
    FILES,
    GROUP,
    LOCK,
    METADATA,
    PLAN,
    read_file,
    sizes_of,
)
from pymc_sgcv.sampling.packing import pack

if TYPE_CHECKING:
    import zarr

FORMAT = 1
"""Of plans and states: another one cannot be continued."""
ATTRS = "pymc_sgcv"
_CONFIG: Any = {
    "write_empty_chunks": True
}  # a missing chunk is a fault, not a chunk of fill values


def zarr_package() -> Any:
    """The package zarr, which is needed here alone."""
    try:
        found: Any = import_module("zarr")
    except ImportError:
        found = None
    if found is None or int(found.__version__.split(".")[0]) < 3:
        raise ImportError('store needs Zarr 3: pip install "pymc-sgcv[io]".')
    return found


class Store:
    """The directory of one run, for the one process that writes it."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.place = self.path / GROUP / ARRAY
        self._identity: tuple[int, int] | None = None
        zarr_package()
        with self.told():
            if self.path.exists() and not self.place.exists() and any(_entries(self.path)):
                raise ValueError(
                    f"{self.path} exists and holds no run of this package. Give another store."
                )
            self.place.mkdir(parents=True, exist_ok=True)
            # a run in the background lets go of it in a thread of its own
            self._lock = FileLock(self.place / LOCK, timeout=0, thread_local=False)
            try:
                self._lock.acquire()
            except Timeout:
                raise RuntimeError(
                    f"{self.path} is being written by another run, in this or another process. "
                    "Wait until it has ended, or give another store."
                ) from None
        self._identity = self._stamp()

    def _stamp(self) -> tuple[int, int] | None:
        """What tells the plan's file from another one in the same place."""
        try:
            found = os.stat(self.place / PLAN)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Say of an error that the system has with files what it means for the run."""
        try:
            yield
        except OSError as error:
            if isinstance(error, _Told):
                raise
            if self._identity is not None:
                self.check()  # what was deleted is not safe
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise _Told(
                error.errno,
                f"The store {self.path} cannot be written: {reason}. What was stored before is "
                "safe in it; when there is room, or permission, the same call goes on from there",
            ) from error

    @property
    def begun(self) -> bool:
        """Whether there is a run in it."""
        return (self.place / PLAN).exists()

    @property
    def shares(self) -> bool:
        """Whether what is the same has the same files."""
        return zarr_package().open_group(self.path, mode="r").attrs[ATTRS]["shares"]

    def close(self) -> None:
        """Let others write."""
        self._lock.release()

    def create(
        self,
        plan: Mapping,
        groups: Mapping[str, xr.Dataset],
        attrs: Mapping,
        block: int,
        tune: int,
        shared: Mapping[str, str],
    ) -> None:
        """Make the arrays, of the shape of those in `groups`, and last the plan.

        Of those that are `shared`, one's files are a link to the other's.
        """
        zarr = zarr_package()
        with self.told():
            for entry in _entries(self.path):  # what a run that did not get so far has left
                if entry.name != GROUP and (entry / METADATA).exists():
                    shutil.rmtree(entry)
            (self.path / METADATA).unlink(missing_ok=True)
            root = zarr.open_group(self.path, mode="a", zarr_format=3)
            chains = next(iter(groups.values())).sizes["chain"]
            _write(xr.Dataset(coords={ARRAY: np.arange(chains)}), self.path, GROUP)
            for name, dataset in groups.items():
                data = [v for v in dataset.data_vars if "draw" in dataset[v].dims]
                _write(dataset.drop_vars(data), self.path, name)
                for variable in data:
                    _create(root[name], str(variable), dataset[variable], block)
            linked = [_link(self.path, *pair) for pair in shared.items()]
            names = {name: list(dataset.data_vars) for name, dataset in groups.items()}
            root.attrs[ATTRS] = {
                "format": FORMAT,
                "block": block,
                "tune": tune,
                "groups": names,
                "shares": all(linked),
            }
            root.attrs.update(attrs)
            self._write_sizes()
            self.write_plan(plan)

    def _write_sizes(self) -> None:
        """Store the sizes of the files that are not written again."""
        names = zarr_package().open_group(self.path, mode="r").attrs[ATTRS]["groups"]
        self._replace(FILES, {"sizes": dict(sizes_of(self.path, [*names, GROUP]))})

    def write_plan(self, plan: Mapping) -> None:
        """Store the plan, in place of an earlier one."""
        self._replace(PLAN, plan)
        self._identity = self._stamp()

    def read_plan(self) -> Any:
        """What `write_plan` has stored."""
        return self._read(PLAN)

    def grow(self, groups: Mapping[str, xr.Dataset]) -> None:
        """Make room for as many draws as `groups` have."""
        with self.told():
            (self.place / FILES).unlink(missing_ok=True)  # until it is true again
            for name, dataset in groups.items():
                n = dataset.sizes["draw"]
                for variable in dataset.data_vars:
                    array = self.array(name, str(variable))
                    array.resize((array.shape[0], n, *array.shape[2:]))
                draw = self.array(name, "draw")
                draw.resize((n,))
                draw[:] = np.arange(n)
            self._write_sizes()

    def array(self, group: str, name: str) -> zarr.Array:
        """An array to write to."""
        path = self.path / group / name
        return zarr_package().open_array(path, mode="r+", zarr_format=3, config=_CONFIG)

    def save(self, chain: int, state: Mapping) -> None:
        """Store a chain's state in place of the one before: from now on its draws count."""
        self.check()
        self._replace(f"{chain}.npz", state)

    def load(self, chain: int) -> Any:
        """The last state of a chain, or None."""
        return self._read(f"{chain}.npz") if (self.place / f"{chain}.npz").exists() else None

    def check(self) -> None:
        """See that the store is still there."""
        if self._identity is None or self._stamp() != self._identity:
            raise FileNotFoundError(
                f"The store {self.path} was deleted or replaced while the run went on: there is "
                "nothing left to go on from."
            )

    def set_attrs(self, attrs: Mapping) -> None:
        """Add to the attributes of the whole."""
        self.check()
        with self.told():
            zarr_package().open_group(self.path, mode="r+").attrs.update(attrs)

    def _replace(self, name: str, value: Mapping) -> None:
        with self.told():
            new = self.place / f"{name}.new"
            try:
                with open(new, "wb") as file:
                    pack(value, file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(new, self.place / name)
            except BaseException:
                new.unlink(missing_ok=True)
                raise

    def _read(self, name: str) -> Any:
        return read_file(self.path, name)


class _Told(OSError):
    """One that says what it means."""

    def __str__(self) -> str:
        return f"{self.strerror}."


def _link(path: Path, one: str, other: str) -> bool:
    """Let the chunks of one array be those of another; False where there are no links."""
    chunks, there = path / one / "c", path / other / "c"
    try:
        there.mkdir(exist_ok=True)
        chunks.symlink_to(os.path.relpath(there, chunks.parent), target_is_directory=True)
    except OSError:
        return False
    return True


def _entries(path: Path) -> Iterator[Path]:
    return path.iterdir() if path.is_dir() else iter([path])


def _write(dataset: xr.Dataset, path: Path, group: str) -> None:
    odd = [dim for dim, labels in dataset.coords.items() if labels.dtype == object]
    texts = {dim: (dim, list(map(str, dataset[dim].values))) for dim in odd}  # intervals, tuples
    dataset = dataset.assign_coords(texts)
    with warnings.catch_warnings():  # of how strings are stored
        warnings.simplefilter("ignore")
        dataset.to_zarr(path, group=group, mode="a", zarr_format=3, consolidated=False)


def _create(group: zarr.Group, name: str, like: xr.DataArray, block: int) -> None:
    """An array of chunks that one block of one chain fills, each with a checksum."""
    from zarr.codecs import Crc32cCodec

    kind = like.dtype
    group.create_array(
        name,
        shape=like.shape,
        chunks=(1, block, *(max(1, n) for n in like.shape[2:])),
        dtype=kind,
        fill_value=np.nan if kind.kind == "f" else kind.type(0),
        compressors=[Crc32cCodec()],
        dimension_names=[str(dim) for dim in like.dims],
        overwrite=True,
        config=_CONFIG,
    )
