"""Tables with a client column: a CSV file, a Parquet file or a data frame to a Federation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.data.cells import MISSING
from fedprior.data.encoder import Encoder, fit_column, refuse_infinite, words_of
from fedprior.data.federation import Federation
from fedprior.data.partition import check_shares, natural, split
from fedprior.data.quantity import check_quantity
from fedprior.data.reader import Columns, Table, names, read
from fedprior.data.scan import need
from fedprior.data.screening import strongest

_MOST_CLASSES = 50  # a numeric label with more distinct values is a quantity, unless said otherwise


def from_table(
    source: Columns | str | Path | Any,
    *,
    client: str | Sequence[str],
    label: str,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    missing: Sequence[str] | None = None,
    regression: bool | None = None,
    encoder: Encoder | None = None,
    bins: int = 0,
    most_inputs: int = 0,
    valid_share: float = 0.15,
    test_share: float = 0.25,
    seed: int = 0,
    name: str = "table",
) -> Federation:
    """Rows grouped by `client`, each client's rows split at random, encoded from training rows.

    `source` is the path of a CSV or Parquet file (or a glob of them), a data frame, or arrays by
    name. Several columns of `client` make one key. Features are all other columns but the excluded
    ones, unless named. `missing` are the words for missing, in place of NA and the like. Rows
    without a label or a client are dropped and counted. A numeric label is a quantity (regression)
    where it has fractions or over 50 distinct values, unless `regression` says otherwise; classes
    are the sorted labels of all rows kept. A number becomes one input or, with `bins`, further
    ones: its piecewise-linear encoding over that many bins, each with as many training rows. With
    `most_inputs`, features are those columns that say most about the label in training rows, each
    by itself, which have that many inputs together, not counting bins.

    With an `encoder` nothing is fitted: features, classes, words for missing and the kind of target
    are its own, each row is encoded by itself alone, and a label that it does not know is refused.

    An encoder of the clients' own rows, and clients that are left out for want of a label, are
    noted in `fitted`: private runs refuse them.

    The federation carries the `encoder`, `counts` (`rows`, `rows_used`, `dropped_without_client`,
    `dropped_without_label`, `clients_without_label`) and `remarks` on what was read and why.
    """
    check_shares("table", valid_share, test_share)
    seed = check.seed("table", seed)
    check.count("table", least=0, bins=bins, most_inputs=most_inputs)
    clients = _listed(client)
    if encoder is not None:
        remedy = "It has the columns and the bins that it was fitted with."
        for option, value in (("bins", bins), ("most_inputs", most_inputs)):
            check.require(not value, "table", option, "0 with an encoder", value, remedy)
        features = _agreed(encoder, clients, label, features, regression)
        missing = encoder.missing
    table = read(
        source,
        key=clients,
        wanted=None if features is None else [label, *_listed(features)],
        exclude=exclude,
        kinds=None if encoder is None else encoder.kinds,
        missing=missing,
    )
    inputs = _choose(table, clients, label, features)
    refuse_infinite(table)
    words, kept, counts = _keep(table, label)
    parts = split(natural(words), valid_share, test_share, seed=seed)
    if encoder is None:
        train = np.sort(np.concatenate([part[0] for part in parts]))
        fit = partial(_fit, kept, clients, label)
        encoder, reason = fit(inputs, regression, train, missing, 0 if most_inputs else bins)
        if most_inputs:
            inputs = _strongest(encoder, kept, train, most_inputs)
            encoder, _ = fit(inputs, regression, train, missing, bins)
    else:
        kind = "a quantity" if encoder.regression else "a class"
        reason = f"Label {label!r} is {kind} by the encoder that was given."
    x, y = encoder.inputs(kept.columns), encoder.targets(kept.columns[label], table.source)
    return Federation.gather(
        x,
        y,
        parts,
        clients=np.unique(words),
        classes=encoder.classes,
        name=name,
        encoder=encoder,
        fitted=_fitted(encoder, counts),
        counts=counts,
        remarks=(reason, *_dropped(counts), *table.remarks(inputs)),
    )


def from_frame(
    frame: Any, *, client: str | Sequence[str], label: str, **options: Any
) -> Federation:
    """`from_table` for a data frame: of pandas or polars, or any other that exports Arrow data."""
    return from_table(frame, client=client, label=label, **options)


def fit_encoder(
    source: Columns | str | Path | Any,
    *,
    client: str | Sequence[str],
    label: str,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    missing: Sequence[str] | None = None,
    regression: bool | None = None,
    bins: int = 0,
) -> Encoder:
    """The encoder of all rows of `source` that have a label: for a sample that is public.

    Everything in it (means, scales, medians, bins, words, classes) tells of the rows. `client` are
    the columns that name clients in the tables to be encoded; the sample need not have them. `bins`
    are those of `from_table`.
    """
    check.count("table", least=0, bins=bins)
    clients = _listed(client)
    wanted = None if features is None else [label, *_listed(features)]
    table = read(source, wanted=wanted, exclude=exclude, missing=missing)
    inputs = _choose(table, clients, label, features)
    refuse_infinite(table)
    keep = ~np.ma.getmaskarray(table.columns[label])
    check.require(bool(keep.any()), table.source, "number of rows with a label", "at least 1", 0)
    everyone = np.arange(int(keep.sum()))
    own = _rows(table, keep)
    encoder = _fit(own, clients, label, inputs, regression, everyone, missing, bins)[0]
    return replace(encoder, rows="public")


def encode_rows(
    encoder: Encoder, source: Columns | str | Path | Any, *, named: bool = True
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """(x, y, client names) of new rows, every row kept and in its order.

    y is None where the table has no label column; a missing label is -1, or NaN in regression.
    Without `named` no column for the client is read, and all names are empty.
    """
    return encoded(encoder, new_rows(encoder, source, named=named))


def new_rows(encoder: Encoder, source: Columns | str | Path | Any, *, named: bool = True) -> Table:
    """What `encode_rows` encodes: cells as the encoder reads them."""
    return read(
        source,
        key=encoder.client if named else (),
        wanted=encoder.features,
        optional=[encoder.label],
        kinds=encoder.kinds,
        missing=encoder.missing,
    )


def encoded(encoder: Encoder, table: Table) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """(x, y, client names) of the `new_rows`."""
    refuse_infinite(table)
    labels = table.columns.get(encoder.label)
    y = None if labels is None else encoder.targets(labels, table.source)
    x = encoder.inputs(table.columns)
    if table.key is None:
        return x, y, np.full(len(x), "")
    clients = np.ma.MaskedArray(table.key)
    missing = np.flatnonzero(np.ma.getmaskarray(clients))
    if len(missing):
        shown = " and ".join(map(repr, encoder.client))
        rows = f"{len(missing)} row" + "s" * (len(missing) > 1)
        raise ValueError(
            f"{table.source}: {shown} must name the client of every row, got none in row "
            f"{missing[0] + 1} ({rows} in all). Remove such rows."
        )
    return x, y, names(clients)


def _fit(
    kept: Table,
    clients: tuple[str, ...],
    label: str,
    inputs: list[str],
    regression: bool | None,
    train: np.ndarray,
    missing: Sequence[str] | None,
    bins: int,
) -> tuple[Encoder, str]:
    """The encoder of the rows `train`, and why its target is of the kind it is."""
    is_quantity, reason = _target(kept, label, regression)
    encoder = Encoder(
        client=clients,
        label=label,
        columns=tuple(fit_column(kept, each, train, bins=bins) for each in inputs),
        classes=None if is_quantity else _classes(kept, label),
        missing=MISSING if missing is None else tuple(missing),
    )
    rule = "at least 1"
    check.require(len(encoder.feature_names) > 0, kept.source, "number of inputs", rule, 0)
    return encoder, reason


def _strongest(encoder: Encoder, table: Table, train: np.ndarray, most: int) -> list[str]:
    """The features that say most about the label in the rows `train`, of at most `most` inputs."""
    columns = [each.encode(table.columns[each.name][train]) for each in encoder.columns]
    y = encoder.targets(table.columns[encoder.label][train])
    return [encoder.features[place] for place in strongest(columns, y, most)]


def _fitted(encoder: Encoder, counts: Mapping[str, int]) -> tuple[str, ...]:
    """What of the federation tells of its clients' rows."""
    fitted = []
    if encoder.rows != "public":
        fitted.append(
            "the encoder (write one from public rows with `fedprior encoder` or fit_encoder)"
        )
    if counts["clients_without_label"]:
        fitted.append("who takes part (every client must have a row with a label)")
    return tuple(fitted)


