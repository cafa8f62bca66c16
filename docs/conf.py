"""The documentation site: `python -m sphinx -W --keep-going docs site`, without a network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import fedprior

project = "fedprior"
release = version = fedprior.__version__
copyright = "the fedprior authors, Apache License 2.0"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_copybutton",
    "extensions.interface",
    "extensions.commands",
    "extensions.configuration",
    "extensions.links",
    "extensions.gallery",
]
exclude_patterns = ["**/__pycache__"]
suppress_warnings = ["myst.header"]  # a decision opens with its number and a one-line title

myst_enable_extensions = ["colon_fence", "fieldlist"]
myst_heading_anchors = 3
smartquotes = False  # options such as --group keep their two hyphens

autosummary_generate = False
autodoc_typehints_format = "short"
python_display_short_literal_types = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"
nitpicky = True
nitpick_ignore_regex = [  # types of other packages, and our own that are not public
    (r"py:.*", r"(?!fedprior).*"),
    (r"py:.*", r"fedprior\.\w+\..*"),
]

html_theme = "pydata_sphinx_theme"
html_title = "fedprior"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_toc_level": 2,
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_context = {"default_mode": "auto"}  # light or dark as the reader's system
html_sidebars = {"index": [], "gallery": []}
copybutton_exclude = ".linenos, .gp, .go"
