"""Small UCI data sets: Hopfield networks against four other methods (paper lines 1094-1152, 6934-7026).

    python examples/uci.py --data uci_small.tar.gz --output uci.tsv

Settings are chosen on the published halves of a set (`conxuntos.dat`): each half in turn trains, the other validates.
The four published splits measure the accuracy, in the eleven sets with a test part, too. An interrupted run goes on.
Letters: N rows, F features, C classes, H heads.
"""

import shutil
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch
from scipy.stats import wilcoxon
from sklearn.ensemble import HistGradientBoostingClassifier as Boosting
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from deeprc.hopfield import Hopfield, HopfieldLayer, HopfieldPooling

Split = tuple[Tensor, Tensor]  # rows for training, rows to predict
WIDTH, BATCH, STORED = 64, 48, 128
HEADS: dict[str, Any] = {"n_heads": 8, "key_dim": 16}


def snn(n_features: int, layers: int) -> list[nn.Module]:
    """Return the layers of a self-normalising network."""
    maps = [nn.Linear(WIDTH if i else n_features, WIDTH) for i in range(layers)]
    for each in maps:
        nn.init.normal_(each.weight, std=each.in_features**-0.5)
        nn.init.zeros_(each.bias)
    return [module for each in maps for module in (each, nn.SELU(), nn.AlphaDropout(0.05))]


def make_snn(x: Tensor, targets: Tensor, *, layers: int, per_class: int = 0, beta: float = 1.0) -> nn.Module:
    """Return a self-normalising network, with the paper's `HopfieldLayer` of learned patterns if it has any."""
    patterns, C = snn(x.shape[1], layers), targets.shape[1]
    memory = [HopfieldLayer(WIDTH, n_stored=per_class * C, beta=beta, **HEADS)] if per_class else []
    return nn.Sequential(*patterns, *memory, nn.Linear(WIDTH, C), nn.Unflatten(1, (1, C)))


def make_pooling(x: Tensor, targets: Tensor, *, n_queries: int) -> nn.Module:
    """Return a network that makes a pattern of each feature; learned queries of `HopfieldPooling` search them."""
    F, C = x.shape[1], targets.shape[1]
    patterns = [nn.Unflatten(1, (F, 1)), nn.Conv1d(F, 32 * F, 1, groups=F), nn.SELU(), nn.Flatten()]
    pooling = HopfieldPooling(32, n_heads=4, key_dim=16, n_queries=n_queries, beta=1.0, normalisation="none")
    output = [*snn(32 * n_queries, 1), nn.Linear(WIDTH, C), nn.Unflatten(1, (1, C))]
    return nn.Sequential(*patterns, nn.Unflatten(1, (F, 32)), pooling, nn.Flatten(), *output)


class Memory(nn.Module):
    """The training set is stored; a row gets the mean class of similar rows. Each head learns what is similar.

    Without `layers`, this is a `HopfieldLayer`, in which no training row finds itself. With them, a self-normalising
    network maps all rows, `Hopfield` associates them, and an update stores `STORED` rows other than its own.
    """

    def __init__(self, x: Tensor, targets: Tensor, *, layers: int, beta: float) -> None:
        super().__init__()
        self.x, self.targets, self.embed, self.layer = x, targets, nn.Sequential(*snn(x.shape[1], layers)), None
        options = HEADS | {"project_output": False, "normalisation": "projected", "beta": beta, "learn_beta": True}
        if layers:
            self.hopfield = Hopfield(WIDTH, raw_value_dim=targets.shape[1], values="raw", **options)
        else:
            options |= {"n_stored": len(x), "learn_stored": False, "learn_targets": False, "dropout": 0.2}
            self.layer = HopfieldLayer(x.shape[1], target_dim=targets.shape[1], **options)
            self.layer.load_state_dict({"stored": x, "targets": targets}, strict=False)
            self.hopfield = self.layer.hopfield
        self.hopfield.map_stored.load_state_dict(self.hopfield.map_states.state_dict())

    def forward(self, x: Tensor, own: Tensor | None = None) -> Tensor:
        """Return logits of each head, (N, H, C)."""
        rows = torch.arange(len(self.x))
        if self.layer is not None:
            found = self.layer(x, association_mask=None if own is None else own[:, None] == rows)
        else:
            if own is not None:
                rows = rows[~torch.isin(rows, own)][torch.randperm(len(rows) - len(own))[:STORED]]
            found = self.hopfield(self.embed(x), self.embed(self.x[rows]), self.targets[rows])
        return (0.98 * found + 0.02 / self.targets.shape[1]).log().unflatten(1, (HEADS["n_heads"], -1))


def train(make: Any, x: Tensor, classes: Tensor, targets: Tensor, updates: int, lr: float = 0.004, **rest: Any) -> Any:
    """Minimise the cross entropy of all heads by AdamW; the learning rate rises and falls once."""
    torch.manual_seed(0)
    network = make(x, targets, **rest)
    optimiser = torch.optim.AdamW(network.parameters(), lr=lr, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=updates + 1, pct_start=0.1)
    batches: list[Tensor] = []
    for _ in range(updates):
        batches = batches or list(torch.randperm(len(x)).tensor_split(max(2, round(len(x) / BATCH))))
        rows = batches.pop(0)
        logits = network(x[rows], own=rows) if isinstance(network, Memory) else network(x[rows])  # (N, H, C)
        optimiser.zero_grad()
        cross_entropy(logits.transpose(1, 2), classes[rows, None].expand(-1, logits.shape[1])).backward()
        optimiser.step()
        schedule.step()
    return network.eval()


def grid(function: Any, *first: Any, **values: list[Any]) -> list[partial[Any]]:
    """Return the function with every combination of values."""
    return [partial(function, *first, **dict(zip(values, each, strict=True))) for each in product(*values.values())]


