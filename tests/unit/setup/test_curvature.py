# SPDX-License-Identifier: Apache-2.0
"""Scales and covariance from differences of gradients: exact on Gaussians, sensible on kinks."""

import numpy as np
import pytest

from pymc_sgcv.kernel.preconditioners import Dense, Diagonal
from pymc_sgcv.setup.curvature import coordinate_scales, covariance_factor, largest_curvature

SCALES = np.array([1e-4, 1e-2, 1.0, 1e2, 1e4])
ROTATION = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
CORRELATED = ROTATION @ np.diag([0.1, 0.5, 1.0, 2.0, 20.0]) @ ROTATION.T
HESSIANS = {
    "identity": np.eye(5),
    "correlated": CORRELATED,
    "badly scaled": np.diag(SCALES**-2.0),
    "correlated and badly scaled": CORRELATED / np.outer(SCALES, SCALES),
}
HESSIAN = pytest.mark.parametrize("hessian", HESSIANS.values(), ids=HESSIANS.keys())
POINT = np.array([3.0, -2.0, 0.5, 0.0, 7.0])


def gaussian(hessian, mode=0.0):
    """The gradient of log N(mode, hessian⁻¹) at each row of its argument."""
    return lambda points: -(points - mode) @ hessian


@HESSIAN
def test_coordinate_scales_of_a_gaussian_are_its_conditional_deviations(hessian):
    scales = coordinate_scales(gaussian(hessian), POINT, start=1e-2)
    np.testing.assert_allclose(scales, np.diag(hessian) ** -0.5, rtol=1e-6)


@HESSIAN
def test_coordinate_scales_do_not_depend_on_where_the_search_starts(hessian):
    near = np.diag(hessian) ** -0.5
    for start in (1e-3 * near, near, 1e3 * near):
        scales = coordinate_scales(gaussian(hessian), POINT, start)
        np.testing.assert_allclose(scales, near, rtol=1e-6)


@HESSIAN
def test_the_covariance_factor_of_a_gaussian_whitens_it(hessian):
    gradient = gaussian(hessian, mode=1.0)
    F = covariance_factor(gradient, POINT, coordinate_scales(gradient, POINT, 1e-2))
    np.testing.assert_allclose(F.T @ hessian @ F, np.eye(5), atol=1e-6)


def test_the_covariance_factor_of_a_nearly_collinear_gaussian_whitens_it():
    hessian = np.array([[1.0, 1 - 1e-5], [1 - 1e-5, 1.0]])  # eigenvalues 2 and 1e-5
    gradient = gaussian(hessian)
    F = covariance_factor(gradient, np.zeros(2), coordinate_scales(gradient, np.zeros(2)))
    np.testing.assert_allclose(F.T @ hessian @ F, np.eye(2), atol=1e-6)


def test_a_direction_that_only_a_laplace_prior_identifies_has_the_priors_scale():
    """Data see x₁ + x₂ alone; along x₁ − x₂ there is just the kink of Laplace(0, 1) twice.

    Along v = (1, −1)/√2 the log density is −√2 |t|, so u·g = 1 at u = 1/√2: in the middle between
    the deviation of that density (1) and the distance it takes to lose half a unit of it (0.35).
    """

    def gradient(points):
        return -1e4 * points.sum(1, keepdims=True) - np.sign(points)

    point = np.array([0.3, -0.3])
    F = covariance_factor(gradient, point, coordinate_scales(gradient, point, 1e-2))
    deviation = np.sqrt(np.array([1.0, -1.0]) @ F @ F.T @ np.array([1.0, -1.0]) / 2)
    assert 0.35 < deviation < 1.5
    well_identified = np.sqrt(np.ones(2) @ F @ F.T @ np.ones(2) / 2)
    np.testing.assert_allclose(well_identified, 1 / np.sqrt(2e4), rtol=0.05)


def test_a_direction_without_any_curvature_has_a_finite_scale():
    hessian = np.diag([4.0, 0.0])
    scales = coordinate_scales(gaussian(hessian), np.zeros(2))
    F = covariance_factor(gaussian(hessian), np.zeros(2), scales)
    assert np.isfinite(F).all()
    np.testing.assert_allclose(scales[0], 0.5, rtol=1e-6)


def test_a_gradient_that_is_not_finite_far_out_shortens_the_scale():
    def gradient(points):
        return np.where(np.abs(points) < 1, -4.0 * points, np.nan)

    np.testing.assert_allclose(coordinate_scales(gradient, np.zeros(3), 50.0), 0.5, rtol=1e-6)


@HESSIAN
@pytest.mark.parametrize("scales", [SCALES, np.ones(5)], ids=["scaled", "unit"])
def test_largest_curvature_is_the_largest_eigenvalue(hessian, scales):
    rng = np.random.default_rng(0)
    rotated = np.diag(scales) @ ROTATION
    for factor, matrix in ((Diagonal(scales), np.diag(scales)), (Dense(rotated), rotated)):
        found = largest_curvature(gaussian(hessian), POINT, factor, rng, rounds=100)
        exact = np.linalg.eigvalsh(matrix.T @ hessian @ matrix)[-1]
        assert found == pytest.approx(exact, rel=1e-3)
