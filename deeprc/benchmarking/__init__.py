"""The benchmark: comparison of many methods on the same folds, with nested choice of their settings."""
