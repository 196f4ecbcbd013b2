"""How good predictions are: splits, metrics, intervals, tests, and what to know before believing them."""
