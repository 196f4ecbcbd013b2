"""Modern Hopfield networks as layers of deep networks."""

from deeprc.hopfield.layers import HopfieldPooling

__all__ = ["HopfieldPooling"]
