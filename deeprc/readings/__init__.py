"""Readings, the branches of the network beside the attention: what they compute, and how they are fitted.

A reading scores a whole repertoire. `composition` is a linear model of k-mer and gene frequencies; `clones` counts
stored public clones. `deeprc.nn.readings` says how the network uses their scores.
"""
