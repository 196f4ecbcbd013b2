from __future__ import annotations

import gzip
import hashlib
import math
import os
import pickle
import platform
import subprocess
import sys
from dataclasses import replace

import numba
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from scipy import stats

from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets, decode_many
from deeprc.datasets.random_numbers import derive_key, draw_uniforms, draw_words
from deeprc.datasets.simulation import lstm_loops
from deeprc.datasets.simulation.lstm import LstmBackground, _arrange_weights
from deeprc.datasets.simulation.lstm_model import BOUNDARY, MAX_LENGTH, LstmModel, load_model, save_model
from deeprc.datasets.simulation.lstm_training import NextResidue, train_lstm
from deeprc.errors import InputError

f32 = np.float32


@pytest.fixture(autouse=True)
def one_thread():
    """Numba's OpenMP layer gives torch one thread per core again, and in tiny networks they wait for each other."""
    torch.set_num_threads(1)


def random_model(hidden: int = 32, seed: int = 0, scale: float = 1.0) -> LstmModel:
    """Return a model whose sequences are some ten residues long."""
    rng = np.random.default_rng(seed)
    shapes = (21, 4 * hidden), (hidden, 4 * hidden), (hidden, 21), (21,)
    tensors = [(scale * rng.uniform(-1, 1, shape)).astype(f32) for shape in shapes]
    tensors[-1][BOUNDARY] += f32(1)
    return LstmModel(*tensors)


def background_of(model: LstmModel, folder, **options) -> LstmBackground:
    path = folder / "model.safetensors"
    save_model(path, model)
    return LstmBackground(path, **options)


def texts(drawn) -> list[str]:
    return decode_many(drawn.residues, compute_offsets(drawn.lengths))


@pytest.fixture(scope="module")
def background(tmp_path_factory) -> LstmBackground:
    return background_of(random_model(), tmp_path_factory.mktemp("random"))


def weights_by_step(model: LstmModel, tokens: np.ndarray) -> np.ndarray:
    """Return the cumulated weights, (n, T), that the compiled code has after each of n tokens."""
    states, cells = np.zeros((2, 1, model.hidden), f32)
    cumulated = np.zeros((1, lstm_loops.LOGITS), f32)
    steps = []
    for token in tokens:
        lstm_loops.advance(_arrange_weights(model), np.array([token]), states, cells, cumulated)
        steps.append(cumulated[0, : BOUNDARY + 1].copy())
    return np.stack(steps)


@pytest.mark.parametrize(("hidden", "scale"), [(16, 0.6), (64, 0.3), (128, 0.2)])
def test_probabilities_equal_torchs_in_float64_step_by_step(hidden, scale):
    torch.manual_seed(0)
    network = NextResidue(hidden).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_((scale * torch.randn(parameter.shape)).float())
    tokens = np.array([BOUNDARY, *np.random.default_rng(0).integers(0, 20, 30)])
    with torch.no_grad():
        expected = network(torch.from_numpy(tokens)[:, None])[:, 0].softmax(-1).numpy()
    cumulated = weights_by_step(network.to_model(), tokens).astype(np.float64)
    found = np.diff(cumulated, prepend=0.0) / cumulated[:, -1:]
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def map_scalars(function):
    """Return a function of arrays; unlike `np.vectorize` of NumPy 1, it passes float32 scalars, not Python's floats."""
    return lambda x: np.array([function(value) for value in x.ravel()], f32).reshape(x.shape)


def test_the_bits_are_those_of_numpys_float32_one_rounded_operation_after_the_other():
    model = random_model(16)
    weights, H = _arrange_weights(model), 16
    tanh, exp = map_scalars(lstm_loops._tanh.py_func), map_scalars(lstm_loops._exp.py_func)
    recurrent = weights.recurrent.transpose(1, 0, 2).reshape(H, 4 * H)
    outputs = weights.outputs.transpose(1, 0, 2).reshape(H, -1)
    state, cell = np.zeros((2, H), f32)
    tokens = np.array([BOUNDARY, 3, 7, 0, 19])
    half, one = f32(0.5), f32(1)
    for token, found in zip(tokens, weights_by_step(model, tokens), strict=True):
        gates = weights.inputs[token].copy()
        for k in range(H):
            gates = gates + state[k] * recurrent[k]
        i, f, g, o = (tanh(part).astype(f32) for part in np.split(gates, 4))
        cell = (half + half * f) * cell + (half + half * i) * g
        state = (half + half * o) * tanh(cell).astype(f32)
        logits = weights.bias.copy()
        for k in range(H):
            logits = logits + state[k] * outputs[k]
        logits = logits[: BOUNDARY + 1]
        expected, total = exp(logits - logits.max()).astype(f32), f32(0)
        for t in range(BOUNDARY + 1):
            total = total + expected[t]
            expected[t] = total
        assert one <= total
        np.testing.assert_array_equal(found, expected)


