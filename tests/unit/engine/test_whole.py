# SPDX-License-Identifier: Apache-2.0
import numba
import numpy as np
import pytest
from numba.core.registry import cpu_target

from pymc_sgcv.engine.native import compiled
from pymc_sgcv.engine.progress import compilation_shown, compiling, listening
from pymc_sgcv.engine.whole import Whole, whole


@compiled
def _half(x):
    return x / 2


@compiled
def _quarter(x):
    return _half(_half(x))


@numba.njit
def _python_length(x):
    with numba.objmode(n="intp"):
        n = len(list(x))
    return n


def _of_address(at, n):
    return _python_length(numba.carray(at, n))


def test_what_a_whole_calls_is_compiled_only_as_its_part():
    assert _quarter(3.0) == 0.75
    assert not _half.overloads


def test_a_part_can_be_called_by_itself_too():
    assert _quarter(5.0) == 1.25
    assert _half(5) == 2.5


def test_parts_may_lead_back_to_python():
    def twice_the_length(x):
        return 2 * _python_length(x)

    function = Whole(twice_the_length, targetoptions={"nopython": True, "nogil": True})
    assert function(np.zeros(3)) == 6
    with whole(_of_address):
        pointer = numba.cfunc("intp(CPointer(float64), intp)")(_of_address)
    assert pointer.ctypes(np.zeros(3).ctypes.data_as(pointer.ctypes.argtypes[0]), 3) == 3


def test_numba_is_itself_again_after_an_error():
    context = cpu_target.target_context
    before = context._internal_codegen, numba.core.dispatcher._DispatcherBase.get_call_template

    @compiled
    def wrong(x):
        return x.there_is_none

    with pytest.raises(numba.TypingError):
        wrong(1.0)
    after = context._internal_codegen, numba.core.dispatcher._DispatcherBase.get_call_template
    assert after == before


def test_other_functions_are_compiled_as_ever_afterwards():
    with whole(_quarter.py_func):
        pass

    @numba.njit
    def caller(x):
        return _quarter(x) + 1

    assert caller(8.0) == 3.0


def test_whoever_listens_hears_what_is_compiled():
    heard, ignored = [], []
    with listening(ignored.append), listening(heard.append):
        compiling("the gradient of y")
        compiling("")
    assert heard == ["the gradient of y", ""]
    assert not ignored


def test_nothing_is_shown_of_what_does_not_take_long(capsys):
    with compilation_shown(True):
        compiling("the gradient of y")
    assert capsys.readouterr().out == ""
