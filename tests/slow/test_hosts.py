"""Lost workers, lost hosts and cut networks (`make test-hosts`): the run ends right, and its weights are the same.

Hosts are network namespaces on this machine; they share its disk, as hosts of a cluster do. Each torchrun starts its
ranks again, and is started again itself by whoever watches over it; the ranks go on from the last save.
"""

import random
import time
from pathlib import Path

import pytest

from mt import checkpoint as folder
from tests.slow.hosts import Hosts, Supervisor, torchrun
from tests.training.ranks import arguments, events, largest_difference, run_alone
from tests.training.small_runs import made_corpus

pytestmark = pytest.mark.slow
KILLS, STEPS, SECONDS = 20, 300, 3600
SETTINGS = ["trainer.ema_decay=0.9", f"trainer.max_steps={STEPS}", "trainer.validate_every_steps=100"]
SAVING = ["trainer.save_every_steps=1", "trainer.keep_last_checkpoints=3"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return made_corpus(tmp_path_factory, {"train": 150, "valid": 9})


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    return run_alone(corpus, run_dir, *SETTINGS, "trainer.accumulate_batches=2", seconds=SECONDS)


class Cluster:
    """One run on two hosts of one rank each, watched over."""

    def __init__(self, hosts: Hosts, corpus: Path, run_dir: Path, nodes: str, *more: str) -> None:
        self.hosts, self.run_dir, self.output = hosts, run_dir, run_dir.with_name("output.txt")
        settings = arguments(corpus, run_dir, *SETTINGS, *SAVING, *more)
        self.supervisors = [
            Supervisor(hosts, host, [*torchrun(host, nodes, 100, run_dir.name), *settings], self.output)
            for host in range(1, hosts.count + 1)
        ]
        for supervisor in self.supervisors:
            supervisor.start()

    def step(self) -> int:
        return max((event["step"] for event in events(self.run_dir, "train")), default=0)

    def updates(self) -> int:
        return len(events(self.run_dir, "train"))

    def wait_for(self, happened, seconds: float = SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)

    def wait_for_updates(self, count: int, seconds: float = 3 * SECONDS) -> None:
        """Returns after so many updates, at the end of the run, or after some seconds."""
        goal, deadline = self.updates() + count, time.monotonic() + seconds
        self.wait_for(lambda: self.updates() >= goal or self.ended() or time.monotonic() > deadline)

    def ended(self) -> bool:
        return any(supervisor.ended_well for supervisor in self.supervisors)

    def finish(self) -> None:
        self.wait_for(lambda: self.ended() and any(event["finished"] for event in events(self.run_dir, "stop")))

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")[-4000:]


def check_same(undisturbed: Path, run_dir: Path) -> None:
    """The weights, and the loss of every update, however often it was made."""
    assert largest_difference(undisturbed, run_dir) < 1e-6
    assert folder.pointed(run_dir, "last").name == f"step_{STEPS:08d}"
    losses = {event["step"]: event["loss"] for event in events(undisturbed, "train")}
    found = events(run_dir, "train")
    assert {event["step"] for event in found} == set(range(1, STEPS + 1))
    assert max(abs(event["loss"] - losses[event["step"]]) for event in found) < 1e-4


def test_twenty_kills_of_workers_and_hosts_change_nothing(corpus, undisturbed, tmp_path):
    generator, kills = random.Random(5), []
    with Hosts(2) as hosts:
        cluster = Cluster(hosts, corpus, tmp_path / "run", "2")
        for _ in range(KILLS):
            moment = generator.choice(["starting", "training", "training"])
            if moment == "starting":
                cluster.wait_for_updates(5, generator.uniform(0.5, 10))
            else:
                cluster.wait_for_updates(generator.randint(1, 9))
                time.sleep(generator.uniform(0, 0.1))
            host, worker = generator.randint(1, 2), generator.random() < 0.5
            assert not cluster.ended(), "too few updates for so many kills"
            hosts.kill(host, workers_only=worker)
            kills.append((moment, f"worker of host {host}" if worker else f"host {host}", cluster.step()))
        cluster.finish()
    print(f"kills (moment, what, last update): {kills}; starts: {[s.starts for s in cluster.supervisors]}")
    check_same(undisturbed, tmp_path / "run")


def test_a_host_that_stays_away_leaves_the_work_to_the_other(corpus, undisturbed, tmp_path):
    with Hosts(2) as hosts:
        cluster = Cluster(hosts, corpus, tmp_path / "run", "1:2")
        cluster.wait_for_updates(10)
        before = cluster.step()
        cluster.supervisors[1].asked_to_end = True
        hosts.kill(2)
        cluster.wait_for(lambda: cluster.supervisors[0].ended_well)
    assert 0 < before < STEPS
    assert "the number of ranks is 1 now: an update keeps its 2 micro-batches" in cluster.output.read_text()
    check_same(undisturbed, tmp_path / "run")


@pytest.mark.parametrize(("cut_seconds", "restarts"), [(5, False), (45, True)])
def test_a_cut_network_shorter_and_longer_than_the_timeout(corpus, undisturbed, tmp_path, cut_seconds, restarts):
    with Hosts(2) as hosts:
        cluster = Cluster(hosts, corpus, tmp_path / "run", "2", "trainer.distributed_timeout_seconds=20")
        cluster.wait_for_updates(10)
        hosts.cut(2)
        time.sleep(cut_seconds)
        hosts.join(2)
        cluster.finish()
    said = cluster.output.read_text(encoding="utf-8")
    assert ("resuming" in said) == restarts, said[-4000:]
    assert restarts == ("does not answer" in said or "lost their connection" in said)
    check_same(undisturbed, tmp_path / "run")
