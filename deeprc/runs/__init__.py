"""Run directories: training from a container to a run, ensembles of runs, and their performance."""
