"""Find the clones that are associated with a class: `deeprc clones`."""

from deeprc.associations.clones import COLUMNS, CloneAssociations, associate_clones

__all__ = ["COLUMNS", "CloneAssociations", "associate_clones"]