METHODS: dict[str, list[partial[Any]]] = {
    "HopfieldLayer, training set": grid(train, Memory, layers=[0], beta=[1, 4], lr=[0.01], updates=[40, 120]),
    "Hopfield, training set": grid(train, Memory, layers=[1], beta=[1, 4], lr=[0.01], updates=[40, 160]),
    "HopfieldLayer, learned": grid(train, make_snn, layers=[1], beta=[0.1, 1], per_class=[1, 8], updates=[160]),
    "HopfieldPooling": grid(train, make_pooling, n_queries=[1, 4], updates=[120]),
    "SNN": grid(train, make_snn, layers=[1, 3], lr=[0.003, 0.01], updates=[160]),
    "SVM": grid(SVC, C=[0.1, 1, 10, 100, 1000], gamma=[2.0**i for i in (-10, -8, -6, -4, -3, -2, -1, 0)]),
    "random forest": grid(RandomForestClassifier, max_features=["sqrt", 0.3, 0.6], n_estimators=[200]),
    "gradient boosting": grid(Boosting, max_leaf_nodes=[4, 16], max_iter=[30, 100], min_samples_leaf=[5]),
}
METHODS["Hopfield, any layer"] = [choice for name in list(METHODS)[:4] for choice in METHODS[name]]


def predict(choice: partial[Any], known: Tensor, classes: Tensor, new: Tensor, n_classes: int) -> Tensor:
    """Train on known rows and return the shares of the classes for new ones, (N, C)."""
    mean, deviation = known.mean(0), known.std(0)
    known, new = ((each - mean) / deviation.where(deviation > 1e-6, 1.0) for each in (known, new))
    if choice.func is not train:  # a method of scikit-learn
        found = choice(random_state=0).fit(known.numpy(), classes.numpy()).predict(new.numpy())
        return one_hot(torch.from_numpy(found), n_classes).float()
    return choice(known, classes, one_hot(classes, n_classes).float())(new).detach().softmax(2).mean(1)


def run_set(x: Tensor, classes: Tensor, halves: list[Split], folds: list[Split]) -> Iterator[dict[str, Any]]:
    """Choose the settings of each method on the halves, and yield its accuracy on the folds. Networks average three."""

    @cache
    def answer(choice: partial[Any], split: Split) -> Tensor:
        return predict(choice, x[split[0]], classes[split[0]], x[split[1]], int(classes.max()) + 1)

    def accuracy(choices: list[partial[Any]], splits: list[Split]) -> float:
        right = [sum(answer(choice, each) for choice in choices).argmax(1) == classes[each[1]] for each in splits]
        return float(np.mean([each.double().mean() for each in right]))

    for name, choices in METHODS.items():
        best = sorted(choices, key=lambda choice: -accuracy([choice], halves))[: 3 if choices[0].func is train else 1]
        row = {"method": name, "accuracy": accuracy(best, folds), "validation": accuracy(best, halves)}
        yield row | {"settings": str([choice.keywords for choice in best])}


def read_set(folder: Path) -> tuple[Tensor, Tensor, list[Split], list[Split]]:
    """Return features, classes, the halves in both orders, and the four splits."""
    table = torch.from_numpy(np.loadtxt(max(folder.glob(f"{folder.name}*_R.dat")), skiprows=1))  # not a "_test_R.dat"
    lines = [(folder / f"conxuntos{name}.dat").read_text().splitlines() for name in ("", "_kfold")]
    halves, folds = (tuple(torch.tensor([int(row) for row in line.split()]) for line in each) for each in lines)
    return table[:, 1:-1].float(), table[:, -1].long(), [halves, halves[::-1]], [folds[i : i + 2] for i in (0, 2, 4, 6)]


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Return mean ranks, and p-values of Wilcoxon's signed-rank test against the best Hopfield network."""
    accuracy = results.pivot_table("accuracy", "set", "method")
    ranks = accuracy.rank(axis=1, ascending=False).mean()
    best = accuracy[ranks.filter(like="Hopfield").idxmin()]
    p = {name: wilcoxon(best, accuracy[name]).pvalue for name in accuracy if (accuracy[name] != best).any()}
    columns = {"accuracy": accuracy.mean(), "mean rank": ranks, "difference": ranks - ranks.mean(), "p": pd.Series(p)}
    return pd.DataFrame(columns).sort_values("mean rank")


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True, help="Archive, or its folder.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), default="uci.tsv", show_default=True)
@click.option("--sets", help="Names, separated by commas. By default all.")
def main(data: Path, output: Path, sets: str | None) -> None:
    """Compare all methods on small UCI data sets."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        if data.is_file():
            shutil.unpack_archive(data, folder, filter="data")
            data = Path(folder)
        if not (found := {path.parent.name for path in data.glob("*/conxuntos.dat")}):
            raise click.UsageError("--data: expected the archive, or a folder with SET/conxuntos.dat")
        if (names := set(sets.split(",")) if sets else found) - found:
            raise click.UsageError(f"--sets: expected some of the {len(found)} sets of the data, found {sets}")
        rows = pd.read_csv(output, sep="\t").to_dict("records") if output.is_file() else []
        for name in sorted(names - {row["set"] for row in rows}):
            rows += [{"set": name} | row for row in run_set(*read_set(data / name))]
            pd.DataFrame(rows).to_csv(f"{output}.part", sep="\t", index=False, float_format="%.5f")
            Path(f"{output}.part").replace(output)
            click.echo(name, err=True)
    click.echo(summarise(pd.DataFrame(row for row in rows if row["set"] in names)).round(4).to_string())


if __name__ == "__main__":
    main()
