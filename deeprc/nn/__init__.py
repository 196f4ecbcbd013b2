"""The DeepRC network."""

from deeprc.nn.batch import BatchMaker, RepertoireBatch
from deeprc.nn.encoders import EncoderSettings, SequenceEncoder
from deeprc.nn.genes import GeneNames
from deeprc.nn.network import DeepRC

__all__ = ["BatchMaker", "DeepRC", "EncoderSettings", "GeneNames", "RepertoireBatch", "SequenceEncoder"]
