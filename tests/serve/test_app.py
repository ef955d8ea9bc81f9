"""What the paths answer: LibreTranslate's, and our own; and what they refuse."""

import copy
import html
import json
import time
import warnings
from dataclasses import replace

import pytest

pytest.importorskip("fastapi", reason="needs mt's extra serve")
from starlette.testclient import TestClient

from mt.serve.limits import Limits
from mt.translation.translator import load_translator
from tests.export.small_runs import sentences
from tests.serve.small_server import LANGUAGES, load, make_app, make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture(scope="module")
def translator(run):
    return load_translator(run, "cpu")


@pytest.fixture
def client_of(run):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so small a model leaves translations unfinished
        clients = []

        def make(limits=Limits(), **options):  # noqa: B008
            client = TestClient(make_app(run, limits, **options), raise_server_exceptions=False)
            clients.append(client.__enter__())
            return client

        yield make
        for client in clients:
            client.__exit__(None, None, None)


@pytest.fixture
def client(client_of):
    return client_of()


def alone(translator, *texts, beam_size=None):
    """Returns what each text gives when nothing else is translated."""
    own = copy.copy(translator)
    own.decode = replace(own.decode, beam_size=beam_size or own.decode.beam_size)
    return [own.translate([text])[0].strip() for text in texts]


def ask(client, **body):
    return client.post("/translate", json={**LANGUAGES, **body})


def test_a_text_and_a_list(client, translator):
    texts = sentences(8)
    expected = alone(translator, *texts)
    assert len(set(expected)) > 3
    assert ask(client, q=texts[0]).json() == {"translatedText": expected[0]}
    assert ask(client, q=texts).json() == {"translatedText": expected}
    assert ask(client, q=[]).json() == {"translatedText": []}
    assert ask(client, q="").json() == {"translatedText": ""}


def test_a_form_is_as_good_as_json(client, translator):
    expected = {"translatedText": alone(translator, "green tea")[0]}
    assert client.post("/translate", data={**LANGUAGES, "q": "green tea"}).json() == expected
    fields = {name: (None, value) for name, value in {**LANGUAGES, "q": "green tea"}.items()}
    assert client.post("/translate", files=fields).json() == expected
    assert client.post("/translate?source=en&target=de", data={"q": "green tea"}).json() == expected
    two = client.post("/translate", data={**LANGUAGES, "q": ["tea", "rice"]}).json()["translatedText"]
    assert two == alone(translator, "tea", "rice")


def test_lines_and_what_is_no_word_stay(client):
    found = ask(client, q="green tea\n\n  12:30\nhttps://example.org/\n").json()["translatedText"].split("\n")
    assert [found[1], found[2], found[3], found[4]] == ["", "  12:30", "https://example.org/", ""]


def test_html(client, translator):
    (word,) = alone(translator, "tea")
    found = ask(client, q='<p>tea</p><code>x < 1</code><meta charset="latin-1"><p>é</p>', format="html").json()
    assert found["translatedText"].startswith(f"<p>{html.escape(word, quote=False)}</p><code>x < 1</code><meta")
    text = ask(client, q="<script>alert(1)</script>").json()["translatedText"]
    assert "<script>" in text or "script" not in text  # as text it is text


def test_alternatives_differ(client, translator):
    found = ask(client, q="green tea", alternatives=2).json()
    expected = [each.text.strip() for each in translator.translate_n_best(["green tea"], 3)[0]]
    assert [found["translatedText"], *found["alternatives"]] == expected
    of_list = ask(client, q=["green tea", "rice"], alternatives=2).json()
    assert of_list["alternatives"][0] == expected[1:] and len(of_list["alternatives"]) == 2


def test_beam_and_glossary_change_what_they_should(client, translator):
    text = "they read good books"
    greedy = ask(client, q=text, beam_size=1).json()["translatedText"]
    assert [greedy] == alone(translator, text, beam_size=1)
    held = ask(client, q=text, glossary={"books": "Reis", "rice": "Tee"}).json()["translatedText"]
    assert "Reis" in held
    assert [ask(client, q=text).json()["translatedText"]] == alone(translator, text)


def test_a_stream_is_the_same_in_parts(client):
    text = "They read good books. I love green tea!\n\n  Rice is never late. " * 3
    whole = ask(client, q=text).json()["translatedText"]
    with client.stream("POST", "/translate", json={**LANGUAGES, "q": text, "stream": True}) as answer:
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        pairs = [json.loads(line) for line in answer.iter_lines()]
    assert "".join(pair["source"] for pair in pairs) == text
    assert "".join(pair["translation"] for pair in pairs) == whole
    assert len(pairs) >= 9


def test_languages_settings_health(client):
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == Limits().max_characters and settings["keyRequired"] is False
    assert settings["language"] == {
        "source": {"code": "en", "name": "English"},
        "target": {"code": "de", "name": "German"},
    }
    assert settings["models"] == [{"name": "small", "source": "en", "target": "de", "details": True}]
    assert client.get("/health").json() == {"status": "ok"}


