"""README and docs: examples run and print what they say; reference pages match the code."""

import contextlib
import importlib.util
import inspect
import io
import json
import re
from pathlib import Path

import pytest

import fedprior
from fedprior.core import check, random, tree
from fedprior.experiments.comparison_settings import COMPARISONS
from fedprior.reporting import config
from pages import WALKED

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md")))]
EXAMPLE = re.compile(r"```python\n((?:(?!```).)*)```\s*```text\n(.*?)```", re.S)


def examples():
    """Those of explanations; tests/test_commands.py follows the other pages."""
    for page in sorted(set(PAGES) - set(WALKED)):
        for code, output in EXAMPLE.findall((ROOT / page).read_text()):
            yield pytest.param(code, output, id=page)


@pytest.mark.parametrize(("code", "output"), list(examples()))
def test_examples_print_what_the_page_says(code, output):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "example", "exec"), {})
    assert printed.getvalue() == output


def test_readme_has_an_example():
    assert EXAMPLE.search((ROOT / "README.md").read_text())


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize("page", ["configuration.md", "interface.md"])
def test_reference_matches_the_code(page):
    assert (ROOT / "docs/reference" / page).read_text() == script("reference").PAGES[page]()


def test_the_reference_shows_arguments_types_and_defaults():
    page = script("reference").interface()
    assert "FixedSize(*, size: int, amplifies: bool = False)" in page
    assert "    steps: Steps = Steps()," in page
    for namespace in ("learning", "privacy", "channels", "estimation", "exchange"):
        assert f"## fedprior.{namespace}\n" in page


def test_the_reproduction_matches_its_rows():
    page = ROOT / "docs/reproduction.md"
    assert page.read_text() == script("reproduction").page()


@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_the_reproduction_is_of_all_methods_as_they_are_set_up(name):
    found = json.loads((ROOT / "docs/reproduction" / name / "rows.json").read_text())
    known = COMPARISONS[name]
    assert found["seeds"] == [known.first + place for place in range(known.seeds)]
    made = {(row["setting"], row["method"]): row["options"] for row in found["rows"]}
    assert made == {
        (each.name, method): json.loads(json.dumps(each.method_options(method)))
        for each in known.settings
        for method in known.methods
    }


def script(folder):
    """docs/FOLDER/generate.py as a module."""
    path = ROOT / "docs" / folder / "generate.py"
    spec = importlib.util.spec_from_file_location(f"generate_{folder}", path)
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    return generate


def test_public_names_exist_and_are_documented():
    names = [name for name in fedprior.__all__ if name != "__version__"]
    spaces = [name for name in names if inspect.ismodule(getattr(fedprior, name))]
    assert len(names) - len(spaces) <= 48
    for space in (fedprior, *(getattr(fedprior, name) for name in spaces)):
        assert set(space.__all__) <= set(dir(space))
        for name in space.__all__:
            value = getattr(space, name)
            assert name == "__version__" or (value.__doc__ or "").strip(), name
            kind = inspect.isfunction(value) or inspect.isclass(value) or inspect.ismodule(value)
            assert kind or name == "__version__", name
        with pytest.raises(AttributeError, match="nothing"):
            _ = space.nothing


@pytest.mark.parametrize("module", [check, random, tree])
def test_docstring_examples(module):
    import doctest

    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("path", sorted(config.SHIPPED.glob("*.toml")), ids=lambda p: p.stem)
def test_shipped_configurations_are_valid(path):
    assert config.read(path.stem) == config.read(path)
    assert config.read(path.stem).methods


def test_every_class_has_a_name_of_its_own():
    places = {}
    for path in (ROOT / "src").rglob("*.py"):
        for name in re.findall(r"^class (\w+)", path.read_text(), re.M):
            places.setdefault(name, []).append(path.name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
