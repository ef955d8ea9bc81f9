"""The server as a process, and many clients at once."""

import copy
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs mt's extra serve")

from mt.export.engine import load_engine
from mt.serve import server
from mt.serve.limits import Limits
from mt.translation.translator import load_translator
from tests.export.small_runs import sentences
from tests.serve.small_server import LANGUAGES, at_work, load, make_app, make_run, served, until

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:.*are unfinished.*")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "small")


def post(url, body, timeout=60):
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.loads(answer.read())


def status_of(call):
    try:
        call()
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()), error.headers
    raise AssertionError("no error")


@pytest.mark.slow
def test_fifty_clients_get_their_own_answers(run):
    """Case 40: unlike options and lengths, clients that go away half way, and not one wrong answer."""
    translator = load_translator(run, "cpu")
    texts = sentences(60, seed=9)
    expected = {(text, beam): alone(translator, text, beam) for text in dict.fromkeys(texts) for beam in (None, 1)}
    assert len(set(expected.values())) > len(expected) / 3  # or a mixed answer could be the right one
    models = load(run)

    def client(number):
        generator = random.Random(number)
        wrong = 0
        for turn in range(2):
            own = generator.sample(texts, generator.randint(1, 5))
            beam = generator.choice([None, 1])
            body = {**LANGUAGES, "q": own, **({"beam_size": beam} if beam else {})}
            if (number + turn) % 7 == 0:
                leave(url, body)
                continue
            wrong += post(f"{url}/translate", body)["translatedText"] != [expected[text, beam] for text in own]
        return wrong

    before = threading.active_count()
    with served(make_app(run, models=models)) as url, ThreadPoolExecutor(50) as clients:
        asked = [clients.submit(client, number) for number in range(50)]
        slowest = 0.0
        while not all(each.done() for each in asked):
            begin = time.monotonic()
            urllib.request.urlopen(f"{url}/health", timeout=10).read()
            slowest = max(slowest, time.monotonic() - begin)
            time.sleep(0.1)
        assert [each.result() for each in asked] == [0] * 50
        assert slowest < 5  # a second, where the machine does nothing else
        assert models.all[0].queue.waiting == 0
    assert threading.active_count() < before  # those of the model are gone too


def alone(translator, text, beam_size):
    """Returns what a text gives when nothing else is translated."""
    own = copy.copy(translator)
    own.decode = replace(own.decode, beam_size=beam_size or own.decode.beam_size)
    return own.translate([text])[0].strip()


def leave(url, body, before=lambda: None):
    """Asks and goes away without reading the answer; before: is called between the two."""
    data = json.dumps(body).encode()
    host, port = url.removeprefix("http://").split(":")
    head = (
        f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + data)
        before()


def test_a_full_server_says_when_to_come_again(run):
    models = load(run)
    free = threading.Event()
    search = models.all[0].queue._search
    models.all[0].queue._search = lambda texts, options: (free.wait(30), search(texts, options))[1]
    with served(make_app(run, Limits(max_requests=2), models)) as url, ThreadPoolExecutor(2) as clients:
        waiting = [clients.submit(post, f"{url}/translate", {**LANGUAGES, "q": "tea"}) for _ in range(2)]
        until(lambda: at_work(url) == 2)
        body = {**LANGUAGES, "q": "rice", "stream": True}
        status, answer, headers = status_of(lambda: post(f"{url}/translate", body))
        assert (status, answer, headers["Retry-After"]) == (503, {"error": "the server is busy: try again"}, "1")
        free.set()
        assert len({each.result(30)["translatedText"] for each in waiting}) == 1
        assert post(f"{url}/translate", {**LANGUAGES, "q": "tea"})["translatedText"]


def test_who_leaves_gives_up_the_place(run):
    models = load(run)
    free, begun = threading.Event(), threading.Event()
    asked = []
    search = models.all[0].queue._search

    def slow(texts, options):
        begun.set()
        free.wait(30)
        asked.extend(texts)
        return search(texts, options)

    models.all[0].queue._search = slow
    with served(make_app(run, Limits(max_requests=3), models)) as url, ThreadPoolExecutor(1) as clients:
        first = clients.submit(post, f"{url}/translate", {**LANGUAGES, "q": "tea"})
        assert begun.wait(30)  # what comes now is in another batch
        until(lambda: at_work(url) == 1)
        for number in range(6):  # far more than there are places
            body = {**LANGUAGES, "q": f"rice {number}", "stream": number % 2 == 0}
            leave(url, body, lambda: until(lambda: at_work(url) == 2))
            until(lambda: at_work(url) == 1)
        free.set()
        assert first.result(30)["translatedText"]
        assert post(f"{url}/translate", {**LANGUAGES, "q": "books"})["translatedText"]
    assert not [text for text in asked if text.startswith("rice")]


def test_a_slow_client_is_sent_away(run):
    with served(make_app(run, Limits(body_seconds=1))) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            assert connection.recv(1000).startswith(b"HTTP/1.1 408")


