"""Several processes that share a run: how one joins the others, and which of them leads."""

from typing import Any

import jax
from jax.experimental import multihost_utils

from fedprior.core import check


def join(processes: str, process: int | None = None, coordinator: str | None = None) -> None:
    """Make this process one of several, before anything is computed.

    `processes` is their number, with the number of this one and the address (HOST:PORT) at which
    process 0 is found; or "auto" where the cluster tells JAX all three, as Slurm does.
    """
    initialize: Any = jax.distributed.initialize
    if processes == "auto":
        if process is not None or coordinator is not None:
            rule = "left out with --processes auto"
            check.require(False, "train", "--process and --coordinator", rule, "given")
        try:
            initialize()
        except ValueError as error:
            raise ValueError(
                f"train: --processes must be a number where no cluster is found, got auto ({error})"
            ) from None
        return
    rule = "auto or a whole number above 0"
    fine = processes.isdigit() and int(processes) > 0
    check.require(fine, "train", "--processes", rule, processes)
    number = int(processes)
    given = process is not None and coordinator is not None
    rule, missing = f"given with --processes {number}", "None"
    check.require(given, "train", "--process and --coordinator", rule, missing)
    rule = f"in 0..{number - 1}"
    check.require(0 <= (process or 0) < number, "train", "--process", rule, process)
    host, _, port = (coordinator or "").rpartition(":")
    rule = "of the form HOST:PORT"
    check.require(bool(host) and port.isdigit(), "train", "--coordinator", rule, coordinator)
    initialize(coordinator, number, process)


def number_of(devices: str) -> int:
    """The number that `--devices` names: "all", or a number."""
    if devices == "all":
        return int(jax.local_device_count())
    rule = "all or a whole number above 0"
    fine = devices.isdigit() and int(devices) > 0
    check.require(fine, "train", "--devices", rule, devices)
    return int(devices)


def settled() -> None:
    """Wait until all processes have come here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("fedprior")


def leads() -> bool:
    """Whether this process is the one that writes, prints and charges."""
    return bool(jax.process_index() == 0)