def test_exponential_and_tangent_are_accurate():
    x = np.linspace(-20, 20, 4001, dtype=f32)
    tanh = map_scalars(lstm_loops._tanh.py_func)(x)
    np.testing.assert_allclose(tanh, np.tanh(x.astype(np.float64)), rtol=3e-7, atol=0)
    x = np.linspace(-80, 0, 4001, dtype=f32)
    exp = map_scalars(lstm_loops._exp.py_func)(x)
    np.testing.assert_allclose(exp, np.exp(x.astype(np.float64)), rtol=3e-7, atol=0)
    assert lstm_loops._exp.py_func(f32(-1000)) == exp[0]


def test_a_sequence_depends_on_its_key_and_row_alone(background):
    rows = np.arange(3000)
    together = texts(background.draw(7, rows))
    backwards = texts(background.draw(7, rows[::-1]))
    assert backwards == together[::-1]
    for row in (0, 1, 17, 2999):
        assert texts(background.draw(7, np.array([row]))) == [together[row]]
    chosen = np.random.default_rng(0).permutation(rows)[:1000]
    assert texts(background.draw(7, chosen)) == [together[row] for row in chosen]
    assert texts(background.draw(7, rows[:0])) == []
    assert texts(background.draw((1 << 64) - 1, rows)) != together
    assert len(set(together)) > 2000
    far = texts(background.draw(7, np.array([1 << 40, 5])))
    assert far[1] == together[5]
    assert far[0] != far[1]


def test_threads_do_not_change_a_sequence(background):
    threads = numba.get_num_threads()
    drawn = []
    for n in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
        numba.set_num_threads(n)
        drawn.append(texts(background.draw(3, np.arange(5000))))
    numba.set_num_threads(threads)
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("shared", [1e-2, 1e-4])
def test_shared_prefixes_do_not_change_a_sequence(tmp_path, shared):
    model = random_model(scale=2.0)
    one_by_one = background_of(model, tmp_path, shared=1.0)
    assert len(one_by_one._prefixes.states) == 1
    with_tree = background_of(model, tmp_path, shared=shared)
    assert len(with_tree._prefixes.states) > 20
    rows = np.arange(3000)
    assert texts(with_tree.draw(1, rows)) == texts(one_by_one.draw(1, rows))


def test_a_drawn_token_is_that_of_the_uniform_number(background):
    """The first residue by hand: words of the key of the row, cumulated weights in the order of the tokens."""
    rows = np.arange(500)
    weights = weights_by_step(background.model, np.array([BOUNDARY]))[0, :BOUNDARY].astype(np.float64)
    own = draw_words(draw_words(11, rows), np.zeros(500, np.int64))
    marks = (own >> np.uint64(40)) * 2.0**-24 * weights[-1]
    expected = np.searchsorted(weights, marks, side="right")
    drawn = background.draw(11, rows)
    np.testing.assert_array_equal(drawn.residues[compute_offsets(drawn.lengths)[:-1]], expected)


def test_a_pickled_background_is_its_path(background):
    content = pickle.dumps(background)
    assert len(content) < 1000
    copy = pickle.loads(content)
    assert copy == background
    assert texts(copy.draw(0, np.arange(20))) == texts(background.draw(0, np.arange(20)))


def memoryless_model(bias: np.ndarray) -> LstmModel:
    return replace(random_model(16, scale=0.0), bias=bias.astype(f32))


