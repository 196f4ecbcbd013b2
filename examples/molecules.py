"""Drug design: a `HopfieldLayer` that stores the training set, against three other methods (paper lines 7026-7119).

    python examples/molecules.py --data FOLDER --output molecules.tsv

FOLDER holds `bace.csv.gz`, `BBBP.csv.gz`, `HIV.csv.gz` and `sider.csv.gz` of MoleculeNet. Molecules are split at random
into 80% for training, 10% for validation and 10% for the test, as in the paper. Every method averages its three
settings with the best AUC on the validation part. The output gets one row per set, repeat and method; rows that it
already has are not computed again. Letters: N molecules, F features, T tasks (27 side effects in SIDER, else 1).
"""

import importlib.util
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import QuantileTransformer
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits
from torch.nn import functional

from deeprc.hopfield import HopfieldLayer

Array = NDArray[Any]
Candidates = Iterator[tuple[str, Array]]  # settings, and scores of the molecules to predict, (N, T)
FILES = {"bace": "bace.csv.gz", "bbbp": "BBBP.csv.gz", "hiv": "HIV.csv.gz", "sider": "sider.csv.gz"}
LABELS = {"bace": ["Class"], "bbbp": ["p_np"], "hiv": ["HIV_active"]}  # of SIDER all columns but the molecule
PAPER = {"bace": "0.902 ± 0.023", "bbbp": "0.910 ± 0.026", "hiv": "0.815 ± 0.023", "sider": "0.672 ± 0.019"}
SLOW = {"Ipc", "AvgIpc"}  # descriptors whose time grows exponentially with the size of a molecule
KEY_DIM, BATCH, STORED = 64, 256, 4096  # in an update, BATCH molecules are predicted, at most STORED are stored
CHECKPOINTS = (25, 50, 100, 200)  # updates after which a Hopfield network is a candidate
SVM_MOLECULES = 6000  # at most, those of the smaller class first: the kernel must fit into memory


def compute_features(smiles: list[str]) -> dict[str, Array]:
    """Return fingerprints (counts) and descriptors of the molecules that RDKit reads, and their rows; no duplicates."""
    from rdkit import Chem, RDLogger
    from rdkit.Chem import Descriptors, MACCSkeys, rdFingerprintGenerator

    RDLogger.DisableLog("rdApp.*")
    molecules = [Chem.MolFromSmiles(text) for text in smiles]
    names = pd.Series([None if molecule is None else Chem.MolToSmiles(molecule) for molecule in molecules])
    rows = np.flatnonzero(names.notna() & ~names.duplicated())
    molecules = [molecules[row] for row in rows]
    make = rdFingerprintGenerator
    kinds = [make.GetMorganGenerator(radius=2, fpSize=1024), make.GetAtomPairGenerator(fpSize=1024)]
    kinds += [make.GetTopologicalTorsionGenerator(fpSize=1024)]
    counts = [[kind.GetCountFingerprintAsNumPy(each).clip(max=255) for each in molecules] for kind in kinds]
    counts += [[np.array(MACCSkeys.GenMACCSKeys(each)) for each in molecules]]
    functions = [function for name, function in Descriptors.descList if name not in SLOW]
    values = np.array([[function(each) for function in functions] for each in molecules])
    return {"rows": rows, "counts": np.hstack(counts).astype(np.uint8), "descriptors": values}


def read_set(path: Path, columns: list[str] | None, cache: Path) -> tuple[dict[str, Array], Array]:
    """Return the features of a set, computed once and then read from `cache`, and its labels (N, T)."""
    table = pd.read_csv(path)
    if not cache.exists():
        part = cache.with_suffix(".partial.npz")
        np.savez_compressed(part, **compute_features(table["smiles"].tolist()))  # type: ignore[arg-type]
        part.rename(cache)
    features = dict(np.load(cache))
    return features, table[columns or table.columns.drop("smiles")].to_numpy(np.float32)[features["rows"]]


