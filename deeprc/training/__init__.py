"""Sampling, the training loop, early stopping and checkpoints."""
