"""What a release states in more than one place is the same everywhere."""

import re
import tomllib
from pathlib import Path

import pytest

import fedprior

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SUPPORT = ROOT / "docs" / "reference" / "support.md"


def test_the_version_is_written_once_and_repeated_for_citations():
    (cited,) = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited == fedprior.__version__
    assert PROJECT["dynamic"] == ["version"]


def test_the_current_version_gets_security_fixes():
    series = ".".join(fedprior.__version__.split(".")[:2])
    assert f"| {series} | yes |" in (ROOT / "SECURITY.md").read_text()


def test_classifiers_are_the_pythons_of_the_support_table():
    stated = re.findall(r"^\| (3\.\d+) \|", SUPPORT.read_text(), re.M)
    prefix = "Programming Language :: Python :: "
    classified = [each.removeprefix(prefix) for each in PROJECT["classifiers"] if prefix in each]
    assert classified == ["3", *stated]
    assert PROJECT["requires-python"] == f">={stated[0]}"


def test_lowest_versions_are_those_that_are_declared():
    page = dict(re.findall(r"^\| ([\w-]+) \| ([\d.]+) \|", SUPPORT.read_text(), re.M))
    page = {name: version for name, version in page.items() if not name[0].isdigit()}
    declared = dict(each.split(">=") for each in PROJECT["dependencies"])
    assert page == declared


@pytest.mark.parametrize("page", ["SECURITY.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text()):
        assert (ROOT / target).exists(), target
