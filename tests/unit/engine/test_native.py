# SPDX-License-Identifier: Apache-2.0
"""What the import of the package repairs in llvmlite."""

import llvmlite.binding as llvm
import pytest

import pymc_sgcv  # noqa: F401


@pytest.mark.parametrize("kind", [llvm.ModulePassManager, llvm.FunctionPassManager])
def test_llvm_frees_its_passes(kind):
    """An object of llvmlite's is freed by `_dispose`, and that of their base class does nothing."""
    assert kind._dispose is not llvm.ffi.ObjectRef._dispose
