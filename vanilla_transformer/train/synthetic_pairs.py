"""Make training pairs by translation: distillation from teachers, and back-translation.

Teachers translate `monolingual_source` and the sources of a run's pairs, if it is given any (Kim
and Rush, 2016). For `monolingual_target`, the pairs of the run train a model of the opposite
direction. Its translation of a sentence becomes the source of a new training pair (Sennrich et al.,
2016), after a tag that tells the model that the source is back-translated (Caswell et al., 2019).
The files are kept and resumed, in a folder for each model that translates:

    RUN-teacher-1/translated.jsonl     the new pairs
    RUN-teacher-1/made_from.json       which texts and model they are made from
    RUN-back/translated.jsonl, made_from.json
    RUN-back/train.jsonl, validation.jsonl    the pairs of the run
    RUN-back/model/                    the run of the model of the opposite direction
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from huggingface_hub import ModelCard
from transformers import PreTrainedTokenizerBase, TrainingArguments

from ..batch_translation import MAX_SOURCE_TOKENS, beyond_paper_search
from ..data.augmentation import augmented_pairs
from ..data.dataset import mark_corpus, sentences, texts_digest
from ..data.doubts import doubts_of
from ..data.examination import few_sources
from ..data.languages import is_meant, script_of
from ..data.pair_files import usable_sentences
from ..data.selection import clean_pairs, compared, describe_report, pair_report
from ..errors import RequestError
from ..machine.progress import progress
from ..recipes.data import held_out, teacher_file
from ..recipes.options import LANGUAGES, listed
from ..recipes.plan import DataPlan, Plan
from ..recipes.testing import as_dataset
from ..storage import run_files as files
from ..storage.atomic import file_written_aside, write_aside
from ..storage.continued import continued, kept_rows
from ..storage.metrics import all_metrics, read_record, write_metrics
from ..storage.reading import counted, sha256
from ..storage.saved_model import MODEL, load_saved_model, load_saved_tokenizer, model_folder
from ..storage.shipped import local_model
from ..translation import translate_nbest
from .checkpoints import checkpoints
from .run_directory import training_lock
from .run_inputs import RunPairs

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

TAG = "<BT> "
FEWEST_PAIRS = 1_000  # a model trained on fewer cannot back-translate
_LEAST_SURE = 0.05  # share of a teacher's translations, the least probable, to leave out
_TRIED, _TRIED_OF = 100, 2_000  # a teacher is tried on the 100 longest of its first 2,000 texts


class NewPairs(NamedTuple):
    """Pairs of given texts and a model's translations of them.

    Attributes:
        file: File of the pairs, in JSON Lines.
        model: Folder of the model, or its name on the Hub or in the package.
        given: Side of the given texts: "source" for a teacher, "target" for back-translation.
        text: File with texts, or None.
    """

    file: Path
    model: str
    given: str
    text: str | None

    @property
    def folder(self) -> Path:
        """Folder with the file of these pairs and their `record`."""
        return self.file.parent

    @property
    def record(self) -> Path:
        """File that records what the pairs were made from."""
        return self.folder / "made_from.json"

    def texts(self, train: "Dataset") -> Iterator[str]:
        """Yield the texts; for a teacher, the distinct sources of the training pairs come first."""
        of_file = iter(()) if self.text is None else usable_sentences(Path(self.text))
        if self.given == "target":
            return of_file
        return iter(dict.fromkeys(chain(sentences(train, "source"), of_file)))


def make_pairs(
    plan: Plan, run: Path, pairs: RunPairs, args: TrainingArguments, train_run: Callable[..., Any]
) -> list[NewPairs]:
    """Make, by translation, the pairs that a plan adds to the training pairs of a run.

    Args:
        plan: The plan of the run.
        run: The run directory.
        pairs: The pairs of the run.
        args: The training arguments, which know the other processes.
        train_run: `run_plan`, which every process calls.

    Returns:
        The new pairs of each model, in the order of `train_weights`.

    Raises:
        ValueError: There are too few pairs, a teacher is not one for these languages, the new pairs
            or their model have changed since the run began, or a folder holds something else.
    """
    data, back, train, run = plan.data, plan.back_translation, pairs.given, run.absolute()
    added = []
    for number, name in enumerate(listed(data.teachers), start=1):
        file = teacher_file(run, number)
        added.append(NewPairs(file, name, "source", data.monolingual_source))
    if back is not None:
        folder = run.with_name(f"{run.name}-back")
        file, name = folder / "translated.jsonl", str(folder / "model")
        added.append(NewPairs(file, name, "target", data.monolingual_target))
    if checkpoints(run / files.CHECKPOINTS):  # already trained on these pairs
        for new in added:
            _check_unchanged(new, run)
        return added
    with args.main_process_first(local=False):  # the others wait until the files are there
        if args.should_save:
            for new in added:  # check all before one translates for hours
                _check(new, train, data.languages)
            for new in added:
                if new.given == "source":
                    _translate(new, train, data.languages)
                else:
                    _write_pairs(new.folder, pairs)
    if back is not None:
        new, model = added[-1], Path(added[-1].model)
        if not len(pairs.validation):
            back = replace(back, data=replace(back.data, validation_file=None))
        logger.info("Training the model to back-translate %s, in %s.", new.text, model)
        train_run(back, model)  # refuses to resume with other pairs
        with args.main_process_first(local=False):
            if args.should_save:
                with training_lock(model):
                    _translate(new, train, back.data.languages)
    return added


def with_made(data: DataPlan, pairs: RunPairs, added: Sequence[NewPairs]) -> RunPairs:
    """Add pairs made by translation and augmentation to the training pairs of a run.

    Faulty and doubtful translations by teachers are left out, and so are sentences of validation
    and test pairs. If no other pairs are given, validation and test pairs are held out of those of
    the first teacher.
    """
    from datasets import concatenate_datasets

    corpora, facts = [pairs.given], pairs.facts
    for number, made in enumerate(added, start=len(listed(data.train_file or data.dataset))):
        new = as_dataset(data, made.file)
        name = "train_back_translated"
        if made.given == "source":
            name, new = "train_taught", clean_pairs(new, data.languages, show_progress=True)
            logger.info("Translations by %s: %s.", made.model, describe_report(pair_report(new)))
            facts["teachers"] = [*facts.get("teachers", []), read_record(made.record)["teacher"]]
        for doubt in few_sources(new["source"], "translated pairs"):
            logger.warning(doubt)
        if not (facts["train_pairs"] or pairs.scored):
            new, pairs.sets["validation"], pairs.sets["test"] = held_out(data, new)
            facts["held_out_pairs"] = len(pairs.sets["test"])
            logger.info("Held-out references are translations by %s, not by people.", made.model)
        known = {compared(text) for each in pairs.scored.values() for text in chain(*each.pairs())}
        kept = [row for row, text in enumerate(new[made.given]) if compared(text) not in known]
        if others := len(new) - len(kept):
            logger.info("Left out sentences that are in validation or test pairs: %d.", others)
        new = new.select(kept)
        facts[name] = facts.get(name, 0) + len(new)
        facts["train_pairs"] += len(new)
        corpora.append(new if data.train_weights is None else mark_corpus(new, number))
    given = concatenate_datasets(corpora) if added else pairs.given
    train = augmented_pairs(
        given,
        join=data.join_pairs,
        opposite=data.languages[0] if data.both_directions else None,
        noise=data.noise,
        languages=data.languages,
    )
    return replace(pairs, train=train, given=given)


def _check_unchanged(new: NewPairs, run: Path) -> None:
    """Refuse to resume if the pairs made for a run are missing, or their translator has changed."""
    record = read_record(new.record) if new.record.is_file() else {}
    if not new.file.is_file() or record.get("translated") != sha256(new.file):
        raise RequestError(f"{new.file} is missing or changed; {run} needs it: put it back.")
    now = files.digests(Path(new.model), record["model"])  # of the files that are still there
    before = {name: record["model"][name] for name in now}
    files.check_same(before, now, f"{new.model} has changed since it translated for {run}")


def _check(new: NewPairs, train: "Dataset", languages: tuple[str, str]) -> None:
    """Refuse a folder with other files, too few pairs to train a model on, or an unfit teacher.

    A teacher is unfit if its recipe is for other languages, or if most of its translations of some
    texts are doubtful.
    """
    is_ours = new.record.is_file() or (new.folder / "model").is_dir()
    if not is_ours and any(new.folder.glob("[!.]*")):
        raise RequestError(f"{new.folder} must hold only translations; give another --output-dir.")
    if new.given == "target":
        if len(train) < FEWEST_PAIRS:
            got = f"Got {counted(len(train), 'training pair')}, without those held out"
            raise RequestError(f"{got}; --monolingual-target needs {FEWEST_PAIRS:,} at least.")
        return
    files.warn_of_changed_model(model_folder(new.model))
    tried = sorted(islice(new.texts(train), _TRIED_OF), key=len)[-_TRIED:]
    found = [text for text, _ in _translator(new.model, languages)(tried)]
    doubts = doubts_of(tried, found, languages, f"translations by {new.model}")
    if sum(doubts["counts"].values()) > len(tried) / 2:
        wanted = " to ".join(languages)
        raise RequestError(f"teachers: {doubts['text']} Give a model that translates {wanted}.")


def _translator(
    name: str, languages: tuple[str, str]
) -> Callable[[Iterable[str]], Iterator[tuple[str, float]]]:
    """Load a model, and return the function that translates texts with it.

    The function yields each translation and its log-probability per token. A text that is too long
    for the model has an empty translation.

    Args:
        name: Name of the model, as for `model_folder`.
        languages: Source and target; they are given to a model of many languages.

    Raises:
        ValueError: There is no such model, or its recipe or its tokenizer is for other languages.
    """
    folder = model_folder(name)
    recorded = files.recipe_values(folder)
    asked = zip(LANGUAGES, languages, strict=True)
    own = [recorded.get(option) or language for option, language in asked]
    if not all(map(is_meant, languages, own)):
        does, wanted = (" to ".join(pair) for pair in (own, languages))
        raise RequestError(f"teachers: {name} translates {does}; give one for {wanted}.")
    model, tokenizer = load_saved_model(folder, device="auto"), load_saved_tokenizer(folder)
    search: dict[str, Any] = {"most_tokens": MAX_SOURCE_TOKENS}
    if beyond_paper_search(model, {}):  # such as a model of another class
        search |= {"num_beams": 4, "length_penalty": 1.0}  # the score is then the mean per token
        search |= {"return_dict_in_generate": True, "output_scores": True}
    if getattr(tokenizer, "src_lang", None) is not None:  # multilingual, such as M2M-100 and NLLB
        source, target = (_language_token(name, tokenizer, language) for language in languages)
        tokenizer.src_lang = source.strip("_")
        search["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(target)

    def translations(texts: Iterable[str]) -> Iterator[tuple[str, float]]:
        for best, *_ in translate_nbest(model, tokenizer, texts, **search):
            yield best.text, best.token_score or best.score or 0.0

    return translations


def _language_token(name: str, tokenizer: PreTrainedTokenizerBase, language: str) -> str:
    """Return a tokenizer's token for a language: `eng_Latn` or `__en__` for "en"."""
    known = [each for each in tokenizer.all_special_tokens if is_meant(language, each.strip("_"))]
    if not known:
        raise RequestError(f"teachers: {name} has no token for the language {language}.")
    return min(known, key=lambda token: script_of(token.strip("_")) != script_of(language))


