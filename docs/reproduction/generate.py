"""Write docs/reproduction.md from the rows of the comparisons.

fedprior reproduce table1 --data DIR --out docs/reproduction/table1
fedprior reproduce table1 --equal --data DIR --out docs/reproduction/table1
python docs/reproduction/generate.py
"""

import json
import sys
from pathlib import Path

from fedprior.experiments import comparison_beside as beside
from fedprior.experiments import optimizer_choice
from fedprior.experiments.comparison_report import Row, markdown
from fedprior.experiments.comparison_settings import COMPARISONS
from fedprior.experiments.optimizer_choice import OptimizerRow
from fedprior.experiments.optimizers import OPTIMIZERS, PUBLISHED

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "reproduction.md"
NOTE = "<!-- Written by docs/reproduction/generate.py; do not edit. -->"
HEADINGS = {
    "table1": "Table 1: all methods under the same tuning",
    "fedem": "FedEM and AdaPeD with everyone in every round",
    "beyond": "AdaMAP beyond Table 1",
    "cifar10": "CIFAR-10",
    "ablation": "Ablation of AdaMAP",
}
SETTINGS = {  # what differs from the introduction
    "cifar10": (
        "A CNN of 0.9 million parameters, 100 clients of 600 images (450 for training, 50 for "
        "validation, 100 for testing), batches of 20, 300 rounds. So far eleven methods have been "
        "run with three classes per client, with the same optimizer and two rates (0.05 and 0.1, "
        "of which all chose the higher). The images "
        "are JPEG copies of CIFAR-10, blurrier than the originals: compare methods with each "
        "other, not with figures of other papers. Hyperparameters are those for MNIST."
    )
}
INTRODUCTION = """\
Every method is tuned over the same six rates (decay 0.99 per epoch, weight decay 1e-4) and takes
the same number of gradient steps on a personal model. The selected rate has the highest validation
score over all seeds; ties go to the lowest rate. Other hyperparameters are those of the paper if it
states them. Test samples are read once, for the selected rate. FEMNIST is not among our datasets:
MNIST by writer replaces it, so compare the methods in those columns with each other, not with the
printed figures. AdaPeD as printed (KL, personal models that start at the initial model) breaks down
on the writers; there it uses the squared distance, starts at the first mean it receives, and psi
starts at 1. QuPeD and mutual learning start at the initial model with three classes per client, and
at the first mean they receive elsewhere.

Penalties, shares and second rates that the paper does not state were chosen once, in the same way
as AdaMAP's options: on validation scores of seeds 100 to 102, which no table uses, in the first two
columns of Table 1, at three rates. The chosen values are 0.1 for Ditto, 3 for L2GD and 0.01 for
FedProx, out of 0.001, 0.01, 0.1, 0.3, 1 and 3 (at 3, the steps of L2GD reach the mean: its share is
capped at 1); 0.01 on MNIST and 3 on the writers for mean-regularized; 0.25 for APFL out of 0.1,
0.25, 0.5 and 0.75, the same for all clients; 2 models for IFCA out of 2, 3 and 4. Fine-tuning after
FedAvg has a separate rate, 0.05 on MNIST and 0.02 on the writers, out of 0.02, 0.05 and 0.1; a
separate rate did not help the personal models of Ditto and APFL. Steps are counted, not gradients:
a step of pFedMe takes three gradients, one of Per-FedAvg two; Ditto, APFL, Fed-RoD and mutual
learning move a second model or head in the same steps; FedRep and pFedVEM take as many steps of the
head before those of the body, FedMD as many on its public inputs; FedEM and IFCA also read all
samples of a client in every round. AdaMAP also takes its last steps at a separate rate, 0.05; they
are 100, fewer than others may take, and in one round of 30 it tries them out on half of a client's
samples, which costs as many steps again.

Tables with published optimizers have 17 methods: the six newest ones (FedPer, LG-FedAvg, FedBABU,
Fed-RoD, pFedVEM, FedMD) have been run with the same optimizer for all methods only. The six MNIST
tables with that optimizer have ten seeds and four rates (0.05, 0.1, 0.2 and 0.4) and are the newest
ones. On the writers many methods still chose the highest rate. All rows of AdaMAP are from before
its class frequencies were drawn around the population's
([0083](decisions/0083-class-frequencies-from-a-population.md)), which validation samples favor
where clients have few classes. Those on CIFAR-10, with published optimizers and of the ablation are
also from before it could learn a `smoothing` below 0.1. Its rows with published optimizers are
newer than those of the other methods, which were made with version 0.1.0. The rows of pFedVEM are
from before momentum was kept from the mean of its heads, which is no end of steps: that gained 0.04
to 0.17 points on validation samples in four short comparisons, of one seed each. The ablation has
five seeds and two rates (0.1 and 0.2).

As published, AdaMAP is the only method that clips gradients, uses momentum at the server and
averages over rounds. These are not about personalization, and every method can have them
(`momentum`, `clip`, `horizon`; [AdaMAP](explanation/adamap.md)). With `--equal` all methods get the
same ones, as far as they have a place for them, so that the tables show what the methods themselves
are worth; with `--frequencies` they also get each client's class frequencies, which otherwise
AdaMAP alone uses; its own are drawn around the population's, those of others are not. This
optimizer was chosen once, by `fedprior reproduce optimizer`: the highest mean validation score of
five methods, AdaMAP not among them, on seeds 100 to 102. A common optimizer does not suit every
method: FedRep, for one, did better without it in a short trial.

`accuracy` is the mean over clients, then over seeds, with the standard deviation over seeds; `worst
decile` is the mean over the lowest tenth of the clients; `printed` is the paper's figure; `gap` is
AdaMAP minus the method, paired by seed, with a 95% interval. In the figures, dots are means, boxes
contain half of the clients, and whiskers nine tenths."""


