"""The wheel and the source distribution: what they hold, and that each works where it is installed.

    python .ci/smoke.py

needs the package `build`. Both are built in a temporary folder, compared with the repository and
with each other, and installed in a fresh environment each, away from the sources.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MADE = {"PKG-INFO", "setup.cfg"}  # by the build
LEFT_OUT = {".gitignore"}
NEEDED = (  # one of each kind of file that is not a module
    "fedprior/py.typed",
    "fedprior/__init__.pyi",
    "fedprior/reporting/configs/mnist.toml",
)
# Each must exit with 0; the second writes an answer that the third reads.
COMMANDS = (
    ("fedprior", "--version"),
    ("fedprior", "estimate", "--out", "groups.csv", "--report", "page.html", "--quiet"),
    ("python", "-c", "import pathlib; assert pathlib.Path('groups.csv').stat().st_size > 1000"),
    ("fedprior", "report", "groups.csv", "--quiet"),
    ("python", "-m", "fedprior", "datasets"),
    ("fedprior", "train", "--algorithm", "fedavg", "--set", "training.rounds=1", "--out", "run"),
    (
        "python",
        "-c",
        "import fedprior; from importlib.metadata import version as v\n"
        "assert fedprior.__version__ == v('fedprior'), v('fedprior')\n"
        "[getattr(fedprior, name) for name in fedprior.__all__]\n"
        "fedprior.load('run')",
    ),
)


def main() -> None:
    """Build, look inside, install, and run."""
    with tempfile.TemporaryDirectory(prefix="fedprior-smoke-") as name:
        folder = Path(name)
        wheel, source = build(folder / "dist")
        check_contents(wheel, source)
        for archive in (wheel, source):
            try_out(archive, folder / archive.name.replace(".", "-"))


def build(out: Path) -> tuple[Path, Path]:
    """The wheel, made from the source distribution, and the source distribution itself.

    Leftovers of earlier builds would be packed as well, so the sources are copied without them.
    """
    copy = out.parent / "repository"
    for name in listed():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    run(sys.executable, "-m", "build", "--outdir", out, copy)
    (wheel,), (source,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, source


def listed() -> set[str]:
    """Files of the repository: all that git knows or would add, and nothing that it ignores."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in names.split("\0") if name and (ROOT / name).is_file()}


def check_contents(wheel: Path, source: Path) -> None:
    """The source distribution is the repository; the wheel is src/ with a description."""
    with tarfile.open(source) as archive:
        held = {each.name.partition("/")[2] for each in archive if each.isfile()}
    held = {name for name in held if ".egg-info/" not in name} - MADE
    same(held, listed() - LEFT_OUT, f"{source.name} and the repository")
    with zipfile.ZipFile(wheel) as packed:
        inside = {name for name in packed.namelist() if ".dist-info/" not in name}
    same(inside, {name[4:] for name in held if name.startswith("src/")}, f"{wheel.name} and src/")
    for name in NEEDED:
        if name not in inside:
            sys.exit(f"smoke: {wheel.name} lacks {name}.")
    sys.stdout.write(f"smoke: {len(held)} files in {source.name}, {len(inside)} in {wheel.name}.\n")


def same(one: set[str], other: set[str], whose: str) -> None:
    """Exit with what only one of two sets of names holds."""
    if one != other:
        sys.exit(f"smoke: {whose} differ in {', '.join(sorted(one ^ other)[:20])}.")


def try_out(archive: Path, folder: Path) -> None:
    """Install the archive in an environment of its own and run COMMANDS there."""
    run(sys.executable, "-m", "venv", folder / "venv")
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run(programs / "python", "-m", "pip", "install", "--quiet", archive)
    work = folder / "work"
    work.mkdir()
    for words in COMMANDS:
        run(programs / words[0], *words[1:], cwd=work)
    sys.stdout.write(f"smoke: {archive.name} works.\n")


def run(*words: str | Path, cwd: Path | None = None) -> None:
    """Run a program, whose output is shown only if it fails; exit then."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    own = {name: value for name, value in os.environ.items() if name not in hidden}
    told = subprocess.run(list(map(str, words)), cwd=cwd, env=own, capture_output=True, text=True)
    if told.returncode:
        sys.exit(f"smoke: {' '.join(map(str, words))} failed:\n{told.stdout}{told.stderr}")


if __name__ == "__main__":
    main()
