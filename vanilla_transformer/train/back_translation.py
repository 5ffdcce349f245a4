"""Back-translation: make training pairs from target-language text (Sennrich et al., 2016).

The pairs of a run train a model of the opposite direction, which translates the text. Its
translation of a sentence becomes the source of a new training pair, after a tag that tells the
model that the source is back-translated (Caswell et al., 2019). The files are kept and resumed:

    RUN-back/train.jsonl, validation.jsonl    the pairs of the run
    RUN-back/model/              the run of the model of the opposite direction
    RUN-back/made_from.json      which text and model the new pairs are made from
    RUN-back/translated.jsonl    the new pairs
"""

import dataclasses
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainingArguments

from ..data.checked_pairs import MalformedError, decoded
from ..data.dataset import sentences
from ..data.languages import identified
from ..data.pair_files import sentence_lines
from ..errors import RequestError
from ..machine.progress import progress
from ..recipes.plan import Plan
from ..storage.atomic import file_written_aside, write_aside, write_json
from ..storage.continued import continued, kept_rows
from ..storage.reading import read_json, sha256
from ..storage.run_files import CHECKPOINTS, digests
from ..storage.saved_model import MODEL, load_saved_model, load_saved_tokenizer
from ..translation import translate
from .checkpoints import checkpoints
from .run_directory import training_lock

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

MADE_FROM = "made_from.json"
TAG = "<BT> "
FEWEST_PAIRS = 1_000  # a model trained on fewer cannot back-translate
_LONGEST = 4_000  # bytes of a line, so that it has no more tokens than can be translated
_LOOKED_AT = 1_000  # sentences, to identify the language


def back_translated(
    plan: Plan,
    run: Path,
    train: "Dataset",
    validation: Sequence[tuple[str, str]],
    *,
    args: TrainingArguments,
    train_run: Callable[[Plan, Path], object],
) -> Path | None:
    """Back-translate a plan's `monolingual_target`, and return the file with the new pairs.

    Args:
        plan: The plan of the run.
        run: The run directory.
        train: The training pairs.
        validation: The validation pairs.
        args: The training arguments, which know the other processes.
        train_run: `run_plan`, which every process calls.

    Returns:
        The file; None if the plan has no text to translate back.

    Raises:
        ValueError: There are too few pairs, the text is in the source language or largely damaged,
            or RUN-back holds something else.
    """
    back = plan.back_translation
    if back is None:
        return None
    run = run.absolute()
    folder, text = run.with_name(f"{run.name}-back"), Path(str(plan.data.monolingual_target))
    done, model = folder / "translated.jsonl", folder / "model"
    if checkpoints(run / CHECKPOINTS):  # trained on translations that would differ if made again
        if not done.is_file() or read_json(folder / MADE_FROM).get("pairs") != sha256(done):
            told = "is missing or changed; put it back, or give another --output-dir"
            raise RequestError(f"{done}, with which {run} was trained, {told}.")
        return done
    with args.main_process_first(local=False):  # the others wait until the files are there
        if args.should_save:
            _check(plan.data.languages, text, train, folder)
            rows = zip(sentences(train, "source"), sentences(train, "target"), strict=True)
            folder.mkdir(parents=True, exist_ok=True)
            write_aside(folder / "train.jsonl", partial(_write, pairs=rows))
            write_aside(folder / "validation.jsonl", partial(_write, pairs=validation))
    if not (folder / "validation.jsonl").stat().st_size:
        back = dataclasses.replace(back, data=dataclasses.replace(back.data, validation_file=None))
    logger.info("Training the model to back-translate %s, in %s.", text, model)
    train_run(back, model)  # refuses to resume with other pairs
    with args.main_process_first(local=False):
        if args.should_save:
            with training_lock(model):
                _translate(text, model, done)
    return done


