"""`--report` of `estimate` and `regress`, and `fedprior report` of what they have written."""

import csv
import json
import re
import sys
import webbrowser

import numpy as np
import pytest

from fedprior.reporting.answers import command_line
from inside_page import everything, spec_of, tables_of

EVIL = "<script>alert(1)</script>"
GROUPS = [EVIL, "north & south", "0070070", "Ärzte"] + [f"ward {number}" for number in range(26)]


def written(path, head, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])
    return path


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    """Rows of 30 wards: a value, an outcome, a count over an exposure, a category, two levels."""
    draws, rows = np.random.default_rng(1), []
    for place, ward in enumerate(GROUPS):
        level, region = draws.normal(5, 1), f"region {place % 5}"
        for _ in range(int(draws.integers(3, 20))):
            x = draws.normal()
            value = level + (0.5 + 0.1 * (place % 3)) * x + draws.normal()
            days = draws.integers(1, 9)
            word = draws.choice(["red", "green", "blue"], p=[0.5, 0.3, 0.2])
            rows.append([ward, region, f"{value:.4f}", int(value > 5), draws.poisson(0.3 * days),
                         days, word, f"{x:.4f}", f"{place % 7}"])  # fmt: skip
    head = ["ward", "region", "stay", "long", "falls", "days", "color", "age", "beds"]
    return written(tmp_path_factory.mktemp("visits") / "visits.csv", head, rows)


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    draws = np.random.default_rng(2)
    rows = [[name, draws.normal(), draws.uniform(0.1, 1)] for name in GROUPS[:12]]
    return written(tmp_path_factory.mktemp("meta") / "studies.csv", ["study", "effect", "se"], rows)


OPEN = {
    "means": ["--group", "ward", "--value", "stay"],
    "rates": ["--group", "ward", "--outcome", "long", "--above", "0.5", "--ranks"],
    "events": ["--group", "ward", "--events", "falls", "--exposure", "days"],
    "shares": ["--group", "ward", "--category", "color"],
    "covariates": ["--group", "ward", "--value", "stay", "--covariates", "beds"],
    "any shape": ["--group", "ward", "--outcome", "long", "--population", "nonparametric"],
    "nested": ["--group", "region", "--group", "ward", "--nested", "--value", "stay"],
    "crossed": ["--group", "ward", "--group", "color", "--crossed", "--outcome", "long"],
}
REGRESSIONS = {
    "linear": ["--group", "ward", "--target", "stay", "--features", "age"],
    "logistic": ["--group", "ward", "--target", "long", "--features", "age"],
    "classes": ["--group", "ward", "--target", "color", "--fixed", "age"],
    "counts": ["--group", "ward", "--target", "falls", "--features", "age", "--family", "poisson"],
    "kinds": ["--group", "ward", "--target", "stay", "--features", "age", "--population",
              "discrete", "--components", "2"],
    "levels": ["--group", "region", "--group", "ward", "--nested", "--target", "stay", "--fixed",
               "age"],
}  # fmt: skip


def undated(path):
    return re.sub(r", \d{4}-\d\d-\d\d\. This file", ". This file", path.read_text("utf-8"))


@pytest.mark.parametrize(
    ("kind", "ending"),
    [(kind, "csv") for kind in OPEN | REGRESSIONS]
    + [(kind, "parquet") for kind in ("means", "shares", "nested", "linear")],
)
def test_a_page_is_the_same_from_the_files(command, visits, tmp_path, kind, ending):
    verb = "estimate" if kind in OPEN else "regress"
    words = [verb, visits, *(OPEN | REGRESSIONS)[kind]]
    out, first, again = tmp_path / f"o.{ending}", tmp_path / "first.html", tmp_path / "again.html"
    found = command(*words, "--out", out, "--report", first)
    assert found.code == 0, found.err
    assert f"Written to {first}" in found.err
    assert command("report", out, "--out", again).code == 0
    assert undated(first) == undated(again)
    assert command("report", tmp_path / "o.summary.json", "--out", again, "--force").code == 0
    assert undated(first) == undated(again)
    html = first.read_text("utf-8")
    assert "alert(1)" in everything(html)  # the group is there,
    assert EVIL not in html  # and is text
    assert {"ward 3"} <= {word.split(" / ")[-1] for word in names_in(html)}


def names_in(html):
    return {str(name) for table in tables_of(html) for name in table["name"]}


def test_a_meta_analysis(command, studies, tmp_path):
    words = ["estimate", studies, "--group", "study", "--value", "effect", "--stderr", "se"]
    out, first, again = (tmp_path / name for name in ("o.csv", "a.html", "b.html"))
    assert command(*words, "--leave-one-out", "--out", out, "--report", first).code == 0
    assert command("report", out, "--out", again).code == 0
    assert undated(first) == undated(again)
    html = first.read_text("utf-8")
    assert [chart["title"] for chart in spec_of(html)["charts"] if chart.get("y") == "error"]
    for word in ("I²", "Cochran&#39;s Q", "prediction interval", "Without each group"):
        assert word in html


