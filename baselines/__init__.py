"""The methods that DeepRC is compared with; each is a scikit-learn estimator over `RepertoireDataset`."""
