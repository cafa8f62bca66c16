"""`fedprior estimate` on bad input: one clear line, exit code 2, no output file."""

from functools import partial

import pytest

from fedprior.privacy.charging import total
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import read
from fedprior.privacy.terms import Terms

ROWS = "shop,price,se,won,races,open\n" + "".join(
    f"{shop},{price},0.{k + 1},{k},{k + 3},{k % 2}\n"
    for shop, prices in {"a": (1, 2), "b": (2, 4, 3), "c": (5, 6)}.items()
    for k, price in enumerate(prices)
)


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "shops.csv"
    path.write_text(ROWS)
    return path


@pytest.fixture
def untouched(untouched_by):
    return partial(untouched_by, "estimate")


VALUE = ("--group", "shop", "--value", "price")
COUNTS = ("--group", "shop", "--successes", "won", "--trials", "races")
OUTCOME = ("--group", "shop", "--outcome", "open")
EVENTS = ("--group", "shop", "--events", "won", "--exposure", "races")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--group", "shop"), "columns must be one of --value, --outcome, --successes with --tri"),
        (("--value", "price"), "--group is required with a FILE"),
        ((*VALUE, "--outcome", "open"), "not several, got --value and --outcome"),
        ((*VALUE, "--successes", "won"), "not several, got --value and --successes"),
        (COUNTS[:4], "--successes and --trials must be given together, got only --successes"),
        ((*COUNTS, "--stderr", "se"), "--stderr must be given with --value, got no --value"),
        ((*OUTCOME, "--noise-sd", "1"), "--noise-sd must be given with --value"),
        ((*VALUE, "--stderr", "se", "--noise-sd", "1"), "--noise-sd must be left out where --st"),
        ((*VALUE, "--above", "many"), "Invalid value for '--above'"),
        ((*VALUE, "--above", "nan"), "--above must be a finite number, got nan"),
        ((*VALUE, "--abve", "1"), "No such option"),
        ((*VALUE, "--level", "1"), "--level must be above 0 and below 1, got 1.0"),
        ((*VALUE, "--noise-sd", "0"), "--noise-sd must be a positive number, got 0.0"),
        ((*VALUE, "--population", "beta"), "--population must be one of gaussian, scale-mixture,"),
        ((*COUNTS, "--population", "gausian"), "--population must be one of beta, scale-mixture"),
        ((*VALUE, "--population", "gausian"), "got 'gausian'. Did you mean gaussian?"),
        ((*VALUE, "--fit", "mle"), "--fit must be one of likelihood, moments, got 'mle'"),
        ((*VALUE, "--method", "papr"), "--method must be one of default, paper, got 'papr'. Did"),
        ((*VALUE, "--intervals", "rbust"), "--intervals must be one of default, robust"),
        ((*VALUE, "--noise", "own"), "--noise must be one of auto, common, moderated, got 'own'"),
        ((*COUNTS, "--noise", "common"), "--noise must be given with --value, got no --value"),
        (
            (*VALUE, "--noise", "moderated", "--stderr", "se"),
            "--noise must be auto or common with --stderr, got moderated",
        ),
        (
            (*VALUE, "--noise", "moderated", "--by-size"),
            "--noise must be auto or common with --by-size, got moderated",
        ),
        (
            (*VALUE, "--noise", "moderated", "--intervals", "robust"),
            "--noise must be auto or common with --intervals robust, got moderated",
        ),
        (
            (*VALUE, "--noise", "common", "--epsilon", "1"),
            "--noise cannot be combined with --epsilon",
        ),
        ((*VALUE, "--out", "o.txt"), "--out must be a .csv or .parquet file, got o.txt"),
        ((*VALUE, "--out", "o.json"), "--out must be a .csv or .parquet file"),
        ((*VALUE, "--plot", "o.gif"), "--plot must be a .png, .svg or .pdf file, got o.gif"),
        ((*VALUE, "--out", "shops.csv"), "--out must be another file than the one that is read"),
        ((*VALUE, "--out", "a/b/o.csv"), "--out must be in a folder that exists, got a/b/o.csv"),
        ((*VALUE, "--plot", "a/o.png"), "--plot must be in a folder that exists, got a/o.png"),
        ((*VALUE, "--seed", "-1"), "--seed must be a whole number of at least 0, got -1"),
        ((*VALUE, "--seed", str(2**31)), "--seed must be below 2**31, got 2147483648"),
        ((*VALUE, "--noise-sd", "1e200"), "--noise-sd must be a number whose square"),
        ((*COUNTS, "--above", "1.5"), "estimate: --above must be a rate in [0, 1], got 1.5"),
        # Options that do not go together.
        ((*COUNTS, "--by-size", "--population", "auto"), "got --by-size and --population auto"),
        ((*COUNTS, "--by-size", "--method", "paper"), "got --by-size and --method paper"),
        ((*VALUE, "--by-size", "--population", "auto"), "got --by-size and --population auto"),
        ((*VALUE, "--by-size", "--fit", "moments"), "got --by-size and --fit moments"),
        ((*VALUE, "--method", "paper", "--population", "point"), "paper and --population point"),
        ((*VALUE, "--method", "paper", "--fit", "moments"), "--method paper and --fit moments"),
        (
            (*COUNTS, "--fit", "moments", "--population", "nonparametric"),
            "options must be given one at a time, got --population nonparametric and --fit moments",
        ),
        (
            (*COUNTS, "--by-size", "--intervals", "robust"),
            "--intervals must be default for rates with --by-size, got robust",
        ),
        # Options of private estimates.
        ((*VALUE, "--delta", "1e-5"), "--delta must be given with --epsilon, got no --epsilon"),
        ((*VALUE, "--low", "0"), "--low must be given with --epsilon"),
        ((*COUNTS, "--scheme", "split"), "--scheme must be given with --epsilon"),
        ((*COUNTS, "--release-groups"), "--release-groups must be given with --epsilon"),
        ((*COUNTS, "--epsilon", "0"), "--epsilon must be a positive number, got 0.0"),
        ((*COUNTS, "--epsilon", "1", "--scheme", "splt"), "--scheme must be one of auto, split,"),
        ((*COUNTS, "--epsilon", "1", "--above", ".5"), "--above cannot be combined with"),
        ((*COUNTS, "--epsilon", "1", "--ranks"), "--ranks cannot be combined with"),
        ((*COUNTS, "--epsilon", "1", "--low", "0"), "--low and --high must be given with --value"),
        ((*EVENTS, "--epsilon", "1"), "--events with --epsilon needs --high, the largest rate per"),
        (
            (*EVENTS, "--epsilon", "1", "--high", "0"),
            "--high must be above 0 with --events, got 0.",
        ),
        (
            (*EVENTS, "--epsilon", "1", "--high", "-2"),
            "--high must be above 0 with --events, got -2",
        ),
        ((*EVENTS, "--epsilon", "1", "--high", "inf"), "--high must be a finite number, got inf"),
        (
            (*EVENTS, "--epsilon", "1", "--high", "2", "--low", "0"),
            "--low must be left out with --e",
        ),
        ((*EVENTS, "--high", "2"), "--high must be given with --epsilon, got no --epsilon"),
        (
            (*EVENTS, "--epsilon", "1", "--high", "2", "--scheme", "paper"),
            "--scheme must be another one than paper with --events",
        ),
        (
            (*EVENTS, "--epsilon", "1", "--high", "2", "--plot", "p.png"),
            "--epsilon needs --release-groups",
        ),
        ((*VALUE, "--epsilon", "1"), "--value with --epsilon needs --low and --high"),
        ((*VALUE, "--epsilon", "1", "--low", "3", "--high", "2"), "--low must be below --high"),
        (
            (*VALUE, "--epsilon", "1", "--low", "0", "--high", "9", "--delta", "1"),
            "--delta must be",
        ),
        ((*COUNTS, "--epsilon", "1", "--plot", "p.png"), "--epsilon needs --release-groups"),
        # Columns of the table.
        (("--group", "shp", "--value", "price"), "there is no column 'shp', only "),
        (("--group", "shop", "--value", "prise"), "there is no column 'prise', only "),
        (("--group", "SHOP", "--value", "price"), "there is no column 'SHOP', only "),
        (("--group", "price", "--value", "price"), "--group must be another column"),
        (("--group", "price", "--value", "shop"), "column 'shop' must be numbers, got a in row 1"),
        (("--group", "shop", "--outcome", "price"), "column 'price' must be 0 or 1, got 2"),
        (("--group", "shop", "--successes", "races", "--trials", "won"), "at most the trials"),
    ],
)
def test_words_that_do_not_fit(untouched, csv, words, wanted):
    untouched(csv, *words, wanted=wanted)


