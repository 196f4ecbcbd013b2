"""The interface of the AIRR-ML-25 challenge (Adaptive Immune Profiling Challenge 2025): folders in, two tables out.

A folder has one TSV per repertoire (`junction_aa v_call j_call`, and `templates` or `duplicate_count`, else every row
has the count 1) and, for training, `metadata.csv` (`repertoire_id, filename, label_positive`). The method is chosen on
the training folder alone, by cross-validation: none of them is the best everywhere.
"""

from __future__ import annotations

from deeprc.airr_ml.predictor import COLUMNS, METHODS, NOT_APPLICABLE, ImmuneStatePredictor
from deeprc.airr_ml.result_files import predict_immune_states

__all__ = ["COLUMNS", "METHODS", "NOT_APPLICABLE", "ImmuneStatePredictor", "predict_immune_states"]
