# SPDX-License-Identifier: Apache-2.0
"""Plans and states as files: a tree of JSON and the arrays in it, as one ``.npz``.

Nothing in such a file is code: of objects it holds the names of this package's own classes and
their attributes. Every array has a checksum, so a file that was cut off is not read.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import zipfile
import zlib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

from pymc_sgcv.kernel.preconditioners import Preconditioner

_TREE = "tree"
_NOT_WHOLE = zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError


class Damaged(ValueError):
    """A file that is not what was once written."""


class OtherVersion(ValueError):
    """A record that this version of the package does not have in this form."""


def pack(value: Any, file: IO[bytes]) -> None:
    """Write a tree of dicts, lists, numbers, arrays and this package's records."""
    arrays: list[np.ndarray] = []
    tree = json.dumps(_encode(value, arrays, {})).encode()
    named = {str(i): array for i, array in enumerate(arrays)}
    np.savez(file, **{_TREE: np.frombuffer(tree, dtype=np.uint8)}, **named)  # type: ignore[arg-type]


def unpack(file: IO[bytes] | Path) -> Any:
    """Read what `pack` has written; `Damaged` if that is not what the file holds."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        tree = json.loads(arrays.pop(_TREE).tobytes())
    except _NOT_WHOLE as error:
        raise Damaged(str(error)) from error
    return _decode(tree, arrays)


def peek(file: Path, name: str) -> Any:
    """One entry of a packed dict, if it is a number or a text; its arrays are not read."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            return json.loads(stored[_TREE].tobytes())["dict"][name]
    except _NOT_WHOLE as error:
        raise Damaged(str(error)) from error


def _encode(value: Any, arrays: list[np.ndarray], seen: dict[int, int]) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    if isinstance(value, enum.Enum):
        return {"class": _name_of(type(value)), "value": value.value}
    if isinstance(value, int | float):
        return value
    if isinstance(value, np.ndarray):
        if id(value) not in seen:  # what two records share is stored once, and shared again
            seen[id(value)] = len(arrays)
            arrays.append(value)
        return {"array": seen[id(value)]}
    if isinstance(value, tuple | list):
        items = [_encode(item, arrays, seen) for item in value]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        return {"dict": {str(k): _encode(v, arrays, seen) for k, v in value.items()}}
    if callable(value):
        return {"callable": None}  # the user's own, given anew with every call
    return {"class": _name_of(type(value)), "has": _encode(_attributes(value), arrays, seen)}


def _attributes(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Preconditioner):
        return dict(vars(value))
    raise TypeError(f"A {type(value).__name__} cannot be stored.")


def _name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class_of(name: str) -> type:
    module, _, kind = name.partition(":")
    if not module.startswith("pymc_sgcv."):
        raise Damaged(f"{name} is none of this package's records")
    try:
        return getattr(import_module(module), kind)
    except (AttributeError, ImportError):
        raise OtherVersion(f"there is no {name} here") from None


def _decode(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(tree, list):
        return [_decode(item, arrays) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[str(tree["array"])]
    if "tuple" in tree:
        return tuple(_decode(tree["tuple"], arrays))
    if "dict" in tree:
        return {name: _decode(item, arrays) for name, item in tree["dict"].items()}
    if "callable" in tree:
        return None
    kind = _class_of(tree["class"])
    if "value" in tree:
        return kind(tree["value"])
    made: Any = object.__new__(kind)
    has = _decode(tree["has"], arrays)
    if dataclasses.is_dataclass(kind):
        has = _defaults(kind, has) | has
    for name, value in has.items():
        object.__setattr__(made, name, value)
    return made


def _defaults(kind: type, has: Mapping[str, Any]) -> dict[str, Any]:
    """What a record has that did not have it when it was stored."""
    known = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := sorted(set(has) - set(known)):
        raise OtherVersion(f"a {kind.__name__} here has no {unknown[0]}")
    found = {}
    for name in set(known) - set(has):
        default, factory = known[name].default, known[name].default_factory
        if default is dataclasses.MISSING and factory is dataclasses.MISSING:
            raise OtherVersion(f"a {kind.__name__} here has a {name}")
        found[name] = default if factory is dataclasses.MISSING else factory()
    return found
