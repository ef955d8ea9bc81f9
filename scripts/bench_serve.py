"""Load on a server of this machine: requests a second, p50, p95 and p99, wrong answers, memory.

    python scripts/bench_serve.py runs/demo --source data/tatoeba_en_zh/test.tsv --requests 10000

Starts `mt serve` on a free port of 127.0.0.1, once with batches of one sentence and once with larger ones, asks it one
sentence a request, by 1, 8 and 64 clients that each wait for their answer, and compares each answer with what it gave
when it was asked one sentence after the other. Bounded: it ends after the requests asked for. Prints one JSON line for
each load, and one that says what batches gain. Exits with 1 where an answer was wrong or missing.
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a trained folder")
    parser.add_argument("--source", type=Path, required=True, help="sentences, one a line; of a TSV the first column")
    parser.add_argument("--sentences", type=int, default=1000, help="different ones, of the file's beginning")
    parser.add_argument("--requests", type=int, default=10_000, help="of each load but the slow ones")
    parser.add_argument("--slow-requests", type=int, default=500, help="with one client, and without batches")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--batch-sentences", type=int, default=64, help="of the larger batches, at most")
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--engine", default="mt", choices=["mt", "ctranslate2"])
    arguments = parser.parse_args()
    lines = arguments.source.read_text(encoding="utf-8").split("\n")
    first = [line.split("\t")[0].strip() for line in lines]
    texts = list(dict.fromkeys(text for text in first if text))[: arguments.sentences]
    if not texts:
        parser.error(f"{arguments.source}: has no sentences")
    expected: list[str] = []
    measured = []
    for batch_sentences in (1, arguments.batch_sentences):
        with Server(arguments, batch_sentences) as server:
            if not expected:
                connection = server.connect()
                expected = [ask(connection, server.languages, text) for text in texts]
            for clients in arguments.clients:
                few = clients == 1 or batch_sentences == 1
                count = arguments.slow_requests if few else arguments.requests
                found = load(server, texts, expected, clients, count)
                measured.append({"batch_sentences": batch_sentences, **found})
                print(json.dumps(measured[-1]), flush=True)
    alone, together = (each["requests_a_second"] for each in measured if each["clients"] == max(arguments.clients))
    print(json.dumps({"batches_gain": round(together / alone, 2), "clients": max(arguments.clients)}))
    sys.exit(any(each["wrong"] or each["failed"] for each in measured))


class Server:
    """`mt serve` on this machine, which ends with the block."""

    def __init__(self, arguments: argparse.Namespace, batch_sentences: int) -> None:
        command = [
            sys.executable, "-m", "mt", "serve", str(arguments.run), "--port", "0", "--engine", arguments.engine,
            "--beam-size", str(arguments.beam_size), "--batch-sentences", str(batch_sentences),
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        address = next((line for line in self.process.stderr if line.startswith("serving http://")), None)
        if address is None:
            sys.exit("mt serve did not start")
        self.port = int(address.strip().rstrip("/").rpartition(":")[2])
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        connection = self.connect()
        connection.request("GET", "/frontend/settings")
        pair = json.loads(connection.getresponse().read())["language"]
        self.languages = {side: pair[side]["code"] for side in ("source", "target")}

    def connect(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=120)

    def memory_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.wait(60)


def ask(connection: HTTPConnection, languages: dict[str, str], text: str) -> str:
    body = json.dumps({"q": text, **languages})
    connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {content[:200]!r}")
    return json.loads(content)["translatedText"]


def load(server: Server, texts: list[str], expected: list[str], clients: int, requests: int) -> dict[str, float]:
    """Returns what so many clients measured together."""
    seconds: list[float] = []
    wrong: list[str] = []
    before = server.memory_mib()

    def client(number: int) -> None:
        connection, generator = server.connect(), random.Random(number)
        for _ in range(requests // clients):
            index = generator.randrange(len(texts))
            begin = time.perf_counter()
            found = ask(connection, server.languages, texts[index])
            seconds.append(time.perf_counter() - begin)
            if found != expected[index]:
                wrong.append(f"{texts[index]!r}: {found!r}, alone {expected[index]!r}")

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - begin
    for line in wrong[:5]:
        print(line, file=sys.stderr)
    ordered = sorted(seconds)
    share = {
        f"p{p}_milliseconds": round(1000 * ordered[min(len(ordered) * p // 100, len(ordered) - 1)], 1)
        for p in (50, 95, 99)
    }
    return {
        "clients": clients, "requests": len(seconds), "requests_a_second": round(len(seconds) / elapsed, 1), **share,
        "wrong": len(wrong), "failed": requests // clients * clients - len(seconds),
        "memory_mib_before": round(before, 1), "memory_mib_after": round(server.memory_mib(), 1),
    }  # fmt: skip


if __name__ == "__main__":
    main()
