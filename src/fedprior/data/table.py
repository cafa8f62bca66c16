"""Tables with a client column: CSV, Parquet or data frame to a Federation and its Encoder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.data.columns import Columns, as_columns, names, need, read_table
from fedprior.data.encoder import Category, Encoder, Numeric, fit_column, refuse_nonfinite
from fedprior.data.federation import Federation, Split, check_shares, split_rows
from fedprior.data.partition import natural

__all__ = [
    "Category",
    "Encoder",
    "Numeric",
    "encode_rows",
    "federation_from_table",
    "fit_encoder",
    "from_frame",
    "read_table",
]

_MOST_CLASSES = 50  # a numeric label with more distinct values is a quantity, unless said otherwise


def federation_from_table(
    source: Columns | str | Path | Any,
    *,
    client: str,
    label: str,
    features: Sequence[str] | None = None,
    regression: bool | None = None,
    encoder: Encoder | None = None,
    valid_share: float = 0.15,
    test_share: float = 0.25,
    seed: int = 0,
    name: str = "table",
) -> tuple[Federation, Encoder, dict[str, Any]]:
    """Rows grouped by `client`, each client's rows split at random, encoded from training rows.

    `source` is columns, the path of a CSV or Parquet file, or a data frame. Features are all other
    columns unless named. Rows without a label or a client are dropped and counted. A numeric label
    is a quantity (regression) where it has fractions or over 50 distinct values, unless
    `regression` says otherwise; classes are the sorted labels of all rows kept.

    With an `encoder` nothing is fitted: features, classes and the kind of target are its own, each
    row is encoded by itself alone, and a label that it does not know is refused.

    The dictionary holds `rows`, `rows_used`, `dropped_without_client`, `dropped_without_label`,
    `clients_without_label`, `target` ("classification" or "regression") and `reason`, a sentence
    that says why.
    """
    check_shares("table", valid_share, test_share)
    seed = check.seed("table", seed)
    if encoder is not None:
        features = _agreed(encoder, client, label, features, regression)
    wanted = None if features is None else [client, label, *_listed(features)]
    columns = as_columns(source, wanted=wanted, text=[client, *_spelled_out(encoder)])
    need(columns, [client, label], owner="table")
    inputs = _choose(columns, client, label, features)
    refuse_nonfinite(columns)
    kept, counts = _keep(columns, client, label)
    words = names(kept[client])
    parts = [
        split_rows(rows, valid_share, test_share, seed=seed, client=number)
        for number, rows in enumerate(natural(words))
    ]
    if encoder is None:
        train = np.sort(np.concatenate([part[0] for part in parts]))
        encoder, counts["reason"] = _fit(kept, client, label, inputs, regression, train)
    else:
        kind = "a quantity" if encoder.regression else "a class"
        counts["reason"] = f"Label {label!r} is {kind} by the encoder that was given."
    counts["target"] = "regression" if encoder.regression else "classification"
    x, y = encoder.inputs(kept), encoder.targets(kept[label])
    splits = [Split.gather(x, y, [part[k] for part in parts]) for k in range(3)]
    federation = Federation(
        train=splits[0],
        valid=splits[1],
        test=splits[2],
        clients=np.unique(words),
        classes=encoder.classes,
        name=name,
    )
    return federation, encoder, counts


def fit_encoder(
    source: Columns | str | Path | Any,
    *,
    client: str,
    label: str,
    features: Sequence[str] | None = None,
    regression: bool | None = None,
) -> Encoder:
    """The encoder of all rows of `source` that have a label: for a sample that is public.

    Everything in it (means, scales, medians, words, classes) tells of the rows. `client` is the
    column that names clients in the tables to be encoded; the sample need not have it.
    """
    wanted = None if features is None else [label, *_listed(features)]
    columns = as_columns(source, wanted=wanted, optional=[client], text=[client])
    need(columns, [label], owner="table")
    inputs = _choose(columns, client, label, features)
    refuse_nonfinite(columns)
    keep = ~np.ma.getmaskarray(columns[label])
    check.require(bool(keep.any()), "table", "number of rows with a label", "at least 1", 0)
    kept = {each: values[keep] for each, values in columns.items()}
    everyone = np.arange(int(keep.sum()))
    return _fit(kept, client, label, inputs, regression, everyone)[0]


def from_frame(
    frame: Any, *, client: str, label: str, **options: Any
) -> tuple[Federation, Encoder, dict[str, Any]]:
    """`federation_from_table` for a pandas (or like) data frame, in which NaN means missing."""
    return federation_from_table(frame, client=client, label=label, **options)


def encode_rows(
    encoder: Encoder, source: Columns | str | Path | Any
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """(x, y, client names) of new rows, every row kept and in its order.

    y is None where the table has no label column; a missing label is -1, or NaN in regression.
    """
    wanted = [encoder.client, *encoder.features]
    text = [encoder.client, *_spelled_out(encoder)]
    columns = as_columns(source, wanted=wanted, optional=[encoder.label], text=text)
    refuse_nonfinite(columns)
    missing = np.flatnonzero(np.ma.getmaskarray(columns[encoder.client]))
    if len(missing):
        raise ValueError(
            f"table: column {encoder.client!r} must name a client in every row, got none in row "
            f"{missing[0] + 1} ({len(missing)} such rows). Leave such rows out."
        )
    y = encoder.targets(columns[encoder.label]) if encoder.label in columns else None
    return encoder.inputs(columns), y, names(columns[encoder.client])


def _fit(
    kept: Columns,
    client: str,
    label: str,
    inputs: list[str],
    regression: bool | None,
    train: np.ndarray,
) -> tuple[Encoder, str]:
    """The encoder of the rows `train`, and why its target is of the kind it is."""
    is_quantity, reason = _target(label, kept[label], regression)
    encoder = Encoder(
        client=client,
        label=label,
        columns=tuple(fit_column(each, kept[each], train) for each in inputs),
        classes=None if is_quantity else _classes(label, kept[label]),
    )
    rule = "at least 1"
    check.require(len(encoder.feature_names) > 0, "table", "number of inputs", rule, 0)
    return encoder, reason


def _agreed(
    encoder: Encoder,
    client: str,
    label: str,
    features: Sequence[str] | None,
    regression: bool | None,
) -> list[str]:
    """The encoder's features, where nothing else that was asked for contradicts it."""
    for name, given in (("client", client), ("label", label)):
        rule = f"the encoder's, {getattr(encoder, name)!r}"
        check.require(given == getattr(encoder, name), "table", name, rule, given)
    if features is not None:
        rule = f"the encoder's, {encoder.features}"
        same = _listed(features) == encoder.features
        check.require(same, "table", "features", rule, _listed(features))
    if regression is not None:
        rule = f"the encoder's, {encoder.regression}"
        check.require(regression == encoder.regression, "table", "regression", rule, regression)
    return encoder.features


