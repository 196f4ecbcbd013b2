"""Drug design: a `HopfieldLayer` that stores the training set, against three other methods (paper lines 7026-7119).

    python examples/molecules.py --data FOLDER --output molecules.tsv

FOLDER holds `bace.csv.gz`, `BBBP.csv.gz`, `HIV.csv.gz` and `sider.csv.gz` of MoleculeNet. As in the paper, 80% of the
molecules are for training, 10% for validation, 10% for the test, at random. Every method averages its three settings
with the best AUC on the validation part, and computes no row twice. Letters: N molecules, F features, T tasks.
"""

import hashlib
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
FILES = {"bace": "bace.csv.gz", "bbbp": "BBBP.csv.gz", "hiv": "HIV.csv.gz", "sider": "sider.csv.gz"}
LABELS = {"bace": ["Class"], "bbbp": ["p_np"], "hiv": ["HIV_active"]}  # of SIDER all columns but the molecule
PAPER = {"bace": "0.902 ± 0.023", "bbbp": "0.910 ± 0.026", "hiv": "0.815 ± 0.023", "sider": "0.672 ± 0.019"}
KEY_DIM, BATCH, STORED, CHECKPOINTS = 64, 256, 4096, (25, 50, 100)  # updates: at most STORED molecules are stored
MANY = 6000  # molecules, at most, of an SVM (the smaller class first, all must fit into memory) and of a tree (anew)


def compute_features(smiles: list[str]) -> dict[str, Array]:
    """Return fingerprints (counts) and descriptors of the molecules that RDKit reads, and their rows; no duplicates."""
    from rdkit import Chem, RDLogger
    from rdkit.Chem import Descriptors, MACCSkeys
    from rdkit.Chem import rdFingerprintGenerator as Make

    RDLogger.DisableLog("rdApp.*")
    molecules = [Chem.MolFromSmiles(text) for text in smiles]
    names = pd.Series([None if molecule is None else Chem.MolToSmiles(molecule) for molecule in molecules])
    rows = np.flatnonzero(names.notna() & ~names.duplicated())
    molecules = [molecules[row] for row in rows]
    kinds = [Make.GetMorganGenerator(2, fpSize=1024), Make.GetAtomPairGenerator(fpSize=1024)]
    kinds += [Make.GetTopologicalTorsionGenerator(fpSize=1024)]
    counts = [[kind.GetCountFingerprintAsNumPy(each).clip(max=255) for each in molecules] for kind in kinds]
    counts += [[np.array(MACCSkeys.GenMACCSKeys(each)) for each in molecules]]
    functions = [function for name, function in Descriptors.descList if name not in {"Ipc", "AvgIpc"}]  # slow
    values = np.array([[function(each) for function in functions] for each in molecules])
    return {"rows": rows, "counts": np.hstack(counts).astype(np.uint8), "descriptors": values}


def read_set(path: Path, columns: list[str] | None, folder: Path) -> tuple[dict[str, Array], Array]:
    """Return the features of a set, computed once per content and then read from the folder, and its labels (N, T)."""
    table, digest = pd.read_csv(path), hashlib.sha256(path.read_bytes()).hexdigest()
    cache = folder / f"{path.name.split('.')[0]}-{digest[:12]}.npz"
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
    normal = QuantileTransformer(n_quantiles=min(200, len(training)), output_distribution="normal", random_state=0)
    values = np.nan_to_num(normal.fit(values[training]).transform(values).clip(-3, 3)).astype(np.float32)
    blocks = [block - block[training].mean(0) for block in (counts, values)]
    return np.hstack([block / np.sqrt(np.square(block[training]).sum(1).mean()) for block in blocks])


