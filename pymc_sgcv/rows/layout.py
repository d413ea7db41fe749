# SPDX-License-Identifier: Apache-2.0
"""How minibatches are drawn from a model's rows: one record, and the first one of a user's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pymc_sgcv.model.target import Plate
from pymc_sgcv.rows.sample import Sample


@dataclass(frozen=True)
class Layout:
    """How minibatches are drawn.

    Attributes
    ----------
    subsampling
        One of `pymc_sgcv.rows.minibatch.SUBSAMPLING`.
    batch_sizes
        Rows of a minibatch: of every plate, or of every stratum of every plate.
    weights
        Per plate, the probabilities of its rows, or None.
    strata
        Per plate, the number of the stratum of each row, or None. A minibatch has a block of rows
        of every stratum.
    population, samples
        Where the rows are (`pymc_sgcv.rows.population`), and of a sample, per plate, its rows. They
        are in the order of their `strata`.
    tilt
        What is added to the gradient everywhere, so that at the center it is that of all rows.
    """

    subsampling: str
    batch_sizes: tuple[int, ...]
    weights: tuple[np.ndarray | None, ...]
    strata: tuple[np.ndarray | None, ...]
    population: str = "model"
    samples: tuple[Sample, ...] = ()
    tilt: np.ndarray | None = None

    @property
    def weighted(self) -> bool:
        """Whether some rows are drawn more often than others."""
        return any(weights is not None for weights in self.weights)

    @property
    def sample_error(self) -> float:
        """The relative standard error of a posterior sd that comes from a sample of the rows."""
        return max((sample.error for sample in self.samples), default=0.0)

    def equals(self, other: Layout) -> bool:
        """Whether the other one draws the very same minibatches."""
        same = self.subsampling == other.subsampling and self.batch_sizes == other.batch_sizes
        if self is other or self.samples or other.samples:
            return self is other
        ours, theirs = (*self.weights, *self.strata), (*other.weights, *other.strata)
        return same and all(
            a is b or (a is not None and b is not None and np.array_equal(a, b))
            for a, b in zip(ours, theirs, strict=True)
        )


def first_layout(
    plates: Sequence[Plate],
    subsampling: str,
    weights: np.ndarray | Mapping[str, np.ndarray] | None,
) -> Layout:
    """What the model and the user say; an error for weights that do not fit the rows."""
    by_plate = _by_plate(plates, weights)
    return Layout(
        subsampling,
        tuple(plate.batch_size for plate in plates),
        tuple(_checked(plate, given) for plate, given in zip(plates, by_plate, strict=True)),
        (None,) * len(plates),
    )


def _by_plate(
    plates: Sequence[Plate], weights: np.ndarray | Mapping[str, np.ndarray] | None
) -> Sequence[np.ndarray | None]:
    """The user's weights of each plate, None where they gave none."""
    if weights is None:
        return [None] * len(plates)
    if not isinstance(weights, Mapping):
        if len(plates) > 1:
            raise ValueError(
                "weights must be a dict by observed variable when there are several minibatched "
                f"likelihoods: {[p.name for p in plates]}."
            )
        return [weights]
    names = [name for plate in plates for name in plate.observed]
    unknown = sorted(set(weights) - set(names))
    if unknown:
        raise ValueError(f"weights names {unknown}, but the likelihoods are {names}.")
    return [_of_rows_drawn_together(plate, weights) for plate in plates]


def _of_rows_drawn_together(plate: Plate, weights: Mapping[str, np.ndarray]) -> np.ndarray | None:
    given = [weights[name] for name in plate.observed if name in weights]
    if any(not np.array_equal(given[0], other) for other in given[1:]):
        raise ValueError(
            f"weights differ for {list(plate.observed)}, whose rows are drawn together: give the "
            "same weights, or those of one of them."
        )
    return given[0] if given else None


def _checked(plate: Plate, weights: np.ndarray | None) -> np.ndarray | None:
    if weights is None:
        return None
    n_rows = plate.n_rows
    try:
        weights = np.asarray(weights, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"weights for '{plate.name}' must be numbers.") from None
    if weights.shape != (n_rows,):
        raise ValueError(
            f"weights for '{plate.name}' must have one entry per row, shape ({n_rows},), not "
            f"{weights.shape}."
        )
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ValueError(f"weights for '{plate.name}' must all be finite and positive.")
    return weights
