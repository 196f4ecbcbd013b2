"""Computations for docs/hopfield.md: the numbers of its pictures and tables, with only deeprc.hopfield.

Letters: N stored patterns, d their dimension, S state patterns, H heads, β inverse temperature, M the largest norm.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, RepeatedStratifiedKFold, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor
from torch.nn import functional

from deeprc.hopfield import Hopfield, HopfieldLayer, HopfieldPooling, theory
from deeprc.hopfield.analysis import metastable_sizes, summarise_heads
from deeprc.hopfield.functional import association_weights, energy, retrieve, update


class Part(NamedTuple):
    """The data of one picture.

    Attributes
    ----------
    numbers
        Numbers in the text and tables of the page, for `figures.json`.
    data
        Other data that are drawn.
    """

    numbers: dict[str, Any]
    data: dict[str, Any]


def stored_digits() -> Tensor:
    """Return the first 24 digits of scikit-learn, each with mean 0 and norm 8, (24, 64)."""
    return functional.layer_norm(torch.tensor(load_digits().data[:24]), (64,))


def half_erased(pictures: Tensor) -> Tensor:
    """Return 8 x 8 pictures, (..., 64), with the lower half set to the mean grey, 0."""
    return torch.cat([pictures[..., :32], torch.zeros_like(pictures[..., 32:])], dim=-1)


def with_noise(pictures: Tensor) -> Tensor:
    """Return pictures plus noise that has about the norm of a picture."""
    return pictures + _normal(1, *pictures.shape)


def energies() -> Part:
    """Compute the energies of five states along updates, at two β, for the picture `energy`."""
    stored = stored_digits()
    random = functional.normalize(_normal(0, 64), dim=0) * theory.largest_norm(stored)
    starts = {
        "a stored digit, negated": -stored[3],
        "a random state": random,
        "the grey picture, 0": torch.zeros_like(random),
        "a digit with noise": with_noise(stored[3]),
        "a digit, half erased": half_erased(stored[3]),
    }
    bound = 2 * theory.largest_norm(stored).item() ** 2
    curves = {}
    for beta in (2.0, 0.25):
        state = torch.stack(list(starts.values()))
        path = [energy(state, stored, beta)]
        for _ in range(10):
            state = update(state, stored, beta)
            path.append(energy(state, stored, beta))
        curves[beta] = torch.stack(path)  # (11, S)
    inside = curves.values()
    numbers = {
        "bound": bound,
        "largest_rise": max(0.0, max(curve.diff(dim=0).max().item() for curve in inside)),
        "lowest": min(curve.min().item() for curve in inside),
        "highest": max(curve.max().item() for curve in inside),
    }
    return Part(numbers, {"names": list(starts), "curves": curves})


def retrievals() -> Part:
    """Retrieve 24 corrupted digits, for the picture `retrieval`."""
    stored = stored_digits()
    rows = [("half erased", half_erased(stored), 2.0), ("noise", with_noise(stored), 2.0)]
    rows.append(("half erased", half_erased(stored), 0.2))
    numbers, blocks = [], []
    for name, start, beta in rows:
        once = update(start, stored, beta)
        rest = retrieve(start[:, None], stored, beta, max_updates=1000, tolerance=1e-9)  # counts by state
        final = rest.state[:, 0]
        blocks.append((name, beta, start, once, final))
        numbers.append(
            {
                "start": name,
                "beta": beta,
                "before": (start - stored).norm(dim=1).median().item(),
                "once": (once - stored).norm(dim=1).median().item(),
                "at_rest": (final - stored).norm(dim=1).median().item(),
                "updates": rest.n_updates.median().item(),
                "own_once": _count_nearest_to_own(once, stored),
                "own": _count_nearest_to_own(final, stored),
                "fixed_points": _count_different(final),
            }
        )
    return Part({"rows": numbers}, {"stored": stored, "blocks": blocks})


def error_bounds() -> Part:
    """Compare the error after one update with the bound of the theorem, for the picture `bound`."""
    stored, beta, index = stored_digits(), 2.0, 0
    fixed_point = retrieve(stored[index], stored, beta, tolerance=1e-12).state
    directions = functional.normalize(_normal(2, 50, stored.shape[1]), dim=1)
    distances = torch.logspace(-2, 1, 31, dtype=torch.float64).tolist()
    options = {"index": index, "fixed_point": fixed_point, "beta": beta}
    observed, bounds = [], []
    for distance in distances:
        starts = stored[index] + distance * directions
        observed.append((update(starts, stored, beta) - stored[index]).norm(dim=1).max().item())
        bounds.append(theory.retrieval_error_bound(starts[0], stored, **options).item())
    separations = theory.separation(stored)
    numbers = {
        "smallest_separation": separations.min().item(),
        "largest_separation": separations.max().item(),
        "separation": separations[index].item(),
        "radius": theory.sphere_radius(stored, beta=beta).item(),
        "well_separated": int(theory.well_separated(stored, beta=beta).sum()),
        "distances": distances,
        "observed": observed,
        "bounds": bounds,
    }
    return Part(numbers, {"diameter": 2 * theory.largest_norm(stored).item()})


CLUSTERS = {90: (-13, -7, 0, 6, 12), 210: (-12, -4, 3, 11), 330: (-11, 1, 10)}
"""Angles of patterns on the unit circle in degrees: that of each cluster, and those of its members relative to it."""


def circle_patterns() -> Tensor:
    """Return twelve patterns on the unit circle, in clusters of 5, 4 and 3: (12, 2)."""
    angles = torch.tensor([centre + own for centre, members in CLUSTERS.items() for own in members]).double().deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def fixed_points() -> Part:
    """Find the fixed points of twelve patterns for growing β, for the picture `fixed_points`."""
    stored = circle_patterns()
    line = torch.linspace(-1.15, 1.15, 8, dtype=torch.float64)
    rows, fields = [], []
    for beta in (0.5, 20.0, 3000.0):
        rest = retrieve(stored, stored, beta, max_updates=5000, tolerance=1e-10).state
        path = [torch.cartesian_prod(line, line)]
        for _ in range(12):
            path.append(update(path[-1], stored, beta))
        fields.append((beta, torch.stack(path), rest))
        sizes = metastable_sizes(association_weights(rest, stored, beta=beta))
        found = {"fixed_points": _count_different(rest), "smallest_k": int(sizes.min()), "largest_k": int(sizes.max())}
        rows.append({"beta": beta, **found, **_proven(stored, beta)})
    betas = torch.logspace(-0.5, 3.5, 81, dtype=torch.float64).tolist()
    curve = torch.stack([_sizes_at_rest(stored, beta) for beta in betas])  # (81, 12)
    whole = torch.tensor([len(members) for members in CLUSTERS.values() for _ in members])
    seen = [beta for beta, sizes in zip(betas, curve, strict=True) if torch.equal(sizes, whole)]
    proven = [beta for beta in betas if _proven(stored, beta)["clusters_proven"] == 3]
    numbers = {"rows": rows, "clusters_seen": [seen[0], seen[-1]], "clusters_proven": [proven[0], proven[-1]]}
    return Part(numbers, {"stored": stored, "fields": fields, "betas": betas, "curve": curve})


def capacities() -> Part:
    """Store random patterns on a sphere and count them, for the picture `capacity`."""
    rows = []
    for d, K in ((20, 3.0), (75, 1.0), (100, 1.0)):
        promise = theory.storage_capacity(d, beta=1.0, K=K, p=0.001)
        found = _share_stored(1000, d, K)
        rows.append({"d": d, "K": K, "c": promise.c, "n_patterns": promise.n_patterns, "stored_of_1000": found[0]})
    sizes = [2**power for power in range(2, 11)]
    curves = {d: [_share_stored(n, d, 1.0) for n in sizes] for d in (16, 24, 32, 40)}
    numbers = {"rows": rows, "sizes": sizes, "curves": {str(d): curve for d, curve in curves.items()}}
    return Part(numbers, {})


def random_bags(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return patterns end to end, offsets and labels of n bags; every second bag has a witness, its first pattern."""
    sizes = torch.randint(5, 20, (n,), generator=generator)
    offsets = functional.pad(sizes.cumsum(0), (1, 0))
    patterns = torch.randn(int(offsets[-1]), 8, generator=generator, dtype=torch.float64)
    labels = (torch.arange(n) % 2).double()
    patterns[offsets[:-1][labels == 1]] += 2
    return patterns, offsets, labels


