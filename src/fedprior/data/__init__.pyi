"""Federations of clients, and the readers that make them from tables, folders and datasets."""

from .datasets import load_dataset as load_dataset
from .encoder import Encoder as Encoder
from .federation import ClientData as ClientData
from .federation import Federation as Federation
from .federation import Split as Split
from .folder import from_folder as from_folder
from .table import fit_encoder as fit_encoder
from .table import from_frame as from_frame
from .table import from_table as from_table
