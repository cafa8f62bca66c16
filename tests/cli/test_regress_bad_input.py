"""`fedprior regress` on bad input: one clear line, exit code 2, no output file."""

from functools import partial

import pytest

ROWS = "shop,price,one,twice,color,mixed,sales,sold,same,count,zero\n" + "".join(
    f"{shop},{k + n / 7},3,{2 * (k + n / 7)},{'rb'[k % 2]},{k if k else 'x'},{k * k - n},"
    f"{'yn'[(k + n) % 2]},y,{k + n},{k}\n"
    for n, (shop, size) in enumerate({"a": 4, "b": 5, "c": 3, "d": 4}.items())
    for k in range(size)
)


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "shops.csv"
    path.write_text(ROWS)
    return path


@pytest.fixture
def untouched(untouched_by):
    return partial(untouched_by, "regress")


COLUMNS = ("--group", "shop", "--target", "sales")
GOOD = (*COLUMNS, "--features", "price")
COUNTS = ("--family", "poisson")
COUNTED = ("--group", "shop", "--target", "count", "--features", "price", *COUNTS)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (COLUMNS, "for a mean or rate of each group alone, use fedprior estimate"),
        (GOOD[2:], "regress: --group is required with a FILE"),
        ((*GOOD[:2], *GOOD[4:]), "regress: --target is required with a FILE"),
        ((*COLUMNS, "--features", "price,sales"), "--features must be other columns than the grou"),
        ((*COLUMNS, "--features", "price,price"), "--features must be different columns, got pri"),
        ((*GOOD, "--fixed", "sales"), "--fixed must be other columns than the group and the targ"),
        ((*COLUMNS, "--fixed", "price,price"), "--fixed must be different columns, got price."),
        (("--group", "shop", "--target", "shop", "--features", "price"), "another column than th"),
        ((*GOOD, "--family", "gamma"), "--family must be one of auto, gaussian, binomial, multi"),
        ((*GOOD, "--exposure", "one"), "--exposure must be given with --family poisson, got --fa"),
        ((*GOOD, *COUNTS, "--exposure", "price"), "--exposure must be another column than the gr"),
        ((*GOOD, *COUNTS, "--exposure", "days"), "there is no column 'days', only shop, price"),
        ((*GOOD, *COUNTS), "'sales' must be a count, a whole number of at least 0, got -1. See"),
        ((*COLUMNS[:3], "sold", *GOOD[4:], *COUNTS), "for the words in column 'sold', got 'po"),
        ((*COUNTED, "--exposure", "zero"), "exposure must be above 0, got 0. See row 1"),
        ((*COUNTED, "--exposure", "color"), "exposure must be numbers, got 'r'"),
        ((*COUNTED, "--population", "mixture"), "--population must be gaussian with --family poi"),
        ((*COUNTED, "--method", "paper"), "--method must be default with --family poisson, got "),
        ((*COUNTED, "--criterion", "reml"), "--criterion must be ml (or auto) but for numbers"),
        ((*GOOD, "--population", "gausian"), "got 'gausian'. Did you mean gaussian?"),
        ((*GOOD, "--covariance", "round"), "--covariance must be one of auto, isotropic, diagonal"),
        ((*GOOD, "--criterion", "aic"), "--criterion must be one of auto, reml, ml, got 'aic'"),
        ((*GOOD, "--method", "papr"), "--method must be one of default, paper, got 'papr'. Did"),
        ((*GOOD, "--components", "2"), "--components must be given with --population mixture or"),
        (
            (*GOOD, "--population", "mixture", "--components", "none"),
            "--components must be bic or a whole number of at least 1, got none",
        ),
        ((*GOOD, "--level", "1"), "--level must be above 0 and below 1, got 1.0"),
        ((*GOOD, "--seed", "-1"), "--seed must be a whole number of at least 0"),
        ((*GOOD, "--out", "o.txt"), "--out must be a .csv or .parquet file, got o.txt"),
        ((*GOOD, "--plot", "o.gif"), "--plot must be a .png, .svg or .pdf file, got o.gif"),
        ((*GOOD, "--out", "shops.csv"), "--out must be another file than the one that is read"),
        ((*GOOD, "--plot", "a/o.png"), "--plot must be in a folder that exists, got a/o.png"),
        # Columns of the table, and options that do not go with them.
        ((*COLUMNS, "--features", "pric"), "there is no column 'pric', only "),
        (("--group", "town", *GOOD[2:]), "there is no column 'town', only shop, price, one"),
        (
            (*COLUMNS, "--features", "price,one"),
            "column 'one' must be of more than one value, got 3.0",
        ),
        ((*COLUMNS, "--features", "price,twice"), "got 'twice', a sum of 'price'. Leave one of"),
        ((*GOOD, "--fixed", "price"), "price cannot have both a coefficient for each group"),
        (("--group", "one", *GOOD[2:]), "number of groups must be at least 2, got 1"),
        (
            ("--group", "shop", "--target", "same", "--features", "price"),
            "number of classes in target 'same' must be at least 2, got 1. Every row is of",
        ),
        (
            ("--group", "shop", "--target", "sold", *GOOD[4:], "--family", "gaussian"),
            "--family must be binomial or multinomial for the words in column 'sold'",
        ),
        ((*GOOD, "--family", "binomial"), "--family must be multinomial or gaussian for the 1"),
        ((*GOOD, "--method", "paper", "--criterion", "reml"), "regress: --criterion must be ml"),
        (
            (*GOOD, "--method", "paper", "--covariance", "full"),
            "regress: --covariance must be isotropic (or auto) with the paper's method",
        ),
        (
            (*GOOD, "--population", "discrete", "--covariance", "full"),
            "regress: --covariance must be auto for a discrete population",
        ),
        (
            (*GOOD, "--population", "mixture", "--components", "9"),
            "regress: --components must be at most the number of groups with rows (4), got 9",
        ),
        (
            (
                "--group",
                "shop",
                "--target",
                "sold",
                *GOOD[4:],
                "--fixed",
                "color",
                "--method",
                "paper",
            ),
            "regress: --fixed must be without columns with paper, got 1",
        ),
    ],
)
def test_words_that_do_not_fit(untouched, csv, words, wanted):
    untouched(csv, *words, wanted=wanted)


