"""Pages as a reader follows them: fenced blocks in order, their commands, what they print.

A comment before a block says how it is run:
`<!-- not run: REASON -->` it needs what a test does not have,
`<!-- on demand: REASON -->` only with `-m evidence`, `<!-- exit 2 -->` it ends with that code.
`<!-- figures vary -->` before the block of its output: words are compared, numbers are not.
"""

import contextlib
import io
import os
import re
import shlex
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fedprior.cli.main import main

ROOT = Path(__file__).parents[1]
WALKED = [
    "README.md",
    *(
        str(path.relative_to(ROOT))
        for folder in ("tutorials", "how-to")
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
MARKS = re.compile(r"not run: \S.*|on demand: \S.*|exit [12]|figures vary")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
_COMMENT = re.compile(r"<!-- (.*?) -->\s*\Z", re.S)
_SHELL = re.compile(r"[|<>&;$~*]")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    mark: str  # the comment before it
    output: "Block | None" = None  # the ```text block right after it


def blocks(page):
    """The blocks of a page, each with the output that the page says it has."""
    text = (ROOT / page).read_text()
    found = []
    end = 0
    for match in _FENCE.finditer(text):
        comment = _COMMENT.search(text[end : match.start()])
        mark = comment.group(1).strip() if comment else ""
        between = text[end : match.start()] if comment is None else text[end:][: comment.start()]
        block = Block(match.group(1), match.group(2), mark if MARKS.fullmatch(mark) else "")
        end = match.end()
        if block.language == "text" and found and not between.strip():
            found[-1] = Block(found[-1].language, found[-1].text, found[-1].mark, block)
        else:
            found.append(block)
    return found


def commands(text):
    """The commands of a shell block: continued lines joined, here-documents whole."""
    lines, found = iter(text.splitlines()), []
    for line in lines:
        while line.endswith("\\"):
            line = line[:-1] + next(lines).strip()
        here = re.search(r"<<\s*'?(\w+)'?", line)
        while here and not line.endswith(f"\n{here.group(1)}"):
            line += "\n" + next(lines)
        if line.strip() and not line.startswith("#"):
            found.append(line)
    return found


class Walk:
    """One reader in one empty folder, with the command `fedprior` on the path."""

    def __init__(self, page, folder, monkeypatch):
        self.page = ROOT / page
        self.names = {"__name__": "page"}
        self.folder = folder / "work"
        self.folder.mkdir()
        tools = folder / "bin"
        tools.mkdir()
        for name, words in {"fedprior": "-m fedprior", "python": ""}.items():
            (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            (tools / name).chmod(stat.S_IRWXU)
        monkeypatch.chdir(self.folder)
        monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.delenv("FEDPRIOR_TRACEBACK", raising=False)

    def run(self, block):
        """Run a block, and compare what it prints with what the page says."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            if block.language == "python":
                exec(compile(block.text, "page", "exec"), self.names)
            else:
                wanted = int(block.mark[-1]) if block.mark.startswith("exit") else 0
                for command in commands(block.text):
                    code = self._call(command, printed)
                    assert code == wanted, f"{command}\n{printed.getvalue()}"
        if block.output is not None:
            assert_printed(printed.getvalue(), block.output, self.page)

    def _call(self, command, printed):
        if command.startswith("pip install"):
            return 0  # the environment of the tests has it all; see test_install_lines
        if command.startswith("fedprior ") and not _SHELL.search(_unquoted(command)):
            return call(shlex.split(command, comments=True)[1:])
        done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True)
        printed.write(done.stdout + done.stderr)
        return done.returncode


def call(words):
    """The exit code of `fedprior WORDS`, in this process."""
    given, sys.argv = sys.argv, ["fedprior", *map(str, words)]
    try:
        main()
    except SystemExit as stop:
        return 0 if stop.code is None else stop.code
    finally:
        sys.argv = given
    return 0


def _unquoted(command):
    return re.sub(r"'[^']*'|\"[^\"]*\"|#.*", "", command)


def assert_printed(printed, said, page):
    """Lines are the same, but for spaces at their ends, empty lines, and what `...` stands for.

    With FEDPRIOR_REWRITE=1, what the page says is replaced, unless it leaves something out.
    """
    shown, wanted = _lines(printed, said.mark), _lines(said.text, said.mark)
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
        for line in wanted
    )
    same = re.fullmatch(pattern, "".join(f"{line}\n" for line in shown))
    if not same and os.environ.get("FEDPRIOR_REWRITE") and "..." not in said.text:
        new = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
        page.write_text(page.read_text().replace(f"```text\n{said.text}", f"```text\n{new}", 1))
        return
    assert same, f"The page says\n{said.text}\nand this was printed\n{printed}"


def _lines(text, mark):
    if mark == "figures vary":
        text = re.sub(r"[-+]?\d[\d.,]*", "0", text)
        text = re.sub(r" +", " ", text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]