def test_options_that_go_together(command, csv):
    """Means by size may have any shape, and any shape robust intervals."""
    for words in (("--by-size",), ("--intervals", "robust"), ("--level", "0.5")):
        both = (*VALUE, "--population", "nonparametric", *words, "--json")
        assert command("estimate", csv, *both).code == 0, words
    both = (*VALUE, "--population", "auto", "--fit", "moments", "--json")
    assert command("estimate", csv, *both).code == 0


def test_the_embedded_table_has_its_own_columns(untouched):
    untouched("--group", "shop", "--value", "price", wanted="FILE must be given with columns of y")
    untouched("baseball", "--outcome", "hits", wanted="the embedded table. Its columns are player")


@pytest.mark.parametrize(
    ("rows", "words", "wanted"),
    [
        ("", VALUE, "the file is empty"),
        (ROWS.splitlines()[0] + "\n", VALUE, "the file has a header but no rows"),
        (ROWS + "a,inf,1,1,2,0\n", VALUE, "column 'price' must be finite, got inf in row 8"),
        (ROWS + "a,,1,1,2,0\n", (*VALUE, "--strict"), 'complete with --strict, got "1 row'),
        (ROWS + "a,1,0,1,2,0\n", (*VALUE, "--stderr", "se"), "a standard error above 0, got 0"),
        (ROWS + "a,1,1,-1,2,0\n", COUNTS, "'won' must be whole numbers of at least 0, got -1"),
        (ROWS + "a,1,1,5,2,0\n", COUNTS, "at most the trials in column 'races', got 5 of 2 in r"),
        ("shop,price\na,1\na,2\n", VALUE, "number of groups must be at least 2, got 1. A popul"),
        ("shop,price\na,1\nb,2\nc,4\n", VALUE, "identif"),
        ("shop,open\na,1\nb,0\nc,1\n", OUTCOME, "one common rate (--population point)"),
        ("shop,open\na,1\nb,0\n", (*OUTCOME, "--epsilon", "1"), "more rows of some groups."),
        ("shop,won,races\na,1,2\nb,0,0\n", COUNTS, "at least 2, with trials, got 1. A popula"),
        (
            "shop,price\na,1\na,2\nb,1\nb,4\n",
            (*VALUE, "--epsilon", "1", "--low", "0", "--high", "9"),
            "number of groups must be at least 3, got 2",
        ),
        ("shop,shop,price\na,b,1\na,b,2\n", VALUE, "column 'shop' appears 2 times in the header"),
    ],
)
def test_tables_that_do_not_fit(untouched, csv, rows, words, wanted):
    csv.write_text(rows)
    untouched(csv, *words, wanted=wanted)


