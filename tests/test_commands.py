"""Every command of README, tutorials and how-tos runs as printed, in one empty folder per page."""

import ast
import re
import shlex
import sys
import tomllib

import jax
import pytest
import typer
from packaging.requirements import Requirement

from fedprior.cli.main import build
from walked_pages import MARKS, ROOT, WALKED, Block, Walk, blocks, commands

# Ibis calls what the newest DuckDB deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")

EXECUTED = ("bash", "python")
IMPORTS = {"sklearn": "scikit-learn", "flwr": "flwr", "jax_privacy": "jax-privacy"}
# What a command needs beyond the package itself, by words that it contains.
NEEDS = {
    "--plot": "matplotlib",
    "privacy audit": "opendp",
    "noise=secure": "opendp",
    "mechanism=matrix": "jax-privacy",
    "--participation": "jax-privacy",
    "fedprior deploy": "flwr",
    "--connect": "ibis-framework",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module", autouse=True)
def _programs(tmp_path_factory):
    """Compiled programs are kept between pages, and forgotten at the end."""
    kept = jax.config.jax_persistent_cache_min_compile_time_secs
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRIOR_CACHE", str(tmp_path_factory.mktemp("programs")))
        yield
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", kept)


def executed(page, *, on_demand):
    for block in blocks(page):
        left_out = block.mark.startswith(("not run", *([] if on_demand else ["on demand"])))
        if block.language in EXECUTED and not left_out:
            yield block


@pytest.mark.parametrize("page", WALKED)
def test_a_reader_follows_the_page(page, tmp_path, monkeypatch):
    walk = Walk(page, tmp_path, monkeypatch)
    for block in executed(page, on_demand=False):
        walk.run(block)


@pytest.mark.evidence
@pytest.mark.parametrize("page", WALKED)
def test_a_reader_with_time_follows_the_page(page, tmp_path, monkeypatch):
    walk = Walk(page, tmp_path, monkeypatch)
    for block in executed(page, on_demand=True):
        walk.run(block)


@pytest.mark.parametrize("page", WALKED)
def test_commands_are_in_blocks_that_are_run(page):
    """An indented line, or a block of another language, would be printed and never run."""
    text = (ROOT / page).read_text()
    assert not re.findall(r"^    (?:fedprior|pip|flwr|openssl) .*", text, re.M)
    for block in blocks(page):
        assert block.language, f"a block without a language:\n{block.text}"
        assert block.language in EXECUTED or "fedprior " not in block.text.split("\n")[0]
    comments = re.findall(r"<!-- ((?:not run|on demand|exit|figures).*?) -->", text, re.S)
    assert [each for each in comments if not MARKS.fullmatch(each)] == []


@pytest.mark.parametrize("page", WALKED)
def test_install_lines(page):
    """The first command installs what the page imports, and what its commands need."""
    found = [
        block
        for block in blocks(page)
        if block.language in EXECUTED and "this test" not in block.mark
    ]
    if not found:
        return
    first, *_ = commands(found[0].text)
    assert first.startswith("pip install "), first
    lines = [line for block in found if block.language == "bash" for line in commands(block.text)]
    installed = _installed([line for line in lines if line.startswith("pip install ")])
    needed = {package for line in lines for word, package in NEEDS.items() if word in line}
    for block in found:
        needed |= _imported(block.text) if block.language == "python" else set()
    assert needed <= installed


def _installed(lines):
    names = {Requirement(each).name for each in PROJECT["dependencies"]}
    for word in (word for line in lines for word in shlex.split(line, comments=True)[2:]):
        asked = Requirement(word.replace(".", "fedprior", 1)) if word[0] == "." else None
        for extra in asked.extras if asked else ():
            names |= {Requirement(each).name for each in PROJECT["optional-dependencies"][extra]}
        names |= set() if asked else {Requirement(word).name}
    return names


def _imported(code):
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {each.name.split(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    own = {"fedprior", *sys.stdlib_module_names}
    return {IMPORTS.get(name, name) for name in names - own}


def spoken(page):
    """Commands that are named in a sentence, or printed but not run."""
    text = (ROOT / page).read_text()
    for words in re.findall(r"`fedprior ([^`]+)`", text):
        yield " ".join(words.split())
    for block in blocks(page):
        if block.language == "bash" and block.mark.startswith("not run:"):
            for command in commands(block.text):
                if command.startswith("fedprior "):
                    yield command.removeprefix("fedprior ")


@pytest.mark.parametrize("page", WALKED)
def test_commands_in_sentences_exist(page):
    """Those that are not run have at least the options that they are printed with."""
    for command in spoken(page):
        check_exists(command)


def check_exists(command):
    words = shlex.split(command, comments=True)
    step = typer.main.get_command(build())
    while hasattr(step, "commands") and words and not words[0].startswith("-"):
        name, *words = words
        assert name in step.commands, command
        step = step.commands[name]
    context = step.make_context("fedprior", list(words), resilient_parsing=True)
    context.resilient_parsing = False  # now, options that do not exist are errors
    step.make_parser(context).parse_args(list(words))


def test_the_walk_would_notice(tmp_path, monkeypatch):
    """A command that is refused, another output, a figure, an option that does not exist."""
    walk = Walk("README.md", tmp_path, monkeypatch)
    walk.run(Block("bash", "fedprior datasets write radon | tail -1\n", ""))
    assert (walk.folder / "radon.csv").exists()
    with pytest.raises(AssertionError, match="exists already"):
        walk.run(Block("bash", "fedprior datasets write radon\n", ""))
    walk.run(Block("bash", "fedprior datasets write radon\n", "exit 2"))
    said = Block("text", "a\n...\nscore 1.5 of ...\n", "")
    walk.run(Block("python", "print('a\\n\\nb\\nscore 1.5 of 2')", "", said))
    with pytest.raises(AssertionError, match="The page says"):
        walk.run(Block("python", "print('a\\nscore 1.6 of 2')", "", said))
    varying = Block("text", "score 1.5\n", "figures vary")
    walk.run(Block("python", "print('score  20')", "", varying))
    with pytest.raises(AssertionError, match="The page says"):
        walk.run(Block("python", "print('scores 1.5')", "", varying))
    with pytest.raises(Exception, match="No such option"):
        check_exists("train --rounds 3")
    with pytest.raises(AssertionError, match="trian"):
        check_exists("trian")