def _check(languages: tuple[str, str], text: Path, train: "Dataset", folder: Path) -> None:
    """Refuse pairs or text that are unfit for back-translation, before writing anything."""
    if not (folder / "model").is_dir() and any(folder.glob("[!.]*")):
        held = "is needed for back-translation, but holds other files"
        raise RequestError(f"{folder} {held}; give another --output-dir.")
    if len(train) < FEWEST_PAIRS:
        got = f"Got {len(train)} training pairs, without those held out"
        raise RequestError(f"{got}; --monolingual-target needs {FEWEST_PAIRS:,} at least.")
    number = left_out = 0
    for sentence in _read(text):
        number, left_out = number + bool(sentence), left_out + (sentence is None)
    told = f"sentences: {number:,}; lines that are not UTF-8 or longer than {_LONGEST:,} bytes"
    if number <= left_out:
        form = "Give a text in UTF-8 with one sentence a line."
        raise RequestError(f"{text}: {told}: {left_out:,}. {form}")
    logger.info("%s: %s, left out: %d.", text, told, left_out)
    if (found := identified([*islice(_lines(text), _LOOKED_AT)], languages)) is None:
        return
    if (found.odds > 0).mean() > 0.5:
        what = f"{text} looks like {languages[0]}, the source language"
        raise RequestError(f"{what}; give text in {languages[1]}.")
    if found.is_whole and (found.elsewhere > 0.9).mean() > 0.5:
        logger.warning("%s is in another language than %s.", text, languages[1])


def _translate(text: Path, model_dir: Path, done: Path) -> None:
    """Back-translate the text; when repeated after a stop, continue after the saved pairs.

    Another text, model or search starts from the beginning.
    """
    path = done.with_name(MADE_FROM)
    made_from: dict[str, Any] = {"text": sha256(text), "model": digests(model_dir, MODEL)}
    is_made = path.is_file() and done.is_file()
    if is_made and read_json(path) == {**made_from, "pairs": sha256(done)}:
        logger.info("%s already holds the back-translated text.", done)
        return
    done.unlink(missing_ok=True)
    model = load_saved_model(model_dir, device="auto")
    tokenizer = load_saved_tokenizer(model_dir)
    total = sum(1 for _ in _lines(text))
    logger.info("Back-translating %d sentences; if stopped, repeat the command to continue.", total)

    def sources_of(targets: Iterator[str], before: int) -> Iterator[str]:
        found = translate(model, tokenizer, targets, first=before + 1)
        told: dict[str, Any] = {"what": "Translating back", "unit": "sentences", "total": total}
        return iter(progress(found, initial=before, **told))

    with kept_rows(done) as partial, file_written_aside(done) as aside:
        sources = continued(partial, made_from, _lines(text), sources_of)
        # Pairs with an empty source are left out when they are read.
        pairs = zip(sources, _lines(text), strict=True)
        _write(aside, pairs=((source and TAG + source, target) for source, target in pairs))
        with aside.open(encoding="utf-8") as file:
            has_pairs = any(f'"source": "{TAG}' in line for line in file)
    if not has_pairs:
        done.unlink()  # so that a better model starts again
        raise RequestError(f"The model in {model_dir} gives empty translations; train it longer.")
    write_json(path, {**made_from, "pairs": sha256(done)})


def _lines(text: Path) -> Iterator[str]:
    """Yield the usable sentences of the text."""
    return filter(None, _read(text))


def _read(text: Path) -> Iterator[str | None]:
    """Yield the sentence on each line, "" for a blank line, None for a damaged or too long one."""
    for line in sentence_lines(text):
        try:
            yield decoded(line).strip() if len(line) <= _LONGEST else None
        except MalformedError:
            yield None


def _write(path: Path, *, pairs: Iterable[tuple[str, str]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(map(_json, pairs))


def _json(pair: tuple[str, str]) -> str:
    row = dict(zip(("source", "target"), pair, strict=True))
    return json.dumps(row, ensure_ascii=False) + "\n"
