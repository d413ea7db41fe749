# SPDX-License-Identifier: Apache-2.0
"""Which declarations are group effects, and which only look like them."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_sgcv.model.effects import find_effects
from pymc_sgcv.model.start import PYTHON, initial_point

G, K = 6, 2
INDEX = np.arange(30) % G
Y, PAIRS = np.zeros(30), np.zeros((30, K))


def found(declare):
    """Effects of a model by the names of their variables, in the order found, and the model."""
    with pm.Model() as model:
        declare()
    point = initial_point(model)
    sizes = {value: np.size(point[value.name]) for value in model.value_vars}
    return {effect.value.name: effect for effect in find_effects(model, sizes)}, model


def at_start(model, graph):
    """The value of a graph at the initial point, with log τ = ½ and everything else moved by ¼."""
    [graph] = model.replace_rvs_by_values([graph])
    point = {
        name: 0 * value + 0.5 if name == "tau_log__" else value + 0.25
        for name, value in initial_point(model).items()
    }
    function = model.compile_fn(
        graph, inputs=list(model.value_vars), mode=PYTHON, on_unused_input="ignore"
    )
    return function(point)


def tau():
    return pm.HalfNormal("tau", 1)


def mu():
    return pm.Normal("mu", 0, 1)


def standard(**kwargs):
    return pm.Normal("z", 0, 1, **{"shape": G, **kwargs})


def observe(effects, **kwargs):
    pm.Normal("y", effects[INDEX], 1, observed=kwargs.get("data", Y))


def chol():
    sd = pm.HalfNormal.dist(1.0, shape=K)
    return pm.LKJCholeskyCov("L", n=K, eta=2, sd_dist=sd, compute_corr=True)[0]


# Recognised

CENTRED = {
    "normal": lambda m, t: pm.Normal("u", m, t, shape=G),
    "student": lambda m, t: pm.StudentT("u", nu=4, mu=m, sigma=t, shape=G),
    "laplace": lambda m, t: pm.Laplace("u", m, t, shape=G),
    "logistic": lambda m, t: pm.Logistic("u", m, t, shape=G),
    "cauchy": lambda m, t: pm.Cauchy("u", m, t, shape=G),
    "gumbel": lambda m, t: pm.Gumbel("u", m, t, shape=G),
}
OFFSET = {
    "sum": lambda m, t, z: m + t * z,
    "the other way round": lambda m, t, z: z * t + m,
    "deterministic": lambda m, t, z: pm.Deterministic("u", m + t * z),
    "deterministic product": lambda m, t, z: m + pm.Deterministic("u", t * z),
}


@pytest.mark.parametrize("declare", CENTRED.values(), ids=CENTRED)
def test_a_location_and_a_random_scale_are_a_centred_effect(declare):
    effects, model = found(lambda: observe(declare(mu(), tau())))
    assert list(effects) == ["u"]
    u = effects["u"]
    assert not u.offset and u.mixing is None
    assert at_start(model, u.location) == pytest.approx(0.25)
    assert at_start(model, u.scale) == pytest.approx(np.exp(0.5))


@pytest.mark.parametrize("declare", OFFSET.values(), ids=OFFSET)
def test_a_standard_variable_times_a_random_scale_is_an_offset_effect(declare):
    effects, model = found(lambda: observe(declare(mu(), tau(), standard())))
    assert list(effects) == ["z"]
    z = effects["z"]
    assert z.offset and z.mixing is None
    assert np.all(at_start(model, z.location) == pytest.approx(0.25))
    assert np.all(at_start(model, z.scale) == pytest.approx(np.exp(0.5)))


def test_a_scale_after_indexing_is_recognised_with_no_location():
    """What is added to rows is no location of groups."""
    effects, model = found(lambda: pm.Normal("y", mu() + tau() * standard()[INDEX], 1, observed=Y))
    assert list(effects) == ["z"] and effects["z"].offset
    assert at_start(model, effects["z"].location) == 0
    assert at_start(model, effects["z"].scale) == pytest.approx(np.exp(0.5))


def test_without_a_location_it_is_zero():
    effects, model = found(lambda: observe(tau() * standard()))
    assert np.all(at_start(model, effects["z"].location) == 0)


@pytest.mark.parametrize("indexed", [False, True])
def test_a_standard_variable_over_a_precision_is_an_offset_effect(indexed):
    def declare():
        z, root = standard(), pt.sqrt(tau())
        pm.Normal("y", z[INDEX] / root if indexed else (mu() + z / root)[INDEX], 1, observed=Y)

    effects, model = found(declare)
    assert list(effects) == ["z"] and effects["z"].offset
    assert np.all(at_start(model, effects["z"].location) == (0 if indexed else 0.25))
    np.testing.assert_allclose(at_start(model, effects["z"].scale), np.exp(-0.25))


@pytest.mark.parametrize("offset", [False, True])
def test_each_effect_of_a_group_may_have_its_own_scale(offset):
    def declare():
        scales = pm.HalfNormal("tau", 1, shape=K)
        z = standard(shape=(G, K)) if offset else pm.Normal("z", 0, scales, shape=(G, K))
        observe(scales * z if offset else z, data=PAIRS)

    effects, model = found(declare)
    assert effects["z"].offset is offset and effects["z"].mixing is None
    scale = np.broadcast_to(at_start(model, effects["z"].scale), (G, K))
    np.testing.assert_allclose(scale, np.exp(0.5))


def test_correlated_effects_have_their_standard_deviations_as_scales():
    def declare():
        observe(pm.MvNormal("u", np.zeros(K), chol=chol(), shape=(G, K)), data=PAIRS)

    effects, model = found(declare)
    assert list(effects) == ["u"] and not effects["u"].offset and effects["u"].mixing is None
    L = at_start(model, model["L"])
    matrix = np.array([[L[0], 0], [L[1], L[2]]])
    deviations = np.sqrt(np.diag(matrix @ matrix.T))
    scale = np.ravel(at_start(model, effects["u"].scale))
    np.testing.assert_allclose(scale, deviations, rtol=1e-12)


@pytest.mark.parametrize("columns", [False, True], ids=["z @ L.T", "L @ z"])
def test_a_standard_matrix_times_a_cholesky_factor_is_mixed_by_it(columns):
    def declare():
        if columns:
            observe((chol() @ standard(shape=(K, G))).T, data=PAIRS)
        else:
            observe(standard(shape=(G, K)) @ chol().T, data=PAIRS)

    effects, model = found(declare)
    z = effects["z"]
    assert list(effects) == ["z"] and z.offset and z.columns is columns
    L = at_start(model, model["L"])
    matrix = np.array([[L[0], 0], [L[1], L[2]]])
    np.testing.assert_allclose(at_start(model, z.mixing), matrix, rtol=1e-12)
    deviations = np.sqrt(np.diag(matrix @ matrix.T))
    scale = np.ravel(at_start(model, z.scale))
    np.testing.assert_allclose(scale, deviations, rtol=1e-12)
    assert z.scale.type.ndim == (2 if columns else 1)


def test_effects_that_sum_to_zero_are_centred_at_zero():
    effects, model = found(lambda: observe(pm.ZeroSumNormal("u", tau(), shape=G)))
    [u] = effects.values()
    assert not u.offset
    assert at_start(model, u.location) == 0
    np.testing.assert_allclose(at_start(model, u.scale), np.exp(0.5))


def nested():
    upper = pm.Normal("upper", mu(), pm.HalfNormal("sd", 1), shape=3)
    observe(pm.Normal("lower", upper[np.arange(G) % 3], tau(), shape=G))


def nested_in_another_order():
    """The lower level's variable comes first among those of the model."""
    z = standard()
    upper = pm.Normal("upper", mu(), pm.HalfNormal("sd", 1), shape=3)
    observe(upper[np.arange(G) % 3] + tau() * z)