def hopfield(x: Array, y: Array, new: Array, seed: int) -> Iterator[tuple[str, Array]]:
    """Yield averages of the labels of similar training molecules; distances or learned maps say what is similar."""
    known, targets, states = (torch.from_numpy(array) for array in (x, y, new))
    for beta in (5.0, 10.0):  # one more number lets the layer compare by distance, see docs/hopfield.md
        stored = torch.cat([known, -known.square().sum(1, keepdim=True) / 2], dim=1)
        layer = HopfieldLayer.filled(stored, targets, beta=beta, normalisation="none")
        yield f"distance, beta {beta:g}", predict(layer, functional.pad(states, (0, 1), value=1.0))
    for dropout in (0.3, 0.0):
        torch.manual_seed(seed)
        maps: dict[str, Any] = {"project": True, "key_dim": KEY_DIM, "dropout": dropout}
        layer = HopfieldLayer.filled(known, targets, beta=5.0, normalisation="none", **maps)
        associate, batches = layer.hopfield, []
        torch.nn.init.normal_(associate.map_states.linear.weight, std=KEY_DIM**-0.5)  # it keeps distances at the start
        associate.map_stored.load_state_dict(associate.map_states.state_dict())
        optimiser = torch.optim.AdamW([each for each in layer.parameters() if each.requires_grad], lr=1e-3, fused=True)
        for update in range(1, CHECKPOINTS[-1] + 1):
            layer.train()
            batches = batches or list(torch.randperm(len(x)).split(BATCH))
            rows, others = batches.pop(), torch.randperm(len(x))[:STORED]
            batch = functional.dropout(known[rows], 0.2), known[others], targets[others]
            found = associate(*batch, association_mask=rows[:, None] == others)  # a molecule does not find itself
            loss = functional.binary_cross_entropy(0.998 * found.clamp(0, 1) + 0.002 * targets.mean(0), targets[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if update in CHECKPOINTS:
                yield f"learned, dropout {dropout:g}, {update} updates", predict(layer, states)


@torch.no_grad()
def predict(layer: HopfieldLayer, states: torch.Tensor) -> Array:
    """Return the averaged labels for all states, (N, T), without dropout."""
    return torch.cat([layer.eval()(part) for part in states.split(1024)]).numpy()


def svm(x: Array, y: Array, new: Array, _: int) -> Iterator[tuple[str, Array]]:
    """Yield candidates of support vector machines with a Gaussian kernel."""
    few = np.argsort(y[:, 0] != (y[:, 0].mean() < 0.5), kind="stable")[:MANY]
    known, y = x[few], y[few]
    near, far = (np.square(known).sum(1) + np.square(a).sum(1)[:, None] - 2 * a @ known.T for a in (known, new))
    for gamma, C in product((0.25, 1.0), (1, 10, 100)):
        kernel, others = np.exp(-gamma * near), np.exp(-gamma * far)
        scores = [SVC(kernel="precomputed", C=C).fit(kernel, labels).decision_function(others) for labels in y.T]
        yield f"gamma {gamma:g}, C {C}", np.stack(scores, axis=1)


def forest(x: Array, y: Array, new: Array, seed: int) -> Iterator[tuple[str, Array]]:
    """Yield candidates of random forests, which learn all tasks together."""
    for leaf, share in product((1, 3), ("sqrt", 0.05)):
        drawn: dict[str, Any] = {"max_features": share, "max_samples": min(len(x), MANY), "random_state": seed}
        model = RandomForestClassifier(200, min_samples_leaf=leaf, **drawn)
        shares = np.reshape(model.fit(x, y.squeeze()).predict_proba(new), (-1, len(new), 2))  # (T, N, 2)
        yield f"leaf {leaf}, features {share}", shares[:, :, 1].T


def boosting(x: Array, y: Array, new: Array, seed: int) -> Iterator[tuple[str, Array]]:
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
    order = np.random.default_rng([repeat, 1]).permutation(len(labels))
    training, validation, test = np.split(order, [int(0.8 * len(order)), int(0.9 * len(order))])
    x, n = scale(features, training), len(validation)
    parts = x[training], labels[training], x[np.concatenate([validation, test])]
    for method in methods:
        started = time.process_time()
        found = [(mean_auc(labels[validation], own[:n]), name, own) for name, own in METHODS[method](*parts, repeat)]
        best = sorted(found, key=lambda each: -each[0])[:3]
        average = np.sum([scores / scores[:n].std(0) for _, _, scores in best], axis=0)  # validation part: variance 1
        row = {"repeat": repeat, "method": method, "auc": mean_auc(labels[test], average[n:]), "validation": best[0][0]}
        yield row | {"settings": "; ".join(each[1] for each in best), "cpu_s": round(time.process_time() - started, 1)}


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True, help="Folder of the four files.")
@click.option("--output", type=click.Path(path_type=Path), default="molecules.tsv", show_default=True)
@click.option("--sets", default=",".join(FILES), show_default=True, help="Names, separated by commas.")
@click.option("--repeats", default=5, show_default=True, help="Random splits of each set.")
def main(data: Path, output: Path, sets: str, repeats: int) -> None:
    """Compare methods on drug design data sets. Features are kept beside the output, as SET-DIGEST.npz."""
    if wrong := [name for name in sets.split(",") if not (data / FILES.get(name, "")).is_file()]:
        raise click.UsageError(f"--sets: expected some of {','.join(FILES)} with a file in {data}, found {wrong[0]}")
    if importlib.util.find_spec("rdkit") is None:
        raise click.UsageError("fingerprints need RDKit: pip install 'deeprc[molecules]'")
    torch.set_num_threads(1)
    threadpool_limits(1)
    results = pd.read_csv(output, sep="\t") if output.exists() else pd.DataFrame(columns=["set", "repeat", "method"])
    for name in sets.split(","):
        features, labels = read_set(data / FILES[name], LABELS.get(name), output.parent)
        for repeat in range(repeats):
            todo = sorted(METHODS.keys() - set(results.query("set == @name and repeat == @repeat")["method"]))
            for row in run(features, labels, repeat, todo) if todo else ():
                results = pd.concat([results, pd.DataFrame([{"set": name, **row}])], ignore_index=True)
                results.to_csv(output, sep="\t", index=False)
                click.echo(f"{name} {repeat} {row['method']}: {row['auc']:.3f} ({row['cpu_s']} s)")
    results = results[results["set"].isin(sets.split(",")) & (results["repeat"] < repeats)]
    table = results.pivot_table("auc", "method", "set", aggfunc=lambda own: f"{own.mean():.3f} ± {own.std():.3f}")
    click.echo(pd.concat([table, pd.DataFrame({"paper, HopfieldLayer": PAPER}).T[table.columns]]).to_string())


if __name__ == "__main__":
    main()
