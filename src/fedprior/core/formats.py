"""Formats: the number that each kind of file carries, and the one refusal of another number.

A number changes with the content of its kind, not with the version of fedprior: what an earlier
version wrote is read as long as its kind has not changed, and refused by its number afterwards.
"""

from typing import Any

from fedprior.core.version import __version__

_RUN = 2  # config.toml, of which every run, deployment and sweep has one, and what lies beside it
NUMBERS = {
    "config": _RUN,
    "run": _RUN,  # metrics.jsonl, clients.parquet, summary.json
    "sweep": _RUN,  # sweep.json, trainings.parquet
    "checkpoint": 2,
    "model": 1,
    "clients": 1,  # names of the clients, beside a model
    "ledger": 4,
    "encoder": 2,
    "answer": 1,  # the summary beside a table of estimates or of a regression
    "agreement": 1,
    "roster": 1,
    "card": 1,  # of a site
    "samples": 1,  # of a client, at its site
    "memory": 2,  # of a client, at its site
    "exchange": 1,  # messages between sites and coordinator
}
# The last version that wrote a format.
_LAST = {("config", 1): "0.1.0", ("run", 1): "0.1.0", ("sweep", 1): "0.1.0"}
_AGREE = "enter the sites anew with fedprior deploy roster, and accept the agreement at each site"
_SITE = "make the site anew with fedprior deploy site"
_TRAIN = "train again with this version"
_INSTEAD = {
    "run": f"{_TRAIN} (fedprior train {{source}}/config.toml --out NEW)",
    "sweep": "sweep again into another folder",
    "checkpoint": "start a new run",
    "model": _TRAIN,
    "clients": _TRAIN,
    "ledger": "start a new run",
    "encoder": "write it anew with fedprior encoder",
    "answer": "estimate again with this version",
    "agreement": _AGREE,
    "roster": _AGREE,
    "card": _SITE,
    "samples": _SITE,
    "memory": "start a new run",
    "exchange": "install the same version at the coordinator and at every site",
}
_SPENT = dict.fromkeys(("run", "checkpoint", "memory"), " What a private run spent still counts.")
_SPENT["ledger"] = " What was spent still counts."


def check(
    kind: str,
    number: Any,
    *,
    source: object,
    wanted: int | None = None,
    error: type[Exception] = ValueError,
) -> None:
    """Raise `error` unless `number`, which `source` states as its format, is the one of its kind.

    >>> check("model", 7, source="model.safetensors", wanted=8)
    Traceback (most recent call last):
    ...
    ValueError: model: format of model.safetensors must be 8, got 7. It was written by an earlier \
version of fedprior. Use that version, or train again with this version.
    """
    wanted = NUMBERS[kind] if wanted is None else wanted
    if type(number) is int and number == wanted:
        return
    raise error(
        f"{kind}: format of {source} must be {wanted}, got {number!r}. "
        f"{_way_out(kind, number, wanted).format(source=source)}{_SPENT.get(kind, '')}"
    )


def _way_out(kind: str, number: Any, wanted: int) -> str:
    instead = _INSTEAD.get(kind, "write it anew")
    if type(number) is not int:
        return f"It was edited, or written by another program: {instead}."
    if number > wanted:
        return f"It was written by a newer version of fedprior than {__version__}: upgrade."
    last = _LAST.get((kind, number))
    writer = f"fedprior {last}" if last else "an earlier version of fedprior"
    return f"It was written by {writer}. Use that version, or {instead}."