def scale_with_a_level():
    logs = pm.Normal("logs", mu(), pm.HalfNormal("sd", 1), shape=G)
    observe(pm.Normal("u", 0, pt.exp(logs), shape=G))


@pytest.mark.parametrize(
    ("declare", "names"),
    [
        (nested, ["upper", "lower"]),
        (nested_in_another_order, ["upper", "z"]),
        (scale_with_a_level, ["logs", "u"]),
    ],
)
def test_parents_come_first(declare, names):
    effects, _ = found(declare)
    assert list(effects) == names


# Not recognised


def the_divisor():
    """A random variable over a standard one is none of its effects."""
    observe(tau() / standard())


def fixed_scale():
    observe(pm.Normal("u", mu(), 2.0, shape=G))


def fixed_scale_offset():
    observe(mu() + 2.0 * standard())


def slope_of_unknown_sign():
    observe(pm.Normal("slope", 0, 1) * standard())


def slope_between_bounds_of_both_signs():
    observe(pm.Uniform("slope", -1, 1) * standard())


def slope_minus_a_constant():
    observe((tau() - 0.5) * standard())


def one_effect():
    pm.Normal("y", pm.Normal("u", mu(), tau()), 1, observed=Y)


def item_response():
    ability = pm.Normal("ability", 0, 1, shape=10)
    discrimination = pm.HalfNormal("discrimination", 1, shape=G)
    logit = discrimination[INDEX] * ability[np.arange(30) % 10]
    pm.Bernoulli("y", logit_p=logit, observed=Y.astype(int))


