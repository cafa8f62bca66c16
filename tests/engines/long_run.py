"""A run that a test can kill at any moment: `python long_run.py FOLDER STORE`.

After each step of progress it prints the round and waits for a line: until that comes, it cannot
get away. It ends with `done` and a digest of everything that the run decides.
"""

import hashlib
import sys

import jax
import numpy as np
import optax

import fedprior
from fedprior.data import synthetic

RUN = {"rounds": 40, "cohort": fedprior.FixedSize(size=3), "seed": 5, "evaluate_every": 10}


def setting():
    """AdaPeD with catch-up and momentum: everything that a memory can hold matters."""
    clients = synthetic.classification(
        num_clients=6, samples_per_client=(4, 8), num_features=3, num_classes=2, seed=1
    )
    algorithm = fedprior.learning.adaped_fine_tuning(
        fedprior.models.logistic(3, 2),
        catch_up=3,
        steps=fedprior.Steps(
            local_steps=2, batches=fedprior.Batches(size=3), rule=optax.trace(0.9)
        ),
    )
    return algorithm, clients


def everything(result):
    """All that has to be equal to the bit after a resume, as a list of arrays."""
    memories, enrolled = result.store.read(np.arange(result.federation.num_clients))
    trees = (result.state, memories, enrolled, result.scores, result.valid_scores)
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(trees)]
    columns = [sorted(entry.items()) for entry in result.history]
    return [*arrays, np.array([value for entry in columns for _, value in entry])]


def digest(result):
    parts = (array.tobytes() for array in everything(result))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def main(folder, store):
    def progress(step):
        print(step.round, flush=True)  # noqa: T201
        sys.stdin.readline()

    algorithm, clients = setting()
    result = fedprior.simulate(
        algorithm,
        clients,
        store=store,
        saving=fedprior.Saving(folder=folder, every=3, resume=True),
        progress=progress,
        **RUN,
    )
    print("done", digest(result), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
