"""The page of a loaded model: that of its run, or what its file says where it stands alone."""

from typing import TYPE_CHECKING

from fedprior.pages.page import Fact, Number, Page, Section, SmallTable, Text
from fedprior.reporting.pages.made import versions
from fedprior.reporting.pages.privacy import flow, guarantee_sentence, limits, meaning
from fedprior.reporting.pages.record import RunRecord, folder_of
from fedprior.reporting.pages.run import run_page

if TYPE_CHECKING:
    from fedprior.reporting.model import TrainedModel


def model_page(model: "TrainedModel") -> Page:
    """The page of the run whose folder the model lies in, or of the model alone."""
    place = model.path.resolve().parents
    folder = folder_of(place[3]) if len(place) > 3 and place[2].name == "model" else None
    if folder is not None and not (folder.path / "agreement.json").is_file():
        return run_page(RunRecord(folder))
    facts = [Fact("method", model.method), Fact("seed", str(model.seed))]
    if model.classes_ is not None:
        facts.append(Fact("classes", Number(len(model.classes_), "whole")))
    rounds = model.facts.get("rounds")
    after = f" after {rounds:,} rounds" if rounds is not None else ""
    holds = (
        "It holds nothing of any client: each makes its own model from it."
        if model.clients is None
        else f"It lies beside the own models of {len(model.clients.names):,} clients."
    )
    return Page(
        title="Trained model",
        lead=f"What {model.method} has learned of all clients together{after}. {holds}",
        about=model.path.name,
        facts=tuple(facts),
        sections=tuple(_privacy(model)),
        folded=(_described(model), versions()),
    )


def _privacy(model: "TrainedModel") -> list[Section]:
    if model.guarantee is None:
        return []
    row = model.guarantee
    sentence = guarantee_sentence(row, "The model")
    blocks = (Text(sentence), Text(meaning(row)), flow(row["view"]))
    limited = limits(secure=row["noise"] == "secure", scores=False)
    return [Section("Privacy", blocks), Section("What is not protected", (limited,))]


def _described(model: "TrainedModel") -> SmallTable:
    """What the file says of the model in words and figures."""
    shown = ("method", "seed", "rounds", "shape", "format")
    cells = [(name, str(model.facts[name])) for name in shown if name in model.facts]
    return SmallTable(
        title="What the file says", head=("name", "value"), cells=tuple(cells), folded=True
    )
