"""Datasets by name: name -> loader, description, and what the loader needs."""

import importlib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprior.core import check
from fedprior.data.federation import Federation

ROOT_VARIABLE = "FEDPRIOR_DATA"


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A named federation: `loader` is `module:function`, imported on use.

    `folders` are the names under which the data root holds the files; the loader takes one path
    for each of them, in this order, before its options.
    """

    name: str
    loader: str
    description: str
    num_clients: int
    needs: str = "nothing: works offline"
    folders: tuple[str, ...] = ()

    def function(self) -> Callable[..., Federation]:
        module, name = self.loader.split(":")
        return getattr(importlib.import_module(module), name)

    def options(self) -> list[str]:
        """Names of the keyword options that the loader takes."""
        parameters = inspect.signature(self.function()).parameters.values()
        return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]


_CIFAR10 = "the six CIFAR-10 binary files, or their archive, under cifar10/"
_DATASETS = (
    Dataset(
        name="digits",
        loader="fedprior.data.digits:digits",
        description="scikit-learn's 8x8 digits, 5 classes and a handwriting style a client",
        num_clients=30,
    ),
    Dataset(
        name="mnist",
        loader="fedprior.data.mnist:mnist",
        description="MNIST, 3 random classes per client (the split of the paper's Table 1)",
        num_clients=50,
        needs="the four MNIST idx files under mnist/",
        folders=("mnist",),
    ),
    Dataset(
        name="mnist-dirichlet",
        loader="fedprior.data.mnist:mnist_dirichlet",
        description="MNIST, all 70,000 images dealt by class in Dirichlet(0.1) shares",
        num_clients=20,
        needs="the four MNIST idx files under mnist/",
        folders=("mnist",),
    ),
    Dataset(
        name="mnist-writers",
        loader="fedprior.data.mnist:mnist_writers",
        description="MNIST by writer, 3 writers a client (in place of the FEMNIST digits)",
        num_clients=66,
        needs="the MNIST training files under mnist/ and the QMNIST writers under mnist_writers/",
        folders=("mnist", "mnist_writers"),
    ),
    Dataset(
        name="cifar10",
        loader="fedprior.data.cifar10:cifar10",
        description="CIFAR-10, 3 random classes per client, clients of equal size",
        num_clients=100,
        needs=_CIFAR10,
        folders=("cifar10",),
    ),
    Dataset(
        name="cifar10-dirichlet",
        loader="fedprior.data.cifar10:cifar10_dirichlet",
        description="CIFAR-10, Dirichlet(0.1) shares of the classes, clients of equal size",
        num_clients=100,
        needs=_CIFAR10,
        folders=("cifar10",),
    ),
    Dataset(
        name="synthetic",
        loader="fedprior.data.synthetic:classification",
        description="softmax regression drawn from the model, theta_i ~ N(mu, spread^2 I)",
        num_clients=100,
    ),
)
_BY_NAME = {dataset.name: dataset for dataset in _DATASETS}


def load_dataset(name: str, *, root: str | Path | None = None, **options: Any) -> Federation:
    """The federation called `name`; its files are looked for in root/NAME, then in root.

    `root` defaults to the environment variable FEDPRIOR_DATA; `options` go to the loader.
    """
    check.choice("load", "name", name, _BY_NAME)
    dataset = _BY_NAME[name]
    known = dataset.options()
    for option in options:
        check.choice(name, "option", option, known)
    folders = [data_folder(folder, root) for folder in dataset.folders]
    return dataset.function()(*folders, **options)


def describe() -> list[dict[str, Any]]:
    """One row a dataset: name, description, num_clients (by default), needs."""
    return [
        {key: getattr(dataset, key) for key in ("name", "description", "num_clients", "needs")}
        for dataset in _DATASETS
    ]


def needs_files(name: str) -> bool:
    """Whether the dataset called `name` reads files below a root folder."""
    return name in _BY_NAME and bool(_BY_NAME[name].folders)


def data_folder(name: str, root: str | Path | None = None) -> Path:
    """root/name where that is a folder, else root itself."""
    given = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if not given:
        raise ValueError(
            f"{name}: this dataset needs a data folder. "
            f"Pass --data DIR (or root=DIR), or set {ROOT_VARIABLE}."
        )
    below = Path(given).expanduser() / name
    return below if below.is_dir() else below.parent
