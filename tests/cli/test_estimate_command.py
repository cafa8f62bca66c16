"""`fedprior estimate`: from tables and globs to a summary, a table and a picture."""

import csv
import json
import subprocess
import sys

import duckdb
import numpy as np
import pytest

from fedprior.data.baseball import baseball
from fedprior.estimation.conjugate.estimate import estimate_events, estimate_rates
from fedprior.estimation.gaussian.estimate import estimate_means
from fedprior.estimation.shares import GroupShares
from fedprior.estimation.statistics import Counts, Events, counts_of, means_of
from fedprior.privacy.charging import total
from fedprior.privacy.opening import begin_ledger
from fedprior.privacy.opening import read as read_ledger
from opened import read_columns

KEYS = {"format", "num_groups", "population", "gain_over_raw", "gain_over_pooled", "sentence"}
ROW = ["group", "n", "raw", "personal", "weight", "lower", "upper"]


@pytest.fixture(scope="module")
def drawn():
    """Rows of 150 groups of unequal size: place, value, outcome."""
    draws = np.random.default_rng(3)
    place = np.repeat(np.arange(150), draws.integers(2, 20, 150))
    value = draws.normal(2, 0.5, 150)[place] + draws.normal(size=len(place))
    outcome = (draws.random(len(place)) < draws.beta(3, 6, 150)[place]).astype(int)
    order = draws.permutation(len(place))
    return place[order], value[order], outcome[order]


@pytest.fixture(scope="module")
def rows(drawn, tmp_path_factory):
    path = tmp_path_factory.mktemp("estimate") / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["shop", "value", "open"])
        for place, value, outcome in zip(*drawn, strict=True):
            writer.writerow([f"s{place:03}", repr(float(value)), outcome])
    return path


def same(table, wanted):
    """The table on disk holds the estimates of `wanted`, in order of names."""
    assert list(table)[:7] == ROW
    assert table["group"] == [f"s{place:03}" for place in range(150)]
    for name in ROW[1:]:
        assert np.asarray(table[name], float) == pytest.approx(
            np.asarray(getattr(wanted, name), float), rel=1e-6, abs=1e-9
        ), name


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_values_are_written_for_every_group(command, rows, drawn, tmp_path, ending):
    out = tmp_path / f"o.{ending}"
    found = command("estimate", rows, "--group", "shop", "--value", "value", "--out", out, "--json")
    assert (found.code, found.err) == (0, f"Read `value`: number.\nWritten to {out}\n")
    wanted = estimate_means(means_of(drawn[1], drawn[0], 150))
    same(read_columns(out), wanted)
    answer = json.loads(found.out)
    assert KEYS.issubset(answer)
    assert (answer["format"], answer["num_groups"], answer["rows"]) == (1, 150, len(drawn[0]))
    assert answer["gain_over_raw"] == pytest.approx(wanted.gain_over_raw, rel=1e-6)
    assert answer["population"]["kind"] == "gaussian"
    written = sorted(path.name for path in out.parent.iterdir())
    assert written == sorted([out.name, "o.summary.json"])


def test_noise_that_differs_is_found_and_stated(command, tmp_path):
    draws = np.random.default_rng(0)
    place = np.repeat(np.arange(60), 12)
    value = draws.normal(5, 0.5, 60)[place] + np.exp(draws.normal(size=60))[place] * draws.normal(
        size=len(place)
    )
    path = tmp_path / "t.csv"
    lines = [f"g{group},{each!r}" for group, each in zip(place, value.tolist(), strict=True)]
    path.write_text("\n".join(["group,value", *lines]) + "\n")
    words = ("estimate", path, "--group", "group", "--value", "value", "--json")
    found = {
        noise: json.loads(command(*words, "--noise", noise).out)
        for noise in ("auto", "common", "moderated")
    }
    assert any("--noise common" in note for note in found["auto"]["notes"])
    assert found["auto"]["population"] == found["moderated"]["population"]
    assert {*found["auto"]["population"]["parameters"]} == {
        *("mean", "variance", "noise_variance", "noise_freedom")
    }
    assert "noise_freedom" not in found["common"]["population"]["parameters"]
    assert not any("noise differs" in note for note in found["common"]["notes"])


