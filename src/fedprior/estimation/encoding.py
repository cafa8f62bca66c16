"""`from_table` and `encode`: a fitted model beside the rows of a frame, wherever they are."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from fedprior.core import check
from fedprior.data import frames
from fedprior.data.arrow import Frame
from fedprior.data.warehouse.engine import narwhals, wrap
from fedprior.data.warehouse.roles import Roles
from fedprior.estimation.in_engine import Answers, fit_frame, fit_sums


class OnFrames:
    """What an estimator does with frames; one in memory is fitted as its columns would be."""

    _answers: Answers | None = None
    _roles: Roles | None = None

    def encode(
        self, frame: Any, *, group: Any = None, name: str = "personal", fold: str | None = None
    ) -> Any:
        """Return the frame with a column `name`: each row's group as its personal estimate.

        A left join in the frame's own engine. `group` is the column of labels, that of
        `from_table` unless given. An unseen or missing group gets the population's mean, or, where
        the population depends on size, that of the smallest groups. With `fold`, a column, each
        row is encoded by a model of the rows of all other folds; the frame then needs the columns
        of `from_table`.
        """
        owner = type(self).__name__
        sentence = "encode needs a model by from_table."
        check.expect(self._roles is not None, owner, sentence)
        roles, frame = _renamed(self._roles, group), _known(frame)
        if _is_eager(frame):
            return _encode_eager(self, frame, roles, name, fold)
        check.expect(self._answers is not None, owner, _OTHER)
        return _encode_lazy(self, frame, roles, name, fold)

    def write_table(self, table: str, *, overwrite: bool = False) -> None:
        """Write the answers to a table of the engine's database.

        With `overwrite` they replace a table that is there, but never the rows that were read: in
        DuckDB and Spark only a table of earlier answers, with the same columns, is replaced.
        """
        owner = type(self).__name__
        sentence = "write_table needs a model by from_table of a database. Use to_frame()."
        answers = self._answers
        if answers is None:
            raise ValueError(f"{owner}: {sentence}")
        answers.sums.engine.write(answers.named(), table, replace=overwrite)

    def _fit_table(self, frame: Any, group: Any, **columns: str | None) -> Self:
        roles = Roles(group=(group,) if isinstance(group, str) else tuple(group), **columns)
        frame = _known(frame)
        if not _is_eager(frame):
            return fit_frame(self, frame, roles)
        _check_eager(type(self).__name__, frame, roles, roles.numbers.values())
        _fit_eager(self, frame, roles, slice(None))
        self._roles = roles
        return self


_OTHER = "frame must be of the engine that the model was fitted in."


def _renamed(roles: Any, group: Any) -> Roles:
    if group is None:
        return roles
    return replace(roles, group=(group,) if isinstance(group, str) else tuple(group))


def _known(frame: Any) -> Any:
    """A frame of a library that is known here; the columns of one that only exports Arrow data."""
    frame = frames.unwrapped(frame)
    engines = ("duckdb", "_duckdb", "pyspark", "ibis", *frames.NATIVE)
    known = frames.library(frame) in engines or hasattr(frame, "column_names")
    return frame if known else frames.taken(frame)


def _is_eager(frame: Any) -> bool:
    if isinstance(frame, Frame):
        return True
    library = type(frame).__module__.partition(".")[0]
    tables = ("DataFrame", "Table")
    return library in ("pandas", "polars", "pyarrow") and type(frame).__name__ in tables


def _check_eager(owner: str, frame: Any, roles: Roles, others: Iterable[str]) -> None:
    remedy = "For groups within groups, join their labels into one column."
    one = len(roles.group) == 1
    check.require(one, owner, "group", "one column of labels", list(roles.group), remedy)
    known = frames.column_names(frame) or []
    for name in (*roles.group, *others):
        rule = f"one of {', '.join(known)}"
        check.require(name in known, owner, "column", rule, name, check.nearest(name, known))


def _fit_eager(model: Any, frame: Any, roles: Roles, rows: Any) -> None:
    """The columns of a frame in memory, as `fit` and `fit_counts` take them."""

    def column(name: str | None) -> Any:
        found = None if name is None else frame[name]
        if found is None or isinstance(rows, slice):
            return found
        return found[rows] if isinstance(frame, Frame) else found.filter(rows)

    if not isinstance(rows, slice) and type(frame).__module__.startswith("pandas"):
        frame, rows = frame[rows], slice(None)
    groups = column(roles.group[0])
    if roles.successes is not None:
        model.fit_counts(column(roles.successes), column(roles.trials), groups)
    elif roles.events is not None:
        model.fit(column(roles.events), groups, exposure=column(roles.exposure))
    elif roles.outcome is not None:
        model.fit(column(roles.outcome), groups)
    else:
        model.fit(column(roles.value), groups, standard_errors=column(roles.stderr))


def _encode_eager(model: Any, frame: Any, roles: Roles, name: str, fold: str | None) -> Any:
    owner = type(model).__name__
    others = () if fold is None else (fold, *roles.numbers.values())
    _check_eager(owner, frame, roles, others)
    _check_new(owner, name, frames.column_names(frame))
    labels = frame[roles.group[0]]
    if fold is None:
        values = np.asarray(model.predict(labels), np.float64)
    else:
        folds = np.asarray(frame[fold])
        values = np.empty(len(folds))
        for each in _folds(owner, list(dict.fromkeys(folds.tolist()))):
            out = folds == each
            other = clone(model)
            _fit_eager(other, frame, roles, ~out)
            values[out] = other.predict(labels)[out]
    return _with_column(frame, name, values)


def _with_column(frame: Any, name: str, values: np.ndarray) -> Any:
    if isinstance(frame, Frame):
        return {**frame, name: values}
    library = type(frame).__module__.partition(".")[0]
    if library == "pandas":
        return frame.assign(**{name: values})
    if library == "polars":
        import polars

        return frame.with_columns(polars.Series(name, values))
    return frame.append_column(name, [values])


def _encode_lazy(model: Any, frame: Any, roles: Roles, name: str, fold: str | None) -> Any:
    owner, nw = type(model).__name__, narwhals(type(model).__name__)
    answers: Answers = model._answers
    same = (
        type(frame).__module__.partition(".")[0]
        == (type(answers.sums.frame.to_native()).__module__.partition(".")[0])
    )
    if not same:
        got = f"{type(frame).__module__}.{type(frame).__qualname__}"
        raise TypeError(f"{owner}: {_OTHER} Got {got}.")
    wrapped = wrap(owner, frame)
    columns = wrapped.collect_schema().names()
    _check_new(owner, name, columns)
    if fold is None:
        found = answers.frame.select(*answers.sums.keys, nw.col("personal").alias(name))
        keys, unseen = [*answers.sums.keys], nw.lit(_unseen(model))
        joined = wrapped.join(found, left_on=list(roles.group), right_on=keys, how="left")
        return joined.select(*columns, nw.coalesce(nw.col(name), unseen).alias(name)).to_native()
    found, rest = _out_of_fold(model, frame, roles, fold, name)
    joined = wrapped.join(found, left_on=[*roles.group, fold], right_on=_keys(roles), how="left")
    joined = joined.join(rest, left_on=fold, right_on="key_fold", how="left")
    filled = nw.coalesce(nw.col(name), nw.col("fedprior_unseen")).alias(name)
    return joined.select(*columns, filled).to_native()


def _keys(roles: Roles) -> list[str]:
    return [*(f"key_{number}" for number in range(len(roles.group))), "key_fold"]


def _out_of_fold(model: Any, frame: Any, roles: Roles, fold: str, name: str) -> tuple[Any, Any]:
    """Encodings by key and fold, and each fold's number for unseen groups."""
    owner, nw = type(model).__name__, narwhals(type(model).__name__)
    from fedprior.data.warehouse.folds import sum_folds, without_fold

    sums, parts = sum_folds(owner, frame, roles, fold)
    kept, unseen = [], []
    for part in parts:
        other = fit_sums(clone(model), without_fold(sums, part))
        found = other._answers.frame.select(
            *other._answers.sums.keys,
            nw.lit(part).alias("key_fold"),
            nw.col("personal").alias(name),
        )
        kept.append(found)
        unseen.append(_unseen(other))
    numbers = {"key_fold": np.array(parts), "fedprior_unseen": np.array(unseen)}
    return nw.concat(kept), sums.engine.upload(numbers)


def _unseen(model: Any) -> float:
    """The number of a group without rows, as `predict` has it."""
    population = model.population_
    return float(model._newcomer()[0] if population.varies else population.mean)


def _folds(owner: str, parts: list[Any]) -> list[Any]:
    missing = any(part is None or part != part for part in parts)
    check.expect(not missing, owner, "fold must be given in every row.")
    rule = "at least 2 different ones"
    check.require(len(parts) > 1, owner, "folds", rule, parts)
    return parts


def _check_new(owner: str, name: str, columns: Any) -> None:
    rule, remedy = "a new column", "Give another name."
    check.require(name not in list(columns), owner, "name", rule, name, remedy)
