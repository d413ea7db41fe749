# SPDX-License-Identifier: Apache-2.0
"""The guarantees of Baker, Fearnhead, Fox & Nemeth (2019), as functions of a model's constants.

What is proven about SGLD-CV with Euler steps on a strongly log-concave posterior: how far an
iterate is from the posterior, which settings reach a given accuracy, and what they cost. Sampling
does not use any of it: the automatic tuning is measured, not proven, and far less conservative.
"""

from pymc_sgcv.theory.bounds import Guarantee, cost_bound, plan, wasserstein_bound
from pymc_sgcv.theory.constants import Constants, constants
from pymc_sgcv.theory.noise import (
    gradient_noise_bound,
    lipschitz_constant,
    sgd_center_error,
    zv_reduction_bound,
)

__all__ = [
    "constants",
    "Constants",
    "wasserstein_bound",
    "plan",
    "Guarantee",
    "cost_bound",
    "lipschitz_constant",
    "gradient_noise_bound",
    "sgd_center_error",
    "zv_reduction_bound",
]
