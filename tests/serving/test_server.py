"""The server answers as LibreTranslate does, also its own Python client."""

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest
from browser import free_port
from test_shared_batches import Upper

from vanilla_transformer.serving.shared_batches import SharedBatches

httpx = pytest.importorskip("httpx", reason="comes with the extra space")
pytest.importorskip("fastapi", reason="comes with the extra serve")
client_library = pytest.importorskip("libretranslatepy", reason="LibreTranslate's own client")

from vanilla_transformer.serving.app import create_app  # noqa: E402


def ask(*requests, cors=False):
    """Return the answers of a server that translates by capitals."""

    async def asked():
        batches = SharedBatches(Upper())
        models = dict.fromkeys([("en", "de"), ("zh", "de"), ("en", "own")], batches)
        app = create_app(models, char_limit=100, cors=cors)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            sent = (client.request(*each[:2], **each[2]) for each in requests)
            return await asyncio.gather(*sent)

    return asyncio.run(asked())


def post(path="/translate", **fields):
    return raw(json.dumps({"source": "en", "target": "de", **fields}), path=path)


def raw(content, kind="application/json", path="/translate"):
    return ("POST", path, {"content": content, "headers": {"content-type": kind}})


def form(kind="data", **fields):
    return ("POST", "/translate", {kind: {"source": "en", "target": "de", **fields}})


PARTS = "\r\n".join(
    f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}'
    for name, value in {"q": "one", "source": "en", "target": "de"}.items()
)
ENGLISH = {"confidence": 100, "language": "en"}
LANGUAGES = {"de": ("German", []), "en": ("English", ["de", "own"]), "own": ("own", [])}
LANGUAGES["zh"] = ("Chinese", ["de"])
LANGUAGES = [{"code": it, "name": name, "targets": to} for it, (name, to) in LANGUAGES.items()]
ONE, HOUSE = {"translatedText": "ONE"}, ["THIS IS THE", "HOUSE"]
ANSWERS = [
    (post(q="one"), ONE),
    (post(q=["one", "", "two"]), {"translatedText": ["ONE", "", "TWO"]}),
    (post(q="One is. Two are.\n\n three"), {"translatedText": "ONE IS. TWO ARE.\n\nTHREE"}),
    (form(q="one"), ONE),
    (form(q=["one", "two"]), {"translatedText": ["ONE", "TWO"]}),
    (raw(f"{PARTS}\r\n--x--\r\n", "multipart/form-data; boundary=x"), ONE),
    (
        post(q="This is it", source="auto"),
        {"translatedText": "THIS IS IT", "detectedLanguage": ENGLISH},
    ),
    (post(q=HOUSE, source="auto"), {"translatedText": HOUSE, "detectedLanguage": [ENGLISH] * 2}),
    (post(q=["a"], alternatives=2), {"translatedText": ["A"], "alternatives": [[]]}),
    (post(q="one", source="EN-us", target="German", format="text"), ONE),
    (post(q="one", target="own"), ONE),
    (("GET", "/health", {}), {"status": "ok"}),
    (("GET", "/languages", {}), LANGUAGES),
]
MISSING = "Invalid request: missing {} parameter"
NO_FIELDS = "Invalid request: it is neither a JSON object nor a form"
NO_TEXTS = "Invalid request: q is neither text nor a list of texts"
BAD = [
    (post(), MISSING.format("q")),
    (post("/detect"), MISSING.format("q")),
    (post(q="one", source=""), MISSING.format("source")),
    (post(q="one", target=None), MISSING.format("target")),
    (post(q="one", target="zz"), "zz is not supported"),
    (post(q="one", target="\ud800"), "\\ud800 is not supported"),
    (post(q="Ceci n'est pas une pipe, monsieur", source="auto"), "fr is not supported"),
    (post(q="one", target="zh"), "zh is not available as a target language from en"),
    (post(q="one", format="html"), "html format is not supported"),
    (post(q="x" * 101), "Invalid request: request (101) exceeds text limit (100)"),
    (post(q=[""] * 200), "Invalid request: request (199) exceeds text limit (100)"),
    (post(q={"a": 1}), NO_TEXTS),
    (post(q=["one", 2]), NO_TEXTS),
    (post(q="half a character: \ud800"), NO_TEXTS),
    (post(q="bad"), "it is bad"),
    (raw("{" * 10**5), NO_FIELDS),
    (raw("[" * 10**5), NO_FIELDS),
    (raw('["one"]'), NO_FIELDS),
    (raw("--", "multipart/form-data"), NO_FIELDS),
    (raw("x" * (2**22 + 1)), "Invalid request: it has more than 4,194,304 bytes"),
]


