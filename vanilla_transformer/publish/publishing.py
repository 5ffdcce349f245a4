"""Publish a model directory on the Hub: check it, render its card, and push both in one commit.

The files to push are copied into a new folder from a list of what may be published, so that nothing
else of a run (optimizer, arguments, checkpoints, paths) ever leaves the machine. A process that
knows nothing of the run loads that folder first.
"""

import json
import logging
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitInfo
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import RequestError
from ..generation_limits import HOSTS_LENGTH
from ..recipes.options import Regularization, names_of
from ..storage.atomic import copy_files, folder_written_aside, temporary_folder, write_json
from ..storage.identity import changed_since_scored, config_identity, differences
from ..storage.metrics import Metrics
from ..storage.reading import own_file, read_json
from ..storage.run_files import CURVES, HISTORY, METRICS
from ..storage.saved_model import (
    CHOOSE_CODE,
    CONFIG,
    GENERATION_CONFIG,
    MODEL,
    SETTINGS,
    TOKENIZER_SETTINGS,
    WEIGHTS,
    WEIGHTS_INDEX,
    ModelConfig,
    load_saved_model,
    load_saved_tokenizer,
    weight_files,
)
from ..target_tokenizer import TARGET_TOKENIZER
from ..visualization import attention_weights, plot_attention, save_figure
from .card import NATIVE, STOCK, WITH_CODE, card_facts, render_card
from .hub import check_repo_id, plan_files, push_folder
from .remote_code import code_files, embed_code

logger = logging.getLogger(__name__)

_CARD = ("README.md", METRICS, HISTORY, "*.png")  # the card, its pictures, and their figures
# Files of an earlier push that this one replaces or deletes, above all code.
_REPLACED = (
    *(*MODEL, "model-*-of-*.safetensors", CURVES, HISTORY),
    *("*.py", "custom_generate/*", "pytorch_model*.bin", "training_args.bin"),
    "attention-[0-9].png",
)
# Settings of a model or tokenizer that hold paths, in files of transformers 4, or choose code.
_PRIVATE = (
    *("_name_or_path", "name_or_path", "special_tokens_map_file", "tokenizer_file"),
    *CHOOSE_CODE,  # such as code that is not pushed
)
# Environment variables that may hold a secret or the place of one.
_SECRET = re.compile(r"TOKEN|SECRET|PASS|CREDENTIAL|AUTH|API|KEY|NETRC|^GIT_|^HF_|^HUGGING|^XDG_")
_RATES = names_of(Regularization)  # fields of a config that change nothing outside of training
_LOGITS_TOLERANCE = 1e-4  # a stock model computes in another order


@dataclass(frozen=True)
class Publication:
    """What is published: file sizes in bytes by name; `commit` is None if nothing was pushed."""

    files: dict[str, int]
    form: str
    commit: CommitInfo | None


def publish(
    directory: str | os.PathLike[str],
    repo_id: str,
    *,
    license: str | None,
    data_license: str | None = None,
    data_source: str | None = None,
    run: str | os.PathLike[str] | None = None,
    with_code: bool = False,
    push: bool = False,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
    card_dir: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
) -> Publication:
    """Check a model, render its card, and push both in one commit, or write them into a folder.

    Args:
        directory: Run directory, averaged model or Marian export, with its tokenizer.
        repo_id: `user/name` on the Hub.
        license: Licence of the model, as the Hub names it, such as `cc-by-4.0`.
        data_license: Licence of the training pairs, in words. None takes the recipe's.
        data_source: Origin of the training pairs, in words. None takes the recipe's.
        run: Run directory that the model comes from, if `directory` is not one itself.
        with_code: Whether to push the model's code too, for `trust_remote_code=True`.
        push: Whether to push. False does everything else.
        private: Make the repository private if it is created.
        revision: Branch, created if missing. None takes `main`.
        token: Access token of the Hub. None takes HF_TOKEN or that of `hf auth login`.
        card_dir: New folder for a copy of the card with pictures and metrics. Without `push`, the
            card names the directory of the model, and nothing on the Hub.
        output: New folder for all the files, to deploy the model without the Hub. Without `push`,
            the card names this folder. Both may be what an earlier call wrote.

    Returns:
        Files, form and commit.

    Raises:
        ValueError: The model cannot be published as it is, or the Hub refuses; the message says
            what to do. No file on the Hub has changed then; a new repository or branch may have
            been created.
    """
    source, metrics_run = Path(directory), None if run is None else Path(run)
    check_repo_id(repo_id)
    form = _form(source, with_code=with_code)
    facts = card_facts(
        source,
        run=metrics_run,
        repo_id=repo_id,
        revision=revision,
        place=None if push else Path(output).name if output else str(source),
        form=form,
        license=license,
        data_license=data_license,
        data_source=data_source,
    )
    if metrics_run is not None and (metrics_run / CONFIG).is_file() and form != STOCK:
        _check_is_of_run(source, metrics_run)
    model, tokenizer = load_saved_model(source), load_saved_tokenizer(source)
    _check_scored_model(source)
    with temporary_folder() as temporary:
        folder = temporary / repo_id.rpartition("/")[2]
        stage_model(source, folder, with_code=with_code)
        _try_out(model, tokenizer, folder, facts, run=metrics_run)
        changed = changed_since_scored(metrics_run or source, "report_files")
        for name in (CURVES, HISTORY):  # the picture, and the figures to draw it from again
            path = (metrics_run or source) / name
            if path.is_file() and name in changed:
                raise RequestError(f"{path} changed after the training; restore or delete it.")
            if path.is_file():
                shutil.copyfile(own_file(path), folder / name)
        facts["published"]["curves"] = (folder / CURVES).is_file()
        if with_code and not push and output is None:
            facts["published"]["form"] = NATIVE  # the code is not in the directory that it names
        write_json(folder / METRICS, facts)
        render_card(facts).save(folder / "README.md")
        for written, patterns in ((card_dir, _CARD), (output, ("**/*",))):
            if written is not None:
                with folder_written_aside(Path(written)) as aside:
                    for pattern in patterns:
                        copy_files(folder, aside, pattern)
        commit = None
        if push:
            commit = push_folder(
                folder,
                repo_id,
                private=private,
                revision=revision,
                token=token,
                message=f"Publish {repo_id.rpartition('/')[2]}",
                replaces=_REPLACED,
            )
        return Publication(plan_files(folder), form, commit)