def test_a_model_without_memory_draws_independent_residues_and_geometric_lengths(tmp_path):
    probabilities = np.random.default_rng(1).dirichlet(np.full(21, 5.0))
    drawn = background_of(memoryless_model(np.log(probabilities)), tmp_path).draw(derive_key(0, 4), np.arange(200_000))
    residues = np.bincount(drawn.residues, minlength=20)
    expected = probabilities[:20] / probabilities[:20].sum() * len(drawn.residues)
    assert stats.chisquare(residues, expected).pvalue > 1e-3
    end = probabilities[BOUNDARY]
    lengths = np.bincount(drawn.lengths, minlength=MAX_LENGTH + 1)[1:]
    of_length = end * (1 - end) ** np.arange(MAX_LENGTH)
    of_length[-1] = (1 - end) ** (MAX_LENGTH - 1)  # the end is forced
    assert stats.chisquare(lengths, of_length * len(drawn.lengths)).pvalue > 1e-3


def test_a_model_that_remembers_one_residue_is_the_markov_chain_that_it_should_be(tmp_path):
    rng = np.random.default_rng(2)
    H, open_gate, shut = 32, 12.0, -12.0
    inputs = np.zeros((21, 4, H), f32)
    inputs[:, 0], inputs[:, 1], inputs[:, 3] = open_gate, shut, open_gate
    inputs[np.arange(21), 2, np.arange(21)] = open_gate  # unit t is tanh(1) after token t, the others are 0
    outputs = np.zeros((H, 21), f32)
    outputs[:21] = rng.normal(0, 1, (21, 21))
    model = LstmModel(inputs.reshape(21, 4 * H), np.zeros((H, 4 * H), f32), outputs, np.zeros(21, f32))
    drawn = background_of(model, tmp_path).draw(derive_key(0, 5), np.arange(100_000))
    logits = math.tanh(1) * outputs[:21].astype(np.float64)
    next_one = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    offsets = compute_offsets(drawn.lengths)
    first = np.bincount(drawn.residues[offsets[:-1]], minlength=20)
    start = next_one[BOUNDARY, :20] / next_one[BOUNDARY, :20].sum()
    assert stats.chisquare(first, start * first.sum()).pvalue > 1e-3
    tokens = np.insert(drawn.residues.astype(np.int64), offsets[1:], BOUNDARY)  # the end after each
    last = np.zeros(len(tokens), bool)
    last[offsets[1:] + np.arange(len(drawn.lengths))] = True
    places = np.concatenate([np.arange(length + 1) for length in drawn.lengths])
    from_here = np.flatnonzero(~last & (places < MAX_LENGTH - 1))  # after the last place, the end is forced
    for token in (0, 9, 19):
        after = tokens[from_here[tokens[from_here] == token] + 1]
        counts = np.bincount(after, minlength=21)
        assert stats.chisquare(counts, next_one[token] * counts.sum()).pvalue > 1e-3


def test_no_sequence_is_empty_or_longer_than_the_limit(tmp_path):
    bias = np.zeros(21)
    bias[BOUNDARY] = 30
    drawn = background_of(memoryless_model(bias), tmp_path).draw(0, np.arange(2000))
    assert set(drawn.lengths) == {1}
    assert set(drawn.residues) == set(range(20))
    bias[BOUNDARY] = -30
    for shared in (1e-5, 1.0):
        drawn = background_of(memoryless_model(bias), tmp_path, shared=shared).draw(0, np.arange(2000))
        assert set(drawn.lengths) == {MAX_LENGTH}
    bias[3] = 60  # one sequence, and all its prefixes are in the tree
    drawn = background_of(memoryless_model(bias), tmp_path).draw(0, np.arange(50))
    assert set(texts(drawn)) == {"E" * MAX_LENGTH}


@pytest.mark.slow
def test_the_generator_needs_no_torch():
    code = "import sys, deeprc.datasets.simulation.lstm; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_model_of_the_package_writes_the_same_junctions_everywhere():
    drawn = LstmBackground().draw(derive_key(0), np.arange(4))
    assert texts(drawn) == ["CASSSGTGGPMDEQYF", "CASRLLEGNEQFF", "CASSDSIREQYF", "CASSFYRVATNEQFF"]
    assert load_model().about["source"] == "trb_cdr3_unique.tsv.gz"


