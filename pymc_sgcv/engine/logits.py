# SPDX-License-Identifier: Apache-2.0
"""Log-likelihoods of a logit in a form whose gradient is finite wherever they are.

PyTensor differentiates log(1 − σ(x)) as σ(x)(1 − σ(x)) / (1 − σ(x)), which is 0/0 from x = 37 on,
where 1 − σ(x) is rounded to 0. Its own rewrites to softplus come too late: after the gradient was
taken. With log(1 − σ(x)) = −softplus(x) and log σ(x) = −softplus(−x) there is nothing to divide by,
and where an outcome selects one of the two, one σ remains. σ(x) is never 0 or 1, whatever rounding
makes of it: PyMC's Binomial asks, and takes such an outcome for impossible.
"""

from __future__ import annotations

from typing import cast

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.variable import TensorVariable


def without_division(graph: TensorVariable) -> TensorVariable:
    """The same graph with logarithms of σ and 1 − σ as softplus.

    Examples
    --------
    >>> x = pt.dscalar("x")
    >>> slope = pt.grad(without_division(pt.log1p(-pt.sigmoid(x))), x)
    >>> print(slope.eval({x: 50.0}))
    -1.0
    """
    found = {v: _finite(v) for v in ancestors([graph])}
    finite: dict[Variable, Variable] = {v: new for v, new in found.items() if new is not None}
    return cast(TensorVariable, clone_replace([graph], finite)[0])


def _finite(variable: Variable) -> TensorVariable | None:
    """`variable` without logarithms of σ or 1 − σ, and without asking whether those are zero."""
    log = _logarithm(variable)
    if log is not None:
        x, complement = log
        return -pt.softplus(x if complement else -x)
    asked = _arguments(variable, pt.eq)
    if asked is not None and _is(0, asked[1]) and _probability(asked[0]) is not None:
        return pt.zeros_like(variable)
    for bound, relation in (0, pt.ge), (1, pt.le):
        asked = _arguments(variable, relation)
        if asked is not None and _is(bound, asked[1]) and _probability(asked[0]) is not None:
            return pt.ones_like(variable)
    chosen = _arguments(variable, pt.switch)
    if chosen is None:
        return None
    outcome, one, zero = chosen[0], _logarithm(chosen[1]), _logarithm(chosen[2])
    if one is None or zero is None or one[0] is not zero[0] or one[1] == zero[1]:
        return None
    x = one[0]
    return (pt.switch(outcome, 0.0, x) if one[1] else pt.switch(outcome, x, 0.0)) - pt.softplus(x)


def _logarithm(variable: Variable) -> tuple[TensorVariable, bool] | None:
    """x, and whether it is log(1 − σ(x)), if `variable` is that or log σ(x)."""
    log, log1p = _arguments(variable, pt.log), _arguments(variable, pt.log1p)
    if log is not None:
        return _probability(log[0])
    minus = None if log1p is None else _arguments(log1p[0], pt.neg)
    sigmoid = None if minus is None else _arguments(minus[0], pt.sigmoid)
    return None if sigmoid is None else (sigmoid[0], True)


def _probability(variable: Variable) -> tuple[TensorVariable, bool] | None:
    """x, and whether it is 1 − σ(x), if `variable` is that or σ(x)."""
    rest = _arguments(variable, pt.sub)
    if rest is not None and _is(1, rest[0]):
        sigmoid, complement = _arguments(rest[1], pt.sigmoid), True
    else:
        sigmoid, complement = _arguments(variable, pt.sigmoid), False
    return None if sigmoid is None else (sigmoid[0], complement)


def _arguments(variable: Variable, op: Op) -> list | None:
    """What `op` was applied to, if `variable` is its result."""
    return variable.owner.inputs if variable.owner and variable.owner.op == op else None


def _is(number: int, variable: Variable) -> bool:
    value = get_underlying_scalar_constant_value(variable, raise_not_constant=False)
    return not hasattr(value, "owner") and value == number
