# SPDX-License-Identifier: Apache-2.0
"""What a pilot makes of a first run that is still on its way from a mode to the posterior mean."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_sgcv.setup import pilot

SIZE = 100


@dataclass
class _Center:
    distance: float
    factor: object = None


def refine(monkeypatch, with_newton, without, complete=False):
    """What becomes of a center, by the distances that a Newton step and the plain mean lead to."""
    center = _Center(0.5, SimpleNamespace(complete=complete))

    def refined(problem, center, draws, gradients, rng):
        return _Center(with_newton if gradients.any() else without)

    monkeypatch.setattr(pilot, "_refined", refined)
    ones = np.ones((4, SIZE))
    found = pilot._nearest(SimpleNamespace(size=SIZE), center, ones, ones, None)
    return None if found is center else found.distance


@pytest.mark.parametrize(
    ("with_newton", "without", "taken"),
    [(9.0, 5.0, 9.0), (30.0, 9.0, 9.0), (30.0, 15.0, 15.0), (15.0, 18.0, 15.0)],
)
def test_the_mean_of_draws_is_taken_where_a_newton_step_goes_too_far(
    monkeypatch, with_newton, without, taken
):
    assert refine(monkeypatch, with_newton, without) == taken


@pytest.mark.parametrize("far", [25.0, np.inf, np.nan])
def test_a_center_stays_where_it_is_if_both_lead_away(monkeypatch, far):
    assert refine(monkeypatch, far, far) is None


def test_of_few_parameters_a_step_too_far_is_not_taken(monkeypatch):
    assert refine(monkeypatch, 15.0, 5.0, complete=True) is None
