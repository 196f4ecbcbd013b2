"""Readings, the parts of the network beside the attention, and how they are fitted.

A reading scores a whole repertoire. `composition` is a linear model of k-mer and gene frequencies; `clones` counts
stored public clones. `deeprc.nn.readings` describes how the network uses their scores.
"""
