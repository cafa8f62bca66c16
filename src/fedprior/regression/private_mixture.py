"""A discrete mixture of linear regressions by EM whose messages are private (D4)."""

from dataclasses import dataclass

import numpy as np

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.core import check, random
from fedprior.estimation.private.em import online
from fedprior.estimation.private.result import NOT_PRIVATE
from fedprior.exchange.batch import Batch, Rounds
from fedprior.privacy import accounting, events, planning
from fedprior.privacy.events import Relation
from fedprior.privacy.guarantee import Guarantee, Noise, shown
from fedprior.privacy.ledger import Ledger
from fedprior.regression.mixture.fit import fit_mixture
from fedprior.regression.private_em import ScaledMixture, maximize_noised, private_messages
from fedprior.regression.result import Component, RegressionFit, RegressionPopulation
from fedprior.regression.rows import GroupedRows

_OWNER = "fit_mixture_privately"


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateMixtureFit:
    """A mixture learned through a channel, and the guarantee of everything that was sent.

    The population of `fit` comes from what was sent; its theta, errors and responsibilities belong
    to each group and are not private.
    """

    fit: RegressionFit
    channel: CentralGaussian
    guarantee: Guarantee


def fit_mixture_privately(
    rows: GroupedRows,
    *,
    num_components: int,
    radius: float,
    delta: float,
    epsilon: float | None = None,
    channel: CentralGaussian | None = None,
    rounds: int = 20,
    clip: float | None = None,
    start: np.ndarray | None = None,
    noise_variance: float | None = None,
    feature_scale: float | np.ndarray = 1.0,
    target_scale: float = 1.0,
    relation: Relation = "add-remove",
    noise: Noise = "simulated",
    seed: int = 0,
    allow_delta: bool = False,
    ledger: Ledger | None = None,
) -> PrivateMixtureFit:
    """EM of D4 for a fixed number of rounds, with clipped messages and noise on their sums.

    A group sends alpha_il (1, X'X / n, X'y / n) for every component and y'y / n, as one vector of
    l2 norm at most `clip`. Clipping scales the whole vector and thus reduces the group's weight,
    which biases a center if groups with large targets are clipped more often.

    The following are public and must not be computed from the data: the norm of the centers is at
    most `radius` for features divided by `feature_scale` and targets divided by `target_scale`
    (these should bring mean squares to about 1, for which the default clip sqrt(2 + 2 d) is made).
    EM starts at `start`, in the units of the data, or at random points far from each other, from
    which two centers may converge to one kind of group: give a start, or try several seeds and pay
    for each. `noise_variance` is learned unless given.

    The budget is `epsilon` for all rounds together, or a `channel` with its noise; the guarantee is
    computed by the accountant for `relation`, and a delta of 1 / groups or more is refused unless
    `allow_delta`. All rounds are charged to `ledger` before the first sum; `noise="secure"`, with
    exact sums of up to 131,072 groups, requires one, whose view is `central`. Protects: all rows of
    one group. Trusts: whoever computes the sums and adds the noise (or secure aggregation).
    """
    check.count(_OWNER, num_components=num_components, rounds=rounds)
    check.positive(_OWNER, radius=radius, target_scale=target_scale)
    accounting.check_delta(_OWNER, delta)
    seed = check.seed(_OWNER, seed)
    remedy = "Let them vary."
    check.require(rows.num_fixed == 0, _OWNER, "fixed", "without columns", rows.num_fixed, remedy)
    dimension = rows.num_features
    scale = np.asarray(feature_scale, np.float64)
    rule = f"positive, one number or {dimension} of them"
    fits = scale.shape in ((), (dimension,)) and bool(((scale > 0) & np.isfinite(scale)).all())
    check.require(fits, _OWNER, "feature_scale", rule, feature_scale)
    scale = np.broadcast_to(scale, (dimension,))
    channel = _channel(channel, epsilon, delta, rounds, clip, dimension, relation, noise)
    unit = GroupedRows(
        x=rows.x / scale, fixed=rows.fixed, y=rows.y / target_scale, start=rows.start
    )
    first = _start(start, num_components, radius, scale / target_scale, seed)
    if noise_variance is not None:
        check.positive(_OWNER, noise_variance=noise_variance)
        first = first._replace(noise=noise_variance / target_scale**2)
    width = num_components * (1 + dimension * (dimension + 3) // 2) + 1
    batch = Batch.of(
        _OWNER,
        channel,
        width,
        num_clients=rows.num_groups,
        delta=delta,
        rounds=rounds,
        relation=relation,
        seed=seed,
        allow_delta=allow_delta,
    )
    content = (unit.x, unit.y, unit.start, *first, channel, radius, noise_variance)
    with batch.charged(ledger, content=content) as sending:
        mixture = _learn(
            unit, first, channel, sending, rounds, radius, noise_variance is None, width
        )
    population = _population(mixture, target_scale / scale, target_scale)
    mechanism = (
        f"Gaussian noise of {shown(channel.noise_multiplier, digits=6)} times the clip "
        f"{channel.clip:g} on sums of {width} numbers, {rounds} round{'s' if rounds > 1 else ''}"
    )
    guarantee = batch.guarantee(
        unit="one group's rows", mechanism=mechanism, bits=32.0 * width * rounds
    )
    return PrivateMixtureFit(
        fit=_fit(rows, population, rounds), channel=channel, guarantee=guarantee
    )


def _channel(
    channel: CentralGaussian | None,
    epsilon: float | None,
    delta: float,
    rounds: int,
    clip: float | None,
    dimension: int,
    relation: Relation,
    noise: Noise,
) -> CentralGaussian:
    chosen = (epsilon is None) != (channel is None)
    check.require(chosen, _OWNER, "epsilon or channel", "one of the two", (epsilon, channel))
    if channel is not None:
        rule = "None where a channel is given"
        check.require(clip is None, _OWNER, "clip", rule, clip)
        rule = f"that of the channel, {channel.noise}"
        check.require(noise in ("simulated", channel.noise), _OWNER, "noise", rule, noise)
        return channel
    one = events.gaussian(1.0)
    multiplier = planning.noise_multiplier(
        one, target=epsilon or 0.0, delta=delta, rounds=rounds, relation=relation
    )
    bound = float(np.sqrt(2 + 2 * dimension)) if clip is None else clip
    return CentralGaussian(clip=bound, noise_multiplier=multiplier, noise=noise)


def _learn(
    rows: GroupedRows,
    mixture: ScaledMixture,
    channel: CentralGaussian,
    sending: Rounds,
    rounds: int,
    radius: float,
    learns_noise: bool,
    width: int,
) -> ScaledMixture:
    """EM with totals averaged over rounds, which reduces the noise of a single round."""

    def send(place: int, mixture: ScaledMixture) -> np.ndarray:
        messages = (private_messages(block, *mixture) for block in rows.blocks())
        return sending.add(channel, messages, sending.key("decode", place), dimension=width)

    def maximize(total: np.ndarray, error: float, mixture: ScaledMixture) -> ScaledMixture:
        return maximize_noised(total, error, mixture, radius, learns_noise)

    error = channel.clip * channel.noise_multiplier
    return online(send, maximize, mixture, rounds, error)


def _start(
    start: np.ndarray | None, count: int, radius: float, scale: np.ndarray, seed: int
) -> ScaledMixture:
    """Public centers in public units: as given, or the farthest apart of 100 random choices."""
    if start is not None:
        centers_given, shape = np.asarray(start, np.float64), (count, len(scale))
        fits = centers_given.shape == shape and bool(np.isfinite(centers_given).all())
        check.require(fits, _OWNER, "start", f"finite and of shape {shape}", centers_given.shape)
        centers = centers_given * scale
    else:
        draws = random.stream(seed, "init").standard_normal((100, count, len(scale)))
        draws /= np.linalg.norm(draws, axis=2, keepdims=True)
        gaps = np.linalg.norm(draws[:, :, None] - draws[:, None], axis=3)
        gaps[:, np.arange(count), np.arange(count)] = np.inf
        centers = radius / 2 * draws[gaps.min(axis=(1, 2)).argmax()]
    return ScaledMixture(np.full(count, 1 / count), centers, 1.0)


def _population(
    mixture: ScaledMixture, scale: np.ndarray, target_scale: float
) -> RegressionPopulation:
    """Back in the units of the data."""
    centers = mixture.centers * scale
    mean = mixture.shares @ centers
    away = centers - mean
    nothing = np.zeros((len(scale), len(scale)))
    return RegressionPopulation(
        kind="discrete",
        mean=mean,
        covariance=(away * mixture.shares[:, None]).T @ away,
        components=tuple(
            Component(share=float(share), mean=center, covariance=nothing)
            for share, center in zip(mixture.shares, centers, strict=True)
        ),
        fixed=np.empty(0),
        noise_variance=mixture.noise * target_scale**2,
    )


def _fit(rows: GroupedRows, population: RegressionPopulation, rounds: int) -> RegressionFit:
    """Every group's own theta under the population that was learned."""
    with np.errstate(over="ignore", invalid="ignore"):
        known = fit_mixture(rows, prior=population)
    return RegressionFit(
        family="gaussian",
        method="private-em",
        criterion="ml",
        population=population,
        theta=known.theta,
        errors=known.errors,
        responsibilities=known.responsibilities,
        log_likelihood=None,  # of the rows themselves: it would not be private
        rounds=rounds,
        converged=False,
        notes=(NOT_PRIVATE,),
    )
