"""The DeepRC network."""

from deeprc.nn.batch import BatchMaker, RepertoireBatch
from deeprc.nn.genes import GeneNames
from deeprc.nn.network import DeepRC

__all__ = ["BatchMaker", "DeepRC", "GeneNames", "RepertoireBatch"]
