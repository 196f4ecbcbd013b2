"""Training of the network: motif search, initialisation, sampling, updates, early stopping, checkpoints, estimators."""
