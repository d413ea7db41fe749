# SPDX-License-Identifier: Apache-2.0
"""Stochastic-gradient MCMC with control variates for PyMC models on large data."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from pymc_sgcv.errors import SGCVWarning
from pymc_sgcv.kernel.schedules import PolynomialDecay
from pymc_sgcv.model.declared import Minibatch
from pymc_sgcv.results.diagnostics import diagnose
from pymc_sgcv.results.groups import gradient_groups
from pymc_sgcv.results.ksd import ksd
from pymc_sgcv.results.moments import Moments, moments
from pymc_sgcv.results.plots import plot_gradient_noise, plot_zv
from pymc_sgcv.results.predict import predict
from pymc_sgcv.results.report import report
from pymc_sgcv.results.summary import summary
from pymc_sgcv.results.zv import zv, zv_summary
from pymc_sgcv.sampling.background import BackgroundRun
from pymc_sgcv.sampling.clients import fit
from pymc_sgcv.sampling.sample import sample
from pymc_sgcv.sampling.stored import open_run
from pymc_sgcv.setup.center import Center
from pymc_sgcv.setup.find import find_center
from pymc_sgcv.sources.blocks import generated
from pymc_sgcv.sources.parquets import parquet
from pymc_sgcv.steps.methods import SAGA, SGHMC, SGHMCCV, SGLD, SGLDCV, SGNHT, SGNHTCV, SVRG
from pymc_sgcv.steps.unbound import Sampler

if TYPE_CHECKING:  # see `_ON_DEMAND`
    from pymc_sgcv import datasets, lda, theory

__version__ = "0.1.0"

__all__ = [
    "SGLDCV",
    "SGLD",
    "SAGA",
    "SVRG",
    "SGHMCCV",
    "SGHMC",
    "SGNHTCV",
    "SGNHT",
    "BackgroundRun",
    "Center",
    "Minibatch",
    "Moments",
    "PolynomialDecay",
    "Sampler",
    "SGCVWarning",
    "datasets",
    "diagnose",
    "find_center",
    "fit",
    "generated",
    "gradient_groups",
    "ksd",
    "lda",
    "moments",
    "open_run",
    "parquet",
    "plot_gradient_noise",
    "plot_zv",
    "predict",
    "report",
    "sample",
    "summary",
    "theory",
    "zv",
    "zv_summary",
]

_ON_DEMAND = ("datasets", "lda", "theory")
"""Modules that sampling does not need, imported when they are first asked for."""


def __getattr__(name: str) -> ModuleType:
    if name in _ON_DEMAND:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
