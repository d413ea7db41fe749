# SPDX-License-Identifier: Apache-2.0
"""The constants m, M and Lᵢ of a PyMC model, estimated at its center."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_sgcv.arguments import given_model
from pymc_sgcv.engine.blas import one_blas_thread
from pymc_sgcv.rows.population import Population
from pymc_sgcv.rows.problem import Problem
from pymc_sgcv.setup.center import Center, center_near, given_center
from pymc_sgcv.theory.arguments import check_count
from pymc_sgcv.theory.hessian import Coordinates, extreme_eigenvalues, row_norms
from pymc_sgcv.theory.noise import lipschitz_constant


@dataclass(frozen=True)
class Constants:
    """What `plan` and the other bounds need to know of a posterior, in one set of coordinates.

    Attributes
    ----------
    m, M
        Smallest and largest eigenvalue of the Hessian of −log posterior.
    d
        Unconstrained parameters.
    n_rows
        N, all rows of all minibatched likelihoods.
    lipschitz
        L of the gradient noise for rows drawn uniformly, √(N ΣLᵢ²).
    lipschitz_weighted
        The same for pᵢ ∝ Lᵢ, the best there is: ΣLᵢ.
    rows_seen
        Rows whose Lᵢ was found.
    rows_error
        Relative standard error of `lipschitz` because not all of them were: 0 if they were.
    center_error
        ‖θ̂ − θ*‖, the Newton step from the center to the mode. The posterior mean, which the theory
        asks for, is the mode of a Gaussian; in general they are up to √(d/m) apart.
    preconditioned
        The same constants in the coordinates F⁻¹θ of the samplers' preconditioner FFᵀ, the center's
        approximate posterior covariance. There M/m is near 1, and h is the samplers' own `h`.
    """

    m: float
    M: float
    d: int
    n_rows: int
    lipschitz: float
    lipschitz_weighted: float
    rows_seen: int
    rows_error: float
    center_error: float
    preconditioned: Constants | None = None

    @property
    def condition(self) -> float:
        """R = M/m, the condition number; infinite where the posterior is not log-concave."""
        return self.M / self.m if self.m > 0 else np.inf

    def as_arguments(self, weighted: bool = False) -> dict[str, Any]:
        """Arguments of `plan`, `cost_bound` and `wasserstein_bound`.

        `weighted` says that rows are drawn with pᵢ ∝ Lᵢ instead of uniformly.
        """
        return {
            "m": self.m,
            "M": self.M,
            "d": self.d,
            "center_error": self.center_error,
            "lipschitz": self.lipschitz_weighted if weighted else self.lipschitz,
        }


def constants(
    model: pm.Model | None = None,
    center: Center | Mapping[str, ArrayLike] | None = None,
    *,
    batch_size: int | None = None,
    rows: int = 10_000,
    draws: int = 0,
    random_seed: int | np.random.Generator | None = None,
    compile_kwargs: dict | None = None,
) -> Constants:
    """Estimate m, M and the gradient noise's L of a model, also under its preconditioner.

    m and M are the extreme eigenvalues of the full-data Hessian at the center: of the whole matrix
    up to 128 parameters, which takes 2d gradients over all rows; above that by Lanczos on
    Hessian-vector products, M directly and 1/m on the inverse (conjugate gradients with the
    center's covariance as preconditioner), some hundreds of gradients. Ritz values approach the
    ends of the spectrum from inside, here to about a thousandth. Each row's Lᵢ is the norm of its
    Hessian there by power iteration, which approaches it from below. That is exact for a Hessian of
    rank one, so for every regression with one linear predictor and no further parameters.

    These are local constants. Those that the theory asks for hold for every θ, and may be far worse
    or not exist: logistic regression with a flat prior has m = 0. With `draws` the worst constants
    of several points where the posterior has its mass are taken.

    Parameters
    ----------
    model
        The PyMC model; taken from the context if None.
    center
        A `Center` from `find_center`, or values by variable name; found anew if None.
    batch_size
        As in `find_center`. It fixes nothing but how a batch is shared between several
        likelihoods.
    rows
        How many rows to find Lᵢ for, in every likelihood: a random sample if there are more.
    draws
        Further points, from the normal approximation at the center: m is the smallest and M and Lᵢ
        are the largest found.
    random_seed, compile_kwargs
        As in `find_center`.

    Examples
    --------
    Of a regression, whose Hessian is Σx²/σ² + 1/τ² everywhere:

    >>> import numpy as np, pymc as pm, pymc_sgcv as sg
    >>> x = np.linspace(-1, 1, 200)
    >>> with pm.Model() as model:
    ...     slope = pm.Normal("slope", 0, 1)
    ...     y = pm.Normal("y", slope * x, 0.5, observed=2 * x)
    >>> found = sg.theory.constants(model, {"slope": 2.0})
    >>> bool(np.isclose(found.m, np.sum(x**2) / 0.5**2 + 1))
    True
    >>> settings = sg.theory.plan(0.1, **found.preconditioned.as_arguments())
    >>> settings.bound <= settings.target
    True
    """
    check_count(rows=rows)
    check_count(least=0, draws=draws)
    rng = np.random.default_rng(random_seed)
    problem = Problem(
        given_model(model),
        batch_size=batch_size,
        compile_kwargs=compile_kwargs,
        reparametrize=False,
        population=Population(all_rows=True),
    )
    if center is None:
        found = center_near(problem, problem.target.flatten(problem.target.start), rng)
    else:
        found = given_center(problem, center)
    return constants_of(problem, found, rows, draws, rng)


def constants_of(
    problem: Problem,
    center: Center,
    rows: int = 10_000,
    draws: int = 0,
    rng: np.random.Generator | None = None,
) -> Constants:
    """`constants` of a problem that is already compiled."""
    rng = np.random.default_rng(0) if rng is None else rng
    zeta = np.concatenate([np.zeros((1, problem.size)), rng.standard_normal((draws, problem.size))])
    points = center.theta + center.factor.apply(zeta)
    both = Coordinates(center.factor, whitened=False), Coordinates(center.factor, whitened=True)
    with one_blas_thread():
        found = [_in_coordinates(problem, center, points, c, rows, rng) for c in both]
    return Constants(**found[0], preconditioned=Constants(**found[1]))


def _in_coordinates(
    problem: Problem,
    center: Center,
    points: np.ndarray,
    coordinates: Coordinates,
    rows: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """The constants in one set of coordinates, the worst over `points`."""
    ends = [extreme_eigenvalues(problem, p, coordinates, rng) for p in points]
    norms = [
        np.max([row_norms(plate.scratch(), p, coordinates, rows, rng) for p in points], axis=0)
        for plate in problem.rows
    ]
    uniform, weighted, errors = [], [], []
    for plate, L in zip(problem.rows, norms, strict=True):
        # The noises of several likelihoods add up, L²/n = Σ Lₚ²/nₚ: each has its share of a batch.
        share, scale = plate.batch_size / problem.batch_rows, plate.n_rows / len(L)
        uniform.append(lipschitz_constant(L) * scale / np.sqrt(share))
        weighted.append(L.sum() * scale / np.sqrt(share))
        spread = (L**2).std() / (L**2).mean() if L.any() else 0.0
        errors.append(0.5 * spread * np.sqrt((1 - 1 / scale) / len(L)))
    return {
        "m": float(min(low for low, _ in ends)),
        "M": float(max(high for _, high in ends)),
        "d": problem.size,
        "n_rows": problem.n_rows,
        "lipschitz": float(np.linalg.norm(uniform)),
        "lipschitz_weighted": float(np.linalg.norm(weighted)),
        "rows_seen": sum(len(L) for L in norms),
        "rows_error": float(max(errors)),
        "center_error": coordinates.newton_step(center.gradient),
    }
