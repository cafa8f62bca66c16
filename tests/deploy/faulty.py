"""A ClientApp whose clients fail as FEDPRIOR_TEST_FAULTS says: [[client, round, fault], ...]."""

import json
import os
import signal
import time

from fedprior.deploy.client_app import client_app
from fedprior.exchange import client

SECRET = "blood group AB negative"  # what an exception says, and nobody but the site may read
_genuine = client.attempt


def _attempt(agreement, state, memory, data, number, round, **options):
    for who, when, fault in json.loads(os.environ["FEDPRIOR_TEST_FAULTS"]):
        joined = agreement.algorithm.name != "local"  # what a site trains by itself does not fail
        if joined and who in (number, "all") and when in (round, "all"):
            _FAULTS[fault]()
    return _genuine(agreement, state, memory, data, number, round, **options)


def _raise():
    raise KeyError(SECRET)


def _crash():
    os.kill(os.getpid(), signal.SIGKILL)


def _hang():
    time.sleep(3600)


def _hang_without_listening():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(3600)


_FAULTS = {"raise": _raise, "crash": _crash, "hang": _hang, "deaf": _hang_without_listening}
if "FEDPRIOR_TEST_FAULTS" in os.environ:  # in a process of a node
    client.attempt = _attempt
app = client_app()
