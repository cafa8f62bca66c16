"""fedprior: learn the population that many small clients come from, and use it as their prior."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedprior.core.version import __version__

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
    from fedprior.data.encoder import Encoder as Encoder
    from fedprior.data.federation import ClientData as ClientData
    from fedprior.data.federation import Federation as Federation
    from fedprior.data.federation import Split as Split
    from fedprior.data.folder import from_folder as from_folder
    from fedprior.data.table import fit_encoder as fit_encoder
    from fedprior.data.table import from_frame as from_frame
    from fedprior.data.table import from_table as from_table
    from fedprior.engines.debug import ClientError as ClientError
    from fedprior.engines.debug import debug as debug
    from fedprior.engines.result import Result as Result
    from fedprior.engines.run import Saving as Saving
    from fedprior.engines.simulate import simulate as simulate
    from fedprior.engines.sweep import Sweep as Sweep
    from fedprior.engines.sweep import sweep as sweep
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
    from fedprior.learning.adamap import adamap as adamap
    from fedprior.learning.adaped import adaped as adaped
    from fedprior.learning.adaped import adaped_fine_tuning as adaped_fine_tuning
    from fedprior.learning.alternating import alternating as alternating
    from fedprior.learning.baselines.apfl import apfl as apfl
    from fedprior.learning.baselines.ditto import ditto as ditto
    from fedprior.learning.baselines.fedavg import fedavg as fedavg
    from fedprior.learning.baselines.fedavg import fedavg_fine_tuning as fedavg_fine_tuning
    from fedprior.learning.baselines.fedem import fedem as fedem
    from fedprior.learning.baselines.fedprox import fedprox as fedprox
    from fedprior.learning.baselines.fedrep import fedrep as fedrep
    from fedprior.learning.baselines.ifca import ifca as ifca
    from fedprior.learning.baselines.l2gd import l2gd as l2gd
    from fedprior.learning.baselines.local import local as local
    from fedprior.learning.baselines.mean_regularized import mean_regularized as mean_regularized
    from fedprior.learning.baselines.mutual_learning import mutual_learning as mutual_learning
    from fedprior.learning.baselines.per_fedavg import per_fedavg as per_fedavg
    from fedprior.learning.baselines.pfedme import pfedme as pfedme
    from fedprior.learning.baselines.quped import quped as quped
    from fedprior.learning.batches import Batches as Batches
    from fedprior.learning.em import em as em
    from fedprior.learning.multitask import multitask as multitask
    from fedprior.learning.paper import mixture_clustering as mixture_clustering
    from fedprior.learning.priors import clustered as clustered
    from fedprior.learning.priors import discrete_mixture as discrete_mixture
    from fedprior.learning.priors import gaussian_em as gaussian_em
    from fedprior.learning.priors import gaussian_prior as gaussian_prior
    from fedprior.learning.priors import laplace_em as laplace_em
    from fedprior.learning.priors import laplace_prior as laplace_prior
    from fedprior.learning.priors import mixture_em as mixture_em
    from fedprior.learning.representation import shared_body as shared_body
    from fedprior.learning.representation import shared_subspace as shared_subspace
    from fedprior.learning.steps import Steps as Steps
    from fedprior.models.lenet import lenet5 as lenet5
    from fedprior.models.network import linear as linear
    from fedprior.models.network import logistic as logistic
    from fedprior.models.network import mlp as mlp
    from fedprior.models.network import network as network
    from fedprior.populations.discrete import Discrete as Discrete
    from fedprior.populations.distillation import Distillation as Distillation
    from fedprior.populations.flat import Flat as Flat
    from fedprior.populations.gaussian import Gaussian as Gaussian
    from fedprior.populations.laplace import Laplace as Laplace
    from fedprior.populations.mixture import GaussianMixture as GaussianMixture
    from fedprior.populations.multitask import Multitask as Multitask
    from fedprior.populations.point import PointMass as PointMass
    from fedprior.populations.shared_body import SharedBody as SharedBody
    from fedprior.populations.subspace import Subspace as Subspace
    from fedprior.populations.tether import Tether as Tether
    from fedprior.privacy.accounting import epsilon as epsilon
    from fedprior.privacy.cohort import Everyone as Everyone
    from fedprior.privacy.cohort import FixedSize as FixedSize
    from fedprior.privacy.cohort import Poisson as Poisson
    from fedprior.privacy.deployments import distributed_noise as distributed_noise
    from fedprior.privacy.events import Event as Event
    from fedprior.privacy.guarantee import Guarantee as Guarantee
    from fedprior.privacy.ledger import Ledger as Ledger
    from fedprior.privacy.ledger import Terms as Terms
    from fedprior.privacy.paper import paper_bound as paper_bound
    from fedprior.privacy.plan import plan as privacy_plan  # noqa: F401
    from fedprior.privacy.planning import clients_needed as clients_needed
    from fedprior.privacy.planning import noise_multiplier as noise_multiplier
    from fedprior.privacy.planning import rounds_affordable as rounds_affordable
    from fedprior.regression.face.personal import PersonalClassifier as PersonalClassifier
    from fedprior.regression.face.personal import PersonalRegression as PersonalRegression
    from fedprior.regression.linear import fit_linear as fit_linear
    from fedprior.regression.logistic import fit_logistic as fit_logistic
    from fedprior.regression.mixture import fit_mixture as fit_mixture
    from fedprior.regression.private_mixture import (
        fit_mixture_privately as fit_mixture_privately,
    )
    from fedprior.regression.result import RegressionFit as RegressionFit
    from fedprior.regression.rows import GroupedRows as GroupedRows
    from fedprior.reporting.model import load as load

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
    "Discrete": "populations.discrete",
    "Distillation": "populations.distillation",
    "Encoder": "data.encoder",
    "Estimates": "estimation.result",
    "EstimationWarning": "estimation.groups",
    "Event": "privacy.events",
    "Everyone": "privacy.cohort",
    "Federation": "data.federation",
    "FittedPopulation": "estimation.result",
    "FixedSize": "privacy.cohort",
    "Flat": "populations.flat",
    "Gaussian": "populations.gaussian",
    "GaussianMixture": "populations.mixture",
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
    "Multitask": "populations.multitask",
    "OneBit": "channels.randomized_response",
    "PersonalClassifier": "regression.face.personal",
    "PersonalRegression": "regression.face.personal",
    "RegressionFit": "regression.result",
    "GroupedRows": "regression.rows",
    "fit_linear": "regression.linear",
    "fit_logistic": "regression.logistic",
    "fit_mixture": "regression.mixture",
    "fit_mixture_privately": "regression.private_mixture",
    "PointMass": "populations.point",
    "Poisson": "privacy.cohort",
    "Population": "core.protocols",
    "PrivacyError": "core.check",
    "Quantize": "channels.quantize",
    "Result": "engines.result",
    "Risk": "estimation.risk",
    "Saving": "engines.run",
    "SharedBody": "populations.shared_body",
    "Split": "data.federation",
    "Steps": "learning.steps",
    "Subspace": "populations.subspace",
    "Terms": "privacy.ledger",
    "Tether": "populations.tether",
    "adamap": "learning.adamap",
    "adaped": "learning.adaped",
    "adaped_fine_tuning": "learning.adaped",
    "alternating": "learning.alternating",
    "apfl": "learning.baselines.apfl",
    "bernoulli_rates": "estimation.federated.algorithms",
    "clustered": "learning.priors",
    "clients_needed": "privacy.planning",
    "debug": "engines.debug",
    "distributed_noise": "privacy.deployments",
    "ditto": "learning.baselines.ditto",
    "epsilon": "privacy.accounting",
    "discrete_mixture": "learning.priors",
    "em": "learning.em",
    "estimate_means": "estimation.gaussian.estimate",
    "estimate_means_privately": "estimation.private.means",
    "estimate_mixture": "estimation.mixture.estimate",
    "estimate_mixture_privately": "estimation.private.mixture",
    "estimate_rates": "estimation.bernoulli.estimate",
    "estimate_rates_privately": "estimation.private.rates",
    "fedavg": "learning.baselines.fedavg",
    "fedavg_fine_tuning": "learning.baselines.fedavg",
    "fedem": "learning.baselines.fedem",
    "fedprox": "learning.baselines.fedprox",
    "fedrep": "learning.baselines.fedrep",
    "fit_encoder": "data.table",
    "from_folder": "data.folder",
    "from_frame": "data.table",
    "from_table": "data.table",
    "gaussian_em": "learning.priors",
    "gaussian_means": "estimation.federated.algorithms",
    "gaussian_prior": "learning.priors",
    "ifca": "learning.baselines.ifca",
    "l2gd": "learning.baselines.l2gd",
    "laplace_em": "learning.priors",
    "laplace_prior": "learning.priors",
    "lenet5": "models.lenet",
    "linear": "models.network",
    "load": "reporting.model",
    "load_dataset": "data.datasets:load",
    "local": "learning.baselines.local",
    "logistic": "models.network",
    "mean_regularized": "learning.baselines.mean_regularized",
    "mixture_clustering": "learning.paper",
    "mixture_em": "learning.priors",
    "mixture_means": "estimation.federated.algorithms",
    "mlp": "models.network",
    "multitask": "learning.multitask",
    "mutual_learning": "learning.baselines.mutual_learning",
    "network": "models.network",
    "noise_multiplier": "privacy.planning",
    "paper_bound": "privacy.paper",
    "per_fedavg": "learning.baselines.per_fedavg",
    "pfedme": "learning.baselines.pfedme",
    "privacy_plan": "privacy.plan:plan",
    "quped": "learning.baselines.quped",
    "rates_channel": "estimation.federated.algorithms",
    "risk": "estimation.risk",
    "rounds_affordable": "privacy.planning",
    "shared_body": "learning.representation",
    "shared_subspace": "learning.representation",
    "simulate": "engines.simulate",
    "Sweep": "engines.sweep",
    "sweep": "engines.sweep",
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
