# SPDX-License-Identifier: Apache-2.0
"""Draws on disk: written block by block while chains run, opened lazily afterwards."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from pymc_sgcv.results import containers
from pymc_sgcv.results.containers import Container
from pymc_sgcv.results.groups import UNCONSTRAINED
from pymc_sgcv.sampling.files import ARRAY, GROUP, PLAN, check_files, check_size
from pymc_sgcv.sampling.packing import Damaged, peek
from pymc_sgcv.sampling.record import Part, Record
from pymc_sgcv.sampling.runs import Run
from pymc_sgcv.sampling.store import ATTRS, FORMAT, Store, zarr_package

_BLOCK_NUMBERS = 1 << 19
"""Numbers in a block of draws and what is computed from it: files of some MB."""
_SAVE_SECONDS = 5.0
"""A block that takes longer is stored before it is whole."""
_SHARE = 0.02
"""So much of the time may go into storing states."""
_CHECKSUM_BYTES = 4


class StoredRecord(Record):
    """A `Record` whose arrays are in a store, and that keeps what it takes to go on.

    Parameters
    ----------
    store
        Where; its arrays are there after `open_arrays`.
    sizes
        `piece` and `block`, if they are decided already.
    """

    def __init__(self, store: Store, sizes: Mapping[str, int] | None, *args: Any, **kwargs: Any):
        self.store, self._sizes = store, sizes
        super().__init__(*args, **kwargs)
        self._saved = [time.perf_counter()] * self.chains
        self._cost = [0.0] * self.chains
        self._before, self._began = 0.0, time.perf_counter()

    @cached_property
    def piece(self) -> int:
        """As it was when the run began."""
        return super().piece if self._sizes is None else self._sizes["piece"]

    @cached_property
    def block(self) -> int:
        """Pieces that fill files of some MB, no more than are asked for."""
        if self._sizes is not None:
            return self._sizes["block"]
        computed = sum(math.prod(shape) for shape in self.transform.shapes.values())
        most = _BLOCK_NUMBERS // (self.target.size + computed) // self.piece
        needed = -(-max(self.total - self.tune, self.tune) // self.piece)
        return self.piece * max(1, min(most, needed))

    def make_parts(self) -> dict[str, Part]:
        """None until the store has arrays."""
        return {}

    def templates(self) -> dict[str, xr.Dataset]:
        """The groups that the store will have, with all dims and coords and no memory."""

        def make(group: str, name: str, shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
            return np.broadcast_to(np.zeros((), kind), shape)

        groups: dict[str, xr.Dataset] = {}
        for prefix, (start, stop) in self.spans.items():
            part = Part(self, start, stop, make)
            groups |= {prefix + name: ds for name, ds in part.groups(stop - start).items()}
        return groups

    def shared(self) -> dict[str, str]:
        """Arrays of `templates` that are others by another name, as paths in the store."""
        same = {v: n for n, v in self.transform.same.items()}
        kinds = self.transform.dtypes
        return {
            f"{prefix}{UNCONSTRAINED}/{p.name}": f"{prefix}posterior/{same[p.name]}"
            for prefix in self.spans
            for p in self.values
            if p.name in same and kinds[same[p.name]] == np.float64
        }

    def open_arrays(self) -> None:
        """Take up the arrays of the store."""
        for prefix, span in self.spans.items():

            def make(group: str, name: str, *_: Any, prefix: str = prefix) -> Any:
                return self.store.array(prefix + group, name)

            self.parts[prefix] = Part(self, *span, make, share=self.store.shares)

    def put(self, chain: int, first: int, *block: Any) -> None:
        """Write a block of draws; it counts from the next state on."""
        self.store.check()
        with self.store.told():
            super().put(chain, first, *block)

    def save(self, run: Run, now: bool = False) -> None:
        """Store the run's state, not so often that it takes long: with it count its draws."""
        i, began = run.number, time.perf_counter()
        whole = run.first == run.done
        wait = max(self._cost[i] / _SHARE, 0.0 if whole else _SAVE_SECONDS)
        if not now and began - self._saved[i] < wait:
            return
        if not whole and not now:
            run.hand_over()
        self.store.save(i, run.state() | self.state(i) | {"seconds": self.seconds})
        self._saved[i] = time.perf_counter()
        self._cost[i] = self._saved[i] - began

    def forget(self, run: Run) -> None:
        """Let a chain begin anew, also after this process has died."""
        super().forget(run)
        self.save(run, now=True)

    def resume(self, chain: int, state: Mapping[str, Any]) -> None:
        """Take up what has been stored of a chain."""
        super().resume(chain, state)
        self._before = max(self._before, state["seconds"])

    def start_clock(self) -> None:
        """Let time count from now on."""
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long chains have run, today and before."""
        return self._before + time.perf_counter() - self._began


def open_run(path: str | os.PathLike) -> Container:
    """Open what ``sg.sample(store=path)`` has stored, while it runs or afterwards.

    Nothing is read before it is asked for: the result can be larger than memory. It holds the draws
    that all chains have made; a chain without any is left out.

    Parameters
    ----------
    path
        The store.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The groups that ``sg.sample`` returns, as lazy arrays. ``.load()`` brings one into memory.

    Examples
    --------
    >>> import pymc as pm, pymc_sgcv as sg, tempfile
    >>> x = np.linspace(-1, 1, 200)
    >>> path = tempfile.mkdtemp() + "/run.zarr"
    >>> with pm.Model():
    ...     slope = pm.Normal("slope", 0, 1)
    ...     y = pm.Normal("y", slope * x, 0.5, observed=2 * x)
    ...     idata = sg.sample(500, chains=2, random_seed=1, store=path, progressbar=False)
    >>> print(sg.open_run(path)["posterior"]["slope"].shape)
    (2, 500)
    """
    path = Path(path)
    attrs = attributes_of(path)
    own, done = attrs.pop(ATTRS), draws_done(path)
    chains = [i for i, n in enumerate(done) if n > own["tune"]]
    if not chains:
        raise ValueError(f"{path} holds no draws yet.")
    groups = {}
    for name, variables in own["groups"].items():
        dataset = _opened(path, name, variables)
        if "draw" in dataset.dims:
            length = min(done[i] for i in chains)
            length = min(length, own["tune"]) if name.startswith("warmup_") else length
            length -= 0 if name.startswith("warmup_") else own["tune"]
            dataset = dataset.isel(chain=chains, draw=slice(length))
            _check_files(path / name, dataset, chains, length, own["block"])
        groups[name] = dataset
    for name in ("posterior", "sample_stats"):
        groups[name].attrs.update({**attrs, "store": str(path.resolve())})
    return containers.new_container(groups)


def _opened(path: Path, group: str, variables: Sequence[str]) -> xr.Dataset:
    """One group, as lazy arrays."""

    def opened(**how: Any) -> xr.Dataset:
        return xr.open_dataset(
            path, engine="zarr", group=group, consolidated=False, chunks=None, cache=False, **how
        )

    try:
        return opened()[list(variables)]
    except ValueError as error:
        if "conflicting sizes" not in str(error):
            raise
    # A process died while it made room for more draws: some arrays are longer than others.
    apart = [opened(drop_variables=["draw", *(set(variables) - {v})])[[v]] for v in variables]
    draws = min(one.sizes["draw"] for one in apart)
    whole = xr.merge([one.isel(draw=slice(draws)) for one in apart])
    return whole.assign_coords(draw=np.arange(draws))


def attributes_of(path: Path) -> dict[str, Any]:
    """The attributes of a store; an error if there is none, or one of another version."""
    if not (path / GROUP / ARRAY / PLAN).exists():
        raise FileNotFoundError(f"{path} holds no run of this package.")
    try:
        attrs = dict(zarr_package().open_group(path, mode="r").attrs)
        attrs[ATTRS]["format"]
    except (ValueError, KeyError, FileNotFoundError) as error:
        raise ValueError(
            f"{path / 'zarr.json'} is damaged ({error}). Restore it, or delete the store and "
            "sample again."
        ) from error
    if attrs[ATTRS]["format"] != FORMAT:
        raise ValueError(
            f"{path} was written by pymc_sgcv {attrs.get('inference_library_version')}, in a "
            "form that this version cannot read. Use that one."
        )
    check_files(path)
    return attrs


def draws_done(path: Path) -> list[int]:
    """How many draws of each chain count, those of tuning included."""
    root = zarr_package().open_group(path, mode="r")
    files = [path / GROUP / ARRAY / f"{i}.npz" for i in range(root[GROUP][ARRAY].shape[0])]
    try:
        return [peek(file, "done") if file.exists() else 0 for file in files]
    except Damaged as error:
        raise ValueError(f"{path} is damaged: {error}.") from error


def _check_files(
    place: Path, dataset: xr.Dataset, chains: list[int], length: int, block: int
) -> None:
    """See that every block is there in full; what is in it has a checksum of its own."""
    for name, array in dataset.data_vars.items():
        if "draw" not in array.dims or not array.size:
            continue
        rest = math.prod(array.shape[2:]) * array.dtype.itemsize
        tail = ["0"] * (array.ndim - 2)
        for chain in chains:
            for k in range(-(-length // block)):
                file = place.joinpath(str(name), "c", str(chain), str(k), *tail)
                check_size(file, block * rest + _CHECKSUM_BYTES)
