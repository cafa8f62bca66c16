"""The roster: numbers that stay, keys that go, cards that must agree."""

import pytest

from fedprior.sites.roster import Roster, enrolled

CARD = {
    "clients": ["a", "b"],
    "key": "ssh-x 1",
    "shape": [4],
    "target_shape": [],
    "inputs": "float32",
    "targets": "int32",
    "classes": ["no", "yes"],
    "encoder": None,
    "largest": 7,
}
OTHER = {**CARD, "clients": ["c"], "key": "ssh-x 2", "largest": 9}


def test_numbers_follow_the_cards():
    roster, facts = enrolled({"one": CARD, "two": OTHER}, 0)
    assert roster.numbers == {"a": 0, "b": 1, "c": 2}
    assert roster.keys == {"a": "ssh-x 1", "b": "ssh-x 1", "c": "ssh-x 2"}
    assert (facts.num_clients, facts.most_samples, facts.num_classes) == (3, 9, 2)


def test_the_public_bound_of_a_private_run():
    quiet = {**OTHER, "largest": None}
    assert enrolled({"one": CARD, "two": quiet}, 50)[1].most_samples == 50
    assert enrolled({"one": CARD, "two": quiet}, 0)[1].most_samples is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"shape": [5]}, "two has another shape than one"),
        ({"classes": ["yes", "no"]}, "two has another classes than one"),
        ({"encoder": "{}"}, "two has another encoder than one"),
        ({"targets": "float32"}, "two has another targets than one"),
        ({"clients": ["b"]}, "two sites have a client 'b': two is the second"),
    ],
)
def test_cards_that_do_not_agree(change, reason):
    with pytest.raises(ValueError, match=reason):
        enrolled({"one": CARD, "two": {**OTHER, **change}}, 0)


def test_a_client_that_is_forgotten_keeps_its_number(tmp_path):
    roster = enrolled({"one": CARD, "two": OTHER}, 0)[0].forget("b")
    assert roster.active == ["a", "c"]
    assert roster.numbers == {"a": 0, "b": 1, "c": 2}
    assert roster.keys["b"] is None
    roster.write(tmp_path / "roster.json")
    assert Roster.read(tmp_path / "roster.json") == roster
    assert roster.forget("b") == roster
    with pytest.raises(ValueError, match="client must be one of a, b, c"):
        roster.forget("d")
    path = tmp_path / "roster.json"
    path.write_text(path.read_text().replace('"a": 0', '"a": 2'))
    with pytest.raises(ValueError, match="damaged or was edited"):
        Roster.read(path)
