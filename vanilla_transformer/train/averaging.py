"""Section 6.1: average the last checkpoints into one model (5 for base, 20 for big).

How many are best depends on how long a run has trained: early ones still differ a lot. Validation
pairs may choose the number, and the length penalty of the search; test pairs are never used.

Only safetensors are read, so nothing is unpickled. Tied tensors are stored once, in checkpoints and
in the mean.
"""

import itertools
import logging
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ..errors import RequestError
from ..evaluation import corpus_scores
from ..fast import release
from ..fast.shortlist import SHORTLISTS, Shortlist, learn_shortlists
from ..recipes.data import TextPairs
from ..recipes.options import Evaluation
from ..search_settings import SearchSettings
from ..storage import saved_model
from ..storage.atomic import files_written_aside
from ..storage.metrics import MEASURES, Chosen
from ..storage.reading import counted, own_file, read_json
from ..storage.run_files import CHECKPOINTS, RECIPE, Identity, config_identity, differences
from ..translation.many_texts import translate

logger = logging.getLogger(__name__)

# Files besides the weights to copy, if a model has them; no optimizer or trainer state.
_COMPANIONS = (
    *(saved_model.CONFIG, saved_model.GENERATION_CONFIG, *saved_model.TOKENIZER_FILES),
    "*.model",  # SentencePiece
    "chat_template.jinja",
    "*.py",  # the code of a model saved for trust_remote_code
)

CLOSE = 0.5  # if greedy scores are this close, more checkpoints are better with beams (LOG.md)
PAIRS = 1000  # validation pairs, each translated about ten times; 200 were too few
COUNTS = (1, 2, 3, 5, 7, 10, 15, 20)
LOST = 0.05  # how much worse the score with a shortlist may be
# Length penalties to try, by `early_stopping`: with it, beam search needs larger ones.
PENALTIES = {False: (SearchSettings.length_penalty, 1.0, 1.5), True: (1.0, 1.5, 2.0, 3.0)}


def average_checkpoints(
    checkpoint_dirs: Iterable[str | os.PathLike[str]], output_dir: str | os.PathLike[str]
) -> Path:
    """Write the arithmetic mean of some checkpoints as a model that Auto classes load.

    Sums are float64, and each tensor keeps its dtype. Integer tensors, which are counters or tables
    rather than weights, come from the last checkpoint, as do configuration and tokenizer. If that
    has no tokenizer, which can happen with a stock Trainer, a warning says so. The sums are held in
    memory, and the result is written as one file.

    Other files in `output_dir` stay. The new files are written aside and renamed once all are
    complete, so that a crash leaves the old model unchanged.

    Args:
        checkpoint_dirs: Directories with config.json and safetensors (one file, or several with an
            index), oldest first.
        output_dir: Directory for the mean; created if missing. It may be one of the checkpoints.

    Returns:
        `output_dir` as a path.

    Raises:
        ValueError: If a checkpoint is incomplete, damaged, not finite, or of another model than
            the rest; the message names it.
    """
    checkpoints = [Path(directory) for directory in checkpoint_dirs]
    output, last = Path(output_dir), checkpoints[-1]
    mean = mean_of_weights(checkpoints)
    output.mkdir(parents=True, exist_ok=True)
    with files_written_aside(output, last=saved_model.WEIGHTS) as aside:
        companions = [path for pattern in _COMPANIONS for path in last.glob(pattern)]
        # A run's search settings lie beside its final model, not in its checkpoints.
        folder = last.resolve().parent
        if folder.name == CHECKPOINTS and (folder.parent / RECIPE).is_file():
            companions += folder.parent.glob(saved_model.GENERATION_CONFIG)
        for path in companions:
            shutil.copyfile(own_file(path), aside / path.name)
        save_file(mean, aside / saved_model.WEIGHTS, metadata={"format": "pt"})
    names = ", ".join(directory.name for directory in checkpoints)
    logger.info("Averaged %s: %s.", counted(len(checkpoints), "checkpoint"), names)
    if not (output / saved_model.TOKENIZER_SETTINGS).is_file():
        logger.warning("%s has no tokenizer, so the averaged model has none.", last)
    return output


def mean_of_weights(checkpoints: Sequence[Path]) -> dict[str, torch.Tensor]:
    """Return the arithmetic mean of the weights of some checkpoints.

    Raises:
        ValueError: As for `average_checkpoints`.
    """
    sums: dict[str, torch.Tensor] = {}
    first: Identity = {}
    for directory in checkpoints:
        files = [saved_model.read_tensors(path) for path in saved_model.weight_files(directory)]
        weights = dict(itertools.chain.from_iterable(files))  # mapped into memory
        identity = _identity(directory, weights)
        first = first or identity
        # A stock Trainer may save without a tokenizer.
        shared = {name: value for name, value in identity.items() if value and first[name]}
        if differing := differences({name: first[name] for name in shared}, shared):
            reason = "; ".join(differing)
            raise RequestError(f"{directory} is not the same model as {checkpoints[0]} ({reason}).")
        for name, tensor in weights.items():
            total = sums.setdefault(name, torch.zeros(tensor.shape, dtype=torch.float64))
            total += tensor
    mean = {}
    for name, last in sorted(weights.items()):
        total = sums.pop(name) / len(checkpoints)
        mean[name] = total.to(last.dtype) if last.is_floating_point() else last
    return mean


