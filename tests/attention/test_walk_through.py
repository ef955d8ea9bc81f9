"""The walk-through's numbers, and that docs/attention.md holds them."""

import math
import re
from pathlib import Path

import pytest
import torch

from mt.attention.explain import explain, figures
from mt.attention.walk_through import (
    SENTENCE,
    Steps,
    entropy,
    gradient_size,
    self_attention,
    sharpness,
    walk_through,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "attention.md"
LARGEST_PICTURE = 100_000  # bytes


@pytest.mark.parametrize("heads", [1, 3])
def test_each_step_has_its_shape_and_follows_from_the_one_before(heads: int) -> None:
    steps, size = self_attention(heads), 768 // heads
    assert steps.tokens == list("我想吃酸菜鱼") and steps.x.shape == (6, 768)
    for weight in (steps.query_weight, steps.key_weight, steps.value_weight, steps.output_weight):
        assert weight.shape == (768, 768)
    for name, weight in (("q", steps.query_weight), ("k", steps.key_weight), ("v", steps.value_weight)):
        found = getattr(steps, name)
        assert found.shape == (6, heads, size)
        torch.testing.assert_close(found, (steps.x @ weight.T).view(6, heads, size), rtol=0, atol=1e-12)
    assert steps.weights.shape == steps.products.shape == (heads, 6, 6)
    for head in range(heads):
        q, k, v = steps.q[:, head], steps.k[:, head], steps.v[:, head]
        torch.testing.assert_close(steps.products[head], q @ k.T, rtol=0, atol=1e-10)
        torch.testing.assert_close(steps.scores[head], q @ k.T / math.sqrt(size), rtol=0, atol=1e-10)
        torch.testing.assert_close(steps.weights[head], steps.scores[head].softmax(-1), rtol=0, atol=1e-12)
        torch.testing.assert_close(steps.mixed[:, head], steps.weights[head] @ v, rtol=0, atol=1e-12)
    torch.testing.assert_close(steps.weights.sum(-1), torch.ones(heads, 6, dtype=torch.float64))


@pytest.mark.parametrize("heads", [1, 3])
def test_the_heads_side_by_side_are_the_models_output(heads: int) -> None:
    steps = self_attention(heads)
    side_by_side = torch.cat([steps.mixed[:, head] for head in range(heads)], dim=1)
    assert torch.equal(steps.concatenated, side_by_side)
    torch.testing.assert_close(side_by_side @ steps.output_weight.T, steps.of_layer, rtol=0, atol=1e-12)
    torch.testing.assert_close(steps.output, steps.of_layer, rtol=0, atol=1e-12)


def test_three_heads_have_the_matrices_of_one_and_maps_of_their_own() -> None:
    one, three = self_attention(1), self_attention(3)
    assert torch.equal(one.query_weight, three.query_weight) and torch.equal(one.x, three.x)
    torch.testing.assert_close(three.products.sum(0), one.products[0])  # a sum over 768 numbers, cut in three
    assert all((three.weights[a] - three.weights[b]).abs().max() > 0.05 for a, b in ((0, 1), (0, 2), (1, 2)))


def test_entropy_and_gradient_size() -> None:
    scores = torch.tensor([[0.3, -1.0, 2.0], [0.0, 0.0, 0.0], [200.0, 0.0, 0.0]], dtype=torch.float64)
    weights = scores.softmax(-1)
    assert entropy(weights).tolist()[1:] == pytest.approx([math.log(3), 0])
    for row, size in zip(scores, gradient_size(weights).tolist(), strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), row)
        assert size == pytest.approx(float(jacobian.norm()), abs=1e-12)


def test_without_the_division_softmax_becomes_a_choice() -> None:
    found = [sharpness(size) for size in (4, 64, 768)]
    divided = [one.entropy for one in found]
    assert max(divided) - min(divided) < 0.1  # the same for any size
    without = [one.undivided_entropy for one in found]
    assert without == sorted(without, reverse=True) and without[-1] < 0.15
    gradients = [one.undivided_gradient for one in found]
    assert gradients == sorted(gradients, reverse=True) and gradients[-1] < found[-1].gradient / 3
    steps: Steps = self_attention(1)
    torch.testing.assert_close(steps.undivided_weights, (steps.scores * math.sqrt(768)).softmax(-1))


def sections(text: str) -> dict[str, str]:
    """Returns the text of each section by its heading."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def check_sums(text: str) -> int:
    """Fails where a row of a table that ends in its sum does not sum to 1; returns how many rows there were."""
    rows, summed = 0, False
    for line in text.split("\n"):
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if not line.startswith("|"):
            summed = False
        elif cells[-1] == "sum":
            summed = True
        elif summed and not cells[0].startswith("---"):
            numbers = [float(cell) for cell in cells[1:]]
            assert numbers[-1] == 1 and sum(numbers[:-1]) == pytest.approx(1, abs=0.005 * len(numbers)), line
            rows += 1
    return rows


def test_random_and_trained_stand_side_by_side(translator) -> None:
    walk = walk_through(translator)
    assert [model.name for model in walk.models] == ["random", "trained"]
    for model in walk.models:
        s, t = len(model.view.source), len(model.view.target)
        assert (model.decoder_input, model.memory) == ((t, 24), (s, 24))
        assert (model.query, model.key, model.value) == ((t, 3, 8), (s, 3, 8), (s, 3, 8))
        assert model.difference < 1e-12 and model.layer == 1
        torch.testing.assert_close(model.next_row.sum(-1), torch.ones(3))
        assert sum(p for _, p in model.view.likeliest[-1]) <= 1
    random, trained = (model.view.cross.weights for model in walk.models)
    assert not torch.allclose(random, trained)
    assert "".join(walk.written[1].view.target[1:]).lstrip("▁") == SENTENCE
    text = explain(walk, {})
    assert "runs/demo --explain" in text and "| random | trained |" in text and "![" not in text
    assert check_sums(text) > 40
    assert {line for line in text.split("\n") if line != line.rstrip()} == set()


def test_without_a_run_it_explains_on_random_weights() -> None:
    text = explain(walk_through(None), {})
    assert "rained" not in sections(text)["3. From one language to the other"] and check_sums(text) > 30
    assert text == explain(walk_through(None), {})


def test_figures_are_pictures_and_small(translator) -> None:
    pytest.importorskip("matplotlib")
    found = figures(walk_through(translator))
    assert set(found) == {"heads", "softmax", "translating"}
    assert all(png.startswith(b"\x89PNG") and len(png) < LARGEST_PICTURE for png in found.values())


def test_the_document_is_what_the_command_writes() -> None:
    """As far as it needs no trained run; of that part, that its tables are shares that sum to 1."""
    document = DOCUMENT.read_text(encoding="utf-8")
    pictures = {name: f"attention_{name}.png" for name in ("heads", "softmax", "translating")}
    expected, found = sections(explain(walk_through(None), pictures)), sections(document)
    assert list(found) == list(expected)
    for title in list(expected)[:2]:
        assert found[title] == expected[title], "run: mt attention runs/demo --explain --output docs/attention.md"
    assert "| random | trained |" in document and check_sums(document) > 50
    for name in re.findall(r"!\[[^]]*\]\(([^)]*)\)", document):
        png = (DOCUMENT.parent / name).read_bytes()
        assert png.startswith(b"\x89PNG") and len(png) < LARGEST_PICTURE