def _agreed(
    encoder: Encoder,
    clients: tuple[str, ...],
    label: str,
    features: Sequence[str] | None,
    regression: bool | None,
) -> list[str]:
    """The encoder's features, where nothing else that was asked for contradicts it."""
    given: dict[str, Any] = {"client": clients, "label": label}
    if features is not None:
        given["features"] = list(_listed(features))
    if regression is not None:
        given["regression"] = regression
    for name, value in given.items():
        own = getattr(encoder, name)
        check.require(value == own, "table", name, f"the encoder's, {own!r}", value)
    return encoder.features


def _choose(
    table: Table, clients: tuple[str, ...], label: str, features: Sequence[str] | None
) -> list[str]:
    """The feature columns, checked: they exist, and neither client nor label is among them."""
    check.require(
        label not in clients, table.source, "label", "another column than the client", label
    )
    keys = () if table.key is None else clients
    need([*keys, *table.columns], [label], owner=table.source)
    if features is None:
        inputs = [each for each in table.columns if each not in (*clients, label)]
    else:
        inputs = list(_listed(features))
    for each in inputs:
        rule = "neither the client nor the label"
        check.require(each not in (*clients, label), table.source, "each feature", rule, each)
        check.require(inputs.count(each) == 1, table.source, "each feature", "named once", each)
    check.require(len(inputs) > 0, table.source, "number of features", "at least 1", 0)
    return inputs


