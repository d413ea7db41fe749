# SPDX-License-Identifier: Apache-2.0
"""`predict`: posterior predictive summaries of any number of rows, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pymc.pytensorf import compile as compile_function
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.arguments import Seed, given_generator, given_model
from pymc_sgcv.model.graph import is_transposed, name_of
from pymc_sgcv.model.start import PYTHON
from pymc_sgcv.model.target import Plate, read_model
from pymc_sgcv.results.containers import Container

_MEGABYTE = 1 << 20
_COPIES = 3
"""Of the draws of a block: themselves, and what quantiles of them take."""
Statistic = str | float


def predict(
    idata: Container,
    new_data: Mapping[str, ArrayLike] | None = None,
    *,
    summary: Sequence[Statistic] = ("mean", 0.05, 0.95),
    var_name: str | None = None,
    draws: int = 500,
    megabytes: float = 100.0,
    random_seed: Seed = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    """Summarise the posterior predictive distribution of every row, a block of rows at a time.

    What is drawn for a block is summarised and forgotten, so memory does not grow with rows times
    draws: there are `megabytes` for the draws of a block, and what is returned.

    Parameters
    ----------
    idata
        What `sample` or ``pm.sample`` returned.
    new_data
        Rows to predict, by the names of the model's ``pm.Data``; by default the model's own rows.
        Data that are not named here keep their values, if they have as many rows.
    summary
        ``"mean"``, ``"sd"`` and quantiles between 0 and 1.
    var_name
        The observed variable, if there are several.
    draws
        How many draws of the posterior are used, evenly spaced; the error of a mean is
        its sd / √draws.
    megabytes
        Memory for the draws of a block.
    random_seed
        Decides what is drawn.
    model
        The model; default: from the context. With ``pm.Minibatch`` or without.

    Returns
    -------
    xarray.Dataset
        The statistics of each row, along ``row``: ``mean``, ``sd``, ``q0.05``, …

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_sgcv as sg
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.linspace(-1, 1, 200))
    ...     slope = pm.Normal("slope", 0, 1)
    ...     y = pm.Normal("y", slope * x, 0.1, observed=2 * np.linspace(-1, 1, 200))
    ...     idata = sg.sample(200, chains=2, random_seed=1, progressbar=False)
    >>> table = sg.predict(idata, {"x": [0.0, 1.0]}, model=model, random_seed=1)
    >>> print(list(table), table["mean"].values.round(1) + 0.0)
    ['mean', 'q0.05', 'q0.95'] [0. 2.]
    """
    model = given_model(model)
    statistics = _statistics(summary)
    _refuse_moved_intercept(idata)
    target = read_model(model, batch_size=None if _minibatched(model) else 1)
    plate, outcome = _likelihood(target.plates, var_name)
    seed = int(given_generator("random_seed", random_seed).integers(2**30))
    free, needed, function = _compiled(target.model, plate, outcome, seed)
    arrays = _rows(plate, needed, _counted(plate, outcome), new_data or {})
    points = _points(idata, free, draws)
    one = _outcomes(function, points[:1], [a[:1] for a in arrays])
    block = max(1, int(megabytes * _MEGABYTE / (_COPIES * one.nbytes * len(points))))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in statistics}
    for first in range(0, len(arrays[0]), block):
        drawn = _outcomes(function, points, [a[first : first + block] for a in arrays])
        for name, statistic in statistics.items():
            parts[name].append(statistic(drawn))
    dims = ("row", *(f"{outcome.name}_dim_{i}" for i in range(1, one.ndim - 1)))
    return xr.Dataset({name: (dims, np.concatenate(part)) for name, part in parts.items()})


def _statistics(summary: Sequence[Statistic]) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    known: dict[str, Callable] = {"mean": lambda x: x.mean(0), "sd": lambda x: x.std(0)}
    chosen = {}
    for one in [summary] if isinstance(summary, str | float) else summary:
        if isinstance(one, str) and one in known:
            chosen[one] = known[one]
        elif isinstance(one, float) and 0 <= one <= 1:
            chosen[f"q{one:g}"] = lambda x, q=one: np.quantile(x, q, axis=0)
        else:
            raise ValueError(f'summary takes "mean", "sd" and quantiles from 0 to 1, not {one!r}.')
    return chosen


def _refuse_moved_intercept(idata: Container) -> None:
    if idata["posterior"].attrs.get("modeling_interface") == "bambi":
        raise ValueError(
            "These draws are Bambi's, whose intercept is not that of the model beneath: use the "
            "predict method of the Bambi model."
        )


def _minibatched(model: pm.Model) -> bool:
    names = {type(v.owner.op).__name__ for v in ancestors(model.observed_RVs) if v.owner}
    return "MinibatchOp" in names


def _likelihood(plates: Sequence[Plate], name: str | None) -> tuple[Plate, TensorVariable]:
    outcomes = {name_of(v): (plate, v) for plate in plates for v in plate.outcomes}
    if name is None and len(outcomes) == 1:
        [name] = outcomes
    if name not in outcomes:
        raise ValueError(
            f"var_name must be one of the observed variables with rows, {sorted(outcomes)}, "
            f"not {name!r}."
        )
    return outcomes[name]


def _compiled(
    model: pm.Model, plate: Plate, outcome: TensorVariable, seed: int
) -> tuple[list[str], list[int], Callable[..., np.ndarray]]:
    """Free variables and places of rows that an outcome depends on, and a function of them."""
    behind = set(ancestors([outcome], blockers=[*model.free_RVs, *plate.rows]))
    free = [v for v in model.free_RVs if v in behind]
    needed = [i for i, row in enumerate(plate.rows) if row in behind]
    if not needed:
        raise ValueError(f"'{outcome.name}' depends on no row of data: all its rows are alike.")
    inputs = [*free, *(plate.rows[i] for i in needed)]
    function = compile_function(inputs, outcome, random_seed=seed, mode=PYTHON)
    return [name_of(v) for v in free], needed, function


def _counted(plate: Plate, outcome: TensorVariable) -> set[int]:
    """Places of rows that are only asked how many there are, like those of the outcome itself."""
    nodes = {v.owner for v in ancestors([outcome], blockers=plate.rows) if v.owner is not None}
    return {
        i
        for i, row in enumerate(plate.rows)
        if all(isinstance(node.op, Shape | Shape_i) for node in nodes if row in node.inputs)
    }


def _rows(
    plate: Plate, needed: Sequence[int], counted: set[int], new_data: Mapping[str, ArrayLike]
) -> list[np.ndarray]:
    """The arrays of the rows to predict: those given, else the model's."""
    own = plate.arrays()
    names = [_data_name(variable) for variable in plate.data]
    unknown = sorted(set(new_data) - set(names))
    if unknown:
        known = sorted({names[i] for i in needed if names[i]})
        raise ValueError(
            f"new_data holds {unknown}, but what the rows of '{plate.name}' are predicted from is "
            f"{known or 'not named'}. Declare predictors as pm.Data('name', ...) to replace them."
        )
    arrays = []
    given_rows = [len(np.asarray(array)) for array in new_data.values()]
    for i in needed:
        given, variable = new_data.get(names[i]), plate.data[i]
        if given is None:
            array = own[i]
            if i in counted and given_rows:
                array = np.zeros_like(array, shape=(given_rows[0], *array.shape[1:]))
            arrays.append(array)
            continue
        array = np.asarray(given, dtype=variable.type.dtype)
        if is_transposed(variable):
            array = array.transpose(variable.owner.op.new_order)
        if array.shape[1:] != own[i].shape[1:]:
            raise ValueError(
                f"new_data['{names[i]}'] has rows of shape {array.shape[1:]}, but the model's have "
                f"{own[i].shape[1:]}."
            )
        arrays.append(array)
    if len({len(array) for array in arrays}) > 1:
        lengths = {names[i] or f"array {i}": len(a) for i, a in zip(needed, arrays, strict=True)}
        raise ValueError(f"The rows to predict differ in number: {lengths}. Give all of them.")
    return arrays


