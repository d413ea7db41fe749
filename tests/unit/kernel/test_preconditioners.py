# SPDX-License-Identifier: Apache-2.0
"""Every kind of preconditioner is the matrix F that it stands for, for all that is asked of it.

The matrix of each kind is written down beside it, and what it does is compared with plain numpy on
that matrix. A further kind needs one line in `KINDS`.
"""

import numpy as np
import pytest

from pymc_sgcv.kernel.forms import apply, apply_transposed
from pymc_sgcv.kernel.low_rank import Blocks, LowRank
from pymc_sgcv.kernel.preconditioners import (
    COMPLETE_LIMIT,
    Dense,
    Diagonal,
    Wide,
    from_array,
    from_covariance,
)

D = 3
SCALES = np.array([0.2, 3.0, 10.0])
SKEW = np.array([[0.3, 0.4, 0.0], [-0.1, 2.0, 1.0], [0.5, -0.2, 0.7]])  # no triangle, not symmetric
DIRECTIONS = np.linalg.qr([[0.5, 1.0], [-1.0, 0.3], [0.2, 0.7]])[0]
LENGTHS = np.array([0.1, 4.0])
LOW_RANK = np.diag(SCALES) @ (np.eye(D) + DIRECTIONS @ np.diag(LENGTHS - 1) @ DIRECTIONS.T)
BLOCKS = Blocks(np.array([[2, 0]]), np.array([[[1.5, -0.4], [-0.4, 0.7]]]))
MIXED = np.array([[0.7, 0.0, -0.4], [0.0, 1.0, 0.0], [-0.4, 0.0, 1.5]])  # the same as a matrix
WITH_BLOCKS = np.diag(SCALES) @ MIXED @ np.diag(1 / SCALES) @ LOW_RANK
KINDS = {
    "dense": (lambda: Dense(SKEW.copy()), SKEW),
    "wide": (lambda: Wide(SKEW.copy()), SKEW),
    "diagonal": (lambda: Diagonal(SCALES.copy()), np.diag(SCALES)),
    "low rank": (lambda: LowRank(SCALES.copy(), DIRECTIONS.copy(), LENGTHS.copy()), LOW_RANK),
    "blocks": (
        lambda: LowRank(SCALES.copy(), DIRECTIONS.copy(), LENGTHS.copy(), BLOCKS),
        WITH_BLOCKS,
    ),
}
KIND = pytest.mark.parametrize(("make", "F"), KINDS.values(), ids=KINDS)
PAIRS = [(one, other) for one in KINDS for other in KINDS]
SHAPE = pytest.mark.parametrize("shape", [(D,), (1, D), (7, D)], ids=str)
VECTORS = np.random.default_rng(1).normal(size=(7, D))
MIX = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [-0.3, 0.5, 2.0]])
DRAWS = np.random.default_rng(2).normal(size=(50, D)) @ MIX.T  # correlated, unequal
TIGHT = {"rtol": 1e-12, "atol": 1e-13}


def vectors(shape):
    return np.resize(VECTORS, shape)


def as_matrix(moments):
    """Mean squares of coordinates stand for a diagonal matrix."""
    return moments if moments.ndim == 2 else np.diag(moments)


def matrix_of(factor):
    """F column by column, from its products."""
    return factor.apply(np.eye(factor.size)).T


@KIND
def test_it_knows_its_size(make, F):
    assert make().size == D
    assert repr(make()) == f"{type(make()).__name__}(3 parameters)"


@KIND
@SHAPE
def test_apply_is_the_product_with_every_vector(make, F, shape):
    v = vectors(shape)
    np.testing.assert_allclose(make().apply(v), (F @ v.T).T, **TIGHT)


@KIND
@SHAPE
def test_apply_transposed_is_the_product_with_the_transpose(make, F, shape):
    v = vectors(shape)
    np.testing.assert_allclose(make().apply_transposed(v), (F.T @ v.T).T, **TIGHT)


@KIND
@SHAPE
def test_solve_is_the_product_with_the_inverse(make, F, shape):
    v = vectors(shape)
    np.testing.assert_allclose(make().solve(v.copy()), np.linalg.solve(F, v.T).T, **TIGHT)


@KIND
@SHAPE
def test_solve_undoes_apply(make, F, shape):
    factor, v = make(), vectors(shape)
    np.testing.assert_allclose(factor.solve(factor.apply(v)), v, **TIGHT)