@pytest.fixture(scope="module")
def toy_list(tmp_path_factory):
    """Each residue follows from the one before it, but for the first; the unigram entropy is log(20) and more."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("toy") / "toy.txt"
    twice = AMINO_ACIDS * 2
    starts = rng.integers(0, 20, 2000)
    path.write_text("\n".join(twice[start : start + 8] for start in starts) + "\n")
    return path


@pytest.mark.slow
def test_training_learns_and_the_reloaded_model_generates_the_same(toy_list, tmp_path):
    reports: list[tuple[int, float]] = []
    path = tmp_path / "toy.safetensors"
    options = {"hidden": 16, "epochs": 6, "batch_size": 100, "learning_rate": 0.05}
    losses = train_lstm(toy_list, path, **options, progress=lambda *report: reports.append(report))
    assert reports == list(enumerate(losses, 1))
    unigram = -(8 / 9 * math.log(8 / 9 / 20) + 1 / 9 * math.log(1 / 9))
    assert losses[-1] < losses[0] < unigram + 0.5
    assert losses[-1] < 0.5 * unigram
    about = load_model(path).about
    assert about["hidden"] == 16
    assert about["source"] == "toy.txt"
    assert about["sequences"] == 2000
    assert about["held_out_loss"] == losses[-1]
    drawn = texts(LstmBackground(path).draw(0, np.arange(500)))
    assert drawn == texts(LstmBackground(path).draw(0, np.arange(500)))
    assert np.mean([each in AMINO_ACIDS * 2 for each in drawn]) > 0.5


def test_the_same_seed_gives_the_same_model(toy_list, tmp_path):
    models = []
    for seed in (0, 0, 1):
        path = tmp_path / "model.safetensors"
        train_lstm(toy_list, path, hidden=16, epochs=1, seed=seed, limit=500, batch_size=100)
        models.append(path.read_bytes())
    assert models[0] == models[1] != models[2]


def test_training_does_not_import_the_compiler_of_torch(toy_list, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # importing it, which takes two seconds, is an error
    (loss,) = train_lstm(toy_list, tmp_path / "model.safetensors", hidden=16, epochs=1, limit=500, batch_size=100)
    assert 0 < loss < np.log(21) + 0.1


def test_a_container_a_table_and_a_list_give_the_same_model(cohort_factory, tmp_path):
    cohort = cohort_factory()
    sequences = [each for repertoire in cohort for each in repertoire.sequences.decode()]
    bare, packed, table = (tmp_path / name for name in ("bare.txt", "packed.gz", "table.tsv"))
    bare.write_text("\n".join([*sequences, "C" * (MAX_LENGTH + 1)]))
    packed.write_bytes(gzip.compress(("junction_aa\n" + "\n".join(sequences)).encode()))
    rows = "".join(f"{each}\tT\n" for each in sequences)
    table.write_text(f"junction_aa\tproductive\n{rows}CASSF\tF\nCA*F\tT\n{'C' * (MAX_LENGTH + 1)}\tT\n")
    models = []
    for path in (cohort.container.path, bare, packed, table):
        train_lstm(path, tmp_path / "model.safetensors", hidden=16, epochs=1, limit=len(sequences))
        models.append(load_model(tmp_path / "model.safetensors"))
        assert models[-1].about["sequences"] == len(sequences)
        assert models[-1].about["source"] == path.name
        np.testing.assert_array_equal(models[-1].recurrent, models[0].recurrent)
    train_lstm(bare, tmp_path / "model.safetensors", hidden=16, epochs=1, limit=150)
    assert load_model(tmp_path / "model.safetensors").about["sequences"] == 150


def one_line(error: pytest.ExceptionInfo[InputError], *words: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    for each in words:
        assert each in message


def test_bad_sources_give_one_line(tmp_path, toy_list):
    output = tmp_path / "model.safetensors"
    contents = {
        "none.txt": "CASX\nCA-F\n",
        "two.csv": "x,y\n1,2\n",
        "few.txt": "CASSF\n" * 99,
        "empty.txt": "",
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.write_text(content)
        with pytest.raises(InputError) as error:
            train_lstm(path, output, hidden=16)
        one_line(error, str(path))
    with pytest.raises(InputError) as error:
        train_lstm(tmp_path / "missing.txt", output)
    one_line(error, "missing.txt: no such file")
    with pytest.raises(InputError) as error:
        train_lstm(toy_list, output, hidden=20)
    one_line(error, "20 units", "multiple of 16")
    with pytest.raises(InputError) as error:
        train_lstm(toy_list, output, epochs=0)
    one_line(error, "at least one epoch")
    with pytest.raises(InputError) as error:
        train_lstm(toy_list, tmp_path / "nowhere" / "model.safetensors")
    one_line(error, "the folder", "does not exist")
    for seed in (-1, 10**30):
        with pytest.raises(InputError) as error:
            train_lstm(toy_list, output, hidden=16, seed=seed)
        one_line(error, f"`seed={seed}`: expected 0 to 4294967295")
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(InputError) as error:
        train_lstm(toy_list, notes, hidden=16, epochs=1, limit=100)
    one_line(error, "notes.txt: exists and is not a model")
    assert notes.read_text() == "mine"
    assert not list(tmp_path.glob("*model*"))


def bad_models():
    good = random_model(16).tensors
    nan = good["inputs"].copy()
    nan[0, 0] = np.nan
    return {
        "one is lacking": ({name: good[name] for name in ("inputs", "bias", "outputs")}, "expected the tensors bias"),
        "none": ({}, "found none"),
        "shape": ({**good, "outputs": good["outputs"][:, :20].copy()}, "'outputs' is float32 of shape (16, 20)"),
        "type": ({**good, "bias": good["bias"].astype(np.float64)}, "'bias' is float64"),
        "number": ({**good, "inputs": nan}, "'inputs' holds numbers that are not finite"),
        "units": (random_model(8).tensors, "8 units"),
        "scalar": ({**good, "recurrent": np.zeros((), f32)}, "0 units"),
    }


@pytest.mark.parametrize("name", list(bad_models()))
def test_bad_tensors_give_one_line(name, tmp_path):
    tensors, expected = bad_models()[name]
    path = tmp_path / "bad.safetensors"
    save_file(tensors, path)
    with pytest.raises(InputError) as error:
        LstmBackground(path)
    one_line(error, str(path), expected)


def test_bad_files_give_one_line(tmp_path):
    path = tmp_path / "bad.safetensors"
    with pytest.raises(InputError) as error:
        load_model(path)
    one_line(error, "no such file")
    save_model(path, random_model(16))
    whole = path.read_bytes()
    for content in (b"", b"CASSF\n", whole[:1000], whole[:-4]):
        path.write_bytes(content)
        with pytest.raises(InputError) as error:
            load_model(path)
        one_line(error, str(path), "damaged")
    with pytest.raises(InputError) as error:
        load_model(tmp_path)
    one_line(error, str(tmp_path))
    save_file(random_model(16).tensors, path, metadata={"lstm": '{"alphabet": "ACGT"}'})
    with pytest.raises(InputError) as error:
        load_model(path)
    one_line(error, "expected a model of the alphabet")


def test_a_saved_model_is_read_back_exactly(tmp_path):
    model = random_model(48)
    path = tmp_path / "model.safetensors"
    save_model(path, model)
    for name, tensor in load_model(path).tensors.items():
        np.testing.assert_array_equal(tensor, model.tensors[name])
    assert [each.name for each in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.long
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names processors of one family")
def test_other_vectors_give_the_same_bits(tmp_path):
    """The same draw compiled for processors with vectors of 4 numbers, and of 8 with contracted products."""
    code = (
        "import hashlib, numpy as np; from deeprc.datasets.simulation.lstm import LstmBackground; "
        "drawn = LstmBackground().draw(9, np.arange(3000)); "
        "print(hashlib.sha256(drawn.residues.tobytes() + drawn.lengths.tobytes()).hexdigest())"
    )
    targets = {"x86-64": "", "haswell": "+avx,+avx2,+fma,+sse4.2"}
    digests = set()
    for name, features in targets.items():
        target = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "NUMBA_CACHE_DIR": str(tmp_path / name)}
        run = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **target}, check=True, capture_output=True, text=True
        )
        digests.add(run.stdout)
    drawn = LstmBackground().draw(9, np.arange(3000))
    own = hashlib.sha256(drawn.residues.tobytes() + drawn.lengths.tobytes()).hexdigest()
    assert digests == {own + "\n"}


@pytest.mark.long
def test_uniform_numbers_of_the_steps_are_uniform():
    own = draw_words(derive_key(0), np.arange(100_000))
    for place in (0, 7, 39):
        numbers = draw_uniforms(own, np.full(100_000, place))
        assert stats.kstest(numbers, "uniform").pvalue > 1e-3
