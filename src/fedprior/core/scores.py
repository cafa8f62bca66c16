"""What a score is: a share of correct predictions, or minus a mean squared error."""

from typing import Any

import numpy as np


def are_errors(scores: Any) -> bool:
    """Whether scores are minus squared errors, which are no shares and not shown in percent.

    A share is never negative; None and NaN say nothing.

    >>> are_errors([None, -0.25]), are_errors([0.75, 0.0]), are_errors([])
    (True, False, False)
    """
    return bool((np.asarray(scores, float) < 0).any())
