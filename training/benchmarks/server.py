"""Measure `vanilla-transformer serve` beside a plain loop over `pipeline`.

    python training/benchmarks/server.py

Clients send one sentence per request and wait for its answer. The loop, and the server with each
number of clients, take turns; the server is a process of its own, whose CPU time is counted without
that of the clients. All figures are medians of the rounds. Afterwards, the server's memory is read
while it answers many requests. Needs `pip install ".[serve]"` in the clone.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

import torch
from report import write_results
from transformers import pipeline

from vanilla_transformer import pretrained

FOLDER = Path(__file__).parent
SENTENCES = FOLDER.parent / "pretrained" / "sentences.txt"
CLIENTS = (1, 8, 32)


@contextmanager
def served(model: str) -> Iterator[tuple[int, int]]:
    """Run the server until the block ends; yield its process id and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vanilla_transformer.cli", "serve", model, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while server.poll() is None:
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        yield server.pid, port
    finally:
        server.terminate()
        server.wait()


def ask(port: int, sentences: Sequence[str]) -> list[str]:
    """Return the translations of sentences, which one client sends one after another."""
    connection, kind = HTTPConnection("127.0.0.1", port), {"Content-Type": "application/json"}
    answers = []
    for sentence in sentences:
        fields = {"q": sentence, "source": "en", "target": "de"}
        connection.request("POST", "/translate", json.dumps(fields), kind)
        answers.append(json.load(connection.getresponse())["translatedText"])
    return answers


def ask_all(port: int, sentences: Sequence[str], clients: int) -> list[str]:
    """Return the translations of sentences, divided among clients that send at the same time."""
    with ThreadPoolExecutor(clients) as pool:
        parts = list(pool.map(lambda first: ask(port, sentences[first::clients]), range(clients)))
    answers = [""] * len(sentences)
    for first, part in enumerate(parts):
        answers[first::clients] = part
    return answers


def cpu_seconds(process: int) -> float:
    """Return the CPU time that a process has used, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> float:
    """Return the memory of a process in MiB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return round(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024, 1)


def main() -> None:
    """Measure the server and the loop over `pipeline`, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="everyday-en-de")
    parser.add_argument("--sentences", type=int, default=100, help="sentences of a turn")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=20_000, help="sent while memory is read")
    parser.add_argument("--output", type=Path, default=FOLDER / "results" / "server.json")
    options = parser.parse_args()
    known = SENTENCES.read_text(encoding="utf-8").splitlines()
    sentences = (known * (options.requests // len(known) + 1))[: options.sentences]
    translate = pipeline("translate", model=pretrained(options.model))
    with served(options.model) as (process, port):
        contenders: dict[str, Callable[[], list[str]]] = {
            "loop over pipeline": lambda: [translate(it)[0]["translation_text"] for it in sentences]
        }
        for clients in CLIENTS:
            name = f"server, {clients} client{'s' if clients > 1 else ''}"
            contenders[name] = lambda clients=clients: ask_all(port, sentences, clients)
        texts = {name: run() for name, run in contenders.items()}  # also warms up
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        computed: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(options.rounds):
            names = list(contenders)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                working = process if name.startswith("server") else os.getpid()
                start, before = time.perf_counter(), cpu_seconds(working)
                contenders[name]()
                seconds[name].append(time.perf_counter() - start)
                computed[name].append(cpu_seconds(working) - before)
        held, step = [[0, memory(process)]], options.requests // 10
        for number in range(10):
            ask_all(port, (known * (step // len(known) + 1))[:step], 8)
            held.append([(number + 1) * step, memory(process)])
    first = next(iter(contenders))
    rows = []
    for name, own in seconds.items():
        ratios = [base / mine for base, mine in zip(seconds[first], own, strict=True)]
        same = sum(map(str.__eq__, texts[name], texts[first])) / len(sentences)
        speed = [round(len(sentences) / median(own), 1), round(median(ratios), 2)]
        cpu = round(1000 * median(computed[name]) / len(sentences), 1)
        rows.append([name, *speed, cpu, f"{same:.1%}".replace("%", " %")])
    columns = ["Contender", "sentences/s", "speed / loop", "CPU ms / sentence", "same as the loop"]
    write_results(
        options.output,
        "Serving: requests of several clients",
        data=f"{SENTENCES.name}, {len(sentences)} sentences in a turn, {options.model}",
        settings={"rounds": options.rounds, "threads": torch.get_num_threads()},
        tables=[
            {"columns": columns, "rows": rows},
            {
                "title": "Memory of the server after requests of 8 clients",
                "columns": ["Requests", "MiB"],
                "rows": held,
            },
        ],
        seconds=seconds,
        cpu_seconds=computed,
    )


if __name__ == "__main__":
    main()
