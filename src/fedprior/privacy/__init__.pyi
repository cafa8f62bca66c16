"""Cohorts, accounting, plans and ledgers: what a run costs and what it has cost."""

from .accounting import epsilon as epsilon
from .cohort import Cyclic as Cyclic
from .cohort import Everyone as Everyone
from .cohort import FixedSize as FixedSize
from .cohort import Poisson as Poisson
from .deployments import distributed_noise as distributed_noise
from .events import Event as Event
from .guarantee import Guarantee as Guarantee
from .ledger import Ledger as Ledger
from .opening import begin_ledger as begin_ledger
from .paper import paper_bound as paper_bound
from .participation import Participation as Participation
from .planning import clients_needed as clients_needed
from .planning import noise_multiplier as noise_multiplier
from .planning import rounds_affordable as rounds_affordable
from .plans import plan as plan
from .strategy import Banded as Banded
from .strategy import Buffered as Buffered
from .strategy import banded_strategy as banded_strategy
from .strategy import buffered_strategy as buffered_strategy
from .terms import Terms as Terms
