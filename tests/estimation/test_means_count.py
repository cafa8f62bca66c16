"""Means whose rows stand for many groups of one size."""

import numpy as np
import pytest

from fedprior import GroupMeans, GroupMixture
from fedprior.estimation.gaussian.estimate import estimate_means
from fedprior.estimation.statistics import Means


def groups_and_sizes(offset=1e6, seed=0):
    draws = np.random.default_rng(seed)
    n = draws.integers(1, 9, 500)
    mean = offset + draws.normal(size=500) * np.sqrt(1 + 2 / n)
    within = 2.0 * draws.chisquare(np.maximum(n - 1, 1e-9))
    within[n == 1] = 0.0
    sizes, place = np.unique(n, return_inverse=True)
    count = np.bincount(place)
    middle = offset + np.bincount(place, mean - offset) / count
    scatter = np.bincount(place, (mean - middle[place]) ** 2)
    each = Means(n=n, mean=mean, within=within)
    summed = Means(
        n=sizes, mean=middle, within=np.bincount(place, within), count=count, scatter=scatter
    )
    return each, summed, place


@pytest.mark.parametrize(
    "options",
    [{}, {"fit": "moments"}, {"population": "point"}, {"by_size": True}, {"method": "paper"}],
)
def test_sums_by_size_are_sufficient(options):
    each, summed, place = groups_and_sizes()
    expected = estimate_means(each, noise="common", **options)
    found = estimate_means(summed, **options)
    rough = 1e-4 if options.get("by_size") else 1e-6  # a search by size ends within its tolerance
    np.testing.assert_allclose(found.weight[place], expected.weight, rtol=rough)
    assert found.gain_over_raw == pytest.approx(expected.gain_over_raw, rel=rough)
    assert found.num_groups == 500
    lookup = found.lookup
    y = each.mean - lookup.center
    personal = lookup.center + lookup.weight[place] * y + lookup.offset[place]
    half = lookup.square[place] * y**2 + lookup.slant[place] * y + lookup.constant[place]
    half = lookup.score * np.sqrt(np.maximum(half, 0))
    np.testing.assert_allclose(personal, expected.personal, atol=10 * rough)
    np.testing.assert_allclose(personal - half, expected.lower, atol=10 * rough)
    np.testing.assert_allclose(personal + half, expected.upper, atol=10 * rough)


def test_the_estimator_takes_a_count():
    each, summed, place = groups_and_sizes(offset=0.0)
    arguments = {"within": summed.within, "count": summed.count, "scatter": summed.scatter}
    model = GroupMeans.from_statistics(summed.n, summed.mean, **arguments)
    single = GroupMeans(noise="common").fit_statistics(each.n, each.mean, within=each.within)
    np.testing.assert_allclose(model.weight_[place], single.weight_, rtol=1e-7)
    np.testing.assert_allclose(model.interval([-1]), single.interval([-1]), rtol=1e-6)
    assert model.sentence_ == single.sentence_


def test_what_needs_single_groups_is_refused():
    _, summed, _ = groups_and_sizes()
    for options, message in (
        ({"intervals": "robust"}, "intervals='robust' needs each group's mean"),
        ({"population": "nonparametric"}, "population='nonparametric' needs each group's mean"),
        ({"noise": "moderated"}, "noise='moderated' needs each group's mean"),
        ({"above": 0.0}, "above needs each group's mean"),
        ({"ranks": True}, "ranks needs each group's mean"),
    ):
        with pytest.raises(ValueError, match=message):
            estimate_means(summed, **options)
    few = Means(
        n=np.array([2, 3]),
        mean=np.array([0.0, 1.0]),
        within=np.ones(2),
        count=np.array([5, 6]),
        scatter=np.ones(2),
    )
    with pytest.raises(ValueError, match="groups must be at least 100 with count, got 11"):
        estimate_means(few)
    arguments = {"within": summed.within, "count": summed.count, "scatter": summed.scatter}
    with pytest.raises(ValueError, match="a mixture needs each group's mean"):
        GroupMixture.from_statistics(summed.n, summed.mean, **arguments)
    with pytest.raises(ValueError, match="count and scatter are given together"):
        GroupMeans.from_statistics(summed.n, summed.mean, within=summed.within, count=summed.count)
