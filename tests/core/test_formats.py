"""Formats: one sentence refuses every number but the current one, and tells the way out."""

import pytest

from fedprior.core import formats
from fedprior.core.check import PrivacyError


@pytest.mark.parametrize("kind", sorted(formats.NUMBERS))
def test_the_current_number_passes_and_its_neighbors_do_not(kind):
    current = formats.NUMBERS[kind]
    formats.check(kind, current, source="here")
    for number, reason in [(current - 1, "It was written by"), (current + 1, "newer version")]:
        with pytest.raises(ValueError, match=f"{kind}: format of here .*{number}.*{reason}"):
            formats.check(kind, number, source="here")


@pytest.mark.parametrize("number", [None, "2", 2.0, True, [2]])
def test_what_is_no_number_is_refused(number):
    with pytest.raises(ValueError, match=r"must be 2, got .* was edited, or written"):
        formats.check("run", number, source="here")


def test_the_last_version_that_wrote_a_format_is_named():
    with pytest.raises(ValueError, match=r"fedprior 0\.1\.0\. Use that .*train here/config\.toml"):
        formats.check("run", 1, source="here")


def test_what_was_spent_is_remembered():
    with pytest.raises(PrivacyError, match="What was spent still counts"):
        formats.check("ledger", 3, source="here", error=PrivacyError)
