"""Methods side by side: one sweep per setting and method, each in its own file."""

import platform
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedprior.core import check
from fedprior.core.files import read_json, write_json
from fedprior.core.version import __version__
from fedprior.data.federation import Federation
from fedprior.engines.sweep import sweep
from fedprior.exchange.facts import Facts
from fedprior.experiments import comparison_settings as settings
from fedprior.experiments.comparison_settings import Setting
from fedprior.experiments.optimizers import PUBLISHED
from fedprior.reporting.training import Study, Training

T = TypeVar("T")
FORMAT = 1
Progress = Callable[[float, int], Any]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One method in one setting: every rate's validation score, the chosen one's test scores.

    `optimizer` is the name of what all methods got; `options` holds it, with the method's own.
    `valid` holds the mean validation score by rate and seed, `scores` the clients' test scores by
    seed, None for a client without test samples.
    """

    setting: str
    method: str
    grid: tuple[float, ...]
    seeds: tuple[int, ...]
    rounds: int
    options: Mapping[str, Any]
    valid: tuple[tuple[float | None, ...], ...]
    rate: float
    scores: tuple[tuple[float | None, ...], ...]
    seconds: float
    federation: Mapping[str, Any]
    made_with: Mapping[str, str] = field(default_factory=dict)
    optimizer: str = PUBLISHED.name
    format: int = FORMAT

    @cached_property
    def clients(self) -> np.ndarray:
        """Test scores, (seeds, clients); NaN for None."""
        return np.array(self.scores, np.float64)

    @cached_property
    def means(self) -> np.ndarray:
        """Mean over clients, by seed."""
        means: np.ndarray = np.nanmean(self.clients, axis=1)
        return means


def compare(
    setting: Setting,
    methods: Iterable[str],
    *,
    grid: Sequence[float],
    seeds: Sequence[int],
    folder: Path,
    root: Path | None = None,
    workers: int = 1,
    progress: Callable[[str, str], Progress] | None = None,
) -> list[Part]:
    """Sweep every method over the grid, choose its rate on validation scores, and test it once.

    Each method is a file in `folder`, so that a comparison can be made in pieces. A file that
    exists is read, and refused if it was made for another grid, seeds, rounds, options or
    federation. With several `workers` one method compiles while another trains.
    """
    known = {
        name: _read(_file(folder, setting, name), _facts(setting, name, grid, seeds))
        for name in methods
    }
    missing = [name for name, part in known.items() if part is None]
    if missing:
        drawn = {seed: setting.federation(seed, root) for seed in seeds}
        study = Study(setting.config, Facts.of(drawn[seeds[0]]))

        def one(name: str, told: Progress) -> Part:
            facts = _facts(setting, name, grid, seeds)
            part = _sweep(setting, study, facts, folder, drawn.__getitem__, told)
            write_json(_file(folder, setting, name), asdict(part))
            return part

        told = partial(progress, setting.name) if progress else None
        known |= dict(zip(missing, at_a_time(missing, one, workers, told), strict=True))
    return [part for part in known.values() if part is not None]


def at_a_time(
    names: Sequence[str],
    one: Callable[[str, Progress], T],
    workers: int,
    progress: Callable[[str], Progress] | None,
) -> list[T]:
    """What `one` makes of each name, several at a time; where one fails, the others end soon."""
    stop = threading.Event()

    def job(name: str) -> T:
        tell = progress(name) if progress else None

        def told(done: float, total: int) -> None:
            if stop.is_set():  # nobody waits for it any more
                raise KeyboardInterrupt
            if tell:
                tell(done, total)

        return one(name, told)

    with ThreadPoolExecutor(workers) as pool:
        try:
            return list(pool.map(job, names))
        except BaseException:  # an interrupt, too: running sweeps end at their next call
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def _sweep(
    setting: Setting,
    study: Study,
    facts: Mapping[str, Any],
    folder: Path,
    federations: Callable[[int], Federation],
    progress: Progress,
) -> Part:
    name, begun = facts["method"], time.perf_counter()
    method = settings.method(name).name

    def train_at(rate: Any) -> Training:
        return study.training(method, facts["options"], rate=rate)

    training = train_at(facts["grid"][0])
    swept = sweep(
        lambda rate: train_at(rate).algorithm,
        federations,
        over={"rate": [float(rate) for rate in facts["grid"]]},
        seeds=facts["seeds"],
        rounds=training.rounds,
        cohort=training.cohort,
        judges=study.veterans,
        folder=folder / setting.name / f"{name}.sweep",
        identity=facts,
        progress=progress,
    )
    scores = swept.scores[..., study.veterans :] if setting.newcomers else swept.scores
    return Part(
        **facts,
        valid=_rows(np.nanmean(swept.valid[..., : study.veterans], axis=2)),
        rate=swept.chosen["rate"],
        scores=_rows(scores),
        seconds=time.perf_counter() - begun,
        made_with=made_with(),
    )


def _rows(values: np.ndarray) -> tuple[tuple[float | None, ...], ...]:
    """As JSON can hold them: None for no samples; a diverged model has the least accuracy, 0."""
    return tuple(
        tuple(None if np.isnan(value) else max(float(value), 0.0) for value in row)
        for row in values
    )


def made_with() -> dict[str, str]:
    """Versions and the device."""
    import jax

    device = jax.devices()[0]
    packages = {name: version(name) for name in ("jax", "numpy")}
    return {
        "fedprior": __version__,
        "python": platform.python_version(),
        **packages,
        "device": device.device_kind,
    }


def _file(folder: Path, setting: Setting, name: str) -> Path:
    return folder / setting.name / f"{name}.json"


def _facts(
    setting: Setting, name: str, grid: Sequence[float], seeds: Sequence[int]
) -> dict[str, Any]:
    """What decides a part's figures."""
    return {
        "setting": setting.name,
        "method": name,
        "grid": tuple(grid),
        "seeds": tuple(seeds),
        "rounds": setting.rounds,
        "options": setting.method_options(name),
        "federation": setting.drawn_from,
        "optimizer": setting.optimizer.name,
    }


