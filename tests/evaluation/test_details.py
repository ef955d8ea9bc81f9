import pytest
import sacrebleu

from mt.evaluation.details import by_frequency, by_length, count_words

SOURCES = ["one two three", "", "a b c d e f", "我 爱中国 tea", "x y z a b c d", " ".join("w" * 70)]
REFERENCES = ["eins zwei drei", "nichts", "a b c d e f", "ich mag Tee", "x y z a b c d", " ".join("v" * 70)]
HYPOTHESES = ["eins zwei vier", "nichts", "a b c d f e", "ich mag Kaffee sehr", "x z a b c d", " ".join("v" * 60)]


@pytest.mark.parametrize(("text", "words"), [("", 0), (" a  b\tc ", 3), ("我爱中国", 4), ("我爱 tea、coffee 吗", 4)])
def test_words_are_counted_without_knowing_the_language(text: str, words: int) -> None:
    assert count_words(text) == words


def test_each_length_is_scored_as_a_corpus() -> None:
    buckets = by_length(SOURCES, HYPOTHESES, [REFERENCES], "13a")
    assert [(one.words, one.sentences) for one in buckets] == [("0", 1), ("1-5", 2), ("6-10", 2), ("61+", 1)]
    one = buckets[2]
    hypotheses, references = [HYPOTHESES[2], HYPOTHESES[4]], [REFERENCES[2], REFERENCES[4]]
    assert one.scores["bleu"].value == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert one.scores["chrf"].value == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score)
    assert "tok:13a" in one.scores["bleu"].signature and "nc:6" in one.scores["chrf"].signature


def test_words_fall_into_buckets_by_their_frequency_in_training() -> None:
    """By hand: `seen` says how often training has each word; the last sentence repeats a word once too often."""
    seen = {"often": 150, "some": 10, "few": 5, "two": 2, "once": 1, "Often": 4}
    training = [f"{word} filler" for word, count in seen.items() for _ in range(count)]
    references = ["often some few", "two once never.", "often often Often"]
    hypotheses = ["often some two", "two never, gone", "often often often"]
    found = {one.occurrences: one for one in by_frequency(hypotheses, references, training, "13a")}
    counts = {name: (one.in_references, one.in_hypotheses, one.right) for name, one in found.items()}
    assert counts == {
        "0": (2, 3, 1),  # never . / never , gone
        "1": (1, 0, 0),  # once
        "2-4": (2, 2, 1),  # two Often / two two
        "5-9": (1, 0, 0),  # few
        "10-99": (1, 1, 1),  # some
        "100+": (3, 4, 3),  # often
    }
    assert (found["0"].precision, found["0"].recall, found["0"].f1) == (pytest.approx(1 / 3), 1 / 2, 0.4)
    assert (found["1"].precision, found["1"].recall, found["1"].f1) == (0, 0, 0)


def test_chinese_words_are_the_tokenizers() -> None:
    found = by_frequency(["我爱茶"], ["我爱绿茶"], ["我", "我爱"], "zh")
    counts = {one.occurrences: one.in_references for one in found}
    assert counts == {"0": 2, "1": 1, "2-4": 1, "5-9": 0, "10-99": 0, "100+": 0}
    assert sum(one.right for one in found) == 3