@KIND
def test_products_leave_their_argument_alone(make, F):
    factor, v = make(), VECTORS.copy()
    factor.apply(v)
    factor.apply_transposed(v)
    np.testing.assert_array_equal(v, VECTORS)


@KIND
@pytest.mark.parametrize(
    ("compiled", "transposed"), [(apply, False), (apply_transposed, True)], ids=["F", "Fᵀ"]
)
def test_compiled_products_on_the_form_are_those_of_numpy(make, F, compiled, transposed):
    factor = make()
    method = factor.apply_transposed if transposed else factor.apply
    for v in VECTORS:
        out = np.full(D, np.nan)
        compiled(factor.form(), v, out)
        np.testing.assert_allclose(out, method(v), **TIGHT)
        np.testing.assert_allclose(out, (F.T if transposed else F) @ v, **TIGHT)


UNORDERED = [
    Dense(SKEW.T),
    Diagonal(np.repeat(SCALES, 2)[::2]),
    LowRank(np.repeat(SCALES, 2)[::2], np.asfortranarray(DIRECTIONS), LENGTHS[::-1]),
]


@pytest.mark.parametrize("factor", UNORDERED, ids=repr)
def test_an_array_that_is_not_in_order_in_memory_has_a_form_that_is(factor):
    out, F = np.empty(D), matrix_of(factor)
    for array in factor.form()[1:]:
        assert array.flags.c_contiguous
    apply(factor.form(), VECTORS[0], out)
    np.testing.assert_allclose(out, F @ VECTORS[0], **TIGHT)


@KIND
def test_the_spread_is_that_of_the_covariance(make, F):
    np.testing.assert_allclose(make().spread(), np.sqrt(np.diag(F @ F.T)), **TIGHT)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_ratios_are_the_singular_values_of_one_factor_in_the_others_coordinates(one, other):
    """Of a diagonal kind the deviations alone, since it does not see correlations."""
    (make, F), (make_other, G) = KINDS[one], KINDS[other]
    factor = make()
    if not factor.complete:
        F, G = (np.diag(np.sqrt(np.diag(M @ M.T))) for M in (F, G))
    expected = np.linalg.svd(np.linalg.solve(F, G), compute_uv=False)
    np.testing.assert_allclose(np.sort(factor.ratios(make_other())), np.sort(expected), rtol=1e-10)


@KIND
def test_ratios_to_a_factor_of_the_same_covariance_are_one(make, F):
    factor = make()
    _, turned = factor.principal(factor.moments(DRAWS))
    np.testing.assert_allclose(factor.ratios(turned), 1, rtol=1e-10)


@KIND
def test_moments_are_mean_squares(make, F):
    factor = make()
    expected = DRAWS.T @ DRAWS / len(DRAWS)
    if not factor.complete:
        expected = np.diag(expected)
    np.testing.assert_allclose(factor.moments(DRAWS), expected, **TIGHT)
    np.testing.assert_allclose(factor.moments(DRAWS, 2.5), 2.5 * expected, **TIGHT)


