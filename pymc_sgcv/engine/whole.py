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
from numba.core.dispatcher import Dispatcher, _DispatcherBase
from numba.core.registry import CPUDispatcher, cpu_target

_PARTS: WeakKeyDictionary[Dispatcher, Dispatcher] = WeakKeyDictionary()
"""What stands for a function where it is a part of a whole."""
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
        for known in self._engine._defined_symbols & _ENVIRONMENTS.keys():
            super().set_env(known, _ENVIRONMENTS[known])


class Whole(CPUDispatcher):
    """A function that is compiled as one piece, whoever calls it."""

    def compile(self, sig):
        """Compile or load it for these types of arguments."""
        if isinstance(cpu_target.target_context._internal_codegen, _Engine):
            return super().compile(sig)
        with whole(self.py_func):
            return super().compile(sig)


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
def whole(function: Callable) -> Iterator[None]:
    """Compile `function`, or load it, as one piece, into an engine of its own."""
    context, base = cpu_target.target_context, _DispatcherBase
    with global_compiler_lock:
        usual, template = context._internal_codegen, base.get_call_template
        overload, engine = base.get_overload, _Engine(function.__qualname__)

        def get_call_template(self, args, kws):
            part, before = _part_of(self), context._internal_codegen
            context._internal_codegen = engine if isinstance(part, _PartDispatcher) else usual
            engine.inside += 1
            try:
                return template(part, args, kws)
            finally:
                engine.inside -= 1
                context._internal_codegen = before

        context._internal_codegen = engine
        base.get_call_template = get_call_template
        base.get_overload = lambda self, sig: overload(_part_of(self), sig)
        try:
            yield
        finally:
            context._internal_codegen = usual
            base.get_call_template, base.get_overload = template, overload
