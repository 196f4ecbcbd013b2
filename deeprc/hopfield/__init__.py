"""Modern Hopfield networks: energy and update rule, layers for deep networks, theory and analysis.

The layers share these decisions:

- Patterns are rows. Sets are (..., H, N, d), as in `scaled_dot_product_attention`, which makes one update. Ragged sets
  lie end to end along N, with offsets and without padding.
- Each set and each head stops its updates by itself, so the result of a set does not depend on the rest of its batch.
- The queries of `HopfieldPooling` are learned in the associative space of each head, because a map of them would add
  nothing. The stored patterns of `HopfieldLayer` are learned as raw patterns, so a reference set can replace them.
- A mask is True where something is left out. The average over no pattern is 0.
"""

from deeprc.hopfield.layers import Hopfield, HopfieldLayer
from deeprc.hopfield.pooling import HopfieldPooling

__all__ = ["Hopfield", "HopfieldLayer", "HopfieldPooling"]
