"""Words that may be one, and numbers beside a unit, are said wherever a table is read."""

import numpy as np

from fedprior.data.spelling import unit
from fedprior.data.table import from_table


def test_words_that_may_be_one_and_numbers_with_a_unit_are_said():
    table = {
        "client": np.array(["A", "a", "b", "B "] * 10),
        "y": np.array(["yes", "no", "no ", "no"] * 10),
        "share": np.array([f"{number / 4}%" for number in range(40)]),
        "price": np.array([f"EUR {number % 20 + 0.5}" for number in range(40)]),
        "code": np.array([f"c{number % 20}" for number in range(40)]),
    }
    told = from_table(table, client="client", label="y").remarks
    alike = [remark for remark in told if "spaces or capitals" in remark]
    assert [remark.split(":")[0] for remark in alike] == [
        "Column 'y' has words that differ only in spaces or capitals, 'no' and 'no '",
        "The client or group column has words that differ only in spaces or capitals, 'A' and 'a'",
    ]
    units = [remark for remark in told if "beside" in remark]
    assert [remark.split(",")[0] for remark in units] == [
        "Column 'share' is read as 40 words",
        "Column 'price' is read as 20 words",
    ]
    assert units[1].endswith("'EUR', as in 'EUR 0.5'. Remove it to have them read as numbers.")


def test_names_with_numbers_are_no_numbers_with_a_unit():
    numbers = [f"{number / 4}" for number in range(20)]
    assert unit([f"{each} km" for each in numbers]) == "km"
    assert unit([f"{each} km" for each in numbers] + ["unknown"]) is None
    assert unit([f"{each} km" for each in numbers] + ["3.5 miles"]) is None
    assert unit([f"{each} km" for each in numbers[:9]]) is None  # a few kinds of a thing
    assert unit([f"Q{number}" for number in range(20)]) is None
    assert unit([f"08:{number + 10}" for number in range(20)]) is None
    assert unit(numbers) is None
    assert unit([]) is None
