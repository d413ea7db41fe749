# SPDX-License-Identifier: Apache-2.0
"""A model ready to be sampled: read, proven, compiled, its data laid out in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_sgcv.engine.compile import Gradient, compile_target
from pymc_sgcv.model.geometry import find_geometry
from pymc_sgcv.model.graph import name_of
from pymc_sgcv.model.proof import prove_rows
from pymc_sgcv.model.start import PYTHON
from pymc_sgcv.model.target import Plate, Target, read_model
from pymc_sgcv.rows.coordinates import Coordinates, Reparametrization
from pymc_sgcv.rows.finite import refuse_infinite_rows, refuse_nan
from pymc_sgcv.rows.full_pass import Code, Scoring, as_rows, full_pass, refuse_nan_rows
from pymc_sgcv.rows.kept import Keeper, Kept
from pymc_sgcv.rows.layout import Layout, first_layout
from pymc_sgcv.rows.minibatch import (
    FULL_TABLE,
    FUNCTION,
    RECORD_LENGTH,
    SUBSAMPLING,
    Rows,
    Scratch,
    add_row_sum,
)
from pymc_sgcv.rows.population import (
    DISK,
    MEMORY,
    MODEL,
    SAMPLE,
    Population,
    available_memory,
    choose_population,
    first_samples,
)
from pymc_sgcv.rows.sample import Sample
from pymc_sgcv.rows.sums import some_of, summed
from pymc_sgcv.rows.terms import row_terms

_ROWS_AT_ONCE = 1 << 16
_TILT = "__tilt__"


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
    reparametrize
        Whether group effects may be moved in coordinates of their own.
    population
        Which rows minibatches come from.
    """

    layout: Layout
    rows: Sequence[Rows]
    _full: list[Scratch]

    def __init__(
        self,
        model: pm.Model,
        values: Sequence | None = None,
        batch_size: int | str | None = None,
        subsampling: str = "block",
        weights: np.ndarray | Mapping[str, np.ndarray] | None = None,
        compile_kwargs: dict | None = None,
        layout: Layout | None = None,
        reparametrize: bool = True,
        population: Population | None = None,
    ):
        if subsampling not in SUBSAMPLING:
            raise ValueError(f"subsampling must be one of {SUBSAMPLING}, not {subsampling!r}.")
        self.model = model
        self.subsampling = subsampling
        self._batch_size = batch_size
        self.target = read_model(model, values, batch_size)
        self._given_weights = weights
        self._sources = self._present_data()
        self.data_passes = 0.0
        self.wanted = population or Population()
        first = layout or self._declared_layout()
        if layout is None:
            self.population = choose_population(self.target, self.wanted, subsampling)
            prove_rows(self.target, every_row=self.population == MODEL)
        else:
            self.population = layout.population
        if self.population == MODEL:
            for plate in self.target.plates:
                _check_arrays(plate)
        self._tilt = pytensor.shared(np.zeros(self.target.size), name=_TILT)
        if self.population == SAMPLE:
            self.target = _tilted(self.target, self._tilt)
        self._shape = _shape(self.target)
        self.functions = compile_target(self.target, compile_kwargs)
        self._compile_kwargs = compile_kwargs
        geometry = find_geometry(self.target) if reparametrize else None
        self.change: Reparametrization | None = None
        if geometry is not None:
            self.change = Reparametrization(self.target, geometry, compile_kwargs)
        others = [name_of(v) for v in self.target.others]
        self.others = {name: self.target.start[name] for name in others}
        self._held: tuple[Sample, ...] = ()
        if self.population in (MEMORY, DISK):
            self._held = self._rows_read()
        self.lay_out(first if layout is not None else self.first_layout())
        if layout is None and self.population == MODEL:
            refuse_infinite_rows(self.target, self._full)

    @property
    def size(self) -> int:
        """d, the number of unconstrained parameters."""
        return self.target.size

    @property
    def n_rows(self) -> int:
        """Rows of all plates that minibatches come from: all, or those that stand for them."""
        return sum(rows.n_rows for rows in self.rows)

    @property
    def stands_for(self) -> int:
        """All rows of all plates."""
        return sum(rows.stands_for for rows in self.rows)

    @property
    def batch_rows(self) -> int:
        """Rows that one minibatch of every plate holds together."""
        return sum(rows.batch_size for rows in self.rows)

    @property
    def chooses_batch(self) -> bool:
        """Whether the batch size is left to the set-up."""
        automatic = all(plate.automatic for plate in self.target.plates)
        return self._batch_size == "auto" or (self._batch_size is None and automatic)

    def coordinates(self, degree: np.ndarray | None = None) -> Coordinates:
        """What chains move in: group effects centred to `degree` (default: not at all)."""
        if self.change is None:
            return Coordinates()
        return Coordinates(
            self.change, np.zeros(self.change.geometry.size) if degree is None else degree
        )

    def centred_coordinates(self) -> Coordinates:
        """Those in which group effects are themselves, however they are declared."""
        change = self.change
        return self.coordinates(None if change is None else np.ones(change.geometry.size))

    def first_layout(self) -> Layout:
        """What the model and the user say."""
        layout = replace(self._declared_layout(), population=self.population)
        if self.population != SAMPLE:
            return layout
        samples = self._rows_read()
        sizes = zip(layout.batch_sizes, samples, strict=True)
        return replace(
            layout, samples=samples, batch_sizes=tuple(min(n, s.n_rows) for n, s in sizes)
        )

    def _rows_read(self) -> tuple[Sample, ...]:
        """Rows that are not the model's own arrays: all, or those that a sample begins with."""
        self.data_passes += self.population != SAMPLE
        return first_samples(self.target, self.functions.plates, self.population, self.wanted)

    def _declared_layout(self) -> Layout:
        return first_layout(self.target.plates, self.subsampling, self._given_weights)

    def lay_out(self, layout: Layout) -> None:
        """Put the data where minibatches are drawn from."""
        self._take_up(layout, ())  # let go of an earlier copy before making the next
        self._keeper = Keeper()
        prior = self.functions.prior
        self._prior_fixed = prior.fixed_values(self.others)
        self._prior_table = prior.arguments([], self._prior_fixed)
        self.prior = np.zeros(RECORD_LENGTH, dtype=np.intp)
        self.prior[FUNCTION] = prior.address
        self.prior[FULL_TABLE] = self._prior_table.ctypes.data
        rows: list[Rows] = []
        sizes = list(layout.batch_sizes)
        for number, gradient in enumerate(self.functions.plates):
            sample = self._sample(layout, number)
            labels = layout.strata[number]
            stand_for = sample.counts if sample and self.population == SAMPLE else None
            arrays = self.target.plates[number].arrays() if sample is None else sample.arrays
            counts = [len(arrays[0])] if labels is None else np.bincount(labels).tolist()
            own, sizes = sizes[: len(counts)], sizes[len(counts) :]
            whole = Rows(
                gradient,
                arrays,
                gradient.fixed_values(self.others),
                own[0],
                layout.subsampling,
                layout.weights[number],
                labels,
                None if stand_for is None else sum(stand_for),
                sample is not None and sample.in_order,
            )
            rows += [whole] if labels is None else whole.strata(counts, own, stand_for)
        self._take_up(layout, rows)
        self._take_up_tilt()

    def _sample(self, layout: Layout, number: int) -> Sample | None:
        """What stands in the place of a plate's own arrays."""
        samples = layout.samples or self._held
        return samples[number] if samples else None

    def arrays(self, number: int) -> Sequence[np.ndarray]:
        """The rows of a plate that minibatches come from, in the order of its strata's labels."""
        sample = self._sample(self.layout, number)
        return self.target.plates[number].arrays() if sample is None else sample.arrays

    def multiplicity(self, number: int) -> np.ndarray | None:
        """How many rows each of them stands for; None if for itself alone."""
        return self.layout.samples[number].weights() if self.population == SAMPLE else None

    def take_samples(self, samples: Sequence[Sample]) -> None:
        """Draw minibatches from other rows, in proportion to their strata for now."""
        sizes: list[int] = []
        for plate, sample in zip(self.target.plates, samples, strict=True):
            share = plate.batch_size / sample.n_rows
            sizes += [max(1, min(n, round(share * n))) for n in sample.sizes]
        labels = tuple(sample.labels for sample in samples)
        self.lay_out(
            replace(self.layout, batch_sizes=tuple(sizes), samples=tuple(samples), strata=labels)
        )

    def set_tilt(self, tilt: np.ndarray) -> None:
        """Add this to the gradient everywhere."""
        self.layout = replace(self.layout, tilt=tilt)
        self._take_up_tilt()

    def _take_up_tilt(self) -> None:
        tilt = self.layout.tilt
        self._tilt.set_value(np.zeros(self.size) if tilt is None else tilt)
        self._prior_fixed = self.functions.prior.fixed_values(self.others)
        self._prior_table[:] = self.functions.prior.arguments([], self._prior_fixed)

    def pass_over_all(
        self,
        theta: np.ndarray,
        scoring: Sequence[Scoring] | None = None,
        report: Callable[[float], None] | None = None,
    ) -> tuple[np.ndarray, list[Sample]]:
        """Σᵢ ∇ℓᵢ at θ over all rows of all plates, wherever they are, and samples of them."""
        total, samples = np.zeros(self.size), []
        most_bytes = available_memory() / 3  # they are laid out in another order, and copied so
        for number, (plate, code) in enumerate(zip(self.target.plates, self._codes, strict=True)):
            one = None if scoring is None else scoring[number]
            gradient, sample = full_pass(
                code, plate, plate.sources(), theta[None], self.others, one, report, most_bytes
            )
            total += gradient[0]
            samples += [] if sample is None else [sample]
        self.data_passes += 1
        return total, samples

    def refuse_nan(self) -> None:
        """Raise an error that names the first row with NaN; the model's own were looked at."""
        if self.population != MODEL:
            for plate in self.target.plates:
                refuse_nan_rows(plate)

    @cached_property
    def _codes(self) -> list[Code]:
        return [
            Code(self.target, plate, self._compile_kwargs, gradient)
            for plate, gradient in zip(self.target.plates, self.functions.plates, strict=True)
        ]

    def forget_plan(self) -> None:
        """Go back to minibatches as they were declared, if an earlier plan has other ones."""
        self.data_passes = float(bool(self._held))
        if self.population == SAMPLE:
            if self.layout.tilt is not None:
                self.lay_out(self.first_layout())
        elif any(labels is not None for labels in self.layout.strata):
            self.lay_out(self.first_layout())

    def resize(self, batch_sizes: Sequence[int]) -> None:
        """Draw minibatches of other sizes; the data stay where they are."""
        layout = replace(self.layout, batch_sizes=tuple(batch_sizes))
        self._take_up(
            layout, [rows.resized(n) for rows, n in zip(self.rows, batch_sizes, strict=True)]
        )

    def _take_up(self, layout: Layout, rows: Sequence[Rows]) -> None:
        self.layout, self.rows = layout, rows
        self._full = [one.scratch() for one in rows]
        self._samples: dict[float, list[Scratch]] = {}

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
        target = read_model(self.model, self.target.values, self._batch_size)
        if _shape(target) != self._shape:
            raise ValueError(
                "pm.set_data has changed more than the number of rows (the columns of an array, or "
                "the shape of a variable): build a new step method for these data."
            )
        self.target = _tilted(target, self._tilt) if self.population == SAMPLE else target
        if self.population == MODEL:
            for plate in target.plates:
                _check_arrays(plate)
        if self._held:
            self._held = self._rows_read()
        self.lay_out(self.first_layout())
        if self.population == MODEL:
            refuse_infinite_rows(target, self._full)
        self._sources = present
        return True

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Take up values of the variables that other step methods sample.

        They are copied: some of those methods go on to change them in place.
        """
        others = [name_of(v) for v in self.target.others]
        self.others = {name: np.array(point[name]) for name in others}
        self._prior_fixed = self.functions.prior.fixed_values(self.others)
        self._prior_table[:] = self.functions.prior.arguments([], self._prior_fixed)

    def settle_others(self) -> None:
        """Let full passes and new chains see the present values of those variables too."""
        for rows, scratch in zip(self.rows, self._full, strict=True):
            rows.fixed = rows.gradient.fixed_values(self.others)
            scratch.set_fixed(rows.fixed)
        self._samples = {}

    def row_terms(self, points: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """For some rows of a plate after the other: its number, and ℓᵢ at `points`, (points, rows).

        In the order of the user's arrays.
        """
        for number, function in enumerate(self._row_terms):
            fixed, arrays = function.fixed_values(self.others), self.arrays(number)
            for start in range(0, len(arrays[0]), _ROWS_AT_ONCE):
                rows = as_rows(function, [a[start : start + _ROWS_AT_ONCE] for a in arrays])
                yield number, row_terms(function, points, rows, fixed)

    @cached_property
    def _row_terms(self) -> list[Gradient]:
        return [code.terms for code in self._codes]

    def constrained(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Values of the sampled variables on the model's own scale, by name."""
        values = self._constrain(
            {k: np.asarray(v) for k, v in self.target.unflatten(theta).items()}
        )
        names = [p.rv_name for p in self.target.parameters]
        return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}

    @cached_property
    def _constrain(self) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
        values = list(self.target.values)
        model = self.target.model
        graphs = model.replace_rvs_by_values([model.values_to_rvs[v] for v in values])
        return model.compile_fn(graphs, inputs=values, mode=PYTHON, on_unused_input="ignore")

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

        The rows of a fraction are a random sample, the same at every call.
        """
        points = np.ascontiguousarray(points, dtype=float)
        self.data_passes += 0.0 if self.population == SAMPLE else fraction
        if fraction not in self._samples:
            self._samples = {fraction: [some_of(scratch, fraction) for scratch in self._full]}
        return summed(self._full, self._samples[fraction], points, cores)

    def kept_at(self, center: np.ndarray) -> list[Kept | None]:
        """What is kept of the rows of each plate or stratum for a control variate at `center`."""
        if self.target.others or self.population == DISK:  # which change, or are read in order
            return [None] * len(self.rows)
        before = self._keeper.rows_read
        kept = self._keeper.at(center, self.rows, self._full)
        if self.population != SAMPLE:
            self.data_passes += (self._keeper.rows_read - before) / self.n_rows
        return kept

    def gradient(self, points: np.ndarray, fraction: float = 1.0) -> np.ndarray:
        """∇ log posterior at each of `points`, from all rows or a fraction of them."""
        return self.prior_gradient(points) + self.likelihood_gradient(points, fraction)

    def gradient_in(
        self, coordinates: Coordinates, positions: np.ndarray, fraction: float = 1.0
    ) -> np.ndarray:
        """∇_φ of the log density of φ at each of `positions`, likewise."""
        return coordinates.pull(positions, self.gradient(coordinates.place(positions), fraction))


def add_row_sum_of_prior(record: np.ndarray, point: np.ndarray, out: np.ndarray) -> None:
    """Call ℓ₀'s gradient, which takes no rows, once."""
    add_row_sum(record, point, 0, 1, np.ones(1), out)


def _tilted(target: Target, tilt: Any) -> Target:
    """The target with a linear function of θ beside the prior."""
    terms = [
        (tilt[p.start : p.stop] * value.ravel()).sum()
        for p, value in zip(target.parameters, target.values, strict=True)
    ]
    return replace(target, prior=pt.add(target.prior, *terms))


def _shape(target: Target) -> tuple:
    """What compiled code takes for granted: parameters, plates, and arrays but for their length."""
    plates = [(plate.name, [a.shape[1:] for a in plate.arrays()]) for plate in target.plates]
    return [(p.name, p.shape) for p in target.parameters], plates


def _check_arrays(plate: Plate) -> None:
    lengths = {len(a) for a in plate.arrays()}
    if len(lengths) > 1:
        raise ValueError(
            f"The arrays of '{plate.name}' have different numbers of rows: {sorted(lengths)}."
        )
    refuse_nan(plate)
