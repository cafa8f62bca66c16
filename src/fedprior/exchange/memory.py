"""One client's memory on its own disk: a settled part, and a pending one until a round is accepted.

A client cannot know whether its message arrived. So it keeps the memory from before a round
(settled) beside the one from after it (pending), and the server tells it with the next request in
which round it last accepted a message of this client. The two never disagree about who took part.

The file also counts the client's turns. A client refuses what it has not agreed to, whatever the
server says: more turns than the agreement allows, a round before its last one, or the same round
again with another state.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check, formats, lock
from fedprior.core.algorithm import Memory
from fedprior.core.files import make_folder
from fedprior.exchange import trees
from fedprior.privacy.participation import Attendance, Participation

_KIND, FORMAT = "memory", formats.NUMBERS["memory"]
_TOKEN = re.compile(r"[0-9a-f]{16,64}")


class AskedTooOften(check.PrivacyError):
    """The server asks a client for more than was agreed on."""


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
        self._turns: dict[str, Any] = {"taken": 0, "last": None, "state": ""}

    def read(self, like: Memory, *, accepted: int | None) -> Memory | None:
        """The memory after round `accepted`, the last in which the server accepted a message.

        None where there is none: no message was accepted yet, or none whose update was finite. The
        client enrolls then. A pending memory of any other round is discarded; a settled one never,
        whatever the server says.
        """
        memory = self._after(like, accepted)
        self._settled = (memory, accepted)
        return memory

    def take_turn(
        self, round: int, *, state: str, rule: Participation, drawn_anew: bool = False
    ) -> None:
        """Note that the client takes part in `round`, or raise AskedTooOften; `read` comes first.

        `state` is a digest of what the server sent. The round that was answered last may be asked
        for again with the same state: the answer is then the same to the bit. Where its noise is
        `drawn_anew`, it is another release, and another turn.
        """
        check.count("memory", least=0, round=round)
        last = self._turns["last"]
        if last is not None and round < last:
            raise AskedTooOften(f"{self.path}: round {round} is before round {last}.")
        again = last == round
        if again and self._turns["state"] != state:
            raise AskedTooOften(f"{self.path}: round {round} was asked for with another state.")
        attendance = Attendance(rule, 1)
        if last is not None:
            attendance.restore({"taken": [self._turns["taken"]], "last": [last]})
        try:
            attendance.admit(round, np.zeros(1, np.int32))
        except check.PrivacyError as error:
            raise AskedTooOften(f"{self.path}: {error}") from None
        taken = int(attendance.taken[0]) + (again and drawn_anew)
        if taken > rule.most:
            raise AskedTooOften(f"{self.path}: the client has taken part {rule.most} times.")
        self._turns = {"taken": taken, "last": int(round), "state": state}

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
        self._turns = packed.facts.get("turns", self._turns)
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
        facts = {
            "rounds": {"settled": accepted, "pending": int(round)},
            "held": sorted(arrays),
            "turns": self._turns,
        }
        trees.write(self.path, arrays, kind=_KIND, format=FORMAT, **facts, **self._owner)


def _part(packed: trees.Packed, part: str, like: Memory) -> Memory:
    """One of the two memories."""
    begin = f"{part}/"
    own: dict[str, np.ndarray] = {
        name: array for name, array in packed.arrays.items() if name.startswith(begin)
    }
    return trees.Packed(packed.source, packed.facts, own).tree({part: like})[part]
