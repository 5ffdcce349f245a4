"""A small Hugging Face Hub on loopback, with the endpoints that pushing and loading call.

It has repositories with branches and commits, tokens, private repositories, and faults on demand.
Large files come with the commit too, not by LFS. Everything is in memory.
"""

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"  # of the fixture `hub`
FIRST_FILES = {".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"}


class Refusal(Exception):
    """An answer with a status other than 2xx."""

    def __init__(self, status, message, code=None):
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


@dataclass
class Repository:
    private: bool = False
    sdk: str | None = None
    commits: dict = field(default_factory=dict)  # hash -> files by name
    branches: dict = field(default_factory=dict)  # name -> hash
    titles: list = field(default_factory=list)

    def commit(self, branch, files, title):
        parts = [*self.branches.values(), title, *sorted(files), *map(files.get, sorted(files))]
        mark = "".join(map(repr, parts)).encode()
        sha = hashlib.sha1(mark + str(len(self.commits)).encode()).hexdigest()
        # The branch last: other threads may read at any time.
        self.commits[sha] = dict(files)
        self.branches[branch] = sha
        self.titles.append(title)
        return sha

    def resolve(self, revision):
        sha = self.branches.get(revision, revision)
        if sha not in self.commits:
            raise Refusal(404, "Revision not found", "RevisionNotFound")
        return sha


