"""Sphinx configuration. Nothing here needs a network."""

import inspect

import pymc_sgcv

project = "pymc-sgcv"
author = "The pymc-sgcv developers"
project_copyright = author
release = version = pymc_sgcv.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
default_role = "code"

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
html_sidebars = {"**": []}


def show_init_signature(app, what, name, obj, options, signature, return_annotation):
    """Show the arguments of a step method, which PyMC's own ``__new__(*args, **kwargs)`` hides."""
    module = getattr(getattr(obj, "__init__", None), "__module__", None) or ""
    if what == "class" and obj.__new__ is not object.__new__ and module.startswith("pymc_sgcv"):
        _self, *arguments = inspect.signature(obj.__init__).parameters.values()
        plain = [p.replace(annotation=inspect.Parameter.empty) for p in arguments]
        return str(inspect.Signature(plain)), return_annotation
    return None


def setup(app):
    app.connect("autodoc-process-signature", show_init_signature)
