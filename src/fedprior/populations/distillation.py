"""A prior on a model's predictions: knowledge distillation with a learned scale psi (AdaPeD)."""

from dataclasses import dataclass
from typing import Literal, get_args

from fedprior.core import check
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.plain import picked
from fedprior.core.protocols import Gamma, Population, Predict

Direction = Literal["forward", "reverse", "squared"]
Normalizer = Literal["paper", "exact"]


@dataclass(frozen=True, kw_only=True)
class Distillation(Population):
    """-log p = D/2 log(2 psi) + f_KD / (2 psi), gamma = (mean, psi), psi >= psi_floor.

    f_KD is the mean over samples of a divergence between the class probabilities of the mean model
    and of the client's model: `forward` KL(mean || theta) as in the paper's appendix, `reverse`
    KL(theta || mean), or `squared` ||p_theta - p_mean||_2^2; logits are divided by `temperature`.

    Without the floor the objective is unbounded below (psi -> 0 at theta = mean). The stationary
    point of psi is f_KD / D, so it stays at the floor if f_KD < D * psi_floor (ERRATA 41).
    `normalizer="exact"` replaces D/2 log(2 psi) by the log normalizer of the prior that the forward
    divergence defines, Dirichlet(1 + p_mean / (2 psi)) for each sample (ERRATA 42-43).
    """

    initial_psi: float = 4.0
    psi_floor: float = 0.5
    direction: Direction = "forward"
    temperature: float = 1.0
    degrees: float = 1.0  # D; 1 in the paper, num_classes - 1 would match the exact normalizer
    normalizer: Normalizer = "paper"
    learn_psi: bool = True  # otherwise psi keeps its initial value and is not sent

    per_sample = True

    @property
    def blocks(self) -> tuple[str, ...]:
        return ("mean", "psi") if self.learn_psi else ("mean",)

    def __post_init__(self) -> None:
        owner = "Distillation"
        names = ("initial_psi", "psi_floor", "temperature", "degrees")
        check.positive(owner, **picked(self, *names))
        check.choice(owner, "direction", self.direction, get_args(Direction))
        check.choice(owner, "normalizer", self.normalizer, get_args(Normalizer))
        if self.normalizer == "exact" and self.direction != "forward":
            remedy = "The exact normalizer is known for the forward divergence only."
            raise ValueError(check.message(owner, "direction", "'forward'", self.direction, remedy))

    def start(self, parameters: PyTree) -> Gamma:
        import jax.numpy as jnp

        psi = jnp.asarray(self.initial_psi, jnp.float32)
        return self.project({"mean": parameters, "psi": psi})

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        psi = gamma["psi"]
        xp = psi.__array_namespace__()
        mean = _log_softmax(predict(gamma["mean"], x) / self.temperature)
        own = _log_softmax(predict(w, x) / self.temperature)
        total = xp.maximum(xp.sum(mask), 1)
        f_kd = xp.sum(self.divergence(mean, own) * mask) / total
        if self.normalizer == "exact":
            normalizer = xp.sum(log_normalizer(mean, 1 / (2 * psi)) * mask) / total
        else:
            normalizer = self.degrees / 2 * xp.log(2 * psi)
        return normalizer + f_kd / (2 * psi)

    def divergence(self, mean: Array, own: Array) -> Array:
        """The chosen divergence for each sample, from log probabilities (num_samples, classes)."""
        xp = mean.__array_namespace__()
        if self.direction == "forward":
            return divergence(mean, own)
        if self.direction == "reverse":
            return divergence(own, mean)
        return xp.sum((xp.exp(own) - xp.exp(mean)) ** 2, axis=-1)

    def project(self, gamma: Gamma) -> Gamma:
        xp = gamma["psi"].__array_namespace__()
        return {**gamma, "psi": xp.maximum(gamma["psi"], self.psi_floor)}


def divergence(target: Array, own: Array) -> Array:
    """KL(target || own) for each sample, from log probabilities (num_samples, classes)."""
    xp = target.__array_namespace__()
    return xp.sum(xp.exp(target) * (target - own), axis=-1)


def log_normalizer(mean: Array, strength: Array) -> Array:
    """Log of the integral over q of exp(-strength * KL(p || q)), p = exp(mean), per sample.

    Equals strength * H(p) + log B(1 + strength * p), B the multivariate beta function.
    """
    from jax.scipy.special import gammaln

    xp = mean.__array_namespace__()
    p = xp.exp(mean)
    entropy = -xp.sum(p * mean, axis=-1)
    beta = xp.sum(gammaln(1 + strength * p), axis=-1) - gammaln(mean.shape[-1] + strength)
    return strength * entropy + beta


def _log_softmax(logits: Array) -> Array:
    xp = logits.__array_namespace__()
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
