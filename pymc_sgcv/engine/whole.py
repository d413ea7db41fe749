# SPDX-License-Identifier: Apache-2.0
"""Compile a function and all that it calls as one piece.

Numba compiles every function that another one calls as if it were called by itself: wrapped for
Python, optimised, translated to machine code and stored; then all of it is optimised anew inside of
whatever calls it, at every level. Here what is called stays as it was written until the whole is
known, which is optimised and translated once: a third of the work for the sampling loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher, ObjModeLiftedWith, _DispatcherBase
from numba.core.registry import CPUDispatcher, cpu_target

from pymc_sgcv.engine.progress import compiling

_PARTS: WeakKeyDictionary[Dispatcher, Dispatcher] = WeakKeyDictionary()
"""What stands for a function where it is a part of a whole."""
_NAMES = {"run": "the sampling loop", "ascend": "the search", "pair_differences": "noise estimates"}
"""What users are told that a function is."""
_ENVIRONMENTS: dict[str, Any] = {}
"""Numba's environments of parts: what their rare calls into Python need."""


class _Part(JITCodeLibrary):
    """Code that is linked into a whole and never run by itself."""

    def _optimize_functions(self, ll_module):
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name):
        self._ensure_finalized()
        return 0


class _Engine(JITCPUCodegen):
    """An engine for one whole, which knows nothing that was compiled before.

    An engine that knows a function of the same name already would take that one in place of the
    copy that a whole brings along. The two may round differently, and so would a process that
    compiles a function and one that loads it.
    """

    def __init__(self, whole: str):
        super().__init__("sgcv")
        self.whole, self.inside = whole, 0

    def create_library(self, name, **kwargs):
        if self.inside == 0 and name == self.whole:
            return super().create_library(name, **kwargs)
        return _Part(self, name, **kwargs)

    def set_env(self, env_name, env):
        _ENVIRONMENTS[env_name] = env

    def settle(self) -> None:
        """Hand all parts of what was compiled their environments."""
        for known in self._engine._defined_symbols & _ENVIRONMENTS.keys():
            super().set_env(known, _ENVIRONMENTS[known])


class Whole(CPUDispatcher):
    """A function that is compiled as one piece, whoever calls it."""

    def compile(self, sig):
        """Compile or load it for these types of arguments."""
        if isinstance(cpu_target.target_context._internal_codegen, _Engine):
            return super().compile(sig)
        with whole(self.py_func):
            compiling(_NAMES.get(self.py_func.__name__, "the sampler"))
            try:
                return super().compile(sig)
            finally:
                compiling("")


class _PartDispatcher(CPUDispatcher):
    """A function inside of a whole."""


def _part_of(dispatcher: _DispatcherBase) -> _DispatcherBase:
    """What stands for a function inside of a whole: itself, if it leads out of compiled code."""
    if isinstance(dispatcher, _PartDispatcher) or not isinstance(dispatcher, CPUDispatcher):
        return dispatcher
    if dispatcher not in _PARTS:
        _PARTS[dispatcher] = _PartDispatcher(
            dispatcher.py_func,
            dispatcher.locals,
            {**dispatcher.targetoptions, "no_cpython_wrapper": True, "no_cfunc_wrapper": True},
            dispatcher._compiler.pipeline_class,
        )
    return _PARTS[dispatcher]


@contextmanager
def _instead(owner: Any, **attributes: Any) -> Iterator[None]:
    """Other attributes for a while."""
    before = {name: getattr(owner, name) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextmanager
def whole(function: Callable) -> Iterator[None]:
    """Compile `function`, or load it, as one piece, into an engine of its own."""
    with global_compiler_lock, _parts_inside(_Engine(function.__qualname__)):
        yield


@contextmanager
def _parts_inside(engine: _Engine) -> Iterator[None]:
    context, base, leaving = cpu_target.target_context, _DispatcherBase, ObjModeLiftedWith
    template, overload, compiles = base.get_call_template, base.get_overload, leaving.compile
    usual = context._internal_codegen

    def get_call_template(self, args, kws):
        part = _part_of(self)
        inside = isinstance(part, _PartDispatcher)
        engine.inside += 1
        try:
            with _instead(context, _internal_codegen=engine if inside else usual):
                return template(part, args, kws)
        finally:
            engine.inside -= 1

    def get_overload(self, sig):
        return overload(_part_of(self), sig)

    def compile(self, sig):  # what leads back to Python is called by itself
        own = _instead(self.targetctx, _internal_codegen=usual)  # may be a copy of the context
        with _instead(context, _internal_codegen=usual), own:
            return compiles(self, sig)

    with (
        _instead(context, _internal_codegen=engine),
        _instead(base, get_call_template=get_call_template, get_overload=get_overload),
        _instead(leaving, compile=compile),
    ):
        yield
    engine.settle()
