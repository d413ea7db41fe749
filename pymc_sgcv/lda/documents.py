# SPDX-License-Identifier: Apache-2.0
"""Documents as an observed variable of a PyMC model, and what to do with the topics found."""

from __future__ import annotations

from typing import TypeAlias, cast

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import scipy.sparse as sp
from pytensor.tensor.variable import TensorVariable

from pymc_sgcv.arguments import Seed
from pymc_sgcv.lda import gibbs
from pymc_sgcv.lda.ops import DocumentLogLikelihood

Counts: TypeAlias = np.ndarray | sp.spmatrix | sp.sparray
"""How often each document has each word."""


def Documents(
    name: str,
    topics: TensorVariable,
    counts: Counts,
    *,
    alpha: float | np.ndarray = 1.0,
    batch_size: int | None = None,
    sweeps: int = 5,
    warmup: int = 2,
    seed: int = 0,
) -> TensorVariable:
    """Documents of a latent Dirichlet allocation, as an observed variable of the model in context.

    Document d has topic proportions η_d ~ Dirichlet(α); each of its words has a topic z ~ η_d and
    is drawn from φ_z, where φ_k = topics_k / Σ_w topics_kw. With ``pm.Gamma("topics", b, 1)`` the
    prior of φ_k is Dirichlet(b) in the expanded-mean form of Patterson & Teh (2013), and PyMC's
    unconstrained value variable is its logarithm.

    The gradient is an estimate of the exact one: made for the step methods of this package, not for
    NUTS. The log-likelihood itself, as in ``model.logp``, is a variational lower bound.

    Parameters
    ----------
    name
        Name of the observed variable; its values are document numbers.
    topics
        Positive weights of the words of each topic, shape (K, W); normalised here.
    counts
        How often each document has each word, shape (N, W): a scipy sparse matrix or an array.
    alpha
        Parameter of the Dirichlet prior of topic proportions: a number, or one per topic.
    batch_size
        Documents per minibatch. If None, the model is declared on all documents and ``batch_size``
        goes to the step method.
    sweeps, warmup
        Gibbs sweeps over each document's words that are averaged over, and before that. With the
        defaults and 20 topics of 81,538 Wikipedia articles, noise and bias of a full gradient are
        below a tenth of a posterior standard deviation; topics that are hard to tell apart need
        more.
    seed
        Changes the random numbers of the Gibbs sweeps.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_sgcv as sg
    >>> counts = np.random.default_rng(1).poisson(0.3, size=(1000, 50))
    >>> with pm.Model() as model:
    ...     topics = pm.Gamma("topics", 1, 1, shape=(4, 50), initval="prior")
    ...     documents = sg.lda.Documents("documents", topics, counts, batch_size=20)
    >>> with model:  # doctest: +SKIP
    ...     idata = sg.sample(200, step=sg.SGLD(step_size=1e-3, preconditioner=None, thin=10))
    """
    indptr, indices, data, n_words = _csr(counts)
    topics = pt.as_tensor(topics)
    if topics.ndim != 2 or topics.type.shape[1] not in (n_words, None):
        raise ValueError(
            f"topics of '{name}' must have shape (topics, {n_words}), one column per word of "
            f"counts, not {topics.type.shape}."
        )
    log_phi = pt.log(topics) - pt.log(topics.sum(axis=1, keepdims=True))
    alpha = _alphas(alpha, topics.type.shape[0])
    for label, value, least in (("sweeps", sweeps, 1), ("warmup", warmup, 0), ("seed", seed, 0)):
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{label} must be a whole number of at least {least}, not {value!r}.")
    op = DocumentLogLikelihood(int(sweeps), int(warmup), int(seed))
    n_documents = len(indptr) - 1
    # shared, not constant: PyTensor hashes and embeds constants, which takes long for a corpus
    csr = [pytensor.shared(array, borrow=True) for array in (indptr, indices, data)]
    numbers, size = np.arange(n_documents, dtype="int32"), {}
    if batch_size is not None:
        numbers, size = pm.Minibatch(numbers, batch_size=batch_size), {"total_size": n_documents}

    def log_likelihood(value: TensorVariable, log_phi: TensorVariable) -> TensorVariable:
        log_phi = log_phi[(0,) * (log_phi.ndim - 2)]  # PyMC adds the axis of the documents
        return cast(TensorVariable, op(value, log_phi, alpha, *csr))

    return pm.CustomDist(
        name,
        log_phi,
        logp=log_likelihood,
        signature="(k,w)->()",
        dtype="int32",
        observed=numbers,
        **size,
    )