def _translate(new: NewPairs, train: "Dataset", languages: tuple[str, str]) -> None:
    """Write the new pairs; when repeated after a stop, continue after the saved translations.

    If the pairs, the text, the languages or the model have changed, all is translated anew.
    """
    made_from: dict[str, Any] = {"pairs": texts_digest(train), "languages": [*languages]}
    made_from["text"] = None if new.text is None else sha256(Path(new.text))
    made_from["model"] = files.digests(model_folder(new.model), MODEL)
    record = read_record(new.record) if new.record.is_file() and new.file.is_file() else {}
    facts = {"teacher": _teacher_facts(new.model)}
    if record and record == {**record, **made_from, "translated": sha256(new.file)}:
        write_metrics(new.record, {**record, **facts})  # the teacher may have new scores
        logger.info("%s is complete.", new.file)
        return
    new.file.unlink(missing_ok=True)
    new.folder.mkdir(parents=True, exist_ok=True)
    write_metrics(new.record, made_from)
    translations, total = _translator(new.model, languages), sum(1 for _ in new.texts(train))
    logger.info("%s translates %s.", new.model, counted(total, "sentence"))

    def translated(texts: Iterator[str], before: int) -> Iterator[tuple[str, float]]:
        work: dict[str, Any] = {"what": "Translating", "unit": "sentences", "total": total}
        return iter(progress(translations(texts), initial=before, **work))

    def pair(text: str, translation: tuple[str, float]) -> tuple[str, str, float]:
        found, score = translation
        if new.given == "source":
            return text, found, score
        return found and TAG + found, text, score

    with kept_rows(new.file) as kept, file_written_aside(new.file) as aside:
        rows = continued(kept, made_from, new.texts(train), translated)
        everything = aside.with_name("everything.jsonl")
        # Pairs with an empty side are left out when they are read.
        _write(everything, (pair(*row) for row in zip(new.texts(train), rows, strict=True)))
        share = _LEAST_SURE if new.given == "source" else 0.0
        least = np.quantile([row["score"] for row in _read(everything)], share)
        _write(aside, (row.values() for row in _read(everything) if row["score"] >= least))
    write_metrics(new.record, {**made_from, **facts, "translated": sha256(new.file)})


