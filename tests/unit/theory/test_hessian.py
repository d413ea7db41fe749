# SPDX-License-Identifier: Apache-2.0
"""The ends of a spectrum, from products alone."""

import numpy as np
import pytest

from pymc_sgcv.theory.hessian import ends_of_spectrum


@pytest.mark.parametrize("low", [1.0, 300.0, -50.0])
def test_lanczos_finds_both_ends_of_the_spectrum(low):
    """Of 200 parameters, up to a condition number of 10⁴ and for a saddle."""
    rng = np.random.default_rng(17)
    values = np.concatenate([[low], np.geomspace(400.0, 1e4, 199)])
    vectors = np.linalg.qr(rng.normal(size=(200, 200)))[0]
    matrix = (vectors * values) @ vectors.T
    rough = (vectors / np.abs(values) * rng.uniform(0.5, 2.0, 200)) @ vectors.T
    found = ends_of_spectrum(lambda V: V @ matrix, lambda V: V @ rough, 200, rng)
    np.testing.assert_allclose(found, (low, 1e4), rtol=2e-2 if low < 0 else 1e-3)
