import gzip
import json
from dataclasses import replace

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprior.data.encoder import Encoder
from fedprior.data.federation import Federation
from fedprior.data.reader import read
from fedprior.data.table import encode_rows, fit_encoder, from_frame, from_table

CSV = """shop,size,open,kind,bought
b,1.5,true,red,yes
a,,false,blue,no
a,2.5,true,,no
b,3.5,,red,yes
a,4.5,true,green,
,5.5,true,red,yes
a,6.5,false,blue,yes
"""
NAMES = {"client": "shop", "label": "bought"}
LARGE = ("a,b\n" + "".join(f"{number},{7 * number % 1009}\n" for number in range(20_000))).encode()


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "shops [1].csv"  # DuckDB reads brackets as a pattern unless they are escaped
    path.write_text(CSV)
    return path


def random_columns(seed, rows=60):
    rng = np.random.default_rng(seed)
    amount = np.ma.MaskedArray(rng.normal(50, 9, rows), rng.random(rows) < 0.2)
    return {
        "shop": rng.integers(0, 5, rows),
        "amount": amount,
        "count": rng.integers(0, 9, rows),
        "kind": rng.choice(["red", "green", "blue"], rows),
        "bought": rng.choice(["no", "yes"], rows),
    }


def test_read_masks_missing_cells(csv):
    columns = read(csv).columns
    assert list(columns) == ["shop", "size", "open", "kind", "bought"]
    assert columns["size"].mask.tolist() == [0, 1, 0, 0, 0, 0, 0]
    assert columns["kind"].tolist() == ["red", "blue", None, "red", "green", "red", "blue"]
    assert columns["open"].tolist() == [True, False, True, None, True, True, False]
    assert columns["bought"].dtype.kind == "U"  # yes and no are labels, not truth
    assert list(read(csv, wanted=["kind"]).columns) == ["kind"]


def test_csv_parquet_and_frame_agree(csv, tmp_path):
    parquet = tmp_path / "shops.parquet"
    with duckdb.connect() as connection:
        name = str(csv).replace("[", "[[]")
        table = f"read_csv('{name}', types={{'bought': 'VARCHAR'}})"
        connection.execute(f"COPY (FROM {table}) TO '{parquet}' (FORMAT parquet)")
    results = [from_table(csv, **NAMES), from_table(parquet, **NAMES)]
    results.append(from_frame(pd.read_csv(csv), **NAMES))
    for federation in results[1:]:
        assert federation.encoder == results[0].encoder
        assert federation.counts == results[0].counts
        np.testing.assert_array_equal(federation.train.x, results[0].train.x)
        np.testing.assert_array_equal(federation.test.y, results[0].test.y)


def test_rows_without_client_or_label_are_counted(csv):
    federation = from_table(csv, **NAMES)
    encoder, counts = federation.encoder, federation.counts
    assert counts["rows"] == 7
    assert counts["rows_used"] == 5
    assert counts["dropped_without_client"] == 1
    assert counts["dropped_without_label"] == 1
    assert federation.remarks[1:3] == (
        "1 of 7 rows dropped: no client.",
        "1 of 7 rows dropped: no label.",
    )
    assert federation.clients.tolist() == ["a", "b"]
    assert encoder.classes == federation.classes == ("no", "yes")
    assert federation.train.x.dtype == np.float32


def test_encoding_by_hand(csv):
    encoder = from_table(csv, **NAMES, valid_share=0, test_share=0).encoder
    names = ["size", "size missing", "open=False", "open=True", "kind=blue", "kind=red"]
    assert encoder.feature_names == names
    size = encoder.columns[0]
    assert size.median == 3.0  # of 1.5, 2.5, 3.5 and 6.5: dropped rows do not count
    new = {
        "shop": ["c"],
        "size": np.ma.MaskedArray([0.0], [True]),
        "open": [True],
        "kind": ["a kind never seen"],
    }
    x, y, clients = encode_rows(encoder, new)
    np.testing.assert_allclose(x, [[(3.0 - size.mean) / size.scale, 1, 0, 1, 0, 0]], rtol=1e-6)
    assert y is None
    assert clients.tolist() == ["c"]


