# SPDX-License-Identifier: Apache-2.0
"""Refuse data that are not finite, before any work is done with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pytensor.graph.basic import Variable

from pymc_sgcv.model.target import Plate, Target
from pymc_sgcv.rows.minibatch import Scratch, row_gradients

_CHUNK_BYTES = 1 << 20
_ROWS = 1000


def refuse_nan(plate: Plate) -> None:
    """Raise an error that names the array of `plate` that holds a NaN."""
    for variable, array in zip(plate.data, plate.arrays(), strict=True):
        if array.dtype.kind == "f" and any(np.isnan(part).any() for part in _chunks(array)):
            raise _not_finite(plate, variable, array)


def refuse_infinite_rows(target: Target, scratches: Sequence[Scratch]) -> None:
    """Raise an error for infinite data, unless the gradients of their rows are finite.

    An infinite bound is the usual way to say that a row is not censored.
    """
    start = target.flatten(target.start)[None]
    for plate, scratch in zip(target.plates, scratches, strict=True):
        for variable, array in zip(plate.data, scratch.rows.arrays, strict=True):
            if array.dtype.kind != "f" or all(np.isfinite(part).all() for part in _chunks(array)):
                continue
            infinite = ~np.isfinite(array)
            rows = np.flatnonzero(infinite.reshape(len(infinite), -1).any(axis=1))
            gradients = np.empty((1, 1, target.size))
            for row in rows[:_ROWS]:
                row_gradients(scratch.record, start, int(row), gradients)
                if not np.isfinite(gradients).all():
                    raise _not_finite(plate, variable, array)


def _not_finite(plate: Plate, variable: Variable, array: np.ndarray) -> ValueError:
    label = variable.name or f"an array of shape {array.shape}"
    return ValueError(
        f"The data of '{plate.name}' ({label}) hold NaN or infinite values. Remove or impute those "
        "rows before building the model."
    )


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    step = max(1, _CHUNK_BYTES // max(array[:1].nbytes, 1))
    return (array[i : i + step] for i in range(0, len(array), step))
