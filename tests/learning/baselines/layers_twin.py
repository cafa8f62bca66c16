"""What the twins of networks with a body and a head share: two layers in NumPy, with gradients."""

import numpy as np
from scipy.special import softmax
from softmax_twin import CLASSES

import fedprior

NETWORK = fedprior.mlp((4,), CLASSES, hidden=(6,))


def joined(layer):
    """The bias as a first row of the weights."""
    bias = np.asarray(layer["bias"], float)[..., None, :]
    return np.concatenate([bias, np.asarray(layer["weight"], float)], axis=-2)


def hidden(body, x):
    """What the head sees, with a column of ones."""
    return np.hstack([np.ones((len(x), 1)), np.maximum(x @ body, 0)])


def logits(body, head, x):
    return hidden(body, x) @ head


def pulled_back(d_logits, body, head, x):
    """Gradients by body and head of a mean over samples, from that of each by its logits."""
    by_head = hidden(body, x).T @ d_logits / len(x)
    inner = d_logits @ head[1:].T * (x @ body > 0)
    return x.T @ inner / len(x), by_head


def slopes(body, head, x, y):
    """Gradients of the mean cross entropy by body and head."""
    residual = softmax(logits(body, head, x), axis=1) - np.eye(CLASSES)[y]
    return pulled_back(residual, body, head, x)
