"""One process of two, with two devices each: `python one_of_two.py PROCESS PORT FOLDER STORE END`.

It prints a digest of all that the run decides, by process 0 also the rounds that it reports. END is
the round before which process 1 kills itself, -1 for never.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

import jax
import long_run
import sharded
import toys

import fedprior
from fedprior.engines import run as runs


def main(process, port, folder, store, end):
    jax.distributed.initialize(f"localhost:{port}", 2, int(process), heartbeat_timeout_seconds=10)
    cohorts = runs.Run.cohorts

    def watched(self, first, count, length):
        if int(process) and first <= int(end) < first + count:
            os.kill(os.getpid(), signal.SIGKILL)
        return cohorts(self, first, count, length)

    runs.Run.cohorts = watched
    saving = fedprior.Saving(folder=Path(folder), every=2, resume=True)
    result = fedprior.simulate(
        toys.averaging(),
        toys.points(),
        rounds=8,
        cohort=sharded.SMALL,
        store=store,
        saving=saving,
        devices="all",
        progress=lambda step: print(step.round, flush=True),  # noqa: T201
    )
    digest = hashlib.sha256(b"".join(leaf.tobytes() for leaf in long_run.everything(result)))
    print("done", digest.hexdigest(), result.state["gamma"].tolist(), flush=True)  # noqa: T201
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
