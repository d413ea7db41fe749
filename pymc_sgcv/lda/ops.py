# SPDX-License-Identifier: Apache-2.0
"""The likelihood of latent Dirichlet allocation and its gradient as PyTensor ops.

The gradient comes from Fisher's identity: for a document with latent topic assignments,

    ∂ log p(document | φ) / ∂ log φ_kw = E[n_kw | document, φ].
"""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import grad_not_implemented, grad_undefined
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS
from pytensor.link.numba.dispatch import basic as numba_basic

from pymc_sgcv.lda import gibbs

BOUND_ROUNDS = 10
"""Updates of the variational bound that stands for the log-likelihood."""


class DocumentLogLikelihood(Op):
    """log p(document | φ) of numbered documents: a lower bound forward, Fisher's identity backward.

    Inputs: document numbers (n,), log φ (K, W), α (K,), and the counts in CSR form: indptr,
    indices, data. Output (n,). The forward value is the variational lower bound of Blei, Ng &
    Jordan (2003): deterministic, one number per document that depends on no other document, so the
    rows can be proven to add up. The gradient is *not* that of the bound: it is an estimate of the
    exact gradient, by `ExpectedCounts`.
    """

    __props__ = ("sweeps", "warmup", "seed")

    def __init__(self, sweeps: int, warmup: int, seed: int):
        self.sweeps, self.warmup, self.seed = sweeps, warmup, seed

    def make_node(self, documents, log_phi, alpha, indptr, indices, counts):
        """Integers and float64 in, one float64 per document out."""
        inputs = [pt.as_tensor(x) for x in (documents, log_phi, alpha, indptr, indices, counts)]
        return Apply(self, inputs, [pt.tensor(dtype="float64", shape=inputs[0].type.shape)])

    def infer_shape(self, *arguments):
        """As many as documents; PyTensor 3 passes one argument less."""
        return [arguments[-1][0]]

    def perform(self, node, inputs, outputs):
        """The bound, in compiled code."""
        outputs[0][0] = gibbs.lower_bounds(*inputs, BOUND_ROUNDS)

    def pullback(self, inputs, outputs, cotangents):
        """Fisher's identity for log φ; α is a constant of the model."""
        documents, log_phi, alpha, *csr = inputs
        expected = ExpectedCounts(self.sweeps, self.warmup, self.seed)
        gradient = expected(documents, cotangents[0], log_phi, alpha, *csr)
        unknown = "alpha must be given as numbers."
        return [
            grad_undefined(self, 0, documents),
            gradient,
            grad_not_implemented(self, 2, alpha, unknown),
            *[grad_undefined(self, 3 + i, x) for i, x in enumerate(csr)],
        ]

    L_op = pullback  # the name that PyTensor 2 knows


class ExpectedCounts(Op):
    """Σ_d g_d E[n_kw | document d] of shape (K, W), by Gibbs sampling of the topic assignments.

    Inputs: document numbers, weights g, then as for `DocumentLogLikelihood`. A function of its
    inputs: the random numbers of a document follow from `seed`, its number and the first document
    of the batch. So θ and the center θ̂ of a control variate meet the same random numbers, whose
    effect cancels in the difference, while another minibatch brings other ones.
    """

    __props__ = ("sweeps", "warmup", "seed")

    def __init__(self, sweeps: int, warmup: int, seed: int):
        self.sweeps, self.warmup, self.seed = sweeps, warmup, seed

    def make_node(self, documents, weights, log_phi, alpha, indptr, indices, counts):
        """Integers and float64 in, a float64 matrix like log φ out."""
        given = (documents, weights, log_phi, alpha, indptr, indices, counts)
        inputs = [pt.as_tensor(x) for x in given]
        return Apply(self, inputs, [pt.tensor(dtype="float64", shape=inputs[2].type.shape)])

    def infer_shape(self, *arguments):
        """That of log φ."""
        return [arguments[-1][2]]

    def perform(self, node, inputs, outputs):
        """The same compiled code as in numba mode."""
        outputs[0][0] = gibbs.expected_counts(*inputs, self.sweeps, self.warmup, self.seed)


@numba_basic.register_funcify_and_cache_key(DocumentLogLikelihood)
def _numba_bounds(op, node, **kwargs):
    rounds, bounds = BOUND_ROUNDS, gibbs.lower_bounds

    @numba_basic.numba_njit
    def log_likelihood(documents, log_phi, alpha, indptr, indices, counts):
        return bounds(documents, log_phi, alpha, indptr, indices, counts, rounds)

    return log_likelihood, f"{_source_key(bounds)}_{rounds}"


@numba_basic.register_funcify_and_cache_key(ExpectedCounts)
def _numba_counts(op, node, **kwargs):
    sweeps, warmup, seed, counts_of = op.sweeps, op.warmup, op.seed, gibbs.expected_counts

    @numba_basic.numba_njit
    def expected(documents, weights, log_phi, alpha, indptr, indices, counts):
        return counts_of(
            documents, weights, log_phi, alpha, indptr, indices, counts, sweeps, warmup, seed
        )

    return expected, f"{_source_key(counts_of)}_{sweeps}_{warmup}_{seed}"


def _source_key(function: Any) -> str:
    """Changes with the source of the compiled code, which PyTensor's cache does not look at."""
    return CACHED_SRC_FUNCTIONS[function.py_func]
