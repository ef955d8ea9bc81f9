import json
import subprocess
import sys
import warnings

import pytest

from mt.evaluation.metrics import bleu_tokenizer, score_corpus, score_with_intervals, sentence_chrf

ZH_REFERENCES = ["我爱中国的红茶。", "他们每天都读书。"]
ZH_HYPOTHESES = ["我爱中国的绿茶。", "他们每天读书。"]


def without_mecab(monkeypatch):
    for name in ("MeCab", "mecab_ko"):
        monkeypatch.setitem(sys.modules, name, None)
    for code in ("ja", "ko"):
        monkeypatch.delitem(sys.modules, f"sacrebleu.tokenizers.tokenizer_{code}_mecab", raising=False)


@pytest.mark.parametrize("language", ["zh", "zh-CN", "zh_Hans", "ZH", "lzh"])
def test_chinese_is_scored_by_character(language):
    scores = score_corpus(ZH_HYPOTHESES, ZH_REFERENCES, language)
    assert scores["bleu"].value == pytest.approx(56.23, abs=0.005)
    assert "tok:zh" in scores["bleu"].signature
    assert score_corpus(["我爱中国的茶。"], ["我爱中国的茶。"], language)["bleu"].value == pytest.approx(100)


def test_override_of_the_tokenizer():
    scores = score_corpus(ZH_HYPOTHESES, ZH_REFERENCES, "zh", tokenizer="13a")
    assert scores["bleu"].value == 0 and "tok:13a" in scores["bleu"].signature
    with pytest.raises(ValueError, match="'14a': must be one of .*13a"):
        score_corpus(["a"], ["a"], "en", tokenizer="14a")


@pytest.mark.parametrize("code", ["ja", "ko"])
def test_characters_with_a_warning_where_mecab_is_missing(code, monkeypatch):
    without_mecab(monkeypatch)
    with pytest.warns(UserWarning, match=rf"pip install sacrebleu\[{code}\]"):
        scores = score_corpus(ZH_HYPOTHESES, ZH_REFERENCES, f"{code}-XX")
    assert "tok:char" in scores["bleu"].signature
    assert scores["bleu"].value == pytest.approx(56.23, abs=0.005)


@pytest.mark.parametrize("language", ["en", "de_DE", "fr-CA", "cs"])
def test_other_languages(language):
    assert bleu_tokenizer(language) == "13a"


def test_words_not_pieces():
    score = score_corpus(["I love green teas and rice"], ["I love green tea and rice"], "en")["bleu"]
    assert score.value == pytest.approx(37.99, abs=0.005)


def test_corpus_bleu_is_not_the_mean_of_sentences():
    hypotheses = ["the cat sat on the mat today", "a dog"]
    references = ["the cat sat on the mat today", "one dog ran home quickly now"]
    assert score_corpus(hypotheses, references, "en")["bleu"].value == pytest.approx(59.90, abs=0.005)


@pytest.mark.parametrize(
    "hypotheses, sign",
    [
        (["Do n't stop , it 's green tea ( hot ) .", "We 'll read 3,000 books today ."], "space and a full stop"),
        (["▁I ▁lo ve ▁te a", "fine"], "subword marks"),
        (["I lo@@ ve tea", "fine"], "subword marks"),
        (["我 爱 中国", "茶"], "spaces between Chinese"),
    ],
)
def test_tokenised_hypotheses_give_a_warning(hypotheses, sign):
    with pytest.warns(UserWarning, match=sign):
        scores = score_corpus(hypotheses, ["Don't stop, it's green tea (hot).", "We'll read 3,000 books today."], "en")
    if sign == "space and a full stop":
        assert scores["bleu"].value == pytest.approx(51.84, abs=0.005)


