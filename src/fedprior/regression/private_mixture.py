"""A discrete mixture of linear regressions by EM whose messages are private (D4)."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.core import check, random
from fedprior.estimation.private.result import NOT_PRIVATE
from fedprior.privacy import accounting, events, planning
from fedprior.privacy.events import Relation
from fedprior.privacy.guarantee import Guarantee, Noise
from fedprior.regression.mixture.fit import fit_mixture
from fedprior.regression.mixture.totals import soften
from fedprior.regression.result import Component, RegressionFit, RegressionPopulation
from fedprior.regression.rows import Block, GroupedRows

_OWNER = "fit_mixture_privately"
_NEIGHBORS = {"add-remove": "add or remove one", "replace-one": "replace one"}
_FORGET = 0.6  # round t enters the running totals with share t^-0.6 (Cappe and Moulines 2009)
_LEAST_NOISE = 1e-3  # of the target's mean square of about 1: a floor that is public


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateMixtureFit:
    """A mixture learned through a channel, and the guarantee of everything that was sent.

    The population of `fit` comes from what was sent; its theta, errors and responsibilities belong
    to each group and are not private.
    """

    fit: RegressionFit
    channel: CentralGaussian
    guarantee: Guarantee


class _ScaledMixture(NamedTuple):
    """A mixture in public units, in which features and targets have a mean square of about 1."""

    shares: np.ndarray
    centers: np.ndarray
    noise: float


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
    computed by the accountant for `relation`. Protects: all rows of one group. Trusts: whoever
    computes the sums and adds the noise (or secure aggregation).
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
    mixture = _learn(unit, first, channel, rounds, radius, noise_variance is None, seed, width)
    population = _population(mixture, target_scale / scale, target_scale)
    guarantee = _guarantee(channel, delta, rounds, relation, width)
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
        return channel
    one = events.gaussian(1.0)
    multiplier = planning.noise_multiplier(
        one, target=epsilon or 0.0, delta=delta, rounds=rounds, relation=relation
    )
    bound = float(np.sqrt(2 + 2 * dimension)) if clip is None else clip
    return CentralGaussian(clip=bound, noise_multiplier=multiplier, noise=noise)


def private_messages(
    block: Block, shares: np.ndarray, centers: np.ndarray, noise: float
) -> np.ndarray:
    """The messages of a block's groups before clipping, (g, k (1 + d (d + 3) / 2) + 1).

    Off-diagonal products occur twice in X'X and are sent once, times sqrt(2), which keeps the norm.
    A group whose numbers overflow sends zeros, so that it does not spoil the sum.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        sent = _messages(block, shares, centers, noise)
    return np.where(np.isfinite(sent).all(axis=1, keepdims=True), sent, 0.0)


def _messages(block: Block, shares: np.ndarray, centers: np.ndarray, noise: float) -> np.ndarray:
    size = block.y.shape[1]
    left = block.y[:, None, :] - centers @ np.swapaxes(block.x, 1, 2)
    with np.errstate(divide="ignore"):
        logits = np.log(shares) - (left**2).sum(axis=2) / (2 * noise)
    alpha, _ = soften(logits)
    square = np.swapaxes(block.x, 1, 2) @ block.x / size
    cross = (block.y[:, None, :] @ block.x)[:, 0] / size
    upper = np.triu_indices(len(square[0]))
    twice = np.where(upper[0] == upper[1], 1.0, np.sqrt(2))
    own = np.concatenate([np.ones((len(alpha), 1)), square[:, *upper] * twice, cross], axis=1)
    spread = (alpha[:, :, None] * own[:, None, :]).reshape(len(alpha), -1)
    return np.concatenate([spread, (block.y**2).mean(axis=1)[:, None]], axis=1)


