import dataclasses
import os
import re
from pathlib import Path

import pytest
import yaml

from mt.compose import compose, config_dir, read_config, run_hydra
from mt.config import CorpusConfig, ModelConfig, StageConfig, TrainConfig
from mt.mapping import to_mapping

GROUPS = ("data", "tokenizer", "model", "optim", "trainer", "decode")
OPTIONS = [(group, file.stem) for group in GROUPS for file in sorted((config_dir() / group).glob("*.yaml"))]
EXPERIMENTS = sorted(file.stem for file in (config_dir() / "experiment").glob("*.yaml"))


@pytest.fixture(autouse=True)
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes(name: str) -> None:
    config = compose([f"experiment={name}"])
    assert config.name == name
    assert config.data.train, "an experiment names its training corpora"
    assert config.data.valid, "an experiment names its validation corpora"


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_composes_and_has_effect(group: str, option: str) -> None:
    overrides = [f"{group}={option}"] + (["model.tying=decoder"] if option.startswith("separate") else [])
    settings = to_mapping(compose(overrides))
    for key, value in (yaml.safe_load((config_dir() / group / f"{option}.yaml").read_bytes()) or {}).items():
        if not isinstance(value, dict):
            assert settings[group][key] == value


def test_model_presets() -> None:
    shapes = {
        "tiny": (128, 256, 4, 4, 4, 0.1),
        "small": (256, 1024, 4, 4, 4, 0.1),
        "iwslt": (512, 1024, 4, 6, 6, 0.1),
        "base": (512, 2048, 8, 6, 6, 0.1),
        "big": (1024, 4096, 16, 6, 6, 0.3),
    }
    for name, (d_model, d_ff, n_heads, encoder_layers, decoder_layers, dropout) in shapes.items():
        wanted = ModelConfig(d_model, d_ff, n_heads, encoder_layers, decoder_layers, dropout=dropout)
        assert compose([f"model={name}"]).model == wanted


def test_without_overrides_all_but_the_corpora_is_as_in_config_py() -> None:
    assert compose(["~experiment"]) == TrainConfig()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optim.lrr=1", "unknown setting optim.lrr; did you mean optim.lr?"),
        ("+optim.lrr=1", "unknown setting optim.lrr; did you mean optim.lr?"),
        ("++trainer.max_step=5", "unknown setting trainer.max_step; did you mean trainer.max_steps?"),
        ("~trainer.max_step", "unknown setting trainer.max_step; did you mean trainer.max_steps?"),
        ("lr=1", "unknown setting lr; did you mean optim.lr?"),
        ("experimant=demo", "unknown setting experimant; did you mean experiment?"),
        ("experiment=multi30k_en_d", "unknown experiment multi30k_en_d; did you mean multi30k_en_de?"),
        ("model=bse", "unknown model bse; did you mean base? (available: base, big, iwslt, small, tiny)"),
        ("model={d_model: 8}", "unknown model {'d_model': 8}"),
        ("model=null", "write ~model to compose without this group"),
        ("data.train.main.pth=a", "unknown setting data.train.main.pth; did you mean data.train.main.path?"),
        (
            "data.train.main.cleaning.max_token=9",
            "unknown setting data.train.main.cleaning.max_token; did you mean data.train.main.cleaning.max_tokens?",
        ),
        ("data.stages.end.from_steps=9", "unknown setting data.stages.end.from_steps; did you mean data.stages.end."),
        ("data.train={main: {pth: a}}", "unknown setting data.train.main.pth; did you mean data.train.main.path?"),
        ("data.trian.main.path=a", "unknown setting data.trian.main.path"),
        ("trainer.max_steps=ten", "trainer.max_steps='ten': must be a whole number"),
        ("trainer.max_steps=-1", "trainer.max_steps=-1: must be greater than 0"),
        ("model.dropout=1.5", "model.dropout=1.5: must be between 0 and 0.95"),
        ("optim.optimizer=adamm", "did you mean adamw?"),
        ("optim.lr=1,2", "add --multirun"),
        ("optim.lr", "'optim.lr' is not KEY=VALUE"),
        ("name=a,'b", "needs quotes"),
        ("dropout=1.5", "unknown setting dropout; did you mean model.dropout?"),
        ("optimizer=adamm", "unknown setting optimizer; did you mean optim.optimizer?"),
        ("fp16=true", "unknown setting fp16; did you mean trainer.precision=fp16?"),
        ("trainer.max_steps=1e30", "trainer.max_steps=1000000000000000019884624838656: must be between"),
        ("hydra.job.chdir=true", "hydra.job.chdir=true: has no place here"),
        ("hydra.run.dir=x", "hydra.run.dir=x: has no place here"),
        ("name=${nothing}", "nothing"),
    ],
)
def test_wrong_overrides_are_refused_in_one_line(override: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        compose([override])
    assert message in str(error.value)
    assert "\n" not in str(error.value) and "hydra.cc" not in str(error.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("trainer.max_steps=5", "trainer.max_steps=6"),
        ("trainer.max_steps=5", "++trainer.max_steps=5"),
        ("model=tiny", "model=base"),
        ("data.train.main.path=a", "+data.train.main.path=b"),
        ("name=a", "name=b"),
    ],
)
def test_a_setting_given_twice_is_refused(first: str, second: str, tmp_path: Path) -> None:
    key = first.split("=")[0]
    expected = f"^{re.escape(f'{key} is set twice, by {first} and {second}')}"
    with pytest.raises(ValueError, match=expected):
        compose([first, "optim.lr=1", second])
    with pytest.raises(ValueError, match=expected):
        run_hydra([first, "--cfg", "job", second], pytest.fail)
    (tmp_path / "config.yaml").write_text("{}")
    with pytest.raises(ValueError, match=expected):
        read_config(tmp_path / "config.yaml", [first, second])