def test_routes_answer_as_those_of_libretranslate():
    found = ask(*(request for request, _ in ANSWERS))
    assert [each.json() for each in found] == [expected for _, expected in ANSWERS]
    assert {each.status_code for each in found} == {200}


def test_a_mistake_is_one_error_with_status_400_and_other_requests_are_answered():
    found = ask(*(each for request, _ in BAD for each in (request, post(q="one"))))
    assert [each.json() for each in found[::2]] == [{"error": error} for _, error in BAD]
    assert {each.status_code for each in found[::2]} == {400}
    assert [each.json() for each in found[1::2]] == [{"translatedText": "ONE"}] * len(BAD)


@pytest.mark.parametrize("cors", [False, True])
def test_pages_of_other_origins_are_answered_only_with_cors(cors):
    (answer,) = ask(("GET", "/health", {"headers": {"Origin": "http://page"}}), cors=cors)
    assert ("access-control-allow-origin" in answer.headers) == cors


@pytest.fixture
def server(tmp_path):
    """Start the command, and return the process and its address."""
    port = str(free_port())
    command = [sys.executable, "-m", "vanilla_transformer.cli", "serve", "everyday-en-de"]
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen([*command, "--port", port], stdout=log, stderr=log)
        while f":{port}" not in (tmp_path / "log").read_text():
            assert process.poll() is None, (tmp_path / "log").read_text()
        yield process, f"http://127.0.0.1:{port}"
        process.kill()
        assert "Traceback" not in (tmp_path / "log").read_text()


def test_the_client_of_libretranslate_is_served_beside_bad_requests_until_the_end(server):
    process, address = server
    client = client_library.LibreTranslateAPI(address)
    assert (
        client.translate("Good morning.\nI have a dog.", "en", "de")
        == "Guten Morgen!\nIch habe einen Hund."
    )
    assert client.detect("Ich habe einen Hund.")[0]["language"] == "de"
    assert client.languages()[1] == {"code": "en", "name": "English", "targets": ["de"]}
    with pytest.raises(urllib.error.HTTPError) as error:
        client.translate("Good morning.", "en", "fr")
    assert json.load(error.value) == {"error": "fr is not supported"}

    for q in ("x" * 10**8, "word " * 600):  # more bytes and tokens than allowed
        with pytest.raises(urllib.error.HTTPError, match="400"):
            client.translate(q, "en", "de")
    asked = [http.client.HTTPConnection(address.removeprefix("http://")) for _ in range(9)]
    fields = urllib.parse.urlencode({"q": "I have a dog. " * 40, "source": "en", "target": "de"})
    for connection in asked:
        kind = {"content-type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/translate", fields, kind)
    asked.pop().close()  # a client that stops
    with socket.create_connection((asked[0].host, asked[0].port)) as cut:  # and an earlier one
        cut.sendall(b"POST /detect HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nq=")
    # Connections are accepted in their order: when this one is answered, the others are running.
    assert urllib.request.urlopen(f"{address}/health").read() == b'{"status":"ok"}'
    process.send_signal(signal.SIGTERM)
    for connection in asked:
        assert json.load(connection.getresponse())["translatedText"].count("Hund.") == 40
    assert process.wait(60) == 0