def expected_counts(
    topics: np.ndarray,
    counts: Counts,
    *,
    alpha: float | np.ndarray = 1.0,
    sweeps: int = 5,
    warmup: int = 2,
    seed: int = 0,
) -> np.ndarray:
    """How often each topic uses each word in all documents together: Σ_d E[n_kw | d], shape (K, W).

    The sum over words is a topic's size. Where these counts are large, 1 / (1 + counts) is about
    the posterior variance of log topics: a diagonal preconditioner.

    Parameters
    ----------
    topics
        Positive weights, (K, W).
    counts, alpha, sweeps, warmup, seed
        As for `Documents`.

    Examples
    --------
    >>> import numpy as np, pymc_sgcv as sg
    >>> sg.lda.expected_counts(np.ones((2, 3)), np.array([[4, 0, 2], [1, 3, 0]])).sum(axis=0)
    array([5., 3., 2.])
    """
    topics = np.asarray(topics, dtype=float)
    csr = _csr(counts)[:3]
    documents = np.arange(len(csr[0]) - 1)
    given = np.ones(len(documents)), _log(normalised(topics)), _alphas(alpha, len(topics))
    return gibbs.expected_counts(documents, *given, *csr, sweeps, warmup, seed)


def _log(phi: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):  # a word that a topic never uses is no mistake
        return np.log(phi)


def normalised(topics: np.ndarray) -> np.ndarray:
    """φ: the weights of each topic divided by their sum."""
    return topics / topics.sum(axis=-1, keepdims=True)


def perplexity(
    topics: np.ndarray,
    counts: Counts,
    held_out: Counts,
    *,
    alpha: float | np.ndarray = 1.0,
    sweeps: int = 20,
    warmup: int = 5,
    seed: int = 0,
) -> float:
    """Perplexity of held-out words of documents, given their other words.

    exp(−Σ log p(w | document) / Σ 1) over the held-out words, with p(w | document) = Σ_k η_k φ_kw
    and η the posterior mean of the topic proportions given the other words. As many equally likely
    words would be as hard to guess: W for a uniform guess, lower is better.

    Parameters
    ----------
    topics
        Positive weights, (K, W), or draws of them, (..., K, W): then the probabilities are averaged
        over all draws first, which is what a posterior predicts.
    counts, held_out
        Words that are given and words to predict, each (documents, W), sparse or dense; see
        `split_words`.
    alpha, sweeps, warmup, seed
        As for `Documents`.

    Examples
    --------
    >>> import numpy as np, pymc_sgcv as sg
    >>> given = held_out = np.ones((5, 8), dtype=int)
    >>> round(sg.lda.perplexity(np.ones((3, 8)), given, held_out), 6)
    8.0
    """
    topics = np.asarray(topics, dtype=float)
    topics = topics.reshape(-1, *topics.shape[-2:])
    given, wanted = _csr(counts)[:3], _csr(held_out)[:3]
    alpha = _alphas(alpha, topics.shape[1])
    document = np.repeat(np.arange(len(wanted[0]) - 1), np.diff(wanted[0]))
    chance = np.zeros(len(document))
    for draw in topics:
        phi = normalised(draw)
        eta = gibbs.topic_proportions(_log(phi), alpha, *given, sweeps, warmup, seed)
        chance += np.einsum("ij,ji->i", eta[document], phi[:, wanted[1]]) / len(topics)
    return float(np.exp(-np.sum(wanted[2] * np.log(chance)) / np.sum(wanted[2])))


def split_words(
    counts: Counts, share: float = 0.5, random_seed: Seed = None
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Split the words of every document at random: each is held out with probability `share`.

    Returns the counts of the words that stay and of those held out.

    Examples
    --------
    >>> import numpy as np, pymc_sgcv as sg
    >>> counts = np.array([[4, 0, 2], [1, 3, 0]])
    >>> stay, held_out = sg.lda.split_words(counts, random_seed=1)
    >>> bool(((stay + held_out) == counts).all())
    True
    """
    indptr, indices, data, n_words = _csr(counts)
    out = np.random.default_rng(random_seed).binomial(data, share).astype(data.dtype)
    parts = []
    for part in (data - out, out):
        matrix = sp.csr_matrix((part, indices.copy(), indptr.copy()), (len(indptr) - 1, n_words))
        matrix.eliminate_zeros()
        parts.append(matrix)
    return parts[0], parts[1]


def _csr(counts: Counts) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """indptr, indices, data and number of words of a matrix of counts, checked."""
    matrix = sp.csr_matrix(counts)
    if matrix.nnz and (matrix.data.min() < 0 or np.any(matrix.data != np.floor(matrix.data))):
        raise ValueError("counts must be whole numbers of at least 0: how often a word occurs.")
    return (
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.int32),
        matrix.shape[1],
    )


def _alphas(alpha: float | np.ndarray, n_topics: int | None) -> np.ndarray:
    if n_topics is None:
        raise ValueError("topics must have a known number of rows, one per topic.")
    try:
        alphas = np.broadcast_to(np.asarray(alpha, dtype=float), (n_topics,)).copy()
    except (TypeError, ValueError):
        raise ValueError(
            f"alpha must be a positive number, or {n_topics} of them, one per topic."
        ) from None
    if not (np.isfinite(alphas).all() and (alphas > 0).all()):
        raise ValueError("alpha must be positive.")
    return alphas
