"""Readings of whole repertoires: what they compute, and how they are learned from the training repertoires.

`composition` reads all sequences: k-mers and genes. `clones` retrieves single receptors. See `deeprc.nn.readings`.
"""
