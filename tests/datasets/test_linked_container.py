"""A linked container gives what the container of `join` gives that copies them, to the last bit.

What it names is checked: nothing outside its folder is opened, and a part that is missing, changed or foreign is one
clear line.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.cli import main
from deeprc.config import load_config
from deeprc.datasets import linked_container, linked_writer, read_ahead
from deeprc.datasets.cache import digest_container, digest_with_genes
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones import grouping
from deeprc.datasets.clones.distinct import count_distinct_clones
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.container_file import update_checksum
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.joining import join
from deeprc.datasets.linked_container import LinkedContainer
from deeprc.datasets.read_ahead import ReadAhead
from deeprc.datasets.relabelling import relabel
from deeprc.datasets.sequence_hash import hash_sequences
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.source import read_source
from deeprc.datasets.summary import render_summary, summarise
from deeprc.errors import InputError
from deeprc.nn.batch import Collator, RepertoireBatch
from deeprc.nn.genes import GeneNames
from deeprc.nn.sequence_tensors import copy_codes, copy_columns
from deeprc.runs.training_data import digest_training_data
from deeprc.tasks import parse_tasks

RECIPE = {"background": {"kind": "uniform"}, "signals": [], "seed": 1}


def write_part(
    path: Path,
    sizes: list[int],
    *,
    v_names: tuple[str, ...] | None = ("TRBV1", "TRBV2", ""),
    j_names: tuple[str, ...] | None = ("TRBJ1", "TRBJ2"),
    seed: int = 0,
    recipe: dict[str, object] | None = None,
) -> Path:
    """Write repertoires of short sequences, of which many occur in several; the ids begin with the file's name."""
    rng = np.random.default_rng(seed)
    path.parent.mkdir(exist_ok=True)
    with ContainerWriter(path) as writer:
        for number, n in enumerate(sizes):
            texts = ["C" + "".join(rng.choice(list("ASG"), rng.integers(1, 5))) + "F" for _ in range(n)]
            genes = {
                field: Categorical(rng.integers(0, len(names), n).astype(np.uint16), names)
                for field, names in (("v_call", v_names), ("j_call", j_names))
                if names is not None
            }
            encoded = Sequences.encode(texts)
            counts = rng.integers(1, 9, n).astype(np.uint32)
            marks = None if recipe is None else np.zeros(n, np.uint8)
            own = Sequences(encoded.residues, encoded.offsets, counts, witness=marks).with_genes(genes)
            writer.append(f"{path.stem}.{number}", own)
        sheet = pd.DataFrame({"status": ["ab"[number % 2] for number in range(len(sizes))], "age": sizes})
        writer.finish(sheet, source=path.name, simulation=recipe)
    return path


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three parts, linked and copied; their genes have other vocabularies, and one has no J genes."""
    folder = tmp_path_factory.mktemp("joined")
    parts = [
        write_part(folder / "x" / "one.h5", [60, 0, 45], seed=1),
        write_part(folder / "two.h5", [30, 50], v_names=("TRBV2", "TRBV9", "TRBV1"), j_names=None, seed=2),
        write_part(folder / "three.h5", [25], v_names=("TRBV9",), j_names=("TRBJ2", "", "TRBJ1"), seed=3),
    ]
    join(parts, folder / "linked.h5", link=True)
    join(parts, folder / "copied.h5")
    return folder


@pytest.fixture
def both(joined: Path, tmp_path: Path) -> tuple[RepertoireDataset, RepertoireDataset]:
    """The containers of `joined`, in a folder that the test may change."""
    shutil.copytree(joined, tmp_path, dirs_exist_ok=True)
    return open_dataset(tmp_path / "linked.h5"), open_dataset(tmp_path / "copied.h5")


def assert_same_sequences(found: Sequences, expected: Sequences) -> None:
    np.testing.assert_array_equal(found.residues, expected.residues)
    np.testing.assert_array_equal(found.offsets, expected.offsets)
    np.testing.assert_array_equal(found.counts, expected.counts)
    assert list(found.genes) == list(expected.genes)
    for field, calls in expected.genes.items():
        assert found.genes[field].names().tolist() == calls.names().tolist()


def test_all_that_a_dataset_says_is_that_of_the_copy(both):
    linked, copied = both
    assert linked.repertoire_ids.tolist() == copied.repertoire_ids.tolist()
    assert linked.n_sequences.tolist() == copied.n_sequences.tolist() == [60, 0, 45, 30, 50, 25]
    pd.testing.assert_frame_equal(linked.metadata, copied.metadata)
    assert linked.container.source == copied.container.source == "3 containers: one.h5, two.h5, three.h5"
    assert linked.container.preprocessing == copied.container.preprocessing
    assert linked.container.gene_names == copied.container.gene_names
    assert linked.container.gene_names["v_call"] == ("", "TRBV1", "TRBV2", "TRBV9")
    for mine, theirs in zip(linked, copied, strict=True):
        assert_same_sequences(mine.sequences, theirs.sequences)
        assert mine.digest() == theirs.digest()
        pd.testing.assert_frame_equal(mine.to_frame(), theirs.to_frame())
        assert mine.metadata == theirs.metadata
    for part in linked.container.parts:  # each knows all names, so none is taken for another way to write them
        for field, names in copied.container.gene_names.items():
            assert sorted(part.store.sequences.genes[field].vocabulary) == sorted(names)
    some = linked[[5, 0, 3]]
    assert [each.repertoire_id for each in some] == ["three.0", "one.0", "two.0"]
    assert some[1].lengths.tolist() == copied[0].lengths.tolist()
    assert linked.select(["two.1"])[0].sequences.decode() == copied[4].sequences.decode()


def test_the_container_is_small_and_no_sequence_is_copied(both):
    linked, _ = both
    with h5py.File(linked.container.path) as file:
        assert sorted(file) == ["metadata", "parts", "repertoire_ids", "repertoire_offsets"]
        assert file["parts/path"][()].tolist() == [b"x/one.h5", b"two.h5", b"three.h5"]
    for each in linked:
        assert np.shares_memory(each.sequences.residues, each.container.sequences.residues) == (len(each) > 0)
        assert isinstance(each.container.sequences.residues, np.memmap)


def test_sequences_of_several_parts_are_taken_together_in_any_order(both):
    linked, copied = both
    rows = np.random.default_rng(0).integers(0, int(copied.n_sequences.sum()), 300)
    found, expected = linked.container.take(rows), copied.container.take(rows)
    assert_same_sequences(found, expected)
    for field in ("v_call", "j_call"):
        np.testing.assert_array_equal(found.genes[field].codes, expected.genes[field].codes)
    assert len(linked.container.take(rows[:0])) == 0
    with pytest.raises(IndexError, match="expected sequences from 0 to 209"):
        linked.container.take(np.array([210]))


def test_digests_are_those_of_the_copy_and_known_after_it_is_opened_again(both, monkeypatch):
    linked, copied = both
    assert digest_container(linked.container) == digest_container(copied.container)
    assert digest_with_genes(linked) == digest_with_genes(copied)
    tasks = parse_tasks(["status"], copied.metadata, source="")
    config = load_config()
    assert digest_training_data(linked, tasks, config) == digest_training_data(copied, tasks, config)
    monkeypatch.setattr("deeprc.datasets.cache._hash_container", lambda container: "computed")
    assert digest_container(LinkedContainer(linked.container.path)) == digest_container(copied.container)
    place = linked.container.stores[1].path  # the same bytes in a new file: nobody knows whether they are the same
    shutil.copyfile(place, place.with_name("aside"))
    place.with_name("aside").rename(place)
    assert digest_container(LinkedContainer(linked.container.path)) == "computed"


@pytest.mark.parametrize("genes", [False, True])
@pytest.mark.parametrize("block", [1 << 20, 13])
def test_shared_clones_are_those_of_the_copy(both, monkeypatch, genes, block):
    monkeypatch.setattr(grouping, "_BLOCK", block)
    linked, copied = both
    fields = linked.gene_fields if genes else []
    assert linked.gene_fields == copied.gene_fields == ["v_call", "j_call"]
    found, expected = find_shared_clones(linked, fields), find_shared_clones(copied, fields)
    assert len(found) > 10
    for name, values in vars(expected).items():
        np.testing.assert_array_equal(getattr(found, name), values)
    assert count_distinct_clones(linked, fields).tolist() == count_distinct_clones(copied, fields).tolist()
    hashes = [hash_sequences(each, expected.representative, fields) for each in both]
    np.testing.assert_array_equal(*hashes)


def test_parts_without_sequences_share_no_clone(tmp_path):
    parts = [write_part(tmp_path / f"{name}.h5", [0, 0]) for name in ("one", "two")]
    join(parts, tmp_path / "linked.h5", link=True)
    clones = find_shared_clones(open_dataset(tmp_path / "linked.h5"))
    assert len(clones) == 0
    assert clones.n_private.tolist() == [0, 0, 0, 0]


def test_pickled_it_is_a_path(both):
    linked, copied = both
    again = pickle.loads(pickle.dumps(linked[[4, 0]]))
    assert isinstance(again.container, LinkedContainer)
    assert [each.digest() for each in again] == [copied[4].digest(), copied[0].digest()]
    assert len(pickle.dumps(linked)) < 2000


def test_info_says_what_that_of_the_copy_says_and_how_many_parts_there_are(both):
    linked, copied = both
    found, expected = summarise(linked), summarise(copied)
    assert [Path(each).name for each in found.pop("parts")] == ["one.h5", "two.h5", "three.h5"]
    assert expected.pop("parts") == []
    assert found.pop("path") != expected.pop("path")
    assert found == expected
    assert "parts        3 containers, read in place" in render_summary(summarise(linked))


def assert_same_batches(found: RepertoireBatch, expected: RepertoireBatch) -> None:
    for name in ("lengths", "residue_scale", "position_scale", "max_length"):
        mine, theirs = getattr(found.sequences, name), getattr(expected.sequences, name)
        assert mine == theirs if name == "max_length" else torch.equal(mine, theirs)
    assert torch.equal(found.sequences.compact().residues, expected.sequences.compact().residues)
    assert torch.equal(found.offsets, expected.offsets)
    assert (found.genes is None) == (expected.genes is None)
    assert found.genes is None or torch.equal(found.genes, expected.genes)


@pytest.mark.parametrize("genes", [False, True])
def test_batches_are_those_of_the_copy_and_one_part_is_read_in_place(both, genes):
    linked, copied = both
    names = GeneNames.of(copied) if genes else None
    assert GeneNames.of(linked) == GeneNames.of(copied)
    order = [5, 3, 0, 2, 4, 1]
    mine, theirs = (Collator(each[order], "log1p", gene_names=names) for each in both)
    for positions in ([0, 1, 2, 3], [2, 3], [5], [5, 0, 4, 1, 5], []):
        draws = [each.sample(np.array(positions, np.int64), 20, np.random.default_rng(1)) for each in (mine, theirs)]
        assert_same_batches(*draws)
    rows = [np.array([3, 1]), np.array([0]), np.array([7, 7, 2])]
    assert_same_batches(*(each.take_together([2, 0, 4], rows) for each in (mine, theirs)))
    of_one = mine.take(2, np.arange(5))
    assert_same_batches(of_one, theirs.take(2, np.arange(5)))
    assert np.shares_memory(of_one.sequences.residues.numpy(), linked[0].residues)
    mine.prefetch([0, 1])


def test_a_device_gets_all_parts_end_to_end(both):
    linked, copied = (copy_columns(each.container, torch.device("cpu")) for each in both)
    for name in ("residues", "offsets", "counts"):
        assert torch.equal(getattr(linked, name), getattr(copied, name))
    assert linked.max_length == copied.max_length == 6
    codes = [copy_codes(each.container, torch.device("cpu")) for each in both]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*codes, strict=True))
    assert len(codes[0][0]) == 210


@pytest.mark.skipif(read_ahead._WILL_NEED is None, reason="this system cannot be asked")
def test_pages_are_asked_for_in_the_part_that_has_them(both, monkeypatch):
    linked, _ = both
    monkeypatch.setattr(read_ahead, "_MIN_BYTES", 0)
    asked = []
    monkeypatch.setattr(read_ahead, "_request_values", lambda values: asked.append((values.ctypes.data, values.nbytes)))
    reads = ReadAhead(linked.container, ["counts", "v_call"])
    reads([4, 0])
    reads.wait()
    expected = []
    for index in (4, 0):
        each = linked[index]
        sequences, rows = each.container.sequences, slice(each.start, each.stop)
        columns = [sequences.offsets[each.start : each.stop + 1], sequences.counts[rows]]
        expected += [(c.ctypes.data, c.nbytes) for c in [*columns, sequences.genes["v_call"].codes[rows]]]
    expected += [(linked[index].residues.ctypes.data, linked[index].residues.nbytes) for index in (4, 0)]
    assert asked == expected


@pytest.mark.parametrize(("recipes", "known"), [((RECIPE, RECIPE), True), ((RECIPE, None), False)])
def test_witnesses_are_known_where_all_parts_have_the_same_signals(tmp_path, recipes, known):
    parts = [write_part(tmp_path / f"{i}.h5", [4, 5], recipe=recipe) for i, recipe in enumerate(recipes)]
    join(parts, tmp_path / "linked.h5", link=True)
    linked = open_dataset(tmp_path / "linked.h5")
    assert linked.container.has_witness == known
    assert linked.container.simulation == (RECIPE if known else None)
    assert all((each.witness is not None) == known for each in linked)


def test_new_labels_and_backgrounds(both, tmp_path):
    linked, copied = both
    sheet = pd.DataFrame({"repertoire_id": copied.repertoire_ids[::-1], "CMV": list("pnpnpn")})
    sheet.to_csv(tmp_path / "new.tsv", sep="\t", index=False)
    with pytest.raises(InputError, match=r"linked\.h5: would lose the columns 'status', 'age', which .*new\.tsv does"):
        relabel(linked.container.path, tmp_path / "new.tsv")
    relabel(linked.container.path, tmp_path / "new.tsv", drop_columns=True)
    again = open_dataset(linked.container.path)
    assert again.metadata["CMV"].tolist() == list("npnpnp")
    assert digest_container(again.container) == digest_container(copied.container)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(InputError, match=r"one.h5: is not in the folder of .*elsewhere/new.h5 or below"):
        relabel(linked.container.path, tmp_path / "new.tsv", tmp_path / "elsewhere" / "new.h5")
    assert_same_sequences(read_source(again.container.path, longest=5), read_source(copied.container.path, longest=5))


def test_the_folder_can_be_moved(both, tmp_path):
    _, copied = both
    shutil.move(tmp_path, moved := tmp_path.with_name("moved"))
    assert open_dataset(moved / "linked.h5")[4].digest() == copied[4].digest()
    os.symlink(moved / "linked.h5", moved / "x" / "by-another-name.h5")  # its parts lie beside the file itself
    assert open_dataset(moved / "x" / "by-another-name.h5")[0].digest() == copied[0].digest()


def open_fails(path: Path) -> str:
    """Return the one line with which a container is refused."""
    with pytest.raises(InputError) as error:
        open_dataset(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_part_that_is_missing_changed_or_foreign(both, tmp_path):
    path, part = tmp_path / "linked.h5", tmp_path / "two.h5"
    whole = part.read_bytes()
    part.unlink()
    assert f"{part}: no such file; expected a part of {path}" in open_fails(path)
    part.mkdir()
    assert f"{part}: is a folder; expected a part of {path}" in open_fails(path)
    part.rmdir()
    changed = f"{part}: is not the part that {path} was made of: expected "
    part.write_bytes(whole)
    with h5py.File(part, "r+") as file:
        file["counts"][0] += 1
    update_checksum(part)
    assert changed in open_fails(path)
    link = path.read_bytes()
    with h5py.File(path) as file:
        sizes = file["parts/size"][()].tolist()
        sums = [each.decode() for each in file["parts/checksum"][()]]
    with h5py.File(part) as file:
        found = file.attrs["checksum"].decode()
    edit(path, size=[sizes[0], part.stat().st_size, sizes[2]])  # only the checksum differs
    told = open_fails(path)
    assert told == f"{changed}the checksum {sums[1]!r}, found {found!r}; run `deeprc join --link` again"
    path.write_bytes(link)
    shutil.copyfile(tmp_path / "three.h5", part)
    assert changed in open_fails(path)
    part.write_bytes(whole[:-1])
    assert f"{changed}{len(whole):,} bytes, found {len(whole) - 1:,}; run `deeprc join" in open_fails(path)
    damaged = bytearray(whole)
    damaged[whole.index(b"TRBV9")] ^= 1
    part.write_bytes(damaged)
    assert f"{part}: the container is damaged" in open_fails(path)
    part.write_bytes(whole)
    assert len(open_dataset(path)) == 6


def edit(file_path: Path, **columns: list[object]) -> None:
    """Change what a container says of its parts, and its checksum, as a stranger would."""
    with h5py.File(file_path, "r+") as file:
        for name, values in columns.items():
            del file["parts"][name]
            data = np.array(values, np.int64) if name == "size" else np.array([str(v).encode() for v in values])
            if name != "size":
                width = max(map(len, data.tolist()))
                data = data.astype(h5py.string_dtype("utf-8", width))
            file["parts"].create_dataset(name, data=data)
    update_checksum(file_path)


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../one.h5", "x/../../one.h5", "..", ".", "x/./one.h5", "x\\one.h5", "C:one.h5", "", "a" * 5000],
)
def test_no_path_leads_out_of_the_folder(both, tmp_path, monkeypatch, name):
    edit(tmp_path / "linked.h5", path=[name, "two.h5", "three.h5"])
    monkeypatch.setattr(linked_container, "Container", None)  # nothing is opened
    told = open_fails(tmp_path / "linked.h5")
    assert "/parts: expected a path below the folder of this file, found" in told
    assert len(told) < 400


def test_no_link_leads_out_of_the_folder(both, tmp_path):
    outside = tmp_path.with_name(f"{tmp_path.name}-outside.h5")
    (tmp_path / "two.h5").rename(outside)
    (tmp_path / "two.h5").symlink_to(outside)
    assert "/parts: 'two.h5' leads out of the folder of this file" in open_fails(tmp_path / "linked.h5")
    outside.rename(tmp_path / "x" / "2.h5")
    (tmp_path / "two.h5").unlink()
    (tmp_path / "two.h5").symlink_to(tmp_path / "x" / "2.h5")
    assert len(open_dataset(tmp_path / "linked.h5")) == 6


def test_a_file_that_contradicts_its_parts(both, tmp_path):
    path, whole = tmp_path / "linked.h5", (tmp_path / "linked.h5").read_bytes()
    with h5py.File(path) as file:
        sums, sizes = [each.decode() for each in file["parts/checksum"][()]], file["parts/size"][()].tolist()

    def told(**columns: list[object]) -> str:
        path.write_bytes(whole)
        edit(path, **columns)
        return open_fails(path)

    in_order = ["x/one.h5", "two.h5", "three.h5"]
    swapped = {"path": in_order[::-1], "checksum": sums[::-1], "size": sizes[::-1]}
    wrong = "/repertoire_ids: expected the repertoires of the parts, part after part: 'three.0', found 'one.0'"
    assert wrong in told(**swapped)
    twice = {"path": ["two.h5", "two.h5"], "checksum": [sums[1]] * 2, "size": [sizes[1]] * 2}
    assert "/parts: expected different files, found one twice" in told(**twice)
    assert "as many checksums and sizes" in told(size=sizes[:2])
    itself = told(path=["linked.h5", "two.h5", "three.h5"], size=[len(whole), *sizes[1:]])
    assert "is not the part" in itself or "names other containers" in itself
    path.write_bytes(whole)
    with h5py.File(path, "r+") as file:
        file["repertoire_offsets"][1] = 59
    assert "its content is not what its checksum says" in open_fails(path)
    update_checksum(path)
    assert "/repertoire_offsets: expected those of the parts, part after part: 60, found 59" in open_fails(path)
    path.write_bytes(whole)
    with h5py.File(path, "r+") as file:
        file["parts/more"] = h5py.ExternalLink("two.h5", "/residues")
    assert "found a link to another place" in open_fails(path)


def test_witnesses_are_of_signals_that_the_file_names(tmp_path):
    """A part's witnesses are checked with the part's own recipe, so the file that names it must have the same."""
    signal = {"name": "a", "status": "positive", "motifs": [{"pattern": "ASG"}], "witness_rate": 0.1}
    recipe = {**RECIPE, "signals": [signal]}
    parts = [write_part(tmp_path / f"{name}.h5", [3], recipe=recipe) for name in ("one", "two")]
    path = tmp_path / "linked.h5"
    join(parts, path, link=True)
    assert open_dataset(path).container.simulation == recipe
    with h5py.File(path, "r+") as file:
        text = json.dumps(RECIPE).encode()
        file.attrs.create("simulation", text, dtype=h5py.string_dtype("utf-8", len(text)))
    update_checksum(path)
    told = f"attribute 'simulation': expected the signals of {parts[0]}, found others"
    assert told in open_fails(path)


@pytest.mark.parametrize("name", ["x\\y.h5", "C:z.h5", "a\n.h5", b"\xff.h5".decode(errors="surrogateescape")])
def test_a_name_that_could_not_be_read_is_not_written(both, tmp_path, capsys, name):
    try:
        shutil.copyfile(write_part(tmp_path / "four.h5", [3, 2]), tmp_path / name)
    except (OSError, UnicodeError):
        pytest.skip("no such name on this system")
    with pytest.raises(SystemExit) as end:
        main(["join", str(tmp_path / name), str(tmp_path / "three.h5"), "-o", str(tmp_path / "c.h5"), "--link"])
    assert end.value.code == 2
    told = capsys.readouterr().err.splitlines()
    assert f"c.h5: expected names of parts that all systems can read, found {name!r}" in told[-1]
    assert not (tmp_path / "c.h5").exists()
    assert len(open_dataset(join([tmp_path / name, tmp_path / "three.h5"], tmp_path / "copied.h5").path)) == 3


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
def test_a_low_limit_of_open_files_is_raised_or_one_clear_line(tmp_path):
    parts = [write_part(tmp_path / f"{number}.h5", [2], seed=number) for number in range(12)]
    join(parts, tmp_path / "linked.h5", link=True)
    code = (
        "import resource, sys\n"
        "soft, hard = map(int, sys.argv[2:])\n"
        "from deeprc import files\nfrom deeprc.errors import InputError\n"
        "files._OTHER_FILES = 20\n"
        "from deeprc.datasets.dataset import open_dataset\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))\n"
        "try:\n    print(open_dataset(sys.argv[1]).n_sequences.sum())\n"
        "except InputError as error:\n    print(error)\n"
    )

    def opened(soft: int, hard: int) -> str:
        given = [sys.executable, "-c", code, str(tmp_path / "linked.h5"), str(soft), str(hard)]
        return subprocess.run(given, capture_output=True, text=True, check=True).stdout

    assert opened(60, 300) == "24\n"
    told = opened(60, 80)
    assert re.fullmatch(
        rf"{re.escape(str(tmp_path))}/linked.h5: expected a limit of at least (9|10)\d open files, found 80; "
        r"raise it \(`ulimit -Hn`\)\n",
        told,
    )


def test_join_refuses_containers_that_cannot_be_linked(both, tmp_path, monkeypatch):
    linked = tmp_path / "linked.h5"
    part = write_part(tmp_path / "four.h5", [3])
    with pytest.raises(InputError, match=r"linked.h5: names other containers; expected one that holds its sequences"):
        join([linked, part], tmp_path / "more.h5", link=True)
    (tmp_path / "deep").mkdir()
    with pytest.raises(InputError, match=r"two.h5: is not in the folder of .*deep/more.h5 or below"):
        join([tmp_path / "two.h5", part], tmp_path / "deep" / "more.h5", link=True)
    many = [
        write_part(tmp_path / f"{name}.h5", [3], v_names=tuple(f"{name}{number}" for number in range(40_000)))
        for name in ("a", "b")
    ]
    with pytest.raises(InputError, match=r"b.h5: v_call: more than 65,535 different gene names with the parts before"):
        join(many, tmp_path / "more.h5", link=True)
    monkeypatch.setattr(linked_writer, "MAX_PARTS", 1)
    with pytest.raises(InputError, match="expected at most 1 parts, found 2"):
        join([tmp_path / "two.h5", part], tmp_path / "more.h5", link=True)
    assert not (tmp_path / "more.h5").exists()


def test_the_command(both, tmp_path, capsys):
    parts = [str(tmp_path / name) for name in ("two.h5", "three.h5")]
    with pytest.raises(SystemExit) as end:
        main(["join", *parts, "-o", str(tmp_path / "c.h5"), "--link"])
    assert end.value.code == 0
    assert capsys.readouterr().out == (
        f"3 repertoires of 2 containers\nWrote {tmp_path}/c.h5; it reads these containers where they are: keep them\n"
    )
    assert open_dataset(tmp_path / "c.h5").container.version == 3
    (tmp_path / "three.h5").unlink()
    with pytest.raises(SystemExit) as end:
        main(["info", str(tmp_path / "c.h5")])
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        f"Error: {tmp_path}/three.h5: no such file; expected a part of {tmp_path}/c.h5\n"
    )
