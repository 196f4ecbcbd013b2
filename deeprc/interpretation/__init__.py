"""Interpretation of trained models: attention tables, attributions, motifs, figures and reports."""