def test_the_command_makes_it_again(command, visits, tmp_path):
    page = tmp_path / "p.html"
    words = ["estimate", visits, *OPEN["means"], "--report", page]
    assert command(*words, "--quiet", "--json", "--force").code == 0
    assert f"fedprior estimate {visits} --group ward --value stay --report {page}\n" in (
        page.read_text("utf-8").replace("</code>", "\n")
    )


def test_the_command_does_not_say_where_secrets_are(monkeypatch):
    words = ["fedprior", "estimate", "t.csv", "--key", "/safe/one.key", "--ledger", "l.json"]
    words += ["--connect=postgres://me:word@host/db", "--connect-file", "--json", "--value", "stay"]
    monkeypatch.setattr(sys, "argv", words)
    assert command_line() == (
        "fedprior estimate t.csv --key FILE --ledger l.json --connect=URL --connect-file FILE "
        "--value stay"
    )


def test_the_summary_says_what_was_asked_and_checked(command, visits, tmp_path):
    out = tmp_path / "o.csv"
    printed = json.loads(command("estimate", visits, *OPEN["means"], "--out", out, "--json").out)
    found = json.loads((tmp_path / "o.summary.json").read_text())
    assert found.items() >= {key: printed[key] for key in printed if key != "out"}.items()
    assert (found["what"], found["format"], found["kind"]) == ("estimate", 1, "means")
    assert found["settings"] == {"--value": "stay"}
    assert found["asked"] == {"group": ["ward"], "of": "stay"}
    assert found["checks"] == {"size": "", "noise": ""}  # 30 groups are too few for a shape
    assert found["table"]["file"] == "o.csv"


def test_a_table_without_its_summary(command, visits, tmp_path):
    out = tmp_path / "o.csv"
    for verb, options in (("estimate", OPEN["means"]), ("regress", REGRESSIONS["linear"])):
        assert command(verb, visits, *options, "--out", out, "--force").code == 0
        (tmp_path / "o.summary.json").unlink()
        assert command("report", out, "--force").code == 0
        html = (tmp_path / "o.html").read_text("utf-8")
        assert "made from the table alone" in html
        assert "ward 3" in names_in(html)
        assert "This command" not in html


def test_levels_need_their_summary(command, refused, visits, tmp_path):
    out = tmp_path / "o.csv"
    assert command("estimate", visits, *OPEN["nested"], "--out", out).code == 0
    (tmp_path / "o.summary.json").unlink()
    refused("report", out, wanted="a table of several levels needs its summary, o.summary.json")


def test_a_table_that_has_changed(command, refused, visits, tmp_path):
    out = tmp_path / "o.csv"
    assert command("estimate", visits, *OPEN["means"], "--out", out).code == 0
    out.write_text(out.read_text().replace("ward 3", "ward X"))
    refused("report", out, wanted="the table has changed since o.summary.json was written")
    out.unlink()
    refused("report", tmp_path / "o.summary.json", wanted="is not beside it")


def test_a_summary_is_of_one_table(command, refused, visits, tmp_path):
    for ending in ("parquet", "csv"):
        words = ["--out", tmp_path / f"o.{ending}", "--force"]
        assert command("estimate", visits, *OPEN["means"], *words).code == 0
    wanted = "o.summary.json is the summary of another table, o.csv."
    refused("report", tmp_path / "o.parquet", wanted=wanted)
    for ending in ("csv", "summary.json"):  # both under another name are still one answer
        (tmp_path / f"o.{ending}").rename(tmp_path / f"p.{ending}")
    assert command("report", tmp_path / "p.csv").code == 0


def test_what_cannot_be_reported(refused, visits, tmp_path):
    refused("report", visits, "--out", tmp_path / "p.html", wanted="What can be reported: a table")
    refused("report", tmp_path / "gone.csv", wanted="a file or folder that exists")


@pytest.mark.parametrize("verb", ["estimate", "regress"])
def test_outputs_are_checked_first(command, refused, visits, tmp_path, verb):
    options = {"estimate": OPEN["means"], "regress": REGRESSIONS["linear"]}[verb]
    words = (verb, visits, *options)
    refused(*words, "--report", tmp_path / "p.pdf", wanted="--report must be a .html file")
    gone = tmp_path / "gone" / "p.html"
    refused(*words, "--report", gone, wanted="--report must be in a folder that exists")
    (tmp_path / "o.summary.json").write_text("{}")
    refused(*words, "--out", tmp_path / "o.csv", wanted="o.summary.json exists already")
    page = tmp_path / "p.html"
    page.write_text("mine")
    refused(*words, "--report", page, wanted="p.html exists already")
    assert page.read_text() == "mine"
    assert command(*words, "--report", page, "--force").code == 0


