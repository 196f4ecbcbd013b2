"""Modern Hopfield networks: energy and update rule, layers for deep networks, theory and analysis."""

from deeprc.hopfield.layers import Hopfield, HopfieldLayer
from deeprc.hopfield.pooling import HopfieldPooling

__all__ = ["Hopfield", "HopfieldLayer", "HopfieldPooling"]
