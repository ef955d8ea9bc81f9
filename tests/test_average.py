"""mt average: the mean of checkpoints, what it refuses, and that resuming and rotation leave it alone."""

import json
import shutil
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from mt import checkpoint
from mt.__main__ import main
from mt.averaging import average_weights, save_average
from mt.config import CorpusConfig, DecodeConfig, ModelConfig, TokenizerConfig, TrainConfig
from mt.model.transformer import Transformer
from mt.tensors import mean
from mt.tokenizer import TokenizerPair, train_tokenizers

SENTENCES = [f"{who} {does} the {what}" for who in ("we", "you") for does in ("eat", "see") for what in ("rice", "sea")]
SMALL = ModelConfig(d_model=16, d_ff=32, n_heads=2, encoder_layers=1, decoder_layers=1)
BLEU = {1: 7.0, 2: 9.0, 3: float("nan"), 4: 8.0}  # by step; step 5 was not validated


def tokenizers_of(sentences: list[str]) -> TokenizerPair:
    with warnings.catch_warnings(action="ignore"):  # so little text gives fewer pieces
        return train_tokenizers([(line, line) for line in sentences], TokenizerConfig(vocabulary_size=400), 1)


def save(run_dir: Path, step: int, tokenizers: TokenizerPair, config: ModelConfig) -> Path:
    torch.manual_seed(step)
    model = Transformer(config, tokenizers.source.size, tokenizers.target.size)
    state = {
        "tokenizer_fingerprint": tokenizers.fingerprint,
        "metrics": {"bleu": BLEU[step], "loss": float(step)} if step in BLEU else {},
        "finished": False,
        "progress": {"step": step},
        "corpus_fingerprint": "c" * 64,
        "model": asdict(config),
    }
    return checkpoint.save_checkpoint(run_dir, step, model.state_dict(), {"rng": torch.zeros(1)}, state)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "small"
    corpus = run_dir.parent / "test.tsv"
    corpus.write_text("".join(f"{line}\t{line}\n" for line in SENTENCES))
    config = TrainConfig(
        model=SMALL,
        decode=DecodeConfig(beam_size=2, max_length_ratio=1.0, max_length_offset=2),
    )
    config.data.target_language = "en"
    config.data.test = {"main": CorpusConfig(path=str(corpus))}
    tokenizers = tokenizers_of(SENTENCES)
    checkpoint.create_run(run_dir, config, tokenizers, [])
    saved = [save(run_dir, step, tokenizers, SMALL) for step in range(1, 6)]
    checkpoint.point(run_dir, "best", saved[1])
    checkpoint.point(run_dir, "last", saved[4])
    return run_dir


@pytest.fixture
def run_dir(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


@pytest.fixture
def run_mt(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Runs a command in this process; returns exit code, stdout, stderr."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mt", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
            sys.exit(0)
        sys.stdout.flush()
        return (stopped.value.code or 0, *capfd.readouterr())

    return call


def mean_of(run_dir: Path, steps: list[int]) -> dict[str, torch.Tensor]:
    all_weights = [checkpoint.read_weights(run_dir / "checkpoints" / f"step_{step:08d}") for step in steps]
    return {
        name: (sum(weights[name].double() for weights in all_weights) / len(steps)).float() for name in all_weights[0]
    }


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ([], [1, 2, 3, 4, 5]),
        (["--last", "2"], [4, 5]),
        (["--best", "2"], [2, 4]),
        (["--best", "3"], [2, 4, 1]),
        (["--best", "2", "--metric", "loss"], [1, 2]),
        (["--checkpoints", "step_00000003, step_00000001"], [3, 1]),
        (["--checkpoints", "best,last"], [2, 5]),
    ],
)
def test_the_chosen_checkpoints_are_averaged(run_mt, run_dir: Path, arguments: list[str], steps: list[int]) -> None:
    code, out, err = run_mt("average", run_dir, *arguments)
    assert (code, out) == (0, f"{run_dir / 'checkpoints' / 'average'}\n")
    names = [f"step_{step:08d}" for step in steps]
    assert err == f"averaged {len(steps)} checkpoints: {', '.join(names)}\n"
    saved = Path(out.strip())
    assert sorted(file.name for file in saved.iterdir()) == ["model.safetensors", "state.json"]
    weights, state = checkpoint.read_weights(saved), checkpoint.read_state(saved)
    torch.testing.assert_close(weights, mean_of(run_dir, steps), atol=1e-7, rtol=0)
    assert (state["averaged"], state["metrics"], state["step"]) == (names, {}, max(steps))
    assert (
        state["corpus_fingerprint"] == "c" * 64
        and "progress" not in state
        and set(state["sha256"])
        == {
            "model.safetensors",
            "state.json",
        }
    )