def test_no_page_without_its_table(command, visits, tmp_path, monkeypatch):
    from fedprior.reporting import answers

    def full(*_, **__):
        raise ValueError("estimate: --out must be a file that can be written, got o.csv (full).")

    monkeypatch.setattr(answers, "write_summary", full)
    page, plot = tmp_path / "p.html", tmp_path / "p.png"
    words = ["estimate", visits, *OPEN["means"], "--out", tmp_path / "o.csv"]
    assert command(*words, "--report", page, "--plot", plot).code == 2
    assert not page.exists()
    assert not plot.exists()
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_private_page_holds_nothing_of_any_group(command, visits, tmp_path, ending):
    words = ["estimate", visits, *OPEN["rates"][:4], "--epsilon", "2", "--seed", "1"]
    words += ["--budget", "5"]
    out, page, again = tmp_path / f"o.{ending}", tmp_path / "p.html", tmp_path / "q.html"
    assert command(*words, "--out", out, "--report", page).code == 0
    assert command("report", out, "--out", again).code == 0
    assert undated(page) == undated(again)
    shown = command("estimate", visits, *OPEN["rates"][:4], "--out", tmp_path / "open.csv")
    assert shown.code == 0
    html = everything(page.read_text("utf-8"))
    assert tables_of(html) == []
    with (tmp_path / "open.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert row["group"] not in html
        assert len(row["raw"]) < 6 or row["raw"][:8] not in html
        assert row["personal"][:8] not in html
    for word in ("differential privacy with epsilon = 2", "not valid for release", "Who sees what"):
        assert word in html
    assert [chart["parts"] for chart in spec_of(html)["charts"]] == [
        {"spent": [2.0], "left": [3.0]}
    ]


def test_released_groups_are_in_the_page(command, visits, tmp_path):
    table, page = tmp_path / "v.csv", tmp_path / "p.html"
    table.write_bytes(visits.read_bytes())
    words = ["estimate", table, *OPEN["rates"][:4], "--epsilon", "2", "--seed", "1"]
    assert command(*words, "--release-groups", "--report", page).code == 0
    html = page.read_text("utf-8")
    assert "ward 3" in names_in(html)
    places = [
        html.index(words)
        for words in (
            "The groups on this page are not protected",
            "differential privacy with epsilon = 2",
            ">Every group</h2>",
        )
    ]
    assert sorted(places)[-1] == places[-1]
    assert {"spent": [2.0]} in [chart.get("parts") for chart in spec_of(html)["charts"]]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], "This command gives the same answer again:"),
        (["--epsilon", "2"], "This command asks again, with new noise, and spends its epsilon"),
        (["--epsilon", "2", "--seed", "1"], "gives the same answer again, and spends its epsilon"),
    ],
)
def test_what_the_command_does_again(command, visits, tmp_path, options, wanted):
    table, page = tmp_path / "v.csv", tmp_path / "p.html"  # with a ledger of its own
    table.write_bytes(visits.read_bytes())
    assert command("estimate", table, *OPEN["rates"][:4], *options, "--report", page).code == 0
    assert wanted in page.read_text("utf-8")


def test_open_shows_the_page(command, visits, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(webbrowser, "open", seen.append)
    out = tmp_path / "o.csv"
    assert command("estimate", visits, *OPEN["means"], "--out", out).code == 0
    found = command("report", out, "--open", "--quiet")
    assert (found.code, found.out, found.err) == (0, "", "")
    assert seen == [(tmp_path / "o.html").as_uri()]


def test_a_page_of_many_groups_is_small(command, tmp_path):
    draws, number = np.random.default_rng(0), 100_000
    n = np.exp(draws.uniform(1, 6, number)).astype(int)
    won = draws.binomial(n, draws.beta(8, 30, number))
    names = (f"hospital {place:06d}" for place in range(number))
    rows = zip(names, won.tolist(), n.tolist(), strict=True)
    table = written(tmp_path / "many.csv", ["hospital", "won", "n"], rows)
    page = tmp_path / "p.html"
    words = ["--group", "hospital", "--successes", "won", "--trials", "n", "--report", page]
    assert command("estimate", table, *words).code == 0
    assert page.stat().st_size < 2_000_000
    (rows,) = tables_of(page.read_text("utf-8"))
    assert rows["name"][1234] == "hospital 001234"
    assert rows["raw"][7] == pytest.approx(won[7] / n[7], abs=1e-3)


def test_the_page_in_its_own_place_is_replaced_and_nothing_else(command, refused, tmp_path):
    table, page = tmp_path / "t.csv", tmp_path / "t.html"
    assert command("estimate", "--out", table).code == 0
    assert command("report", table).code == 0
    assert command("report", table).code == 0
    page.write_text("mine")
    refused("report", table, wanted="t.html exists already")
    assert page.read_text() == "mine"
