import json
import typing

import pytest

from mt.config import CorpusConfig, DecodeConfig, ModelConfig, TrainConfig, TrainerConfig, without_effect
from mt.mapping import from_mapping, known_keys, suggest, to_mapping


def test_round_trip_through_json() -> None:
    settings = {
        "name": "a",
        "data": {"train": {"main": {"path": "a.tsv"}, "more": {"source": "a.en", "target": "a.zh"}}},
        "trainer": {"max_steps": None, "max_minutes": 9.5},
    }
    config = from_mapping(TrainConfig, settings)
    assert config.data.train["more"] == CorpusConfig(source="a.en", target="a.zh")
    assert from_mapping(TrainConfig, json.loads(json.dumps(to_mapping(config)))) == config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optim": {"lrr": 1}}, "unknown setting optim.lrr; did you mean optim.lr?"),
        ({"optim": {"warmup_step": 10}}, "unknown setting optim.warmup_step; did you mean optim.warmup_steps?"),
        ({"trainer": {"max_steps": "ten"}}, "trainer.max_steps='ten': must be a whole number"),
        ({"trainer": {"max_steps": 1.5}}, "trainer.max_steps=1.5: must be a whole number"),
        ({"trainer": {"max_steps": True}}, "trainer.max_steps=True: must be a whole number"),
        ({"trainer": {"max_steps": -1}}, "trainer.max_steps=-1: must be greater than 0"),
        ({"tokenizer": {"vocabulary_size": 1e12}}, "tokenizer.vocabulary_size=1000000000000: must be between 300 and"),
        ({"trainer": {"max_steps": None}}, "set at least one of max_steps, max_epochs, max_minutes"),
        ({"data": {"processes": 0}}, "data.processes=0: must be between 1 and"),
        ({"data": {"stages": {"a": {"from_step": 1, "temperature": 0}}}}, "data.stages.a.temperature=0.0: must be"),
        ({"trainer": {"shard_ranks": 0}}, "trainer.shard_ranks=0: must be between 1 and"),
        ({"trainer": {"compile": "yes"}}, "trainer.compile='yes': must be true or false"),
        ({"model": {"dropout": 1.5}}, "model.dropout=1.5: must be between 0 and 0.95"),
        ({"model": {"d_model": 100, "n_heads": 3}}, "model.d_model=100 must be a multiple of model.n_heads=3"),
        ({"optim": {"optimizer": "adamm"}}, "optim.optimizer=adamm: must be one of adamw, muon; did you mean adamw?"),
        ({"optim": {"lr": float("nan")}}, "optim.lr=nan: must be a number"),
        ({"data": {"train": {"main": {"pth": "a.tsv"}}}}, "unknown setting data.train.main.pth; did you mean"),
        ({"data": {"train": {"main": {}}}}, "data.train.main: a corpus needs exactly one of"),
        ({"data": {"valid": {"a": {"source": "a"}}}}, "data.valid.a: a corpus of two text files needs both source and"),
        ({"data": {"train": "a.tsv"}}, "data.train='a.tsv': expected corpora by name"),
        ({"data": {"cleaning": {"min_scores": 0.5}}}, "data.cleaning.min_scores=0.5: expected names with values"),
        ({"data": {"cleaning": {"min_scores": {"a/b": "x"}}}}, "data.cleaning.min_scores.a/b='x': must be a number"),
        ({"data": {"cleaning": {"min_script_share": 90}}}, "data.cleaning.min_script_share=90"),
        ({"data": {"cleaning": {"mojibake": True}}}, "data.cleaning.mojibake=True: must be one of keep, repair, drop"),
        (
            {"data": {"train": {"web": {"path": "a.tsv", "weight": -1}}}},
            "data.train.web.weight=-1.0: must be between 0 and 1000000000.0",
        ),
        (
            {"data": {"valid": {"main": {"path": "a.tsv", "weight": 2}}}},
            "data.valid.main.weight=2.0: is of training corpora alone: remove it",
        ),
        ({"data": {"stages": {"end": {"weights": {"main": 1}}}}}, "data.stages.end.from_step=0: must be at least 1"),
        ({"data": {"stages": {"end": {"from_step": 5}}}}, "data.stages.end: needs either weights, such as"),
        ({"data": {"stages": {"end": {"from_step": 5, "weights": {"a": "x"}}}}}, "weights.a='x': must be a number"),
        (
            {"data": {"augmentation": {"typo_probability": 2}}},
            "data.augmentation.typo_probability=2.0: must be between",
        ),
        ({"tokenizer": {"joint": False}}, "model.tying=three_way needs one vocabulary"),
        ({"name": "a/b"}, "must be a name without '/'"),
        ({"name": ".."}, "name='..': must be a name"),
        ({"name": 1.10}, "name=1.1: must be text; in YAML, in quotes"),  # else another text than the file has
        ({"data": {"source_language": False}}, "must be text; in YAML, in quotes"),  # Norway's, from "no"
        ({"init_from": ""}, "init_from='': is empty: give a value, or leave it out"),
        ({"data": {"cache_dir": " "}}, "data.cache_dir=' ': is empty"),
        ({"run_dir": "~/runs/a"}, "run_dir=~/runs/a: ~ means the home folder in a shell alone"),
        ({"tokenizer": {"bpe_dropout": 0.1}}, "tokenizer.bpe_dropout=0.1 needs tokenizer.algorithm=bpe"),
        ({"tokenizer": {"algorithm": "bpe", "unigram_alpha": 0.1}}, "needs tokenizer.algorithm=unigram"),
        ({"decode": {"no_repeat_ngram_size": -1}}, "decode.no_repeat_ngram_size=-1: must be at least 0"),
        ({"decode": {"max_length_ratio": 1e300}}, "decode.max_length_ratio=1e+300: must be between 0 and 1000"),
        ({"decode": {"max_length_offset": 10**30}}, "must be between 1 and 1000000"),
        (
            {"decode": {"beam_size": 6, "beam_groups": 4}},
            "decode.beam_size=6 must be a multiple of decode.beam_groups=4",
        ),
        ({"decode": {"beam_groups": 6}}, "decode.beam_groups=6: must be between 1 and 5"),
        ({"decode": {"repetition_penalty": 0.9}}, "decode.repetition_penalty=0.9: must be between 1 and 100"),
        (
            {"decode": {"min_length_ratio": 3}},
            "decode.min_length_ratio=3.0 must be at most decode.max_length_ratio=2.0",
        ),
        ({"trainer": {"validation_beam_size": 2000}}, "trainer.validation_beam_size=2000: must be between 1 and 1000"),
        ({"data": {"test": {"a/b": {"path": "x"}}}}, "data.test: 'a/b' names a corpus and its results"),
        ({"data": {"test": {"..": {"path": "x"}}}}, "data.test: '..' names a corpus and its results"),
        ([], "expected keys and values"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(settings: dict, message: str) -> None:
    with pytest.raises(ValueError) as error:
        from_mapping(TrainConfig, settings)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optim": {"muon_lr": 0.1}}, "optim.muon_lr=0.1 has no effect with optim.optimizer=adamw"),
        (
            {"tokenizer": {"source_vocabulary_size": 500}},
            "tokenizer.source_vocabulary_size=500 has no effect with tokenizer.joint=true",
        ),
        ({"decode": {"diversity_penalty": 1}}, "decode.diversity_penalty=1.0 has no effect with decode.beam_groups=1"),
        ({"optim": {"r_drop": 5}, "model": {"dropout": 0}}, "optim.r_drop=5.0 has no effect without dropout"),
    ],
)
def test_what_has_no_effect_is_told_and_no_reason_to_refuse_a_run(settings: dict, message: str) -> None:
    (found,) = without_effect(from_mapping(TrainConfig, settings))
    assert found.startswith(message) and "\n" not in found
    assert without_effect(TrainConfig()) == []