def test_detection(client, translator):
    sure = client.post("/detect", json={"q": "The weather is very nice today, is it not?"}).json()
    assert sure[0]["language"] == "en" and sure[0]["confidence"] > 90
    other = client.post("/detect", data={"q": "Das Wetter ist heute wirklich sehr schön."}).json()
    assert other == [{"language": "en", "confidence": other[0]["confidence"]}] and other[0]["confidence"] < 10
    found = ask(client, q="they drink green tea every day", source="auto").json()
    assert found["detectedLanguage"]["language"] == "en"
    assert [found["translatedText"]] == alone(translator, "they drink green tea every day")
    several = ask(client, q=["green tea", "das Wetter ist schön"], source="auto").json()
    assert [each["language"] for each in several["detectedLanguage"]] == ["en", "en"]
    assert ask(client, q=[], source="auto").json() == {"translatedText": [], "detectedLanguage": []}


def test_words_that_can_follow(client, translator):
    body = {**LANGUAGES, "q": "they drink tea", "prefix": "sie", "count": 3}
    found = client.post("/alternatives", json=body).json()
    expected = translator.alternatives("they drink tea", "sie", 3)
    assert [(each["word"], each["translation"]) for each in found] == [(a.word, a.translation) for a in expected]
    assert len(found) == 3 and all(each["translation"].startswith("sie") for each in found)


def test_details_of_translations(client):
    body = {**LANGUAGES, "q": ["they drink tea", ""], "translations": ["sie trinken Tee", ""]}
    found = client.post("/details", json=body).json()
    assert [len(each["target"]) for each in found] == [3, 0]
    assert client.post("/details", json={**body, "translations": ["x"]}).json() == {
        "error": "translations: must be as many as q, 2; got 1"
    }


WRONG = [
    (b"{", "the body: Invalid JSON"),
    (b"\xff\xfe", "the body: Invalid JSON"),
    (b"[" * 100_000, "the body: Invalid JSON: recursion limit exceeded"),
    (b"[]", "the body: "),
    (b"", "Invalid request: missing source parameter"),
    (b'{"source": "en", "target": "de"}', "Invalid request: missing q parameter"),
    (b'{"q": null, "source": "en", "target": "de"}', "q: must be a text or a list of texts"),
    (b'{"q": 7, "source": "en", "target": "de"}', "q: must be a text or a list of texts"),
    (b'{"q": {}, "source": "en", "target": "de"}', "q: must be a text or a list of texts"),
    (b'{"q": ["a", null], "source": "en", "target": "de"}', "q: must be a text or a list of texts"),
    (b'{"q": "\\ud800", "source": "en", "target": "de"}', "the body: Invalid JSON"),
]


@pytest.mark.parametrize(("body", "reason"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_wrong_bodies(client, body, reason):
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"] and answer.json()["error"].startswith(reason)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"source": "xx"}, "xx is not supported"),
        ({"source": "de", "target": "en"}, "en is not available as a target language from de; there are: en to de"),
        ({"format": "docx"}, "format: "),
        ({"beam_size": 10_000}, "Invalid request: 'beam_size' parameter must be <= 10"),
        ({"beam_size": 0}, "beam_size: "),
        ({"alternatives": 10_000}, "Invalid request: 'alternatives' parameter must be <= 9"),
        ({"alternatives": -1}, "alternatives: "),
        ({"max_len": -1}, "max_len: there is no such parameter"),
        ({"q": "x" * 10_001}, "Invalid request: request (10001) exceeds text limit (10000)"),
        ({"q": ["a"] * 501}, "Invalid request: request (501) exceeds batch limit (500)"),
        (
            {"glossary": {"tea": 3}},
            'glossary: must be an object with a text as target term for each source term, such as {"china": "中国"}',
        ),
        ({"glossary": {"tea": " "}}, "glossary: a term is empty"),
        ({"q": "a b c d e", "glossary": dict(zip("abcde", "ABCDE", strict=True))}, "glossary: a sentence has 5 of its"),
        ({"stream": True, "q": ["a"]}, "stream: is for one text"),
        ({"source": "auto", "target": "xx"}, "xx is not available as a target language"),
    ],
)
def test_what_is_refused(client, change, reason):
    answer = ask(client, **{"q": "tea", **change})
    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert answer.json()["error"].startswith(reason)


def test_paths_and_methods_that_are_not_there(client):
    assert (client.get("/nowhere").status_code, client.get("/nowhere").json()) == (404, {"error": "Not Found"})
    assert (client.get("/translate").status_code, client.get("/translate").json()) == (
        405,
        {"error": "Method Not Allowed"},
    )


def test_a_body_too_large(client_of):
    client = client_of(Limits(max_body_bytes=1000))
    assert ask(client, q="x" * 2000).status_code == 413
    taken = []

    def endless():
        for _ in range(1000):
            taken.append(1)
            yield b"x" * 100

    answer = client.post("/translate", content=endless(), headers={"content-type": "application/json"})
    assert answer.status_code == 413 and "1000 bytes" in answer.json()["error"]
    assert ask(client, q="tea").status_code == 200


