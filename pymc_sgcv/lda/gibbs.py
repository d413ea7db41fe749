# SPDX-License-Identifier: Apache-2.0
"""Topic assignments of one document given the topics, by collapsed Gibbs sampling, compiled.

A document of T words w₁ … w_T has topic proportions η ~ Dirichlet(α), assignments z_t ~ η and words
w_t ~ φ_{z_t}. With η integrated out,

    p(z_t = k | the other z, w) ∝ (α_k + n_k) φ_{k w_t},       n_k = #{s ≠ t : z_s = k}.

`phi` is passed with shape (W, K): the K numbers that one word needs lie side by side.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_sgcv.engine.native import compiled
from pymc_sgcv.engine.xoshiro import uniform

ROUNDS = 10
"""Rounds of expectation before the first draw: they cost little and save several sweeps."""


@compiled
def _mixed(x):
    """The finaliser of splitmix64 (Steele, Lea & Flood 2014): one word in, one well mixed out."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def seed_stream(seed, batch, document, state):
    """Begin the stream of random numbers that belongs to a document in a batch."""
    word = _mixed(_mixed(_mixed(np.uint64(seed)) ^ np.uint64(batch)) ^ np.uint64(document))
    for i in range(4):
        word = _mixed(word)
        state[i] = word


@compiled
def _weigh(weight, row, p, parts):
    """Fill `p` with the products and `parts` with sums over four of them; return the whole sum."""
    total = 0.0
    for c in range(len(parts)):  # four at a time: a plain sum waits for each addition in turn
        k = 4 * c
        p[k] = weight[k] * row[k]
        p[k + 1] = weight[k + 1] * row[k + 1]
        p[k + 2] = weight[k + 2] * row[k + 2]
        p[k + 3] = weight[k + 3] * row[k + 3]
        parts[c] = (p[k] + p[k + 1]) + (p[k + 2] + p[k + 3])
        total += parts[c]
    return total


@compiled
def _draw(p, parts, total, n_topics, rng):
    """A topic with probability p[k] / total."""
    left, c = uniform(rng) * total, 0
    while c < len(parts) - 1 and left >= parts[c]:
        left -= parts[c]
        c += 1
    k = 4 * c
    last = min(k + 4, n_topics) - 1
    while k < last and left >= p[k]:
        left -= p[k]
        k += 1
    return k


@compiled
def _first_guess(words, counts, phi, alpha, weight, p, parts, fresh):
    """Fill `weight` with α_k + E n_k after a few rounds of expectation: where to start from."""
    length = 0
    for c in counts:
        length += c
    n_topics = len(alpha)
    for k in range(n_topics):
        weight[k] = alpha[k] + length / n_topics
    for _ in range(ROUNDS):
        for k in range(n_topics):
            fresh[k] = alpha[k]
        for j in range(len(words)):
            scale = counts[j] / _weigh(weight, phi[words[j]], p, parts)
            for k in range(n_topics):
                fresh[k] += scale * p[k]
        for k in range(n_topics):
            weight[k] = fresh[k]


@compiled
def gibbs(words, counts, phi, alpha, sweeps, warmup, z, work, parts, shares, rng):
    """Run `warmup` + `sweeps` sweeps over the words of a document; average over the latter.

    Adds to ``shares[j, k]`` the mean over sweeps of Σ_t p(z_t = k | the other z) over the copies t
    of word j: its mean is E[n_kw | document], with less variance than counts of drawn z (their
    Rao–Blackwellisation).

    `z`, `work` and `parts` are memory to work in: as long as the document, (3, K) and K / 4, with
    K rounded up to a multiple of four as in `phi` and `shares`.
    """
    n_topics = len(alpha)
    weight, p, number = work[0], work[1], work[2]
    _first_guess(words, counts, phi, alpha, weight, p, parts, number)
    for k in range(n_topics):
        number[k] = alpha[k]
    t = 0
    for j in range(len(words)):
        total = _weigh(weight, phi[words[j]], p, parts)
        for _ in range(counts[j]):
            z[t] = _draw(p, parts, total, n_topics, rng)
            number[z[t]] += 1.0
            t += 1
    for sweep in range(warmup + sweeps):
        t = 0
        for j in range(len(words)):
            row = phi[words[j]]
            for _ in range(counts[j]):
                number[z[t]] -= 1.0
                total = _weigh(number, row, p, parts)
                if sweep >= warmup:
                    scale = 1.0 / (sweeps * total)
                    for k in range(n_topics):
                        shares[j, k] += scale * p[k]
                z[t] = _draw(p, parts, total, n_topics, rng)
                number[z[t]] += 1.0
                t += 1