@given(
    seed=st.integers(0, 500),
    poison=st.floats(-1e6, 1e6),
    word=st.text("abcxyz", min_size=1, max_size=5),
    hide=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_no_leak_from_validation_or_test_rows(seed, poison, word, hide):
    columns = random_columns(seed)
    before = from_table(columns, **NAMES, seed=seed)
    marked = dict(columns, amount=np.arange(60.0))  # which rows train is told by a marker column
    options = {"features": ["amount"], "seed": seed}
    told = from_table(marked, **NAMES, **options)
    amount = told.encoder.columns[0]
    rows = np.rint(told.train.x[:, 0] * amount.scale + amount.mean).astype(int)
    other = np.setdiff1d(np.arange(60), rows)
    assert 0 < len(other) < 60
    changed = {name: np.ma.array(values, copy=True) for name, values in columns.items()}
    changed["amount"][other] = np.ma.masked if hide else poison
    changed["count"][other] = int(poison)
    kinds = columns["kind"].astype("<U5")
    kinds[other] = word
    after = from_table(changed | {"kind": kinds}, **NAMES, seed=seed)
    statistics = [replace(each, indicator=True) for each in before.encoder.columns[:2]]
    assert [replace(each, indicator=True) for each in after.encoder.columns[:2]] == statistics
    shared = set(before.encoder.feature_names) & set(after.encoder.feature_names)
    for name in shared:
        x, x_after = (
            each.train.x[:, each.encoder.feature_names.index(name)] for each in (before, after)
        )
        np.testing.assert_array_equal(x_after, x)
    np.testing.assert_array_equal(after.train.y, before.train.y)


@given(seed=st.integers(0, 500), regression=st.booleans())
@settings(max_examples=20, deadline=None)
def test_json_round_trip_encodes_alike(seed, regression):
    columns = random_columns(seed)
    if regression:
        columns["bought"] = np.random.default_rng(seed).normal(size=60)
    encoder = from_table(columns, **NAMES, seed=seed).encoder
    back = Encoder.from_json(encoder.to_json())
    assert back == encoder
    for one, other in zip(encode_rows(encoder, columns), encode_rows(back, columns), strict=True):
        np.testing.assert_array_equal(one, other)


def test_encoder_of_another_format(csv):
    text = json.loads(from_table(csv, **NAMES).encoder.to_json())
    assert text["format"] == 2
    with pytest.raises(ValueError, match="encoder: format of the encoder must be 2, got 3"):
        Encoder.from_json(json.dumps(text | {"format": 3}))


def test_an_encoder_of_format_1_is_read(csv):
    """It had no knots, and encodes as it did."""
    encoder = from_table(csv, **NAMES).encoder
    text = json.loads(encoder.to_json()) | {"format": 1}
    for column in text["columns"]:
        column.pop("knots", None)
    assert Encoder.from_json(json.dumps(text)) == encoder


def test_numbers_in_bins():
    """Piecewise linear between the quantiles of training rows, flat beyond them."""
    columns = random_columns(3, rows=80)
    plain, binned = (from_table(columns, **NAMES, bins=bins) for bins in (0, 4))
    amount, count = binned.encoder.columns[:2]
    assert len(amount.knots) == 5
    assert binned.encoder.feature_names[:2] == ["amount", f"amount from {amount.knots[0]:.6g} to "
        f"{amount.knots[1]:.6g}"]  # fmt: skip
    values = np.ma.MaskedArray([-1e9, *amount.knots, 1e9], mask=False)
    for place, (low, high) in enumerate(zip(amount.knots, amount.knots[1:], strict=False)):
        wanted = np.interp(values.data, [low, high], [-1, 1])
        np.testing.assert_allclose(amount.encode(values)[:, 1 + place], wanted, atol=1e-6)
    inside = amount.mean + amount.scale * binned.train.x[:, 0]  # only training rows are looked at
    present = binned.train.x[:, 5] == 0
    assert inside[present].min() == pytest.approx(amount.knots[0], rel=1e-4)
    assert inside[present].max() == pytest.approx(amount.knots[-1], rel=1e-4)
    np.testing.assert_array_equal(binned.train.x[:, [0, 5, 6]], plain.train.x[:, :3])
    assert Encoder.from_json(binned.encoder.to_json()) == binned.encoder
    assert len(count.knots) >= 3


def test_two_values_need_no_bins():
    columns = {"c": [0, 1] * 8, "x": [0, 1, 1, 0] * 4, "w": [1] * 16, "y": ["a", "b"] * 8}
    federation = from_table(columns, client="c", label="y", bins=8)
    assert [each.knots for each in federation.encoder.columns] == [(), ()]


def test_bins_belong_to_an_encoder(csv):
    encoder = fit_encoder(csv, **NAMES, bins=2)
    assert len(encoder.columns[0].knots) == 3
    with pytest.raises(ValueError, match="table: bins must be 0 with an encoder, got 4"):
        from_table(csv, **NAMES, encoder=encoder, bins=4)
    with pytest.raises(ValueError, match="knots must be finite and rising"):
        replace(encoder.columns[0], knots=(1.0, 1.0))


def test_a_csv_keeps_client_names_as_they_stand(tmp_path):
    path = tmp_path / "counties.csv"
    path.write_text("fips,x,y\n08014,1,a\n08014,2,b\n09001,3,a\n")
    federation = from_table(path, client="fips", label="y")
    encoder = federation.encoder
    assert federation.clients.tolist() == ["08014", "09001"]
    assert encode_rows(encoder, path)[2].tolist() == ["08014", "08014", "09001"]


def test_training_columns_are_standardized():
    federation = from_table(random_columns(3), **NAMES)
    encoder = federation.encoder
    x = federation.train.x[:, encoder.feature_names.index("count")]
    np.testing.assert_allclose([x.mean(), x.std()], [0, 1], atol=1e-6)


def test_constant_and_empty_columns():
    columns = random_columns(1)
    columns["amount"] = np.ma.MaskedArray(np.ones(60), np.ones(60, bool))
    columns["count"] = np.full(60, 7)
    federation = from_table(columns, **NAMES)
    encoder = federation.encoder
    assert np.isfinite(federation.train.x).all()
    assert (federation.train.x[:, encoder.feature_names.index("count")] == 0).all()
    assert (federation.train.x[:, encoder.feature_names.index("amount missing")] == 1).all()


@pytest.mark.parametrize(
    ("label", "regression", "classes", "reason"),
    [
        (np.arange(60) % 3, None, ("0", "1", "2"), "3 distinct values; pass regression=True"),
        ((np.arange(60) % 3) * 1.0, None, ("0", "1", "2"), "3 distinct values"),
        ((np.arange(60) % 3) * 0.5, None, None, "fractions and 3 distinct values; pass regression"),
        (np.arange(60), None, None, "60 distinct values; pass regression=False"),
        (np.arange(60) % 3, True, None, "regression="),
        ((np.arange(60) % 2) * 0.5, False, ("0", "0.5"), "regression="),
        (np.arange(60) % 12, None, tuple(map(str, range(12))), "12 distinct"),
        (np.arange(60) % 2 == 0, None, ("False", "True"), "not numeric"),
        (
            np.array([f"w{number:02}" for number in range(60)]),
            None,
            tuple(f"w{number:02}" for number in range(60)),
            "not numeric. It has 60 classes in 60 rows: hardly any can be learned.",
        ),
    ],
)
def test_what_a_label_is(label, regression, classes, reason):
    columns = random_columns(0) | {"bought": label}
    federation = from_table(columns, **NAMES, regression=regression)
    assert federation.encoder.classes == federation.classes == classes
    assert reason in federation.remarks[0]
    assert federation.train.y.dtype == (np.int32 if classes else np.float32)


@pytest.mark.parametrize(
    ("label", "got"),
    [
        (np.full(60, 3.5), r"at least 2 distinct values, got 3\.5"),
        (1e9 + np.arange(60) / 60, r"remain in 32 bits, got a mean of 1e\+09 and a standard dev"),
        (1e30 * np.arange(60), "remain in 32 bits"),
        (1e-20 * np.arange(60), "remain in 32 bits"),
    ],
)
def test_a_quantity_that_32_bits_cannot_hold_is_refused(label, got):
    """Rounded, these would be equal: any constant would then seem to predict them exactly."""
    with pytest.raises(ValueError, match=rf"label 'bought' must be a quantity .*{got}"):
        from_table(random_columns(0) | {"bought": label}, **NAMES, regression=True)
    with pytest.raises(ValueError, match=r"from_arrays: y must be a quantity"):
        Federation.from_arrays(np.ones((60, 1)), label, np.arange(60) % 5, regression=True)


def test_seconds_since_1970_are_a_quantity():
    label = 1.7e9 + 86_400.0 * np.arange(60)
    found = from_table(random_columns(0) | {"bought": label}, **NAMES)
    assert found.train.y.std() == pytest.approx(label.std(), rel=0.2)


def test_encode_rows_keeps_rows_without_a_label(csv):
    encoder = from_table(csv, **NAMES).encoder
    table = "shop,size,open,kind,bought\n1,2,true,red,no\n2,3,true,red,\n"
    csv.write_text(table)
    x, y, clients = encode_rows(encoder, csv)
    assert len(x) == 2
    assert y.tolist() == [0, -1]
    assert clients.tolist() == ["1", "2"]
    csv.write_text(table.replace("no\n", "perhaps\n"))
    with pytest.raises(ValueError, match="label 'bought' must be one of no, yes, got 'perhaps'"):
        encode_rows(encoder, csv)
    csv.write_text(table.replace("2,true", "much,true"))
    with pytest.raises(ValueError, match=r"'size' must be a number, got 'much'. See row 1"):
        encode_rows(encoder, csv)
    csv.write_text(table.replace("\n1,", "\n,"))
    with pytest.raises(
        ValueError, match="'shop' must name the client of every row, got none in row"
    ):
        encode_rows(encoder, csv)
    csv.write_text(table.replace("size", "sizes"))
    with pytest.raises(
        ValueError, match=r"there is no column 'size', only .* Did you mean sizes\?"
    ):
        encode_rows(encoder, csv)


def test_encode_rows_in_regression():
    columns = random_columns(0) | {"bought": np.arange(60.0)}
    encoder = from_table(columns, **NAMES).encoder
    label = np.ma.MaskedArray(np.arange(60.0), np.arange(60) == 4)
    _, y, _ = encode_rows(encoder, columns | {"bought": label})
    assert np.flatnonzero(np.isnan(y)).tolist() == [4]


def test_client_names_do_not_depend_on_storage():
    whole = from_frame(pd.DataFrame(random_columns(0)), **NAMES)
    frame = pd.DataFrame(random_columns(0))
    frame["shop"] = frame["shop"].astype(float)
    frame.loc[0, "shop"] = np.nan
    assert from_frame(frame, **NAMES).clients.tolist() == whole.clients.tolist()


def test_frame_types():
    frame = pd.DataFrame(
        {
            "shop": pd.Series(["a", "a", "b", "b"], dtype="string"),
            "count": pd.Series([1, None, 3, 4], dtype="Int64"),
            "kind": pd.Categorical(["x", "y", None, "x"]),
            "mixed": [True, None, False, True],
            "bought": [0, 1, 0, 1],
        }
    )
    federation = from_frame(frame, **NAMES, valid_share=0, test_share=0)
    encoder = federation.encoder
    names = ["count", "count missing", "kind=x", "kind=y", "mixed=False", "mixed=True"]
    assert encoder.feature_names == names
    assert np.isfinite(federation.train.x).all()


def test_nan_is_missing_and_infinity_is_refused(csv):
    csv.write_text(CSV.replace("2.5", "nan"))
    size = read(csv).columns["size"]
    assert size.mask.tolist() == [0, 1, 1, 0, 0, 0, 0]
    for cell in ("inf", "-Infinity"):
        csv.write_text(CSV.replace("2.5", cell))
        with pytest.raises(ValueError, match=r"'size' must be finite, got -?inf in row 3"):
            from_table(csv, **NAMES)


def test_infinity_in_a_frame_is_refused_and_nan_is_missing():
    frame = pd.DataFrame(random_columns(0))
    from_frame(frame.assign(amount=frame["amount"].where(frame.index > 5)), **NAMES)
    with pytest.raises(ValueError, match="column 'amount' must be finite, got inf in row 1"):
        from_frame(frame.assign(amount=np.inf), **NAMES)


def test_a_number_too_far_from_the_training_rows_is_refused():
    """It would be infinite in 32 bits, and make all models of its client predict nothing."""
    encoder = from_frame(frame := pd.DataFrame(random_columns(0)), **NAMES).encoder
    wording = r"column 'amount' must be at most 1e\+18 standard .* got 1e\+300\. See row 1"
    with pytest.raises(ValueError, match=wording):
        encode_rows(encoder, frame.assign(amount=1e300))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "bougth"}, r"there is no column 'bougth', only .* Did you mean bought\?"),
        ({"label": "nothing"}, r"there is no column 'nothing', only shop, "),
        ({"label": "BOUGHT"}, r"there is no column 'BOUGHT', only .* Did you mean bought\?"),
        ({"features": ["siz"]}, r"there is no column 'siz', only .* Did you mean size\?"),
        ({"label": "shop"}, "label must be another column than the client, got 'shop'"),
        ({"features": ["bought"]}, "each feature must be neither the client nor the label"),
        ({"features": ["size", "size"]}, "each feature must be named once, got 'size'"),
        ({"features": []}, "number of features must be at least 1, got 0"),
        ({"valid_share": 1.5}, r"valid_share must be in \[0, 1\), got 1.5"),
        ({"valid_share": 0.6, "test_share": 0.5}, r"valid_share \+ test_share must be in \[0, 1\)"),
        ({"regression": True}, "label 'bought' must be numeric for regression"),
    ],
)
def test_argument_errors(csv, options, message):
    with pytest.raises(ValueError, match=message):
        from_table(csv, **(NAMES | options))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "there is no such file"),
        ("empty.csv", b"", "the file is empty"),
        ("header.csv", b"a,b\n", "the file has a header but no rows"),
        ("picture.csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "the file is not text"),
        ("table.xlsx", b"PK", r"must end in one of .csv, .*got '.xlsx'"),
        ("bad.parquet", b"PAR1 and then nothing", "must be a readable table, got"),
        ("bytes.csv", b"a,b\n\xfe\xff,1\n", "must be a readable table, got.* Save it as UTF-8"),
        ("half.csv", b"\xff\xfea\x00,", "must be a readable table, got: 'utf-16"),
        (
            "cut.csv.gz",
            gzip.compress(b"a,b\nx,1\n" * 50, mtime=0)[:-12],
            "must be a readable table, got",
        ),
        ("large.csv.gz", gzip.compress(LARGE, mtime=0)[:-12], "must be a readable table, got"),
        ("plain.csv.gz", b"a,b\nx,1\n", "must be a readable table, got: Not a gzipped file"),
    ],
)
def test_file_errors_are_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_refusals():
    columns = random_columns(0)
    spans = np.array([3] * 60, "timedelta64[D]")
    for name, values, message in [
        ("count", spans, "column 'count' must be numbers, text, dates or truth values, got 'time"),
        ("kind", np.array(["x" * 300] * 60, object), "text in column 'kind' must be at most 256"),
        ("kind", [[1]] * 60, "column 'kind' must be a single column"),
        ("count", np.arange(9), "columns must be of one length above 0"),
        ("bought", np.array(["yes"] * 60), "classes of label 'bought' must be at least 2"),
        ("bought", np.ma.MaskedArray(np.ones(60), np.ones(60, bool)), "with client and label"),
    ]:
        with pytest.raises(ValueError, match=message):
            from_table(columns | {name: values}, **NAMES)
    many = {name: np.repeat(values, 50) for name, values in columns.items()}
    many["kind"] = np.array([f"word {number}" for number in range(3000)])
    with pytest.raises(ValueError, match="text column 'kind' must be of at most 1000 distinct"):
        from_table(many, **NAMES)
    with pytest.raises(TypeError, match="source must be columns, a path, or a data frame"):
        from_frame([1, 2], **NAMES)


