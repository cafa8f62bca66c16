"""Seconds until `fedprior train` shows its first score on a terminal, with nothing compiled.

    python benchmarks/first_result.py
    python benchmarks/first_result.py --data visits.csv --client hospital --label recovered

Prints wall-clock and processor seconds until the first score (of validation rows, where rates are
chosen), and until the first method's test score. Then the command is ended. Unix only.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
import time

_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_EVENTS = {
    "first score": r"(?:accuracy|log loss|RMSE) -?\d[\d.]*%?",
    "first test score": r"[\w-]+: done in [^\r\n]*test [^\r\n]+",
}


def processor_seconds(pid: int) -> float:
    """Seconds that a child has spent in all its threads, by /proc."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run the command until its first test score."""
    with tempfile.TemporaryDirectory() as folder:
        cache = {"JAX_COMPILATION_CACHE_DIR": f"{folder}/cache", "COLUMNS": "120", "TERM": "xterm"}
        words = ["fedprior", "train", *sys.argv[1:], "--out", f"{folder}/run"]
        ours, its = pty.openpty()
        start = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", *words], stdout=its, stderr=its, env={**os.environ, **cache}
        )
        os.close(its)
        text, left = "", dict(_EVENTS)
        while left:
            try:
                text += _COLORS.sub("", os.read(ours, 2**16).decode(errors="replace"))
            except OSError:  # it has ended
                sys.exit(text)
            for name in [name for name, pattern in left.items() if re.search(pattern, text)]:
                found = re.search(left.pop(name), text)
                assert found is not None
                wall, spent = time.perf_counter() - start, processor_seconds(child.pid)
                print(f"{name}: {wall:.1f} s, {spent:.1f} s of CPU ({found[0]})", flush=True)
        child.terminate()
        child.wait()


if __name__ == "__main__":
    main()
