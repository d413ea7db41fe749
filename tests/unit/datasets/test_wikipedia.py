# SPDX-License-Identifier: Apache-2.0
"""Where documents come from, in which order, and that generated ones say so."""

import json
from io import BytesIO

import numpy as np
import pytest
import scipy.sparse as sp

from pymc_sgcv.datasets import _wikipedia
from pymc_sgcv.datasets._wikipedia import wikipedia
from pymc_sgcv.errors import SGCVWarning

COUNTS = sp.csr_matrix(np.arange(30).reshape(10, 3))


@pytest.fixture
def local(tmp_path, monkeypatch):
    monkeypatch.setenv("SGCV_DATA", str(tmp_path))
    np.savez(
        tmp_path / "docs.npz",
        indptr=COUNTS.indptr,
        indices=COUNTS.indices.astype("uint16"),
        data=COUNTS.data.astype("uint16"),
        shape=COUNTS.shape,
        n_train=8,
        vocab=["a", "b", "c"],
    )
    return tmp_path


def test_a_local_copy_is_found_through_the_environment(local):
    data = wikipedia(download=False)
    assert data.source == "local copy"
    assert np.array_equal(data.test.toarray(), COUNTS[8:].toarray())
    assert np.array_equal(np.sort(data.train.toarray()[:, 2]), COUNTS[:8].toarray()[:, 2])
    assert list(data.vocabulary) == ["a", "b", "c"]


def test_the_first_training_documents_are_the_same_whatever_their_number(local):
    assert np.array_equal(wikipedia(n_documents=3).train.toarray(), wikipedia().train[:3].toarray())


def test_a_file_without_the_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "docs.npz", indptr=[0])
    with pytest.raises(ValueError, match="has no array indices, data, shape, vocab, n_train"):
        wikipedia(tmp_path)


def test_generated_documents_say_so():
    with pytest.warns(SGCVWarning, match="generated"):
        data = wikipedia(n_documents=50, download=False)
    assert data.source == "generated look-alike"
    assert data.train.shape == (50, 1000) and data.test.shape == (1000, 1000)
    assert np.asarray(data.train.sum(axis=1)).min() >= 5


def test_downloaded_text_becomes_counts_of_its_commonest_words(monkeypatch):
    texts = ["The cat saw the cat. A dog saw a cat."] * 19 + ["cat"]
    monkeypatch.setattr(_wikipedia, "_fetch", lambda: _wikipedia._count_words(texts))
    data = wikipedia()
    assert data.source == "download"
    assert list(data.vocabulary) == ["cat", "saw", "dog"]  # stop words are out, commonest first
    assert np.array_equal(np.unique(data.train.toarray(), axis=0), [[3, 2, 1]])
    assert data.train.shape[0] + data.test.shape[0] == 19  # the last one is too short


def test_fewer_than_one_document_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        wikipedia(n_documents=0)


def test_articles_are_asked_for_until_there_are_enough(monkeypatch):
    """Half of each answer was in the one before, and one article has no text."""
    asked = []

    def answer(request):
        text, first = "alpha beta gamma delta epsilon " * 2, 10 * len(asked)
        asked.append(request.full_url)
        pages = {str(i): {"extract": text} for i in range(first, first + 20)}
        return BytesIO(json.dumps({"query": {"pages": pages | {"empty": {}}}}).encode())

    monkeypatch.setattr(_wikipedia, "urlopen", answer)
    monkeypatch.setattr(_wikipedia, "_DOWNLOADED", 35)
    raw = _wikipedia._fetch()
    assert len(asked) == 3 and all("generator=random" in url for url in asked)
    np.testing.assert_array_equal(raw.counts.toarray(), np.full((40, 5), 2))


def test_data_say_what_they_are(local):
    assert str(wikipedia()) == (
        "Wikipedia (local copy): 8 training and 2 test documents of 34 words on average, "
        "3 different words"
    )