def _learn(
    rows: GroupedRows,
    mixture: _ScaledMixture,
    channel: CentralGaussian,
    rounds: int,
    radius: float,
    learns_noise: bool,
    seed: int,
    width: int,
) -> _ScaledMixture:
    """EM with totals averaged over rounds, which reduces the noise of a single round."""
    total, error = np.zeros(width), 0.0
    for place in range(rounds):
        key = random.stream(seed, "decode", place)
        sent = np.zeros(width)
        for block in rows.blocks():
            sent = sent + channel.encode(private_messages(block, *mixture), key).sum(axis=0)
        noised = np.asarray(channel.decode(sent, key))
        part = (place + 1) ** -_FORGET
        total = (1 - part) * total + part * noised
        error = float(np.hypot((1 - part) * error, part * channel.clip * channel.noise_multiplier))
        mixture = maximize_noised(total, error, mixture, radius, learns_noise)
    return mixture


def maximize_noised(
    total: np.ndarray, error: float, mixture: _ScaledMixture, radius: float, learns_noise: bool
) -> _ScaledMixture:
    """The server's half: shares, centers and noise from totals with noise of scale `error`.

    center += A^-1 (b - A center), A's eigenvalues at least twice the noise's largest: directions
    that the noise drowns move little. Centers stay within `radius`, a share keeps one `error`.
    """
    count, dimension = mixture.centers.shape
    parts = total[:-1].reshape(count, -1)
    mass = np.maximum(parts[:, 0], min(error, max(float(parts[:, 0].sum()) / count, 1e-12)))
    square = _symmetric(parts[:, 1:-dimension], dimension)
    cross = parts[:, -dimension:]
    left = cross - (square @ mixture.centers[:, :, None])[:, :, 0]
    values, vectors = np.linalg.eigh(square)
    # a symmetric matrix of such noise has spectral norm about sqrt(2 d) error at most
    values = np.maximum(values, 2 * np.sqrt(2 * dimension) * error + 1e-12)
    along = (np.swapaxes(vectors, 1, 2) @ left[:, :, None])[:, :, 0] / values
    centers = mixture.centers + (vectors @ along[:, :, None])[:, :, 0]
    centers *= radius / np.maximum(np.linalg.norm(centers, axis=1, keepdims=True), radius)
    noise = mixture.noise
    if learns_noise:
        fitted = (centers * (2 * cross - (square @ centers[:, :, None])[:, :, 0])).sum()
        weight = max(float(parts[:, 0].sum()), 4 * np.sqrt(count) * error, 1e-12)
        noise = max(float(total[-1] - fitted) / weight, _LEAST_NOISE)
    return _ScaledMixture(mass / mass.sum(), centers, noise)


def _symmetric(flat: np.ndarray, dimension: int) -> np.ndarray:
    """(k, d (d + 1) / 2) numbers as they were sent to (k, d, d)."""
    rows, columns = np.triu_indices(dimension)
    matrices = np.empty((len(flat), dimension, dimension))
    values = flat / np.where(rows == columns, 1.0, np.sqrt(2))
    matrices[:, rows, columns] = values
    matrices[:, columns, rows] = values
    return matrices


def _start(
    start: np.ndarray | None, count: int, radius: float, scale: np.ndarray, seed: int
) -> _ScaledMixture:
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
    return _ScaledMixture(np.full(count, 1 / count), centers, 1.0)


def _guarantee(
    channel: CentralGaussian, delta: float, rounds: int, relation: Relation, width: int
) -> Guarantee:
    spent = [(channel.event(width), rounds)]
    return Guarantee(
        epsilon=max(accounting.epsilon(spent, delta=delta, relation=relation), 1e-12),
        delta=delta,
        unit="one group's rows",
        neighbors=_NEIGHBORS[relation],
        trust="whoever computes the sum (central model)",
        mechanism=f"Gaussian noise of {channel.noise_multiplier:g} times the clip {channel.clip:g} "
        f"on sums of {width} numbers, {rounds} round{'s' if rounds > 1 else ''}",
        noise=channel.noise,
        bits=32.0 * width * rounds,
    )


def _population(
    mixture: _ScaledMixture, scale: np.ndarray, target_scale: float
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
