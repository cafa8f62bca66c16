"""Algorithm 1 as printed: cluster the shrunken estimates, and shrink again (ERRATA 22, 23)."""

import numpy as np

from fedprior.estimation.clustering import Cluster, cluster_points
from fedprior.estimation.mixture.em import DiscreteMixture, responsibilities
from fedprior.estimation.mixture.summary import separation


def paper_mixture(
    mean: np.ndarray,
    variance: np.ndarray,
    num_components: int,
    *,
    cluster: Cluster,
    rounds: int,
) -> tuple[DiscreteMixture, tuple[str, ...]]:
    """`rounds` times: mixture = cluster(theta), theta = E[theta | mixture]; and a note.

    It clusters first, as it must (ERRATA 22). With more than one round the centers collapse,
    because the estimates that it clusters are already shrunken (ERRATA 23).
    """
    points, apart = mean, []
    for _ in range(rounds):
        clusters = cluster_points(cluster, points, num_components)
        mixture = DiscreteMixture(clusters.centers, clusters.probabilities)
        points = responsibilities(mean, variance, mixture)[0] @ mixture.centers
        apart.append(separation(mixture, variance))
    if rounds == 1:
        return mixture, ()
    path = ", ".join(f"{apart[place - 1]:.2f}" for place in _milestones(rounds))
    listed = ", ".join(str(place) for place in _milestones(rounds))
    return mixture, (
        "The printed algorithm clusters estimates that are already shrunken, so its centers draw "
        f"together in every round (ERRATA 23): the nearest two are {path} standard deviations of a "
        f"typical mean apart after rounds {listed}. Use one round, or method='default'.",
    )


def _milestones(rounds: int) -> list[int]:
    """1, 2, 5, 10, 20, 50 ... and the last round."""
    marks = [lead * 10**power for power in range(9) for lead in (1, 2, 5)]
    return [mark for mark in marks if mark < rounds] + [rounds]
