"""README and docs: examples run and print what they say; reference pages match the code."""

import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fedprior
from fedprior.cli import main
from fedprior.core import check, random, tree
from fedprior.experiments import comparison_report, framework, optimizer_choice
from fedprior.experiments.comparison_beside import place
from fedprior.experiments.comparison_settings import COMPARISONS
from fedprior.experiments.optimizers import OPTIMIZERS
from fedprior.reporting import config
from walked_pages import WALKED

ROOT = Path(__file__).parents[1]
MADE = {"commands", "api", "names"}  # folders of docs/reference that a build of the site writes
PAGES = [
    *("README.md", "CONTRIBUTING.md", "benchmarks/README.md"),
    *(
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if path.parent.name not in MADE
    ),
]
BLOCK = re.compile(
    r"(?:<!-- ([^>]*) -->\n)?```python\n((?:(?!```).)*)```(?:\s*```text\n(.*?)```)?", re.S
)


def examples():
    """Every Python block, unless the line above says why it is not run.

    Of all pages but those that tests/test_commands.py follows from top to bottom.

    `<!-- continues -->` above a block runs it after the blocks before it.
    """
    for page in sorted(set(PAGES) - set(WALKED)):
        before: list[str] = []
        for number, (note, code, output) in enumerate(BLOCK.findall((ROOT / page).read_text())):
            if not re.match(r"not run: \w+", note):
                before = [*before, code] if note == "continues" else [code]
                yield pytest.param(before, output, id=f"{page}-{number}")


@pytest.mark.parametrize(("blocks", "output"), list(examples()))
def test_examples_print_what_the_page_says(blocks, output):
    names: dict[str, object] = {}
    for code in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "example", "exec"), names)
    assert printed.getvalue() == output


def test_readme_has_an_example():
    assert BLOCK.search((ROOT / "README.md").read_text())


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert ((ROOT / page).parent / target).exists(), target


@pytest.fixture(scope="module")
def site():
    """The modules that make the site's reference."""
    pytest.importorskip("sphinx", reason="the site needs the extra docs")
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        yield importlib.import_module("extensions")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.fixture
def interface(site):
    return importlib.import_module("extensions.interface")


def test_every_public_name_is_explained_with_its_arguments_and_types(interface):
    assert interface.problems() == []


def undocumented(count):
    pass


class Unexplained:
    """A class with a method."""

    def call(self, count: int, size: int) -> int:
        """Return `count`."""
        return count


def test_a_gap_in_the_reference_stops_the_build(interface, monkeypatch):
    public = {"fedprior.undocumented": undocumented, "fedprior.Unexplained": Unexplained}
    monkeypatch.setattr(interface, "described", lambda: public)
    monkeypatch.setattr(Unexplained.call, "__module__", "fedprior.example")
    assert interface.problems() == [
        "fedprior.undocumented has no docstring",
        "fedprior.undocumented: count has no type",
        "fedprior.undocumented: count is not explained",
        "fedprior.Unexplained.call: size is not explained",
    ]


def test_every_public_name_has_a_page(interface):
    public = {
        id(getattr(space, name))
        for space in interface.namespaces().values()
        for name in space.__all__
        if not name.startswith("__") and not inspect.ismodule(getattr(space, name))
    }
    assert {id(value) for value in interface.described().values()} == public
    pages = interface.pages()
    assert {path.removesuffix(".rst") for path in pages} == set(interface.described())
    assert "   .. automethod:: amplify" in pages["fedprior.FixedSize.rst"]
    assert "   fedprior.learning.fedrep" in interface.overviews()["fedprior.learning.rst"]


def test_arguments_are_explained_where_they_occur(interface):
    rows = re.findall(r"^\| `(\w+)` \|", interface.ARGUMENTS.read_text(), re.M)
    used = {
        argument
        for path, value in interface.callables().items()
        for argument in interface.unmentioned(path, value)
    }
    assert set(rows) == used


def test_docstrings_become_text_for_sphinx(interface):
    lines = interface.convert("`GroupRates` of x_i, *or*:\n- `a`: b\n\n>>> 1\n1\n\n    a  b")
    assert lines[0] == r":py:obj:`GroupRates <fedprior.GroupRates>`\  of x\_i, \*or\*:"
    assert lines[1:] == ["", r"- ``a``\ : b", "", ">>> 1", "1", "", "::", "", "    a  b", ""]


def test_the_command_reference_has_every_option(site):
    pages = importlib.import_module("extensions.commands").pages()
    assert set(pages) == {f"{name}.md" for name in main.COMMANDS}
    assert re.search(r":::{option} --group \S+\n\nColumn that names", pages["estimate.md"])
    assert "### fedprior privacy ledger init\n" in pages["privacy.md"]
    plan = pages["privacy.md"].split("## fedprior privacy plan\n")[1].split("\n## ")[0]
    assert ":::{option} --sampling-rate " in plan
    assert "Default: `0.95`." in pages["estimate.md"]


def test_the_configuration_page_has_every_key(site):
    tables = importlib.import_module("extensions.configuration").tables()
    for table in (config.Config, *(type(getattr(config.Config(), n)) for n in ("data", "privacy"))):
        assert table.__doc__.splitlines()[0] in tables
    assert "| `rounds` | `int` |" in tables


