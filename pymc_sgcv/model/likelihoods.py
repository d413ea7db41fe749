# SPDX-License-Identifier: Apache-2.0
"""Which observed variables are subsampled and which data they share; what cannot be is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pymc as pm
from pymc.data import MinibatchOp
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.model.declared import FIRST_BATCH, length_of
from pymc_sgcv.model.graph import is_data, name_of, value_of
from pymc_sgcv.model.potentials import Term, leaves_of, rows_of
from pymc_sgcv.model.refusals import nothing_to_subsample


def refuse_discrete(model: pm.Model, values: Iterable[TensorVariable]) -> None:
    """Variables without a gradient."""
    for value in values:
        if not str(value.dtype).startswith("float"):
            raise ValueError(
                f"Variable '{model.values_to_rvs[value].name}' is discrete ({value.dtype}): it has "
                "no gradient. Marginalise it out, or give it its own step method and leave it out "
                "of this one with `vars=[...]` (only SGLD may share a model)."
            )


def refuse_missing_observations(model: pm.Model) -> None:
    """Observed variables with NaN, which PyMC splits into an observed and an imputed part."""
    free = {rv.name for rv in model.free_RVs}
    for rv in model.observed_RVs:
        name = rv.name.removesuffix("_observed")
        if name != rv.name and f"{name}_unobserved" in free:
            raise ValueError(
                f"Observed variable '{name}' has missing values (NaN), whose imputation cannot be "
                "subsampled. Remove or impute those rows before the model."
            )


def first_batch_size(
    model: pm.Model, terms: Sequence[Term], batch_size: int | str | None
) -> int | None:
    """The batch size to begin with: the user's, None where pm.Minibatch says it, or our own."""
    _check_batch_size(batch_size)
    if isinstance(batch_size, int | np.integer):
        return int(batch_size)
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    if batch_size is None and _minibatch_nodes([*model.observed_RVs, *values], model.free_RVs):
        return None
    lengths = [np.shape(value_of(v))[0] for v in values if v.ndim and not _minibatch_nodes([v])]
    lengths += [length_of(full) for node in _minibatch_nodes(values) for full in node.inputs[:-1]]
    lengths += [n for term in terms if (n := rows_of(model, term)[0])]
    return min(FIRST_BATCH, max(lengths, default=FIRST_BATCH))


def _check_batch_size(batch_size: int | str | None) -> None:
    """Anything but a positive whole number, ``"auto"`` or None."""
    if batch_size is None or (isinstance(batch_size, str) and batch_size == "auto"):
        return
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer):
        raise TypeError(f'batch_size must be a whole number of rows or "auto", not {batch_size!r}.')
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}.")


def _minibatch_nodes(
    variables: Iterable[Variable], blockers: Iterable[Variable] = ()
) -> list[Apply]:
    nodes = {v.owner: None for v in ancestors(list(variables), blockers=list(blockers)) if v.owner}
    return [node for node in nodes if isinstance(node.op, MinibatchOp)]


def refuse_minibatch_elsewhere(model: pm.Model) -> None:
    """Deterministics, Potentials and priors that depend on a minibatch."""
    free = model.free_RVs
    observed = model.observed_RVs
    for kind, variables in (
        ("Deterministic", model.deterministics),
        ("Potential", model.potentials),
    ):
        for variable in variables:
            if _minibatch_nodes([variable], blockers=[*free, *observed]):
                raise ValueError(
                    f"{kind} '{variable.name}' depends on a pm.Minibatch: its value would be "
                    "that of "
                    "other random rows than the draw's. Use the expression without wrapping it in "
                    f"pm.{kind}, or declare the model on the full data and pass batch_size to the "
                    "step method."
                )
    for variable in free:
        if _minibatch_nodes([variable], blockers=[rv for rv in free if rv is not variable]):
            raise ValueError(
                f"The prior of '{variable.name}' depends on a pm.Minibatch; only observed "
                "variables may. Compute what the prior needs from the full data."
            )


@dataclass
class Group:
    """Observed variables that share their rows, before the graph is rebuilt."""

    rvs: list[TensorVariable]
    leaves: dict[Variable, Variable]  # variable in the graph -> full data it stands for
    minibatched: bool
    terms: list[Term] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """What the model calls them."""
        return list(dict.fromkeys([*map(name_of, self.rvs), *(term.name for term in self.terms)]))

    @property
    def graphs(self) -> list[TensorVariable]:
        """Random variables, and terms of Potentials."""
        return [*self.rvs, *(term.rows for term in self.terms)]

    @property
    def kind(self) -> str:
        """What the model says they are, for messages."""
        return "observed variable" if self.rvs else "Potential"


