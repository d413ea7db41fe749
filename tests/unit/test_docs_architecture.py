# SPDX-License-Identifier: Apache-2.0
"""The pages for contributors name the files that there are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pymc_sgcv"
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TREE = re.search(r"```text\npymc_sgcv/\n(.*?)```", ARCHITECTURE, re.DOTALL)[1]
FILE = re.compile(r"[`(\"]([\w./]+\.py)[`)\" ]")


def files_in_tree():
    """Paths from the package on; a folder is a line that ends its name with a slash."""
    folder, files = "", set()
    for line in TREE.splitlines():
        indent, name = re.match(r"( *)(\S+)", line).groups()
        if name.endswith("/"):
            folder = name
        else:
            files.add((folder if len(indent) > 2 else "") + name)
    return files


def test_the_tree_has_every_module_and_no_other():
    modules = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    assert files_in_tree() == {module for module in modules if "__init__" not in module}


@pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING], ids=["architecture", "contributing"])
def test_files_that_a_page_names_exist(page):
    named = set(FILE.findall(page.replace(TREE, "")))
    assert len(named) > 5
    missing = {name for name in named if not any((at / name).exists() for at in (PACKAGE, ROOT))}
    assert not missing


def test_functions_that_the_tables_name_are_in_the_files_beside_them():
    """As in: `standard` in `kernel/estimators.py`."""
    pairs = re.findall(r"`(\w+)`(?: there)? (?:in|of) `([\w/]+\.py)`", ARCHITECTURE)
    assert len(pairs) > 10
    for name, file in pairs:
        at = next(at for at in (PACKAGE / file, ROOT / file) if at.exists())
        assert re.search(rf"\b{name}\b", at.read_text(encoding="utf-8")), f"{name} in {file}"
