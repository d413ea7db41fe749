# SPDX-License-Identifier: Apache-2.0
"""What a user asks of a step method, and what all its chains do: two records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from pymc_sgcv.kernel.chain import Method
from pymc_sgcv.kernel.estimators import CONTROL_VARIATE, Kind
from pymc_sgcv.rows.layout import Layout
from pymc_sgcv.rows.population import SAMPLE, Population
from pymc_sgcv.setup.center import Center
from pymc_sgcv.setup.tuning import Motion, Tuning

Weights: TypeAlias = np.ndarray | Mapping[str, np.ndarray] | str | None
"""How often rows are drawn, as a user may say it."""


@dataclass(frozen=True)
class Settings:
    """What the user asked for; ``"auto"`` and None leave it to us.

    `refresh` is None for a fixed center, 0 for SVRG's own choice of how often to move it.
    """

    estimator: Kind
    step_size: float | str | Callable
    batch_size: int | str | None
    subsampling: str
    motion: Motion
    preconditioner: str | np.ndarray | None
    weights: Weights
    thin: int | str
    target_bias: float
    progressbar: bool
    reparametrize: bool = True
    refresh: int | None = None
    table_dtype: str = "float64"
    memory_limit: float = np.inf
    population: str = "auto"
    directory: str | None = None

    @property
    def automatic(self) -> bool:
        """Whether the step size is left to us."""
        return isinstance(self.step_size, str)

    @property
    def fixes_center(self) -> bool:
        """Whether the control variate stays at one point."""
        return self.estimator == CONTROL_VARIATE and self.refresh is None

    @property
    def wanted_population(self) -> Population:
        """Which rows minibatches may come from."""
        all_rows = self.estimator.tabled or self.refresh is not None
        error = self.target_bias / 3
        return Population(self.population, self.directory, error, all_rows)

    def preconditioner_is(self, name: str) -> bool:
        """Whether the preconditioner was given by this name."""
        return isinstance(self.preconditioner, str) and self.preconditioner == name

    def weights_are(self, name: str) -> bool:
        """Whether the weights were given by this name."""
        return isinstance(self.weights, str) and self.weights == name


SETUP_STATISTICS = ("predicted_sd_error", "gradient_noise_share", "center_distance")
"""Attributes that go with every draw of ``pm.sample``, whose result has no other place for them."""


@dataclass(frozen=True)
class Plan:
    """What all chains do.

    `tuning` is None where the user gave both step size and preconditioner.
    """

    method: Method
    step_size: float | Callable
    thin: int
    center: Center | None
    tuning: Tuning | None
    layout: Layout
    seconds: float = 0.0
    data_passes: float = 0.0

    @property
    def fixed_center(self) -> Center | None:
        """The center, if gradient noise depends on how far the chain is from it."""
        return self.center if self.method.fixes_center else None

    def start(self, rng: np.random.Generator) -> np.ndarray:
        """The position where a chain begins: one draw of the approximate posterior."""
        assert self.center is not None  # chains without one start at the initial point
        factor = self.center.factor
        return self.center.position + factor.apply(rng.standard_normal(factor.size))

    def attributes(self) -> dict[str, float | str]:
        """The chosen values, for the attributes of the result."""
        chosen: dict[str, float | str] = {"thin": self.thin, "setup_seconds": self.seconds}
        chosen["preconditioner"] = self.method.factor.name
        if self.method.degree is not None:
            chosen["group_effects"] = len(self.method.degree)
            chosen["centred_least"] = float(self.method.degree.min())
            chosen["centred_most"] = float(self.method.degree.max())
        chosen["batch_size"] = sum(self.layout.batch_sizes)
        chosen["data_passes"] = round(self.data_passes, 2)
        chosen["rows_from"] = self.layout.population
        if self.layout.population == SAMPLE:
            chosen["sampled_rows"] = sum(sample.n_rows for sample in self.layout.samples)
            chosen["sample_sd_error"] = self.layout.sample_error
        chosen["weighted_rows"] = int(self.layout.weighted)
        if any(labels is not None for labels in self.layout.strata):
            chosen["row_strata"] = len(self.layout.batch_sizes)
        if not callable(self.step_size):
            chosen["step_size"] = float(self.step_size)
        if self.fixed_center is not None:
            chosen["center_distance"] = self.fixed_center.distance
        if self.tuning is not None:
            chosen["predicted_sd_error"] = self.tuning.inflation
            chosen["gradient_noise_share"] = self.tuning.noise_share
        return chosen

    @cached_property
    def statistics(self) -> dict[str, float]:
        """What `pymc_sgcv.diagnose` wants to know of the set-up."""
        chosen = self.attributes()
        return {name: float(chosen[name]) for name in SETUP_STATISTICS if name in chosen}

    def summary(self) -> str:
        """One line for the log."""
        step = "a schedule" if callable(self.step_size) else f"{self.step_size:.3g}"
        rows = " + ".join(map(str, self.layout.batch_sizes))
        weighted = "weighted " if self.layout.weighted else ""
        parts = [f"step size {step}", f"{rows} {weighted}rows per iteration"]
        parts.append(f"{self.thin} iterations per draw")
        if self.center is not None:
            parts.append(f"center {self.center.distance:.2g} sd from the mode")
        if self.method.degree is not None:
            least, most = self.method.degree.min(), self.method.degree.max()
            effects = f"{len(self.method.degree)} group effects centred by {least:.2f}"
            parts.append(effects + (f" to {most:.2f}" if most - least > 0.005 else ""))
        if self.layout.population == SAMPLE:
            some = sum(sample.n_rows for sample in self.layout.samples)
            of = sum(sum(sample.counts) for sample in self.layout.samples)
            error = 100 * self.layout.sample_error
            parts.append(f"{some:,} of {of:,} rows stand for all (error of sds {error:.1g} %)")
        parts.append(f"{self.data_passes:.3g} passes over the data")
        if self.tuning is not None:
            parts.append(f"predicted error of sds {100 * self.tuning.inflation:.1f} %")
        return ", ".join(parts) + f" (set-up {self.seconds:.1f} s)"
