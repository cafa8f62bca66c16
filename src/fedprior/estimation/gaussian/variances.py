"""Noise variances that differ between groups: their population, and a test of equality."""

from dataclasses import dataclass

import numpy as np

_FITTED = 1 << 15  # largest number of groups that the fit looks at: an error of 1% in `freedom`
_POINTS, _ENOUGH, _DEPTH = 25, 9, 18.0  # as in `nodes`: points of a grid, with weight, ignored
_INTEGRATED = 1000  # groups below which the population of variances itself is uncertain
_NODES, _WIDE_NODES = 14, 28  # of a group's variance: the step is below one standard deviation
_WIDEST, _NARROWEST = 4.0, 0.02  # of tau, where log(variance) has a deviation of about tau


@dataclass(frozen=True, kw_only=True, eq=False)
class VariancePopulation:
    """sigma_i^2 = freedom variance / chi^2(freedom): inverse gamma, as in limma (Smyth 2004).

    `nodes_freedom`, `nodes_variance` and `probability` are the posterior of (freedom, variance) on
    a grid; `chance` is the p-value of equal variances.
    """

    freedom: float
    variance: float
    nodes_freedom: np.ndarray
    nodes_variance: np.ndarray
    probability: np.ndarray
    chance: float

    @property
    def factor(self) -> float:
        """exp(standard deviation of log sigma_i): 1 if all groups have the same noise."""
        from scipy.special import polygamma

        return float(np.exp(np.sqrt(polygamma(1, self.freedom / 2)) / 2))


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseNodes:
    """sigma_i^2 of each group given its own rows: values and log-probabilities, (nodes, groups)."""

    variance: np.ndarray
    log_probability: np.ndarray


def fit_variances(freedom: np.ndarray, within: np.ndarray) -> VariancePopulation | None:
    """The posterior of the population from sums of squares within_i ~ sigma_i^2 chi^2(freedom_i).

    The prior is flat in tau = sqrt(2 / freedom) and in log(variance). None if fewer than three
    groups have two rows, or if nothing varies within any group.
    """
    from scipy.special import chdtrc

    some = freedom > 0
    freedom, within = freedom[some], within[some]
    if len(freedom) < 3 or not np.any(within > 0):
        return None
    step = -(-len(freedom) // _FITTED)
    freedom, half = freedom[::step], within[::step] / 2
    pooled = half.sum() / (freedom.sum() / 2)
    low, high = _NARROWEST, _WIDEST
    while True:
        tau = np.linspace(low, high, _POINTS)
        density, center, curvature = _profile(1 / tau**2, freedom / 2, half / pooled)
        inside = np.flatnonzero(density > density.max() - _DEPTH)
        if len(inside) >= _ENOUGH or high - low < 1e-6:
            break
        low, high = tau[max(inside[0] - 1, 0)], tau[min(inside[-1] + 1, _POINTS - 1)]
    equal = -freedom.sum() / 2  # the limit tau = 0, in the same units
    best = int(np.argmax(density))
    ratio = 2 * float(density[best] - equal)
    chance = float(chdtrc(1, ratio)) / 2 if ratio > 0 else 1.0  # on the boundary: half a chi^2
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    deviation = 1 / np.sqrt(curvature[inside])
    shifts = center[inside, None] + deviation[:, None] * nodes
    mass = np.exp(density[inside] - density[best]) * deviation
    mass = (mass[:, None] * weights).ravel()
    probability = mass / mass.sum()
    taus = np.repeat(tau[inside], len(nodes))
    return VariancePopulation(
        freedom=float(2 / (probability @ taus) ** 2),
        variance=float(pooled * np.exp(probability @ shifts.ravel())),
        nodes_freedom=2 / taus**2,
        nodes_variance=pooled * np.exp(shifts).ravel(),
        probability=probability,
        chance=max(chance, 1e-99),
    )


def _profile(
    shape: np.ndarray, own: np.ndarray, half: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Highest log-likelihood at each shape = freedom / 2, its log(variance), and the curvature.

    `own` is half of a group's degrees of freedom, `half` half of its sum of squares. The likelihood
    is concave in log(variance), so that Newton's method with short steps converges.
    """
    from scipy.special import gammaln

    sizes, place = np.unique(own, return_inverse=True)
    count = np.bincount(place)
    density, center, curvature = (np.empty_like(shape) for _ in range(3))
    log = 0.0
    for number, a in enumerate(shape):
        for _ in range(50):
            share = (a + own) / (1 + half / (a * np.exp(log)))
            bend = float((share * half / (a * np.exp(log) + half)).sum())
            move = float(np.clip((a * len(own) - share.sum()) / max(bend, 1e-300), -1, 1))
            log += move
            if abs(move) < 1e-6:
                break
        center[number], curvature[number] = log, max(bend, 1e-12)
        # gammaln(a + f) - gammaln(a) - f log(a) -> 0 as a grows
        table = gammaln(a + sizes) - gammaln(a) - sizes * np.log(a)
        density[number] = count @ table - own.sum() * log
        density[number] -= float(((a + own) * np.log1p(half / (a * np.exp(log)))).sum())
    return density, center, curvature


def noise_nodes(
    population: VariancePopulation, freedom: np.ndarray, within: np.ndarray, *, num_groups: int
) -> NoiseNodes:
    """sigma_i^2 given within_i: inverse gamma with population and own degrees of freedom added.

    The nodes are even in log sigma^2 between extreme quantiles. Below 1,000 groups in all
    (`num_groups`) the density is averaged over the posterior of the population.
    """
    from scipy.special import gammaincinv

    wide = num_groups < _INTEGRATED
    shape = (population.freedom + freedom) / 2
    rate = (population.freedom * population.variance + within) / 2
    sizes, place = np.unique(shape, return_inverse=True)
    outer = sizes / 2 if wide else sizes
    low, high = (np.log(sizes * gammaincinv(outer, tail) / outer) for tail in (1e-7, 1 - 1e-6))
    grid = np.linspace(low, high, _WIDE_NODES if wide else _NODES)  # of log(rate / sigma^2)
    if not wide:
        density = sizes * grid - np.exp(grid)
        density -= np.log(np.exp(density - density.max(axis=0)).sum(axis=0)) + density.max(axis=0)
        return NoiseNodes(
            variance=rate * np.exp(-grid)[:, place], log_probability=density[:, place]
        )
    log = np.log(rate) - grid[:, place]
    density = _averaged(population, freedom, within, log)
    density -= np.log(np.exp(density - density.max(axis=0)).sum(axis=0)) + density.max(axis=0)
    return NoiseNodes(variance=np.exp(log), log_probability=density)


def _averaged(
    population: VariancePopulation, freedom: np.ndarray, within: np.ndarray, log: np.ndarray
) -> np.ndarray:
    """The log-density of log sigma_i^2, averaged over the nodes of the population."""
    from scipy.special import gammaln

    total = np.full_like(log, -np.inf)
    kept = population.probability > 1e-6
    for chance, own, variance in zip(
        population.probability[kept],
        population.nodes_freedom[kept],
        population.nodes_variance[kept],
        strict=True,
    ):
        shape, rate = (own + freedom) / 2, (own * variance + within) / 2
        density = shape * np.log(rate) - gammaln(shape) - shape * log - rate * np.exp(-log)
        total = np.logaddexp(total, np.log(chance) + density)
    return total
