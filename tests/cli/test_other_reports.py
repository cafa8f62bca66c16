"""`fedprior report` for sweeps, ledgers and experiments."""

import json
from pathlib import Path

import pytest

from fedprior.experiments.comparison_page import comparison_page
from fedprior.experiments.page import document_page
from fedprior.experiments.page import page_of as experiment_page
from fedprior.pages.page import Curves, Intervals, Page, Section, SmallTable, Stacked
from fedprior.pages.render import render
from fedprior.reporting.pages.ledger import page_of as ledger_page
from fedprior.reporting.pages.privacy import budget, meaning
from fedprior.reporting.pages.sweep import page_of as sweep_page
from opened import blocks

DOCS = Path(__file__).parents[2] / "docs"


def test_a_sweep_s_folder_has_a_page(command, fast, tmp_path):
    folder, page = tmp_path / "s", tmp_path / "s.html"
    small = ["--algorithm", "fedavg", "--algorithm", "local", *fast()]
    words = ["sweep", "--over", "lr=0.01,0.5", "--seeds", "2", *small, "--out", folder]
    found = command(*words, "--report", page)
    assert found.code == 0, found.err
    assert f"Written to {page}" in found.err
    made = sweep_page(folder)
    summary = json.loads((folder / "sweep.json").read_text())["methods"]
    (grid,) = [each for each in blocks(made, SmallTable) if each.title == "By method"]
    tests = {row[0]: row[4].value for row in grid.cells}
    assert tests == {name: row["test"] for name, row in summary.items()}
    (chart,) = blocks(made, Curves)
    assert {curve.name for curve in chart.curves} >= {"fedavg", "local", "fedavg, chosen"}
    assert "--over lr=0.01,0.5" in made.command
    again = command(*made.command.replace("NEW", str(tmp_path / "again")).split()[1:], "--json")
    assert json.loads(again.out)["methods"] == summary  # the command makes it again
    (folder / "sweep.json").unlink()
    assert command("report", folder).code == 2


def test_a_sweep_of_an_earlier_format_is_refused(refused, tmp_path):
    folder = Path(__file__).parents[1] / "formats" / "0.1.0" / "sweep"
    out = tmp_path / "page.html"
    refused("report", folder, "--out", out, wanted="0.1.0")
    assert not out.exists()


def test_a_ledger_has_a_page(command, refused, tmp_path):
    path, table, key = tmp_path / "clinics.jsonl", tmp_path / "t.csv", tmp_path / "key"
    rows = [f"c{k},{int((7 * k + 3 * r) % 10 < 4)}" for k in range(60) for r in range(20)]
    table.write_text("clinic,ill\n" + "\n".join(rows) + "\n")
    words = ("--epsilon", "3", "--delta", "1e-3", "--clients", "60", "--key", key)
    assert command("privacy", "ledger", "init", path, *words).code == 0
    asked = ("estimate", table, "--group", "clinic", "--outcome", "ill")
    asked += ("--epsilon", "1", "--ledger", path, "--key", key, "--seed", "1", "--quiet")
    found = command(*asked)
    assert found.code == 0, found.err
    refused("report", path, wanted="opened only with it (--key FILE)")
    out = tmp_path / "page.html"
    assert command("report", path, "--key", key, "--out", out).code == 0
    page = ledger_page(path, key=key)
    (bar,) = blocks(page, Stacked)
    assert bar.parts["spent"][0] + bar.parts["left"][0] == pytest.approx(3)
    assert 0 < bar.parts["spent"][0] <= 1.01
    assert [note for note in page.sections if note.title == "What is not protected"]
    (charges,) = blocks(page, SmallTable)
    assert len(charges.cells) == 1
    assert page.lead.startswith("Epsilon")
    assert ". Further charges may add" in page.lead
    assert page.command == f"fedprior privacy ledger show {path} --key FILE"
    assert page.command_text == "This command shows the same in a terminal:"
    html = render(page)
    assert "shared model" not in html  # an estimate has none
    for word in ("Anyone who sees what was released", "at most what epsilon", "at most their sum"):
        assert word in html


@pytest.mark.parametrize("name", ["table1", "beyond", "ablation", "fedem"])
def test_comparisons_have_a_page(name):
    folder = DOCS / "reproduction" / name
    document = json.loads((folder / "rows.json").read_text())
    page = experiment_page(folder)
    assert page.command == document["command"]
    tables = [each for each in blocks(page, SmallTable) if each.title.startswith("Test accuracy")]
    assert sum(len(each.cells) for each in tables) == len(document["rows"])
    assert all(len(row) == len(each.head) for each in tables for row in each.cells)
    assert len(blocks(page, Intervals)) == len(tables)
    assert "leads with" in page.lead
    assert len(render(page)) < 200_000


def test_the_private_figures_have_a_page():
    page = experiment_page(DOCS / "explanation" / "private-figures")
    titles = [section.title for section in page.sections]
    assert titles[-2:] == ["Privacy", "What is not protected"]
    for chart in blocks(page, Curves):
        assert chart.curves
    html = render(page)
    assert "not valid for release" in html
    assert "Who is trusted with what" in html


def test_other_experiments_have_a_table(command, tmp_path):
    out = tmp_path / "b.html"
    found = command("reproduce", "bernoulli", "--runs", "1", "--json", "--report", out)
    assert found.code == 0, found.err
    assert out.is_file()
    document = json.loads(found.out)
    page = document_page(document)
    (grid,) = blocks(page, SmallTable)
    assert len(grid.cells) == len(document["rows"])
    assert page.command == "fedprior reproduce bernoulli --runs 1 --seed 0"
    saved = tmp_path / "b.json"
    saved.write_text(found.out)
    assert command("report", saved, "--out", out, "--force").code == 0


def test_anything_else_is_refused_by_name(refused, tmp_path):
    other = tmp_path / "x.json"
    other.write_text("[]")
    refused("report", other, wanted="the folder of fedprior reproduce")


@pytest.mark.parametrize(
    ("relation", "change"),
    [("add-remove", "were absent"), ("replace-one", "were replaced by any other data")],
)
def test_a_guarantee_in_plain_words_speaks_of_its_relation(relation, change):
    row = {"epsilon": 1.0, "delta": 1e-5, "unit": "client", "relation": relation}
    assert f"if one client's data {change}, the probability of any" in meaning(row)
    assert "at most a factor of e^1 = 2.718, except with probability 1e-05." in meaning(row)
    assert "a factor of e^1000, except" in meaning({**row, "epsilon": 1000.0})
    assert "nothing is protected" in meaning({**row, "epsilon": float("inf")})


def test_a_bar_without_end_can_be_drawn():
    bar = budget(["a"], [{"epsilon": float("inf"), "budget": 1.0}])
    html = render(Page(title="t", lead="l", sections=(Section("s", (bar,)),)))
    assert '"spent":[null]' in html


def test_a_comparison_without_some_figures_has_a_page():
    document = json.loads((DOCS / "reproduction" / "beyond" / "rows.json").read_text())
    for name in ("mean", "sd", "worst_decile", "gap"):
        document["rows"][1][name] = None
    page = comparison_page(document)
    tables = [each for each in blocks(page, SmallTable) if each.title.startswith("Test accuracy")]
    assert all(len(row) == len(each.head) for each in tables for row in each.cells)
    assert "leads with" in page.lead
    render(page)
