"""Estimators whose scores a test can compute by itself; a module, because worker processes must import them.

A score is a hash of a repertoire's id and of the parameter `salt`, plus a share of the training repertoires: the same
for all repertoires, so that it changes no AUC but shows what an estimator was fitted on.
"""

import json
import os
import signal
import time
from hashlib import blake2b
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from deeprc.errors import InputError
from deeprc.estimators import RepertoireEstimator


def noise(ids, salt):
    """Return a number from 0 to 1 for each id, (B,)."""
    digests = [blake2b(f"{each} {salt}".encode(), digest_size=4).hexdigest() for each in ids]
    return np.array([int(digest, 16) / 2**32 for digest in digests])


def score(ids, salt, train_ids, train_y):
    """Return the scores of `Noise`, (B,)."""
    return noise(ids, salt) + float((noise(train_ids, "train") * np.asarray(train_y)).sum())


def read_log(path):
    """Return what the estimators wrote into their log: one dictionary per call."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()] if Path(path).exists() else []


class Noise(ClassifierMixin, BaseEstimator):
    """Writes each fit into the file `log`.

    Where a file `<log>.stop` holds n, the fit after n ones is interrupted; `<log>.slow` holds how long each fit takes.
    """

    def __init__(self, salt=0, log=None, seconds=0.0):
        self.salt, self.log, self.seconds = salt, log, seconds

    def note(self, what, X, y, **more):
        if self.log is None:
            return
        stop = Path(f"{self.log}.stop")
        if stop.exists() and len(read_log(self.log)) >= int(stop.read_text()):
            raise KeyboardInterrupt
        seen = {"ids": list(X.repertoire_ids), "y": np.asarray(y).tolist()}
        body = {"what": what, "salt": self.salt, "pid": os.getpid(), **seen, **more}
        with open(self.log, "a") as file:
            file.write(json.dumps(body) + "\n")

    def fit(self, X, y):
        self.note("fit", X, y)
        slow = Path(f"{self.log}.slow")
        time.sleep(float(slow.read_text()) if slow.exists() else self.seconds)
        self.classes_ = np.unique(y)
        self.train_ = list(X.repertoire_ids), np.asarray(y)
        return self

    def decision_function(self, X):
        return score(X.repertoire_ids, self.salt, *self.train_)

    def predict_proba(self, X):
        positive = 1 / (1 + np.exp(-self.decision_function(X)))
        return np.stack([1 - positive, positive], axis=1)


class PathNoise(Noise):
    """Has the scores of many salts in one call."""

    path_parameter = "salt"

    def decision_path(self, X, y, X_new, values):
        self.note("path", X, y, values=list(values))
        return np.array([score(X_new.repertoire_ids, salt, X.repertoire_ids, y) for salt in values])


class Stopping(Noise):
    """Is given the validation side, too."""

    uses_validation = True

    def fit(self, X, y, X_validation, y_validation):
        validation = {"ids": list(X_validation.repertoire_ids), "y": np.asarray(y_validation).tolist()}
        self.note("fit", X, y, validation=validation)
        self.classes_ = np.unique(y)
        self.train_ = list(X.repertoire_ids), np.asarray(y)
        return self


class Demanding(Stopping, RepertoireEstimator):
    """Is given the validation side, too, and cannot be fitted without it."""


class Grouped(Noise):
    """Is given the donors of both sides, too."""

    uses_validation = uses_groups = True

    def fit(self, X, y, groups=None, X_validation=None, y_validation=None, groups_validation=None):
        donors = {"groups": groups, "groups_validation": groups_validation}
        self.note("fit", X, y, **{name: None if each is None else each.tolist() for name, each in donors.items()})
        self.classes_ = np.unique(y)
        self.train_ = list(X.repertoire_ids), np.asarray(y)
        return self


class Dividing(Grouped, RepertoireEstimator):
    """Keeps repertoires for early stopping itself if it is given none, like DeepRC."""


class Seeded(Noise):
    """Has a seed, and a dictionary of further settings."""

    def __init__(self, salt=0, log=None, seed=None, extra=None):
        self.salt, self.log, self.seed, self.extra = salt, log, seed, extra
        self.seconds = 0.0

    def decision_function(self, X):
        return score(X.repertoire_ids, [self.salt, self.seed, self.extra], *self.train_)


class Broken(Noise):
    """Fails while a file `<log>.broken` names repertoires of which none is in the training part."""

    def fit(self, X, y):
        broken = Path(f"{self.log}.broken")
        if broken.exists() and not set(broken.read_text().split()) & set(X.repertoire_ids):
            raise RuntimeError("it does\nnot work")
        return super().fit(X, y)


class Unprepared(Noise):
    """Fails before it is fitted."""

    def prepare(self, X):
        raise RuntimeError("cannot be prepared")

    def fit(self, X, y):
        self.prepare(X)


class Deadly(Noise):
    """Kills its process where `salt` is 1."""

    def fit(self, X, y):
        if self.salt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y)


class Prepared(Noise):
    """Notes what it is asked to prepare."""

    def prepare(self, X):
        self.note("prepare", X, [])


class Memory(ClassifierMixin, BaseEstimator):
    """Knows the labels of the repertoires that it was fitted on, and nothing else; has probabilities only."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.known_ = dict(zip(X.repertoire_ids, y, strict=True))
        return self

    def predict_proba(self, X):
        positive = np.array([self.known_.get(each, 0.5) for each in X.repertoire_ids], float)
        return np.stack([1 - positive, positive], axis=1)


class Motif(ClassifierMixin, BaseEstimator):
    """Counts a motif in the sequences: what it says depends on their content, not on their ids."""

    def __init__(self, motif="WWHW"):
        self.motif = motif

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        share = [np.mean([self.motif in each for each in repertoire.sequences.decode()]) for repertoire in X]
        return np.stack([1 - np.array(share), share], axis=1)


class NeedsMore(Motif):
    """Needs what no cohort has."""

    @classmethod
    def check_cohort(cls, X):
        raise InputError("needs the moon's phase")


class NeedsArguments(Motif):
    """Cannot be made by its name."""

    def __init__(self, motif):
        self.motif = motif


def no_class():
    """Is no estimator."""
