"""Branches, the parts of the network beside the attention, and how they are fitted.

A branch scores a whole repertoire. `composition` is a linear model of k-mers, genes and counts; `clones` counts
stored public clones. `deeprc.nn.branches` describes how the network uses their scores.
"""