def factorisation():
    U, V = pm.Normal("U", 0, 1, shape=(G, K)), pm.Normal("V", 0, 1, shape=(5, K))
    pm.Normal("y", (U @ V.T)[INDEX, np.arange(30) % 5], 1, observed=Y)


def square_factorisation():
    U, V = pm.Normal("U", 0, 1, shape=(G, K)), pm.Normal("V", 0, 1, shape=(K, K))
    observe(U @ V.T, data=PAIRS)


def positive_loadings():
    W = pm.HalfNormal("W", 1, shape=(3, K))
    observe(standard(shape=(G, 3)) @ W, data=PAIRS)


def transformed():
    order = pm.distributions.transforms.ordered
    observe(pm.Normal("u", mu(), tau(), shape=G, transform=order, initval=np.arange(G)))


NOT = [
    the_divisor,
    fixed_scale,
    fixed_scale_offset,
    slope_of_unknown_sign,
    slope_between_bounds_of_both_signs,
    slope_minus_a_constant,
    one_effect,
    item_response,
    factorisation,
    square_factorisation,
    positive_loadings,
    transformed,
]


@pytest.mark.parametrize("declare", NOT)
def test_what_is_no_effect(declare):
    effects, _ = found(declare)
    assert effects == {}


POSITIVE = {
    "half normal": lambda: pm.HalfNormal("t", 1),
    "uniform": lambda: pm.Uniform("t", 0, 3),
    "interval": lambda: pm.TruncatedNormal("t", 0, 1, lower=0.1),
    "exponential of": lambda: pt.exp(pm.Normal("t", 0, 1)),
    "root of": lambda: pt.sqrt(pm.Gamma("t", 2, 1)),
    "multiple of": lambda: 2.5 * pm.HalfNormal("t", 1),
    "part of": lambda: pm.HalfNormal("t", 1, shape=3)[1],
    "precision": lambda: pm.Gamma("t", 2, 1) ** -0.5,
}


@pytest.mark.parametrize("scale", POSITIVE.values(), ids=POSITIVE)
def test_scales_that_are_positive_for_sure(scale):
    effects, _ = found(lambda: observe(scale() * standard()))
    assert list(effects) == ["z"]