@pytest.mark.parametrize("text", ["2024_01", "1e3", "1.10", "true", "jürgen 茶", "a#b;c&d!", "null_1"])
def test_text_stays_as_it_was_typed(text: str, tmp_path: Path) -> None:
    overrides = [f"name={text}", f"data.train.main.path=in/{text}.tsv", f"+data.cache_dir={text}"]
    (tmp_path / "config.yaml").write_text("{}")
    for config in (compose(overrides), read_config(tmp_path / "config.yaml", overrides)):
        assert (config.name, config.data.cache_dir) == (text, text)
        assert config.data.train["main"].path == f"in/{text}.tsv"


def test_a_corpus_of_the_default_experiment_without_a_file_is_told_how_to_leave_out(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["data.train.real.path=real.tsv", "data.train.web.path=web.tsv"]
    with pytest.raises(ValueError, match="data.train.main.path=data/train.tsv: No such file.*'~data.train.main'"):
        compose(given)
    assert list(compose([*given, "~data.train.main"]).data.train) == ["real", "web"]
    assert len(compose([*given, "data.train.main.path=more.tsv"]).data.train) == 3
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.tsv").write_text("a\tb\n")
    assert len(compose(given).data.train) == 3


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"dataset": "opus100"}, {"dataset": "opus100"}),
        ({"path": "a.tmx"}, {"path": "a.tmx"}),
        ({"source": "a.en", "target": "a.de"}, {"source": "a.en", "target": "a.de"}),
        ({"test_set": "wmt14"}, {"test_set": "wmt14"}),
    ],
)
def test_where_a_corpus_is_replaces_where_the_experiment_has_it(tmp_path, given, place) -> None:
    overrides = [f"data.train.main.{key}={value}" for key, value in given.items()]
    for first in ([], ["experiment=multi30k_en_de"]):
        assert compose([*first, *overrides]).data.train["main"] == CorpusConfig(**place)
    (tmp_path / "config.yaml").write_text("data: {train: {main: {path: a.tsv}}}\n")
    assert read_config(tmp_path / "config.yaml", overrides).data.train["main"] == CorpusConfig(**place)
    with pytest.raises(ValueError, match="needs exactly one of"):
        compose([*overrides, "data.train.main.path=b.tsv" if "path" not in given else "data.train.main.dataset=b"])


def test_a_corpus_can_be_taken_away_and_given_anew() -> None:
    config = compose(["~data.train.main", "data.train.main={source: a.en, target: a.zh}"])
    assert config.data.train["main"].source == "a.en"


