"""Whatever comes in, what comes out is a result or a ValueError of one line: readers, configuration, tokenizer."""

import gzip
import warnings
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mt.compose import compose, read_config
from mt.config import CleaningConfig, CorpusConfig, DataConfig, TokenizerConfig, TrainConfig
from mt.data.clean import Cleaner
from mt.data.corpus import check_corpus, corpus_fingerprint, read_corpus
from mt.data.files import read_lines
from mt.data.filters import is_empty
from mt.mapping import from_mapping, known_keys, to_mapping
from mt.tokenizer import Tokenizer, lost_characters, train_tokenizers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]


def examples(count: int) -> settings:
    """Returns the settings of a test with so many inputs, the same ones in every run."""
    allowed = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=allowed)


def outcome(call, *arguments):
    """Returns the result, or None after a ValueError of one line; any other error is the fault that is looked for."""
    try:
        return call(*arguments)
    except ValueError as error:
        message = str(error)
        assert message and len(message.split("\n")) == 1, repr(message)
        return None


# Readers

ODD = ["\n", "\r\n", "\r", "\t", "\0", '"', "\x0b", "\x1e", "\x85", "\u2028", "\u200b", "\ufeff", "\ufffd", "茶", "😀"]
BYTES = [text.encode() for text in ODD]
BYTES += [b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f", b"{", b"}", b"[", b"]", b"null", b'{"en":', b"\\ud800"]
VALID = {
    ".txt": b"red tea\nrice\n\nsalt and pepper\n",
    ".tsv": 'red tea\t红茶\nrice\t米饭\n"salt\t盐\n'.encode(),
    ".jsonl": '{"en": "red tea", "zh": "红茶"}\n{"translation": {"en": "rice", "zh": "米饭"}}\n'.encode(),
}
positions = st.integers(0, 200)
pieces = st.one_of(st.sampled_from(BYTES), st.binary(max_size=4))


@st.composite
def contents(draw: st.DrawFn, suffix: str) -> bytes:
    """Bytes of a file: at random, of odd pieces, or of a valid file that was damaged; .gz whole, damaged or false."""
    kind = draw(st.integers(0, 4))
    if kind == 0:
        content = draw(st.binary(max_size=60))
    elif kind == 1:
        content = b"".join(draw(st.lists(pieces, max_size=12)))
    else:
        content = _damaged(draw, VALID[suffix.removesuffix(".gz")])
    if suffix.endswith(".gz") and kind != 4:
        content = gzip.compress(content, 1, mtime=0)
        if draw(st.booleans()):
            content = _damaged(draw, content)
    return content


def _damaged(draw: st.DrawFn, content: bytes) -> bytes:
    for start, length, new in draw(st.lists(st.tuples(positions, st.integers(0, 20), pieces), max_size=4)):
        start %= len(content) + 1
        content = content[:start] + new + content[start + length :]
    return content


def read_all(config: CorpusConfig) -> list[tuple[str, str]] | None:
    """Returns the pairs after trying everything that a run does with a corpus."""
    data = DataConfig()
    outcome(check_corpus, config, data, "data.train.main")
    fingerprint = outcome(corpus_fingerprint, config, data, "data.train.main")
    assert fingerprint is None or len(fingerprint) == 64
    pairs = outcome(lambda: list(read_corpus(config, data, "data.train.main")))
    everything = CleaningConfig(
        html_entities="repair", control_characters="repair", drop_identical=True, drop_replacement_characters=True,
        drop_bracket_mismatch=True, drop_number_mismatch=True, min_script_share=0.5, drop_duplicates=True,
        drop_near_duplicates=True,
    )  # fmt: skip
    cleaner = Cleaner(DataConfig(cleaning=everything))
    kept = list(cleaner.clean(pairs or []))
    assert len(kept) + cleaner.dropped.total() == len(pairs or [])
    return pairs


def lines_in(content: bytes) -> int:
    return content.count(b"\n") + (not content.endswith(b"\n") and content != b"")


def files(*suffixes: str) -> st.SearchStrategy[tuple[str, bytes]]:
    return st.one_of([st.tuples(st.just(suffix), contents(suffix)) for suffix in suffixes])


@examples(4000)
@given(files(".txt", ".txt.gz"), st.integers(1, 6), st.booleans())
def test_two_text_files(tmp_path_factory, file: tuple[str, bytes], lines: int, swapped: bool) -> None:
    folder, (suffix, content) = tmp_path_factory.getbasetemp(), file
    odd, plain = folder / f"odd{suffix}", folder / "plain.txt"
    odd.write_bytes(content)
    plain.write_bytes(b"tea\n" * lines)
    outcome(lambda: list(read_lines(odd)))
    sides = [str(odd), str(plain)]
    pairs = read_all(CorpusConfig(source=sides[swapped], target=sides[not swapped]))
    if pairs is not None:
        assert len(pairs) == lines and (suffix == ".txt.gz" or lines_in(content) == lines)


@examples(6000)
@given(files(".tsv", ".jsonl", ".tsv.gz", ".jsonl.gz"))
def test_one_file_of_pairs(tmp_path_factory, file: tuple[str, bytes]) -> None:
    suffix, content = file
    path = tmp_path_factory.getbasetemp() / f"pairs{suffix}"
    path.write_bytes(content)
    pairs = read_all(CorpusConfig(path=str(path)))
    if pairs is not None and not suffix.endswith(".gz"):
        assert len(pairs) == lines_in(content)


# Configuration

KEYS = known_keys(TrainConfig) + [f"data.train.main.{setting}" for setting in known_keys(CorpusConfig)]
LEAVES = sorted({key.rsplit(".", 1)[-1] for key in KEYS}) + ["main", "path", "source", "target"]
MISSPELT = (
    [leaf[:-1] for leaf in LEAVES] + [leaf + "s" for leaf in LEAVES] + ["", " ", "a.b", "a\nb", "???", "x/y", "."]
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3000),
    st.integers(),
    st.sampled_from([10**400, -(10**400), 2**63, 2**63 - 1, 1e308, float("nan"), float("inf"), -0.0, 1e-320]),
    st.floats(),
    st.sampled_from(
        ["1e-3", "nan", "inf", "auto", "bpe", "unigram", "pre", "adamw", "null", "", " ", "a\nb", "\u2028"]
    ),
    st.sampled_from(["zh", "a.tsv", "\0", "\ud800", "1" * 5000, "1_0", "٣", "0x10", "true", "三"]),
    st.text(max_size=8),
    st.dates(),
    st.binary(max_size=3),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(LEAVES + MISSPELT), inner, max_size=3)
    ),
    max_leaves=5,
)
odd_keys = st.one_of(st.sampled_from(KEYS), st.sampled_from(MISSPELT), st.integers(), st.none(), st.booleans())