def test_files_that_are_not_there(untouched, tmp_path):
    untouched(tmp_path / "none.csv", *VALUE, wanted="there is no such file")
    untouched(tmp_path / "*.parquet", *VALUE, wanted="there is no such file")


def test_a_picture_needs_matplotlib(untouched, csv, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    untouched(csv, *VALUE, "--plot", "p.png", wanted="pip install 'fedprior[plot]'")


def test_a_picture_that_cannot_be_written(untouched, csv, tmp_path):
    """A folder stands where the picture is written before it gets its name."""
    pytest.importorskip("matplotlib")
    (tmp_path / "p.png.tmp" / "inside").mkdir(parents=True)
    rule = "estimate: --plot must be a file that can be written, got p.png ("
    untouched(csv, *VALUE, "--plot", "p.png", wanted=rule)


def full(_):
    raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_nothing(untouched, csv, monkeypatch):
    monkeypatch.setattr("fedprior.core.files.os.fsync", full)
    rule = "estimate: --out must be a file that can be written, got o.csv ("
    untouched(csv, *VALUE, "--out", "o.csv", wanted=rule)


@pytest.mark.parametrize("name", ["o.csv", "o.json"])
def test_what_cannot_be_recorded_is_not_released(refused, csv, monkeypatch, tmp_path, name):
    monkeypatch.setattr("fedprior.core.files.os.fsync", full)
    words = (*COUNTS, "--epsilon", "1", "--out", tmp_path / name)
    refused("estimate", csv, *words, wanted="--ledger must be a file that can be written")
    assert not (tmp_path / name).exists()


def test_an_answer_that_cannot_be_written_has_been_spent(refused, csv, monkeypatch, tmp_path):
    monkeypatch.setattr("fedprior.reporting.estimates.write_atomically", lambda *_: full(0))
    words = (*COUNTS, "--epsilon", "1", "--out", tmp_path / "o.json")
    refused("estimate", csv, *words, wanted="--out must be a file that can be written")
    terms, records = read(tmp_path / "shops.ledger.jsonl")
    assert total(records, terms) == 1


def test_ledgers_that_do_not_fit_are_refused(untouched, csv, tmp_path):
    private = (*COUNTS, "--epsilon", "1")
    wanted = "--ledger must be given with --epsilon"
    untouched(csv, *COUNTS, "--ledger", tmp_path / "l", wanted=wanted)
    untouched(csv, *COUNTS, "--budget", "1", wanted="--budget must be given with --epsilon")
    untouched(csv, *private, "--budget", "0", wanted="--budget must be a positive number")
    untouched(csv, *private, "--budget", "0.5", wanted="--budget must be at least --epsilon")
    untouched(csv, *private, "--ledger", tmp_path, wanted="--ledger must be a file, got the folder")
    untouched(csv, *private, "--ledger", csv, wanted="line 1 of")
    untouched(csv, *private, "--key", tmp_path / "k", wanted="--key must be given with --ledger")
    typing_error = "--ledger must be an existing ledger, got"
    untouched(csv, *private, "--ledger", tmp_path / "lodger", wanted=typing_error)
    (tmp_path / "shops.ledger.jsonl").mkdir()
    untouched(csv, *private, wanted="is a folder, not a ledger")
    (tmp_path / "shops.ledger.jsonl").rmdir()
    value = (*VALUE, "--epsilon", "1", "--low", "0", "--high", "9", "--delta", "0.5")
    untouched(csv, *value, wanted="delta must be below 1 / clients = 0.333333, got 0.5")
    several = str(tmp_path / "*.csv")
    untouched(several, *private, wanted="--epsilon needs --ledger for several files")
    terms = {"delta": 1e-6, "view": "central", "noise": "secure", "unit": "client"}
    Ledger(tmp_path / "run", Terms(relation="add-remove", **terms)).close()
    untouched(csv, *private, "--ledger", tmp_path / "run", wanted="must")
