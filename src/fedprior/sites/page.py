"""The page of a deployment's run folder, at its server."""

import shlex
from collections import Counter
from pathlib import Path

from fedprior.pages.page import Block, Note, Notes, Number, Page, Section, SmallTable
from fedprior.reporting.pages.record import RunRecord, folder_of
from fedprior.reporting.pages.run import run_page
from fedprior.reporting.record import read_lines
from fedprior.sites.document import Document
from fedprior.sites.guarantee import sentences
from fedprior.sites.roster import Roster

WHAT = "the run folder of a deployment"
_FAULTS = 10  # kinds of faults that are shown


def owns(path: Path) -> bool:
    """Whether the path is the run folder of a deployment."""
    return folder_of(path) is not None and (path / "agreement.json").is_file()


def page_of(path: Path) -> Page:
    """The page of a deployment: that of its run, with what was agreed on and who failed."""
    folder = folder_of(path)
    assert folder is not None
    record, document = RunRecord(folder), Document.read(path / "agreement.json")
    sections = [Section("What was agreed on", (_agreed(document),))]
    if not record.secure:
        sections += _clients(path)
    return run_page(
        record,
        *sections,
        title="Deployment",
        again=f"the same flwr run command, with run-folder={path.resolve()}",
        shown_by=f"fedprior deploy status {shlex.quote(str(path))}",
    )


def _agreed(document: Document) -> Notes:
    """What each site has accepted, in its own words."""
    first, *others = sentences(document)
    return Notes((Note("The agreement.", first), *(Note("", each) for each in others)))


def _clients(path: Path) -> list[Section]:
    """How many clients there are, and what went wrong with whom; not told with secure noise."""
    roster = Roster.read(path / "roster.json")
    cells = (
        ("active", Number(len(roster.active), "whole")),
        ("forgotten", Number(len(roster.forgotten), "whole")),
    )
    blocks: list[Block] = [SmallTable(title="Clients", head=("clients", "number"), cells=cells)]
    faults = Counter(
        (str(line.get("who")), str(line.get("reason")))
        for file in sorted(path.glob("checkpoint/*/*/faults.jsonl"))
        for line in read_lines(file)
    )
    if faults:
        found = tuple(
            (who, reason, Number(count, "whole"))
            for (who, reason), count in faults.most_common(_FAULTS)
        )
        blocks.append(SmallTable(title="Faults", head=("who", "reason", "times"), cells=found))
    return [Section("Clients of the deployment", tuple(blocks))]
