"""`fedprior export`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli import asked


def export(
    run: Annotated[Path, typer.Argument(help="A run folder of `fedprior train`.")],
    out: Annotated[Path, typer.Option(help="Where to write the model: a .safetensors file.")],
    algorithm: asked.OneMethod = None,
    seed: asked.OneSeed = None,
    force: asked.Force = False,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Write what a run has learned together to one file, without anything of a single client.

    The file holds the learned state, the encoder, the class names and, for a private run, its
    guarantee. `fedprior personalize` and `fedprior.load` open it like a run: they predict with the
    population's model and personalize new clients.

    Example: `fedprior export runs/a --out model.safetensors`
    """
    from fedprior.cli.progress import say
    from fedprior.reporting.model import file_of
    from fedprior.reporting.model_file import export as write
    from fedprior.reporting.outputs import check_output

    check_output("export", "--out", out, (".safetensors",), source=None, force=force)
    facts = write(file_of(run, method=algorithm, seed=seed), out)
    if as_json:
        told = {name: facts[name] for name in ("method", "seed", "guarantee")}
        typer.echo(json.dumps({"format": 1, "out": str(out), **told}))
        return
    say(f"{facts['method']}, seed {facts['seed']}, written to {out}", quiet=quiet)
    if facts["guarantee"] is None:
        say("Not private: what was learned may tell of single clients.", quiet=quiet)
    else:
        from fedprior.reporting.ledgers import sentence

        say(sentence({"ledger": "Its guarantee", **facts["guarantee"]}), quiet=quiet)
