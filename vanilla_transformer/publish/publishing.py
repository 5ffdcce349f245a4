"""Publish a model directory on the Hub: check it, render its card, and push both in one commit.

Only files on a list are copied into a new folder and pushed, so that nothing else of a run
(optimizer, arguments, checkpoints, paths) ever leaves the machine. A process without access to the
run first loads that folder and translates with it.
"""

import json
import logging
import os
import re
import site
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitInfo
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..convert.exporters.stock import export_stock
from ..errors import RequestError
from ..evaluation.scores import choose_samples, useless_outputs, without_texts
from ..generation_limits import HOSTS_LENGTH
from ..recipes.data import TRAINING_FILES
from ..recipes.recipe import languages_of_model
from ..storage import run_files
from ..storage import saved_model as saved
from ..storage.atomic import copy_files, folder_written_aside, temporary_folder, write_json
from ..storage.metrics import Metrics, Published, Scores, TestTexts, all_metrics, write_metrics
from ..storage.reading import StrPath, checked, own_file, read_json
from ..target_tokenizer import TARGET_TOKENIZER
from ..visualization import attention_weights, plot_attention, save_figure
from .card import NATIVE, STOCK, WITH_CODE, TrainerFacts, card_facts, render_card, training_facts
from .hub import check_repo_id, plan_files, push_folder
from .remote_code import code_files, embed_code

logger = logging.getLogger(__name__)

# Files of an earlier push that the new push replaces or deletes, most importantly code.
_REPLACED = (
    *(*saved.MODEL, "model-*-of-*.safetensors", run_files.CURVES, run_files.HISTORY),
    *("*.py", "custom_generate/*", "pytorch_model*.bin", "training_args.bin"),
    "attention-[0-9].png",
)
# Settings of a model or tokenizer that hold paths (written by transformers 4) or choose code.
_PRIVATE = (
    *("_name_or_path", "name_or_path", "tokenizer_file", "_from_model_config"),
    *("special_tokens_map_file", *saved.CHOOSE_CODE),  # the code is not pushed
)
# Environment variables that may hold a secret or the path of one.
_SECRET = re.compile(r"TOKEN|SECRET|PASS|CREDENTIAL|AUTH|API|KEY|NETRC|^GIT_|^HF_|^HUGGING|^XDG_")
_LOGITS_TOLERANCE = 1e-4  # a stock model rounds differently
_ANY_TEXT = "Hello!"  # to try out a model without samples


@dataclass(frozen=True)
class Publication:
    """What was published: file sizes in bytes, form (native, with_code, stock), commit if any."""

    files: dict[str, int]
    form: str
    commit: CommitInfo | None


def publish(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    repo_id: str,
    *,
    scores: Mapping[str, TestTexts] | None = None,
    **options: Any,
) -> Publication:
    """Publish a model in memory: check it, render its card, push both in one commit.

    Args:
        model: A sequence-to-sequence model, or one with a LoRA adapter.
        tokenizer: Its tokenizer.
        repo_id: `user/name` on the Hub.
        scores: Results of `score_model` by name of the test set. The card shows translations of
            test sets whose texts are included.
        **options: Other arguments of `publish_folder`, above all `license`.

    Returns:
        What was published; its `commit` is None without `push`.

    Raises:
        ValueError: As for `publish_folder`.
    """
    with temporary_folder() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if scores:
            with_texts = {name: result for name, result in scores.items() if "sources" in result}
            metrics = Metrics(scores=without_texts(scores), samples=choose_samples(with_texts))
            metrics["warnings"] = useless_outputs(with_texts)
            write_metrics(folder / run_files.METRICS, metrics)
        return publish_folder(folder, repo_id, **options)