def test_keys(client_of):
    client = client_of(keys=["first", "zwölf"])
    assert (ask(client, q="tea").status_code, ask(client, q="tea", api_key="no").status_code) == (403, 403)
    assert ask(client, q="tea", api_key="no").json() == {"error": "Invalid API key"}
    assert ask(client, q="tea", api_key="zwölf").status_code == 200
    for headers in ({"Authorization": "bearer first"}, {"Authorization": "Bearer zwölf".encode()}):
        assert client.post("/translate", json={**LANGUAGES, "q": "tea"}, headers=headers).status_code == 200
    headers = {"Authorization": "Bearer first"}
    assert client.post("/translate", json={**LANGUAGES, "q": "tea"}, headers=headers).status_code == 200
    assert client.post("/detect", json={"q": "tea"}).status_code == 403
    for path in ("/details", "/alternatives"):
        body = {**LANGUAGES, "q": ["a"], "translations": ["b"]} if path == "/details" else {**LANGUAGES, "q": "a"}
        assert client.post(path, json=body).status_code == 403
    assert client.get("/languages").status_code == client.get("/").status_code == 200
    assert client.get("/frontend/settings").json()["keyRequired"] is True


def test_who_comes_too_often(client_of):
    client = client_of(Limits(requests_per_minute=2))
    assert [ask(client, q="tea").status_code for _ in range(3)] == [200, 200, 429]
    answer = ask(client, q="tea")
    assert int(answer.headers["retry-after"]) > 1 and answer.json()["error"].startswith("Slowdown: 2 per 1 minute")


def test_a_failure_is_no_traceback(client_of, run, monkeypatch):
    models = load(run)
    client = client_of(models=models)
    monkeypatch.setattr(models.all[0].translator, "translate_n_best", None)
    answer = ask(client, q="tea")
    assert (answer.status_code, answer.json()) == (500, {"error": "Internal error"})


def test_other_pages_may_ask_only_where_they_are_let(client_of):
    headers = {"Origin": "https://a.org"}
    closed = client_of().get("/languages", headers=headers)
    open_ = client_of(origins=["https://a.org"]).get("/languages", headers=headers)
    assert "access-control-allow-origin" not in closed.headers
    assert open_.headers["access-control-allow-origin"] == "https://a.org"


def test_metrics(client):
    ask(client, q="green tea")
    ask(client, q="x" * 20_000)
    client.get("/a" + str(time.time()))
    lines = client.get("/metrics").text.splitlines()
    assert 'mt_requests_total{path="/translate",status="200"} 1.0' in lines
    assert 'mt_requests_total{path="/translate",status="400"} 1.0' in lines
    assert 'mt_requests_total{path="other",status="404"} 1.0' in lines
    assert "mt_characters_total 9.0" in lines
    assert 'mt_waiting_sentences{model="small"} 0.0' in lines


def test_the_page_is_whole_and_has_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    seen, waiting = set(), ["/", "/docs"]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = client.get(path)
        assert answer.status_code == 200, path
        text = answer.text
        assert (
            "innerHTML" not in text
            and "insertAdjacentHTML" not in text
            and "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        )
        assert "https://" not in text
        names = ["page.js", "style.css", "icon.svg", "docs.js", "api.js", "menu.js", "segments.js"]
        waiting += [f"/page/{name}" for name in names if name in text]
    assert len(seen) == 9


def test_the_api_is_described(client):
    paths = client.get("/openapi.json").json()["paths"]
    schema = paths["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["required"]) == {"q", "source", "target"} and "glossary" in schema["properties"]
    assert {"/languages", "/detect", "/health", "/metrics", "/frontend/settings", "/details"} <= set(paths)


def test_a_long_term_and_a_long_sentence_are_refused_at_once(client):
    answer = ask(client, q="tea", glossary={"tea": "x" * 3000})
    assert answer.status_code == 400 and "tokens; the most is 40" in answer.json()["error"]
    answer = client.post("/alternatives", json={**LANGUAGES, "q": "tea " * 2000})
    assert answer.status_code == 400 and answer.json()["error"].startswith("q: has ")


def test_a_form_in_another_encoding_is_refused(client):
    part = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    fields = "".join(part.format(*field) for field in (("q", "caf\xe9"), *LANGUAGES.items()))
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    for encoding, status in (("utf-8", 200), ("latin-1", 400)):
        assert (
            client.post("/translate", content=f"{fields}--x--\r\n".encode(encoding), headers=headers).status_code
            == status
        )


def test_a_path_with_a_slash_at_its_end_is_another(client):
    assert client.post("/translate/", json={**LANGUAGES, "q": "tea"}).status_code == 404


def test_keys_are_not_guessed_one_after_the_other(run):
    with TestClient(make_app(run, Limits(requests_per_minute=3), keys=["first"])) as client:
        found = [ask(client, q="tea", api_key=f"no{number}").status_code for number in range(5)]
        assert found == [403, 403, 403, 429, 429]
        assert ask(client, q="tea", api_key="first").status_code == 200
