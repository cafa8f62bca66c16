"""Whether a channel can carry an algorithm's messages."""

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.identity import Identity
from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Channel


def check_fits(algorithm: Algorithm, channel: Channel, owner: str = "Agreement") -> None:
    """Raise if the channel cannot carry the algorithm's messages."""
    got = "a private one" if channel.private else repr(channel)
    if channel.private and not algorithm.unit_weight:
        raise check.PrivacyError(
            f"{owner}: weight must be 'uniform' for {algorithm.name} under a private channel. A "
            "weight that depends on the data would not be clipped."
        )
    if algorithm.pools == "gather" and not isinstance(channel, Identity):
        kind = check.PrivacyError if channel.private else ValueError
        raise kind(
            f"{owner}: channel must be Identity() for {algorithm.name}, got {got}. The "
            "method needs every message by itself, to the bit."
        )
    if channel.private and not algorithm.bears_noise:
        raise check.PrivacyError(
            f"{owner}: channel must be clear for {algorithm.name} as it is set, got {got}. "
            "Noise would spoil or choose what the method learns. One that has a curvature can use "
            "curvature='diagonal', and adamap judge_every=0."
        )
    if algorithm.bound is not None and channel.private:
        own = isinstance(channel, CentralGaussian) and channel.clip == algorithm.bound
        if not own:
            raise check.PrivacyError(
                f"{owner}: channel must be CentralGaussian(clip={algorithm.bound:g}, ...) for "
                f"{algorithm.name}, got {channel!r}. The method clips by itself; noise that is "
                "local or correlated over rounds needs a clip that does not move."
            )