def test_corpora_have_names_of_the_users_choice(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.tsv").write_text("a\tb\n")  # else main would be refused
    config = compose(["data.train.mine.path=a.tsv", "data.test.x.source=a.en", "+data.test.x.target=a.zh"])
    assert sorted(config.data.train) == ["main", "mine"]
    assert config.data.test["x"].target == "a.zh"
    assert sorted(compose(["data.train={mine: {path: a.tsv}}"]).data.train) == ["main", "mine"]
    assert list(compose(["~data.train.main", "data.train.mine.path=a.tsv"]).data.train) == ["mine"]


def test_stages_and_cleaning_of_a_corpus_are_set_by_their_names() -> None:
    stage = "data.stages.end."
    config = compose(
        [
            f"{stage}from_step=9",
            f"{stage}weights.main=1",
            "data.train.main.cleaning.max_tokens=20",
            'data.train.main.tags="<2de> <x>"',
        ]
    )
    assert config.data.stages["end"] == StageConfig(9, {"main": 1.0})
    assert config.data.train["main"].cleaning == {"max_tokens": 20} and config.data.train["main"].tags == "<2de> <x>"


def test_an_option_that_the_experiment_undoes_is_refused() -> None:
    added = ["optim.optimizer=adamw", "optim.lr=1.0"]
    with pytest.raises(ValueError, match=f"optim=noam: the experiment sets other values .* add {' '.join(added)}"):
        compose(["experiment=multi30k_en_de", "optim=noam"])
    assert compose(["experiment=multi30k_en_de", "optim=noam", *added]).optim.schedule == "noam"
    assert compose(["experiment=multi30k_en_de", "model=base"]).model.d_model == 512


def test_experiments_of_the_users_own(tmp_path: Path) -> None:
    folder = tmp_path / 'my "own" configs, (1)'
    (folder / "experiment").mkdir(parents=True)
    text = "# @package _global_\nname: mine\ndata: {train: {a: {path: x.tsv}}}\noptim: {KEY: 1e-4}\n"
    (folder / "experiment" / "mine.yaml").write_text(text.replace("KEY", "lr"))
    (folder / "experiment" / "wrong.yaml").write_text(text.replace("KEY", "learning_rate"))
    (folder / "experiment" / "broken.yaml").write_text("a: [")
    assert compose(["experiment=mine"], folder).optim.lr == 1e-4
    with pytest.raises(ValueError, match="unknown setting optim.learning_rate"):
        compose(["experiment=wrong"], folder)
    with pytest.raises(ValueError, match=r'broken.yaml", line 1'):
        compose(["experiment=broken"], folder)
    (folder / "experiment" / "bare.yaml").write_text(text.split("\n", 1)[1].replace("KEY", "lr"))
    with pytest.raises(ValueError, match="bare.yaml must begin with the line '# @package _global_'"):
        compose(["experiment=bare"], folder)
    (folder / "experiment" / "bare.yaml").unlink()
    with pytest.raises(ValueError, match=r"unknown experiment mime; did you mean mine\? \(available: broken, default"):
        compose(["experiment=mime"], folder)
    with pytest.raises(ValueError, match="is not a folder"):
        compose([], folder / "nowhere")


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "western.yaml"
    file.write_bytes("# @package _global_\nname: caf\u00e9\n".encode("latin-1"))
    with pytest.raises(ValueError, match=f"^{re.escape(str(file))}, line 2: byte 10 is not valid UTF-8"):
        compose(["experiment=western"], tmp_path)
    with pytest.raises(ValueError, match=f"^{re.escape(str(file))}: "):
        read_config(file, [])


def test_a_key_twice_in_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "twice.yaml"
    file.write_text("# @package _global_\ndata: {train: {a: {path: x.tsv}}}\noptim: {lr: 1, lr: 2}\n")
    with pytest.raises(ValueError, match=r"duplicate key lr .*twice.yaml"):
        compose(["experiment=twice"], tmp_path)
    with pytest.raises(ValueError, match=r"twice.yaml: .*duplicate key lr"):
        read_config(file, [])


def test_a_saved_config_gives_the_same_settings_again(tmp_path: Path) -> None:
    config = dataclasses.replace(compose(["experiment=multi30k_en_de", "optim.lr=3e-4"]), name="我爱, ${x}")
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(to_mapping(config), allow_unicode=True), encoding="utf-8")
    assert read_config(file, []) == config
    changed = read_config(file, ["trainer.max_steps=7", "data.valid.more.path=a.tsv", "~data.test.main", "name='a,b'"])
    assert (changed.trainer.max_steps, list(changed.data.valid), changed.name) == (7, ["main", "more"], "a,b")
    assert changed.data.test == {}
    for override in ("model=base", "optim.lr=1,2", "trainer.max_step=1", "trainer.max_steps=ten"):
        with pytest.raises(ValueError):
            read_config(file, [override])
    file.write_text("optim: {lrr: 1}")
    with pytest.raises(ValueError, match="config.yaml: unknown setting optim.lrr"):
        read_config(file, [])