class HubServer(ThreadingHTTPServer):
    """A server that runs until it is closed; set HF_ENDPOINT to its `url`.

    Attributes:
        tokens: Token -> name of the user who may write under that name.
        repositories: (type, id) -> Repository.
        requests: (method, path, token or None) of every call.
        fault: None, or where the next pushes fail: "commit" or "connection".
    """

    daemon_threads = True

    def __init__(self, tokens):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.tokens, self.repositories = tokens, {}
        self.requests, self.fault = [], None
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def files(self, repo_id, *, revision="main", kind="model"):
        repository = self.repositories[kind, repo_id]
        return repository.commits[repository.resolve(revision)]

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    routes = (
        ("POST", r"/api/repos/create", "create"),
        ("POST", r"/api/validate-yaml", "validate_yaml"),
        ("GET", r"/api/(model|space)s/([^/]+/[^/]+)(?:/revision/(.+))?", "info"),
        ("GET", r"/api/(model|space)s/([^/]+/[^/]+)/tree/([^/]+)", "tree"),
        ("POST", r"/api/(model|space)s/([^/]+/[^/]+)/branch/(.+)", "branch"),
        ("POST", r"/api/(model|space)s/([^/]+/[^/]+)/preupload/(.+)", "preupload"),
        ("POST", r"/api/(model|space)s/([^/]+/[^/]+)/commit/(.+)", "commit"),
        ("GET", r"/(spaces/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", "resolve"),
    )

    def do_GET(self):
        self.answer("GET")

    def do_HEAD(self):
        self.answer("GET")

    def do_POST(self):
        self.answer("POST")

    def log_message(self, *args):
        pass

    def answer(self, method):
        parts = urlsplit(self.path)
        self.query = parse_qs(parts.query)
        self.body = self.read_body()
        header = self.headers.get("Authorization", "")
        self.token = header.removeprefix("Bearer ") or None
        self.server.requests.append((self.command, parts.path, self.token))
        try:
            for wanted, pattern, name in self.routes:
                match = re.fullmatch(pattern, parts.path)
                if match and method == wanted:
                    groups = [part if part is None else unquote(part) for part in match.groups()]
                    return getattr(self, name)(*groups)
            raise Refusal(404, f"no such page: {parts.path}", "EntryNotFound")
        except Refusal as refusal:
            headers = {"X-Error-Message": refusal.message}
            headers |= {"X-Error-Code": refusal.code} if refusal.code else {}
            self.send({"error": refusal.message}, refusal.status, headers)

    def read_body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def send(self, content, status=200, headers=None):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    # ---------------------------------------------------------------------- permissions

    @property
    def user(self):
        if self.token is not None and self.token not in self.server.tokens:
            raise Refusal(401, "Invalid credentials in Authorization header")
        return self.server.tokens.get(self.token)

    def readable(self, kind, repo_id):
        repository = self.server.repositories.get((kind, repo_id))
        owner = self.user == repo_id.split("/")[0]
        if repository is None or (repository.private and not owner):
            raise Refusal(404 if self.token else 401, "Repository not found", "RepoNotFound")
        return repository

    def writable(self, kind, repo_id):
        repository = self.readable(kind, repo_id)
        if self.user != repo_id.split("/")[0]:
            raise Refusal(403 if self.token else 401, "You have no write access")
        return repository

    # -------------------------------------------------------------------------- pushing

    def create(self):
        asked = json.loads(self.body)
        owner = asked.get("organization") or self.user
        if self.user is None:
            raise Refusal(401, "Invalid username or password.")
        if self.user != owner:
            raise Refusal(403, f"You don't have the rights to create a model under {owner}")
        kind, repo_id = asked.get("type", "model"), f"{owner}/{asked['name']}"
        url = f"{self.server.url}/{'spaces/' if kind == 'space' else ''}{repo_id}"
        if (kind, repo_id) in self.server.repositories:
            return self.send({"error": "You already created this repo", "url": url}, 409)
        # Version 1 of the library sends the one field, version 2 the other.
        private = bool(asked.get("private")) or asked.get("visibility") == "private"
        repository = Repository(private, asked.get("sdk"))
        repository.commit("main", FIRST_FILES, "initial commit")
        self.server.repositories[kind, repo_id] = repository
        self.send({"url": url, "name": repo_id})

    def branch(self, kind, repo_id, name):
        repository = self.writable(kind, repo_id)
        if name in repository.branches:
            raise Refusal(409, "Reference already exists")
        repository.branches[name] = repository.branches["main"]
        self.send({})

    def validate_yaml(self):
        self.send({"errors": [], "warnings": []})

    def preupload(self, kind, repo_id, revision):
        repository = self.writable(kind, repo_id)
        repository.resolve(revision)
        mode = {"uploadMode": "regular", "shouldIgnore": False}
        self.send({"files": [{**file, **mode} for file in json.loads(self.body)["files"]]})

    def commit(self, kind, repo_id, revision):
        repository = self.writable(kind, repo_id)
        if self.server.fault == "connection":
            self.close_connection = True
            return self.connection.close()
        lines = [json.loads(line) for line in self.body.splitlines()]
        head = repository.resolve(revision)
        if lines[0]["value"].get("parentCommit", head) != head:
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        files = dict(repository.commits[head])
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                files.pop(value["path"])
            if self.server.fault == "commit":
                raise Refusal(500, "Internal Error")
        sha = repository.commit(revision, files, lines[0]["value"]["summary"])
        prefix = "spaces/" if kind == "space" else ""
        url = f"{self.server.url}/{prefix}{repo_id}/commit/{sha}"
        self.send({"success": True, "commitOid": sha, "commitUrl": url})

    # -------------------------------------------------------------------------- loading

    def info(self, kind, repo_id, revision):
        repository = self.readable(kind, repo_id)
        sha = repository.resolve(revision or "main")
        answer = {"id": repo_id, "modelId": repo_id, "sha": sha, "private": repository.private}
        names = [{"rfilename": name} for name in sorted(repository.commits[sha])]
        self.send({**answer, "tags": [], "siblings": names, "sdk": repository.sdk})

    def tree(self, kind, repo_id, revision):
        repository = self.readable(kind, repo_id)
        files = repository.commits[repository.resolve(revision)]
        self.send(
            [
                {"type": "file", "path": name, "size": len(data), "oid": digest(data)}
                for name, data in sorted(files.items())
            ]
        )

    def resolve(self, prefix, repo_id, revision, name):
        repository = self.readable("space" if prefix else "model", repo_id)
        sha = repository.resolve(revision)
        headers = {"X-Repo-Commit": sha}
        if name not in repository.commits[sha]:
            refusal = {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"}
            return self.send({}, 404, {**headers, **refusal})
        data = repository.commits[sha][name]
        self.send(data, headers={**headers, "ETag": f'"{digest(data)}"'})


def digest(data):
    return hashlib.sha1(data).hexdigest()
