"""Screening of wide tables: the columns that say most, by training rows alone."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from fedprior.data.screening import strongest
from fedprior.data.table import fit_encoder, from_table


def explained(column, target):
    """Of the target's squared error, by scikit-learn: the most that one input explains."""
    fits = [LinearRegression().fit(x[:, None], target).predict(x[:, None]) for x in column.T]
    total = np.square(target - target.mean(axis=0)).sum()
    return max(total - np.square(target - fit).sum() for fit in fits)


@pytest.mark.parametrize("quantity", [False, True])
def test_columns_are_ranked_by_what_one_input_explains(quantity):
    draws = np.random.default_rng(0)
    y = draws.normal(size=50) if quantity else draws.integers(3, size=50)
    target = y[:, None] if quantity else np.eye(3)[y]
    columns = [draws.normal(size=(50, inputs)) * 10.0**inputs for inputs in (1, 2, 1, 3, 1)]
    columns[2][:] = 4  # constant
    best = np.argsort([-explained(column, target) for column in columns])
    assert strongest(columns, y, 0) == [best[0]]
    chosen = strongest(columns, y, 4)
    assert best[0] in chosen
    assert sum(columns[place].shape[1] for place in chosen) <= max(4, columns[best[0]].shape[1])
    assert strongest(columns, y, 8) == [0, 1, 2, 3, 4]


def wide(rows=120, width=40, seed=0):
    """A class that follows columns x3 and x7, clients, and a word for each row."""
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(rows, width))
    label = np.where(x[:, 3] - x[:, 7] > 0, "yes", "no")
    columns = {f"x{number}": values for number, values in enumerate(x.T)}
    words = [f"word {number}" for number in range(rows)]
    return {"c": np.arange(rows) % 6, "word": words, **columns, "y": label}


def test_a_wide_table_is_screened_by_its_training_rows():
    source = wide()
    federation = from_table(source, client="c", label="y", most_inputs=2, bins=4)
    assert federation.encoder.features == ["x3", "x7"]
    assert federation.shape == (10,)  # a number and four bins each
    elsewhere = {**source, "x0": np.where(source["y"] == "yes", 1.0, -1.0)}
    training = np.isin(source["x3"], _values(federation, "x3"))
    elsewhere["x0"][training] = source["x0"][training]  # right on all rows but these
    again = from_table(elsewhere, client="c", label="y", most_inputs=2)
    assert again.encoder.features == ["x3", "x7"]
    encoder = fit_encoder(source, client="c", label="y")
    with pytest.raises(ValueError, match="table: most_inputs must be 0 with an encoder, got 4"):
        from_table(source, client="c", label="y", encoder=encoder, most_inputs=4)


def _values(federation, name):
    """The column's values in training rows, as the table has them."""
    source, column = wide(), federation.encoder.columns[federation.encoder.features.index(name)]
    own = column.mean + column.scale * federation.train.x[:, 0]
    nearest = np.abs(source[name][:, None] - own[None]).argmin(axis=0)
    return source[name][nearest]
