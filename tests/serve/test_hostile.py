"""Texts, requests and clients that wish a server ill, at its socket."""

import json
import shutil
import socket
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

pytest.importorskip("uvicorn", reason="needs mt's extra serve")

from mt.serve.limits import Limits
from mt.serve.models import Models, load_served
from tests.export.small_runs import MODEL, make_tokenizers, random_model, save_run
from tests.serve.small_server import LANGUAGES, at_work, make_app, make_run, served, until

pytestmark = pytest.mark.filterwarnings("ignore:.*")  # of odd sentences
MANY = " ".join(f"They read {number} good books." for number in range(100))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture(scope="module")
def url(run):
    models = Models([load_served(run, None, "cpu", "best", quick, 16, 0.002)])
    with served(make_app(run, Limits(max_body_bytes=100_000), models)) as address:
        yield address


def quick(decode):
    return replace(decode, beam_size=1, max_length_ratio=0.5)


def post(url, path="/translate", **body):
    """Returns the status and the answer, which is JSON whatever happens."""
    data = json.dumps({**LANGUAGES, **body}).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def connect(url):
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=300)


def head(length):
    return f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode()


@pytest.mark.parametrize(
    "text",
    [
        "tea\x00 rice\x00", "\x00", "\x1b[31mtea\x7f\r\n\x85\u2028rice\ufeff\u200b", "\U0010ffff\ufffe tea",
        "أحب \u202e green tea \u202c الصين", "אני אוהב", "\U0001f469\u200d\U0001f467\U0001f1e8\U0001f1f3 tea",
        "I" + "\u0300" * 20, "<" * 40, "{" * 40, "a@" * 20, "tea" * 20,
    ],
    ids=lambda text: ascii(text[:8]),
)  # fmt: skip
def test_any_text_is_answered(url, text):
    status, answer = post(url, q=text)
    assert status == 200 and isinstance(answer["translatedText"], str)
    status, answer = post(url, q=text, format="html")
    assert status == (400 if "\x00" in text else 200) and isinstance(answer.get("translatedText", ""), str)
    status, answer = post(url, "/details", q=[text], translations=[text])
    assert status == 200 and all(0 <= word["start"] < word["end"] <= len(text) for word in answer[0]["target"])
    assert post(url, "/alternatives", q=text, prefix=text)[0] in (200, 400)


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/translate", {"q": ["a"] * 10_000}, "Invalid request: request (10000) exceeds batch limit (500)"),
        ("/translate", {"q": [["a"]]}, "q: must be a text or a list of texts"),
        ("/translate", {"q": "a", "target": "../../etc"}, "../../etc is not supported"),
        ("/translate", {"q": "a", "source": "en\x00"}, "en\x00 is not supported"),
        ("/translate", {"q": "a", "source": "e" * 90_000}, "source: String should have at most 35 characters"),
        ("/alternatives", {"q": "a", "prefix": "Tee " * 2000}, "prefix: has "),
        ("/details", {"q": ["a"] * 300, "translations": ["b"] * 300}, "Invalid request: request (600) exceeds batch"),
    ],
)
def test_too_much_is_refused(url, path, body, reason):
    status, answer = post(url, path, **body)
    assert status == 400 and answer["error"].startswith(reason)


BODY = json.dumps({"q": "tea", **LANGUAGES}).encode()
CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
RAW = [
    (head("Content-Length: 5") + BODY, b"400"),  # less than there is
    (head("Content-Length: 5\r\nContent-Length: 7") + BODY, b"400"),
    (head("Content-Length: -5") + BODY, b"400"),
    (head("Transfer-Encoding: chunked") + b"zz\r\n", b"400"),
    (head("Content-Length: 1000000000") + b"x" * 200_000, b"413"),
    (head("Transfer-Encoding: chunked") + CHUNK * 2, b"413"),  # and no end
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + bytes(range(256)) + b"\r\n\r\n", b"400"),
    (b"GET /page/../app.py HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
    (b"GET /page/%2e%2e/app.py HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
]


@pytest.mark.parametrize(("request_bytes", "status"), RAW, ids=[str(n) for n in range(len(RAW))])
def test_requests_that_are_none(url, request_bytes, status):
    with connect(url) as connection:
        connection.sendall(request_bytes)
        answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 " + status) and b"Traceback" not in answer
    assert post(url, q="tea")[0] == 200


def test_who_leaves_in_the_middle_of_a_stream_gives_up_the_rest(url):
    body = json.dumps({"q": MANY, "stream": True, **LANGUAGES}).encode()
    for _ in range(3):
        with connect(url) as connection:
            connection.sendall(head(f"Content-Length: {len(body)}") + body)
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            connection.recv(100)
    until(lambda: at_work(url) == 0)
    assert post(url, q="tea")[0] == 200


def test_a_model_is_whole_once_it_is_loaded(run, tmp_path):
    """A run that is still trained deletes its older checkpoints."""
    trained = shutil.copytree(run, tmp_path / "trained")
    model = load_served(trained, None, "cpu", "best", lambda decode: decode, 4, 0.0)
    try:
        before = model.translator.translate(["green tea"])
        shutil.rmtree(trained)
        assert model.translator.translate(["green tea"]) == before
    finally:
        model.queue.close()


def test_a_run_without_a_checkpoint_yet(run, tmp_path):
    begun = shutil.copytree(run, tmp_path / "begun", ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(ValueError, match="begun") as error:
        load_served(begun, None, "cpu", "best", lambda decode: decode, 4, 0.0)
    assert "\n" not in str(error.value)


def test_a_run_that_searches_in_groups_takes_other_beams(tmp_path):
    tokenizers = make_tokenizers(joint=False)
    model = random_model(replace(MODEL, output_bias=True), tokenizers)
    run = save_run(tmp_path / "groups", model, tokenizers, beam_size=4, beam_groups=2, diversity_penalty=0.3)
    with served(make_app(run)) as url:
        assert [post(url, q="tea", beam_size=beam)[0] for beam in (4, 3)] == [200, 200]
