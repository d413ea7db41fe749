# SPDX-License-Identifier: Apache-2.0
"""The data of the paper's experiments, ready for a model.

Every loader looks for a local copy first (its argument ``path``, or the directory named by the
environment variable ``SGCV_DATA``), then tries to download, and at last generates look-alike data,
with a warning. The field ``source`` of what it returns says which it was.
"""

from pymc_sgcv.datasets._covtype import CoverType, covtype
from pymc_sgcv.datasets._movielens import MovieLens, movielens
from pymc_sgcv.datasets._wikipedia import Wikipedia, wikipedia

__all__ = ["CoverType", "MovieLens", "Wikipedia", "covtype", "movielens", "wikipedia"]