def test_real_tables(data_root):
    folder = data_root / "grouped_regression"
    if not folder.is_dir():
        pytest.skip("real data: no grouped_regression folder")
    federation = from_table(
        folder / "sleepstudy.csv", client="Subject", label="Reaction", features=["Days"]
    )
    assert federation.num_clients == 18
    assert federation.encoder.regression
    assert federation.counts["rows_used"] == 180


def test_a_column_without_any_cell_adds_no_input(tmp_path):
    path = tmp_path / "hollow.csv"
    path.write_text("c,a,b,y\n" + "".join(f"{i % 3},{i},,{i % 2}\n" for i in range(30)))
    federation = from_table(path, client="c", label="y")
    encoder = federation.encoder
    assert encoder.feature_names == ["a"]
    assert federation.shape == (1,)


PUBLIC = """size,kind,code,bought
1.5,red,1.50,1
2.5,blue,a2,0
,red,3,1
9.5,green,1.50,0
"""


@pytest.fixture
def public(tmp_path):
    path = tmp_path / "public.csv"
    path.write_text(PUBLIC)
    return fit_encoder(path, **NAMES)


def test_an_encoder_of_public_rows_needs_no_client_column(public):
    assert public.client == ("shop",)
    assert public.features == ["size", "kind", "code"]
    assert public.classes == ("0", "1")
    assert public.columns[0].median == 2.5
    assert Encoder.from_json(public.to_json()) == public