def test_outcomes_and_counts_agree(command, rows, drawn, tmp_path):
    wanted = estimate_rates(counts_of(drawn[2], drawn[0], 150), above=0.3, ranks=True)
    out, summed = tmp_path / "o.parquet", tmp_path / "sums.csv"
    more = ("--above", "0.3", "--ranks", "--quiet")
    words = ("--group", "shop", "--outcome", "open", *more)
    assert command("estimate", rows, *words, "--out", out).code == 0
    table = read_columns(out)
    same(table, wanted)
    assert list(table)[7:] == ["above", "rank", "rank_lower", "rank_upper"]
    assert table["above"] == pytest.approx(wanted.above)
    assert table["rank"] == pytest.approx(wanted.ranks.mean)
    query = f"SELECT shop, sum(open) AS won, count(*) AS races FROM '{rows}' GROUP BY shop"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({query}) TO '{summed}' (HEADER)")
    words = ("--group", "shop", "--successes", "won", "--trials", "races", *more)
    assert command("estimate", summed, *words, "--out", tmp_path / "c.parquet").code == 0
    assert read_columns(tmp_path / "c.parquet") == table


def test_a_glob_is_one_table(command, rows, tmp_path):
    lines = rows.read_text().splitlines()
    for number in range(3):
        part = [lines[0], *lines[1 + number :: 3]]
        (tmp_path / f"part{number}.csv").write_text("\n".join(part) + "\n")
    words = ("--group", "shop", "--value", "value", "--json")
    whole = json.loads(command("estimate", rows, *words).out)
    parts = json.loads(command("estimate", tmp_path / "part*.csv", *words).out)
    assert parts["population"]["mean"] == pytest.approx(whole["population"]["mean"])
    assert parts["rows"] == whole["rows"]


def test_known_standard_errors(command, tmp_path):
    """Five studies: the result of the function on the squared errors."""
    path, out = tmp_path / "t.csv", tmp_path / "o.csv"
    effect, error = [0.1, 0.4, -0.2, 0.9, 0.3], [0.2, 0.1, 0.3, 0.25, 0.15]
    lines = [f"{name},{x},{e}" for name, x, e in zip("abcde", effect, error, strict=True)]
    path.write_text("\n".join(["study,effect,se", *lines]) + "\n")
    words = ("--group", "study", "--value", "effect", "--stderr", "se", "--out", out)
    found = command("estimate", path, *words)
    assert found.code == 0
    table = read_columns(out)
    assert table["raw"] == effect
    assert table["n"] == [1] * 5
    assert (np.abs(np.array(table["personal"])) <= 0.9).all()
    wide = np.array(table["upper"]) - np.array(table["lower"])
    assert wide.argmax() in (2, 3)
    assert wide.argmin() == 1


def test_the_summary_names_the_groups_that_moved(command, rows, drawn):
    found = command("estimate", rows, "--group", "shop", "--value", "value")
    assert (found.code, found.err) == (0, "Read `value`: number.\n")
    wanted = estimate_means(means_of(drawn[1], drawn[0], 150))
    assert "150, " in found.out
    assert wanted.sentence in found.out
    moved = np.abs(wanted.personal - wanted.raw)
    most, least = found.out.split("Most changed groups")[1].split("Least changed groups")
    for part, order in ((most, np.argsort(-moved)), (least, np.argsort(moved))):
        names = [line.split()[0] for line in part.splitlines() if line.strip().startswith("s")]
        assert names == [f"s{place:03}" for place in order[:5]]


