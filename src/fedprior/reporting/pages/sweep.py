"""The page of a sweep's folder."""

import json
import shlex
from pathlib import Path
from typing import Any

from fedprior.core.scores import METRICS, OWN
from fedprior.data.standard_input import shown as shown_path
from fedprior.engines.sweep_page import trainings_page
from fedprior.pages.page import Page
from fedprior.reporting.config import read
from fedprior.reporting.folder import Folder
from fedprior.reporting.pages.made import settings, versions
from fedprior.reporting.sweep import SweepFolder

WHAT = "the folder of fedprior sweep"


def owns(path: Path) -> bool:
    """Whether the path is the folder of a sweep, finished or not."""
    folder = SweepFolder(path)
    return folder.config.is_file() and any(path.glob("checkpoint/*/sweep.*"))


def page_of(path: Path) -> Page:
    """The page of a sweep that has ended at least once."""
    folder = SweepFolder(path)
    Folder(path).check_format("sweep")
    if not (folder.summary.is_file() and folder.trainings.is_file()):
        raise ValueError(
            f"report: {path} is a sweep that has not ended. Continue it with the same command and "
            "--out."
        )
    summary = json.loads(folder.summary.read_bytes())
    config = read(folder.config)
    about = f"{path.name}: {shown_path(config.data.path) or config.data.name}"
    return trainings_page(
        _rows(folder.trainings),
        summary["methods"],
        about=about,
        metric=METRICS.get(summary.get("metric", ""), OWN),
        folded=(settings(config), versions()),
        command=_command(folder, summary),
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    """The trainings as `Sweep.rows` has them, without the options that a method lacks."""
    import duckdb

    with duckdb.connect() as connection:
        found = connection.execute("SELECT * FROM read_parquet(?)", [str(path)])
        names = [column[0] for column in found.description]
        rows = [dict(zip(names, values, strict=True)) for values in found.fetchall()]
    always = ("method", "seed", "valid", "chosen", "test")
    return [
        {name: value for name, value in row.items() if name in always or value is not None}
        for row in rows
    ]


def _command(folder: SweepFolder, summary: dict[str, Any]) -> str:
    words = ["fedprior", "sweep", str(folder.config)]
    for name, values in summary["over"].items():
        words += ["--over", f"{name}={','.join(_written(value) for value in values)}"]
    return shlex.join([*words, "--out", "NEW"])


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