def group_likelihoods(
    model: pm.Model, terms: Sequence[Term], batch_size: int | None
) -> list[Group]:
    """Observed variables and sums in Potentials to subsample, those with the same rows together."""
    groups: dict[object, Group] = {}
    key: object
    for rv in model.observed_RVs:
        value = model.rvs_to_values[rv]
        nodes = _minibatch_nodes([rv, value], blockers=model.free_RVs)
        if nodes:
            key, leaves = _minibatch_leaves(rv, value, nodes)
        else:
            _refuse_total_size_without_minibatch(rv)
            leaves = _plain_leaves(model, rv, value, batch_size)
            key = _shared_key(groups, leaves, rv)
        if not leaves:
            continue
        group = groups.setdefault(key, Group([], {}, bool(nodes)))
        group.rvs.append(rv)
        group.leaves.update(leaves)
    for term in terms:
        leaves = leaves_of(model, term, batch_size)
        if leaves:
            key = _shared_key(groups, leaves, term)
            group = groups.setdefault(key, Group([], {}, False))
            group.terms.append(term)
            group.leaves.update(leaves)
    if not groups:
        raise ValueError(nothing_to_subsample(model, batch_size))
    return list(groups.values())


def _minibatch_leaves(
    rv: TensorVariable, value: TensorVariable, nodes: list[Apply]
) -> tuple[Variable, dict[Variable, Variable]]:
    rngs = {node.inputs[-1] for node in nodes}
    if len(rngs) > 1:
        raise ValueError(
            f"Observed variable '{rv.name}' mixes {len(rngs)} pm.Minibatch calls, each of which "
            "draws different rows, so predictors and outcomes do not belong together. Put all the "
            "arrays in one call: xb, yb = pm.Minibatch(X, y, batch_size=n)."
        )
    if not _minibatch_nodes([value]):
        raise ValueError(
            f"Observed variable '{rv.name}' has a minibatched predictor but its observed data are "
            "not minibatched. Put them in the same pm.Minibatch call."
        )
    leaves = {
        out: full
        for node in nodes
        for full, out in zip(node.inputs[:-1], node.outputs[:-1], strict=True)
    }
    lengths = sorted({length_of(full) for full in leaves.values()})
    if len(lengths) > 1:
        raise ValueError(
            f"The data of observed variable '{rv.name}' have different numbers of rows: "
            f"{', '.join(map(str, lengths))}. Give pm.Minibatch arrays of equal length."
        )
    _refuse_no_rows(rv, lengths[0])
    _check_total_size(rv, lengths[0])
    return rngs.pop(), leaves


def _refuse_no_rows(rv: TensorVariable, n_rows: int) -> None:
    if n_rows == 0:
        raise ValueError(f"Observed variable '{rv.name}' has no rows.")


def _total_size(rv: TensorVariable) -> list[int | None]:
    if rv.owner is None or not isinstance(rv.owner.op, MinibatchRandomVariable):
        return []
    return [getattr(t, "data", None) for t in rv.owner.inputs[1:]]


def _check_total_size(rv: TensorVariable, n_rows: int) -> None:
    size = _total_size(rv)
    if not size or size[0] is None:
        raise ValueError(
            f"Observed variable '{rv.name}' is minibatched but has no total_size: its posterior "
            f"would be that of one minibatch. Add total_size={n_rows}."
        )
    if int(size[0]) != n_rows or any(t is not None for t in size[1:]):
        wrong = [None if t is None else int(t) for t in size]
        raise ValueError(
            f"Observed variable '{rv.name}' has total_size={wrong if len(wrong) > 1 else wrong[0]} "
            f"but its data have {n_rows} rows. Write total_size={n_rows}."
        )


def _refuse_total_size_without_minibatch(rv: TensorVariable) -> None:
    if _total_size(rv):
        raise ValueError(
            f"Observed variable '{rv.name}' has total_size but no pm.Minibatch, so its rows "
            "cannot be "
            "drawn. Wrap its data in pm.Minibatch, or drop total_size and pass batch_size to the "
            "step method."
        )


def _plain_leaves(
    model: pm.Model, rv: TensorVariable, value: TensorVariable, batch_size: int | None
) -> dict[Variable, Variable]:
    """Data of a plain likelihood whose leading axis is as long as its observations."""
    if batch_size is None or value.ndim == 0:
        return {}
    n_rows = int(np.shape(value_of(value))[0])
    _refuse_no_rows(rv, n_rows)
    if n_rows < batch_size:
        return {}
    graph = ancestors([rv, value], blockers=model.free_RVs)
    return {v: v for v in graph if is_data(v) and np.shape(value_of(v))[:1] == (n_rows,)}


def _shared_key(
    groups: dict[object, Group], leaves: dict[Variable, Variable], otherwise: object
) -> object:
    for key, group in groups.items():
        if not group.minibatched and any(leaf in group.leaves for leaf in leaves):
            return key
    return otherwise


def refuse_batch_larger_than_data(group: Group, full: list[Variable], n: int | None) -> None:
    """A minibatch of more rows than there are."""
    n = n or next(iter(group.leaves)).type.shape[0]
    n_rows = length_of(full[0])
    if n > n_rows:
        raise ValueError(
            f"batch_size={n} is larger than the {n_rows} rows of '{group.names[0]}'. "
            "Use a smaller batch_size."
        )
