"""Boosting on the rows of a federation: columns as they are, and clients with next to nothing."""

import numpy as np
import pytest

from fedprior.data.table import from_table
from fedprior.reporting import federations, train
from fedprior.reporting.boosting import KINDS, boosted, boosting, columns, measured
from fedprior.reporting.config import read


def table(rows=30, clients=4, seed=0, quantity=False):
    """What is right for one half of the clients is wrong for the other; some cells are missing."""
    draws = np.random.default_rng(seed)
    client = np.repeat(np.arange(clients), rows)
    x = draws.normal(size=len(client))
    sign = np.where(client % 2, 1, -1)
    label = 3.0 * sign * (x > 0) if quantity else np.where(sign * x > 0, "yes", "no")
    gaps = draws.random(len(x)) < 0.1
    word = np.ma.MaskedArray(draws.choice(["red", "blue"], len(x)), draws.random(len(x)) < 0.1)
    return {"c": client, "x": np.ma.MaskedArray(x, gaps), "w": word, "y": label}


@pytest.mark.parametrize("bins", [0, 4])
def test_trees_see_the_columns_of_the_table(bins):
    source = table()
    federation = from_table(source, client="c", label="y", bins=bins)
    encoder = federation.encoder
    found, categories = columns(encoder, encoder.inputs({name: source[name] for name in "xw"}))
    assert categories == [False, True]
    scaled = (source["x"] - encoder.columns[0].mean) / encoder.columns[0].scale
    np.testing.assert_allclose(found[:, 0], scaled.filled(np.nan), atol=1e-6)
    codes = np.where(source["w"] == "red", 1.0, 0.0)
    np.testing.assert_array_equal(found[:, 1], np.where(source["w"].mask, np.nan, codes))


@pytest.mark.parametrize("quantity", [False, True])
def test_columns_that_a_client_never_measured(quantity):
    """Alone, it has no cell of the number and of the word; all of its trees leave them out."""
    source = table(quantity=quantity)
    own = source["c"] == 2
    for name in "xw":
        source[name] = np.ma.MaskedArray(source[name], np.ma.getmaskarray(source[name]) | own)
    federation = from_table(source, client="c", label="y", regression=quantity)
    for kind in KINDS:
        assert np.isfinite(boosting(federation, kind)).all()


@pytest.mark.parametrize("quantity", [False, True])
def test_the_id_tells_what_rows_alone_do_not(quantity):
    federation = from_table(table(quantity=quantity), client="c", label="y", regression=quantity)
    found = boosted(federation, seed=0)
    assert tuple(found) == KINDS
    values = {
        kind: each.overall["rmse" if quantity else "accuracy"] for kind, each in found.items()
    }
    alone, pooled, with_id = values.values()
    if quantity:
        assert with_id < pooled - 0.5
        assert alone < pooled - 0.5
    else:
        assert with_id > pooled + 0.2
        assert alone > pooled + 0.2


def test_trees_see_columns_that_a_run_leaves_out(tmp_path, monkeypatch):
    source = table()
    names = list(source)
    rows = zip(*(np.ma.filled(source[name].astype(str), "") for name in names), strict=True)
    file = tmp_path / "table.csv"
    file.write_text("\n".join([",".join(names), *map(",".join, rows)]))
    given = (f'path="{file}"', 'client=["c"]', 'label="y"', "most_inputs=1")
    config = read(None, [f"data.{each}" for each in given])
    clients = federations.federation(config.data, seed=3)
    assert len(clients.encoder.features) == 1
    seen = []
    monkeypatch.setattr(train, "boosted", lambda clients, *, seed: seen.append(clients))
    train._boosted(config, clients, 3)
    assert seen[0].encoder.features == ["x", "w"]
    np.testing.assert_array_equal(seen[0].test.y, clients.test.y)


def test_clients_with_next_to_nothing():
    """One class, three rows, one row, a class that only others know: no prediction is certain."""
    source = table(rows=20, clients=3)
    few = {"c": [7] * 12 + [8] * 3 + [9], "x": np.linspace(-1, 1, 16), "w": ["red"] * 16}
    few["y"] = ["no"] * 12 + ["no", "yes", "maybe"] + ["yes"]
    together = {name: np.ma.concatenate([source[name], np.asarray(few[name])]) for name in source}
    federation = from_table(together, client="c", label="y")
    for kind in KINDS:
        predictions = boosting(federation, kind)
        np.testing.assert_allclose(predictions.sum(axis=1), 1)
        assert np.isfinite(measured(federation, predictions).overall["log_loss"])
    alone = boosting(federation, "boosting-alone")
    first = federation.test.start[3]
    classes = federation.classes
    assert alone[first, classes.index("no")] == pytest.approx(
        1 - 1 / (1 + federation.train.size[3])
    )
    with pytest.raises(ValueError, match="boosting: kind must be one of"):
        boosting(federation, "forest")