def scale(features: dict[str, Array], training: Array) -> Array:
    """Return features (N, F): both kinds have mean 0 and the same norm, as estimated on the training part."""
    counts = np.log1p(features["counts"].astype(np.float32))
    counts = counts[:, (counts[training] > 0).sum(0) >= 3]
    values = np.where(np.abs(features["descriptors"]) < 1e6, features["descriptors"], np.nan)
    values = values[:, np.nanstd(values[training], axis=0) > 1e-6]
    options: dict[str, Any] = {"n_quantiles": min(200, len(training)), "output_distribution": "normal"}
    normal = QuantileTransformer(**options, random_state=0).fit(values[training])
    values = np.nan_to_num(normal.transform(values).clip(-3, 3)).astype(np.float32)
    blocks = [block - block[training].mean(0) for block in (counts, values)]
    return np.hstack([block / np.sqrt(np.square(block[training]).sum(1).mean()) for block in blocks])


def hopfield(x: Array, y: Array, new: Array, seed: int) -> Candidates:
    """Store the training set (labels are the pattern projections), learn what is similar, and average labels.

    Only the maps into the associative space are learned. In training, a molecule does not find itself.
    """
    patterns, targets, states = (torch.from_numpy(array) for array in (x, y, new))
    for beta, dropout in ((2.0, 0.3), (5.0, 0.3), (5.0, 0.0)):
        torch.manual_seed(seed)
        options: dict[str, Any] = {"beta": beta, "dropout": dropout, "normalisation": "none"}
        layer = HopfieldLayer.filled(patterns, targets, project=True, key_dim=KEY_DIM, **options)
        associate, batches = layer.hopfield, []
        torch.nn.init.normal_(associate.map_states.linear.weight, std=KEY_DIM**-0.5)  # it keeps distances at the start
        associate.map_stored.load_state_dict(associate.map_states.state_dict())
        optimiser = torch.optim.AdamW([each for each in layer.parameters() if each.requires_grad], lr=1e-3, fused=True)
        for update in range(1, CHECKPOINTS[-1] + 1):
            batches = batches or list(torch.randperm(len(x)).split(BATCH))
            rows, stored = batches.pop(), torch.randperm(len(x))[:STORED]
            batch = functional.dropout(patterns[rows], 0.2), patterns[stored], targets[stored]
            found = associate(*batch, association_mask=rows[:, None] == stored)
            shares = 0.998 * found.clamp(0, 1) + 0.002 * targets.mean(0)  # no logarithm of 0
            loss = functional.binary_cross_entropy(shares, targets[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if update in CHECKPOINTS:
                with torch.no_grad():
                    scores = torch.cat([layer.eval()(part) for part in states.split(1024)]).numpy()
                layer.train()
                yield f"beta {beta:g}, dropout {dropout:g}, {update} updates", scores


def svm(x: Array, y: Array, new: Array, seed: int) -> Candidates:
    """Yield candidates of support vector machines with a Gaussian kernel."""
    order = np.random.default_rng(seed).permutation(len(x))
    rare_first = order[np.argsort(y[order, 0] != (y[:, 0].mean() < 0.5), kind="stable")]
    known, y = x[rare_first[:SVM_MOLECULES]], y[rare_first[:SVM_MOLECULES]]
    squares = np.square(known).sum(1)
    near, far = (squares + np.square(own).sum(1)[:, None] - 2 * own @ known.T for own in (known, new))
    for gamma, C in product((0.25, 1.0), (1, 10, 100)):
        kernel, others = np.exp(-gamma * near), np.exp(-gamma * far)
        scores = [SVC(kernel="precomputed", C=C).fit(kernel, labels).decision_function(others) for labels in y.T]
        yield f"gamma {gamma:g}, C {C}", np.stack(scores, axis=1)


def forest(x: Array, y: Array, new: Array, seed: int) -> Candidates:
    """Yield candidates of random forests, which learn all tasks together."""
    for leaf, share in product((1, 3), ("sqrt", 0.05)):
        model = RandomForestClassifier(200, min_samples_leaf=leaf, max_features=share, random_state=seed)
        shares = model.fit(x, y.squeeze()).predict_proba(new)
        yield f"leaf {leaf}, features {share}", np.reshape(shares, (-1, len(new), 2))[:, :, 1].T


def boosting(x: Array, y: Array, new: Array, seed: int) -> Candidates:
    """Yield candidates of stochastic gradient boosting; each split of a tree sees few features, which is fast."""
    for rate, depth in product((0.03, 0.1), (3, 6)):
        settings: dict[str, Any] = {"learning_rate": rate, "max_depth": depth, "random_state": seed}
        model = GradientBoostingClassifier(n_estimators=150, subsample=0.7, max_features="sqrt", **settings)
        scores = [model.fit(x, labels).decision_function(new) for labels in y.T]
        yield f"rate {rate}, depth {depth}", np.stack(scores, axis=1)


METHODS = {"HopfieldLayer": hopfield, "SVM": svm, "random forest": forest, "gradient boosting": boosting}


def mean_auc(labels: Array, scores: Array) -> float:
    """Return the AUC, averaged over the tasks that have both classes."""
    pairs = [(own, score) for own, score in zip(labels.T, scores.T, strict=True) if 0 < own.sum() < len(own)]
    return float(np.mean([roc_auc_score(*pair) for pair in pairs]))


def run(features: dict[str, Array], labels: Array, repeat: int, methods: list[str]) -> Iterator[dict[str, Any]]:
    """Split the molecules, and yield the AUC of the average of each method's three best candidates."""
    order = np.random.default_rng(repeat).permutation(len(labels))
    training, validation, test = np.split(order, [int(0.8 * len(order)), int(0.9 * len(order))])
    x, n = scale(features, training), len(validation)
    parts = x[training], labels[training], np.vstack([x[validation], x[test]])
    for method in methods:
        started = time.process_time()
        found = [(mean_auc(labels[validation], own[:n]), name, own) for name, own in METHODS[method](*parts, repeat)]
        best = sorted(found, key=lambda each: -each[0])[:3]
        average = np.sum([scores / scores[:n].std(0) for _, _, scores in best], axis=0)  # validation part: variance 1
        row = {"repeat": repeat, "method": method, "auc": mean_auc(labels[test], average[n:])}
        row |= {"validation": best[0][0], "settings": "; ".join(name for _, name, _ in best)}
        yield row | {"cpu_s": round(time.process_time() - started, 1)}


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True, help="Folder of the four files.")
@click.option("--output", type=click.Path(path_type=Path), default="molecules.tsv", show_default=True)
@click.option("--sets", default=",".join(FILES), show_default=True, help="Names, separated by commas.")
@click.option("--repeats", default=5, show_default=True, help="Random splits of each set.")
def main(data: Path, output: Path, sets: str, repeats: int) -> None:
    """Compare methods on drug design data sets. Features are kept beside the output, as SET.npz."""
    if importlib.util.find_spec("rdkit") is None:
        raise click.UsageError("fingerprints need RDKit: pip install 'deeprc[molecules]'")
    torch.set_num_threads(1)
    results = pd.read_csv(output, sep="\t") if output.exists() else pd.DataFrame(columns=["set", "repeat", "method"])
    with threadpool_limits(1):
        for name in sets.split(","):
            features, labels = read_set(data / FILES[name], LABELS.get(name), output.with_name(f"{name}.npz"))
            for repeat in range(repeats):
                done = set(results.query("set == @name and repeat == @repeat")["method"])
                todo = [method for method in METHODS if method not in done]
                for row in run(features, labels, repeat, todo) if todo else ():
                    results = pd.concat([results, pd.DataFrame([{"set": name, **row}])], ignore_index=True)
                    results.to_csv(output, sep="\t", index=False)
                    click.echo(f"{name} {repeat} {row['method']}: {row['auc']:.3f} ({row['cpu_s']} s)")
    table = results.pivot_table("auc", "method", "set", aggfunc=lambda own: f"{own.mean():.3f} ± {own.std():.3f}")
    table.loc["paper, HopfieldLayer"] = pd.Series(PAPER)
    click.echo(table.to_string())


if __name__ == "__main__":
    main()
