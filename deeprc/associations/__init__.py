"""Find the clones that go with a class: `deeprc clones`."""

from deeprc.associations.clones import COLUMNS, CloneAssociations, associate_clones

__all__ = ["COLUMNS", "CloneAssociations", "associate_clones"]