def test_plain_text_gives_no_warning():
    references = ["Don't stop, it's green tea (hot).", "We'll read 3,000 books today.", "你好 我是他"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = score_corpus(references, references, "en")
    assert scores["bleu"].value == pytest.approx(100) and scores["chrf"].value == pytest.approx(100)


def test_chinese_scored_by_western_words_gives_a_warning():
    with pytest.warns(UserWarning, match="'en' is scored with tok:13a, .*target_language=zh or ja"):
        assert score_corpus(["我爱中国的茶。"], ["我爱中国的茶。"], "en")["bleu"].value == 0.0


@pytest.mark.parametrize("text", ["ฉันดื่มชาเขียวทุกเช้า", "ខ្ញុំផឹកតែបៃតង", "ကျွန်တော် လက်ဖက်ရည်သောက်တယ်", "ང་ཚོས་ཇ་འཐུང་གི་ཡོད།"])
def test_scripts_without_spaces_give_a_warning(text):
    with pytest.warns(UserWarning, match="script without spaces .* --bleu-tokenizer char"):
        assert score_corpus([text], [text], "und")["bleu"].signature.count("tok:13a") == 1
    with warnings.catch_warnings(action="error"):
        assert score_corpus([text], [text], "und", tokenizer="char")["bleu"].value == pytest.approx(100)


def test_different_lengths_and_nothing_are_refused():
    with pytest.raises(ValueError, match="3 hypotheses but 2 references"):
        score_corpus(["a", "b", "c"], ["a", "b"], "en")
    with pytest.raises(ValueError, match="nothing to score"):
        score_corpus([], [], "en")


@pytest.mark.parametrize("language, tokenizer", [("en", "13a"), ("zh", "zh")])
def test_equals_the_command_line(tmp_path, language, tokenizer):
    hypotheses = ["The cat sat on the mat, didn't it?", "", "我爱中国的绿茶。", "Tea (3,000 cups) is green!"]
    references = ["The cat is sitting on the mat, isn't it?", "rice", "我爱中国的红茶。", "Tea (3,000 cups) was green."]
    for name, lines in {"hypotheses": hypotheses, "references": references}.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", "hypotheses", "-m", "bleu", "chrf", "-w", "6"]
    result = subprocess.run(command + ["-tok", tokenizer], cwd=tmp_path, capture_output=True, text=True, check=True)
    scores = score_corpus(hypotheses, references, language)
    for expected in json.loads(result.stdout):
        score = scores[expected["name"].rstrip("2").lower()]
        assert score.name == expected["name"]
        assert score.value == pytest.approx(expected["score"], abs=1e-6)
        assert score.signature == expected["signature"]


EN = ["The cat sat on the mat, didn't it?", "Ripe.", "I drink green tea.", "Tea (3,000 cups) is green!"]
ZH = ["我爱中国的绿茶。", "他们每天读书。", "我昨天没有去 school。", "茶是绿的！"]
REFERENCES = {
    "en": [
        ["The cat is sitting on the mat, isn't it?", "rice", "I am drinking green tea.", "Tea (3,000 cups) was green."],
        ["A cat sat on the mat.", "Rice.", "I drink tea.", "Green tea, 3,000 cups."],
    ],
    "zh": [["我爱中国的红茶。", "他们每天都读书。", "我昨天没去 school。", "茶是绿色的！"]],
}


@pytest.mark.parametrize("language, hypotheses, tokenizer", [("en", EN, "13a"), ("zh", ZH, "zh")])
def test_intervals_equal_those_of_the_command_line(tmp_path, language, hypotheses, tokenizer):
    """All four metrics, signatures included; the command line knows one kind of chrF a call."""
    streams = REFERENCES[language]
    files = [f"reference{number}" for number in range(len(streams))]
    for name, lines in zip(["hypotheses", *files], [hypotheses, *streams], strict=True):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")
    command = [sys.executable, "-m", "sacrebleu", *files, "-i", "hypotheses", "--confidence", "-w", "6"]
    by_character = ["--ter-normalized", "--ter-asian-support"] if language == "zh" else []
    calls = ["-m", "bleu", "chrf", "ter", "-tok", tokenizer, *by_character], ["-m", "chrf", "-cw", "2"]
    expected = {}
    for call in calls:
        shown = subprocess.run([*command, *call], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        entries = json.loads(shown)
        expected |= {entry["name"]: entry for entry in (entries if isinstance(entries, list) else [entries])}
    scores = score_with_intervals(hypotheses, streams, language)
    assert list(scores) == ["bleu", "chrf", "chrf++", "ter"]
    assert {score.name for score in scores.values()} == set(expected)
    for score in scores.values():
        entry = expected[score.name]
        assert score.signature == entry["signature"] and "bs:1000|seed:12345" in score.signature
        assert score.value == pytest.approx(entry["score"], abs=1e-6) and score.value > 1
        assert score.interval.mean == pytest.approx(entry["confidence_mean"], abs=2e-5)  # float32
        assert score.interval.half_width == pytest.approx(entry["confidence_var"], abs=2e-5)
        assert str(score).endswith(
            f"= {entry['score']:.2f} (μ = {score.interval.mean:.2f} ± {entry['confidence_var']:.2f})"
        )


def test_the_seed_is_sacrebleus_and_has_to_be_one(monkeypatch):
    before = score_with_intervals(EN, REFERENCES["en"], "en")["bleu"]
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    other = score_with_intervals(EN, REFERENCES["en"], "en")["bleu"]
    assert other.value == before.value and other.interval != before.interval and "seed:7|" in other.signature
    for seed in ("0", "none", "-1", "a"):
        monkeypatch.setenv("SACREBLEU_SEED", seed)
        with pytest.raises(ValueError, match=f"SACREBLEU_SEED={seed}: must be a whole number"):
            score_with_intervals(EN, REFERENCES["en"], "en")


def test_a_resample_may_score_nothing_at_all():
    """sacreBLEU's command line ends in a TypeError here: some resamples hold nothing but the empty hypothesis."""
    scores = score_with_intervals(["", "I drink tea."], [["Rice.", "I drink green tea."]], "en")
    assert 0 < scores["chrf"].interval.mean < scores["chrf"].value + 10
    scores = score_with_intervals(["", ""], [["Rice.", "Tea."]], "en")
    assert [score.value for score in scores.values()] == [0, 0, 0, 100]
    assert [vars(score.interval) for score in scores.values()][0] == {"mean": 0.0, "half_width": 0.0}


def test_each_reference_has_to_be_as_long_as_the_hypotheses():
    with pytest.raises(ValueError, match="4 hypotheses but 3 references"):
        score_with_intervals(EN, [REFERENCES["en"][0], REFERENCES["en"][1][:3]], "en")
    with pytest.raises(ValueError, match="nothing to score"):
        score_with_intervals(EN, [], "en")


def test_chinese_is_edited_by_character():
    ter = score_with_intervals(ZH, REFERENCES["zh"], "zh")["ter"]
    assert 5 < ter.value < 30 and "norm:yes" in ter.signature and "asian:yes" in ter.signature
    by_space = score_with_intervals(ZH, REFERENCES["zh"], "zh", tokenizer="13a")["ter"]
    assert by_space.signature == ter.signature, "the language decides, not BLEU's tokenizer"
    assert score_with_intervals(ZH, REFERENCES["zh"], "und", tokenizer="zh")["ter"] == ter


def test_sentences_are_scored_alone(tmp_path):
    scores, signature = sentence_chrf(EN, REFERENCES["en"])
    for name, lines in zip("hrs", [EN, *REFERENCES["en"]], strict=True):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "r", "s", "-i", "h", "-m", "chrf", "-sl", "-w", "6", "-f", "text"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert shown == [f"chrF2|{signature} = {score:.6f}" for score in scores]
