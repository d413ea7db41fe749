# SPDX-License-Identifier: Apache-2.0
"""Word counts of Wikipedia articles: a local copy, a small download, or look-alike documents."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import numpy as np
import scipy.sparse as sp

from pymc_sgcv.datasets._files import look_up

_FILES = ("docs.npz",)
_DOCUMENTS, _TEST = 82_538, 1_000
_DOWNLOADED, _PATIENCE = 2_000, 120.0
"""A download stops at so many articles, or after so many seconds."""
_API = "https://en.wikipedia.org/w/api.php"
_STOP = frozenset(
    """a about after all also an and any are as at be because been before being between both but by
    can did do does during each for from had has have he her him his how i if in into is it its
    more most no nor not of on only or other our out over own s same she so some such than that the
    their them then there these they this those through to under until up was we were what when
    where which while who will with you your""".split()
)


class _Raw(NamedTuple):
    """All documents in file order, the words, and how many documents come before the test set."""

    counts: sp.csr_matrix
    vocabulary: np.ndarray
    n_train: int


@dataclass(frozen=True)
class Wikipedia:
    """Word counts of documents, split into training and test documents.

    Attributes
    ----------
    train, test
        How often each document (row) has each word (column), sparse. Training documents are in
        random order, so that the first k are a random sample.
    vocabulary
        The words.
    source
        ``"local copy"``, ``"download"`` or ``"generated look-alike"``.
    """

    train: sp.csr_matrix = field(repr=False)
    test: sp.csr_matrix = field(repr=False)
    vocabulary: np.ndarray = field(repr=False)
    source: str

    def __str__(self) -> str:
        words = self.train.sum() / self.train.shape[0]
        return (
            f"Wikipedia ({self.source}): {self.train.shape[0]:,} training and "
            f"{self.test.shape[0]:,} test documents of {words:.0f} words on average, "
            f"{len(self.vocabulary):,} different words"
        )


def wikipedia(
    path: str | os.PathLike | None = None,
    *,
    n_documents: int | None = None,
    seed: int = 1,
    download: bool = True,
) -> Wikipedia:
    """Counts of the 1,000 commonest words, stop words removed, in English Wikipedia articles.

    The local copy has 81,538 training and 1,000 test documents. A download takes the first
    paragraphs of at most 2,000 random articles, enough to try things out. Look-alike documents come
    from a latent Dirichlet allocation of 20 topics. Text of Wikipedia is under CC BY-SA.

    Parameters
    ----------
    path
        A file, or a directory with ``docs.npz``: the counts in CSR form as arrays ``indptr``,
        ``indices``, ``data``, ``shape``, with ``vocab`` and ``n_train``. Default: the directory in
        ``SGCV_DATA``.
    n_documents
        Keep so many random training documents; all by default.
    seed
        Of the order of the training documents.
    download
        Whether to ask Wikipedia where there is no local copy.

    Returns
    -------
    Wikipedia

    Examples
    --------
    >>> data = wikipedia(n_documents=2000, download=False)
    >>> data.train.shape, data.test.shape
    ((2000, 1000), (1000, 1000))
    """
    if n_documents is not None and n_documents < 1:
        raise ValueError(f"n_documents must be at least 1, not {n_documents!r}.")
    fetch = _fetch if download else None
    raw, source = look_up("Wikipedia", _FILES, path, _read, fetch, lambda: _look_alike(n_documents))
    order = np.random.default_rng(seed).permutation(raw.n_train)[:n_documents]
    return Wikipedia(raw.counts[order], raw.counts[raw.n_train :], raw.vocabulary, source)


def _read(file: Path) -> _Raw:
    with np.load(file) as arrays:
        needed = ("indptr", "indices", "data", "shape", "vocab", "n_train")
        missing = [name for name in needed if name not in arrays]
        if missing:
            raise ValueError(f"Wikipedia: '{file}' has no array {', '.join(missing)}.")
        parts = [arrays[name].astype(np.int32) for name in ("data", "indices", "indptr")]
        counts = sp.csr_matrix(tuple(parts), shape=tuple(arrays["shape"]))
        return _Raw(counts, arrays["vocab"], int(arrays["n_train"]))


def _fetch() -> _Raw:
    """The first paragraphs of random articles, twenty to a request."""
    query = {
        "action": "query", "format": "json", "generator": "random", "grnnamespace": 0,
        "grnlimit": 20, "prop": "extracts", "exintro": 1, "explaintext": 1, "exlimit": 20,
    }  # fmt: skip
    request = Request(f"{_API}?{urlencode(query)}", headers={"User-Agent": "pymc-sgcv examples"})
    texts: dict[str, str] = {}
    began = time.monotonic()
    while len(texts) < _DOWNLOADED and time.monotonic() - began < _PATIENCE:
        with urlopen(request) as answer:
            pages = json.load(answer)["query"]["pages"]
        texts |= {number: page.get("extract", "") for number, page in pages.items()}
    return _count_words(list(texts.values()))


def _count_words(texts: list[str], n_words: int = 1000, least: int = 5) -> _Raw:
    """Counts of the commonest words; documents with fewer than `least` of them are left out."""
    documents = [
        Counter(w for w in re.findall(r"[a-z]{2,}", text.lower()) if w not in _STOP)
        for text in texts
    ]
    everything = sum(documents, Counter())
    vocabulary = np.array([word for word, _ in everything.most_common(n_words)])
    column = {word: i for i, word in enumerate(vocabulary)}
    counts = sp.lil_matrix((len(documents), len(vocabulary)), dtype=np.int32)
    for i, document in enumerate(documents):
        for word, count in document.items():
            if word in column:
                counts[i, column[word]] = count
    counts = counts.tocsr()
    counts = counts[np.asarray(counts.sum(axis=1)).ravel() >= least]
    return _Raw(counts, vocabulary, counts.shape[0] - max(1, counts.shape[0] // 10))


def _look_alike(n_documents: int | None, n_topics: int = 20, n_words: int = 1000) -> _Raw:
    """Documents from a latent Dirichlet allocation, about as long as Wikipedia's."""
    rng = np.random.default_rng(82538)
    n = _TEST + (n_documents or _DOCUMENTS - _TEST)
    common = 1 / (10 + np.arange(n_words))  # words of all topics; each topic prefers a few
    phi = rng.dirichlet(0.1 * n_words * common / common.sum(), size=n_topics)
    phi = 0.8 * phi + 0.2 * common / common.sum()
    eta = rng.dirichlet(np.full(n_topics, 0.2), size=n)
    length = np.clip(rng.lognormal(4.4, 0.8, size=n), 5, 5000).astype(int)
    rows = [sp.csr_matrix(rng.multinomial(m, e @ phi)) for m, e in zip(length, eta, strict=True)]
    counts = sp.vstack(rows, format="csr").astype(np.int32)
    return _Raw(counts, np.array([f"word{i}" for i in range(n_words)]), n - _TEST)
