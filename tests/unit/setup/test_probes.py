# SPDX-License-Identifier: Apache-2.0
"""Parameters that do not see each other are probed together, and each has its own curvature."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_sgcv.setup.probes import FEW, colours, curvatures, meet, probed_scales

POINT = np.array([3.0, -2.0, 0.5, 0.0, 7.0])
LABELS = np.array([0, 1, 1, 2, 2])
BLOCKS = np.array(  # those with one label do not see each other, but see the rest
    [
        [4.0, 0.5, -1.0, 0.3, 0.2],
        [0.5, 9.0, 0.0, 1.0, 0.7],
        [-1.0, 0.0, 2.0, 0.4, -0.6],
        [0.3, 1.0, 0.4, 100.0, 0.0],
        [0.2, 0.7, -0.6, 0.0, 1.0],
    ]
)


def gaussian(hessian, mode=0.0):
    return lambda points: -(points - mode) @ hessian


def target(*shapes):
    parameters, first = [], 0
    for shape in shapes:
        last = first + int(np.prod(shape))
        parameters.append(SimpleNamespace(shape=shape, start=first, stop=last))
        first = last
    return SimpleNamespace(parameters=parameters, size=first)


def test_short_variables_are_probed_one_component_at_a_time():
    labels = colours(target((), (3,), (2, 2)))
    np.testing.assert_array_equal(labels, np.arange(8))


@pytest.mark.parametrize("axis", [0, 1])
def test_long_variables_are_probed_together_along_their_longest_axis(axis):
    shape = (FEW, 2) if axis == 0 else (2, FEW)
    labels = colours(target((), shape, (2,)))
    expected = np.broadcast_to(np.arange(2)[None] if axis == 0 else np.arange(2)[:, None], shape)
    np.testing.assert_array_equal(labels[1:-2].reshape(shape), 1 + expected)
    np.testing.assert_array_equal(labels[[0, -2, -1]], [0, 3, 4])


def test_curvatures_of_those_wanted_are_exact_and_the_rest_unknown():
    rng, width = np.random.default_rng(0), np.array([1.0, 0.1, 2.0, 0.3, 5.0])
    found = curvatures(gaussian(BLOCKS, 1.0), POINT, LABELS, width, [1, 2], rng)
    np.testing.assert_allclose(found[1:], np.diag(BLOCKS)[1:], rtol=1e-12)
    assert np.isnan(found[0])


def test_one_difference_tells_of_all_with_one_label():
    calls = []

    def gradient(points):
        calls.append(len(points))
        return gaussian(BLOCKS)(points)

    curvatures(gradient, POINT, LABELS, np.ones(5), [0, 1, 2], np.random.default_rng(0))
    assert calls == [6]


def test_many_points_are_taken_in_several_calls(monkeypatch):
    monkeypatch.setattr("pymc_sgcv.setup.probes._MOST_NUMBERS", 10)
    rng = np.random.default_rng(0)
    found = curvatures(gaussian(BLOCKS), POINT, LABELS, np.ones(5), [0, 1, 2], rng)
    np.testing.assert_allclose(found, np.diag(BLOCKS), rtol=1e-12)


def test_probed_scales_of_a_gaussian_are_its_conditional_deviations():
    rng = np.random.default_rng(0)
    scales = probed_scales(gaussian(BLOCKS, 1.0), POINT, LABELS, rng)
    np.testing.assert_allclose(scales, np.diag(BLOCKS) ** -0.5, rtol=1e-6)


@pytest.mark.parametrize("widest", [10.0, 1e4])
def test_probed_scales_are_exact_when_coordinates_are_independent(widest):
    """All with one label, and each with its own, from a guess ten times as wide or narrow."""
    deviations = np.geomspace(1 / widest, widest, 30)
    gradient, point = gaussian(np.diag(deviations**-2.0)), np.ones(30)
    for labels in (np.zeros(30, dtype=int), np.arange(30)):
        for start in (0.1 * deviations, 10 * deviations):
            rng = np.random.default_rng(0)
            scales = probed_scales(gradient, point, labels, rng, start)
            np.testing.assert_allclose(scales, deviations, rtol=1e-6)


def test_a_gradient_that_is_not_finite_far_out_shortens_the_scale():
    def gradient(points):
        return np.where(np.abs(points) < 1, -4.0 * points, np.nan)

    rng = np.random.default_rng(0)
    scales = probed_scales(gradient, np.zeros(3), np.zeros(3, dtype=int), rng, 50.0)
    np.testing.assert_allclose(scales, 0.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("coupling", "expected"), [(0.0, False), (0.001, False), (0.1, True), (1.0, True)]
)
def test_parameters_that_see_each_other_are_found(coupling, expected):
    size = FEW + 30
    hessian = (1 - coupling) * np.eye(size) + coupling
    gradient, point = gaussian(hessian), np.zeros(size)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        assert meet(gradient, point, np.zeros(size, dtype=int), 0.1, rng) is expected
