"""The DeepRC network, its inputs (batches and features), and inference on whole repertoires."""

from deeprc.nn.batch import Collator, RepertoireBatch
from deeprc.nn.encoders import EncoderSettings, SequenceEncoder
from deeprc.nn.genes import GeneNames
from deeprc.nn.network import DeepRC
from deeprc.nn.sequences import SequenceBatch

__all__ = [
    "Collator",
    "DeepRC",
    "EncoderSettings",
    "GeneNames",
    "RepertoireBatch",
    "SequenceBatch",
    "SequenceEncoder",
]
