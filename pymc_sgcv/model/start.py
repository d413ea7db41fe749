# SPDX-License-Identifier: Apache-2.0
"""PyMC's initial point, without a compiler.

PyMC evaluates it with PyTensor's C machinery, which takes half a second and 15 MB to load (and a C
compiler, the first time on a machine). Plain Python does it as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from pymc.initial_point import make_initial_point_expression
from pymc.pytensorf import compile as compile_function
from pymc.pytensorf import find_rng_nodes, replace_rng_nodes, reseed_rngs
from pytensor import config
from pytensor.compile.mode import Mode
from pytensor.link.basic import PerformLinker


class _Interpreter(PerformLinker):
    """Python and nothing else, also for the inner graphs of ops.

    PyTensor compiles those with a C compiler, which takes seconds for that of a softmax.
    """

    def make_all(self, *args: Any, **kwargs: Any) -> Any:
        with config.change_flags(cxx=""):
            return super().make_all(*args, **kwargs)


PYTHON = Mode(linker=_Interpreter(), optimizer="fast_compile")
"""For functions that are called too seldom to be worth compiling."""


def initial_point(
    model: pm.Model, given: Mapping[str, np.ndarray] | None = None, *, unconstrained: bool = True
) -> dict[str, np.ndarray]:
    """``model.initial_point(random_seed=0)``, with values of some variables `given` by name.

    By value variable, or by free variable on the model's own scale.
    """
    strategies = {**model.rvs_to_initial_values}
    strategies.update((model[name], value) for name, value in (given or {}).items())
    graphs = make_initial_point_expression(
        free_rvs=model.free_RVs,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies=strategies,
        return_transformed=unconstrained,
    )
    function = compile_function(inputs=[], outputs=replace_rng_nodes(graphs), mode=PYTHON)
    reseed_rngs(find_rng_nodes(function.maker.fgraph.outputs), 0)
    named = [model.rvs_to_values[rv] if unconstrained else rv for rv in model.free_RVs]
    return {v.name: np.asarray(x) for v, x in zip(named, function(), strict=True)}