def _spelled_out(encoder: Encoder | None) -> list[str]:
    """Columns whose cells an encoder takes as words, to be read as they stand.

    The type of a CSV column is inferred from all of its cells: one client's could change others'.
    """
    if encoder is None:
        return []
    words = [each.name for each in encoder.columns if isinstance(each, Category)]
    return words if encoder.regression else [*words, encoder.label]


def _choose(columns: Columns, client: str, label: str, features: Sequence[str] | None) -> list[str]:
    """The feature columns, checked: they exist, and neither client nor label is among them."""
    check.require(client != label, "table", "label", "another column than the client", label)
    if features is None:
        inputs = [each for each in columns if each not in (client, label)]
    else:
        inputs = _listed(features)
    need(columns, inputs, owner="table")
    for each in inputs:
        rule = "neither the client nor the label"
        check.require(each not in (client, label), "table", "each feature", rule, each)
        check.require(inputs.count(each) == 1, "table", "each feature", "named once", each)
    check.require(len(inputs) > 0, "table", "number of features", "at least 1", 0)
    return inputs


def _listed(features: Sequence[str]) -> list[str]:
    return [features] if isinstance(features, str) else list(features)


def _keep(columns: Columns, client: str, label: str) -> tuple[Columns, dict[str, Any]]:
    """Rows that have a client and a label, and how many have not."""
    no_client = np.ma.getmaskarray(columns[client])
    no_label = np.ma.getmaskarray(columns[label]) & ~no_client
    keep = ~no_client & ~no_label
    words = names(columns[client])
    counts: dict[str, Any] = {
        "rows": len(keep),
        "rows_used": int(keep.sum()),
        "dropped_without_client": int(no_client.sum()),
        "dropped_without_label": int(no_label.sum()),
        "clients_without_label": len(np.unique(words[~no_client])) - len(np.unique(words[keep])),
    }
    rule = "at least 1"
    check.require(bool(keep.any()), "table", "number of rows with client and label", rule, 0)
    return {each: values[keep] for each, values in columns.items()}, counts


def _target(label: str, values: np.ma.MaskedArray, regression: bool | None) -> tuple[bool, str]:
    """Whether the label is a quantity, and the sentence that says why."""
    kind = values.dtype.kind
    distinct = len(np.unique(values.data))
    if regression is not None:
        if regression and kind not in "iuf":
            rule = "numeric for regression"
            check.require(False, "table", f"label {label!r}", rule, str(values.dtype))
        return regression, f"Asked for: regression={regression}."
    if kind not in "iuf":
        return False, f"Label {label!r} is not numeric."
    fractions = kind == "f" and bool((values.data != np.rint(values.data)).any())
    found = f"Label {label!r} has {'fractions and ' * fractions}{distinct} distinct values"
    if fractions or distinct > _MOST_CLASSES:
        return True, f"{found}; pass regression=False to take them as classes."
    return False, f"{found}; pass regression=True to take it as a quantity."


def _classes(label: str, values: np.ma.MaskedArray) -> tuple[str, ...]:
    """Sorted labels: numbers by size, words by alphabet."""
    _, first = np.unique(values.data, return_index=True)
    found = tuple(names(values)[first].tolist())
    check.require(len(found) >= 2, "table", f"classes of label {label!r}", "at least 2", found)
    return found
