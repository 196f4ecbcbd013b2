"""Find the sequences of a table in databases of receptors with known antigens."""

from deeprc.specificity.annotate import ADDED_COLUMNS, Annotation, annotate_sequences
from deeprc.specificity.databases import read_database, read_databases, read_sequences

__all__ = ["ADDED_COLUMNS", "Annotation", "annotate_sequences", "read_database", "read_databases", "read_sequences"]