@st.composite
def mappings(draw: st.DrawFn) -> object:
    """Nested settings, most with known keys, which pass as far as their values allow."""
    result: dict = {}
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=4)):
        *path, last = key.split(".")
        node = result
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                break
        else:
            node[last] = draw(values)
    if draw(st.integers(0, 3)) == 0:
        result[draw(odd_keys)] = draw(values)
    return result


@examples(8000)
@given(mappings())
def test_settings(mapping: object) -> None:
    config = outcome(from_mapping, TrainConfig, mapping)
    if config is not None:
        assert from_mapping(TrainConfig, to_mapping(config)) == config
        yaml.safe_dump(to_mapping(config), allow_unicode=True)


@examples(1500)
@given(values)
def test_anything_in_place_of_settings(value: object) -> None:
    assert isinstance(outcome(from_mapping, TrainConfig, value), TrainConfig | None)
    outcome(from_mapping, CorpusConfig, value)


signs = st.sampled_from(["", "", "", "+", "++", "~", "=", "-", "@"])
words = st.one_of(
    st.sampled_from(
        ["1", "-1", "1e-3", "null", "true", "a,b", "[1,2]", "{a: 1}", "{", "'", '"', "${x}", "${name}", "a b"]
    ),
    st.sampled_from(["tiny", "base", "range(1,3)", "choice(1,2)", "glob(*)", "???", "1e999", "10" * 400, "\\", "a=b"]),
    st.text(max_size=6),
)
override_keys = st.one_of(
    st.sampled_from([*KEYS, "model", "optim", "data", "data.train.main.path", "data.train.x.paht", "hydra.run.dir"]),
    st.sampled_from(KEYS).map(lambda key: key[:-1]),
    st.text(max_size=5),
)
overrides = st.builds(lambda sign, key, equals, value: f"{sign}{key}{equals}{value}", signs, override_keys,
                      st.sampled_from(["=", "=", "=", "", "=="]), words)  # fmt: skip


@examples(1500)
@given(st.lists(overrides, max_size=3))
def test_overrides_of_a_stored_config(tmp_path_factory, arguments: list[str]) -> None:
    file = tmp_path_factory.getbasetemp() / "config.yaml"
    if not file.exists():
        file.write_text(yaml.safe_dump(to_mapping(TrainConfig())), encoding="utf-8")
    assert isinstance(outcome(read_config, file, arguments), TrainConfig | None)


