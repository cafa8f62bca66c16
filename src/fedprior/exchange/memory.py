"""One client's memory on its own disk: a settled part, and a pending one until a round is accepted.

A client cannot know whether its message arrived. So it keeps the memory from before a round
(settled) beside the one from after it (pending), and the server tells it with the next request in
which round it last accepted a message of this client. The two never disagree about who took part.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check, lock
from fedprior.core.algorithm import Memory
from fedprior.core.files import make_folder
from fedprior.exchange import trees

_KIND, FORMAT = "memory", 1
_TOKEN = re.compile(r"[0-9a-f]{16,64}")


@contextlib.contextmanager
def held(folder: Path, *, token: str, client: int) -> Iterator["ClientMemory"]:
    """The memory of one client in the run that `token` names; no other process has it meanwhile.

    The file is `folder/TOKEN/CLIENT.memory`. A token comes from the server, and a path is made of
    it: anything but hexadecimal digits is refused.
    """
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        rule = "16 to 64 hexadecimal digits in lower case"
        raise ValueError(check.message("memory", "token", rule, token))
    check.count("memory", least=0, client=client)
    path = Path(folder) / token / f"{int(client)}.memory"
    make_folder(path.parent)
    with lock.held(path.with_suffix(".lock"), path):
        for left in path.parent.glob(f"{path.name}.*.tmp"):  # by a process that was killed
            left.unlink(missing_ok=True)
        yield ClientMemory(path, token=token, client=int(client))


class ClientMemory:
    """Memories of one client before and after its last round; see `held`."""

    def __init__(self, path: Path, *, token: str, client: int) -> None:
        self.path, self._owner = path, {"token": token, "client": client}
        self._settled: tuple[Memory | None, int | None] | None = None

    def read(self, like: Memory, *, accepted: int | None) -> Memory | None:
        """The memory after round `accepted`, the last in which the server accepted a message.

        None where there is none: no message was accepted yet, or none whose update was finite. The
        client enrolls then. A pending memory of any other round is discarded; a settled one never,
        whatever the server says.
        """
        memory = self._after(like, accepted)
        self._settled = (memory, accepted)
        return memory

    def _after(self, like: Memory, accepted: int | None) -> Memory | None:
        if not self.path.is_file():
            if accepted is None:
                return None
            raise ValueError(
                f"{self.path} is missing: the server accepted round {accepted} of this client. "
                "Restore it from a copy, or register as a new client."
            )
        packed = trees.read(self.path, kind=_KIND, format=FORMAT)
        owner = {name: packed.facts[name] for name in self._owner}
        if owner != self._owner:
            raise ValueError(f"{self.path} belongs to another run or client: {owner}.")
        rounds: dict[str, int | None] = packed.facts["rounds"]
        if accepted is None and rounds["settled"] is not None:
            raise ValueError(
                f"{self.path} holds the memory after round {rounds['settled']}, which the server "
                "accepted, but the server now says that it accepted none. It must restore its own "
                "checkpoint, or begin another run."
            )
        for part in ("pending", "settled"):
            if rounds[part] == accepted:
                return _part(packed, part, like) if part in packed.facts["held"] else None
        raise ValueError(
            f"{self.path} holds the memory after round {rounds['settled']} or {rounds['pending']}, "
            f"not after round {accepted}, which the server accepted last. Restore a newer copy."
        )

    def write(self, memory: Memory | None, *, round: int) -> None:
        """Keep `memory` as the one after `round`, beside the settled one that `read` gave.

        To be called before the message is sent. It is on disk when this returns. None, as
        `take_part` returns it, is the memory of a client whose first update was not finite.
        """
        check.count("memory", least=0, round=round)
        if self._settled is None:
            raise RuntimeError("memory: read must be called before write.")
        settled, accepted = self._settled
        both: dict[str, Any] = {"settled": settled, "pending": memory}
        arrays = {part: own for part, own in both.items() if own is not None}
        facts = {"rounds": {"settled": accepted, "pending": int(round)}, "held": sorted(arrays)}
        trees.write(self.path, arrays, kind=_KIND, format=FORMAT, **facts, **self._owner)


def _part(packed: trees.Packed, part: str, like: Memory) -> Memory:
    """One of the two memories."""
    begin = f"{part}/"
    own: dict[str, np.ndarray] = {
        name: array for name, array in packed.arrays.items() if name.startswith(begin)
    }
    return trees.Packed(packed.source, packed.facts, own).tree({part: like})[part]
