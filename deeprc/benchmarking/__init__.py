"""The benchmark: many methods on the same folds, with nested choice of their settings."""