def publish_folder(
    directory: StrPath,
    repo_id: str,
    *,
    license: str | None,
    data_license: str | None = None,
    data_source: str | None = None,
    pair: str | None = None,
    base_model: str | None = None,
    run: StrPath | None = None,
    with_code: bool = False,
    stock: bool = False,
    force: bool = False,
    push: bool = False,
    message: str | None = None,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
    output: StrPath | None = None,
) -> Publication:
    """Check a model, render its card, and push both in one commit, or write them into a folder.

    Args:
        directory: Folder or name of any saved model with its tokenizer: a run, an averaged,
            exported or imported model, a checkpoint, an adapter, or what a Trainer saved.
        repo_id: `user/name` on the Hub.
        license: Licence of the model, as the Hub names it, such as `cc-by-4.0`.
        data_license: Licence of the training pairs, in words. None takes the recipe's.
        data_source: Origin of the training pairs, in words. None takes the recipe's.
        pair: Languages of both sides, such as `en-de`. None takes the recipe's.
        base_model: Model on the Hub that training began with. None takes the recipe's.
        run: Run directory that the model comes from, if `directory` is not one itself.
        with_code: Whether to push the model's code too, for `trust_remote_code=True`.
        stock: Whether to publish the model as a stock class of transformers, without code.
        force: Whether to publish even a model that has not learned its task.
        push: Whether to push. False does everything else.
        message: Message of the commit. None names the model.
        private: Make the repository private if it is created.
        revision: Branch, created if missing. None takes `main`.
        token: Access token of the Hub. None takes HF_TOKEN or that of `hf auth login`.
        output: New folder for all the files, to read the card, or to deploy the model without the
            Hub. Without `push`, the card names this folder.

    Returns:
        What was published; its `commit` is None without `push`.

    Raises:
        ValueError: The model cannot be published as it is, or the Hub refuses; the message says
            what to do. No file on the Hub has changed then; a new repository or branch may have
            been created.
    """
    check_repo_id(repo_id)
    source = saved.model_folder(str(directory))
    trained_in = Path(run or source)
    for folder in {source, trained_in}:
        if changed := run_files.changed_since_scored(folder):
            remedy = "restore it, or score the model elsewhere: evaluate --output DIR/metrics.json"
            raise RequestError(f"{folder / changed[0]} changed after it was scored; {remedy}")
    known = _metrics(source, trained_in)
    useless = [it["text"] for it in known.get("warnings", ()) if it["kind"] == "outputs"]
    if useless and not force:
        what = f"{source} has not learned its task. {useless[0]}"
        raise RequestError(f"{what} See training/diagnosis.md, or give --force.")
    with temporary_folder() as temporary:
        published_from = export_stock(source, temporary / "stock") if stock else source
        form = _form(published_from, with_code=with_code)
        model, tokenizer = saved.load_saved_model(source), saved.load_saved_tokenizer(source)
        published: Published = {
            "model": repo_id if push or output is None else Path(output).name,
            "pushed": push,
            "revision": revision if push else None,
            "form": form,
            "license": license,
            "data_license": data_license,
            "data_source": data_source,
            "languages": [] if pair is None else list(languages_of_model(source, pair)),
            "base_model": base_model,
            "curves": (trained_in / run_files.CURVES).is_file(),
            "tokenizer_package": saved.TOKENIZER_PACKAGES.get(type(tokenizer).__name__),
        }
        published["length_penalty"] = model.generation_config.length_penalty
        facts = card_facts({"parameters": model.num_parameters(), **known}, published)
        folder = temporary / repo_id.rpartition("/")[2]
        stage_model(published_from, folder, with_code=form == WITH_CODE)
        _try_out(model, tokenizer, folder, facts)
        picture_and_data = (run_files.CURVES, run_files.HISTORY)
        saved.copy_own_files(trained_in, folder, picture_and_data)
        write_metrics(folder / run_files.METRICS, facts)
        render_card(facts).save(folder / "README.md")
        if output is not None:
            with folder_written_aside(Path(output)) as aside:
                copy_files(folder, aside)
        commit = None
        if push:
            place: dict[str, Any] = {"private": private, "revision": revision, "token": token}
            message = message or f"Publish {folder.name}"
            commit = push_folder(folder, repo_id, message=message, replaces=_REPLACED, **place)
        return Publication(plan_files(folder), form, commit)