def page(folder: Path = FOLDER) -> str:
    """Return the page with all comparisons that have rows."""
    parts = ["# Reproduction", NOTE, INTRODUCTION, *chosen(folder)]
    for name, heading in HEADINGS.items():
        documents = beside.found_in(folder / name)
        if not documents:
            continue
        settings = COMPARISONS[name].settings
        parts += [f"## {heading}", *([SETTINGS[name]] if name in SETTINGS else [])]
        if len(documents) > 1:
            parts += [*beside.verdicts(documents, settings), beside.markdown(documents, settings)]
        for optimizer, found in documents.items():
            if len(documents) > 1:
                parts.append(f"### {HEADINGS[name]}, with {OPTIMIZERS[optimizer].title}")
            place = beside.place(Path(name), OPTIMIZERS[optimizer])
            heading = "####" if len(documents) > 1 else "###"
            parts += section(found, settings, place.as_posix(), heading)
    return "\n\n".join(parts) + "\n"


def section(found: dict, settings: tuple, place: str, heading: str) -> list[str]:
    """Return one comparison under one optimizer, whose files are in `place`."""
    (made,) = found["made_with"]
    assert not found["quick"], "quick rows are not for this page"
    optimizer = found.get("optimizer", {"name": PUBLISHED.name})
    given = ", ".join(f"{name} {value:g}" for name, value in optimizer.items() if name != "name")
    return [
        f"    {found['command']}",
        f"{len(found['seeds'])} seeds from {found['seeds'][0]}; {made['device']}, jax "
        f"{made['jax']}; [rows](reproduction/{place}/rows.json)." + (given and f" {given}."),
        markdown([Row(**row) for row in found["rows"]], settings, heading=heading),
        *found["remarks"],
        *picture(place),
    ]


def picture(place: str) -> list[str]:
    """Return the picture of the clients' scores, where it is of the rows as they are."""
    name = f"{place}/clients.png"
    there = (FOLDER / name).exists()
    return [f"![Clients' scores](reproduction/{name})"] if there else []


def chosen(folder: Path) -> list[str]:
    """Return how the optimizer of --equal was chosen, if its rows are there."""
    file = folder / "optimizer" / "rows.json"
    if not file.exists():
        return []
    rows = [OptimizerRow(**row) for row in json.loads(file.read_text())["rows"]]
    command = "    fedprior reproduce optimizer"
    return ["## The same optimizer for all", command, optimizer_choice.markdown(rows)]


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE.name}\n")
