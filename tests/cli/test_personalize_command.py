"""`fedprior personalize`: whose model predicts each row."""

import json

import duckdb
import numpy as np
import pytest

import fedprior
from fedprior.data.table import encode_rows


def read(path):
    # yes and no stay words; DuckDB would take them for truth values
    kinds = ", types={'prediction': 'VARCHAR'}"
    reader = f"read_csv(?{kinds})" if path.suffix == ".csv" else "read_parquet(?)"
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT * FROM {reader}", [str(path)])
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.fixture
def mixed(tmp_path, new_rows):
    """Two known clients, a new one with labels in some rows, a new one without any."""
    path = new_rows(tmp_path / "new.csv", ["b", "new", "f", "bare"], rows=4, seed=5)
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if "bare" in line or number in (2, 5, 10):
            lines[number] = line.rsplit(",", 1)[0] + ","
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predictions_say_whose_model_made_them(command, trained, mixed, tmp_path, ending):
    out = tmp_path / f"predictions.{ending}"
    found = command("personalize", trained, "--data", mixed, "--out", out, "--json")
    assert found.code == 0
    answer = json.loads(found.out)
    assert (answer["rows"], answer["out"]) == (16, str(out))
    assert (answer["own"], answer["newcomer"], answer["population"]) == (8, 4, 4)
    rows = read(out)
    names = ["client", "row", "prediction", "probability", "model"]
    assert list(rows[0]) == [*names, "probability_no", "probability_yes"]
    assert [row["row"] for row in rows] == list(range(1, 17))
    models = {"b": "own", "new": "newcomer", "f": "own", "bare": "population"}
    for number, row in enumerate(rows):
        assert row["client"] == ["b", "new", "f", "bare"][number // 4]
        assert row["model"] == models[row["client"]]
        assert row["prediction"] in ("yes", "no")
        assert 0.5 <= row["probability"] <= 1
        assert row["probability"] == row[f"probability_{row['prediction']}"]
        assert row["probability_no"] + row["probability_yes"] == pytest.approx(1)
    assert not list(out.parent.glob("*.tmp"))


def test_words_that_the_run_has_not_seen_are_said(command, trained, new_rows, tmp_path):
    """They count as missing: the same prediction as without the word."""
    path = new_rows(tmp_path / "new.csv", ["b", "new"], rows=4)
    text, answers = path.read_text(), []
    for word in ("Red", ""):
        path.write_text(text.replace("red", word))
        out = tmp_path / f"{word or 'none'}.csv"
        found = command("personalize", trained, "--data", path, "--out", out, "--json")
        answers.append(json.loads(found.out)["unknown_words"])
    assert answers == [{"color": ["Red"]}, {}]
    assert read(tmp_path / "Red.csv") == read(tmp_path / "none.csv")
    path.write_text(text.replace("red", "Red"))
    said = command("personalize", trained, "--data", path, "--out", out, "--force").err
    assert (
        "Column 'color' has words that the run does not know, which count as missing: 'Red'."
    ) in " ".join(said.split())


def test_a_known_client_is_predicted_by_its_own_model(command, trained, table, tmp_path):
    """The rows of the run itself: what each client's theta says, one client at a time."""
    out = tmp_path / "predictions.parquet"
    found = command("personalize", trained, "--data", table, "--out", out, "--algorithm", "local")
    assert (found.code, found.out) == (0, "")
    assert "60 rows: 60 by a client's own model" in found.err
    model = fedprior.load(trained, method="local")
    x, _, names = encode_rows(model.encoder, table)
    rows = read(out)
    for client in "abcdef":
        outputs = model.algorithm.predict(model.clients.theta(client), x[names == client])
        found = [row["prediction"] for row in rows if row["client"] == client]
        assert found == model.classes_[np.asarray(outputs).argmax(axis=1)].tolist()


def test_the_population_predicts_for_the_unknown(command, trained, new_rows, tmp_path):
    """No label column at all: every new client gets one and the same model."""
    path = new_rows(tmp_path / "new.csv", ["x", "y"], rows=3, labels=False)
    text = path.read_text().splitlines()
    path.write_text("\n".join([*text[:4], *(line.replace("x,", "y,", 1) for line in text[1:4])]))
    found = command("personalize", trained, "--data", path, "--out", tmp_path / "p.csv")
    assert found.code == 0
    rows = read(tmp_path / "p.csv")
    assert {row["model"] for row in rows} == {"population"}
    for first, second in zip(rows[:3], rows[3:], strict=True):
        assert first["prediction"] == second["prediction"]
        assert first["probability"] == pytest.approx(second["probability"])


def test_a_glob_of_tables(command, trained, new_rows, tmp_path):
    for name in "ab":
        new_rows(tmp_path / f"part-{name}.csv", name)
    words = ("personalize", trained, "--data", tmp_path / "part-*.csv", "--out", tmp_path / "p.csv")
    assert json.loads(command(*words, "--json").out)["own"] == 20


def test_bad_input_leaves_no_file(refused, trained, mixed, new_rows, tmp_path):
    out = tmp_path / "p.csv"
    base = ["personalize", trained, "--out", out]
    refused(*base, "--data", tmp_path / "none.csv", wanted="--data must be a file or folder that")
    refused("personalize", tmp_path, "--data", mixed, "--out", out, wanted="no config.toml")
    taken = tmp_path / "taken.csv"
    taken.write_text("mine")
    taken_words = ["personalize", trained, "--data", mixed, "--out", taken]
    refused(*taken_words, wanted="taken.csv exists already. Overwrite it with --force")
    assert taken.read_text() == "mine"
    refused(
        "personalize", trained, "--data", mixed, "--out", tmp_path / "p.txt",
        wanted="--out must be a .csv or .parquet file",
    )  # fmt: skip
    refused(*base, "--data", mixed, "--algorithm", "adapd", wanted="Did you mean adaped?")
    refused(*base, "--data", mixed, "--seed", "4", wanted="seed must be a seed of the run (0 to 0)")
    strange = tmp_path / "strange.csv"
    strange.write_text("shop,price,color,outcome\na,1.0,red,perhaps\n")
    refused(*base, "--data", strange, wanted="strange.csv: label 'outcome' must be one of no, yes")
    strange.write_text("shop,price,color,outcome\na,1.5,red,yes\na,inf,red,no\n")
    refused(*base, "--data", strange, wanted="strange.csv: column 'price' must be finite, got inf")
    strange.write_text("shop,prise,color,outcome\na,1.0,red,yes\n")
    refused(*base, "--data", strange, wanted="there is no column 'price', only ")
    strange.write_text("shop,price,color\n,1.0,red\n")
    refused(*base, "--data", strange, wanted="must name the client of every row, got none in row")
    refused(*base, "--data", tmp_path, wanted="is a folder without .npz files, one per client")
    assert not out.exists()
    assert not list(tmp_path.glob("p.*"))
