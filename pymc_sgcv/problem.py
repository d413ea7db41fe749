# SPDX-License-Identifier: Apache-2.0
"""A model ready to be sampled: read, proven, compiled, its data laid out in memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pymc as pm

from pymc_sgcv.compile import compile_target
from pymc_sgcv.model import read_model
from pymc_sgcv.proof import prove_rows
from pymc_sgcv.rows import FULL_TABLE, FUNCTION, RECORD_LENGTH, SUBSAMPLING, Rows, add_row_sum

_FINITE_CHUNK = 1 << 16
_PARTS = 16
"""Full passes are summed in this many parts, whatever the cores, for the same result."""


@dataclass(frozen=True)
class Layout:
    """How minibatches are drawn: their rows, and per plate their size and the rows' weights."""

    subsampling: str
    batch_sizes: tuple[int, ...]
    weights: tuple[np.ndarray | None, ...]

    @property
    def weighted(self) -> bool:
        """Whether some rows are drawn more often than others."""
        return any(weights is not None for weights in self.weights)


class Problem:
    """Gradients of a model's log posterior over any rows of its data.

    Parameters
    ----------
    model
        The PyMC model.
    values
        Value variables to sample (default: all).
    batch_size
        Rows per minibatch, or ``"auto"``; default: what ``pm.Minibatch`` was given, or automatic.
    subsampling
        ``"block"``, ``"without"`` or ``"iid"``.
    weights
        Row probabilities for ``"iid"``: an array, or one per observed variable by name.
    compile_kwargs
        Passed on to ``pytensor.function``.
    layout
        How an earlier `Problem` of this model was laid out: its rows need no proof then.
    """

    def __init__(
        self,
        model: pm.Model,
        values: Sequence | None = None,
        batch_size: int | str | None = None,
        subsampling: str = "block",
        weights: np.ndarray | dict[str, np.ndarray] | None = None,
        compile_kwargs: dict | None = None,
        layout: Layout | None = None,
    ):
        if subsampling not in SUBSAMPLING:
            raise ValueError(f"subsampling must be one of {SUBSAMPLING}, not {subsampling!r}.")
        self.model = model
        self.subsampling = subsampling
        self._batch_size = batch_size
        self.target = read_model(model, values, batch_size)
        self._given_weights = weights
        self._sources = self._present_data()
        for plate in self.target.plates:
            _check_arrays(plate)
            self._weights_of(plate)
        if layout is None:
            prove_rows(self.target)
        self.functions = compile_target(self.target, compile_kwargs)
        self.others = {v.name: self.target.start[v.name] for v in self.target.others}
        self.lay_out(layout or self.first_layout())

    @property
    def size(self) -> int:
        """d, the number of unconstrained parameters."""
        return self.target.size

    @property
    def n_rows(self) -> int:
        """All rows of all plates."""
        return sum(rows.n_rows for rows in self.rows)

    @property
    def batch_rows(self) -> int:
        """Rows that one minibatch of every plate holds together."""
        return sum(rows.batch_size for rows in self.rows)

    @property
    def chooses_batch(self) -> bool:
        """Whether the batch size is left to the set-up."""
        plain = not any(plate.minibatched for plate in self.target.plates)
        return self._batch_size == "auto" or (self._batch_size is None and plain)

    def first_layout(self) -> Layout:
        """What the model and the user say."""
        plates = self.target.plates
        return Layout(
            self.subsampling,
            tuple(plate.batch_size for plate in plates),
            tuple(self._weights_of(plate) for plate in plates),
        )

    def lay_out(self, layout: Layout) -> None:
        """Put the data where minibatches are drawn from."""
        self.layout = layout
        self.rows = self._full = ()  # let go of an earlier copy before making the next
        prior = self.functions.prior
        self._prior_fixed = prior.fixed_values(self.others)
        self._prior_table = prior.arguments([], self._prior_fixed)
        self.prior = np.zeros(RECORD_LENGTH, dtype=np.intp)
        self.prior[FUNCTION] = prior.address
        self.prior[FULL_TABLE] = self._prior_table.ctypes.data
        self.rows = [
            Rows(
                gradient,
                plate.arrays(),
                gradient.fixed_values(self.others),
                n,
                layout.subsampling,
                weights,
            )
            for plate, gradient, n, weights in zip(
                self.target.plates,
                self.functions.plates,
                layout.batch_sizes,
                layout.weights,
                strict=True,
            )
        ]
        self._full = [rows.scratch() for rows in self.rows]

    def _weights_of(self, plate) -> np.ndarray | None:
        weights = self._given_weights
        if isinstance(weights, dict):
            names = [name for p in self.target.plates for name in p.observed]
            unknown = sorted(set(weights) - set(names))
            if unknown:
                raise ValueError(f"weights names {unknown}, but the likelihoods are {names}.")
            weights = next((weights[name] for name in plate.observed if name in weights), None)
        elif weights is not None and len(self.target.plates) > 1:
            raise ValueError(
                "weights must be a dict by observed variable when there are several minibatched "
                f"likelihoods: {[p.name for p in self.target.plates]}."
            )
        if weights is None:
            return None
        weights, n_rows = np.asarray(weights, dtype=float), len(plate.arrays()[0])
        if weights.shape != (n_rows,):
            raise ValueError(
                f"weights for '{plate.name}' must have one entry per row, shape ({n_rows},), "
                f"not {weights.shape}."
            )
        if not (np.isfinite(weights).all() and (weights > 0).all()):
            raise ValueError(f"weights for '{plate.name}' must all be finite and positive.")
        return weights

    def _present_data(self) -> list:
        """The arrays behind shared data, to see whether ``pm.set_data`` has replaced them."""
        shared = [v for p in self.target.plates for v in p.data if hasattr(v, "get_value")]
        shared += [v for v in self.model.data_vars if hasattr(v, "get_value")]
        return [v.get_value(borrow=True) for v in shared]

    def refresh(self) -> bool:
        """Take up data replaced by ``pm.set_data`` since last time; say whether there were any."""
        present = self._present_data()
        if all(a is b for a, b in zip(present, self._sources, strict=True)):
            return False
        self.target = read_model(self.model, self.target.values, self._batch_size)
        for plate in self.target.plates:
            _check_arrays(plate)
        self._sources = present
        self.lay_out(self.first_layout())
        return True

    def set_others(self, point: dict[str, np.ndarray]) -> None:
        """Take up values of the variables that other step methods sample."""
        self.others = {v.name: point[v.name] for v in self.target.others}
        self._prior_fixed = self.functions.prior.fixed_values(self.others)
        self._prior_table[:] = self.functions.prior.arguments([], self._prior_fixed)

    def constrained(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Values of the sampled variables on the model's own scale, by name."""
        values = self._constrain(
            {k: np.asarray(v) for k, v in self.target.unflatten(theta).items()}
        )
        names = [p.rv_name for p in self.target.parameters]
        return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}

    @cached_property
    def _constrain(self):
        values = list(self.target.values)
        graphs = self.model.replace_rvs_by_values([self.model.values_to_rvs[v] for v in values])
        return self.model.compile_fn(
            graphs, inputs=values, mode="FAST_COMPILE", on_unused_input="ignore"
        )

    def prior_gradient(self, points: np.ndarray) -> np.ndarray:
        """∇ℓ₀ at each of `points`."""
        points, out = np.ascontiguousarray(points, dtype=float), np.zeros(np.shape(points))
        for i in range(len(points)):
            add_row_sum_of_prior(self.prior, points[i : i + 1], out[i : i + 1])
        return out

    def likelihood_gradient(
        self, points: np.ndarray, fraction: float = 1.0, cores: int | None = None
    ) -> np.ndarray:
        """Σᵢ ∇ℓᵢ at each of `points`: over all rows, or scaled up from a fraction of them.

        The rows of a fraction are evenly spread blocks, the same at every call.
        """
        points = np.ascontiguousarray(points, dtype=float)
        jobs = [
            (record, start, stop, weight, piece)
            for scratch in self._full
            for record, start, stop, weight, piece in _parts(scratch, fraction)
        ]

        def work(job):
            record, start, stop, weight, piece = job
            out = np.zeros(points.shape)
            add_row_sum(record, points, start, stop, np.full(piece, weight), out)
            return out

        with ThreadPoolExecutor(cores or os.cpu_count()) as pool:
            return sum(pool.map(work, jobs), np.zeros(points.shape))

    def gradient(self, points: np.ndarray, fraction: float = 1.0) -> np.ndarray:
        """∇ log posterior at each of `points`, from all rows or a fraction of them."""
        return self.prior_gradient(points) + self.likelihood_gradient(points, fraction)


