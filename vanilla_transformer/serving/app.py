"""The routes of LibreTranslate's API.

Every mistake in a request is answered by `{"error": ...}` with status 400. Names and messages are
LibreTranslate's, because clients compare and show them.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ..data.languages import english_name, language_of, likely_languages
from ..errors import RequestError
from ..storage.reading import printable, shortened
from ..texts.sentences import join_sentences, split_sentences
from .shared_batches import SharedBatches

_BODY_BYTES = 2**22  # maximum size of a request


def create_app(
    models: Mapping[tuple[str, str], SharedBatches], *, char_limit: int, cors: bool = False
) -> FastAPI:
    """Return the web application that answers LibreTranslate's requests with the models.

    Args:
        models: Translators of single sentences, by the codes of source and target.
        char_limit: Maximum number of characters of a request.
        cors: Whether web pages of any origin may send requests.
    """
    app, codes = FastAPI(openapi_url=None), sorted({code for pair in models for code in pair})
    if cors:
        app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_headers=["*"])

    @app.exception_handler(ClientDisconnect)  # nobody reads the response; keep the log short
    @app.exception_handler(RequestError)
    async def refuse(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 400)

    def detected(texts: list[str]) -> list[dict[str, Any]]:
        likely = likely_languages("\n".join(texts), codes)
        return [{"confidence": round(100 * share), "language": code} for code, share in likely]

    def code_of(fields: Mapping[str, Any], name: str) -> str:
        if not fields.get(name):
            raise RequestError(f"Invalid request: missing {name} parameter")
        given = _shown(fields[name])
        code = language_of(given) or given
        if code not in codes:
            raise RequestError(f"{given} is not supported")
        return code

    async def translated(text: str, pair: tuple[str, str]) -> str:
        lines = [split_sentences(line, pair[0]) for line in text.split("\n")]
        found = iter(await models[pair].translate([it for line in lines for it in line]))
        return "\n".join(join_sentences([next(found) for _ in line], pair[1]) for line in lines)

    @app.post("/translate")
    async def translate(request: Request) -> dict[str, Any]:
        fields = await _fields(request)
        texts = _texts(fields, char_limit)
        if (form := fields.get("format") or "text") != "text":
            raise RequestError(f"{_shown(form)} format is not supported")
        is_auto = fields.get("source") == "auto"
        found = detected(texts)[0] if is_auto else {}
        source = code_of({**fields, "source": found["language"]} if is_auto else fields, "source")
        pair = (source, code_of(fields, "target"))
        if pair not in models:
            raise RequestError(f"{pair[1]} is not available as a target language from {source}")
        answer: dict[str, list[Any]] = {
            "translatedText": await asyncio.gather(*(translated(text, pair) for text in texts))
        }
        if is_auto:
            answer["detectedLanguage"] = [found] * len(texts)
        if str(fields.get("alternatives") or 0) != "0":  # clients accept fewer than they request
            answer["alternatives"] = [[]] * len(texts)
        several = isinstance(fields["q"], list)
        return {name: each if several else each[0] for name, each in answer.items()}

    @app.post("/detect")
    async def detect(request: Request) -> list[dict[str, Any]]:
        return detected(_texts(await _fields(request), char_limit))

    @app.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        targets = {code: [pair[1] for pair in models if pair[0] == code] for code in codes}
        return [{"code": it, "name": english_name(it), "targets": targets[it]} for it in codes]

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


async def _fields(request: Request) -> dict[str, Any]:
    """Return the fields of a request, JSON or a form; a field that a form repeats is a list."""
    body = bytearray()
    async for chunk in request.stream():  # read it all: only then do clients read a response
        if len(body) <= _BODY_BYTES:
            body += chunk
    if len(body) > _BODY_BYTES:
        raise RequestError(f"Invalid request: it has more than {_BODY_BYTES:,} bytes")
    try:
        if "json" in request.headers.get("content-type", ""):
            found = json.loads(body)
            return {**found}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": bytes(body)}

        form = await Request(request.scope, receive).form(max_part_size=_BODY_BYTES)
        fields = {name: form.getlist(name) for name in form}
    except (HTTPException, RecursionError, TypeError, ValueError) as error:
        raise RequestError("Invalid request: it is neither a JSON object nor a form") from error
    return {name: each if len(each) > 1 else each[0] for name, each in fields.items()}


def _shown(value: object) -> str:
    return printable(shortened(str(value), 40))


def _texts(fields: Mapping[str, Any], char_limit: int) -> list[str]:
    """Return the texts of a request, checked before anything is done with them."""
    if not (given := fields.get("q")):
        raise RequestError("Invalid request: missing q parameter")
    texts = given if isinstance(given, list) else [given]
    try:
        whole = "\n".join(texts)
        whole.encode()
    except (TypeError, UnicodeEncodeError):
        raise RequestError("Invalid request: q is neither text nor a list of texts") from None
    if len(whole) > char_limit:
        size = f"request ({len(whole)}) exceeds text limit ({char_limit})"
        raise RequestError(f"Invalid request: {size}")
    return texts
