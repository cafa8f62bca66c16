"""A linear, logistic or Poisson regression for every group, with a population learned from all."""

from .face.personal import PersonalClassifier as PersonalClassifier
from .face.personal import PersonalPoisson as PersonalPoisson
from .face.personal import PersonalRegression as PersonalRegression
from .linear import fit_linear as fit_linear
from .logistic import fit_logistic as fit_logistic
from .logistic import fit_poisson as fit_poisson
from .mixture import fit_mixture as fit_mixture
from .private_mixture import fit_mixture_privately as fit_mixture_privately
from .result import RegressionFit as RegressionFit
from .rows import GroupedRows as GroupedRows
