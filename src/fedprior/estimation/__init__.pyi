"""Personal estimates of rates, means and mixtures for many small groups."""

from .conjugate.estimate import estimate_events as estimate_events
from .conjugate.estimate import estimate_rates as estimate_rates
from .conjugate.risk import bernoulli_risk as bernoulli_risk
from .encoder import GroupEncoder as GroupEncoder
from .federated.algorithms import bernoulli_rates as bernoulli_rates
from .federated.algorithms import gaussian_means as gaussian_means
from .federated.algorithms import mixture_means as mixture_means
from .federated.algorithms import rates_channel as rates_channel
from .gaussian.estimate import estimate_means as estimate_means
from .groups import EstimationWarning as EstimationWarning
from .mixture.estimate import estimate_mixture as estimate_mixture
from .private.means import estimate_means_privately as estimate_means_privately
from .private.mixture import estimate_mixture_privately as estimate_mixture_privately
from .private.rates import estimate_rates_privately as estimate_rates_privately
from .result import Estimates as Estimates
from .result import FittedPopulation as FittedPopulation
from .risk import Risk as Risk
from .risk import gaussian_risk as gaussian_risk
from .risk import mixture_risk as mixture_risk
from .statistics import Counts as Counts
from .statistics import Events as Events
from .statistics import Means as Means
from .table import GroupMeans as GroupMeans
from .table import GroupMixture as GroupMixture
from .table import GroupRates as GroupRates