def _identity(directory: Path, weights: Mapping[str, torch.Tensor]) -> Identity:
    """Return the identity that averaged checkpoints must share: config, tokenizer, shapes."""
    return {
        "config": config_identity(read_json(directory / saved_model.CONFIG)),
        "tokenizer": saved_model.tokenizer_digests(directory),
        "tensors": {
            name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in weights.items()
        },
    }


def choose_on_validation_pairs(
    checkpoints: list[Path],
    pairs: TextPairs,
    plan: Evaluation,
    target_language: str,
    training: Any = None,
) -> tuple[Chosen, Shortlist | None]:
    """Choose the number of checkpoints to average, then search settings for the average.

    Greedy translations choose the largest number whose score is within `CLOSE` of the best; beam
    search with that average then chooses the length penalty, and that search the smallest shortlist
    that loses at most `LOST`. Nothing is written.

    Args:
        checkpoints: The checkpoints that may be averaged, oldest first.
        pairs: The validation pairs; every n-th is used, 1,000 at most.
        plan: The planned measures, of which the first one counts, and the planned search, whose
            length penalty is tried too and wins a tie.
        target_language: Language code, which selects BLEU's tokenizer.
        training: Training pairs as ids, to learn shortlists from; None: there is no shortlist.

    Returns:
        `averaged`, the number of checkpoints, `length_penalty` if there is more than one beam, and
        `usual_pieces` if there is a good shortlist; `pairs`, the number of pairs used; the
        `measure`, and its values: `greedy` by number of checkpoints, `beam` by penalty, and
        `shortlist` by number of usual pieces. All values can be written as JSON. And the shortlist.
    """
    chosen = slice(0, PAIRS * max(1, len(pairs) // PAIRS), max(1, len(pairs) // PAIRS))
    sources, references = pairs.sources[chosen], pairs.references[chosen]
    search, measure = plan.search(), plan.measures[0]
    label, best_of = MEASURES[measure].label, MEASURES[measure].best
    model = saved_model.load_saved_model(checkpoints[-1], device="auto")
    tokenizer = saved_model.load_saved_tokenizer(checkpoints[-1])

    def average(count: int) -> None:
        weights = mean_of_weights(checkpoints[-count:])
        model.load_state_dict(weights, strict=False)  # files store tied tensors once
        release(model)

    def score(**options: Any) -> float:
        translations = list(translate(model, tokenizer, sources, **options))
        scores: Mapping[str, Any] = corpus_scores(
            translations, references, target_language=target_language, measures=[measure]
        )
        return round(scores[measure], 3)

    greedy: dict[int, float] = {}
    own = len(checkpoints)
    for count in (own, *(count for count in reversed(COUNTS) if count < own)):
        average(count)
        greedy[count] = score(num_beams=1)
    best = best_of(greedy.values())
    averaged = max(count for count in greedy if abs(greedy[count] - best) <= CLOSE)
    logger.info(
        "On the validation pairs (%d), averaging the last %s comes within %g of the best "
        "score, and averaging more does not. Greedy %s by number of checkpoints: %s.",
        *(len(sources), counted(averaged, "checkpoint"), CLOSE, label, _listed(greedy)),
    )
    result: Chosen = {"pairs": len(sources), "averaged": averaged, "measure": measure}
    result["greedy"] = {str(count): value for count, value in greedy.items()}
    average(averaged)
    best_search = {name: getattr(search, name) for name in ("num_beams", "early_stopping")}
    if search.num_beams > 1:
        tried = dict.fromkeys([float(search.length_penalty), *PENALTIES[search.early_stopping]])
        beams = {each: score(**best_search, length_penalty=each) for each in tried}
        penalty = best_of(beams, key=beams.__getitem__)
        message = "On these pairs, length penalty %g is best. With %d beams, %s by penalty: %s."
        logger.info(message, penalty, search.num_beams, label, _listed(beams))
        result["length_penalty"] = best_search["length_penalty"] = penalty
        result["beam"] = {f"{each:g}": value for each, value in beams.items()}
    whole = beams[penalty] if search.num_beams > 1 else greedy[averaged]
    for shortlist in learn_shortlists(training, model.config) if training else ():
        SHORTLISTS[model], usual = shortlist, len(shortlist.usual)
        found = score(**best_search)
        result.setdefault("shortlist", {})[str(usual)] = found
        if found == best_of(found, whole) or abs(found - whole) <= LOST:
            result["usual_pieces"] = usual
            return result, shortlist
    return result, None


def _listed(scores: Mapping[int, float] | Mapping[float, float]) -> str:
    return ", ".join(f"{value:g}: {score:.1f}" for value, score in sorted(scores.items()))