def test_validations_of_a_run_that_searches_in_groups() -> None:
    from mt.training.validation import validation_decode

    config = from_mapping(TrainConfig, {"decode": {"beam_size": 6, "beam_groups": 3, "diversity_penalty": 1}})
    assert validation_decode(config) == DecodeConfig(beam_size=1)


def test_numbers_that_yaml_reads_as_text() -> None:
    assert from_mapping(TrainConfig, {"optim": {"lr": "1e-3"}}).optim.lr == 1e-3


def test_settings_of_an_older_version_load() -> None:
    older = {"max_characters": 2000, "max_tokens": 64, "max_length_ratio": 9.0, "drop_identical": False}
    config = from_mapping(TrainConfig, {"data": {"cleaning": older | {"drop_duplicates": True}}}).data.cleaning
    assert (config.max_tokens, config.drop_duplicates, config.html_entities) == (64, True, "keep")


def test_known_keys_hold_every_field() -> None:
    keys = known_keys(TrainConfig)
    assert {"name", "optim", "optim.lr", "data.cleaning.max_tokens", "data.train"} <= set(keys)
    assert len(keys) == len(set(keys))
    assert from_mapping(TrainConfig, to_mapping(TrainConfig())) == TrainConfig()


def test_every_type_hint_is_one_that_from_mapping_converts() -> None:
    for cls in (CorpusConfig, ModelConfig, TrainerConfig, DecodeConfig):
        for hint in typing.get_type_hints(cls).values():
            kinds = {type(None), *(typing.get_args(hint) if typing.get_origin(hint) is not typing.Literal else [str])}
            assert typing.get_origin(hint) is not None or hint in (bool, int, float, str), hint
            assert typing.get_origin(hint) is None or kinds <= {type(None), bool, int, float, str, typing.Any}, hint


def test_suggestions() -> None:
    assert suggest("trainer.max_step", known_keys(TrainConfig)) == "; did you mean trainer.max_steps?"
    assert suggest("lr", known_keys(TrainConfig)) == "; did you mean optim.lr?"
    assert suggest("zzzzzz", known_keys(TrainConfig)) == ""
