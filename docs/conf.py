"""Sphinx configuration. Nothing here needs a network."""

import inspect
import sys
from pathlib import Path

import pymc_sgcv

sys.path.insert(0, str(Path(__file__).parent))
from notebooks import collect

project = "pymc-sgcv"
author = "The pymc-sgcv developers"
project_copyright = author
release = version = pymc_sgcv.__version__

# The notebooks live in examples/ and are shown as they are stored; nothing is run here.
collect(Path(__file__).parents[1] / "examples", Path(__file__).parent)

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "gallery/cards.md"]
default_role = "code"

nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "pydata_sphinx_theme"
html_title = f"pymc-sgcv {release}"
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": False,
}
# The notebooks stand beside each other; the other pages have no siblings worth a column.
beside = ["sidebar-nav-bs"]
html_sidebars = {"gallery": beside, "examples/*": beside} | {
    page: [] for page in ("index", "guide", "method", "api", "genindex", "search", "_modules/**")
}


def show_init_signature(app, what, name, obj, options, signature, return_annotation):
    """Show the arguments of a step method, which PyMC's own ``__new__(*args, **kwargs)`` hides."""
    if what == "class" and "__signature__" in vars(obj):
        arguments = inspect.signature(obj).parameters.values()
        plain = [p.replace(annotation=inspect.Parameter.empty) for p in arguments]
        return str(inspect.Signature(plain)), return_annotation
    return None


def setup(app):
    app.connect("autodoc-process-signature", show_init_signature)
