"""Every experiment trains: two updates of a small model, on text of our own put where the experiment expects it."""

import gzip
import json
import re
import shlex
from pathlib import Path

import datasets
import pytest

from mt.compose import compose, config_dir
from mt.config import CorpusConfig, TrainConfig
from mt.training.run import train

EXPERIMENTS = sorted((config_dir() / "experiment").glob("*.yaml"))
NAMES = [file.stem for file in EXPERIMENTS]
SMALL = [
    "device=cpu", "model.d_model=16", "model.d_ff=32", "model.n_heads=2", "model.encoder_layers=1",
    "model.decoder_layers=1", "trainer.max_steps=2", "trainer.max_epochs=null", "trainer.max_minutes=null",
    "trainer.batch_tokens=60", "trainer.tensorboard=false", "decode.max_length_ratio=1", "decode.max_length_offset=2",
    "data.cleaning.drop_held_out=none",  # one small corpus stands for all
]  # fmt: skip
PAIRS = [
    (f"The {size} {animal} sees {count} trees.", f"{count} Bäume sieht: {animal} ({size}).")
    for size in ("old", "young")
    for animal in ("dog", "horse", "bird")
    for count in (2, 3)
]


@pytest.fixture(autouse=True)
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path


def write_corpora(config: TrainConfig) -> None:
    """Writes a dozen pairs into every file and data set that the settings name, below the working directory."""
    languages = config.data.source_language, config.data.target_language
    for split in (config.data.train, config.data.valid, config.data.test):
        for corpus in split.values():
            if corpus.dataset is not None:
                write_dataset(corpus, languages)
            elif corpus.path is not None:
                write_text(corpus.path, [f"{source}\t{target}\t1\t2" for source, target in PAIRS])
            else:
                write_text(corpus.source, [source for source, _ in PAIRS])
                write_text(corpus.target, [target for _, target in PAIRS])


def write_text(name: str, lines: list[str]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def write_dataset(corpus: CorpusConfig, languages: tuple[str, str]) -> None:
    """Writes a folder that is read as the data set of this name on the hub is: rows with a dict "translation"."""
    folder, configuration = Path(corpus.dataset), corpus.dataset_config
    (folder / configuration).mkdir(parents=True, exist_ok=True)
    files = "".join(f"  - {{split: {s}, path: {configuration}/{s}.jsonl}}\n" for s in ("train", "validation", "test"))
    readme = f"---\nconfigs:\n- config_name: {configuration}\n  data_files:\n{files}---\n"
    (folder / "README.md").write_text(readme, encoding="utf-8")
    rows = [json.dumps({"translation": dict(zip(languages, pair, strict=True))}) + "\n" for pair in PAIRS]
    (folder / configuration / f"{corpus.split}.jsonl").write_text("".join(rows), encoding="utf-8")


@pytest.mark.filterwarnings("ignore:.*pieces")  # so little text gives fewer
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_trains_and_validates(name: str) -> None:
    write_corpora(compose([f"experiment={name}"]))
    config = compose([f"experiment={name}", *SMALL])
    result = train(config, [])
    assert result.finished and result.steps == 2
    assert result.run_dir == Path("runs") / name
    log = [json.loads(line) for line in (result.run_dir / "log.jsonl").read_bytes().splitlines()]
    assert any("bleu" in str(event) for event in log), "validated"


@pytest.mark.parametrize("file", EXPERIMENTS, ids=NAMES)
def test_the_commands_in_its_header_are_commands_of_ours(file: Path) -> None:
    comment = "".join(line.removeprefix("#") for line in file.open(encoding="utf-8") if line.startswith("#"))
    comment = comment.replace("\\\n", " ")
    for command in re.findall(r"^ +(?:torchrun .* -m )?(mt (?:train|average|evaluate) .*)$", comment, re.MULTILINE):
        _, verb, *arguments = shlex.split(command, comments=True)
        if verb == "train":
            assert f"experiment={file.stem}" in arguments
            compose(arguments)
        else:
            assert arguments[0] == f"runs/{file.stem}"


def test_updates_of_the_wmt14_experiments_hold_as_many_tokens_as_published() -> None:
    for name in ("wmt14_en_de_base", "wmt14_en_de_big"):
        trainer = compose([f"experiment={name}"]).trainer
        assert trainer.batch_tokens * trainer.accumulate_batches == 25_000


def test_the_big_experiment_differs_from_the_base_one_where_its_paper_does() -> None:
    base, big = (compose([f"experiment=wmt14_en_de_{size}"]) for size in ("base", "big"))
    assert (base.data, base.tokenizer, base.optim, base.decode) == (big.data, big.tokenizer, big.optim, big.decode)
    assert (big.model.d_model, big.model.d_ff, big.model.n_heads, big.model.dropout) == (1024, 4096, 16, 0.3)
    assert (base.trainer.max_steps, big.trainer.max_steps) == (100_000, 300_000)