def _metrics(source: Path, run: Path) -> Metrics:
    """Return the metrics of a model, from its folder and from its run.

    Raises:
        ValueError: The model is not from that run, or the run scored another model and this one has
            no scores of its own.
    """
    own, metrics = all_metrics(source / run_files.METRICS), all_metrics(run / run_files.METRICS)
    if "recipe" not in metrics:
        if run != source:
            raise RequestError(f"{run} has no training record ({run_files.METRICS}); check --run.")
        message = "%s has no training record (%s) for its card; if it is from a run, give --run."
        logger.warning(message, source, run_files.METRICS)
        state = source / run_files.TRAINER_STATE
        if state.is_file():
            own |= training_facts(checked(read_json(own_file(state)), TrainerFacts, state))
        return own
    if "recipe" in own:
        return own
    tokenizers = [saved.load_saved_tokenizer(folder) for folder in (source, run)]
    if tokenizers[0].get_vocab() != tokenizers[1].get_vocab():
        raise RequestError(f"{source} and {run} have different vocabularies; check --run.")
    models = [saved.load_saved_model(folder) for folder in (source, run)]
    if own:  # the model has scores of its own
        if not _same_pairs(own["scores"], metrics["scores"]):
            files = metrics["data"].get("files", {})
            files = {split: files[split] for split in TRAINING_FILES & files.keys()}
            metrics["data"] |= {"shared_with_training": {}, "files": files}
        if _has_rounded_weights(*models):
            # What a shortlist costs was measured with the run's weights.
            metrics.get(run_files.CHOSEN, {}).pop("usual_pieces", None)
        else:  # such as another average of the run's checkpoints
            metrics["averaged_checkpoints"] = []
            metrics.pop(run_files.CHOSEN, None)
        metrics["scores"] = own["scores"]
        metrics.pop("warnings", None)  # these are about the run's own model
        return metrics
    if not _close(*(_logits(*both, _ANY_TEXT) for both in zip(models, tokenizers, strict=True))):
        command = f"vanilla-transformer evaluate {source} ... --output {source / run_files.METRICS}"
        raise RequestError(f"{source} and {run} give different outputs; score the model: {command}")
    return metrics


def _same_pairs(scores: Mapping[str, Scores], of_run: Mapping[str, Scores]) -> bool:
    """Return True if two results are on the same pairs: untranslated sources score the same."""
    key = "copy_baseline"
    return all(it.get(key, {}) == of_run.get(name, {}).get(key) for name, it in scores.items())


def _has_rounded_weights(model: PreTrainedModel, of_run: PreTrainedModel) -> bool:
    """Return True if a model has the weights of a run's model, perhaps rounded to 16 bits."""
    weights, exact = model.state_dict(), of_run.state_dict()
    return weights.keys() == exact.keys() and any(
        all(torch.equal(it, exact[name].to(dtype).to(it.dtype)) for name, it in weights.items())
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
    )


def _form(directory: Path, *, with_code: bool) -> str:
    model_type = read_json(directory / saved.CONFIG).get("model_type")
    if model_type == "vanilla_transformer":
        return WITH_CODE if with_code else NATIVE
    if TARGET_TOKENIZER in read_json(directory / saved.TOKENIZER_SETTINGS):
        raise RequestError(f"{directory} has two tokenizers, but transformers reads only one.")
    return STOCK


def stage_model(source: Path, folder: Path, *, with_code: bool) -> None:
    """Copy the files to publish, and reset config fields that training changed."""
    folder.mkdir(parents=True)
    weights = saved.weight_files(source)  # none is in a format that can run code
    index = [saved.WEIGHTS_INDEX] if weights != [source / saved.WEIGHTS] else []
    names = (*saved.SETTINGS, saved.SHORTLIST, *index, *(path.name for path in weights))
    saved.copy_own_files(source, folder, names)
    names = (saved.CONFIG, saved.TOKENIZER_SETTINGS, saved.GENERATION_CONFIG)
    for path in filter(Path.is_file, map(folder.joinpath, names)):
        public = {name: value for name, value in read_json(path).items() if name not in _PRIVATE}
        if path.name == saved.CONFIG:
            public["use_cache"] = True  # the Trainer switches it off
        if path.name == saved.GENERATION_CONFIG and public.get("max_length") == HOSTS_LENGTH:
            del public["max_length"]  # Seq2SeqTrainer fills it in
        write_json(path, public, sort_keys=True)
    if with_code:
        embed_code(folder)
        logger.info("Including the code: %s.", ", ".join(path.name for path in code_files()))


