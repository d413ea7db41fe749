# SPDX-License-Identifier: Apache-2.0
"""What step methods are composed of: estimators of the gradient, and dynamics with a momentum.

Each ingredient is a mixin that checks its own arguments and hands the rest on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_sgcv.kernel.estimators import CONTROL_VARIATE, SAGA_BLOCKS, STANDARD
from pymc_sgcv.kernel.estimators import SAGA as SAGA_ROWS
from pymc_sgcv.setup.center import Center
from pymc_sgcv.setup.plan import Weights
from pymc_sgcv.steps.options import Variables

if TYPE_CHECKING:  # what an ingredient does not take itself it hands on to the step method
    from pymc_sgcv.steps.base import StochasticGradientStep as _Rest
else:
    _Rest = object


class Standard(_Rest):
    """The plain minibatch gradient."""

    estimator = STANDARD

    def __init__(
        self,
        vars: Variables = None,
        *,
        weights: Weights = "auto",
        **common: Any,
    ):
        super().__init__(vars, weights=_named(weights), **common)


class ControlVariate(_Rest):
    """The control-variate gradient with a fixed center."""

    estimator = CONTROL_VARIATE
    shares_model = False

    def __init__(
        self,
        vars: Variables = None,
        *,
        center: Center | Mapping[str, ArrayLike] | None = None,
        weights: Weights = "auto",
        **common: Any,
    ):
        super().__init__(vars, _center=center, weights=_named(weights), **common)


class MovingCenter(_Rest):
    """The control-variate gradient whose center follows the chain."""

    estimator = CONTROL_VARIATE
    shares_model = False

    def __init__(
        self,
        vars: Variables = None,
        *,
        refresh: int | str = "auto",
        center: Center | Mapping[str, ArrayLike] | None = None,
        weights: Weights = "auto",
        **common: Any,
    ):
        if refresh != "auto":
            _check_whole("refresh", refresh, '"auto" or ')
        every = 0 if isinstance(refresh, str) else int(refresh)
        super().__init__(vars, _center=center, weights=_named(weights), refresh=every, **common)


class Table(_Rest):
    """SAGA: a table of past gradients as control variate."""

    shares_model = False

    def __init__(
        self,
        vars: Variables = None,
        *,
        table: str = "rows",
        table_dtype: str = "float64",
        memory_limit: float = 4e9,
        center: Center | Mapping[str, ArrayLike] | None = None,
        subsampling: str | None = None,
        **common: Any,
    ):
        if table not in ("rows", "blocks"):
            raise ValueError(f'table must be "rows" or "blocks", not {table!r}.')
        if table_dtype not in ("float64", "float32"):
            raise ValueError(f'table_dtype must be "float64" or "float32", not {table_dtype!r}.')
        number = isinstance(memory_limit, int | float | np.number)
        if not number or not memory_limit > 0:
            raise ValueError(f"memory_limit must be a number of bytes, not {memory_limit!r}.")
        if table == "blocks" and subsampling not in (None, "block"):
            raise ValueError(
                f'table="blocks" draws fixed blocks of the shuffled data: '
                f"subsampling={subsampling!r} does not apply. Leave subsampling out."
            )
        self.estimator = SAGA_ROWS if table == "rows" else SAGA_BLOCKS
        super().__init__(
            vars,
            _center=center,
            subsampling=subsampling or ("iid" if table == "rows" else "block"),
            table_dtype=table_dtype,
            memory_limit=memory_limit,
            **common,
        )


class Hamiltonian(_Rest):
    """Dynamics with a momentum and friction."""

    dynamics = "hamiltonian"

    def __init__(
        self,
        vars: Variables = None,
        *,
        friction: float = 1.0,
        leapfrog: int | None = None,
        **common: Any,
    ):
        _check_friction(friction, least=0.0 if leapfrog else None)
        if leapfrog is not None:
            _check_whole("leapfrog", leapfrog, "None or ")
        motion = {"friction": float(friction), "leapfrog": int(leapfrog or 0)}
        super().__init__(vars, _motion=motion, **common)


class Thermostat(_Rest):
    """Dynamics with a momentum whose friction adapts to the gradient noise."""

    dynamics = "thermostat"

    def __init__(self, vars: Variables = None, *, friction: float = 1.0, **common: Any):
        _check_friction(friction)
        super().__init__(vars, _motion={"friction": float(friction)}, **common)


def _named(weights: Weights) -> Weights:
    """Uniform weights are no weights at all."""
    return None if isinstance(weights, str) and weights == "uniform" else weights


def _check_whole(name: str, value: object, other: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be {other}a whole number of at least 1, not {value!r}.")


def _check_friction(friction: float, least: float | None = None) -> None:
    number = isinstance(friction, int | float | np.number) and not isinstance(friction, bool)
    if not number or not np.isfinite(friction) or friction < 0 or (friction == 0 and least is None):
        raise ValueError(
            f"friction must be a positive number (0 only with leapfrog), not {friction!r}."
        )
