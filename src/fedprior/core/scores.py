"""Metrics: what a client's model is scored by, what a score is called and how it is shown.

A *value* is what people read: an accuracy, a log loss, an RMSE. A *score* is the value, or minus
the value where lower values are better, so that a higher score is always better. Programs compare
scores; screens, pages and files hold values.
"""

from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import Any, Literal, get_args

import numpy as np

from fedprior.core import check

Target = Literal["classes", "quantity"]
MetricName = Literal[
    "accuracy", "balanced-accuracy", "auc", "log-loss", "calibration-error", "rmse", "r2"
]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One way to score a client's model on samples of its own.

    `lower` says that lower values are better, `share` that values are shown in percent, and
    `per_sample` that the value is a mean over samples (RMSE: its root), which a compiled program
    computes without keeping any output.
    """

    name: MetricName
    label: str
    target: Target | None  # None: of the algorithm's own making
    short: str = ""  # head of a column, lines separated by newlines
    lower: bool = False
    share: bool = False
    per_sample: bool = False

    @property
    def key(self) -> str:
        """The name of a column or of a JSON field."""
        return self.name.replace("-", "_")

    def signed(self, value: Any) -> Any:
        """Turn a value into a score, or a score into a value.

        >>> RMSE.signed(0.5), ACCURACY.signed(0.5), RMSE.signed(None)
        (-0.5, 0.5, None)
        """
        if value is None:
            return None
        return 0 - value if self.lower else value  # 0 - 0 has no sign

    def entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        """An entry of a history with the value of its validation score, if it has one.

        >>> RMSE.entry({"psi": 1.0, "valid": -0.25})
        {'psi': 1.0, 'valid': 0.25}
        """
        return {**entry, "valid": self.signed(entry["valid"])} if "valid" in entry else {**entry}

    @property
    def unit(self) -> float:
        """The factor of what is shown: 100 for shares, which are shown in percent."""
        return 100.0 if self.share else 1.0

    def decimals(self, values: Any = ()) -> int:
        """How many decimals to show; an RMSE has a unit and is shown to four digits.

        >>> ACCURACY.decimals(), METRICS["r2"].decimals(), RMSE.decimals([1234.5, 3, None])
        (1, 3, 0)
        """
        if self.share:
            return 1
        if self.target == "classes" or self.name == "r2":
            return 3
        largest = _largest(values)
        return min(8, max(0, 3 - floor(log10(largest)))) if largest > 0 else 4

    def text(self, value: float | None, *, values: Any = (), sign: str = "") -> str:
        """The value in a table, beside others of the same column; nothing for None.

        An RMSE in a unit that would take many digits is shown with an exponent.

        >>> ACCURACY.text(0.8765), RMSE.text(0.25), METRICS["log-loss"].text(1.25, sign="+")
        ('87.6', '0.2500', '+1.250')
        >>> RMSE.text(5.75e11), RMSE.text(1e-12, values=[2e-12])
        ('5.750e+11', '1.000e-12')
        """
        if value is None:
            return ""
        values = values or [value]
        far = self is RMSE and not 1e-5 <= (_largest(values) or 1) < 1e7
        form = "3e" if far else f"{self.decimals(values)}f"
        return f"{self.unit * value:{sign}.{form}}"

    def words(self, value: float) -> str:
        """The value in a sentence."""
        return f"{self.text(value)}%" if self.share else self._plain(value)

    def difference(self, better: float) -> str:
        """How far two values are apart, in a sentence: `better` is a difference of scores."""
        size = abs(better)
        return f"{self.text(size)} points" if self.share else self._plain(size)

    def _plain(self, value: float) -> str:
        return self.text(value) if self.target == "classes" else f"{value:.4g}"


ACCURACY = Metric(
    name="accuracy", label="accuracy", short="accuracy", target="classes", share=True,
    per_sample=True,
)  # fmt: skip
RMSE = Metric(
    name="rmse", label="RMSE", short="RMSE", target="quantity", lower=True,
    per_sample=True,
)  # fmt: skip
# Of an algorithm that has a score of its own and no model that would tell what its outputs are.
OWN = Metric(
    name="score",  # type: ignore[arg-type]
    label="score", short="score", target=None, per_sample=True,
)  # fmt: skip
METRICS: dict[str, Metric] = {
    each.name: each
    for each in (
        ACCURACY,
        Metric(
            name="balanced-accuracy",
            label="balanced accuracy",
            short="balanced\naccuracy",
            target="classes",
            share=True,
        ),
        Metric(name="auc", label="AUC", short="AUC", target="classes"),
        Metric(
            name="log-loss",
            label="log loss",
            short="log\nloss",
            target="classes",
            lower=True,
            per_sample=True,
        ),
        Metric(
            name="calibration-error",
            label="calibration error",
            short="calibration\nerror",
            target="classes",
            lower=True,
            share=True,
        ),
        RMSE,
        Metric(name="r2", label="R²", short="R²", target="quantity"),
    )
}
assert tuple(METRICS) == get_args(MetricName)


def _largest(values: Any) -> float:
    """The largest finite value without its sign, 0 if there is none."""
    return max((abs(each) for each in values if each is not None and isfinite(each)), default=0.0)


def metrics_of(target: Target) -> list[Metric]:
    """All metrics of classes, or of a quantity."""
    return [metric for metric in METRICS.values() if metric.target == target]


def target_of(classes: Any) -> Target:
    """What is predicted, by the classes of a federation, None for a quantity."""
    return "quantity" if classes is None else "classes"


def chosen(owner: str, name: str | None, target: Target) -> Metric:
    """The metric of that name, or the default one; ValueError if it does not fit the target.

    >>> chosen("simulate", None, "classes").name, chosen("simulate", "auto", "quantity").name
    ('accuracy', 'rmse')
    """
    if name is None or name == "auto":
        return ACCURACY if target == "classes" else RMSE
    check.choice(owner, "metric", name, METRICS)
    known = [metric.name for metric in metrics_of(target)]
    what = "a quantity" if target == "quantity" else "classes"
    check.require(name in known, owner, "metric", f"one for {what}: {', '.join(known)}", name)
    return METRICS[name]


def mean_of_known(values: np.ndarray) -> float | None:
    """The mean of values that are not NaN; None without any, or where one is infinite.

    >>> mean_of_known(np.array([1.0, np.nan, 2.0])), mean_of_known(np.array([np.nan]))
    (1.5, None)
    """
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size and np.isfinite(known).all() else None
