# SPDX-License-Identifier: Apache-2.0
"""One chain: its state, its buffers, and the compiled loop that moves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_sgcv.engine.xoshiro import seeded
from pymc_sgcv.kernel.dynamics import WITH_FRICTION, Dynamics
from pymc_sgcv.kernel.estimators import (
    CONTROL_VARIATE,
    SAGA,
    SAGA_BLOCKS,
    STANDARD,
    Estimator,
    Kind,
    estimate,
    fill_table,
    recenter,
)
from pymc_sgcv.kernel.frame import Frame, recenter_frame
from pymc_sgcv.kernel.loop import pair_differences, run
from pymc_sgcv.kernel.preconditioners import Preconditioner
from pymc_sgcv.rows.kept import Kept
from pymc_sgcv.rows.problem import Problem


class Divergence(FloatingPointError):
    """A chain met a gradient or a value that is not finite."""


@dataclass(frozen=True)
class Method:
    """What a chain does at every iteration, the same for all chains.

    Attributes
    ----------
    estimator
        Its `Kind`.
    dynamics
        One of the integrators in `pymc_sgcv.kernel.dynamics`.
    factor
        F of the preconditioner FFᵀ.
    kept
        Standard deviations of the injected noise in whitened coordinates, (d,); default: ones.
    friction, leapfrog
        Of dynamics with a momentum.
    furthest
        What a gradient may move a whitened coordinate by in one iteration.
    center, constant, exponents
        θ̂, Σᵢ ℓᵢ′(θ̂) and α (default: zeros), for the control variate.
    refresh
        Iterations after which the center moves to the chain (SVRG); 0: never.
    table_dtype
        Type of SAGA's tables.
    degree
        How far group effects are centred, for the coordinates that chains move in.
    follows
        Whether the control variate takes the Jacobian of where the chain is
        (`pymc_sgcv.kernel.frame`).
    """

    estimator: Kind
    dynamics: int
    factor: Preconditioner
    kept: np.ndarray | None = None
    friction: float = np.inf
    leapfrog: int = 0
    furthest: float = np.inf
    center: np.ndarray | None = None
    constant: np.ndarray | None = None
    exponents: np.ndarray | None = None
    refresh: int = 0
    table_dtype: str = "float64"
    degree: np.ndarray | None = None
    follows: bool = False

    @property
    def fixes_center(self) -> bool:
        """Whether the control variate stays at one point: its noise grows with the way from it."""
        return self.estimator == CONTROL_VARIATE and not self.refresh


class Chain:
    """State and buffers of one chain of `method` on `problem`."""

    def __init__(self, problem: Problem, method: Method):
        d = problem.size
        self.problem, self.method = problem, method
        self.random = np.zeros(4, dtype=np.uint64)
        self.iteration = 0
        kept: list[Kept | None] = [None] * len(problem.rows)
        if method.fixes_center and method.center is not None:
            kept = problem.kept_at(method.center)
        self._scratch = [rows.scratch(own) for rows, own in zip(problem.rows, kept, strict=True)]
        self.estimator = self._make_estimator()
        self.points = self.estimator.points
        self.coordinates = problem.coordinates(method.degree)
        self._centred = problem.centred_coordinates()
        position, slope, at_center, volume, near, far, centred, centred_volume = np.zeros((8, d))
        self.frame = Frame(
            record=self.coordinates.record,
            position=position,
            slope=slope,
            center=at_center,
            volume=volume,
            near=near,
            far=far,
            follows=int(method.follows),
            centred=self._centred.record,
            centred_center=centred,
            centred_volume=centred_volume,
        )
        if self.coordinates.change is not None and method.center is not None:
            self.frame.centred_center[:] = self._centred.find(method.center)
            recenter_frame(self.frame, self.coordinates.find(method.center))
        self.thermostat = np.zeros(1)
        self.dynamics = Dynamics(
            kind=method.dynamics,
            factor=method.factor.form(),
            kept=np.ones(d) if method.kept is None else np.ascontiguousarray(method.kept),
            friction=float(method.friction),
            leapfrog=int(method.leapfrog),
            furthest=float(method.furthest),
            momentum=np.zeros(d),
            thermostat=self.thermostat if method.dynamics in WITH_FRICTION else None,
            work=np.zeros((2, d)),
        )

    def _make_estimator(self) -> Estimator:
        method, d = self.method, self.problem.size
        points, constant = np.zeros((2, d)), np.zeros(d)
        if method.center is not None:
            points[1] = method.center
        if method.constant is not None:
            constant[:] = method.constant
        tables, sums, fresh = self._make_tables()
        return Estimator(
            kind=int(method.estimator),
            prior=self.problem.prior,
            plates=np.stack([scratch.record for scratch in self._scratch]),
            points=points,
            constant=constant,
            exponents=np.zeros(d) if method.exponents is None else method.exponents.astype(float),
            refresh=int(method.refresh),
            tables=tables,
            sums=sums,
            fresh=fresh,
            work=np.zeros((2, d)),
        )

    def _make_tables(self) -> tuple[tuple[np.ndarray, ...] | None, np.ndarray, np.ndarray]:
        d, estimator = self.problem.size, self.method.estimator
        if not estimator.tabled:
            return None, np.zeros((1, d)), np.zeros((1, d))
        entries = [rows.n_rows for rows in self.problem.rows]
        largest = max(rows.batch_size for rows in self.problem.rows)
        if estimator == SAGA_BLOCKS:
            entries = [-(-rows.n_rows // rows.batch_size) for rows in self.problem.rows]
            largest = 1
        tables = tuple(np.zeros((n, d), dtype=self.method.table_dtype) for n in entries)
        return tables, np.zeros((len(entries), d)), np.zeros((largest, d))

    @property
    def theta(self) -> np.ndarray:
        """Where the chain stands: the point whose gradient comes next."""
        return self.points[0]

    @property
    def position(self) -> np.ndarray:
        """The same in the coordinates that the chain moves in."""
        return self.theta if self.coordinates.change is None else self.frame.position

    def start(
        self, position: np.ndarray, rng: np.random.Generator, table_at: np.ndarray | None = None
    ) -> None:
        """Begin anew at φ; SAGA's tables are filled at θ = `table_at`, by default there too."""
        self.stand_at(position)
        self.iteration = 0
        self.dynamics.momentum[:] = rng.standard_normal(self.problem.size) * self.dynamics.kept
        self.thermostat[0] = self.method.friction
        self.random[:] = seeded(rng)
        for scratch in self._scratch:
            scratch.restart()
        if self.method.estimator.tabled:
            self._fill_tables(self.points[:1] if table_at is None else np.atleast_2d(table_at))

    def stand_at(self, position: np.ndarray) -> None:
        """Put the chain at a point φ of its coordinates."""
        self.frame.position[:] = position
        self.points[0] = self.coordinates.place(position)

    def state(self, whole: bool = False) -> dict[str, Any]:
        """What moves, copied; if not the `whole`, without what is as large as the data.

        That is SAGA's tables and the order of rows that are drawn without replacement. Without them
        a chain goes on with the right distribution; with them, with the very same draws.
        """
        moving = {
            "points": self.points.copy(),
            "position": self.frame.position.copy(),
            "momentum": self.dynamics.momentum.copy(),
            "thermostat": self.thermostat.copy(),
            "random": self.random.copy(),
            "iteration": self.iteration,
        }
        if whole:
            moving |= {name: array.copy() for name, array in self._of_data().items()}
        return moving

    def _of_data(self) -> dict[str, np.ndarray]:
        """What else a whole state holds, by name; the arrays themselves."""
        e, frame = self.estimator, self.frame
        held = {"constant": e.constant, "sums": e.sums}
        held |= {"frame_center": frame.center, "frame_volume": frame.volume}
        if e.tables is not None:
            held |= {f"table_{i}": table for i, table in enumerate(e.tables)}
        held |= {f"order_{i}": scratch.order for i, scratch in enumerate(self._scratch)}
        return held

    def resume(self, state: dict) -> None:
        """Go on where another chain's `state` was taken."""
        theta = state["points"][0]
        if "constant" in state:  # a whole state: nothing is computed anew
            self.points[1] = state["points"][1]
            for name, array in self._of_data().items():
                array[:] = state[name]
        elif self.method.refresh:  # the center of SVRG moves, and its full gradient with it
            self.points[0] = state["points"][1]
            recenter(self.estimator)
            if self.coordinates.change is not None:
                recenter_frame(self.frame, self.coordinates.find(self.points[1]))
        self.points[0] = theta
        self.frame.position[:] = state["position"]
        self.dynamics.momentum[:] = state["momentum"]
        self.thermostat[:] = state["thermostat"]
        self.random[:], self.iteration = state["random"], state["iteration"]

    def _fill_tables(self, point: np.ndarray) -> None:
        e = self.estimator
        assert e.tables is not None  # asked of methods with tables only
        e.sums[:] = 0.0
        whole = self.method.estimator == SAGA
        for plate, rows, table, total in zip(
            e.plates, self.problem.rows, e.tables, e.sums, strict=True
        ):
            fill_table(
                plate, np.ascontiguousarray(point), 1 if whole else rows.batch_size, table, total
            )

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Take up values of variables that other step methods sample."""
        self.problem.set_others(point)
        for scratch in self._scratch:
            scratch.set_fixed(scratch.rows.gradient.fixed_values(self.problem.others))

    def estimate(self) -> np.ndarray:
        """One estimate of the gradient where the chain stands; the chain does not move."""
        out = np.empty(self.problem.size)
        estimate(self.estimator, self.random, out)
        return out

    def pair_differences(self, positions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The difference of two independent estimates of ∇_φ at each φ: noise alone."""
        out, positions = np.empty(positions.shape), np.ascontiguousarray(positions)
        pair_differences(self.estimator, self.frame, positions, seeded(rng), out)
        return out

    def run(
        self,
        steps: np.ndarray,
        thin: int,
        draws: np.ndarray,
        gradients: np.ndarray,
        own: bool = False,
    ) -> None:
        """Run ``len(draws) * thin`` iterations with step sizes `steps` and record them.

        In θ, or in the coordinates that the chain moves in as its `own`.
        """
        done = run(
            self.estimator,
            self.frame,
            self.dynamics,
            steps,
            self.iteration,
            thin,
            self.random,
            draws,
            gradients,
            own,
        )
        self.iteration += done
        if done < len(steps):
            raise Divergence(self._what_diverged(steps[done], draws[: done // thin]))

    def _what_diverged(self, h: float, draws: np.ndarray) -> str:
        """Name the parameter that is not finite, or has the gradient that is not.

        Of several, as a dense preconditioner makes of one, the one that had gone furthest.
        """
        bad = ~np.isfinite(self.theta)
        if not bad.any():
            bad = ~np.isfinite(self.estimate())
        where = "the gradient"
        if bad.any():
            way = np.zeros(len(bad))
            if len(draws) > 1:
                way = np.abs(draws[-1] - draws[0]) / self.method.factor.spread()
            where = self.problem.target.describe(int(np.argmax(np.where(bad, way, -1.0))))
        cause = (
            "the plain stochastic gradient is too noisy for this step: take a smaller step_size, a "
            "larger batch_size, or SGLDCV"
            if self.method.estimator == STANDARD
            else "the step is too long for this posterior. Take a smaller step_size; if it was "
            "chosen automatically, the posterior is far from Gaussian (a funnel, a curved ridge, a "
            "parameter that the data do not identify): use narrower priors"
        )
        return f"{where} is not finite at iteration {self.iteration} (step size {h:.3g}): {cause}."
