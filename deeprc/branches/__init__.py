"""Branches, the parts of the network beside the attention, and how they are fitted.

A branch scores a whole repertoire. `composition` is a linear model of k-mer and gene frequencies; `clones` counts
stored public clones. `deeprc.nn.branches` describes how the network uses their scores.
"""
