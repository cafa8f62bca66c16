"""What is said before a run begins."""

from fedprior.reporting.config import read
from fedprior.reporting.train import check_run


def test_a_method_that_python_warns_of_is_told_in_one_plain_line():
    changes = ['methods=["mixture-clustering", "fedavg"]', "model.name=logistic"]
    _, remarks = check_run(read(None, changes))
    assert len(remarks) == 1
    assert remarks[0].startswith("mixture-clustering: clusters thetas that are already shrunk")
    assert "\n" not in remarks[0]
