# SPDX-License-Identifier: Apache-2.0
"""The search for the mode: minibatch ascent, then Newton steps with full gradients.

It takes place in the coordinates φ that chains move in. Scales of group effects stay where they
are: a joint mode of effects and scales is at one end or the other, not where the posterior is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pymc_sgcv.engine.xoshiro import seeded
from pymc_sgcv.kernel.chain import Chain, Method
from pymc_sgcv.kernel.dynamics import EULER
from pymc_sgcv.kernel.estimators import STANDARD
from pymc_sgcv.kernel.preconditioners import COMPLETE_LIMIT, Diagonal, Preconditioner, square
from pymc_sgcv.model.target import Target
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.centring import information_shares, scale_parameters, widest
from pymc_sgcv.setup.curvature import coordinate_scales, covariance_factor
from pymc_sgcv.setup.directions import low_rank_factor
from pymc_sgcv.setup.linked import group_blocks
from pymc_sgcv.setup.optimizers import ADAM, SGD, ascend
from pymc_sgcv.setup.probes import colours, meet, probed_scales
from pymc_sgcv.setup.quasi_newton import climb

WIDE_LIMIT = 3000
"""Up to this many parameters the covariance may be dense, if they see each other in all rows."""
OPTIMIZERS = {"adam": ADAM, "sgd": SGD}
_PHASES = 0.1, 0.03, 0.01, 0.003, 0.001
_WINDOW = 100
_NEWTON_STEPS = 12
_JITTERS = 10
_NEAR = 0.03
"""Newton steps stop at this distance from the mode per direction, in standard deviations."""
_POINT_ROWS = 10_000_000
"""Rows × points that one estimate of the curvature may cost; ten times that where they stack."""
_ROWS_EACH, _ENOUGH_EACH = 12, 400
"""Rows for each parameter: of fewer than 12, eigenvalues would be wrong by more than a half, and
with more than 400 they are right to a tenth."""


class Search:
    """The state of a search for the mode: the point, the gradient there, F, and the passes made."""

    def __init__(
        self,
        problem: Problem,
        theta: np.ndarray,
        rng: np.random.Generator,
        report: Callable[[str, float], None],
        given: bool = False,
        degree: np.ndarray | None = None,
        dense: bool | None = None,
    ):
        self.problem, self.rng, self.report, self.given = problem, rng, report, given
        self.few = problem.size <= COMPLETE_LIMIT and dense is not False
        self.dense = True if self.few else dense
        self.passes = 0.0
        self.factor: Preconditioner | None = None
        self.scales: np.ndarray | float = 1e-2
        theta = np.array(theta, dtype=float)
        gradient = problem.gradient(theta[None])[0]
        if not np.isfinite(gradient).all():
            problem.refuse_nan()
            if not given:
                theta, gradient = _start_beside(problem, theta, gradient, rng)
        refuse_infinite_gradient(problem.target, gradient, given)
        self.coordinates = problem.coordinates(degree)
        self.position = self.coordinates.find(theta)
        if degree is None and self.coordinates.change is not None:
            self._center_effects()
        self.held = scale_parameters(self.coordinates, problem.size)
        self.gradient = self._full_gradient(self.position)

    @property
    def theta(self) -> np.ndarray:
        """The point in the user's parameters."""
        return self.coordinates.place(self.position)

    def _center_effects(self) -> None:
        """Choose how far group effects are centred, from what is known here."""
        theta = self.theta
        self.passes += 2
        shares = information_shares(self.problem, self.coordinates, self.position, self.rng)
        self.coordinates = self.problem.coordinates(shares)
        self.position = self.coordinates.find(theta)

    @property
    def _present_factor(self) -> Preconditioner:
        assert self.factor is not None  # a line or a distance is asked for once F is there
        return self.factor

    def _gradient_at(self, points: np.ndarray, fraction: float = 1.0) -> np.ndarray:
        """∇_φ at each of `points`."""
        self.passes += fraction * len(points)
        return self.problem.gradient_in(self.coordinates, points, fraction)

    def _full_gradient(self, position: np.ndarray) -> np.ndarray:
        """∇_φ without the components that are held."""
        return np.where(self.held, 0.0, self._gradient_at(position[None])[0])

    @property
    def _stacked(self) -> bool:
        return all(gradient.stacked for gradient in self.problem.functions.plates)

    def _partial_gradient(
        self, budget: float, least: int = 2000
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Gradients from so many rows that they are visited `budget` times in all."""
        fraction = min(1.0, max(budget / (2 * self.problem.size), least) / self.problem.n_rows)

        return lambda points: self._gradient_at(points, fraction)

    def _scales(self) -> np.ndarray:
        labels, scales = colours(self.problem.target), self.scales
        if self.dense is None:
            self.dense = self.problem.size <= WIDE_LIMIT and meet(
                self._gradient_at, self.position, labels, scales, self.rng
            )
        if not self.dense:
            probed = probed_scales(self._gradient_at, self.position, labels, self.rng, scales)
            most = widest(self.coordinates, self.position, self.problem.size)
            found = np.minimum(probed, most)
        else:
            gradient = self._partial_gradient(1e6 if self._stacked else 1e5)
            found = coordinate_scales(gradient, self.position, scales)
        self.scales = found
        return found

    def ascend(self, kind: int, step_size: float | None, passes: float) -> None:
        """Minibatch steps, longer ones first, each length until it finds no more signal.

        Of many parameters a minibatch sees few: steps with all rows, then.
        """
        if not self.few:
            self._climb()
            return
        self.report("minibatch steps", 0.0)
        factor = Diagonal(np.ones(self.problem.size))
        method = Method(STANDARD, EULER, factor, degree=self.coordinates.degree)
        chain = Chain(self.problem, method)
        chain.stand_at(self.position)
        random = seeded(self.rng)
        scale = self._scales() if self.factor is None else self.factor.spread()
        scale = np.where(self.held, 0.0, scale)
        if kind == ADAM:  # one unit of information, at most the unconstrained scale's own unit
            scale = np.minimum(scale * np.sqrt(self.problem.stands_for), 1.0)
        moments, means = np.zeros((3, self.problem.size)), np.zeros((3, self.problem.size))
        rate = self.problem.batch_rows / self.problem.n_rows
        windows = max(2, int(passes / rate / len(_PHASES) / _WINDOW))
        for phase, h in enumerate(_PHASES):
            for window in range(min(windows, 100)):
                steps = self._steps(kind, h, step_size, phase * windows + window)
                fine = ascend(
                    kind, chain.estimator, chain.frame, scale, steps, moments, random, *means
                )
                self.passes += _WINDOW * rate
                if not fine:
                    return  # keep the last good average; Newton goes on from there
                if window and _only_noise(means):
                    break
            self.position = means[0].copy()
            self.report("minibatch steps", 0.5 * (phase + 1) / len(_PHASES))

    def _climb(self) -> None:
        """Quasi-Newton steps with full gradients."""
        self.report("steps with all rows", 0.0)
        scales = self._scales() if self.factor is None else self.factor.spread()
        self.position = climb(self._full_gradient, self.position, scales)

    @staticmethod
    def _steps(kind: int, h: float, step_size: float | None, windows_done: int) -> np.ndarray:
        if kind == ADAM:
            return np.full(_WINDOW, h if step_size is None else h * step_size / _PHASES[0])
        k = windows_done * _WINDOW + np.arange(_WINDOW)
        return (0.1 if step_size is None else step_size) * (1 + k / 50) ** -0.75

    def newton(self) -> None:
        """Damped Newton steps until the decrement is small or does not shrink any more.

        The curvature is found anew where a step with an older one gained less than expected.
        """
        self.gradient = self._full_gradient(self.position)
        refuse_infinite_gradient(self.problem.target, self.gradient, self.given)
        fresh, d = False, self.problem.size
        for k in range(_NEWTON_STEPS):
            self.report("Newton steps", 0.5 + 0.5 * k / _NEWTON_STEPS)
            if self.factor is None:
                self.factor, fresh = self.covariance_factor(), True
            before = self.distance(self.gradient)
            if before <= _NEAR * np.sqrt(d):
                return
            moved = self._line_search(before)
            after = self.distance(self.gradient)
            slow = after > 0.7 * before  # kinks of a prior: the pilot's mean is the better center
            if fresh and (not moved or (slow and after <= near_enough(d))):
                return
            if not moved or after > 0.3 * before:
                self.factor = None
            fresh = False

    def _line_search(self, before: float) -> bool:
        factor = self._present_factor
        direction = factor.apply(factor.apply_transposed(self.gradient))
        direction = np.where(self.held, 0.0, direction)
        for t in (1.0, 0.5, 0.25, 0.1, 0.03, 0.01):
            position = self.position + t * direction
            gradient = self._full_gradient(position)
            if np.isfinite(gradient).all() and self.distance(gradient) < (1 - 0.1 * t) * before:
                self.position, self.gradient = position, gradient
                return True
        return False

    def covariance_factor(self) -> Preconditioner:
        """F with FFᵀ the approximate posterior covariance of φ at the present point."""
        scales = self._scales()
        if not self.dense:
            points, target = self.position[None], self.problem.target
            blocks = group_blocks(self._gradient_at, points, target, scales, self.rng)
            return low_rank_factor(self._gradient_at, points, scales, self.rng, blocks)
        d = self.problem.size
        least = 2000 if self.few else _ROWS_EACH * d
        if self._stacked:
            least = max(least, min(10 * _POINT_ROWS // (2 * d), _ENOUGH_EACH * d))
        gradient = self._partial_gradient(_POINT_ROWS, least)
        return square(covariance_factor(gradient, self.position, scales))

    def distance(self, gradient: np.ndarray) -> float:
        """The Newton decrement of a gradient: the distance to the mode in standard deviations."""
        return float(np.linalg.norm(self._present_factor.apply_transposed(gradient)))


def _start_beside(
    problem: Problem, theta: np.ndarray, gradient: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A point near a start that has no gradient, where there is one, as NUTS would jitter it.

    Some densities have formulas of 0/0 where a parameter is exactly zero, as extreme values do.
    """
    for _ in range(_JITTERS):
        other = theta + rng.uniform(-1.0, 1.0, theta.shape) / 4
        slope = problem.gradient(other[None])[0]
        if np.isfinite(slope).all():
            return other, slope
    return theta, gradient


def refuse_infinite_gradient(target: Target, gradient: np.ndarray, given: bool = False) -> None:
    """Raise an error that names the parameter whose gradient is not finite."""
    bad = ~np.isfinite(gradient)
    if not bad.any():
        return
    name = target.describe(int(np.argmax(bad)))
    place, advice = (
        ("given center", "Choose a center inside the support.")
        if given
        else (
            "starting point",
            "Give starting values inside the support (initval=...), or check the data for "
            "impossible observations.",
        )
    )
    raise ValueError(
        f"The gradient of the log posterior with respect to {name} is not finite at the {place}. "
        f"{advice}"
    )


def near_enough(d: int) -> float:
    """The Newton decrement up to which a center in d dimensions is a good one.

    Chains are √d from their own mean: a center that far beside it adds 9 % to the gradient noise.
    """
    return max(1.0, 0.3 * math.sqrt(d))


def _only_noise(means: np.ndarray) -> bool:
    """Whether a window's mean gradient is no larger than chance would make it."""
    variance = np.maximum(means[2] - means[1] ** 2, 1e-300) / _WINDOW
    return bool(np.mean(means[1] ** 2 / variance) < 3.0)
