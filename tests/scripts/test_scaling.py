"""The model of scaling: what it says where the answer is known."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("scaling", Path(__file__).parents[2] / "scripts" / "scaling.py")
scaling = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(scaling)

RUN = scaling.Run(parameters=1e8, batch_tokens=10_000)
MACHINE = scaling.Machine(1e5, 1e9, 1e8, ranks_per_host=8, hop_seconds=1e-5)


def test_one_rank_sends_nothing():
    alone = scaling.predict(RUN, MACHINE, 1)
    assert alone.sent_bytes == alone.sending == alone.agreeing == 0
    assert alone.efficiency == 1 and alone.tokens_per_second == 1e5 and alone.waiting_share == 0


def test_a_ring_sends_twice_the_gradients_but_one_share():
    assert scaling.predict(RUN, MACHINE, 8).sent_bytes == pytest.approx(2 * 7 / 8 * 4e8)
    half = replace(RUN, gradient_bytes=2.0)
    assert scaling.predict(half, MACHINE, 8).sent_bytes == pytest.approx(7 / 8 * 4e8)


def test_without_overlap_all_sending_is_waited_for():
    said = scaling.predict(RUN, replace(MACHINE, overlap=0.0), 2)
    assert said.update == pytest.approx(said.compute + said.sending + said.agreeing)
    hidden = scaling.predict(replace(RUN, batch_tokens=1e6), MACHINE, 2)  # long enough to hide all but the last bucket
    assert hidden.update - hidden.compute == pytest.approx(hidden.sending * 25e6 / 4e8)


def test_accumulation_sends_as_often_and_computes_more():
    once, often = scaling.predict(RUN, MACHINE, 64), scaling.predict(replace(RUN, accumulate_batches=8), MACHINE, 64)
    assert often.sent_bytes == once.sent_bytes and often.efficiency > once.efficiency
    once, often = (scaling.predict(replace(RUN, sharded=True, accumulate_batches=n), MACHINE, 64) for n in (1, 8))
    assert often.sent_bytes == 8 * once.sent_bytes


def test_other_hosts_are_slower_and_agreeing_grows_with_the_ranks():
    near, far = scaling.predict(RUN, MACHINE, 8), scaling.predict(RUN, MACHINE, 9)
    assert far.sending > 9 * near.sending
    assert scaling.predict(RUN, MACHINE, 1024).agreeing == pytest.approx(1023e-5)


def test_the_table_has_a_line_for_each_number(capsys):
    scaling.main(["predict", "--parameters", "2e8", "--tokens-per-second", "4e5", "--gpus", "8", "64", "1024"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| 8 | 400,000 | 1,400 |")


@pytest.mark.parametrize(
    "odd", [["--parameters", "0"], ["--parameters", "nan"], ["--gpus", "0"], ["--batch-tokens", "-1"]]
)
def test_what_makes_no_sense_is_one_line(odd, capsys):
    with pytest.raises(SystemExit) as ended:
        scaling.main(["predict", "--parameters", "2e8", "--tokens-per-second", "4e5", *odd])
    assert ended.value.code == 2 and f"{odd[0]}: {odd[1]}: must be" in capsys.readouterr().err