def test_answers_on_a_connection_that_stays_open_wait_for_nothing(run):
    with served(make_app(run)) as url:
        connection = HTTPConnection(url.removeprefix("http://"))
        seconds = []
        for _ in range(10):
            start = time.monotonic()
            connection.request("GET", "/health")
            connection.getresponse().read()
            seconds.append(time.monotonic() - start)
        connection.close()
    assert min(seconds[1:]) < 0.03  # 0.04 where head and body wait for each other


def test_a_real_client_of_libretranslate(run):
    client_of = pytest.importorskip("libretranslatepy").LibreTranslateAPI
    translator = load_translator(run, "cpu")
    with served(make_app(run, keys=["secret"])) as url:
        client = client_of(url + "/", api_key="secret")
        assert client.translate("green tea & rice?", "en", "de") == alone(translator, "green tea & rice?", None)
        assert client.languages()[0] == {"code": "en", "name": "English", "targets": ["de"]}
        assert client.detect("The weather is very nice today")[0]["language"] == "en"
        status, answer, _ = status_of(lambda: client.translate("tea", "en", "xx"))
        assert (status, answer) == (400, {"error": "xx is not supported"})
        status, answer, _ = status_of(lambda: client_of(url + "/", api_key="no").translate("tea", "en", "de"))
        assert (status, answer) == (403, {"error": "Invalid API key"})


def test_the_engine_may_be_ctranslate2(run):
    pytest.importorskip("ctranslate2")
    texts = sentences(5)
    expected = [text.strip() for text in load_engine(run, "cpu").translate(texts)]
    with served(make_app(run, models=load(run, "ctranslate2"))) as url:
        assert post(f"{url}/translate", {**LANGUAGES, "q": texts})["translatedText"] == expected
        body = {**LANGUAGES, "q": "tea", "glossary": {"tea": "Reis"}}  # by our own search
        assert "Reis" in post(f"{url}/translate", body)["translatedText"]


def start(run, *options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, "-m", "mt", "serve", str(run), "--port", "0", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    for line in process.stderr:
        if line.startswith("serving http"):
            return process, line.split()[1].rstrip("/")
    raise AssertionError(process.wait())


@pytest.mark.slow
def test_the_command_serves_and_ends_in_order(run):
    process, url = start(run, "--batch-milliseconds", "1000")
    try:
        assert url.startswith("http://127.0.0.1:")
        with ThreadPoolExecutor(1) as client:
            answer = client.submit(post, f"{url}/translate", {**LANGUAGES, "q": "a text that is on its way"})
            until(lambda: answer.done() or at_work(url) == 1)
            assert not answer.done()
            process.send_signal(signal.SIGTERM)
            assert answer.result(30)["translatedText"]
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, "")
        assert "Traceback" not in err and "on its way" not in err
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--host", "256.1.1.1"], "--host=256.1.1.1 --port=5000: cannot be served: "),
        (["--max-texts", "0"], "--max-texts=0: must be between 1 and"),
        (["--engine", "x"], "--engine=x: must be mt or ctranslate2"),
        (["RUN", "--port", "0"], "both translate en to de: serve one of them"),
    ],
)
def test_wrong_settings(run, capsys, monkeypatch, options, reason):
    from mt.__main__ import main

    monkeypatch.setattr(sys, "argv", ["mt", "serve", str(run), *[str(run) if o == "RUN" else o for o in options]])
    with pytest.raises(SystemExit) as stopped:
        main()
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and reason in error and error.count("\n") == 1


def test_an_address_in_use_is_an_error():
    with server.listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ValueError, match=f"--host=127.0.0.1 --port={port}: cannot be served: Address already in use"
        ):
            server.listen("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_who_can_reach_it(host, expected):
    assert server.is_loopback(host) is expected


def test_keys_of_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text("one\n\n two \n")
    assert server.read_keys(file) == ["one", "two"]
    file.write_text("\n")
    with pytest.raises(ValueError, match="has no key"):
        server.read_keys(file)


def test_those_who_wait_are_told_when_the_server_stops(run):
    models, free = load(run), threading.Event()
    search = models.all[0].queue._search
    models.all[0].queue._search = lambda texts, options: (free.wait(60), search(texts, options))[1]
    app = make_app(run, models=models)
    with served(app) as url, ThreadPoolExecutor(2) as clients:
        waiting = clients.submit(status_of, lambda: post(f"{url}/translate", {**LANGUAGES, "q": "tea"}))
        data = json.dumps({**LANGUAGES, "q": "rice", "stream": True}).encode()
        request = urllib.request.Request(f"{url}/translate", data, {"Content-Type": "application/json"})
        stream = clients.submit(lambda: urllib.request.urlopen(request, timeout=60).read())
        until(lambda: at_work(url) == 2)
        app.state.stop()
        assert waiting.result(30)[:2] == (503, {"error": "the server is stopping"})
        assert json.loads(stream.result(30).splitlines()[-1]) == {"error": "the server is stopping"}
        free.set()


def test_a_body_that_is_too_large_ends_its_connection(run):
    with served(make_app(run, Limits(max_body_bytes=1000))) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n" + b" " * 2000)
            answer = b""
            while part := connection.recv(4000):
                answer += part
            assert answer.startswith(b"HTTP/1.1 413") and b"connection: close" in answer.lower()
