"""What a training shows of its validations in TensorBoard, and that showing changes nothing."""

import pytest

from mt.training.run import train
from tests.training.small_runs import assert_same, final_tensors, settings


def test_cross_attention_and_samples_of_each_validation(corpus, tmp_path):
    pytest.importorskip("tensorboard")
    pytest.importorskip("matplotlib")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for name, shown in (("quiet", False), ("shown", True)):
        config = settings(corpus, tmp_path / name, tensorboard=shown, ema_decay=0.5)
        config.model.dropout = 0.2
        train(config, [])
    events = EventAccumulator(str(tmp_path / "shown" / "tensorboard"))
    events.Reload()
    for number in (1, 2):
        images = events.Images(f"valid/attention_{number}")
        assert [image.step for image in images] == [6, 12] and images[0].width > 100
    assert [text.step for text in events.Tensors("valid/samples/text_summary")] == [6, 12]
    assert_same(final_tensors(tmp_path / "quiet"), final_tensors(tmp_path / "shown"))