def _try_out(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, facts: Metrics
) -> None:
    """Translate the samples with the folder's model in a clean process; draw the attention."""
    samples, source = facts["samples"]["card"], str(model.name_or_path)
    texts = [sample["source"] for sample in samples] or [_ANY_TEXT]
    form, needs = facts["published"]["form"], facts["published"].get("tokenizer_package")
    answer = load_in_clean_process(folder, texts, form=form, name=source, needs=needs)
    if not _close(torch.tensor(answer["logits"]), _logits(model, tokenizer, texts[0])):
        raise RequestError(f"the files to publish and {source} give different outputs.")
    for sample, text in zip(samples, answer["translations"], strict=False):
        sample["translation"] = text
    _draw(model, tokenizer, folder, facts)


def load_in_clean_process(
    folder: Path, texts: Sequence[str], *, form: str, name: str, needs: str | None = None
) -> dict[str, Any]:
    """Load a folder and translate with it, in an offline process that sees no training run.

    Only a model in native form may import this package there.

    Args:
        folder: Folder with model and tokenizer.
        texts: Texts to translate.
        form: `card.NATIVE`, `WITH_CODE` or `STOCK`.
        name: Name of the folder in errors.
        needs: Package that the tokenizer needs; other extras of this package are hidden.

    Returns:
        The `translations`, and the first text's last `logits`, V numbers.

    Raises:
        ValueError: The folder does not load, with the reason in one line.
    """
    with temporary_folder() as home:
        request = {
            "folder": str(folder.resolve()),
            "package": str(Path(__file__).resolve().parents[2]) if form == NATIVE else None,
            "trust_remote_code": form == WITH_CODE,
            "needs": needs,
            "texts": list(texts),
            "answer": str(home / "answer.json"),
        }
        (home / "request.json").write_text(json.dumps(request), encoding="utf-8")
        program = Path(__file__).with_name("clean_process.py")
        command = [sys.executable, "-P", str(program), str(home / "request.json")]
        run_apart(command, home, problem=f"{name} does not load in a clean process")
        return read_json(home / "answer.json")


def run_apart(
    command: Sequence[str], home: Path, *, problem: str, cwd: Path | None = None, **variables: str
) -> None:
    """Run a process that loads a model, offline and with its own home directory.

    It gets no token, no cache and no standard input, so that the model's code finds none.

    Args:
        command: Program and arguments.
        home: Directory that is the process's home.
        problem: Beginning of the error message if the process fails.
        cwd: Directory to run in. None takes `home`.
        **variables: Environment variables, added to those of this process that are not secret.

    Raises:
        ValueError: The process fails; the message ends with the last line that it wrote.
    """
    environment = {name: it for name, it in os.environ.items() if not _SECRET.search(name.upper())}
    environment |= {"HOME": str(home), "USERPROFILE": str(home), "HF_HOME": str(home)}
    environment |= {"HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8"}
    environment["PYTHONUSERBASE"] = site.getuserbase()  # by default inside the home directory
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
    """Return logits, (V,), after a fixed target prefix, as clean_process.py computes them."""
    config = model.config
    inputs = tokenizer(text, return_tensors="pt")
    size = getattr(config, "decoder_vocab_size", None) or config.vocab_size
    with torch.inference_mode():
        return model(**inputs, decoder_input_ids=inputs["input_ids"] % size).logits[0, -1]


def _close(logits: torch.Tensor, others: torch.Tensor) -> bool:
    is_alike = logits.shape == others.shape
    return is_alike and torch.allclose(logits, others, atol=_LOGITS_TOLERANCE, rtol=0)


def _draw(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, facts: Metrics
) -> None:
    """Draw each sample's cross-attention if its translation can be retokenized."""
    for number, sample in enumerate(facts["samples"]["card"], start=1):
        target = sample["translation"] or sample["reference"]
        try:
            attention = attention_weights(model, tokenizer, sample["source"], target)
        except RequestError as error:
            logger.warning("The attention of sample %s could not be drawn: %s", number, error)
            sample["is_undrawn"] = True
            continue
        save_figure(plot_attention(attention), folder / f"attention-{number}.png", dpi=80)