@compiled
def _by_word(log_phi):
    """φ of shape (W, K), with topics of probability zero up to a multiple of four."""
    n_topics, n_words = log_phi.shape
    phi = np.zeros((n_words, 4 * ((n_topics + 3) // 4)))
    for k in range(n_topics):
        for w in range(n_words):
            phi[w, k] = np.exp(log_phi[k, w])
    return phi


@compiled
def _longest(documents, indptr, counts):
    """The most words, and the most distinct words, that one of the documents has."""
    words, distinct = 0, 0
    for d in documents:
        length = 0
        for j in range(indptr[d], indptr[d + 1]):
            length += counts[j]
        words = max(words, length)
        distinct = max(distinct, indptr[d + 1] - indptr[d])
    return words, distinct


@compiled
def expected_counts(
    documents, weights, log_phi, alpha, indptr, indices, counts, sweeps, warmup, seed
):
    """Σ_d weight_d E[n_kw | document d], of shape (K, W), estimated by Gibbs sampling.

    By Fisher's identity this is the gradient of Σ_d weight_d log p(document d | φ) with respect to
    log φ. The random numbers depend on the seed, the document and the first document of the batch
    alone: two values of φ on the same batch meet the same ones.
    """
    n_topics, n_words = log_phi.shape
    phi = _by_word(log_phi)
    work, parts = np.zeros((3, phi.shape[1])), np.empty(phi.shape[1] // 4)
    rng = np.empty(4, dtype=np.uint64)
    longest, most = _longest(documents, indptr, counts)
    z, shares = np.empty(longest, dtype=np.int32), np.zeros((most, n_topics))
    sums = np.zeros((n_words, n_topics))
    for i in range(len(documents)):
        d = documents[i]
        start, stop = indptr[d], indptr[d + 1]
        seed_stream(seed, documents[0], d, rng)
        words = indices[start:stop]
        gibbs(words, counts[start:stop], phi, alpha, sweeps, warmup, z, work, parts, shares, rng)
        for j in range(stop - start):
            total = sums[words[j]]
            for k in range(n_topics):
                total[k] += weights[i] * shares[j, k]
                shares[j, k] = 0.0
    out = np.empty((n_topics, n_words))
    for k in range(n_topics):
        for w in range(n_words):
            out[k, w] = sums[w, k]
    return out


@compiled
def topic_proportions(log_phi, alpha, indptr, indices, counts, sweeps, warmup, seed):
    """E[η | document] = (α + E[n]) / Σ (α + n) of every document, of shape (documents, K)."""
    n_topics = len(log_phi)
    phi = _by_word(log_phi)
    work, parts = np.zeros((3, phi.shape[1])), np.empty(phi.shape[1] // 4)
    rng = np.empty(4, dtype=np.uint64)
    documents = np.arange(len(indptr) - 1)
    longest, most = _longest(documents, indptr, counts)
    z, shares = np.empty(longest, dtype=np.int32), np.zeros((most, n_topics))
    out = np.empty((len(documents), n_topics))
    for d in documents:
        start, stop = indptr[d], indptr[d + 1]
        seed_stream(seed, d, d, rng)
        words = indices[start:stop]
        gibbs(words, counts[start:stop], phi, alpha, sweeps, warmup, z, work, parts, shares, rng)
        whole = 0.0
        for k in range(n_topics):
            total = alpha[k]
            for j in range(stop - start):
                total += shares[j, k]
                shares[j, k] = 0.0
            out[d, k] = total
            whole += total
        for k in range(n_topics):
            out[d, k] /= whole
    return out


@compiled
def _digamma(x):
    """ψ(x) for x > 0: recurrence up to 6, then the asymptotic series, to about 1e-10."""
    value = 0.0
    while x < 6.0:
        value -= 1.0 / x
        x += 1.0
    y = 1.0 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))
    return value + math.log(x) - 0.5 / x - series


@compiled
def lower_bounds(documents, log_phi, alpha, indptr, indices, counts, rounds):
    """A lower bound of log p(document | φ) for each document (Blei, Ng & Jordan 2003).

        Σ_w c_w log Σ_k φ_kw exp E_q log η_k − KL(q ‖ Dirichlet(α)),       q = Dirichlet(γ),

    after `rounds` updates of γ. It depends on the document and φ alone and holds for any γ.
    """
    n_topics = len(alpha)
    phi = _by_word(log_phi)
    bounds = np.empty(len(documents))
    gamma, slope, fresh = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    for i in range(len(documents)):
        start, stop = indptr[documents[i]], indptr[documents[i] + 1]
        length = 0
        for j in range(start, stop):
            length += counts[j]
        for k in range(n_topics):
            gamma[k] = alpha[k] + length / n_topics
        value = 0.0
        for r in range(rounds + 1):
            whole = _digamma(gamma.sum())
            for k in range(n_topics):
                slope[k] = math.exp(_digamma(gamma[k]) - whole)
                fresh[k] = 0.0
            value = 0.0
            for j in range(start, stop):
                row, total = phi[indices[j]], 0.0
                for k in range(n_topics):
                    total += row[k] * slope[k]
                for k in range(n_topics):
                    fresh[k] += counts[j] * row[k] / total
                if r == rounds:
                    value += counts[j] * math.log(total)
            if r < rounds:
                for k in range(n_topics):
                    gamma[k] = alpha[k] + slope[k] * fresh[k]
        value += math.lgamma(alpha.sum()) - math.lgamma(gamma.sum())
        for k in range(n_topics):
            value += math.lgamma(gamma[k]) - math.lgamma(alpha[k])
            value += (alpha[k] - gamma[k]) * math.log(slope[k])
        bounds[i] = value
    return bounds