def _data_name(variable: Variable) -> str:
    source = variable.owner.inputs[0] if is_transposed(variable) else variable
    return source.name or ""


def _points(idata: Container, names: Sequence[str], draws: int) -> list[list[np.ndarray]]:
    """Values of the free variables at some draws, evenly spaced over all chains."""
    posterior = idata["posterior"]
    missing = sorted(set(names) - set(posterior.data_vars))
    if missing:
        raise ValueError(f"The posterior lacks {missing}: sample with them among var_names.")
    arrays = [posterior[name].values for name in names]
    total = posterior.sizes["chain"] * posterior.sizes["draw"]
    flat = [array.reshape(total, *array.shape[2:]) for array in arrays]
    chosen = np.linspace(0, total - 1, min(draws, total)).astype(int)
    return [[array[i] for array in flat] for i in chosen]


def _outcomes(
    function: Callable[..., np.ndarray],
    points: Sequence[Sequence[np.ndarray]],
    rows: Sequence[np.ndarray],
) -> np.ndarray:
    """One outcome of every row at every point: (points, rows, ...)."""
    first = np.asarray(function(*points[0], *rows))
    out = np.empty((len(points), *first.shape), first.dtype)
    out[0] = first
    for i, point in enumerate(points[1:], 1):
        out[i] = function(*point, *rows)
    return out