def _check_is_of_run(source: Path, run: Path) -> None:
    """Refuse a model whose sizes or pieces are not those of a run."""
    configs = [config_identity(read_json(folder / CONFIG, ModelConfig)) for folder in (run, source)]
    changed = differences(
        *({name: value for name, value in it.items() if name not in _RATES} for it in configs)
    )
    first, second = (load_saved_tokenizer(folder).get_vocab() for folder in (run, source))
    if first != second:
        changed.append("the vocabulary changed")
    if changed:
        raise RequestError(
            f"{source} is no model of the run {run} ({'; '.join(changed)}); give --run the "
            "directory of the run that trained it."
        )


def _check_scored_model(directory: Path) -> None:
    """Refuse a run whose model is not the one that its metrics were measured on.

    Its tokenizer and its search settings count too.
    """
    if changed := changed_since_scored(directory):
        raise RequestError(
            f"{directory / changed[0]} changed after {directory / METRICS} was written, whose "
            "scores a card would show; move the model to a folder of its own, score it there "
            "(vanilla-transformer evaluate FOLDER --pair S-T --test-file FILE --output "
            f"FOLDER/{METRICS}), and publish that folder with --run {directory}."
        )


def _form(directory: Path, *, with_code: bool) -> str:
    model_type = read_json(directory / CONFIG, ModelConfig).get("model_type")
    if model_type == "vanilla_transformer":
        return WITH_CODE if with_code else NATIVE
    if with_code:
        raise RequestError(
            f"{directory} holds a {model_type} model, whose code is in transformers already; leave "
            "--with-code out."
        )
    if TARGET_TOKENIZER in read_json(directory / TOKENIZER_SETTINGS):
        raise RequestError(
            f"{directory} has a tokenizer for each side, and transformers alone decodes with the "
            "source's; publish the model that was exported."
        )
    return STOCK


def stage_model(source: Path, folder: Path, *, with_code: bool) -> None:
    """Copy the files to publish, and undo what training changed in the config."""
    folder.mkdir(parents=True)
    weights = weight_files(source)  # none is in a format that can run code
    index = [source / WEIGHTS_INDEX] if weights != [source / WEIGHTS] else []
    settings = [source / name for name in SETTINGS if (source / name).is_file()]
    for path in (*settings, *index, *weights):
        shutil.copyfile(own_file(path), folder / path.name)
    config = _public_settings(folder / CONFIG)
    config["use_cache"] = True  # the Trainer switches it off
    write_json(folder / CONFIG, config, sort_keys=True)
    write_json(folder / TOKENIZER_SETTINGS, _public_settings(folder / TOKENIZER_SETTINGS))
    if (folder / GENERATION_CONFIG).is_file():  # else config.json has its fields
        generation = _public_settings(folder / GENERATION_CONFIG)
        generation.pop("_from_model_config", None)
        if generation.get("max_length") == HOSTS_LENGTH:  # Seq2SeqTrainer fills it in
            generation.pop("max_length")
        write_json(folder / GENERATION_CONFIG, generation, sort_keys=True)
    if with_code:
        embed_code(folder)
        logger.info("With the code: %s.", ", ".join(path.name for path in code_files()))


