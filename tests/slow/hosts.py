"""Several hosts on one machine: network namespaces on a bridge, each with an address and a torchrun of its own."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

PORT = 29400  # of the rendezvous, on the first host
RENDEZVOUS = "join_timeout=600,last_call_timeout=60,read_timeout=20,keep_alive_interval=5,keep_alive_max_attempt=5"


class Hosts:
    """A bridge with `count` hosts. A context manager; skips the test where no namespaces may be made."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.holders: list[subprocess.Popen] = []  # of the namespaces: the bridge's, then each host's
        self.supervisors: list[Supervisor] = []

    def __enter__(self) -> "Hosts":
        if sys.platform != "linux" or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
            pytest.skip("needs Linux with unshare, nsenter and ip")
        try:
            self._hold(["unshare", "-Urn", "sleep", "infinity"])
            self._run(0, "ip link set lo up", "ip link add br0 type bridge", "ip link set br0 up")
            for host in range(1, self.count + 1):
                self._hold([*self._inside(0), "unshare", "-n", "sleep", "infinity"])
                pid = self._namespace_pid(host)
                self._run(0, f"ip link add host{host} type veth peer name eth0 netns {pid}",
                          f"ip link set host{host} master br0 up")  # fmt: skip
                self._run(host, "ip link set lo up", f"ip addr add {address(host)}/24 dev eth0", "ip link set eth0 up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            pytest.skip(f"may not make network namespaces here ({error})")
        return self

    def __exit__(self, *error: object) -> None:
        for supervisor in self.supervisors:
            supervisor.asked_to_end = True
        for host in range(1, len(self.holders)):
            self.kill(host)
        for supervisor in self.supervisors:
            while supervisor.is_alive():  # which may have started torchrun just now
                self.kill(supervisor.host)
                supervisor.join(0.5)
        for holder in self.holders:
            holder.kill()
            holder.wait()

    def cut(self, host: int) -> None:
        """Cuts a host off from the others: packets go nowhere, and nobody is told."""
        self._run(0, f"ip link set host{host} down")

    def join(self, host: int) -> None:
        """Ends the cut."""
        self._run(0, f"ip link set host{host} up")

    def start(self, host: int, command: list[str], output: Path) -> subprocess.Popen:
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }  # fmt: skip
        with output.open("ab") as file:
            return subprocess.Popen(
                [*self._inside(host), *command], stdout=file, stderr=subprocess.STDOUT, env=environment
            )

    def processes(self, host: int) -> dict[int, str | None]:
        """Returns the processes of a host but the one that holds it, with the rank of those that have one."""
        holder = self._namespace_pid(host)
        place, found = os.readlink(f"/proc/{holder}/ns/net"), {}
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            try:
                if int(pid) != holder and os.readlink(f"/proc/{pid}/ns/net") == place:
                    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    ranks = [v.decode().removeprefix("RANK=") for v in variables if v.startswith(b"RANK=")]
                    found[int(pid)] = ranks[0] if ranks else None
            except OSError:  # it has ended meanwhile
                continue
        return found

    def kill(self, host: int, workers_only: bool = False) -> None:
        """Kills all that runs on a host at once, as a power cut does, or its ranks."""
        for pid, rank in self.processes(host).items():
            if rank is not None or not workers_only:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def _hold(self, command: list[str]) -> None:
        self.holders.append(subprocess.Popen(command, stderr=subprocess.PIPE))
        own, deadline = os.readlink("/proc/self/ns/net"), time.monotonic() + 30
        number = len(self.holders) - 1
        outer = own if number == 0 else os.readlink(f"/proc/{self._namespace_pid(0)}/ns/net")
        while True:
            if self.holders[-1].poll() is not None:
                raise OSError(self.holders[-1].stderr.read().decode().strip())
            if os.readlink(f"/proc/{self._namespace_pid(number)}/ns/net") not in (own, outer):
                return
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _namespace_pid(self, host: int) -> int:
        return self.holders[host].pid  # unshare and nsenter become what they start

    def _inside(self, host: int) -> list[str]:
        return ["nsenter", "-t", str(self._namespace_pid(host)), "-U", "-n", "--preserve-credentials"]

    def _run(self, host: int, *commands: str) -> None:
        for command in commands:
            subprocess.run([*self._inside(host), *command.split()], check=True, capture_output=True)


def address(host: int) -> str:
    return f"10.77.0.{host}"


def torchrun(host: int, nodes: str, restarts: int, run_id: str) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", nodes, "--nproc-per-node", "1", "--rdzv-backend",
        "c10d", "--rdzv-endpoint", f"{address(1)}:{PORT}", "--rdzv-id", run_id, "--rdzv-conf",
        f"{RENDEZVOUS},is_host={int(host == 1)}", "--max-restarts", str(restarts), "--local-addr", address(host),
        "--monitor-interval", "0.2", "-m", "mt", "train",
    ]  # fmt: skip


class Supervisor(threading.Thread):
    """Starts torchrun on a host again and again until it ends well, as systemd, SLURM or Kubernetes would."""

    def __init__(self, hosts: Hosts, host: int, command: list[str], output: Path) -> None:
        super().__init__(daemon=True)
        self.hosts, self.host, self.command, self.output = hosts, host, command, output
        self.starts, self.ended_well, self.asked_to_end = 0, False, False
        hosts.supervisors.append(self)

    def run(self) -> None:
        while not self.ended_well and not self.asked_to_end:
            self.starts += 1
            self.ended_well = self.hosts.start(self.host, self.command, self.output).wait() == 0
            time.sleep(0.2)