def pooling() -> Part:
    """Learn to find the witness of a bag, for the picture `pooling`."""
    generator = torch.Generator().manual_seed(0)
    patterns, offsets, labels = random_bags(200, generator)
    new, new_offsets, new_labels = random_bags(200, generator)
    torch.manual_seed(0)
    layer = HopfieldPooling(8, output_dim=1, normalisation="none").double()
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.05)
    for _ in range(100):
        loss = functional.binary_cross_entropy_with_logits(layer(patterns, offsets=offsets).flatten(), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        correct = (layer(new, offsets=new_offsets).flatten() > 0) == (new_labels == 1)
        sets = new.tensor_split(new_offsets[1:-1])
        weights = [layer.association_weights(patterns)[0, 0].tolist() for patterns in sets]
    found = [weight.index(max(weight)) == 0 for weight in weights[1::2]]
    return Part(
        {"accuracy": correct.double().mean().item(), "found": sum(found) / len(found)}, {"weights": weights[:6]}
    )


class HopfieldClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn classifier by `HopfieldLayer.filled` with the training set.

    Parameters
    ----------
    learn
        Learned part: "" for nothing (nearest neighbours), `targets` (a kernel machine), `prototypes`, or `projection`.
    similarity
        `distance` compares x and y by xᵀy - ‖y‖²/2, so the nearest pattern is the most similar one; any other value is
        a normalisation of the layer.
    beta
        Inverse temperature of the layer.
    """

    def __init__(self, learn: str = "", similarity: str = "distance", beta: float | None = None) -> None:
        self.learn = learn
        self.similarity = similarity
        self.beta = beta

    def fit(self, X: np.ndarray, y: np.ndarray) -> HopfieldClassifier:
        """Store the training set and learn the chosen part, in 50 steps with the whole training set."""
        torch.manual_seed(0)
        self.classes_, codes = np.unique(y, return_inverse=True)
        labels, known = torch.as_tensor(codes), torch.as_tensor(X)
        targets = functional.one_hot(labels).double()
        stored = known
        if self.similarity == "distance":
            stored = torch.cat([known, -known.square().sum(dim=1, keepdim=True) / 2], dim=1)
        if self.learn == "prototypes":  # starts with three patterns of each class
            rows = torch.cat([(labels == k).nonzero()[:3, 0] for k in range(len(self.classes_))])
            stored, targets = stored[rows], targets[rows]
        self.layer_ = HopfieldLayer.filled(
            stored,
            torch.zeros_like(targets) if self.learn == "targets" else targets,
            learn_targets=self.learn == "targets",
            learn_stored=self.learn == "prototypes",
            project=self.learn == "projection",
            normalisation="none" if self.similarity == "distance" else self.similarity,
            beta=self.beta,
        )
        if self.learn:
            self._descend(self._states(known), labels)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the class with the largest average target."""
        with torch.no_grad():
            found = self.layer_(self._states(torch.as_tensor(X))).argmax(dim=1)
        labels: np.ndarray = self.classes_[found.numpy()]
        return labels

    def _states(self, patterns: Tensor) -> Tensor:
        return functional.pad(patterns, (0, 1), value=1.0) if self.similarity == "distance" else patterns

    def _descend(self, states: Tensor, labels: Tensor) -> None:
        layer = self.layer_
        # each pattern is left out of its own average, to learn from its neighbours
        own = torch.eye(len(states), dtype=torch.bool) if self.learn == "projection" else None
        rate = {"targets": 0.1, "prototypes": 0.05, "projection": 0.02}[self.learn]
        chosen = [parameter for parameter in layer.parameters() if parameter.requires_grad]
        optimiser = torch.optim.Adam(chosen, lr=rate)
        for _ in range(50):
            result = layer(states, association_mask=own)
            if self.learn == "targets":
                loss = functional.cross_entropy(result, labels)
            else:
                loss = functional.nll_loss(result.clamp_min(1e-12).log(), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


METHODS: dict[str, tuple[BaseEstimator, dict[str, list[Any]]]] = {
    "1 nearest neighbour": (KNeighborsClassifier(1), {}),
    "random forest": (RandomForestClassifier(100, random_state=0), {"max_features": ["sqrt", 0.5]}),
    "SVM, RBF kernel": (SVC(), {"C": [0.1, 1, 10, 100], "gamma": [0.003, 0.01, 0.03, 0.1, 0.3]}),
    "HopfieldLayer, normalised inputs": (
        HopfieldClassifier(similarity="inputs"),
        {"beta": [0.1, 0.3, 1.0, 3.0, 10.0]},
    ),
    "HopfieldLayer, distance": (HopfieldClassifier(), {"beta": [0.1, 0.3, 1.0, 3.0, 10.0]}),
    "HopfieldLayer, learned targets": (HopfieldClassifier("targets"), {"beta": [0.03, 0.1, 0.3, 1.0]}),
    "HopfieldLayer, learned prototypes": (HopfieldClassifier("prototypes"), {"beta": [0.1, 0.3, 1.0]}),
    "HopfieldLayer, learned projection": (
        HopfieldClassifier("projection"),
        {"similarity": ["inputs", "projected", "none"]},
    ),
}


def classifiers() -> Part:
    """Compare classifiers on the same folds, for the picture `classifier`."""
    scores: dict[str, dict[str, list[float]]] = {}
    outer = RepeatedStratifiedKFold(n_splits=5, n_repeats=3, random_state=1)
    inner = StratifiedKFold(3, shuffle=True, random_state=0)
    for data, load in {"wine": load_wine, "breast cancer": load_breast_cancer}.items():
        features, labels = load(return_X_y=True)
        for name, (estimator, grid) in METHODS.items():
            whole = Pipeline([("scale", StandardScaler()), ("model", estimator)])
            search = GridSearchCV(whole, {f"model__{option}": choices for option, choices in grid.items()}, cv=inner)
            found = cross_val_score(search, features, labels, cv=outer, error_score="raise")
            scores.setdefault(name, {})[data] = found.tolist()
    rows = [
        {"method": name, **{data: [float(np.mean(own)), float(np.std(own))] for data, own in by_data.items()}}
        for name, by_data in scores.items()
    ]
    return Part({"rows": rows}, {"scores": scores})


def heads() -> Part:
    """Classify heads by the size of their metastable states, for the picture `heads`."""
    pictures = torch.tensor(load_digits().data)
    known, new = pictures[:512], pictures[512:712]
    betas = [0.02, 0.15, 0.3, 1.0]
    layer = Hopfield(
        64, n_heads=4, beta=betas, project_states=False, project_stored=False, values="raw", project_output=False
    )
    sizes = metastable_sizes(layer.association_weights(new, known)).T  # (H, S, N) -> (S, H)
    rows = [
        {"beta": beta, **summary._asdict()}
        for beta, summary in zip(betas, summarise_heads(sizes, torch.full((200,), 512)), strict=True)
    ]
    return Part({"rows": rows}, {"sizes": sizes})


def _normal(seed: int, *shape: int) -> Tensor:
    drawn: Tensor = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn


def _proven(stored: Tensor, beta: float) -> dict[str, int]:
    """Count the fixed points that are proven by theorems: of all patterns, of clusters, and of single patterns."""
    clusters = torch.tensor([number for number, members in enumerate(CLUSTERS.values()) for _ in members])
    of_clusters = [theory.metastable_sphere(stored, clusters == number, beta=beta) for number in range(len(CLUSTERS))]
    return {
        "global_proven": int(theory.metastable_sphere(stored, clusters >= 0, beta=beta).proven),
        "clusters_proven": sum(sphere.proven for sphere in of_clusters),
        "patterns_proven": int(theory.well_separated(stored, beta=beta).sum()),
    }


def _count_nearest_to_own(states: Tensor, stored: Tensor) -> int:
    return int((torch.cdist(states, stored).argmin(dim=1) == torch.arange(len(stored))).sum())


def _count_different(states: Tensor) -> int:
    """Count different states; states with a distance below 0.001 are one."""
    first = (torch.cdist(states, states) < 1e-3).int().argmax(dim=1)  # index of the first equal state
    return len(set(first.tolist()))


def _sizes_at_rest(stored: Tensor, beta: float) -> Tensor:
    rest = retrieve(stored, stored, beta, max_updates=2000, tolerance=1e-9).state
    return metastable_sizes(association_weights(rest, stored, beta=beta))


def _share_stored(n: int, d: int, K: float) -> tuple[float, float]:
    """Return the share of random patterns, n at a time, that are observed to be stored, and the share of proven ones.

    A pattern is observed to be stored if the pattern itself and a random state at the edge of its sphere both converge
    to a point in the sphere.
    """
    observed, proven = [], []
    for draw in range(max(1, 256 // n)):  # more draws if there are few patterns
        points = functional.normalize(_normal(1000 * draw + n + d, 2, n, d), dim=-1)
        stored = K * math.sqrt(d - 1) * points[0]
        radius = theory.sphere_radius(stored, beta=1.0)
        starts = torch.cat([stored, stored + radius * points[1]])
        rest = retrieve(starts, stored, 1.0, max_updates=50, tolerance=float(radius) / 1000).state
        inside = (rest - stored.repeat(2, 1)).norm(dim=1).view(2, n) <= radius
        observed.append(inside.all(dim=0).double().mean().item())
        proven.append(theory.well_separated(stored, beta=1.0).double().mean().item())
    return sum(observed) / len(observed), sum(proven) / len(proven)
