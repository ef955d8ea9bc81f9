"""What a view holds, against the search's own steps and against what `mt score` finds."""

import pytest
import torch

from mt.attention.view import LONGEST, fits, look
from mt.tokenizer import BOS_ID
from mt.translation.translator import Translator

TEXT = "I love china"


def test_every_layer_and_head_of_three_kinds(translator: Translator) -> None:
    seen = look(translator, TEXT, target="我爱中国")
    s, t = len(seen.source), len(seen.target)
    assert seen.source[-1] == "</s>" and seen.target[0] == "<s>" and seen.written == [*seen.target[1:], "</s>"]
    shapes = [(one.kind, tuple(one.weights.shape)) for one in seen.maps]
    assert shapes == [("encoder", (2, 3, s, s)), ("decoder", (3, 3, t, t)), ("cross", (3, 3, t, s))]
    for one in seen.maps:
        torch.testing.assert_close(one.weights.sum(-1), torch.ones(one.weights.shape[:-1]))
        assert (len(one.rows), len(one.columns)) == one.weights.shape[-2:]
    assert not seen.decoder.weights.triu(1).any()


def test_the_weights_are_those_of_scoring(translator: Translator) -> None:
    target = "我爱中国"
    seen = look(translator, TEXT, target=target)
    (forced,) = translator.force(translator.sources([TEXT]), translator.tokenizers.target.encode([target]))
    torch.testing.assert_close(seen.cross.weights[1].mean(0), forced.attention)  # the last of 3 layers but one


def test_what_comes_next_is_what_the_search_would_see(translator: Translator) -> None:
    """The search goes step by step with a cache; the view is one pass."""
    seen, model = look(translator, TEXT, prefix="我爱"), translator.models[0]
    ids = translator.tokenizers.target.encode(["我爱"])[0]
    state = model.start(*translator._encode(translator.sources([TEXT])))
    for place, token in enumerate([BOS_ID, *ids]):
        probabilities = model.step(torch.tensor([token]), state)[0].softmax(0)
        values, order = probabilities.topk(5)
        assert [piece for piece, _ in seen.likeliest[place]] == translator.tokenizers.target.pieces(order.tolist())
        assert [value for _, value in seen.likeliest[place]] == pytest.approx(values.tolist(), abs=1e-6)
    assert seen.written[-1] == seen.likeliest[-1][0][0]


def test_a_prefix_sees_what_it_sees_in_the_whole(translator: Translator) -> None:
    ids = translator.tokenizers.target.encode(["我爱", "我爱中国"])
    assert ids[1][: len(ids[0])] == ids[0]
    part, whole = look(translator, TEXT, prefix="我爱"), look(translator, TEXT, target="我爱中国")
    n = len(part.target)
    torch.testing.assert_close(part.decoder.weights, whole.decoder.weights[:, :, :n, :n])
    torch.testing.assert_close(part.cross.weights, whole.cross.weights[:, :, :n])


def test_without_a_target_it_is_the_translation_found(translator: Translator) -> None:
    ((best,),) = translator.translate_n_best([TEXT], 1)
    seen = look(translator, TEXT)
    assert seen.target[1:] == translator.tokenizers.target.pieces(best.tokens)
    assert seen.written[-1] == (seen.likeliest[-1][0][0] if best.unfinished else "</s>")


def test_sentences_that_cannot_be_shown(translator: Translator) -> None:
    with pytest.raises(ValueError, match="nothing to look at"):
        look(translator, " \u200b ")
    for text, target in (("tea " * 128, "茶"), ("tea", "茶" * 128)):
        assert not fits(translator, text, target)
        with pytest.raises(ValueError, match=f"up to {LONGEST}"):
            look(translator, text, target)
    with pytest.raises(ValueError, match="the sentence has"):
        look(translator, "tea " * 128)
    assert fits(translator, "tea", "") and look(translator, "tea", "").target == ["<s>"]