def _read(file: Path, facts: Mapping[str, Any]) -> Part | None:
    """The part in `file`, None where there is none."""
    if not file.exists():
        return None
    return _same(read(file), file, facts)


def _same(part: Part, file: Path, facts: Mapping[str, Any]) -> Part:
    """The part, if it was made for the same facts."""
    for name, value in facts.items():
        kept, remedy = getattr(part, name), "Choose another folder for another comparison."
        check.require(kept == value, str(file), name, f"{value} as asked for", kept, remedy)
    return part


def read(file: Path) -> Part:
    """One part, as `compare` wrote it."""
    try:
        content = read_json(file)
        part = Part(**{name: _tuple(value) for name, value in content.items()})
        whole = part.clients.ndim == 2 and len(part.clients) == len(part.seeds) == len(part.means)
        shaped = len(part.valid) == len(part.grid) and part.format == FORMAT
    except (ValueError, TypeError, AttributeError, OSError):
        whole = shaped = False
    sentence = f"{file} is not a part of a comparison, format {FORMAT}. Move it to run it again."
    check.expect(whole and shaped, "comparison", sentence)
    return part


def read_all(
    folder: Path,
    settings: Iterable[Setting],
    methods: Sequence[str],
    *,
    grid: Sequence[float],
    seeds: Sequence[int],
) -> list[Part]:
    """Every part of the settings in `folder`; one that was made in another way is refused."""
    parts = []
    for setting in settings:
        for file in sorted((folder / setting.name).glob("*.json")):
            part, remedy = read(file), "Choose another folder for another comparison."
            known = part.method in methods and part.method == file.stem
            check.require(known, str(file), "method", "one of this comparison", part.method, remedy)
            parts.append(_same(part, file, _facts(setting, part.method, grid, seeds)))
    return parts


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
