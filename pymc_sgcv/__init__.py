# SPDX-License-Identifier: Apache-2.0
"""Stochastic-gradient MCMC with control variates for PyMC models on large data."""

from pymc_sgcv.center import Center, find_center
from pymc_sgcv.diagnostics import diagnose
from pymc_sgcv.errors import SGCVWarning
from pymc_sgcv.idata import gradient_groups
from pymc_sgcv.ksd import ksd
from pymc_sgcv.plots import plot_gradient_noise, plot_zv
from pymc_sgcv.sampling import sample
from pymc_sgcv.schedules import PolynomialDecay
from pymc_sgcv.step_methods import SAGA, SGLD, SGLDCV
from pymc_sgcv.zv import zv, zv_summary

__version__ = "0.1.0"

__all__ = [
    "SAGA",
    "SGLD",
    "SGLDCV",
    "Center",
    "PolynomialDecay",
    "SGCVWarning",
    "diagnose",
    "find_center",
    "gradient_groups",
    "ksd",
    "plot_gradient_noise",
    "plot_zv",
    "sample",
    "zv",
    "zv_summary",
]