def test_the_average_translates_and_is_scored(run_mt, run_dir: Path) -> None:
    assert run_mt("average", run_dir, "--name", "mean_1")[0] == 0
    code, averaged, _ = run_mt("translate", run_dir, *SENTENCES, "--checkpoint", "mean_1")
    assert code == 0 and averaged.count("\n") == len(SENTENCES)
    assert averaged != run_mt("translate", run_dir, *SENTENCES)[1]
    assert run_mt("evaluate", run_dir, "--checkpoint", "mean_1")[0] == 0
    record = json.loads(next((run_dir / "results").glob("*.json")).read_bytes())
    assert (record["checkpoint"], record["step"]) == ("mean_1", 5)


def test_resuming_and_rotation_leave_an_average_alone(run_dir: Path) -> None:
    saved = save_average(run_dir, checkpoint.list_checkpoints(run_dir), "average")
    assert checkpoint.newest_readable(run_dir).name == "step_00000005"
    for path in checkpoint.list_checkpoints(run_dir):
        if path.name not in ("step_00000002", "step_00000005"):
            shutil.rmtree(path)
    checkpoint.rotate(run_dir, 1, 1, "bleu")
    checkpoint.remove_unfinished(run_dir)
    assert saved.is_dir() and checkpoint.read_weights(saved)


def test_an_earlier_average_is_replaced_and_nothing_else(run_mt, run_dir: Path) -> None:
    assert run_mt("average", run_dir, "--last", "2")[0] == 0
    code, out, err = run_mt("average", run_dir, "--last", "3")
    assert code == 0 and err.endswith("\nreplaced the earlier average\n")
    weights = checkpoint.read_weights(Path(out.strip()))
    torch.testing.assert_close(weights, mean_of(run_dir, [3, 4, 5]), atol=1e-7, rtol=0)
    own = Path(shutil.copytree(run_dir / "checkpoints" / "step_00000001", run_dir / "checkpoints" / "mine"))
    before = (own / "model.safetensors").read_bytes()
    code, _, err = run_mt("average", run_dir, "--name", "mine")
    assert code == 2 and "is a checkpoint that is no average" in err
    assert (own / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--last", "1"], "--last=1: must be at least 2"),
        (["--best", "0"], "--best=0: must be at least 2"),
        (["--last", "6"], "--last=6: the run has 5 readable checkpoints; there are best, last, step_00000001, step_"),
        (["--best", "4"], "--best=4: the run has 3 validated (with a finite bleu) checkpoints"),
        (["--best", "2", "--metric", "chrf"], "the run has 0 validated (with a finite chrf) checkpoints"),
        (["--best", "2", "--metric", "ter"], "--metric=ter: must be one of bleu, chrf, loss"),
        (["--last", "2", "--metric", "bleu"], "--metric=bleu: has a meaning only with --best"),
        (["--last", "2", "--best", "2"], "give only one of --last, --best and --checkpoints"),
        (["--checkpoints", "step_00000001"], "2 or more different checkpoints, got step_00000001; the run has best, "),
        (["--checkpoints", "best,step_00000002"], "different checkpoints, got step_00000002, step_00000002"),
        (["--checkpoints", "step_00000001,step_00000009"], "checkpoint=step_00000009: not in "),
        (["--checkpoints", "best,"], "checkpoint=: not in "),
        (["--checkpoints", "best,../checkpoints/step_00000001"], "the run has best, last, step_00000001"),
        (["--name", "step_00000009"], "name=step_00000009: must be letters, digits"),
        (["--name", "best"], "name=best: must be"),
        (["--name", "../x"], "name=../x: must be"),
        (["--name", ".tmp-x"], "name=.tmp-x: must be"),
        (["--name", ""], "name=: must be"),
    ],
)
def test_what_cannot_be_averaged_is_refused(run_mt, run_dir: Path, arguments: list[str], message: str) -> None:
    before = sorted(run_dir.rglob("*"))
    code, out, err = run_mt("average", run_dir, *arguments)
    assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1
    assert message in err and sorted(run_dir.rglob("*")) == before


