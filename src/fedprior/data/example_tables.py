"""Columns of simulated example tables, drawn from the models that fedprior fits."""

import numpy as np

Columns = dict[str, np.ndarray]
Draws = np.random.Generator

NUM_ARRAYS = 12  # clients whose data are arrays
PLACES = (
    *("Ashford", "Bramley", "Coldwell", "Dunmore", "Eastby", "Fairlea", "Glenrock", "Harwick"),
    *("Ilford", "Jarrow", "Kelso", "Lakeside", "Marden", "Newport", "Oakham", "Pelton"),
    *("Quorn", "Redhill", "Selby", "Thorpe", "Upton", "Verwood", "Westbury", "Yarm"),
)
_WARDS = np.array(["emergency", "medicine", "surgery"])


def _names(number: int, *words: str) -> np.ndarray:
    """Places, each with every one of `words` in turn."""
    return np.array([f"{place} {word}" for word in words for place in PLACES][:number])


def _sizes(draws: Draws, number: int, *, middle: float, most: int) -> np.ndarray:
    """Numbers of rows of groups: a long tail, some groups of 1 to 3 rows, and at most `most`."""
    sizes = np.exp(np.log(middle) + 0.8 * draws.standard_normal(number)).astype(int)
    sizes[: max(2, number // 12)] = 1 + np.arange(max(2, number // 12)) % 3
    return draws.permutation(np.clip(sizes, 1, most))


def _chance(logit: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logit))


def counts(draws: Draws) -> dict[str, Columns]:
    """Races that counties of eight states have won."""
    state = np.repeat(np.arange(8), 15)
    county = _names(120, "County", "Hills", "Coast", "Valley", "Plain")
    income = draws.normal(50, 9, 120).round(1)
    logit = 0.35 * draws.standard_normal(8)[state] + 0.03 * (income - 50)
    races = _sizes(draws, 120, middle=12, most=90)
    won = draws.binomial(races, _chance(logit + 0.35 * draws.standard_normal(120)))
    states = np.array(["Alder", "Birch", "Cedar", "Elm", "Fir", "Hazel", "Maple", "New Oak"])
    columns = {"state": states[state], "county": county, "income": income}
    return {"counts.csv": {**columns, "won": won, "races": races}}


def radon(draws: Draws) -> dict[str, Columns]:
    """Houses in counties: log radon by basement, and by the uranium of the county."""
    sizes = _sizes(draws, 85, middle=6, most=116)
    place = np.repeat(np.arange(85), sizes)
    uranium = draws.normal(0, 0.35, 85).round(2)
    basement = (draws.random(len(place)) < 0.83).astype(int)
    level = 0.8 + 0.7 * uranium + 0.3 * draws.standard_normal(85)
    slope = 0.65 + 0.35 * draws.standard_normal(85)
    noise = 0.65 * draws.standard_normal(len(place))
    log_radon = (level[place] + slope[place] * basement + noise).round(2) + 0.0  # no -0.0
    log_radon[10] = np.nan  # a house whose measurement failed
    counties = _names(85, "County", "Hills", "Coast", "Valley")
    columns = {"county": counties[place], "basement": basement, "uranium": uranium[place]}
    return {"radon.csv": {**columns, "log_radon": log_radon}}


def _patients(draws: Draws, hospital: np.ndarray, effects: np.ndarray) -> Columns:
    """One row per visit; each hospital (a row of `effects`) has a level and slopes of its own."""
    number = len(hospital)
    age = np.clip(draws.normal(62, 16, number), 18, 99).astype(int)
    ward = draws.integers(0, 3, number)
    days = 1 + draws.poisson(4, number)
    crp = np.exp(draws.normal(2, 1, number)).round(1)
    own = effects[hospital]
    logit = 0.4 + own[:, 0] + (own[:, 1] - 0.9) * (age - 62) / 16 + (own[:, 2] - 0.6) * (ward == 0)
    logit += own[:, 3] * (days - 5) / 2 - 0.8 * (np.log(crp) - 2)
    recovered = draws.random(number) < _chance(1.6 * logit)
    crp[draws.random(number) < 0.08] = np.nan  # not measured
    return {"age": age, "ward": _WARDS[ward], "days": days, "crp": crp, "recovered": recovered}


def _effects(draws: Draws, number: int) -> np.ndarray:
    return draws.standard_normal((number, 4)) * [0.8, 0.25, 0.3, 0.3]


def visits(draws: Draws) -> dict[str, Columns]:
    """Visits to hospitals, later visits without an outcome, and public rows."""
    names, effects = _names(41, "General", "Infirmary"), _effects(draws, 41)
    place = np.repeat(np.arange(40), np.maximum(4, _sizes(draws, 40, middle=30, most=150)))
    old = {"hospital": names[place], **_patients(draws, place, effects)}
    later = np.repeat([3, 3, 7, 20, 40], 4)  # the last hospital is not in visits.csv
    new = {"hospital": names[later], **_patients(draws, later, effects)}
    del new["recovered"]
    anywhere = np.arange(300)  # every row from another hospital
    public = _patients(draws, anywhere, _effects(draws, 300))
    return {"visits.csv": old, "new.csv": new, "public.csv": public}


def hospitals(draws: Draws) -> dict[str, Columns]:
    """Visits to three hospitals, a table for each."""
    names, sizes = ("st-mary", "north", "lakeside"), (160, 90, 60)
    effects = _effects(draws, 3)
    return {
        f"{name}.csv": {
            "hospital": np.full(size, name),
            **_patients(draws, np.full(size, number), effects),
        }
        for number, (name, size) in enumerate(zip(names, sizes, strict=True))
    }


def practices(draws: Draws) -> dict[str, Columns]:
    """Visits to so many practices that a private training can learn from them."""
    number = 2_000
    place = np.repeat(np.arange(number), draws.integers(8, 20, number))
    names = np.array([f"practice {1 + each}" for each in range(number)])
    rows = _patients(draws, place, _effects(draws, number))
    return {"practices.csv": {"practice": names[place], **rows}}


def clinics(draws: Draws) -> dict[str, Columns]:
    """Patients who recovered in each of many small clinics."""
    number = 20_000
    patients = draws.integers(4, 25, number)
    recovered = draws.binomial(patients, draws.beta(6, 4, number))
    names = np.array([f"clinic {1 + place}" for place in range(number)])
    return {"clinics.csv": {"clinic": names, "recovered": recovered, "patients": patients}}


def sales(draws: Draws) -> dict[str, Columns]:
    """Baskets in shops of two kinds, which differ in how they react to the price."""
    sizes = _sizes(draws, 60, middle=14, most=80)
    place = np.repeat(np.arange(60), sizes)
    region, size = draws.integers(0, 4, 60), draws.integers(0, 3, 60)
    keen = draws.random(60) < 0.4  # two kinds of shops: customers who watch prices, and others
    slope = np.where(keen, -9, -1) + 0.4 * draws.standard_normal(60)
    level = 32 + 3 * (region == 2) + 3 * size + 2 * draws.standard_normal(60)
    price = draws.normal(2, 0.5, len(place)).round(2)
    noise = 3 * draws.standard_normal(len(place))
    basket = (level[place] + slope[place] * (price - 2) + noise).round(2)
    basket[5] = np.nan
    regions, kinds = np.array(["east", "north", "south", "west"]), np.array(["S", "M", "L"])
    columns = {"shop": _names(60, "Market", "Station", "Mill Lane")[place]}
    columns |= {"region": regions[region][place], "size": kinds[size][place]}
    return {"sales.csv": {**columns, "price": price, "basket": basket}}


def wards(draws: Draws) -> dict[str, Columns]:
    """Falls per month in the wards of twelve hospitals."""
    hospital, ward = np.repeat(np.arange(12), 8), np.arange(96)
    months = np.clip(_sizes(draws, 96, middle=6, most=12), 1, 12)
    beds = draws.integers(8, 40, 96)
    log_rate = -5.3 + 0.35 * draws.standard_normal(12)[hospital] + 0.012 * (beds - 24)
    log_rate += 0.45 * draws.standard_normal(96)
    slope = 0.05 + 0.04 * draws.standard_normal(96)
    row = np.repeat(ward, months)
    age = draws.normal(70, 6, len(row)).round(1)
    days = np.maximum(10, (beds[row] * draws.uniform(15, 30, len(row))).astype(int))
    falls = draws.poisson(days * np.exp(log_rate[row] + slope[row] * (age - 70)))
    names = _names(12, "General")
    wards = np.array([f"{PLACES[home]} {1 + each % 8}" for each, home in enumerate(hospital)])
    columns = {"hospital": names[hospital[row]], "ward": wards[row], "beds": beds[row]}
    return {"wards.csv": {**columns, "age": age, "falls": falls, "days": days}}


def orders(draws: Draws) -> dict[str, Columns]:
    """Products that were ordered in each region."""
    sizes = _sizes(draws, 40, middle=15, most=90)
    shares = draws.dirichlet([5, 3, 8, 2], 40)
    products = np.array(["bread", "coffee", "milk", "tea"])
    bought = [
        products[draws.choice(4, size, p=share)] for size, share in zip(sizes, shares, strict=True)
    ]
    regions = np.repeat(_names(40, "North", "South"), sizes)
    return {"orders.csv": {"region": regions, "product": np.concatenate(bought)}}


def studies(draws: Draws) -> dict[str, Columns]:
    """An estimate and its standard error per study; effects grow with latitude."""
    latitude = draws.integers(10, 58, 14)
    year = np.sort(draws.integers(1935, 1990, 14))
    se = np.exp(draws.normal(-1.5, 0.6, 14)).round(3)
    effect = 0.2 - 0.025 * latitude + 0.2 * draws.standard_normal(14)
    effect = (effect + se * draws.standard_normal(14)).round(3)
    names = np.array([f"{place} {when}" for place, when in zip(PLACES, year, strict=False)])
    return {"studies.csv": {"study": names, "latitude": latitude, "effect": effect, "se": se}}


def ratings(draws: Draws) -> dict[str, Columns]:
    """Stars that users gave to inns."""
    user, item = np.divmod(np.sort(draws.choice(60 * 24, 480, replace=False)), 24)
    liking, worth = 0.5 * draws.standard_normal(60), 0.8 * draws.standard_normal(24)
    stars = 3.4 + liking[user] + worth[item] + 0.7 * draws.standard_normal(480)
    users, items = np.array([f"user {1 + n}" for n in range(60)]), _names(24, "Inn")
    stars = np.clip(stars.round(), 1, 5).astype(int)
    return {"ratings.csv": {"user": users[user], "item": items[item], "stars": stars}}


def clients(draws: Draws) -> dict[str, Columns]:
    """Arrays of twelve clients, three classes."""
    common = draws.standard_normal((6, 3))
    files = {}
    for name, size in zip(PLACES, draws.integers(12, 60, NUM_ARRAYS), strict=False):
        x = draws.standard_normal((size, 6)).astype(np.float32)
        scores = 2 * x @ (common + 0.5 * draws.standard_normal((6, 3)))
        y = (scores + draws.gumbel(size=scores.shape)).argmax(axis=1)
        files[f"clients/{name.lower()}.npz"] = {"x": x, "y": y}
    return files
