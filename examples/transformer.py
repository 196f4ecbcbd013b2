"""Heads of a transformer that learned receptor sequences: over how many residues they average (paper lines 921-964).

    python examples/transformer.py learn --data sequences.tsv.gz --output transformer
    python examples/transformer.py compare --weights transformer.safetensors --cohort cohort.h5 --target disease=sick

`learn` trains a small encoder to predict masked residues, counts over how many residues each head averages before,
during and after training, and replaces heads of class I by an average. `compare` trains DeepRC with this encoder and
with the convolution on the same folds. Letters: N sequences, L positions, H heads.
"""

import json
import time
from pathlib import Path
from typing import Any

import click
import pandas as pd
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from deeprc.config import load_config
from deeprc.datasets.alphabet import encode_many
from deeprc.evaluation.splits import SplitOptions
from deeprc.hopfield.analysis import metastable_sizes, summarise_heads
from deeprc.nn import EncoderSettings
from deeprc.nn.transformer import TransformerEncoder
from deeprc.runs.several_runs import RunOptions, RunPlan, train_runs

MEASURED = (0, 30, 100, 200, 400, 700, 1000)  # updates after which the heads are measured
MASKED, HELD_OUT, BATCH, RATE, FOLDS = 0.15, 1000, 256, 2e-3, 5
Sequences = tuple[Tensor, Tensor]  # residues, (N, L), -1 beyond the end, and lengths, (N,)