@KIND
def test_the_identity_is_the_moments_of_independent_coordinates(make, F):
    factor = make()
    signs = np.array([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    np.testing.assert_array_equal(factor.identity(), factor.moments(signs))


@KIND
def test_variances_are_the_mean_squares_of_coordinates(make, F):
    factor = make()
    expected = (DRAWS**2).mean(0)
    np.testing.assert_allclose(factor.variances(factor.moments(DRAWS)), expected, **TIGHT)


@KIND
def test_the_largest_is_the_mean_square_in_the_worst_direction(make, F):
    factor = make()
    moments = factor.moments(DRAWS)
    worst = factor.largest(moments)
    assert worst == pytest.approx(np.linalg.eigvalsh(as_matrix(moments))[-1], rel=1e-12)
    assert type(worst) is float


@KIND
def test_principal_coordinates_are_uncorrelated_with_the_mean_squares_it_gives(make, F):
    factor = make()
    moments = factor.moments(DRAWS)
    values, turned = factor.principal(moments)
    turn = np.linalg.solve(F, matrix_of(turned))  # of gradients Fᵀg into those of the turned F
    np.testing.assert_allclose(turn.T @ as_matrix(moments) @ turn, np.diag(values), atol=1e-12)


@KIND
def test_principal_coordinates_have_the_same_covariance(make, F):
    factor = make()
    _, turned = factor.principal(factor.moments(DRAWS))
    G = matrix_of(turned)
    assert type(turned) is type(factor)
    np.testing.assert_allclose(G @ G.T, F @ F.T, **TIGHT)


def test_mean_squares_in_principal_directions_are_not_negative():
    """Rounding leaves moments of few draws with eigenvalues a little below zero."""
    values, _ = Dense(SKEW).principal(np.diag([1.0, -1e-17, 2.0]))
    np.testing.assert_array_equal(values, [0.0, 1.0, 2.0])


@KIND
def test_the_share_by_parameter_is_that_of_the_variances_of_the_parameters(make, F):
    """With variances 1 + shareⱼ of the coordinates, those of θ are diag F(1 + share)Fᵀ."""
    share = np.array([0.5, -0.2, 3.0])
    wider, usual = np.diag((F * (1 + share)) @ F.T), np.diag(F @ F.T)
    np.testing.assert_allclose(1 + make().by_parameter(share), wider / usual, **TIGHT)


@KIND
def test_its_numbers_are_those_that_it_was_made_of(make, F):
    numbers = np.asarray(make())
    rounding = TIGHT if isinstance(make(), LowRank) else {"rtol": 0}  # F is a product there
    np.testing.assert_allclose(as_matrix(numbers), F, **rounding)
    assert np.asarray(make(), dtype="float32").dtype == np.float32


@KIND
def test_its_numbers_are_a_copy(make, F):
    factor = make()
    np.asarray(factor)[...] = 0.0
    rounding = TIGHT if isinstance(factor, LowRank) else {"rtol": 0}
    np.testing.assert_allclose(matrix_of(factor), F, **rounding)


@KIND
def test_scaled_multiplies_every_parameter_by_its_factor(make, F):
    factor, by = make(), np.array([2.0, 0.5, 1.0])
    scaled = factor.scaled(by)
    assert type(scaled) is type(factor)
    np.testing.assert_allclose(matrix_of(scaled), by[:, None] * F, **TIGHT)
    np.testing.assert_allclose(scaled.spread(), by * factor.spread(), **TIGHT)
    np.testing.assert_array_equal(matrix_of(factor), matrix_of(make()))  # which stays as it is


def test_low_rank_without_any_direction_is_diagonal():
    factor = LowRank(SCALES, np.empty((D, 0)), np.empty(0))
    out = np.empty(D)
    apply(factor.form(), VECTORS[0], out)
    np.testing.assert_array_equal(matrix_of(factor), np.diag(SCALES))
    np.testing.assert_array_equal(out, SCALES * VECTORS[0])


# From a covariance


@pytest.mark.parametrize(
    ("given", "kind"), [(SKEW @ SKEW.T, Dense), (SCALES**2, Diagonal)], ids=["matrix", "vector"]
)
def test_the_factor_of_a_covariance_has_that_covariance(given, kind):
    factor = from_covariance(given)
    F = matrix_of(factor)
    assert type(factor) is kind
    np.testing.assert_allclose(F @ F.T, as_matrix(given), **TIGHT)


@pytest.mark.parametrize(
    "matrix",
    [
        np.array([1.0, 0.0]),
        np.array([1.0, -1.0]),
        np.array([1.0, np.nan]),
        np.array([1.0, np.inf]),
        np.array([[1.0, 0.5], [0.0, 1.0]]),
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.array([[1.0, 1.0], [1.0, 1.0]]) - 1e-3 * np.eye(2),
        np.array([[1.0, np.nan], [np.nan, 1.0]]),
    ],
    ids=[
        "a variance of zero",
        "a negative variance",
        "a variance that is no number",
        "an infinite variance",
        "not symmetric",
        "indefinite",
        "barely indefinite",
        "no numbers",
    ],
)
def test_what_is_no_covariance_has_no_factor(matrix):
    assert from_covariance(matrix) is None


@pytest.mark.parametrize(("size", "kind"), [(COMPLETE_LIMIT, Dense), (COMPLETE_LIMIT + 1, Wide)])
def test_a_matrix_of_many_parameters_knows_moments_by_coordinate(size, kind):
    made = from_array(np.eye(size))
    assert type(made) is kind
    assert type(made.scaled(np.ones(size))) is kind
    assert made.complete == (kind is Dense)
    assert made.moments(np.ones((2, size))).ndim == (2 if kind is Dense else 1)