@pytest.mark.parametrize(
    ("folder", "link", "expected"),
    [
        ("docs/how-to", "[a](../explanation/trust.md#b)", "[a](/explanation/trust.md#b)"),
        ("docs/explanation", "[b](../../benchmarks/README.md)", "[b](/project/benchmarks.md)"),
        (
            "docs",
            "[c](../tests/test_documents.py#d)",
            "{download}`c </../tests/test_documents.py>`",
        ),
        ("benchmarks", "[d](../docs/gallery.md)", "[d](/gallery.md)"),
    ],
)
def test_links_lead_to_pages_of_the_site(site, folder, link, expected):
    assert importlib.import_module("extensions.links").rewrite(link, ROOT / folder) == expected


@pytest.fixture
def gallery(site):
    return importlib.import_module("extensions.gallery")


def test_the_gallery_has_real_data_only_where_they_are(gallery, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPRIOR_DATA", str(tmp_path))
    real = [each for each in gallery.EXAMPLES if each.real]
    assert real
    assert not any(each.possible for each in real)
    source = ["# Gallery\n"]
    gallery.read(None, "gallery", source)
    assert source[0].count("{grid-item-card}") == len(gallery.EXAMPLES) - len(real)
    assert "`fedprior estimate --report batting.html`" in source[0]


def test_the_gallery_keeps_what_commands_write_and_says_what_failed(gallery, monkeypatch, tmp_path):
    def run(command, cwd, **_):
        if "good.html" in command:
            (Path(cwd) / "good.html").write_text("a page")
        return SimpleNamespace(stderr="no such table")

    examples = [gallery.Example(name, name, "", "fedprior estimate") for name in ("good", "bad")]
    warnings = []
    monkeypatch.setattr(gallery, "EXAMPLES", examples)
    monkeypatch.setattr(gallery.Example, "possible", True)
    monkeypatch.setattr(gallery.subprocess, "run", run)
    monkeypatch.setattr(gallery, "warn", lambda *words: warnings.append(words[1:]))
    gallery.make(SimpleNamespace(builder=SimpleNamespace(format="html"), outdir=tmp_path), None)
    assert [page.name for page in (tmp_path / "gallery").iterdir()] == ["good.html"]
    assert warnings == [("fedprior estimate --report bad.html", "no such table")]


def test_pictures_of_the_gallery_are_small_and_show_no_real_data(gallery):
    for each in gallery.EXAMPLES:
        picture = gallery.PICTURES / f"{each.name}.png"
        assert picture.exists() != each.real
        assert each.real or picture.stat().st_size < 150_000


def test_the_reproduction_matches_its_rows():
    page = ROOT / "docs/reproduction.md"
    assert page.read_text() == script("reproduction").page()


REPRODUCED = sorted((ROOT / "docs/reproduction").glob("**/rows.json"))


@pytest.mark.parametrize("file", REPRODUCED, ids=lambda file: str(file.parent.relative_to(ROOT)))
def test_what_is_said_of_reproduced_rows_follows_from_them(file):
    found = json.loads(file.read_text())
    name, rows = found["experiment"], found["rows"]
    if name == "optimizer":
        said = optimizer_choice.remarks([optimizer_choice.OptimizerRow(**row) for row in rows])
        for row in rows:
            assert row["valid"] == pytest.approx(np.mean([*row["by_method"].values()]), abs=1e-4)
    elif name in ("framework", "few-samples"):
        said = [*framework.remarks([framework.PriorRow(**row) for row in rows])]
    else:
        optimizer = OPTIMIZERS[found.get("optimizer", {"name": "published"})["name"]]
        settings = COMPARISONS[name].chosen_settings(None, quick=False, optimizer=optimizer)
        said = comparison_report.remarks([comparison_report.Row(**row) for row in rows], settings)
    assert found["remarks"] == said


# What has been run only in part, as the page says.
UNFINISHED = {
    ("table1", "published"): "the six newest methods have been run with the same optimizer only",
    ("beyond", "published"): "the six newest methods have been run with the same optimizer only",
    ("ablation", "published"): "AdaMAP with three networks has not been run",
    ("cifar10", "equal"): "eleven methods have been run, in one setting of three",
}


def unfinished(*which):
    """A mark that fails as soon as the rest has been run."""
    return [pytest.mark.xfail(reason=UNFINISHED[which])] if which in UNFINISHED else []


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        pytest.param(name, each, id=f"{name}-{each.name}", marks=unfinished(name, each.name))
        for name in sorted(COMPARISONS)
        for each in OPTIMIZERS.values()
    ],
)
def test_the_reproduction_is_of_all_methods_as_they_are_set_up(name, optimizer):
    known = COMPARISONS[name].under(optimizer)
    file = place(ROOT / "docs/reproduction" / name, optimizer) / "rows.json"
    if not file.exists():
        pytest.skip(f"{file.name} of {name}, {optimizer.name}: to be made on a GPU")
    found = json.loads(file.read_text())
    assert found["seeds"] == [known.first + place for place in range(known.seeds)]
    made = {(row["setting"], row["method"]): row["options"] for row in found["rows"]}
    assert made == {
        (each.name, method): json.loads(json.dumps(each.method_options(method)))
        for each in known.chosen_settings(None, quick=False, optimizer=optimizer)
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
