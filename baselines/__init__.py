"""The methods that DeepRC is compared with; each a scikit-learn estimator over `RepertoireDataset`."""