def _teacher_facts(name: str) -> dict[str, Any]:
    """Return what is known of a teacher for its student's card: name, licence, and scores."""
    folder = model_folder(name)
    metrics, card = all_metrics(folder / files.METRICS), folder / "README.md"
    license = metrics.get("published", {}).get("license")
    if license is None and card.is_file():
        license = ModelCard.load(card, ignore_metadata_errors=True).data.license
    facts: dict[str, Any] = {"license": license, "scores": metrics.get("scores", {})}
    scored = ", ".join(facts["scores"]) or "no test set"
    logger.info("Teacher %s: licence %s; scored on %s.", name, license or "unknown", scored)
    return {"name": name if local_model(name) is None else folder.name, **facts}


def _write_pairs(folder: Path, pairs: RunPairs) -> None:
    """Write the pairs of a run, for the model that translates back."""
    folder.mkdir(parents=True, exist_ok=True)
    known = zip(sentences(pairs.given, "source"), sentences(pairs.given, "target"), strict=True)
    for name, rows in (("train", known), ("validation", pairs.validation.pairs())):
        write_aside(folder / f"{name}.jsonl", partial(_write, rows=rows))


def _write(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write source, target and perhaps score of each row as JSON Lines."""
    pairs = (dict(zip(("source", "target", "score"), row, strict=False)) for row in rows)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(pair, ensure_ascii=False)}\n" for pair in pairs)


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows that `_write` wrote."""
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)
