"""Pages of estimates and regressions in Chromium: every kind, at every width, accessible."""

import numpy as np
import pytest

import browser as browsers
from fedprior.estimation import GroupLevels, GroupMeans, GroupRates, GroupShares
from fedprior.estimation.private.rates import estimate_rates_privately
from fedprior.estimation.statistics import Counts
from fedprior.regression import PersonalRegression

WARDS = np.array([f"ward {number:02d} <b>" for number in range(40)], object)


def _rates():
    draws = np.random.default_rng(0)
    n = np.exp(draws.uniform(1.5, 5, 40)).astype(int)
    return n, draws.binomial(n, draws.beta(6, 14, 40))


def _regression():
    draws = np.random.default_rng(1)
    place = np.repeat(np.arange(40), 8)
    x = draws.normal(size=(320, 1))
    y = draws.normal(size=40)[place] + x[:, 0] + draws.normal(size=320)
    return PersonalRegression().fit(x, y, WARDS[place])


def _levels():
    draws = np.random.default_rng(2)
    state, county = np.repeat(np.arange(6), 20), np.tile(np.repeat(np.arange(5), 4), 6)
    value = draws.normal(0, 2, 6)[state] + draws.normal(size=120)
    return GroupLevels().fit(value, {"state": state, "county": county})


def _meta():
    draws = np.random.default_rng(3)
    errors = draws.uniform(0.1, 1, 12)
    return GroupMeans().fit(draws.normal(size=12), WARDS[:12], standard_errors=errors)


def _shares():
    counts = np.random.default_rng(4).multinomial(20, [0.5, 0.3, 0.2], 12)
    return GroupShares().fit_counts(counts, WARDS[:12])


def _private():
    n, won = _rates()
    return estimate_rates_privately(Counts(n=n, successes=won), epsilon=2, seed=0)


KINDS = {
    "rates": lambda: GroupRates(ranks=True, above=0.3).fit_counts(_rates()[1], _rates()[0], WARDS),
    "regression": _regression,
    "levels": _levels,
    "meta-analysis": _meta,
    "shares": _shares,
    "private": _private,
}


@pytest.fixture(scope="module", params=KINDS)
def page_file(request, tmp_path_factory):
    return KINDS[request.param]().report(tmp_path_factory.mktemp("page") / "page.html").path


def test_every_kind_opens_at_every_width(browser, page_file):
    with browsers.visit(browser, page_file, width=320) as page:
        for width in (320, 800, 1600):
            page.set_viewport_size({"width": width, "height": 900})
            browsers.ready(page)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert browsers.blank_charts(page) == 0
        assert browsers.violations(page) == []
        assert page.pdf().startswith(b"%PDF")
