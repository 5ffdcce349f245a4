"""Servers, and pages in headless Chromium, for tests that skip where it is not installed."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def served(command, folder, port, **variables):
    """Start a server in a folder, and wait until what it prints names its port."""
    variables |= {"GRADIO_SERVER_PORT": str(port), "GRADIO_ANALYTICS_ENABLED": "False"}
    environment = os.environ | variables | {"PYTHONUNBUFFERED": "1"}
    with tempfile.NamedTemporaryFile() as log:
        options = {"cwd": folder, "env": environment, "stdout": log, "stderr": log}
        server = subprocess.Popen(command, **options)
        try:
            while f":{port}" not in Path(log.name).read_text():
                assert server.poll() is None, Path(log.name).read_text()
                time.sleep(0.2)
            yield
        finally:
            server.terminate()
            server.wait(timeout=30)
            print(Path(log.name).read_text())  # seen if the test fails


@contextmanager
def opened(address, *, width, before=None):
    """Open a page in a new browser; it collects its errors and the addresses that it asks for.

    Args:
        address: Address of the page.
        width: Width of the window in pixels.
        before: JavaScript that runs before that of the page.
    """
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright, which the extra browser installs"
    )
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as play:
        # Chromium's sandbox does not work as root in a container, which is a sandbox itself.
        browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 740}, locale="en-US")
        page.set_default_timeout(60_000)
        page.problems, page.requests = [], []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        if before:
            page.add_init_script(before)
        page.goto(address)
        yield page
        browser.close()
