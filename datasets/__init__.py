"""Repertoire files, the container that holds them, and the dataset that serves them."""