def test_names_are_shown_as_they_are(command, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("g,x\n[red]a,1\n[red]a,2\n:smile:,3\n:smile:,5\n")
    found = command("estimate", path, "--group", "g", "--value", "x")
    assert found.code == 0
    assert "[red]a" in found.out
    assert ":smile:" in found.out


def test_missing_rows_are_counted(command, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("g,x\na,1\na,2\na,\n,4\nb,3\nb,5\nc,1\nc,NA\nc,3\n")
    words = ("estimate", path, "--group", "g", "--value", "x")
    read = "Read `x`: number, 2 missing.\n"
    line = "Dropped 1 row without a group ('g') and 2 rows without a number ('x').\n"
    found = command(*words)
    assert found.code == 0
    assert found.err == read + line
    assert "(3 dropped)" in found.out
    found = command(*words, "--json", "--quiet")
    assert found.err == ""
    answer = json.loads(found.out)
    assert answer["notes"][0] == line.strip()
    assert (answer["rows"], answer["dropped"]) == (6, 3)


def test_groups_without_trials_get_the_population(command, tmp_path):
    path, out = tmp_path / "t.csv", tmp_path / "o.csv"
    path.write_text("g,s,t\na,1,9\nb,0,0\nc,6,8\nd,2,7\n")
    words = ("--group", "g", "--successes", "s", "--trials", "t", "--out", out)
    assert command("estimate", path, *words).code == 0
    table = read_columns(out)
    assert table["raw"][1] is None
    assert table["weight"][1] == 0
    assert min(table["raw"][0], table["raw"][2]) < table["personal"][1] < 6 / 8


def test_populations_and_methods_reach_the_estimator(command, rows, drawn):
    base = ("estimate", rows, "--group", "shop", "--outcome", "open", "--json")
    counts = counts_of(drawn[2], drawn[0], 150)
    for words, options in (
        (("--population", "nonparametric"), {"population": "nonparametric"}),
        (("--population", "point"), {"population": "point"}),
        (("--fit", "moments"), {"fit": "moments"}),
        (("--method", "paper"), {"method": "paper"}),
        (("--by-size",), {"by_size": True}),
        (("--intervals", "robust", "--level", "0.8"), {"intervals": "robust", "level": 0.8}),
    ):
        answer = json.loads(command(*base, *words).out)
        wanted = estimate_rates(counts, **options)
        assert answer["population"]["kind"] == wanted.population.kind
        assert answer["population"]["fitted_by"] == wanted.population.fitted_by
        assert answer["gain_over_raw"] == pytest.approx(wanted.gain_over_raw, rel=1e-4)


def test_known_noise_identifies_groups_of_one(command, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("g,x\n" + "".join(f"{k},{k % 7}\n" for k in range(60)))
    words = ("estimate", path, "--group", "g", "--value", "x", "--noise-sd", "1", "--json")
    answer = json.loads(command(*words).out)
    assert answer["population"]["heterogeneity"] == pytest.approx(np.sqrt(4 - 1), rel=0.1)


@pytest.mark.parametrize("words", [(), ("baseball",), ("baseball", "--group", "player")])
def test_the_embedded_example(command, words):
    if len(words) > 1:
        words = (*words, "--successes", "hits", "--trials", "at_bats")
    found = command("estimate", *words, "--json")
    answer = json.loads(found.out)
    assert (found.code, answer["num_groups"]) == (0, 18)
    table = baseball()
    wanted = estimate_rates(Counts(n=table.at_bats, successes=table.hits))
    error = ((wanted.personal - table.remaining_average) ** 2).sum()
    assert error <= 0.0213 * 1.05  # Efron and Morris's own, with 5% to spare
    assert (
        f"the total squared error is {error:.4f}, that of the raw averages 0.0753"
        in (answer["notes"][-1])
    )


def test_a_file_of_the_name_baseball_comes_first(command, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "baseball").write_text("g,x\n")
    refused("estimate", "baseball", "--group", "g", "--value", "x", wanted="must end in one of")


def test_the_embedded_example_loads_little():
    """No DuckDB, pandas, scikit-learn, matplotlib or JAX: the command starts at once."""
    code = """
import json, sys
from fedprior.cli.main import main
sys.argv = ["fedprior", "estimate", "--json"]
main()
heavy = ("duckdb", "jax", "sklearn", "matplotlib", "pandas", "scipy.stats")
print(json.dumps([name for name in heavy if name in sys.modules]))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout.splitlines()[-1]) == []


def test_files_of_the_embedded_example(command, tmp_path):
    pytest.importorskip("matplotlib")
    out, plot = tmp_path / "o.csv", tmp_path / "p.png"
    found = command("estimate", "--out", out, "--plot", plot)
    assert found.code == 0
    assert found.err == f"Written to {out}\nWritten to {plot}\n"
    table = read_columns(out)
    assert table["group"][0] == "Roberto Clemente"
    assert list(table) == ROW
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["o.csv", "o.summary.json", "p.png"]


PRIVATE = ("--epsilon", "2", "--seed", "1")


def test_private_rates_show_the_population_alone(command, rows, tmp_path):
    out = tmp_path / "o.csv"
    words = ("estimate", rows, "--group", "shop", "--outcome", "open", *PRIVATE)
    found = command(*words, "--out", out)
    assert found.code == 0
    assert "epsilon = 2 for one group's outcomes" in " ".join(found.out.split())
    assert "not valid for release" in " ".join(found.out.split())
    assert "s00" not in found.out
    assert "rows" not in found.out.split("epsilon")[0]
    table = read_columns(out)
    assert table["num_groups"] == [150]
    assert table["epsilon"] == [2]
    assert "group" not in table
    answer = json.loads(command(*words, "--json").out)
    spent = answer.pop("ledger")
    assert spent["file"] == str(rows.with_suffix(".ledger.jsonl"))
    assert spent["epsilon"] == 2  # the same reports again cost nothing
    assert KEYS.issubset(answer)
    assert {"rows", "dropped"}.isdisjoint(answer)
    assert answer["privacy"]["epsilon"] == 2
    assert answer["population"]["mean"] == table["mean"][0]
    as_json = tmp_path / "o.json"
    assert command(*words, "--out", as_json).code == 0
    written = json.loads(as_json.read_text())
    assert written.items() >= answer.items()


def test_private_reports_do_not_tell_what_was_dropped(command, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("g,y\n" + "".join(f"{k},{(k + r) % 2}\n" for k in range(9) for r in range(3)))
    words = ("estimate", path, "--group", "g", "--outcome", "y", *PRIVATE, "--json")
    before = command(*words)
    path.write_text(path.read_text() + "3,\n")
    after = command(*words)
    assert after == before
    assert "Dropped" not in after.err
    assert "Dropped" not in command(*words, "--release-groups").err


def test_groups_are_released_on_request(command, rows, tmp_path):
    out = tmp_path / "o.csv"
    words = ("estimate", rows, "--group", "shop", "--outcome", "open", *PRIVATE)
    found = command(*words, "--release-groups", "--out", out)
    assert found.code == 0
    assert "not private" in found.err
    assert "Most changed groups" in found.out
    assert list(read_columns(out)) == ROW


@pytest.fixture
def ledger(tmp_path):
    """A budget that nobody comes near."""
    begin_ledger(tmp_path / "population.jsonl", epsilon=50.0, delta=1e-6)
    return tmp_path / "population.jsonl"


def test_private_values(command, rows, ledger):
    words = ("estimate", rows, "--group", "shop", "--value", "value", "--epsilon", "2", "--json")
    words = (*words, "--low", "0", "--high", "4", "--ledger", ledger)
    answer = json.loads(command(*words, "--delta", "1e-5").out)
    assert answer["privacy"]["delta"] == 1e-5
    assert 0 <= answer["population"]["mean"] <= 4
    answer = json.loads(command(*words, "--seed", "1").out)
    assert answer["privacy"]["delta"] == 0
    assert answer["ledger"]["delta"] == 1e-6
    assert 4 < answer["ledger"]["epsilon"] < 5  # at a smaller delta


def test_a_second_question_adds_to_the_first(command, rows, tmp_path):
    """Of values and of outcomes, through a link and wherever they go, until the budget ends."""
    data = tmp_path / "data" / "visits.csv"
    data.parent.mkdir()
    data.write_text(rows.read_text())
    ledger = data.with_name("visits.ledger.jsonl")
    link = tmp_path / "link.csv"
    link.symlink_to(data)
    outcome = ("estimate", data, "--group", "shop", "--outcome", "open")
    value = ("estimate", link, "--group", "shop", "--value", "value", "--low", "0", "--high", "4")
    first = command(*outcome, "--epsilon", "2", "--out", tmp_path / "first.json")
    assert "Noise seeded by the operating system" in " ".join(first.out.split())
    assert f"epsilon 2 spent in total, recorded in {ledger}" in " ".join(first.out.split())
    answer = json.loads(command(*value, "--epsilon", "0.5", "--budget", "3", "--json").out)
    assert answer["ledger"] == {"file": str(ledger), "epsilon": 2.5, "delta": 0, "budget": 3}
    assert answer["privacy"]["valid_for_release"]
    before = ledger.read_bytes()
    refused = command(*outcome, "--epsilon", "1", "--out", tmp_path / "third.json")
    assert refused.code == 2
    assert refused.out == ""
    assert len(refused.err.splitlines()) == 1
    assert "what is left of the budget" in refused.err
    assert "2.5 of 3 are spent" in refused.err
    assert ledger.read_bytes() == before
    assert not (tmp_path / "third.json").exists()


def test_simulated_noise_is_charged_and_never_used_twice(command, rows, ledger):
    words = ("estimate", rows, "--group", "shop", "--outcome", "open", "--seed", "7", "--json")
    words = (*words, "--ledger", ledger)
    first, again = (json.loads(command(*words, "--epsilon", "2").out) for _ in range(2))
    assert first == again
    assert first["ledger"]["epsilon"] == pytest.approx(2, abs=1e-4)
    assert not first["privacy"]["valid_for_release"]
    other = command(*words, "--epsilon", "1")
    assert other.code == 2
    assert "Choose another seed" in other.err


def test_a_question_that_is_killed_has_been_spent(rows, ledger):
    words = ("estimate", rows, "--group", "shop", "--outcome", "open", "--epsilon", "2")
    program = """
import os, signal, sys
from fedprior.cli.main import main
from fedprior.core import random

random.Secure.random = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sys.argv[0] = "fedprior"
main()
"""
    words = (*words, "--ledger", ledger)
    found = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, timeout=60, check=False
    )
    assert found.returncode == -9
    assert found.stdout == b""
    terms, records = read_ledger(ledger)
    assert total(records, terms) == pytest.approx(2, abs=1e-4)
    assert records[-1]["kind"] == "reserve"


def test_rates_need_no_delta(command, rows):
    words = ("estimate", rows, "--group", "shop", "--outcome", "open", *PRIVATE)
    found = command(*words, "--delta", "1e-5", "--json")
    assert "Rates need no --delta" in found.err
    assert json.loads(found.out)["privacy"]["delta"] == 0


def test_help_has_an_example(command):
    found = command("estimate", "--help")
    assert found.code == 0
    assert "Example: fedprior estimate counts.csv --group county" in found.out
    text = " ".join(found.out.split())
    assert "Simulated, so never valid for release" in text  # --delta
    assert "they are for the owner of the data" in text
    assert "without a group or without a number (empty cells, NA and the like)" in text


def test_a_group_may_be_called_na_where_other_words_mean_missing(command, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("g,x\nNA,1\nNA,2\nb,3\nb,.\nc,1\nc,4\n")
    words = ("estimate", path, "--group", "g", "--value", "x", "--json")
    said = "2 rows without a group ('g', such as 'NA': --missing sets the words for missing)"
    assert said in command(*words).err
    answer = json.loads(command(*words, "--missing", ".").out)
    assert (answer["num_groups"], answer["dropped"]) == (3, 1)


def test_estimates_share_the_budget_of_a_population(command, rows, tmp_path):
    """Under its own delta and with its key, secure and simulated questions together."""
    path, key = tmp_path / "population.jsonl", tmp_path / "key"
    begin_ledger(path, epsilon=3.0, delta=1e-6, key=key)
    words = ("estimate", rows, "--group", "shop", "--outcome", "open", "--ledger", path)
    assert command(*words, "--epsilon", "1").code == 2
    words = (*words, "--key", key)
    assert command(*words, "--epsilon", "1", "--budget", "9").err.endswith("of a population.\n")
    for more in ((), ("--seed", "1")):
        answer = json.loads(command(*words, "--epsilon", "1", "--json", *more).out)
    assert answer["ledger"]["epsilon"] == pytest.approx(2, abs=1e-4)
    assert (answer["ledger"]["delta"], answer["ledger"]["budget"]) == (1e-6, 3)
    assert command(*words, "--epsilon", "1.5").code == 2
    _, records = read_ledger(path, key)
    charged = [each for each in records if each["kind"] == "reserve"]
    assert [(each["view"], each["noise"]) for each in charged] == [
        ("local", "secure"),
        ("local", "simulated"),
    ]
    assert {each["who"] for each in charged} == {"estimate rows.csv (rates)"}
    assert {each["clients"] for each in charged} == {150}


def test_a_ledger_protects_one_kind_of_group(command, refused, tmp_path):
    """A clinic whose doctors answered twice has not spent the sum of two questions."""
    path = tmp_path / "visits.csv"
    rows = [f"c{k % 20},d{k % 60},{k // 7 % 2}" for k in range(600)]
    path.write_text("\n".join(["clinic,doctor,well", *rows]))
    words = ("estimate", path, "--outcome", "well", "--epsilon", "1", "--group")
    assert command(*words, "doctor").code == 0
    refused(*words, "clinic", wanted="--group must be doctor, whose rows")
    assert command(*words, "doctor").code == 0
    path.with_suffix(".ledger.jsonl").unlink()
    assert command(*words, "clinic", "--group", "doctor").code == 0
    copy = tmp_path / "copy.csv"
    copy.write_text(path.read_text())
    words = ("estimate", copy, *words[2:], "doctor", "--group", "clinic", "--json")
    turned = command(*words, "--ledger", path.with_suffix(".ledger.jsonl"))
    assert json.loads(turned.out)["ledger"]["epsilon"] == 2


def test_long_names_give_way_to_numbers(command, tmp_path, monkeypatch):
    rows = [
        f"{'a long name ' * 12}{group},{group + row % 3}" for group in range(6) for row in range(6)
    ]
    (tmp_path / "long.csv").write_text("\n".join(["shop,value", *rows]))
    monkeypatch.setenv("COLUMNS", "80")
    found = command("estimate", tmp_path / "long.csv", "--group", "shop", "--value", "value")
    assert found.code == 0
    table = found.out.split("Most changed groups")[1]
    assert "a long name" in table
    assert "personal" in table
    assert "…  …" not in table


def test_values_without_variation_are_said_to_have_none(command, tmp_path):
    rows = [f"{group},5" for group in "abcdef" for _ in range(4)]
    (tmp_path / "constant.csv").write_text("\n".join(["shop,value", *rows]))
    found = command("estimate", tmp_path / "constant.csv", "--group", "shop", "--value", "value")
    assert "Values do not vary within any group" in found.out


@pytest.fixture
def falls(tmp_path):
    """Two years of falls over days at 30 sites."""
    draws = np.random.default_rng(5)
    rate = np.repeat(draws.gamma(3, 0.001, 30), 2)
    days = draws.lognormal(7, 1, 60).round(1)
    events = draws.poisson(days * rate)
    path = tmp_path / "falls.csv"
    rows = (f"s{place // 2},{events[place]},{days[place]}" for place in range(60))
    path.write_text("\n".join(["site,falls,days", *rows, "s0,,3.5", "s1,2,"]) + "\n")
    sums = Events(
        exposure=days.reshape(30, 2).sum(axis=1), events=events.reshape(30, 2).sum(axis=1)
    )
    return path, sums


def test_events_over_an_exposure(command, falls, tmp_path):
    path, sums = falls
    out, picture = tmp_path / "answers.csv", tmp_path / "answers.png"
    ask = ("estimate", path, "--group", "site", "--events", "falls", "--exposure", "days")
    found = command(*ask, "--json", "--out", out, "--plot", picture)
    answer = json.loads(found.out)
    wanted = estimate_events(sums)
    assert answer["population"]["kind"] == "gamma"
    assert answer["dropped"] == 2
    assert answer["gain_over_raw"] == pytest.approx(wanted.gain_over_raw)
    table = read_columns(out)
    assert list(table) == ["group", "exposure", "raw", "personal", "weight", "lower", "upper"]
    order = [int(name[1:]) for name in table["group"]]
    np.testing.assert_allclose(table["personal"], wanted.personal[order])
    np.testing.assert_allclose(table["exposure"], sums.exposure[order])
    assert picture.exists()
    shown = command(*ask, "--by-size", "--above", "0.004")
    assert "events over an exposure of" in shown.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--exposure", "days"), "--exposure must be given with --events"),
        (("--events", "days", "--exposure", "falls"), "'days' must be whole numbers"),
        (("--events", "falls", "--method", "paper"), "--method must be default with --events"),
        (("--events", "falls", "--population", "beta"), "--population must be one of gamma"),
        (("--events", "falls", "--value", "days"), "not several"),
        (("--events", "falls", "--epsilon", "1"), "--events with --epsilon needs --high"),
        (("--category", "falls", "--ranks"), "--ranks cannot be combined with --category"),
        (("--category", "site"), "--category must be another column"),
    ],
)
def test_bad_questions_about_events_and_categories(refused, falls, words, message):
    refused("estimate", falls[0], "--group", "site", *words, wanted=message)


def test_shares_of_categories(command, tmp_path):
    draws = np.random.default_rng(6)
    place = np.repeat(np.arange(20), 15)
    kind = np.array(["blue", "green", "red"])[
        [draws.choice(3, p=each) for each in draws.dirichlet([2, 2, 4], 20)[place]]
    ]
    path, out = tmp_path / "votes.csv", tmp_path / "shares.parquet"
    rows = (f"t{town:02d},{vote}" for town, vote in zip(place, kind, strict=True))
    path.write_text("\n".join(["town,party", *rows, "t01,", ",red"]) + "\n")
    ask = ("estimate", path, "--group", "town", "--category", "party")
    answer = json.loads(command(*ask, "--json", "--out", out).out)
    assert answer["num_groups"] == 20
    assert answer["dropped"] == 2
    wanted = GroupShares().fit(kind, place)
    assert answer["population"]["parameters"]["share of red"] == wanted.population_.mean[2]
    table = read_columns(out)
    assert table["category"][:3] == ["blue", "green", "red"]
    np.testing.assert_allclose(table["personal"], wanted.personal_.ravel())
    assert "20 of 3 categories" in command(*ask).out


def test_numbers_as_groups_and_categories_keep_their_order_and_type(command, tmp_path):
    path, out = tmp_path / "stars.parquet", tmp_path / "shares.parquet"
    with duckdb.connect() as connection:
        rows = "SELECT i % 12 AS shop, (i // 12) % 11 AS stars FROM range(264) AS rows(i)"
        connection.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")
    command("estimate", path, "--group", "shop", "--category", "stars", "--out", out)
    table = read_columns(out)
    assert table["group"] == np.repeat(np.arange(12), 11).tolist()
    assert table["category"] == [str(star) for star in range(11)] * 12
    words = tmp_path / "stars.csv"
    words.write_text("shop,stars\n" + "".join(f"{i % 3},{i % 11}\n" for i in range(66)))
    command("estimate", words, "--group", "shop", "--category", "stars", "--out", out, "--force")
    assert read_columns(out)["category"] == [str(star) for star in range(11)] * 3


def test_words_taken_for_a_missing_category_are_named(command, tmp_path):
    path = tmp_path / "votes.csv"
    rows = [f"t{i % 4},{'yes' if i % 3 else 'no'}" for i in range(24)]
    path.write_text("\n".join(["town,vote", *rows, "t1,NA", "t2,", ",no"]) + "\n")
    said = command("estimate", path, "--group", "town", "--category", "vote").err
    assert "1 row without a group ('town') and 2 rows without a category ('vote'" in said
    assert "such as 'NA': --missing sets the words for missing" in said
    again = command("estimate", path, "--group", "town", "--category", "vote", "--missing", "?")
    assert "share of NA" in again.out


def test_rows_that_vary_more_than_counts_of_one_rate_are_noted(command, tmp_path):
    draws = np.random.default_rng(0)
    group, time = np.repeat(np.arange(60), 10), draws.lognormal(0, 1, 600)
    calm = draws.poisson(3 * time * draws.gamma(2, 0.5, 60)[group])
    wild = draws.poisson(3 * time * draws.gamma(1, 1, 600))
    path = tmp_path / "rows.csv"
    cells = zip(group, calm, wild, time, strict=True)
    path.write_text("g,calm,wild,t\n" + "\n".join(f"g{g},{a},{b},{t}" for g, a, b, t in cells))
    for events, noted in (("calm", False), ("wild", True)):
        found = command("estimate", path, "--group", "g", "--events", events, "--exposure", "t")
        assert found.code == 0, found.err
        assert ("more than Poisson counts of one rate" in found.out) == noted


def test_no_number_is_cut_short_in_eighty_columns(command, tmp_path, monkeypatch):
    """All columns that can be asked for, of 300 groups, with numbers of five digits."""
    monkeypatch.setenv("COLUMNS", "80")
    draws = np.random.default_rng(0)
    group = np.repeat(np.arange(300), 4)
    values = 12 + 3 * draws.standard_normal(300)[group] + draws.standard_normal(1200)
    path = tmp_path / "rows.csv"
    lines = [f"{name},{value:.4f}" for name, value in zip(group, values, strict=True)]
    path.write_text("\n".join(["group,value", *lines]) + "\n")
    asked = ("--group", "group", "--value", "value", "--above", 11, "--ranks")
    found = command("estimate", path, *asked)
    assert "rank" in found.out
    assert "…" not in found.out
