# SPDX-License-Identifier: Apache-2.0
"""The gallery is made of whatever notebooks there are."""

import base64
import importlib.util
import json
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[2] / "docs" / "notebooks.py"


@pytest.fixture
def collect():
    spec = importlib.util.spec_from_file_location("docs_notebooks", _FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.collect


def text(source):
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def figure(content, *tags):
    output = {"data": {"image/png": base64.b64encode(content).decode()}}
    return {
        "cell_type": "code",
        "metadata": {"tags": list(tags)},
        "source": "",
        "outputs": [output],
    }


def write(folder, name, *cells):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps({"cells": cells}))


@pytest.fixture
def folders(tmp_path):
    source, docs = tmp_path / "source", tmp_path / "docs"
    source.mkdir()
    docs.mkdir()
    return source, docs


def test_a_card_has_title_first_paragraph_and_a_link(collect, folders):
    source, docs = folders
    write(source, "pmf.ipynb", text("# Films\n\nWhat people like.\n\nMore."), figure(b"one"))
    collect(source, docs)
    card = (docs / "gallery" / "cards.md").read_text()
    assert "## [Films](examples/pmf.ipynb)" in card
    assert "What people like." in card
    assert "More." not in card


def test_the_picture_is_the_tagged_one_or_else_the_first(collect, folders):
    source, docs = folders
    write(source, "lda.ipynb", text("# A"), figure(b"one"), figure(b"two", "gallery"))
    write(source, "pmf.ipynb", text("# B"), figure(b"one"), figure(b"two"))
    collect(source, docs)
    assert (docs / "gallery" / "lda.png").read_bytes() == b"two"
    assert (docs / "gallery" / "pmf.png").read_bytes() == b"one"


def test_a_notebook_without_a_picture_still_has_a_card(collect, folders):
    source, docs = folders
    write(source, "pmf.ipynb", text("# Films\n\nWhat people like."))
    collect(source, docs)
    assert "![" not in (docs / "gallery" / "cards.md").read_text()
    assert (docs / "examples" / "pmf.ipynb").exists()


def test_a_notebook_that_is_gone_leaves_the_site(collect, folders):
    source, docs = folders
    write(source, "pmf.ipynb", text("# Films"))
    collect(source, docs)
    (source / "pmf.ipynb").unlink()
    collect(source, docs)
    assert list((docs / "examples").glob("*.ipynb")) == []
    assert "Films" not in (docs / "gallery" / "cards.md").read_text()