def _parts(scratch, fraction: float):
    rows = scratch.rows
    bounds = np.linspace(0, rows.n_rows, min(_PARTS, rows.n_rows) + 1).astype(int)
    piece = max(16, min(rows.n_rows, (1 << 18) // max(rows.row_bytes, 1)))
    lengths = np.maximum(1, np.ceil(np.diff(bounds) * fraction)).astype(int)
    weight = rows.n_rows / lengths.sum()
    for start, length in zip(bounds[:-1], lengths, strict=True):
        yield scratch.record, int(start), int(start + length), weight, piece


def add_row_sum_of_prior(record: np.ndarray, point: np.ndarray, out: np.ndarray) -> None:
    """Call ℓ₀'s gradient, which takes no rows, once."""
    add_row_sum(record, point, 0, 1, np.ones(1), out)


def _check_arrays(plate) -> None:
    arrays = plate.arrays()
    lengths = {len(a) for a in arrays}
    if len(lengths) > 1:
        raise ValueError(
            f"The arrays of '{plate.name}' have different numbers of rows: {sorted(lengths)}."
        )
    for variable, array in zip(plate.data, arrays, strict=True):
        if array.dtype.kind == "f" and not _all_finite(array):
            label = variable.name or f"an array of shape {array.shape}"
            raise ValueError(
                f"The data of '{plate.name}' ({label}) hold NaN or infinite values. Remove or "
                "impute those rows before building the model."
            )


def _all_finite(array: np.ndarray) -> bool:
    chunks = range(0, len(array), _FINITE_CHUNK)
    return all(np.isfinite(array[i : i + _FINITE_CHUNK]).all() for i in chunks)