def mask_residues(sequences: Sequences, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return one-hot residues, (N, L, 20), 0 where they are masked or beyond the end, and what is masked, (N, L)."""
    residues = sequences[0]
    masked = (torch.rand(residues.shape, generator=generator) < MASKED) & (residues >= 0)
    one_hot = functional.one_hot(residues.clamp(min=0), 20) * ((residues >= 0) & ~masked)[:, :, None]
    return one_hot.float(), masked


def masked_loss(model: TransformerEncoder, sequences: Sequences, generator: torch.Generator) -> tuple[Tensor, float]:
    """Return the cross entropy of masked residues, and the share of them that is predicted correctly."""
    one_hot, masked = mask_residues(sequences, generator)
    logits, truth = model.output(model.patterns(one_hot, sequences[1])[masked]), sequences[0][masked]
    return functional.cross_entropy(logits, truth), (logits.argmax(1) == truth).double().mean().item()


@torch.no_grad()
def evaluate(model: TransformerEncoder, held_out: Sequences) -> dict[str, float]:
    """Return the loss and the accuracy on held-out sequences, with the same masks each time."""
    loss, accuracy = masked_loss(model, held_out, torch.Generator().manual_seed(1))
    return {"loss": loss.item(), "accuracy": accuracy}


@torch.no_grad()
def measure_heads(model: TransformerEncoder, held_out: Sequences) -> list[dict[str, Any]]:
    """Return, for each head, over how many residues the residues of held-out sequences average."""
    residues, lengths = held_out
    inside, one_hot = residues >= 0, mask_residues(held_out, torch.Generator().manual_seed(1))[0]
    n_patterns, heads, layers = lengths[:, None].expand(inside.shape)[inside], [], []
    model.patterns(one_hot, lengths, layers)
    for layer, weights in enumerate(layers, start=1):
        sizes = metastable_sizes(weights).transpose(1, 2)[inside]  # (N, H, L) -> residues of all sequences, (R, H)
        heads += [{"layer": layer, **each._asdict()} for each in summarise_heads(sizes, n_patterns)]
    return heads


@torch.no_grad()
def replace_by_average(model: TransformerEncoder, heads: list[dict[str, Any]]) -> TransformerEncoder:
    """Return a copy in which heads give every residue the same weight: their state patterns are 0."""
    copied = TransformerEncoder(EncoderSettings(model.out_features))
    copied.load_state_dict(model.state_dict())
    for head in heads:
        linear = copied.layers[head["layer"] - 1].self_attn.map_states.linear
        rows = slice((head["head"] - 1) * model.width // model.n_heads, head["head"] * model.width // model.n_heads)
        linear.weight[rows], linear.bias[rows] = 0, 0
    return copied


def read_sequences(path: Path, n: int) -> Sequences:
    """Return the first n sequences of the column `junction_aa` that consist of the 20 amino acids."""
    table = pd.read_csv(path, sep="\t", usecols=["junction_aa"], nrows=2 * n).dropna()
    known = table.loc[table["junction_aa"].str.fullmatch("[ACDEFGHIKLMNPQRSTVWY]+"), "junction_aa"][:n]
    if len(known) <= HELD_OUT:
        raise click.UsageError(f"{path}: expected more than {HELD_OUT} sequences, found {len(known)}")
    residues, offsets = (torch.from_numpy(array.astype("int64")) for array in encode_many(known))
    lengths = offsets.diff()
    inside = torch.arange(int(lengths.max())) < lengths[:, None]
    return torch.full(inside.shape, -1).masked_scatter(inside, residues), lengths


@click.group()
def main() -> None:
    """Train a transformer on receptor sequences, and use it in DeepRC."""


@main.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True, help="TSV with junction_aa.")
@click.option("--output", type=click.Path(path_type=Path), default="transformer", show_default=True)
@click.option("--updates", default=MEASURED[-1], show_default=True)
@click.option("--seed", default=0, show_default=True)
def learn(data: Path, output: Path, updates: int, seed: int) -> None:
    """Train the encoder, and measure its heads: OUTPUT.safetensors and OUTPUT.json."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    generator, history = torch.Generator().manual_seed(seed), []
    residues, lengths = read_sequences(data, HELD_OUT + BATCH * updates)
    held_out, model = (residues[:HELD_OUT], lengths[:HELD_OUT]), TransformerEncoder(EncoderSettings(1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=updates + 1, pct_start=0.1)
    started = time.process_time()
    for update in range(updates + 1):
        if update in MEASURED or update == updates:
            heads = measure_heads(model, held_out)
            history.append({"update": update, **evaluate(model, held_out), "heads": heads})
            click.echo(f"{update} updates: {history[-1]['loss']:.3f}, {time.process_time() - started:.0f} s")
        if update < updates:
            rows = HELD_OUT + torch.randint(len(residues) - HELD_OUT, (BATCH,), generator=generator)
            loss, _ = masked_loss(model, (residues[rows], lengths[rows]), generator)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    of_class_1 = [head for head in heads if head["operating_class"] == "I"]
    others = [head for head in heads if head["operating_class"] != "I"]
    replaced = []
    for name, chosen in (("none", []), ("class I", of_class_1), ("others", others), ("all", heads)):
        replaced.append({"heads": name, "n": len(chosen), **evaluate(replace_by_average(model, chosen), held_out)})
        click.echo(f"{len(chosen)} heads replaced ({name}): {replaced[-1]['loss']:.3f}")
    save_file(model.trained_weights(), f"{output}.safetensors")
    found = {"seed": seed, "cpu_s": round(time.process_time() - started), "replaced": replaced, "history": history}
    Path(f"{output}.json").write_text(json.dumps(found, indent=1) + "\n")


@main.command()
@click.option("--cohort", type=click.Path(exists=True, path_type=Path), required=True, help="From deeprc preprocess.")
@click.option("--target", required=True)
@click.option("--group-by", help="Column of the donors.")
@click.option("--weights", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--output", type=click.Path(path_type=Path), default="runs", show_default=True, help="Of the runs.")
@click.option("--folds", "n_folds", type=click.IntRange(1, FOLDS), help="Train only so many folds, the first ones.")
@click.argument("settings", nargs=-1)
def compare(
    cohort: Path,
    target: str,
    group_by: str | None,
    weights: Path,
    output: Path,
    n_folds: int | None,
    settings: tuple[str],
) -> None:
    """Train DeepRC with each encoder on five folds: OUTPUT/compare.tsv. SETTINGS are those of deeprc train."""
    torch.set_num_threads(1)
    folds = range(n_folds or FOLDS)
    plans = {f"fold-{fold}": RunPlan(SplitOptions(folds=FOLDS, fold=fold, group_by=group_by)) for fold in folds}
    encoders = {
        "convolution": ["embedding=convolution"],
        "convolution-random": ["embedding=convolution", "seeded_start=0"],
        "transformer": ["embedding=transformer", f"embedding_weights={weights.absolute()}"],
    }
    rows = []
    for name, own in encoders.items():
        config = load_config(overrides=["composition=false", "clones=false", *own, *settings])
        for folder in train_runs(cohort, output / name, plans, RunOptions(targets=(target,), config=config)):
            (test,) = json.loads((folder / "metrics.json").read_text())["test"].values()
            seconds = pd.read_csv(folder / "history.tsv", sep="\t")["seconds"].iloc[-1]
            rows.append({"encoder": name, "fold": folder.name, "auc": test["auc"], "seconds": round(seconds)})
    table = pd.DataFrame(rows)
    table.to_csv(output / "compare.tsv", sep="\t", index=False)
    summary = table.groupby("encoder", sort=False).agg({"auc": ["mean", "std"], "seconds": "sum"})
    click.echo(summary.round(3).to_string())


if __name__ == "__main__":
    main()