def _public_settings(path: Path) -> dict[str, Any]:
    return {name: value for name, value in read_json(path).items() if name not in _PRIVATE}


def _try_out(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    facts: Metrics,
    *,
    run: Path | None,
) -> None:
    """Load the folder in a clean process; add pictures to it and the translations to the facts."""
    published, source = facts["published"], str(model.name_or_path)
    texts = [sample["source"] for sample in published["samples"]]
    answer, logits = load_in_clean_process(folder, texts, form=published["form"], name=source)
    expected = _logits(model, tokenizer, texts[0])
    if not _close(logits, expected):
        raise RequestError(
            f"the files to publish do not compute what {source} computes; restore its original "
            "config.json."
        )
    if run is not None and published["scores_of_run"]:
        _check_scored_model(run)
        measured = _logits(load_saved_model(run), load_saved_tokenizer(run), texts[0])
        if not _close(measured, expected):
            raise RequestError(
                f"the metrics of {run} were measured on another model than {source}; score it: "
                f"vanilla-transformer evaluate {source} --pair S-T --test-file FILE --output "
                f"{Path(source) / METRICS}"
            )
    for sample, text in zip(published["samples"], answer["translations"], strict=True):
        sample["translation"] = text
    _draw(model, tokenizer, folder, facts)


def load_in_clean_process(
    folder: Path, texts: Sequence[str], *, form: str, name: str | None = None
) -> tuple[dict[str, Any], torch.Tensor]:
    """Load a folder and translate with it in an offline process that knows nothing of the run.

    Only a model in native form may import this package there.

    Args:
        folder: Folder with model and tokenizer.
        texts: Texts to translate. The logits are for the first.
        form: `card.NATIVE`, `WITH_CODE` or `STOCK`.
        name: Name of the folder in errors.

    Returns:
        A dict with the class of the `model` and the `translations`, and the logits (1, T, V).

    Raises:
        ValueError: The folder does not load, with the reason in one line.
    """
    with temporary_folder() as home:
        request = {
            "folder": str(folder.resolve()),
            "package": str(Path(__file__).resolve().parents[2]) if form == NATIVE else None,
            "trust_remote_code": form == WITH_CODE,
            "texts": list(texts),
            "logits": str(home / "logits.safetensors"),
            "answer": str(home / "answer.json"),
        }
        (home / "request.json").write_text(json.dumps(request), encoding="utf-8")
        program = Path(__file__).with_name("clean_process.py")
        command = [sys.executable, "-P", str(program), str(home / "request.json")]
        run_apart(command, home, problem=f"{name or folder} does not load in a clean process")
        answer = read_json(home / "answer.json")
        return answer, load_file(home / "logits.safetensors")["logits"]


def run_apart(
    command: Sequence[str], home: Path, *, problem: str, cwd: Path | None = None, **variables: str
) -> None:
    """Run a process that loads a model, offline and with its own home directory.

    It has no token, no cache and no standard input, whatever the model's code looks for.

    Args:
        command: Program and arguments.
        home: Directory that is the process's home.
        problem: What it means if the process fails, as the beginning of the error.
        cwd: Directory to run in. None takes `home`.
        **variables: Environment variables, added to those of this process that are not secret.

    Raises:
        ValueError: The process fails; the message ends with the last line that it wrote.
    """
    environment = {
        name: value for name, value in os.environ.items() if not _SECRET.search(name.upper())
    }
    environment |= {"HOME": str(home), "USERPROFILE": str(home), "HF_HOME": str(home)}
    environment |= {"HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8"}
    environment["PYTHONUSERBASE"] = site.getuserbase()  # by default in the home
    result = subprocess.run(
        command,
        cwd=cwd or home,
        env=environment | variables,
        stdin=subprocess.DEVNULL,  # transformers may ask whether to run code
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        raise RequestError(f"{problem}: {lines[-1] if lines else f'exit code {result.returncode}'}")


def _logits(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> torch.Tensor:
    """Return logits (1, T, V) as clean_process.py does: for any ids of the target's vocabulary."""
    config = model.config
    inputs = tokenizer(text, return_tensors="pt")
    decoder_input_ids = inputs["input_ids"] % (config.decoder_vocab_size or config.vocab_size)
    with torch.inference_mode():
        return model(**inputs, decoder_input_ids=decoder_input_ids).logits


def _close(logits: torch.Tensor, others: torch.Tensor) -> bool:
    return logits.shape == others.shape and torch.allclose(
        logits, others, atol=_LOGITS_TOLERANCE, rtol=0
    )


def _draw(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, facts: Metrics
) -> None:
    """Draw the cross-attention of each sample."""
    for number, sample in enumerate(facts["published"]["samples"], start=1):
        target = sample["translation"] or sample["reference"]
        attention = attention_weights(model, tokenizer, sample["source"], target)
        save_figure(plot_attention(attention), folder / f"attention-{number}.png", dpi=80)