def test_a_given_encoder_is_used_as_it_is(public, tmp_path):
    path = tmp_path / "shops.csv"
    path.write_text(
        "shop,size,kind,code,other,bought\na,1,red,3.0,x,1\na,,pink,a2,x,0\nb,3,red,7,x,1\n"
    )
    options = {"encoder": public, "valid_share": 0, "test_share": 0}
    federation = from_table(path, **NAMES, **options)
    assert federation.encoder is public
    assert federation.encoder.rows == "public"
    assert federation.fitted == ()
    assert "by the encoder" in federation.remarks[0]
    assert federation.counts["clients_without_label"] == 0
    size = (np.array([1.0, 2.5, 3.0]) - public.columns[0].mean) / public.columns[0].scale
    words = [[0, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0]]  # kinds, then codes
    wanted = np.column_stack([size, [0, 1, 0], words]).astype(np.float32)
    order = np.argsort(federation.train.x[:, 0])
    np.testing.assert_allclose(federation.train.x[order], wanted[np.argsort(size)], rtol=1e-6)


@given(
    size=st.sampled_from(["7", "7.25", "", "1e3", "-4"]),
    kind=st.sampled_from(["red", "1", "2.0", "true", ""]),
    code=st.sampled_from(["1.50", "1", "7.5", "2020-01-01", "false", ""]),
    label=st.sampled_from(["0", "1", "1.0", ""]),
)
@settings(max_examples=8, deadline=None)
def test_under_a_given_encoder_no_client_changes_another(tmp_path_factory, size, kind, code, label):
    """Whatever one client writes into its cells, types of columns included."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / "public.csv").write_text(PUBLIC)
    encoder = fit_encoder(folder / "public.csv", **NAMES)
    header = "shop,size,kind,code,bought\n"
    others = "a,1,red,1.50,1\na,2,blue,3,0\nb,3,1,5,1\nb,4,2,1,0\nz,1,red,3,1\n"

    def told(own):
        path = folder / "shops.csv"
        path.write_text(header + others + own)
        found = from_table(path, **NAMES, encoder=encoder, seed=1)
        rows = [part.client(client) for part in (found.train, found.test) for client in (0, 1)]
        return [(np.asarray(each.x), np.asarray(each.y)) for each in rows]

    one, other = told("z,5,blue,3,0\n"), told(f"z,{size},{kind},{code},{label}\n")
    for (x, y), (x_other, y_other) in zip(one, other, strict=True):
        np.testing.assert_array_equal(x, x_other)
        np.testing.assert_array_equal(y, y_other)


def test_a_class_that_the_encoder_does_not_know_is_refused(public, tmp_path):
    path = tmp_path / "shops.csv"
    path.write_text("shop,size,kind,code,bought\na,1,red,01,1\na,2,red,01,perhaps\n")
    with pytest.raises(ValueError, match=r"one of 0, 1, got 'perhaps'\. Leave such rows out"):
        from_table(path, **NAMES, encoder=public)


def test_clients_that_have_no_label_at_all_are_counted(tmp_path):
    path = tmp_path / "shops.csv"
    path.write_text("shop,size,bought\na,1,x\na,2,y\nb,3,\nb,4,\nc,5,x\nc,6,\n")
    federation = from_table(path, **NAMES)
    counts = federation.counts
    assert federation.clients.tolist() == ["a", "c"]
    assert (counts["clients_without_label"], counts["dropped_without_label"]) == (1, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": "place"}, "client must be the encoder's, \\('shop',\\), got \\('place',\\)"),
        ({"features": ["size"]}, r"features must be the encoder's, \['size', 'kind', 'code'\]"),
        ({"regression": True}, "regression must be the encoder's, False, got True"),
    ],
)
def test_what_contradicts_the_encoder_is_refused(public, options, message):
    with pytest.raises(ValueError, match=message):
        from_table("nowhere.csv", **NAMES | {"encoder": public} | options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ["a"]}, "classes must be None or at least 2 names"),
        ({"classes": ["a", "a"]}, "classes must be named once each"),
        ({"columns": [{"name": "size"}]}, "must be what to_json wrote, got: .*missing"),
        ({"columns": 3}, "must be what to_json wrote"),
        ({"unheard": 3}, "must be what to_json wrote, got: .*unheard"),
    ],
)
def test_an_encoder_written_by_hand_is_checked(public, change, message):
    text = json.dumps(json.loads(public.to_json()) | change)
    with pytest.raises(ValueError, match=message):
        Encoder.from_json(text)
    column = json.loads(public.to_json())["columns"][0]
    for wrong in ({"scale": 0}, {"mean": float("nan")}, {"median": "high"}):
        text = json.dumps(json.loads(public.to_json()) | {"columns": [column | wrong]})
        with pytest.raises(ValueError, match="Encoder column 'size': "):
            Encoder.from_json(text)
