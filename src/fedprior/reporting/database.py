"""What of `fedprior estimate` goes together with a table of a database."""

from functools import partial
from typing import Any

from fedprior.core import check
from fedprior.reporting.outputs import require

_OWNER = "estimate"
# What reads rows or names of groups, of which a database gives only sums.
_NOT_THERE = {
    "FILE": "file",
    "--epsilon": "epsilon",
    "--covariates": "covariates",
    "--category": "category",
    "--plot": "plot",
    "--missing": "missing",
    "--nested": "nested",
    "--crossed": "crossed",
    "--leave-one-out": "leave_one_out",
}


def check_database(question: Any) -> None:
    """Raise for options that cannot be combined with --table, or that need one."""
    if question.table is None:
        alone = {
            "--connect": question.connect,
            "--connect-file": question.connect_file,
            "--out-table": question.out_table,
        }
        for option, given in alone.items():
            sentence = f"{option} must be given with --table, the table to read."
            check.expect(given is None, _OWNER, sentence)
        return
    for option, field in _NOT_THERE.items():
        given = getattr(question, field, None)
        sentence = f"{option} cannot be combined with --table."
        check.expect(given is None or given in ((), False), _OWNER, sentence)
    for option, name in {"--table": question.table, "--out-table": question.out_table}.items():
        whole = name is None or (all(name.split(".")) and name.count(".") <= 2)
        _require(whole, option, "the name of a table, or schema.table", repr(name))
    same = question.out_table == question.table
    _require(not same, "--out-table", "another table than the one that is read", question.table)


_require = partial(require, _OWNER)