def test_asking_for_what_has_no_effect_is_refused_and_having_it_is_not(tmp_path: Path) -> None:
    for setting in ("decode.diversity_penalty=1", "optim.muon_lr=1", "tokenizer.source_vocabulary_size=500"):
        with pytest.raises(ValueError, match=f"{setting.partition('=')[0]}=.* has no effect"):
            compose([setting])
    file, old = tmp_path / "config.yaml", compose([])
    old = dataclasses.replace(old, decode=dataclasses.replace(old.decode, diversity_penalty=1.0))
    file.write_text(yaml.safe_dump(to_mapping(old)))
    assert read_config(file, ["trainer.max_steps=7"]).decode == old.decode
    with pytest.raises(ValueError, match="decode.diversity_penalty=2.0 has no effect"):
        read_config(file, ["decode.diversity_penalty=2"])


def test_one_run_gets_its_settings_and_leaves_no_trace(work_folder: Path) -> None:
    seen: list[tuple[TrainConfig, str]] = []
    run_hydra(["model=tiny", "run_dir=../a"], lambda config: seen.append((config, os.getcwd())))
    assert [(config.model.d_model, config.run_dir, folder) for config, folder in seen] == [
        (128, "../a", str(work_folder))
    ]
    assert list(work_folder.iterdir()) == []


def test_a_multirun_gives_each_job_a_run_of_its_own(work_folder: Path) -> None:
    seen: list[TrainConfig] = []
    run_hydra(["optim.lr=1e-3,2e-3", "-m", "model=tiny"], seen.append)
    assert [config.name for config in seen] == ["default-optim.lr=0.001", "default-optim.lr=0.002"]
    assert [config.optim.lr for config in seen] == [1e-3, 2e-3]
    assert {config.model.d_model for config in seen} == {128}
    seen.clear()
    run_hydra(["-m", "data.train.main.path=a/b.tsv,c.tsv", "run_dir=runs/x"], seen.append)
    assert [config.run_dir for config in seen] == [
        "runs/x-data.train.main.path=a_b.tsv",
        "runs/x-data.train.main.path=c.tsv",
    ]
    assert list(work_folder.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["run_dir=a,b", "optim.lr=1,2"],  # a swept run_dir gets nothing appended
        ["run_dir=a,./a"],
        ["data.train.main.path=a/b.tsv,a_b.tsv"],  # a path is no file name
        ["optim.lr=1,1"],
        ["run_dir=x", "name=a,a"],
    ],
)
def test_two_jobs_of_a_multirun_never_share_a_folder(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match="two jobs of this multirun would share it"):
        run_hydra(["-m", *arguments], pytest.fail)


def test_options_of_multirun_alone_are_refused_elsewhere() -> None:
    with pytest.raises(ValueError, match="hydra.sweep.dir=x: has no effect without --multirun"):
        run_hydra(["hydra.sweep.dir=x"], pytest.fail)


def test_a_multirun_checks_all_jobs_before_the_first() -> None:
    seen: list[TrainConfig] = []
    with pytest.raises(ValueError, match="optim.lr='1x': must be a number"):
        run_hydra(["-m", "optim.lr=1e-3,1x"], seen.append)
    with pytest.raises(ValueError, match="unknown model basse; did you mean base"):
        run_hydra(["-m", "model=tiny,basse"], seen.append)
    assert seen == []


def test_a_failed_job_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[float] = []

    def task(config: TrainConfig) -> None:
        seen.append(config.optim.lr)
        if config.optim.lr < 2:
            raise ValueError(f"too low: {config.optim.lr}")

    with pytest.raises(ValueError, match="^too low: 1.0$"):
        run_hydra(["-m", "optim.lr=1,2,3"], task)
    assert seen == [1, 2, 3]
    assert "default-optim.lr=1: too low: 1.0" in capsys.readouterr().err


def test_cfg_job_prints_every_setting_as_used(capsys: pytest.CaptureFixture[str]) -> None:
    run_hydra(["experiment=multi30k_en_de", "--cfg", "job", "optim.lr=3e-4"], pytest.fail)
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed == to_mapping(compose(["experiment=multi30k_en_de", "optim.lr=3e-4"])) | {"data": printed["data"]}
    with pytest.raises(ValueError):
        run_hydra(["--cfg", "job", "trainer.max_steps=ten"], pytest.fail)


def test_help_names_groups_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_hydra(["--help"], pytest.fail)
    text = capsys.readouterr().out
    assert stopped.value.code == 0
    assert "model: base, big, iwslt, small, tiny" in text and "warmup_steps: 4000" in text


@pytest.mark.parametrize("option", ["--config-name=x", "--config-path=/x", "--experimental-rerun=x.pickle"])
def test_options_of_hydra_that_would_go_round_the_checks(option: str) -> None:
    with pytest.raises(ValueError, match="do not apply"):
        run_hydra([option], pytest.fail)
