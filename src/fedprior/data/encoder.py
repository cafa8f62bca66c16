"""The Encoder: how the columns of a table become features.

Its words and the number of its inputs come from all rows, so that they do not depend on how rows
are split; means, scales and medians come from training rows only.
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from fedprior.core import check, formats
from fedprior.data.cells import MISSING, Kind
from fedprior.data.reader import Columns, Table, names
from fedprior.data.scan import need

FORMAT = formats.NUMBERS["encoder"]
_FARTHEST = 1e18  # standard deviations, beyond which squares overflow 32 bits
_MOST_CATEGORIES = 1000  # more distinct words than this is a key or free text, not a category


@dataclass(frozen=True, kw_only=True)
class Numeric:
    """z = (value - mean) / scale, missing read as `median`; then the indicator of missing, if any.

    There is an indicator where a cell is missing in any row. `form` says how the cells of a file
    are written, as in `cells.Column`. Between them stands the piecewise-linear encoding of
    Gorishniy et al. (2022), a coordinate for each pair of neighboring `knots` a < b: -1 up to a,
    1 from b on, and linear between them.
    """

    name: str
    mean: float
    scale: float
    median: float
    indicator: bool
    form: str = ""
    knots: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        owner = f"Encoder column {self.name!r}"
        check.positive(owner, scale=self.scale)
        rising = all(_is_finite(knot) for knot in self.knots) and bool(
            (np.diff(np.asarray(self.knots, np.float64)) > 0).all()
        )
        rule = "finite and rising"
        check.require(rising and len(self.knots) != 1, owner, "knots", rule, self.knots)
        for name in ("mean", "median"):
            value = getattr(self, name)
            rule = "a finite number"
            check.require(_is_finite(value), owner, name, rule, value)

    def labels(self) -> list[str]:
        pairs = zip(self.knots, self.knots[1:], strict=False)
        bins = [f"{self.name} from {low:.6g} to {high:.6g}" for low, high in pairs]
        return [self.name, *bins] + [f"{self.name} missing"] * self.indicator

    def encode(self, values: np.ma.MaskedArray) -> np.ndarray:
        missing = np.ma.getmaskarray(values)
        filled = np.where(missing, self.median, values.data.astype(np.float64))
        parts = [(filled - self.mean) / self.scale]
        far = np.flatnonzero(np.abs(parts[0]) > _FARTHEST)
        if len(far):
            rule = f"at most {_FARTHEST:g} standard deviations from the mean, {self.mean:.6g}"
            remedy = f"See row {far[0] + 1}. Leave the cell empty where it is unknown."
            value = float(filled[far[0]])
            raise ValueError(check.message("table", f"column {self.name!r}", rule, value, remedy))
        if self.knots:
            low, width = np.array(self.knots[:-1]), np.diff(self.knots)
            parts.extend((2 * np.clip((filled[:, None] - low) / width, 0, 1) - 1).T)
        return np.stack(parts + [missing] * self.indicator, axis=1).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Category:
    """One coordinate per category: 1 where the cell is that word, 0 if it is unknown or missing."""

    name: str
    categories: tuple[str, ...]

    def labels(self) -> list[str]:
        return [f"{self.name}={word}" for word in self.categories]

    def encode(self, values: np.ma.MaskedArray) -> np.ndarray:
        words = np.array(self.categories, str)  # of type text even where there is none
        is_word = _spelled(words_of(values), self.categories)[:, None] == words[None, :]
        return (is_word & ~np.ma.getmaskarray(values)[:, None]).astype(np.float32)

    def unknown(self, values: np.ma.MaskedArray) -> list[str]:
        """Words that are none of the categories, in order."""
        words = words_of(values)[~np.ma.getmaskarray(values)]
        found: list[str] = np.setdiff1d(_spelled(words, self.categories), self.categories).tolist()
        return found


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """x = the encoded feature columns side by side; y = the label's code, or its value.

    `classes` is None for a real-valued label. `client` are the columns that name a row's client,
    `missing` the words for missing. `rows` says whose rows it was fitted to: those of a public
    sample, or those of the clients themselves, of which it then tells; an encoder that does not say
    is taken for the latter, and no private run uses it.
    """

    client: tuple[str, ...]
    label: str
    columns: tuple[Numeric | Category, ...]
    classes: tuple[str, ...] | None
    missing: tuple[str, ...] = MISSING
    rows: Literal["public", "private"] = "private"
    format: int = FORMAT

    def __post_init__(self) -> None:
        owner = "Encoder"
        formats.check("encoder", self.format, source="the encoder")
        check.choice(owner, "rows", self.rows, ("public", "private"))
        for name, given in (("columns", self.features), ("classes", self.classes or ())):
            once = len(set(given)) == len(given)
            check.require(once, owner, name, "named once each", list(given))
        rule = "None or at least 2 names"
        enough = self.classes is None or len(self.classes) >= 2
        check.require(enough, owner, "classes", rule, self.classes)

    @property
    def features(self) -> list[str]:
        """Names of the table's feature columns."""
        return [column.name for column in self.columns]

    @property
    def feature_names(self) -> list[str]:
        """Names of the coordinates of x."""
        return [label for column in self.columns for label in column.labels()]

    @property
    def regression(self) -> bool:
        return self.classes is None

    @property
    def kinds(self) -> dict[str, tuple[Kind, str]]:
        """Kind and form of every column, by which each cell is read by itself alone."""
        kinds: dict[str, tuple[Kind, str]] = {
            self.label: ("number" if self.classes is None else "text", "")
        }
        for column in self.columns:
            if isinstance(column, Category):
                kinds[column.name] = ("text", "")
            else:
                kind: Kind = "number" if column.form in ("", ",", "1,000") else "date"
                kinds[column.name] = (kind, column.form)
        return kinds

    def inputs(self, columns: Columns) -> np.ndarray:
        """x, float32, shape (rows, coordinates)."""
        need(columns, self.features, owner="table")
        return np.concatenate([each.encode(columns[each.name]) for each in self.columns], axis=1)

    def unknown(self, columns: Columns) -> dict[str, list[str]]:
        """Words that it does not know, by column: they are encoded as missing ones are."""
        found = {
            each.name: each.unknown(columns[each.name])
            for each in self.columns
            if isinstance(each, Category)
        }
        return {name: words for name, words in found.items() if words}

    def targets(self, values: np.ma.MaskedArray, owner: str = "table") -> np.ndarray:
        """y: int32 codes, or float32 values; a missing label is -1, or NaN."""
        missing = np.ma.getmaskarray(values)
        if self.classes is None:
            return np.where(missing, np.nan, values.data.astype(np.float64)).astype(np.float32)
        words = _spelled(words_of(values), self.classes)
        position = {word: code for code, word in enumerate(self.classes)}
        present, place = np.unique(np.where(missing, self.classes[0], words), return_inverse=True)
        for word in present:
            rule = "one of " + ", ".join(self.classes)
            remedy = "Leave such rows out, or use an encoder that knows the class."
            known = word in position
            check.require(known, owner, f"label {self.label!r}", rule, str(word), remedy)
        codes = np.array([position[str(word)] for word in present], np.int32)[place]
        return np.where(missing, np.int32(-1), codes)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Encoder":
        """The encoder that `to_json` wrote."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields["format"] == 1:  # had no knots, and is otherwise the same
                fields["format"] = FORMAT
            columns = tuple(
                Category(name=each["name"], categories=tuple(each["categories"]))
                if "categories" in each
                else Numeric(**{**each, "knots": tuple(each.get("knots", ()))})
                for each in fields.pop("columns")
            )
            classes = fields.pop("classes")
            return cls(
                client=tuple(fields.pop("client")),
                missing=tuple(fields.pop("missing")),
                columns=columns,
                classes=None if classes is None else tuple(classes),
                **fields,
            )
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
            raise ValueError(
                f"Encoder: text must be what to_json wrote, got: {reason}. Write it anew with "
                "fedprior encoder."
            ) from None


def fit_column(table: Table, name: str, train: np.ndarray, *, bins: int = 0) -> Numeric | Category:
    """The encoding of one column; its statistics come from the rows `train` alone.

    Numbers have at most `bins` bins with as many of these rows in each; one or two distinct values
    need none.
    """
    column, values = table.kinds[name], table.columns[name]
    missing = np.ma.getmaskarray(values)
    if column.kind in ("text", "truth"):
        words = np.unique(words_of(values)[~missing])
        rule = f"of at most {_MOST_CATEGORIES} distinct words"
        remedy = "Leave it out of the features; if it is numeric, look for a cell that is not."
        few = len(words) <= _MOST_CATEGORIES
        check.require(few, table.source, f"text column {name!r}", rule, len(words), remedy)
        return Category(name=name, categories=tuple(words.tolist()))
    own = values[train]
    present = own.data[~missing[train]].astype(np.float64)
    median = float(np.median(present)) if len(present) else 0.0
    filled = np.concatenate([present, np.full(len(own) - len(present), median)])
    scale = float(filled.std())
    return Numeric(
        name=name,
        mean=float(filled.mean()),
        scale=scale if scale > 0 else 1.0,  # a constant column is 0 throughout
        median=median,
        indicator=bool(missing.any()),
        form=column.form,
        knots=_knots(present, bins),
    )


def _knots(present: np.ndarray, bins: int) -> tuple[float, ...]:
    """Distinct quantiles, each a value that occurs, where there are two bins between them."""
    if not bins or not len(present):
        return ()
    shares = np.linspace(0, 1, bins + 1)
    knots = np.unique(np.quantile(present, shares, method="inverted_cdf"))
    return tuple(knots.tolist()) if len(knots) > 2 else ()


def refuse_infinite(table: Table) -> None:
    """No present cell is infinite; the error names the column and the row."""
    for name, values in table.columns.items():
        if values.dtype.kind != "f":
            continue
        bad = np.flatnonzero(np.isinf(values.data) & ~np.ma.getmaskarray(values))
        if len(bad):
            raise ValueError(
                f"{table.source}: column {name!r} must be finite, got {values.data[bad[0]]} in row "
                f"{bad[0] + 1} ({len(bad)} such rows). Leave the cell empty where it is unknown."
            )


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _spelled(words: np.ndarray, known: tuple[str, ...]) -> np.ndarray:
    """Each word as `known` spells it: 3.0 and 03 are 3 where only 3 is known.

    Decided cell by cell, so that nobody's rows depend on how others write theirs.
    """
    present, place = np.unique(words, return_inverse=True)
    return np.array([_spelling(str(word), known) for word in present], str)[place]


def _spelling(word: str, known: tuple[str, ...]) -> str:
    try:
        return word if word in known else str(names(np.ma.MaskedArray([float(word)]))[0])
    except ValueError:
        return word


def words_of(values: np.ma.MaskedArray) -> np.ndarray:
    """Cells as text, truth spelled alike: a CSV file may say true where a data frame has True."""
    words = names(values)
    lower = np.char.lower(words)
    return np.where(np.isin(lower, ("true", "false")), np.char.capitalize(lower), words)
