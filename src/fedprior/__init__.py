"""fedprior: learn the population that many small clients come from, and use it as their prior."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedprior.channels.central_gaussian import CentralGaussian as CentralGaussian
    from fedprior.channels.chain import Chain as Chain
    from fedprior.channels.identity import Identity as Identity
    from fedprior.channels.local_gaussian import LocalGaussian as LocalGaussian
    from fedprior.channels.quantize import Quantize as Quantize
    from fedprior.channels.randomized_response import KaryResponse as KaryResponse
    from fedprior.channels.randomized_response import OneBit as OneBit
    from fedprior.core.algorithm import Algorithm as Algorithm
    from fedprior.core.algorithm import Message as Message
    from fedprior.core.check import PrivacyError as PrivacyError
    from fedprior.core.protocols import Channel as Channel
    from fedprior.core.protocols import Cohort as Cohort
    from fedprior.core.protocols import Model as Model
    from fedprior.core.protocols import Population as Population
    from fedprior.data.datasets import load as load_dataset  # noqa: F401
    from fedprior.data.federation import ClientData as ClientData
    from fedprior.data.federation import Federation as Federation
    from fedprior.data.federation import Split as Split
    from fedprior.data.folder import from_folder as from_folder
    from fedprior.data.table import federation_from_table as from_table  # noqa: F401
    from fedprior.data.table import from_frame as from_frame
    from fedprior.engines.debug import ClientError as ClientError
    from fedprior.engines.debug import debug as debug
    from fedprior.engines.result import Result as Result
    from fedprior.engines.run import Saving as Saving
    from fedprior.engines.simulate import simulate as simulate
    from fedprior.estimation.bernoulli.estimate import estimate_rates as estimate_rates
    from fedprior.estimation.encoder import GroupEncoder as GroupEncoder
    from fedprior.estimation.federated.algorithms import bernoulli_rates as bernoulli_rates
    from fedprior.estimation.federated.algorithms import gaussian_means as gaussian_means
    from fedprior.estimation.federated.algorithms import mixture_means as mixture_means
    from fedprior.estimation.federated.algorithms import rates_channel as rates_channel
    from fedprior.estimation.gaussian.estimate import estimate_means as estimate_means
    from fedprior.estimation.groups import EstimationWarning as EstimationWarning
    from fedprior.estimation.mixture.estimate import estimate_mixture as estimate_mixture
    from fedprior.estimation.private.means import (
        estimate_means_privately as estimate_means_privately,
    )
    from fedprior.estimation.private.mixture import (
        estimate_mixture_privately as estimate_mixture_privately,
    )
    from fedprior.estimation.private.rates import (
        estimate_rates_privately as estimate_rates_privately,
    )
    from fedprior.estimation.result import Estimates as Estimates
    from fedprior.estimation.result import FittedPopulation as FittedPopulation
    from fedprior.estimation.risk import Risk as Risk
    from fedprior.estimation.risk import risk as risk
    from fedprior.estimation.statistics import Counts as Counts
    from fedprior.estimation.statistics import Means as Means
    from fedprior.estimation.table import GroupMeans as GroupMeans
    from fedprior.estimation.table import GroupMixture as GroupMixture
    from fedprior.estimation.table import GroupRates as GroupRates
    from fedprior.learning.adaped import adaped as adaped
    from fedprior.learning.adaped import adaped_fine_tuning as adaped_fine_tuning
    from fedprior.learning.alternating import alternating as alternating
    from fedprior.learning.baselines.fedavg import fedavg as fedavg
    from fedprior.learning.baselines.fedavg import fedavg_fine_tuning as fedavg_fine_tuning
    from fedprior.learning.baselines.fedem import fedem as fedem
    from fedprior.learning.baselines.local import local as local
    from fedprior.learning.batches import Batches as Batches
    from fedprior.learning.priors import gaussian_prior as gaussian_prior
    from fedprior.learning.priors import laplace_prior as laplace_prior
    from fedprior.models.lenet import lenet5 as lenet5
    from fedprior.models.network import linear as linear
    from fedprior.models.network import logistic as logistic
    from fedprior.models.network import mlp as mlp
    from fedprior.models.network import network as network
    from fedprior.populations.distillation import Distillation as Distillation
    from fedprior.populations.flat import Flat as Flat
    from fedprior.populations.gaussian import Gaussian as Gaussian
    from fedprior.populations.laplace import Laplace as Laplace
    from fedprior.populations.point import PointMass as PointMass
    from fedprior.privacy.cohort import Everyone as Everyone
    from fedprior.privacy.cohort import FixedSize as FixedSize
    from fedprior.privacy.cohort import Poisson as Poisson
    from fedprior.privacy.guarantee import Guarantee as Guarantee
    from fedprior.privacy.ledger import Ledger as Ledger
    from fedprior.privacy.ledger import Terms as Terms
    from fedprior.reporting.run import load as load

# The public interface: where each name lives. Nothing is imported before it is used.
_PUBLIC = {
    "Algorithm": "core.algorithm",
    "Batches": "learning.batches",
    "CentralGaussian": "channels.central_gaussian",
    "Chain": "channels.chain",
    "Channel": "core.protocols",
    "ClientData": "data.federation",
    "ClientError": "engines.debug",
    "Cohort": "core.protocols",
    "Counts": "estimation.statistics",
    "Distillation": "populations.distillation",
    "Estimates": "estimation.result",
    "EstimationWarning": "estimation.groups",
    "Everyone": "privacy.cohort",
    "Federation": "data.federation",
    "FittedPopulation": "estimation.result",
    "FixedSize": "privacy.cohort",
    "Flat": "populations.flat",
    "Gaussian": "populations.gaussian",
    "GroupEncoder": "estimation.encoder",
    "GroupMeans": "estimation.table",
    "GroupMixture": "estimation.table",
    "GroupRates": "estimation.table",
    "Guarantee": "privacy.guarantee",
    "Identity": "channels.identity",
    "KaryResponse": "channels.randomized_response",
    "Laplace": "populations.laplace",
    "Ledger": "privacy.ledger",
    "LocalGaussian": "channels.local_gaussian",
    "Means": "estimation.statistics",
    "Message": "core.algorithm",
    "Model": "core.protocols",
    "OneBit": "channels.randomized_response",
    "PointMass": "populations.point",
    "Poisson": "privacy.cohort",
    "Population": "core.protocols",
    "PrivacyError": "core.check",
    "Quantize": "channels.quantize",
    "Result": "engines.result",
    "Risk": "estimation.risk",
    "Saving": "engines.run",
    "Split": "data.federation",
    "Terms": "privacy.ledger",
    "adaped": "learning.adaped",
    "adaped_fine_tuning": "learning.adaped",
    "alternating": "learning.alternating",
    "bernoulli_rates": "estimation.federated.algorithms",
    "debug": "engines.debug",
    "estimate_means": "estimation.gaussian.estimate",
    "estimate_means_privately": "estimation.private.means",
    "estimate_mixture": "estimation.mixture.estimate",
    "estimate_mixture_privately": "estimation.private.mixture",
    "estimate_rates": "estimation.bernoulli.estimate",
    "estimate_rates_privately": "estimation.private.rates",
    "fedavg": "learning.baselines.fedavg",
    "fedavg_fine_tuning": "learning.baselines.fedavg",
    "fedem": "learning.baselines.fedem",
    "from_folder": "data.folder",
    "from_frame": "data.table",
    "from_table": "data.table:federation_from_table",
    "gaussian_means": "estimation.federated.algorithms",
    "gaussian_prior": "learning.priors",
    "laplace_prior": "learning.priors",
    "lenet5": "models.lenet",
    "linear": "models.network",
    "load": "reporting.run",
    "load_dataset": "data.datasets:load",
    "local": "learning.baselines.local",
    "logistic": "models.network",
    "mixture_means": "estimation.federated.algorithms",
    "mlp": "models.network",
    "network": "models.network",
    "rates_channel": "estimation.federated.algorithms",
    "risk": "estimation.risk",
    "simulate": "engines.simulate",
}

__all__ = [*sorted(_PUBLIC), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fedprior' has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    value = getattr(import_module(f"fedprior.{module}"), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