def _listed(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _rows(table: Table, keep: np.ndarray) -> Table:
    columns = {each: values[keep] for each, values in table.columns.items()}
    return Table(columns=columns, kinds=table.kinds, source=table.source)


def _keep(table: Table, label: str) -> tuple[np.ndarray, Table, dict[str, int]]:
    """Client names of the rows that have a client and a label, those rows, and the other rows."""
    clients = np.ma.MaskedArray(table.key)
    no_client = np.ma.getmaskarray(clients)
    no_label = np.ma.getmaskarray(table.columns[label]) & ~no_client
    keep = ~no_client & ~no_label
    words = names(clients)
    counts = {
        "rows": len(keep),
        "rows_used": int(keep.sum()),
        "dropped_without_client": int(no_client.sum()),
        "dropped_without_label": int(no_label.sum()),
        "clients_without_label": len(np.unique(words[~no_client])) - len(np.unique(words[keep])),
    }
    rule = "at least 1"
    check.require(bool(keep.any()), table.source, "number of rows with client and label", rule, 0)
    return words[keep], _rows(table, keep), counts


def _dropped(counts: dict[str, int]) -> list[str]:
    return [
        f"{dropped} of {counts['rows']} rows dropped: no {what}."
        for what in ("client", "label")
        if (dropped := counts[f"dropped_without_{what}"])
    ]


def _target(kept: Table, label: str, regression: bool | None) -> tuple[bool, str]:
    """Whether the label is a quantity, and the sentence that says why."""
    values, kind = kept.columns[label], kept.kinds[label].kind
    title, remedy = f"label {label!r}", "Turn it into a number first."
    check.require(kind != "date", kept.source, title, "numbers or classes", "dates", remedy)
    if regression is not None:
        fits = not regression or kind == "number"
        check.require(fits, kept.source, title, "numeric for regression", kind)
        reason = f"Label {label!r} is {'a quantity' if regression else 'a class'}: {regression=}."
    elif kind != "number":
        regression, reason = False, f"Label {label!r} is a class: it is not numeric."
        number, rows = len(np.unique(words_of(values))), len(values)
        if number > max(_MOST_CLASSES, rows / 2):
            reason += f" It has {number} classes in {rows} rows: hardly any can be learned."
    else:
        distinct = len(np.unique(values.data))
        fractions = bool((values.data != np.rint(values.data)).any())
        regression = fractions or distinct > _MOST_CLASSES
        other = "to take it as classes" if regression else "to take it as a quantity"
        reason = (
            f"Label {label!r} has {'fractions and ' * fractions}{distinct} distinct values; pass "
            f"regression={not regression} (--set data.options.regression="
            f"{str(not regression).lower()}) {other}."
        )
    if regression:
        check_quantity(kept.source, title, values.data)
    return regression, reason


def _classes(kept: Table, label: str) -> tuple[str, ...]:
    """Sorted labels: numbers by size, words by alphabet."""
    values, title = kept.columns[label], f"classes of label {label!r}"
    _, first = np.unique(values.data, return_index=True)
    classes = tuple(words_of(values)[first].tolist())
    check.require(len(classes) >= 2, kept.source, title, "at least 2", classes)
    return classes
