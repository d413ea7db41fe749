# SPDX-License-Identifier: Apache-2.0
"""Lanczos' method finds the odd directions of a Gaussian, and with them its covariance."""

import numpy as np
import pytest

from pymc_sgcv.kernel.low_rank import LowRank
from pymc_sgcv.setup.directions import lanczos, low_rank_factor

D = 60
_rng = np.random.default_rng(90)
V = np.linalg.qr(_rng.normal(size=(D, 4)))[0]
VALUES = np.array([1e-3, 0.05, 8.0, 300.0])
SCALES = np.geomspace(1e-3, 1e3, D)


def hessian(values=VALUES):
    """S⁻¹ (I + V (λ − 1) Vᵀ) S⁻¹."""
    inner = np.eye(D) + V @ np.diag(values - 1) @ V.T
    return inner / np.outer(SCALES, SCALES)


def gaussian(H):
    return lambda points: -points @ H


def products(matrix, seed, missing=lambda *_: True, **options):
    """Lanczos' method on a matrix, by default to the end."""
    rng = np.random.default_rng(seed)
    return lanczos(lambda v: matrix @ v, len(matrix), rng, missing, **options)


def test_lanczos_goes_on_only_while_something_is_missing():
    matrix = _rng.normal(size=(90, 90))
    asked = []

    def missing(values, residuals):
        asked.append((len(values), len(residuals)))
        return len(values) < 40

    values, vectors, _ = products(matrix + matrix.T, 5, missing)
    assert asked == [(20, 20), (40, 40)]
    assert len(values) == 40 and vectors.shape == (90, 40)


def test_lanczos_with_a_product_for_every_dimension_is_a_decomposition():
    matrix = _rng.normal(size=(12, 12))
    matrix = matrix + matrix.T
    values, vectors, residuals = products(matrix, 1)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(12), atol=1e-10)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-9)
    assert residuals.max() < 1e-9


def test_residuals_of_lanczos_are_those_of_its_pairs():
    matrix = _rng.normal(size=(40, 40))
    matrix = matrix + matrix.T
    values, vectors, residuals = products(matrix, 2, most=9)
    exact = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    np.testing.assert_allclose(residuals, exact, rtol=1e-9, atol=1e-12)


def test_lanczos_stops_where_there_is_nothing_more():
    """Four eigenvalues beside a single repeated one: five products."""
    matrix = np.eye(D) + V @ np.diag(VALUES - 1) @ V.T
    values, vectors, _ = products(matrix, 3)
    np.testing.assert_allclose(values, np.sort([*VALUES, 1.0]), rtol=1e-6)
    assert vectors.shape == (D, 5)


@pytest.mark.parametrize("count", [1, 3])
def test_a_gaussian_with_a_few_odd_directions_is_whitened(count):
    points = SCALES * _rng.normal(size=(count, D))
    factor = low_rank_factor(gaussian(hessian()), points, SCALES, np.random.default_rng(4))
    assert isinstance(factor, LowRank) and factor.lengths.shape == (4,)
    F = np.asarray(factor)
    np.testing.assert_allclose(F.T @ hessian() @ F, np.eye(D), atol=1e-5)
    np.testing.assert_allclose(np.sort(factor.lengths), np.sort(VALUES**-0.5), rtol=1e-5)


def test_a_gaussian_without_odd_directions_has_none():
    H = np.diag(SCALES**-2.0)
    factor = low_rank_factor(gaussian(H), np.zeros((1, D)), SCALES, np.random.default_rng(5))
    assert factor.lengths.shape == (0,)
    np.testing.assert_array_equal(factor.spread(), SCALES)


def test_a_direction_that_curves_the_wrong_way_has_the_length_of_its_curvature():
    values = np.array([-0.1, 0.05, 8.0, 300.0])
    points = np.zeros((1, D))
    factor = low_rank_factor(gaussian(hessian(values)), points, SCALES, np.random.default_rng(6))
    np.testing.assert_allclose(np.sort(factor.lengths), np.sort(np.abs(values) ** -0.5), rtol=1e-5)


def test_the_hessian_is_averaged_over_points():
    """Along V₁ it is 0 at one point and 0.02 at the other."""

    def gradient(points):
        along = (points / SCALES) @ V[:, 0]
        rest = points @ hessian(np.array([0.0, 1.0, 1.0, 1.0]))
        return -rest - np.outer(np.where(along > 5, 0.02 * (along - 5), 0.0), V[:, 0]) / SCALES

    points = np.outer([0.0, 10.0], SCALES * V[:, 0])
    factor = low_rank_factor(gradient, points, SCALES, np.random.default_rng(7))
    np.testing.assert_allclose(factor.lengths, [10.0], rtol=1e-5)