@examples(1000)
@given(st.one_of(st.binary(max_size=40), values.map(lambda value: yaml.dump(value).encode("utf-8", "replace"))))
def test_a_damaged_stored_config(tmp_path_factory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "damaged.yaml"
    file.write_bytes(content)
    assert isinstance(outcome(read_config, file, []), TrainConfig | None)


@examples(300)
@given(st.lists(overrides, max_size=2))
def test_overrides_that_compose(arguments: list[str]) -> None:
    assert isinstance(outcome(compose, arguments), TrainConfig | None)


# Tokenizer

TEXT = ["we drink red tea.", "我们喝红茶。", "ＡＢＣ（１２３）", "e\u0301 ﬁn ①", "a\u3000b", "  two  spaces "]
characters = st.one_of(
    st.characters(),  # surrogates and controls too
    st.sampled_from("\0\t\n\r\x0b\x1b\x85\xad\u061c\u200b\u200d\u200f\u202e\u2028\u2066\ufeff\ufffd\uffff\ud800\udfff"),
    st.sampled_from("▁▅⁇ 　茶鱻😀👩🏽🇨🇳\u0301\ufe0f<unk>/s0x41"),
)
texts = st.one_of(
    st.text(characters, max_size=30),
    st.lists(st.sampled_from(["<unk>", "<0xE9>", "</s>", "▁", "👩\u200d👩\u200d👧", *TEXT]), max_size=4).map("".join),
)
LINE_BREAKS = set("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\t\0\x1b")


@pytest.fixture(scope="module")
def tokenizers() -> list[Tokenizer]:
    """With identity normalisation, and with the others."""
    pairs = [(text, text) for text in TEXT * 5]
    folded = TokenizerConfig(joint=False, source_normalization="nfkc_casefold", target_normalization="nfkc")
    pair = train_tokenizers(pairs, folded, 1)
    return [
        train_tokenizers(pairs, TokenizerConfig(), 1).target,
        train_tokenizers(pairs, TokenizerConfig(algorithm="bpe"), 1).target,
        pair.source,
        pair.target,
    ]


def is_clean(text: str) -> bool:
    text.encode("utf-8")
    return not LINE_BREAKS & set(text) and "\ufffd" not in text


@examples(7000)
@given(texts)
def test_any_text_is_encoded_and_comes_back(tokenizers, text: str) -> None:
    kept = "".join(" " if c in LINE_BREAKS or c == "▁" or ord(c) < 32 or 127 <= ord(c) < 160 else c for c in text)
    kept = "".join(" " if 0xD800 <= ord(c) < 0xE000 else c for c in kept).replace("\ufffd", "")
    for index, tokenizer in enumerate(tokenizers):
        ids = tokenizer.encode([text])[0]
        assert all(0 <= i < tokenizer.size and i > 3 for i in ids)
        decoded = tokenizer.decode(ids)
        assert is_clean(decoded)
        if index < 2:
            assert decoded == kept
        assert tokenizer.encode([text, "x"])[0] == ids  # neighbours change nothing
    assert is_empty(text) == is_empty(text + "\u200b ")


@examples(3000)
@given(st.lists(st.integers(0, 10_000), max_size=40))
def test_any_ids_are_decoded(tokenizers, ids: list[int]) -> None:
    for tokenizer in tokenizers:
        own = [i % tokenizer.size for i in ids]
        text = tokenizer.decode(own)
        assert is_clean(text)
        assert len(tokenizer.pieces(own)) == len(own)


@examples(400)
@given(
    st.lists(st.tuples(texts, texts), max_size=6),
    st.sampled_from(["unigram", "bpe"]),
    st.booleans(),
    st.sampled_from(["identity", "nfkc"]),
    st.sampled_from([300, 400, 8000]),
    st.sampled_from([1, 3, 1_000_000]),
    st.sampled_from([0.98, 0.9995, 1.0]),
)
def test_odd_tiny_corpora(pairs, algorithm, joint, normalization, size, sentences, coverage) -> None:
    config = TokenizerConfig(
        algorithm, joint, size, None, normalization, normalization, coverage, training_sentences=sentences
    )
    with warnings.catch_warnings(action="ignore"):
        pair = outcome(train_tokenizers, pairs, config, 1)
    for source, target in pairs if pair is not None else ():
        ids = pair.source.encode([source])[0] + pair.target.encode([target])[0]
        assert all(i > 3 for i in ids)
        assert is_clean(pair.target.decode(pair.target.encode([target])[0]))
    if pair is not None and normalization == "identity":
        assert set(lost_characters(pair.target, [target for _, target in pairs])) <= {"▁", "\ufffd"}


@examples(300)
@given(st.binary(max_size=200), st.integers(0, 5000), st.booleans())
def test_a_damaged_model_file_is_refused_or_works(tokenizers, noise: bytes, start: int, instead: bool) -> None:
    model = tokenizers[0].model_bytes
    start %= len(model)
    damaged = noise if instead else model[:start] + noise + model[start + len(noise) :]
    tokenizer = outcome(Tokenizer, damaged)
    if tokenizer is not None and not instead:
        assert is_clean(tokenizer.decode([i for i in range(tokenizer.size)]))


def test_the_folder_is_left_as_it_was() -> None:
    assert not Path("outputs").exists()  # which Hydra would write