def test_cells_that_are_no_numbers(untouched, csv, tmp_path):
    infinite = tmp_path / "infinite.csv"
    infinite.write_text(ROWS + "d,1,3,2,r,1,inf,y,y,1,1\n")
    untouched(infinite, *GOOD, wanted="target 'sales' must be finite, got inf. See row 17 of 17")
    gaps = tmp_path / "gaps.csv"
    gaps.write_text(ROWS + "d,,3,2,r,1,1,y,y,1,1\n")
    untouched(gaps, *GOOD, "--strict", wanted="must be 0 in strict mode, got 1. The first is row")
    empty = tmp_path / "empty.csv"
    empty.write_text(ROWS.splitlines()[0] + "\n")
    untouched(empty, *GOOD, wanted="the file has a header but no rows")
    untouched(tmp_path / "none.csv", *GOOD, wanted="there is no such file")


def test_the_example_has_no_other_columns(untouched):
    untouched("--exposure", "days", *COUNTS, wanted="FILE must be given with columns of your own")
    untouched("--group", "shop", wanted="FILE must be given with columns of your own, got the sim")
    untouched(
        "--family",
        "binomial",
        wanted="--family must be auto or gaussian for the simulated example, got binomial. Name a",
    )


def test_a_file_that_cannot_be_written(refused, csv, tmp_path, monkeypatch):
    """The picture goes with the table: neither is left behind."""

    def fail(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.rename", fail)
    words = ("--out", tmp_path / "o.csv", "--plot", tmp_path / "o.png")
    refused("regress", csv, *GOOD, *words, wanted="regress: --out must be a file that can be writt")
    assert [path.name for path in tmp_path.iterdir()] == ["shops.csv"]
