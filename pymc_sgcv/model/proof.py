# SPDX-License-Identifier: Apache-2.0
"""Prove at build time that a likelihood is a sum over rows, or refuse it.

The log-likelihood of a few random rows, taken alone and in another order, must equal those rows of
the likelihood as it was declared, at a random point. It does not where rows depend on each other
(``x - x.mean()``), where an array only happens to be as long as the data, or where the data's axis
is not the leading one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytensor
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.errors import warn
from pymc_sgcv.model.graph import name_of
from pymc_sgcv.model.refusals import rows_refusal
from pymc_sgcv.model.start import PYTHON
from pymc_sgcv.model.target import Plate, Target

_N_PROBES = 7
_TOLERANCE = 1e-6
_CHUNK = 10_000
_MOST_ROWS = 5_000_000
"""Rows beyond these are not looked at for impossible observations."""


def prove_rows(target: Target, every_row: bool = True) -> None:
    """Raise ValueError unless every plate's log-likelihood adds up row by row.

    And if a row is impossible, unless rows are to be looked at later.
    """
    rng = np.random.default_rng(0)
    start = target.start
    _refuse_impossible_start(start)
    variables = {name_of(v): v for v in (*target.values, *target.others)}
    point = {
        name: np.asarray(start[name] + _jitter(v, start[name], rng), dtype=v.dtype)
        for name, v in variables.items()
    }
    for plate in target.plates:
        _prove_plate(target, plate, point, rng)
        if every_row:
            _refuse_impossible_rows(target, plate)
        _warn_about_local_latents(plate)


def _warn_about_local_latents(plate: Plate) -> None:
    if plate.local:
        names = ", ".join(f"'{name}'" for name in plate.local)
        warn(
            f"{names}: one value for every row of '{plate.name}' (local latents). A minibatch "
            "tells of those of its own rows alone, so batches have to be a large part of the data. "
            "Better marginalise them, or where a row is a table of its own (persons by items), "
            "write a row for every cell, y[i] with effect[person[i]]; else compare with NUTS."
        )


def _refuse_impossible_start(start: dict[str, np.ndarray]) -> None:
    """Every parameter must begin at a finite value."""
    for name, value in start.items():
        if not np.isfinite(value).all():
            raise ValueError(
                f"'{name}' begins at {np.ravel(value)[0]}: the parameters of its prior, or its "
                "initval, are not finite. Give it a proper prior. (Bambi's automatic priors are "
                "not finite for truncated and constrained responses with an open end: pass "
                "priors={...} to bmb.Model.)"
            )


def _jitter(
    variable: TensorVariable, value: np.ndarray, rng: np.random.Generator
) -> np.ndarray | int:
    return rng.uniform(-0.1, 0.1, np.shape(value)) if "float" in str(variable.dtype) else 0


def _prove_plate(target: Target, plate: Plate, point: dict, rng: np.random.Generator) -> None:
    arrays = plate.arrays()
    n_declared = plate.declared_rows[0].type.shape[0] or len(arrays[0])
    declared = [a[:n_declared] for a in arrays]
    probes = _some(rng, n_declared, max(1, n_declared // 2))
    some = _some(rng, len(arrays[0]), len(arrays[0]))
    function = _function(target, plate.loglike, plate.rows)

    def of_rows(rows: np.ndarray) -> np.ndarray:
        return _call(target, function, plate.rows, [a[rows] for a in arrays], point)

    try:
        expected = _evaluate(target, plate.declared_loglike, plate.declared_rows, declared, point)
        alone, together = of_rows(probes), of_rows(some)
        part = of_rows(some[: max(1, len(some) // 2)])
    except Exception as error:  # whatever a model's ops raise on rows that do not fit
        raise ValueError(
            f"{_refusal(target, plate)} ({type(error).__name__}: {_first_line(error)})"
        ) from error
    right = alone.shape == probes.shape and _agree(alone, np.asarray(expected)[probes])
    if not right or not _agree(part, together[: len(part)]):
        raise ValueError(_refusal(target, plate))


def _some(rng: np.random.Generator, n_rows: int, at_most: int) -> np.ndarray:
    """A few of `n_rows` in random order, without making a list of all."""
    return rng.choice(n_rows, min(_N_PROBES, at_most), replace=False)


def _refuse_impossible_rows(target: Target, plate: Plate) -> None:
    """Every row must be possible at the starting point, as NUTS would demand."""
    arrays = plate.arrays()
    function = _function(target, plate.loglike, plate.rows)
    for start in range(0, min(len(arrays[0]), _MOST_ROWS), _CHUNK):
        rows = [a[start : start + _CHUNK] for a in arrays]
        bad = np.isinf(_call(target, function, plate.rows, rows, target.start))
        if bad.any():
            raise ValueError(
                f"Row {start + int(np.argmax(bad))} of {plate.kind} '{plate.name}' has no "
                "finite log-likelihood at the starting point: the observation is impossible under "
                "the model, or the starting values are. Check the data, or give initval=..."
            )


def _evaluate(
    target: Target,
    graph: TensorVariable,
    inputs: Sequence[TensorVariable],
    arrays: Sequence[np.ndarray],
    point: dict[str, np.ndarray],
) -> np.ndarray:
    return _call(target, _function(target, graph, inputs), inputs, arrays, point)


def _function(
    target: Target, graph: TensorVariable, inputs: Sequence[TensorVariable]
) -> Callable[..., np.ndarray]:
    variables = [*target.values, *target.others, *inputs]
    return pytensor.function(variables, graph, mode=PYTHON, on_unused_input="ignore")


def _call(
    target: Target,
    function: Callable[..., np.ndarray],
    inputs: Sequence[TensorVariable],
    arrays: Sequence[np.ndarray],
    point: dict[str, np.ndarray],
) -> np.ndarray:
    values = [point[name_of(v)] for v in (*target.values, *target.others)]
    arrays = [np.asarray(a, dtype=i.type.dtype) for a, i in zip(arrays, inputs, strict=True)]
    return np.asarray(function(*values, *arrays))


def _agree(got: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.allclose(got, expected, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True))


def _refusal(target: Target, plate: Plate) -> str:
    names = [
        v.name or f"array of shape {np.shape(a)}"
        for v, a in zip(plate.data, plate.arrays(), strict=True)
    ]
    refusal = rows_refusal(
        target.model, plate.observed, plate.kind, plate.minibatched, plate.n_rows
    )
    return f"{refusal} Its data: {', '.join(names)}."


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else "no message"
