# SPDX-License-Identifier: Apache-2.0
"""What makes two runs the same run: model, data, settings, call. And how to say where they differ.

Each thing has a name and a text: a short one is itself, a long one is a digest. Graphs are compared
node by node, so that a change is known by the variable that it belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from hashlib import blake2b
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort

from pymc_sgcv.kernel.schedules import step_sizes
from pymc_sgcv.model.declared import head_of, length_of
from pymc_sgcv.model.graph import value_of
from pymc_sgcv.model.target import Target
from pymc_sgcv.setup.center import Center
from pymc_sgcv.setup.plan import Settings

Identity: TypeAlias = dict[str, dict[str, Any]]
"""Texts by kind and name."""

_WHOLE_BYTES = 1 << 26
_SAMPLED_ROWS = 1 << 16
_UNIMPORTANT = "progressbar", "memory_limit", "directory"
_WORDS = {
    "variables": "the definition of '{name}' is another one",
    "data": "the data of '{name}' are {now}, and were {then}",
    "settings": "{name} of the step method is {now}, and was {then}",
    "call": "{name} is {now}, and was {then}",
}


def versions() -> dict[str, str]:
    """Versions that may decide how numbers are rounded."""
    from pymc_sgcv import __version__

    others = "pymc", "pytensor", "numba", "numpy"
    return {"pymc_sgcv": __version__} | {name: version(name) for name in others}


def model_identity(target: Target) -> Identity:
    """What a model on its data is."""
    return {
        "variables": dict(_variables(target)),
        "data": {plate.name: " and ".join(map(_data_text, plate.data)) for plate in target.plates},
    }


def call_identity(method: str, settings: Settings, center: Any, call: Mapping) -> Identity:
    """What is asked for; `center` is the user's own, if there is one."""
    return {
        "settings": {"the name": method, "center": _center_text(center)}
        | {
            field.name: _text(getattr(settings, field.name))
            for field in fields(settings)
            if field.name not in _UNIMPORTANT
        },
        "call": {name: _text(value) for name, value in call.items()},
    }


def differences(now: Identity, then: Identity) -> Iterator[tuple[str, str]]:
    """Kind and sentence of everything that differs, what matters most first."""
    for kind, words in _WORDS.items():
        if kind not in now:
            continue
        for name in [*now[kind], *(set(then[kind]) - set(now[kind]))]:
            a, b = now[kind].get(name), then[kind].get(name)
            if a != b:
                if a is None or b is None:
                    yield kind, f"'{name}' is " + ("missing now" if a is None else "new")
                else:
                    yield kind, words.format(name=name, now=a, then=b)


def _variables(target: Target) -> Iterator[tuple[str, str]]:
    """A digest of each prior, likelihood, potential and Deterministic."""
    model = target.model
    tokens: dict[Variable, str] = {v: name for name, v in model.named_vars.items()}
    tokens |= {value: f"value of {rv.name}" for rv, value in model.rvs_to_values.items()}
    rows = {name for plate in target.plates for name in plate.observed}
    for plate in target.plates:
        here = tokens | {row: f"rows {i}" for i, row in enumerate(plate.rows)}
        yield plate.name, _graph_text(plate.loglike, here)
    for rv in [*model.basic_RVs, *model.potentials, *model.deterministics]:
        if rv.name in rows:
            continue
        text = _graph_text(rv, tokens)
        text += type(model.rvs_to_transforms.get(rv)).__name__
        if rv in model.observed_RVs:
            text += _text(value_of(model.rvs_to_values[rv]))
        yield rv.name, _digest(text.encode())


def _graph_text(graph: Variable, tokens: Mapping[Variable, str]) -> str:
    """A digest of a graph, down to the named variables that it is made of."""
    found: dict[Variable, str] = {}

    def text_of(variable: Variable) -> str:
        if variable is not graph and variable in tokens:
            return tokens[variable]
        if variable not in found:
            known = isinstance(variable, Constant | SharedVariable)
            found[variable] = _value_text(variable) if known else str(variable.type)
        return found[variable]

    for node in toposort([graph], blockers=[v for v in tokens if v is not graph]):
        text = " ".join([_plain(str(node.op)), *map(text_of, node.inputs)])
        for i, out in enumerate(node.outputs):
            found[out] = _digest(f"{i} of {text}".encode())
    return text_of(graph)


def _value_text(variable: Variable) -> str:
    value = value_of(variable)
    if value.dtype != object:
        return _text(value)
    return _plain(repr(variable.data) if isinstance(variable, Constant) else str(variable.type))


def _plain(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "", text)


def _center_text(center: Center | Mapping | None) -> str:
    if center is None:
        return "automatic"
    return _text(center.point if isinstance(center, Center) else dict(center))


def _text(value: Any) -> str:
    """The value itself if it is short, else its kind and a digest."""
    if isinstance(value, np.ndarray):
        return _array_text(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(np.asarray(one))}" for name, one in value.items())
    if callable(value):
        return f"a schedule {_digest(_first_steps(value).tobytes())}"
    return value.name if hasattr(value, "name") else str(value)


def _first_steps(schedule: Callable) -> np.ndarray:
    return step_sizes(schedule, 0, 10)


def _array_text(array: np.ndarray) -> str:
    """Shape, type and a digest: of all the numbers, or of rows spread over a large array."""
    if array.ndim and array.nbytes > _WHOLE_BYTES and len(array) > _SAMPLED_ROWS:
        sampled = array[np.linspace(0, len(array) - 1, _SAMPLED_ROWS).astype(np.intp)]
    else:
        sampled = array
    shape = " × ".join(map(str, array.shape)) or "one"
    digest = _digest(np.ascontiguousarray(sampled).tobytes())
    return f"{shape} {array.dtype} ({digest[:12]})"


def _data_text(variable: Variable) -> str:
    """The same of a data variable; of a source, what the model holds of it and how long it is."""
    head = head_of(variable)
    text = _array_text(np.asarray(value_of(variable)))
    return text if head is None else f"{length_of(variable):,} rows ({text})"


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
