# SPDX-License-Identifier: Apache-2.0
"""Latent Dirichlet allocation declared in PyMC, with gradients by Fisher's identity.

The topic assignments z of a document's words are latent. They are not sampled by the chain but
averaged over inside the gradient, since

    ∂ log p(document | φ) / ∂ log φ_kw = E[n_kw | document, φ],

the expected number of times that word w is assigned to topic k. A few Gibbs sweeps over z estimate
it. The rows of the likelihood are documents, given by their numbers; the sparse counts are read
through them.
"""

from pymc_sgcv.lda.documents import (
    Documents,
    expected_counts,
    normalised,
    perplexity,
    split_words,
)

__all__ = ["Documents", "expected_counts", "normalised", "perplexity", "split_words"]