def test_a_run_without_checkpoints_has_no_average(run_mt, run_dir: Path, tmp_path: Path) -> None:
    shutil.rmtree(run_dir / "checkpoints")
    code, _, err = run_mt("average", run_dir)
    assert code == 2 and "got none; the run has none yet" in err
    code, _, err = run_mt("average", tmp_path / "nowhere")
    assert code == 2 and "is not a run folder" in err


def test_checkpoints_that_differ_are_refused_by_what_differs(run_dir: Path) -> None:
    own = checkpoint.load_tokenizers(run_dir)
    other = tokenizers_of([line.replace("rice", "tofu") for line in SENTENCES])
    assert own.fingerprint != other.fingerprint
    more_heads = replace(SMALL, n_heads=4)  # of the same shapes
    for path, words in (
        (save(run_dir, 6, other, SMALL), "cannot be averaged with .*step_00000001: another tokenizer"),
        (save(run_dir, 7, own, more_heads), "step_00000007: .*: other model settings"),
    ):
        with pytest.raises(ValueError, match=words):
            average_weights([run_dir / "checkpoints" / "step_00000001", path])
    weights = checkpoint.read_weights(run_dir / "checkpoints" / "step_00000001")
    first, *_, last = weights
    for step, changed, words in (
        (8, {**weights, first: weights[first][:-1]}, f"of two sizes {first} "),
        (9, {**weights, "more": torch.zeros(2)}, "unknown more$"),
        (10, {name: tensor for name, tensor in weights.items() if name != last}, f"missing {last}$"),
        (11, {**weights, first: weights[first] * float("nan")}, f"{first} holds NaN or infinity"),
        (12, {**weights, first: weights[first] + float("inf")}, f"step_00000012: .*{first} holds NaN or infinity"),
    ):
        state = {"tokenizer_fingerprint": own.fingerprint, "metrics": {}, "finished": False, "model": asdict(SMALL)}
        path = checkpoint.save_checkpoint(run_dir, step, changed, None, state)
        with pytest.raises(ValueError, match=words):
            average_weights([run_dir / "checkpoints" / "step_00000001", path])


def test_a_swapped_tokenizer_folder_or_a_damaged_checkpoint_stops_it(run_mt, run_dir: Path) -> None:
    file = run_dir / "checkpoints" / "step_00000004" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    code, _, err = run_mt("average", run_dir, "--last", "2")
    assert code == 2 and f"{file}: damaged" in err and err.count("\n") == 1
    assert run_mt("average", run_dir, "--best", "2", "--metric", "loss")[0] == 0  # the damaged one is not asked for
    (run_dir / "checkpoints" / "step_00000005" / "state.json").write_bytes(b"{")
    code, out, err = run_mt("average", run_dir, "--checkpoints", "step_00000001,step_00000002")
    assert code == 0
    code, out, err = run_mt("average", run_dir, "--best", "2", "--metric", "loss")
    assert code == 0 and "warning: " in err and "step_00000005/state.json: damaged" in err
    shutil.rmtree(run_dir / "tokenizer")
    tokenizers_of(["another text", "of other words"]).save(run_dir / "tokenizer")
    code, _, err = run_mt("average", run_dir, "--checkpoints", "step_00000001,step_00000002")
    assert code == 2 and "the tokenizer does not match this model" in err


def test_the_mean_keeps_ties_and_types() -> None:
    generator = torch.Generator().manual_seed(1)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        tables = [torch.randn(5, 4, generator=generator).to(dtype) for _ in range(7)]
        means = mean([{"embedding": table, "output": table} for table in tables])
        assert means["embedding"] is means["output"] and means["output"].dtype == dtype
        expected = (sum(table.double() for table in tables) / 7).to(dtype)
        assert torch.equal(means["output"], expected)
    largest = torch.full((2,), 3e38)  # whose sum is no float32
    assert torch.equal(mean([{"w": largest}, {"w": largest}])["w"], largest)
