"""Finds configs/, composes an experiment with a command line, and returns plain dataclasses.

Hydra's grammar serves for composing; what may be set is decided by mt.config alone, so that a misspelt key, with or
without +, in a file or on the command line, is refused and never ignored.
"""

import dataclasses
import itertools
import os
import re
import sys
import tempfile
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_yaml_loader  # refuses a key given twice
from omegaconf.errors import OmegaConfBaseException

from mt.compose.corpora import NAMED, check_default_corpora, other_places
from mt.config import CleaningConfig, CorpusConfig, StageConfig, TrainConfig, without_effect
from mt.mapping import field_type, from_mapping, known_keys, suggest, to_mapping

VERSION_BASE = "1.3"  # of Hydra's behaviour
PRIMARY = "train"  # configs/train.yaml
_BY_NAME = ("data.cleaning.min_scores",)  # names of the user's choice with plain values
_HYDRA_FOLDERS = ("hydra.job.chdir", "hydra.run.", "hydra.output_subdir")
_PLAIN_TEXT = re.compile(r"[^,()\[\]{}'\"=\\$]+")  # nothing in it has a meaning in Hydra's grammar
_COMPOSE_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError)


def config_dir() -> Path:
    """Returns the folder configs/: inside the package where a wheel was installed, else beside it."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def compose(overrides: list[str], user_config_dir: Path | None = None) -> TrainConfig:
    """Returns the settings that configs/train.yaml and overrides such as "optim.lr=1e-3" or "experiment=demo" give.

    `user_config_dir` is a folder of the user's own with experiment/NAME.yaml and other groups. Raises ValueError for an
    unknown key or option, with the nearest known one, and for a value of the wrong type or out of range.
    """
    prepared = _prepare(overrides, user_config_dir)
    if user_config_dir is not None:
        prepared.append(f"hydra.searchpath=[{quote(f'file://{user_config_dir.resolve()}')}]")
    _store_schema()
    try:
        with hydra.initialize_config_dir(str(config_dir()), version_base=VERSION_BASE):
            composed = hydra.compose(PRIMARY, prepared)
            if "experiment" in composed:  # what it sets has landed below its own name, where nothing reads it
                name = next((o.value() for o in _parse(prepared) if o.key_or_group == "experiment"), "default")
                raise ValueError(
                    f"experiment {name}: its settings reach nothing; experiment/{name}.yaml must begin with the line "
                    "'# @package _global_'"
                )
            config = _to_config(composed)
    except UnicodeDecodeError as error:
        raise ValueError(_name_undecodable_file(user_config_dir)) from error
    except _COMPOSE_ERRORS as error:
        raise ValueError(_one_line(error)) from error
    _check_choices(_parse(prepared), to_mapping(config), user_config_dir)
    check_default_corpora(_parse(prepared), config)
    return config


def read_config(file: Path, overrides: list[str]) -> TrainConfig:
    """Returns the settings stored in a run's config.yaml, changed by plain KEY=VALUE overrides.

    Raises ValueError as `compose` does, and for an override that composes (a group's option, several values).
    """
    try:
        stored = from_mapping(TrainConfig, yaml.load(file.read_bytes(), get_yaml_loader()))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{file}: {_one_line(error)}") from error
    settings = to_mapping(stored)
    for override in _parse(_prepare(overrides, None)):
        key = override.key_or_group
        if key in _group_options(None) or override.is_sweep_override() or override.is_hydra_override():
            raise ValueError(f"{override.input_line}: with --config only single settings, KEY=VALUE, can be changed")
        *path, last = key.split(".")
        node = settings
        for part in path:
            node = node.setdefault(part, {})
        if override.is_delete():
            node.pop(last, None)
        else:
            node[last] = override.value()
    return _refuse_idle(from_mapping(TrainConfig, settings), known=without_effect(stored))


def run_hydra(arguments: list[str], task: Callable[[TrainConfig], float | None]) -> None:
    """Calls the task with the settings that a command line composes; with --multirun once for each job.

    What the task returns is what a sweeper such as Optuna's looks at. A job that Hydra's submitit launcher starts with
    several tasks is one rank of a run in each.

    Hydra's own options (--help, --cfg job, --multirun, --config-dir DIR, ...) work. The settings of all jobs are
    checked before the first one starts. Each job of a multirun has its own name and run_dir, with the swept settings
    appended. The working directory stays as it is, and Hydra writes no files. Raises ValueError as `compose` does.
    """
    parser = get_args_parser()
    parser.usage = "mt train [KEY=VALUE]... [OPTIONS]  (mt train --help lists them)"
    parsed = parser.parse_intermixed_args(arguments)  # options may stand between overrides
    if parsed.config_name or parsed.config_path or parsed.experimental_rerun:
        raise ValueError(
            "--config-name, --config-path and --experimental-rerun do not apply: mt train composes configs/train.yaml; "
            "--config-dir DIR adds experiments of your own, --config FILE starts from a run's config.yaml"
        )
    user_config_dir = Path(parsed.config_dir) if parsed.config_dir else None
    shows_something = parsed.help or parsed.hydra_help or parsed.info or parsed.shell_completion
    multirun = parsed.multirun or "hydra.mode=MULTIRUN" in parsed.overrides
    if multirun and os.environ.get("WORLD_SIZE", "1") != "1":
        raise ValueError(
            "-m: begins one run after the other, and torchrun's processes are for one: start torchrun once for each, "
            "or use -m hydra/launcher=slurm, which does"
        )
    prepared = _prepare(parsed.overrides, user_config_dir)
    fixed = {override.key_or_group for override in _parse(prepared) if not override.is_sweep_override()}
    idle = [
        o.input_line for o in _parse(prepared) if o.key_or_group.startswith(("hydra.swe", "hydra/", "hydra.launcher"))
    ]
    if idle and not multirun:
        raise ValueError(f"{idle[0]}: has no effect without --multirun")
    if not shows_something and multirun:
        jobs = _jobs(_parse(prepared))
        _check_run_dirs([_named_after_job(compose(job, user_config_dir), job, fixed) for job in jobs])
    elif not shows_something:
        config = compose(parsed.overrides, user_config_dir)
        if not parsed.cfg:
            task(config)
            return
    options = [argument for argument in arguments if argument not in parsed.overrides]

    def run_job(composed: DictConfig) -> float | None:
        if "SUBMITIT_EXECUTOR" in os.environ:
            from submitit.helpers import TorchDistributedEnvironment

            TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
        job = _named_after_job(_to_config(composed), list(HydraConfig.get().overrides.task), fixed)
        print(f"{job.name}: starting", file=sys.stderr)
        try:
            return task(job)
        except (ValueError, OSError) as error:  # the other jobs go on; Hydra raises the first error after the last one
            print(f"{job.name}: {_one_line(error)}", file=sys.stderr)
            raise

    _store_schema()
    with ExitStack() as stack:
        if multirun and not any(o.startswith("hydra.sweep.dir=") for o in prepared):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mt-multirun-"))  # for multirun.yaml
            prepared.append(f"hydra.sweep.dir={quote(folder)}")
        stack.enter_context(_as_command_line(["mt train", *prepared, *options]))
        try:
            hydra.main(version_base=VERSION_BASE, config_path=str(config_dir()), config_name=PRIMARY)(run_job)()
        except _COMPOSE_ERRORS as error:
            raise ValueError(_one_line(error)) from error


def _store_schema() -> None:
    """Gives Hydra every setting with its default, so that --cfg shows all and an unknown key is refused."""
    ConfigStore.instance().store(name="schema", node=to_mapping(TrainConfig()))


def _to_config(composed: DictConfig) -> TrainConfig:
    return _refuse_idle(from_mapping(TrainConfig, OmegaConf.to_container(composed, resolve=True)))


def _refuse_idle(config: TrainConfig, known: Sequence[str] = ()) -> TrainConfig:
    """Returns the settings. Raises ValueError where one has no effect, with another message than those known."""
    for message in without_effect(config):
        if message not in known:
            raise ValueError(message)
    return config


def _parse(overrides: list[str]) -> list[Override]:
    parser = OverridesParser.create()
    try:
        return parser.parse_overrides(overrides)
    except OverrideParseException as error:
        raise ValueError(
            f"{error.override!r} is not KEY=VALUE as Hydra reads it: {_one_line(error)}; "
            "a value with , : ( ) [ ] { } ' or = needs quotes inside the shell's: 'KEY=\"VALUE\"'"
        ) from error


def _prepare(overrides: list[str], user_config_dir: Path | None) -> list[str]:
    """Returns the overrides for Hydra, after checking every key and option; corpora can be set without + or ++."""
    if user_config_dir is not None and not user_config_dir.is_dir():
        raise ValueError(f"--config-dir={user_config_dir}: is not a folder")
    options, known, prepared = _group_options(user_config_dir), known_keys(TrainConfig), []
    setters: dict[str, str] = {}
    for line, override in zip(overrides, _parse([_as_text(line) for line in overrides]), strict=True):
        key = override.key_or_group
        if key in setters:
            raise ValueError(f"{key} is set twice, by {setters[key]} and {line}: give it once")
        if not override.is_delete():
            setters[key] = line
        if key.startswith(_HYDRA_FOLDERS):
            raise ValueError(
                f"{line}: has no place here; a run writes below run_dir and no folder is changed: set run_dir"
            )
        named = NAMED.fullmatch(key)
        if key in options:
            _check_options(override, options[key])
        elif named:
            name, kind, setting = named.groups()
            if setting and not _is_setting_of(kind, setting):
                there = known_keys(StageConfig if kind == "stages" else CorpusConfig, name + ".")
                there += [] if kind == "stages" else known_keys(CleaningConfig, f"{name}.cleaning.")
                raise ValueError(f"unknown setting {key}{suggest(key, there)}")
            line = line if override.is_delete() else "++" + line.lstrip("+")
        elif key not in known and not override.is_hydra_override():
            raise ValueError(f"unknown setting {key}{_suggest_value(key) or suggest(key, [*known, *options])}")
        elif key in _BY_NAME and not override.is_delete():
            line = "++" + line.lstrip("+")
        prepared.append(_as_text(line))
    return prepared + other_places(setters)


def _as_text(line: str) -> str:
    """Returns KEY=VALUE with a text setting's value in quotes.

    Hydra would read the name 2024_01 as the number 202401, and letters beyond ASCII not at all.
    """
    key, _, value = line.partition("=")
    named = NAMED.fullmatch(key.lstrip("+"))
    if named:
        hint = field_type(StageConfig if named[2] == "stages" else CorpusConfig, named[3] or "")
    else:
        hint = field_type(TrainConfig, key.lstrip("+"))
    if hint not in (str, str | None) or value == "null" or not _PLAIN_TEXT.fullmatch(value):
        return line
    return f"{key}={quote(value)}"


def _is_setting_of(kind: str, setting: str) -> bool:
    """Returns whether a corpus (kind: train, valid, test) or a stage has a setting, such as weights.main."""
    first, _, rest = setting.partition(".")
    if kind == "stages":
        return setting in known_keys(StageConfig) or (first == "weights" and "." not in rest)
    return setting in known_keys(CorpusConfig) or (first == "cleaning" and rest in known_keys(CleaningConfig))


def _suggest_value(word: str) -> str:
    """Returns '; did you mean KEY=WORD?' where the word is no setting but one of a setting's values, such as fp16."""
    for group, section in typing.get_type_hints(TrainConfig).items():
        for name, hint in typing.get_type_hints(section).items() if dataclasses.is_dataclass(section) else ():
            if typing.get_origin(hint) is typing.Literal and word in typing.get_args(hint):
                return f"; did you mean {group}.{name}={word}?"
    return ""


def _group_options(user_config_dir: Path | None) -> dict[str, list[str]]:
    """Returns the groups, which are the folders below configs/, each with the names of its files."""
    options: dict[str, list[str]] = {}
    for root in (config_dir(), user_config_dir):
        for file in sorted(root.glob("*/**/*.yaml")) if root else ():
            group, *path = file.relative_to(root).with_suffix("").parts
            options.setdefault(group, []).append("/".join(path))
    return options


def _check_options(override: Override, options: list[str]) -> None:
    if override.is_delete():
        return
    group, value = override.key_or_group, override.value()
    if value is None:
        raise ValueError(f"{group}=null: write ~{group} to compose without this group")
    if override.is_discrete_sweep() and not isinstance(value, Glob):
        value = [getattr(choice, "text", choice) for choice in override.sweep_iterator()]
    if override.is_sweep_override() and not isinstance(value, list):
        return  # Hydra's sweeper knows better
    for choice in value if isinstance(value, list) else [value]:
        if choice not in options:
            available = ", ".join(sorted(options))
            raise ValueError(f"unknown {group} {choice}{suggest(str(choice), options)} (available: {available})")


def _check_choices(overrides: list[Override], settings: dict[str, Any], user_config_dir: Path | None) -> None:
    """Raises ValueError where an option chosen on the command line (model=base) is undone by the experiment's values.

    An experiment comes last, so what it sets itself wins against every option.
    """
    options, composed = _group_options(user_config_dir), _leaves(settings)
    for override in overrides:
        group, option = override.key_or_group, override.value()
        if group == "experiment" or group not in options or not isinstance(option, str):
            continue
        files = [root / group / f"{option}.yaml" for root in (config_dir(), user_config_dir) if root]
        chosen = _leaves({group: OmegaConf.to_container(OmegaConf.load(next(filter(Path.is_file, files))))})
        given = [f"{other.key_or_group}." for other in overrides if other is not override]
        undone = [
            f"{key}={value}"
            for key, value in chosen.items()
            if key in composed and composed[key] != value and not f"{key}.".startswith(tuple(given))
        ]
        if undone:
            raise ValueError(
                f"{group}={option}: the experiment sets other values itself and comes last; add {' '.join(undone)}"
            )


def _name_undecodable_file(user_config_dir: Path | None) -> str:
    """Returns a message with the first file of the groups that is not UTF-8; Hydra's own error names none."""
    for root in (user_config_dir, config_dir()):
        for file in sorted(root.rglob("*.yaml")) if root else ():
            for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    return f"{file}, line {number}: byte {error.start + 1} is not valid UTF-8; save the file as UTF-8"
    return "a YAML file is not valid UTF-8; save it as UTF-8"


def _leaves(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns values by dotted name."""
    leaves = {}
    for key, value in settings.items():
        leaves |= _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return leaves


def _jobs(overrides: list[Override]) -> Iterator[list[str]]:
    """Yields the overrides of every job of a multirun; sweeps that cannot be listed (intervals) take their defaults."""
    choices = []
    for override in overrides:
        if not override.is_sweep_override():
            choices.append([override.input_line])
        elif override.is_discrete_sweep() and not isinstance(override.value(), Glob):
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
    return (list(job) for job in itertools.product(*choices))


def _named_after_job(config: TrainConfig, overrides: list[str], fixed: set[str]) -> TrainConfig:
    """Returns the settings of one job of a multirun; `fixed` are the keys that all jobs share."""
    swept = {o.key_or_group: o.input_line for o in _parse(overrides)}
    parts = [line.lstrip("+") for key, line in swept.items() if key not in fixed]
    suffix = re.sub(r"[^\w.=+-]+", "_", "-".join(["", *parts]))
    run_dir = config.run_dir
    if run_dir is not None and "run_dir" not in swept.keys() - fixed:
        run_dir += suffix
    return dataclasses.replace(config, name=config.name + suffix, run_dir=run_dir)


def _check_run_dirs(jobs: list[TrainConfig]) -> None:
    """Raises ValueError where two jobs would write to one folder, as the jobs of `run_dir=a,b optim.lr=1,2` would."""
    seen: set[str] = set()
    for job in jobs:
        run_dir = os.path.normpath(job.run_dir or os.path.join("runs", job.name))
        if run_dir in seen:
            raise ValueError(
                f"run_dir={run_dir}: two jobs of this multirun would share it; sweep each value once, and give run_dir "
                "one value, to which every job adds what was swept"
            )
        seen.add(run_dir)


@contextmanager
def _as_command_line(arguments: list[str]) -> Iterator[None]:
    """Lets hydra.main, which reads sys.argv, read these; HYDRA_FULL_ERROR makes it raise errors instead of exiting."""
    argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = arguments
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = argv
        del os.environ["HYDRA_FULL_ERROR"]
        if full_error is not None:
            os.environ["HYDRA_FULL_ERROR"] = full_error


def quote(text: str) -> str:
    """Returns the text as a quoted value of Hydra's grammar."""
    backslashes_doubled = re.sub(r'(\\+)(?="|$)', r"\1\1", text)  # only those before a quotation mark or the end
    return '"' + backslashes_doubled.replace('"', '\\"') + '"'


def _one_line(error: Any) -> str:
    text = " ".join(str(error).split())
    return re.sub(r" See https://hydra\.cc\S*( for \w+)?\.?| Set the environment variable HYDRA_FULL_ERROR.*", "", text)
