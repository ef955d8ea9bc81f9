import dataclasses
import random
import re
import threading
import warnings

import pytest
import torch
from sacrebleu.metrics import CHRF

from mt.checkpoint import create_run, point, save_checkpoint
from mt.config import DecodeConfig, ModelConfig, TokenizerConfig, TrainConfig
from mt.model.layout import Layout
from mt.model.transformer import Transformer
from mt.rows import NO_ROW
from mt.tokenizer import BOS_ID, EOS_ID, UNK_ID, train_tokenizers
from mt.translation import translator as translator_module
from mt.translation.beam import beam_search
from mt.translation.sampling import Sampling
from mt.translation.translator import Guidance, Translator, load_translator

WORDS = "they read good books every day and drink green tea I love china rice is never late".split()
SEPARATORS = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029\ufffd]")
# untied: with one table for input and output a random model mostly repeats its last token
MODEL = ModelConfig(d_model=16, d_ff=32, n_heads=2, encoder_layers=2, decoder_layers=2, tying="none")

pytestmark = pytest.mark.filterwarnings("ignore:.*(are unfinished|tokenizer).*")


def sentences(count, seed=0):
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, 40))) for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizers():
    lines = sentences(200)
    config = TokenizerConfig(vocabulary_size=400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a small corpus gives a small vocabulary
        return train_tokenizers(zip(lines, lines, strict=True), config, seed=1)


def random_model(vocabulary_size, sharpness=3.0, eos_bonus=2.0, **changes):
    """A model whose next tokens depend strongly on its input and whose outputs end."""
    torch.manual_seed(7)
    model = Transformer(dataclasses.replace(MODEL, **changes), vocabulary_size, vocabulary_size)
    plain_logits = model.logits
    bonus = torch.zeros(vocabulary_size)
    bonus[EOS_ID] = eos_bonus
    model.logits = lambda hidden: plain_logits(hidden) * sharpness + bonus
    return model.eval()


def make_translator(tokenizers, eos_bonus=2.0, **decode):
    return Translator(random_model(tokenizers.source.size, eos_bonus=eos_bonus), tokenizers, DecodeConfig(**decode))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_neighbours_and_batch_sizes_change_nothing(tokenizers, beam_size):
    texts = sentences(20, seed=3)
    translator = make_translator(tokenizers, beam_size=beam_size)
    expected = translator.translate_n_best(texts, beam_size)
    assert len({translations[0].text for translations in expected}) > 10
    alone = [translator.translate_n_best([text], beam_size)[0] for text in texts]
    backwards = translator.translate_n_best(texts[::-1], beam_size)[::-1]
    small = make_translator(tokenizers, beam_size=beam_size, batch_tokens=100).translate_n_best(texts, beam_size)
    in_threads = with_threads(3, lambda: translator.translate_n_best(texts, beam_size))
    for other in (alone, backwards, small, in_threads):
        for a, b in zip(expected, other, strict=True):
            assert [(t.text, t.tokens, t.unfinished) for t in a] == [(t.text, t.tokens, t.unfinished) for t in b]
            assert [t.score for t in a] == pytest.approx([t.score for t in b], abs=1e-4)


def with_threads(count, call):
    """Returns what `call` returns while torch has so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return call()
    finally:
        torch.set_num_threads(before)


def test_threads_have_batches_of_their_own_and_their_errors_are_told(tokenizers, monkeypatch):
    translator, texts, threads = make_translator(tokenizers, beam_size=2), sentences(12, seed=4), set()
    plain_search = translator._search

    def watched(sources, n_best, guidance):
        threads.add((threading.current_thread().name, torch.get_num_threads()))
        return plain_search(sources, n_best, guidance)

    monkeypatch.setattr(translator, "_search", watched)
    done = []
    with_threads(2, lambda: translator.translate_n_best(texts, 1, done.append))
    assert {count for _, count in threads} == {1} and all(name.startswith("search") for name, _ in threads)
    assert len(done) >= 2 and done == sorted(done) and done[-1] == len(texts)
    threads.clear()
    with_threads(2, lambda: translator.translate_n_best(texts[:1], 1))  # one sentence: the caller's own thread
    assert threads == {(threading.current_thread().name, 2)}
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    with_threads(2, lambda: (translator.translate(texts), thread.start(), thread.join()))
    assert seen == [2]  # a search leaves no thread behind that others would inherit their number from

    def broken(sources, n_best, guidance):
        raise ValueError("broken")

    monkeypatch.setattr(translator, "_search", broken)
    with pytest.raises(ValueError, match="broken"):
        with_threads(2, lambda: translator.translate(texts))


def guided(tokenizers, guide, forbidden=(), eos_bonus=2.0, **decode):
    model = random_model(tokenizers.source.size, eos_bonus=eos_bonus)
    return Translator(model, tokenizers, DecodeConfig(**decode), "en", forbidden, guide)


@pytest.mark.parametrize("decode", [{"beam_size": 1}, {"beam_size": 4}, {"beam_size": 4, "beam_groups": 2}])
def test_phrases_of_one_text_change_nothing_for_the_others(tokenizers, decode):
    texts = sentences(6, seed=5)
    held = {texts[1]: Guidance(phrases=("green tea", "late rice")), texts[4]: Guidance("drink", ("good",))}
    translator = guided(tokenizers, lambda text: held.get(text, Guidance()), **decode)
    found, free = translator.translate(texts), make_translator(tokenizers, **decode).translate(texts)
    assert [a == b for a, b in zip(found, free, strict=True)] == [text not in held for text in texts]
    assert "green tea" in found[1] and "late rice" in found[1]
    assert found[4].startswith("drink") and " good" in found[4]
    assert [translator.translate([text])[0] for text in texts] == found


def test_a_prefix_may_go_on_with_the_word_of_a_phrase(tokenizers):
    translator = guided(tokenizers, lambda text: Guidance("teapots", ("tea",)), beam_size=2)
    (found,) = translator.translate(["I love china"])
    assert found.startswith("teapots") and " tea" in found


def test_a_forbidden_text_is_found_at_the_beginning_and_behind_marks(tokenizers):
    texts = sentences(8, seed=6)
    free = make_translator(tokenizers, beam_size=2).translate(texts)
    words = sorted({word for text in free for word in text.split()[:1] if word.isalpha()}, key=len)[-3:]
    begins = re.compile("|".join(rf"(?<!\w){word}" for word in words))
    assert words and any(map(begins.search, free))
    translator = guided(tokenizers, lambda text: Guidance(), words, beam_size=2)
    assert not any(map(begins.search, translator.translate(texts)))
    with pytest.raises(ValueError, match="must be in a translation, but holds what is forbidden: leave one out"):
        guided(tokenizers, lambda text: Guidance(phrases=(f"good {words[0]}s",)), words).translate(texts)


@pytest.mark.parametrize("decode", [{}, {"coverage_penalty": 0.3}, {"beam_groups": 2}])
def test_n_best_is_checked_whatever_searches(tokenizers, decode):
    for phrases in ((), ("tea",)):
        translator = guided(tokenizers, lambda text, own=phrases: Guidance(phrases=own), beam_size=4, **decode)
        with pytest.raises(ValueError, match="n_best=5: must be between 1 and decode.beam_size=4"):
            translator.translate_n_best(["tea"], 5)
        assert 1 < len(translator.translate_n_best(["tea"], 4)[0]) <= 4


@pytest.mark.parametrize("decode", [{"coverage_penalty": 0.4}, {"beam_groups": 2}, {"beam_groups": 4}])
def test_scores_after_the_search_are_those_of_the_model_with_the_rules(tokenizers, decode):
    decode = {"beam_size": 4, "repetition_penalty": 1.5, **decode}
    translator, texts = make_translator(tokenizers, **decode), sentences(5, seed=8)
    repeated = 0
    for text, found in zip(texts, translator.translate_n_best(texts, 4), strict=True):
        views = translator.force(translator.sources([text]) * len(found), [t.tokens for t in found])
        scores = []
        for translation, view in zip(found, views, strict=True):
            ids = [*translation.tokens, EOS_ID][: len(view.log_probs) - translation.unfinished]
            pairs = list(zip(ids, view.log_probs, strict=False))
            total = sum(p * (1.5 if token in ids[:i] else 1) for i, (token, p) in enumerate(pairs))
            scores.append(total / len(ids) + decode.get("coverage_penalty", 0) * view.coverage())
            repeated += len(set(ids)) < len(ids)
        assert [t.score for t in found] == pytest.approx(scores, abs=1e-3)
    assert repeated


def test_samples_depend_on_seed_line_and_text_alone(tokenizers):
    texts, sampling = sentences(6, seed=9), Sampling(temperature=1.5)

    def drawn(batch_tokens, own, first_line):
        translator = make_translator(tokenizers, batch_tokens=batch_tokens)
        return [[t.text for t in found] for found in translator.sample(own, 4, sampling, 3, first_line=first_line)]

    together = drawn(4096, texts, 1)
    assert drawn(1, texts, 1) == together
    assert [drawn(4096, [text], line)[0] for line, text in enumerate(texts, 1)] == together
    assert with_threads(3, lambda: drawn(4096, texts, 1)) == together
    assert drawn(4096, texts[:1], 2) != together[:1]
    with pytest.raises(ValueError, match="count=0: must be at least 1"):
        make_translator(tokenizers).sample(texts, 0, sampling, 1)
    with pytest.raises(ValueError, match="seed=-1: must be at least 0"):
        make_translator(tokenizers).sample(texts, 1, sampling, -1)


def test_consensus_is_the_sample_that_is_most_like_all(tokenizers):
    texts, sampling, metric, places = sentences(6, seed=10), Sampling(temperature=0.5), CHRF(), set()
    translator = make_translator(tokenizers)
    samples = translator.sample(texts, 5, sampling, 4)
    for own, (best,) in zip(samples, translator.translate_by_consensus(texts, 5, sampling, 4), strict=True):
        lines = [translation.text for translation in own]
        means = [sum(metric.sentence_score(line, [other]).score for other in lines) / 5 for line in lines]
        assert (best.text, best.score) == (lines[means.index(max(means))], pytest.approx(max(means)))
        places.add(lines.index(best.text))
    assert len(places) > 1


def test_as_many_samples_fit_a_batch_as_its_budget_says(tokenizers, monkeypatch):
    translator, sizes = make_translator(tokenizers, batch_tokens=300), []
    plain = translator._encode

    def watched(sources):
        sizes.append(len(sources))
        return plain(sources)

    monkeypatch.setattr(translator, "_encode", watched)
    translator.sample(["tea"] * 12, 2, Sampling(), 1)
    translator.sample(["tea"] * 12, 50, Sampling(), 1)
    assert max(sizes) > 2 and sizes[-1] == 1 or sizes[-1] <= 300 // 50


def test_alternatives_follow_the_search_settings(tokenizers):
    translations = []
    for size in (0, 1):
        translator = make_translator(tokenizers, eos_bonus=-50.0, no_repeat_ngram_size=size)
        found = translator.alternatives("I love china", "they drink", 3)
        assert len(found) == 3 and sum(a.probability for a in found) <= 1
        assert all(a.translation.startswith("they drink" + a.word) for a in found)
        translations.append([a.translation for a in found])
    assert translations[0] != translations[1]
    assert translator.alternatives(" ", "they", 3) == []


class WithoutCache:
    """The same model, computing the whole prefix anew at every step."""

    def __init__(self, model):
        self.model = model

    def start(self, memory, layout):
        self.memories = memory.split(layout.lengths)
        self.rows = [(i, []) for i in range(len(layout.lengths))]
        return self

    def select(self, rows, sentences=None):
        self.rows = [self.rows[row] for row in rows.flatten().tolist() if row != NO_ROW]

    def step(self, tokens, state):
        self.rows = [(i, [*prefix, token]) for (i, prefix), token in zip(self.rows, tokens.tolist(), strict=True)]
        target = torch.tensor([token for _, prefix in self.rows for token in prefix])
        target_layout = Layout.from_lengths([len(prefix) for _, prefix in self.rows])
        memory = torch.cat([self.memories[i] for i, _ in self.rows])
        memory_layout = Layout.from_lengths([len(self.memories[i]) for i, _ in self.rows])
        hidden = self.model.decode(target, target_layout, memory, memory_layout)
        return self.model.logits(hidden[target_layout.cumulative_lengths[1:].long() - 1])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "rotary", "tying": "three_way"},
        {"norm_position": "post", "tying": "decoder"},
        {"norm": "rms_norm", "activation": "swiglu"},
    ],
)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_cache_changes_nothing(changes, beam_size):
    model = random_model(50, eos_bonus=2.0 if not changes else 0.0, **changes)
    for lengths in ([9, 3, 1, 14, 6, 2, 30, 8], [4, 4, 17]):  # a second batch of other sizes straight after the first
        layout = Layout.from_lengths(lengths)
        source = torch.randint(4, 50, (sum(lengths),), generator=torch.Generator().manual_seed(1))
        with torch.inference_mode():
            memory = model.encode(source, layout)
            arguments = (memory, layout, [2 * n + 10 for n in lengths], beam_size, 1.0, beam_size)
            found, expected = beam_search(model, *arguments), beam_search(WithoutCache(model), *arguments)
        assert len({tuple(hypotheses[0].tokens) for hypotheses in found}) > 1
        for a, b in zip(found, expected, strict=True):
            assert [hypothesis.tokens for hypothesis in a] == [hypothesis.tokens for hypothesis in b]
            assert [hypothesis.score for hypothesis in a] == pytest.approx([h.score for h in b], abs=1e-4)


def test_blank_texts_stay_blank_and_in_place(tokenizers):
    texts = []
    for i in range(20):
        texts += [f"word{i}", ["", "   ", "\u200b", "\u3000", "\u2028", "\t\u00a0\ufeff"][i % 6]]
    expected = None
    for batch_tokens in (1, 30, 4096):
        translator = make_translator(tokenizers, beam_size=2, batch_tokens=batch_tokens)
        translations = translator.translate(texts)
        assert translations[1::2] == [""] * 20
        assert all(translations[0::2])
        expected = expected or translations
        assert translations == expected
    assert translator.translate([]) == []
    blank = translator.translate_n_best([" "], 2)[0]
    assert [(t.text, t.tokens, t.unfinished, t.source_truncated) for t in blank] == [("", [], False, False)]


def test_long_sources_are_cut_and_flagged(tokenizers):
    translator = make_translator(tokenizers, beam_size=2, max_source_tokens=256, max_length_ratio=0.1)
    texts = ["I love china", "tea " * 5000, "green tea"]
    with pytest.warns(UserWarning, match=r"decode.max_source_tokens=256 .*line 2 \(\d{4,} tokens\)$") as caught:
        translations = translator.translate_n_best(texts, 1)
    assert sum("max_source_tokens" in str(warning.message) for warning in caught) == 1
    assert [found[0].source_truncated for found in translations] == [False, True, False]
    assert translations[0][0].text == translator.translate(texts[:1])[0]
    with pytest.warns(UserWarning, match="line 1001 "):
        translator.translate_n_best(texts, 1, first_line=1000)


def test_twenty_thousand_tokens(tokenizers):
    model = random_model(tokenizers.source.size, d_model=2, d_ff=2, n_heads=1, encoder_layers=1, decoder_layers=1)
    decode = DecodeConfig(beam_size=1, max_source_tokens=30_000, max_length_ratio=0.0001)
    text = " ".join(random.Random(0).choices("abcdefgh", k=12_000))
    assert len(tokenizers.source.encode([text])[0]) >= 20_000
    (found,) = Translator(model, tokenizers, decode).translate_n_best([text], 1)
    assert not found[0].source_truncated


def test_unfinished_translations_are_flagged_and_counted(tokenizers):
    translator = make_translator(tokenizers, eos_bonus=-100.0, beam_size=2, max_length_ratio=1.5, max_length_offset=3)
    texts = ["I love china", "", "tea"]
    with pytest.warns(UserWarning, match=r"^2 of 3 translations reached .* unfinished: line 1, line 3$"):
        translations = translator.translate_n_best(texts, 2)
    assert [found[0].unfinished for found in translations] == [True, False, True]
    for text, found in zip(texts, translations, strict=True):
        length = len(translator.tokenizers.source.encode([text])[0])
        assert all(len(t.tokens) <= -(-3 * length // 2) + 3 for t in found)


def test_outputs_are_single_clean_lines(tokenizers):
    size = tokenizers.source.size
    translator = make_translator(tokenizers, beam_size=3)
    for seed in range(3):
        torch.manual_seed(seed)
        bonus = torch.randn(size) * 3  # byte pieces and all
        bonus[UNK_ID] = 100  # a model that wants nothing but <unk>
        translator.model.logits = lambda hidden, bonus=bonus: torch.randn(len(hidden), size) + bonus
        for found in translator.translate_n_best(sentences(5, seed), 3):
            for translation in found:
                assert not SEPARATORS.search(translation.text)
                assert not re.search("⁇|<unk>|<0x", translation.text)
                assert not {UNK_ID, BOS_ID, EOS_ID} & set(translation.tokens)
                translation.text.encode()


def test_n_best_texts_differ(tokenizers):
    for found in make_translator(tokenizers, beam_size=5).translate_n_best(sentences(5), 5):
        assert len({translation.text for translation in found}) == len(found)
        scores = [translation.score for translation in found if not translation.unfinished]
        assert scores == sorted(scores, reverse=True)


def test_progress_and_training_mode(tokenizers):
    translator = make_translator(tokenizers, beam_size=2, batch_tokens=60)
    translator.model.train()
    done = []
    translator.translate(sentences(6) + [""], progress=done.append)
    assert done == sorted(done) and len(done) > 1 and done[-1] == 7
    assert translator.model.training
    translator.model.eval()
    translator.translate(["tea"])
    assert not translator.model.training


def test_training_goes_on_after_a_translation(tokenizers):
    translator = make_translator(tokenizers, beam_size=1, max_length_ratio=0.01)
    model = translator.model.train()
    translator.translate(["tea " * 600])  # longer than the table of positions was
    layout = Layout.from_lengths([3])
    model(torch.tensor([4, 5, 3]), layout, torch.tensor([2, 6, 7]), layout).sum().backward()
    assert model.source_embedding.weight.grad is not None


def test_a_run_folder_translates_as_the_model_did(tokenizers, tmp_path):
    config = TrainConfig(model=dataclasses.replace(MODEL, tying="three_way"), decode=DecodeConfig(beam_size=3))
    torch.manual_seed(0)
    model = Transformer(config.model, tokenizers.source.size, tokenizers.target.size).eval()
    run_dir = tmp_path / "run"
    create_run(run_dir, config, tokenizers, [])
    state = {"tokenizer_fingerprint": tokenizers.fingerprint, "metrics": {}, "finished": True}
    point(run_dir, "best", save_checkpoint(run_dir, 5, model.weights(), {}, state))
    texts = sentences(3, seed=9)
    expected = Translator(model, tokenizers, config.decode).translate(texts)
    assert load_translator(run_dir, "cpu").translate(texts) == expected
    greedy = load_translator(str(run_dir), "cpu", "step_00000005", DecodeConfig(beam_size=1))
    assert greedy.decode.beam_size == 1 and not greedy.model.training
    with pytest.raises(ValueError, match="checkpoint=last"):
        load_translator(run_dir, "cpu", "last")
    other = {**state, "tokenizer_fingerprint": "f" * 64}
    point(run_dir, "last", save_checkpoint(run_dir, 6, model.weights(), {}, other))
    with pytest.raises(ValueError, match=f"tokenizer does not match this model.*{'f' * 64}"):
        load_translator(run_dir, "cpu", "last")


def test_a_prefix_must_not_hold_what_is_forbidden(tokenizers):
    translator = guided(tokenizers, lambda text: Guidance(prefix="the cat"), ["cat"])
    with pytest.raises(ValueError, match="'the cat': is the prefix, but holds what is forbidden: leave one out"):
        translator.translate(["the ox"])


def test_a_phrase_of_many_tokens_is_refused_before_it_takes_minutes(tokenizers):
    translator = guided(tokenizers, lambda text: Guidance(phrases=("xq" * 300,)))
    with pytest.raises(ValueError, match=r"xq\.\.\.': has \d+ tokens; of a phrase or a glossary's term the most is 40"):
        translator.translate(["the ox"])


def test_many_samples_are_drawn_in_portions(tokenizers, monkeypatch):
    translator, sizes, draw = guided(tokenizers, lambda text: Guidance()), [], translator_module.sample

    def spied(model, memory, layout, limits, count, *others):
        sizes.append(count)
        return draw(model, memory, layout, limits, count, *others)

    monkeypatch.setattr(translator_module, "sample", spied)
    few, many = (translator.sample(["the ox", "a cat"], count, Sampling(), 1) for count in (256, 600))
    assert sizes == [256, 256, 256, 88] and [len(found) for found in many] == [600, 600]
    for first, all_of_them in zip(few, many, strict=True):
        assert [each.tokens for each in all_of_them[:256]] == [each.tokens for each in first]
        assert [each.tokens for each in all_of_them[256:512]] != [each.tokens for each in first]
