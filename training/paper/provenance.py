"""Where a measured result comes from: date, commit, machine and versions."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from vanilla_transformer.machine.environment import git_commit, hardware, versions

# Packages whose versions are named with a result.
_NAMED = ("torch", "transformers", "ctranslate2", "onnxruntime")


def provenance(*apart_from: str) -> dict[str, Any]:
    """Return the provenance of a result: date, commit, hardware and versions.

    Args:
        *apart_from: Paths relative to the clone that may differ from the commit.
    """
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": git_commit(*apart_from),
        "hardware": hardware(),
        "versions": versions(),
    }


def describe_provenance(result: Mapping[str, Any]) -> list[str]:
    """Return processor, threads, instructions, GPU, packages, commit and day of a `provenance`."""
    hardware, versions = result.get("hardware", {}), result.get("versions", {})
    parts = [str(hardware.get("cpu", "unknown processor"))]
    threads = hardware.get("threads")
    parts += ["1 thread" if threads == 1 else f"{threads} threads"] if threads else []
    parts += [", ".join(hardware["instructions"])] if hardware.get("instructions") else []
    parts += [hardware["gpu"]] if "gpu" in hardware else []
    parts += [f"{name} {versions[name]}" for name in _NAMED if name in versions]
    parts.append(f"commit {str(result.get('commit'))[:12]}")
    parts.append(str(result.get("date"))[:10])
    return parts
