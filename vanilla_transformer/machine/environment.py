"""Facts about the machine of a run: hardware, installed versions and precision."""

import logging
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from .cpu_threads import usable_cores

logger = logging.getLogger(__name__)

_MATRIX_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def resolve_precision(requested: str) -> str:
    """Return fp32 or bf16 as requested; for auto, bf16 where the hardware is faster in it."""
    if torch.cuda.is_available():
        # Older GPUs emulate bfloat16, slower than float32.
        faster = torch.cuda.get_device_capability() >= (8, 0)
    else:
        # Intel without AMX multiplies bfloat16 at half the speed of float32 (training/LOG.md).
        amd = processor_facts().get("vendor_id") == "AuthenticAMD"
        faster = ("avx512_bf16" if amd else "amx_bf16") in _instructions()
    chosen = requested if requested != "auto" else ("bf16" if faster else "fp32")
    if chosen == "bf16" and not faster:
        logger.warning("bf16 was requested, but this hardware is faster in fp32.")
    return chosen


def processor_facts() -> dict[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo; none on other systems."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _instructions() -> set[str]:
    return set(processor_facts().get("flags", "").split())


def hardware() -> dict[str, Any]:
    """Return the processor, the usable cores, torch's number of threads, and the GPU."""
    facts: dict[str, Any] = {
        "cpu": processor_facts().get("model name") or platform.processor() or platform.machine(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        # Matrix products are faster with these instructions, which the name may not show.
        "instructions": [flag for flag in _MATRIX_FLAGS if flag in _instructions()],
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def cpu_cores(facts: Mapping[str, Any]) -> str:
    """Describe how many of the CPU cores a run used: "2 of 8 CPU cores"."""
    cores = facts["hardware"]["cores"]
    if cores == 1:
        return "1 CPU core"
    threads = facts.get("threads") or [facts["hardware"].get("threads", cores)]
    used = sorted({min(number * facts["devices"], cores) for number in threads})
    text = f"{used[0]} to {used[-1]}" if len(used) > 1 else f"{used[0]}"
    return f"{text} CPU cores" if used[-1] == cores else f"{text} of {cores} CPU cores"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a result may depend on."""
    names = ["vanilla-transformer", "torch", "transformers", "tokenizers", "datasets", "accelerate"]
    names += ["sacrebleu", "numpy", "babel", "ctranslate2", "onnxruntime"]
    versions = {"python": platform.python_version()}
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def git_commit(*apart_from: str) -> str | None:
    """Return the git commit of the package's clone, with `-dirty` if files have changed.

    Args:
        *apart_from: Paths, relative to the clone, whose changes do not count, such as results.
    """
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        others = [f":(exclude){path}" for path in apart_from]
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *others)
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}-dirty" if changed else commit
