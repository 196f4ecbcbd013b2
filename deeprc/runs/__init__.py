"""Run directories: one training from a container to a run, runs that predict together, and how good they are."""
