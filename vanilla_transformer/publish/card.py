"""Model cards, as Markdown with the Hub's metadata, from what a run has measured.

`card_facts` collects the facts, refuses a model that lacks some, and removes paths. `render_card`
depends on nothing else, so that a published metrics.json renders to exactly the same card again.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import quote

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers.models.whisper.tokenization_whisper import LANGUAGES  # English names by code

from ..configuration_vanilla_transformer import PRESETS, VanillaTransformerConfig
from ..data.language_names import language_of
from ..errors import RequestError
from ..recipes.data import TRAINING_FILES, named_files
from ..recipes.options import FILES, OPTIONS, listed
from ..recipes.recipe import paper_values, train_command
from ..storage.environment import cpu_cores
from ..storage.metrics import MEASURES, NUM_SAMPLES, Metrics, Sample, check_metrics, samples_of_run
from ..storage.reading import own_file, printable, read_json
from ..storage.run_files import CHOSEN, METRICS, MODEL_FILES
from ..storage.saved_model import GENERATION_CONFIG
from ..storage.shipped import shipped_folder

# The forms that a model is published in.
NATIVE, WITH_CODE, STOCK = "native", "with_code", "stock"

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")
_MARKUP = re.compile(r"([\\`*\[\]<>|])")
_NON_COMMERCIAL = re.compile(r"non.?commercial|(^|[^a-z])nc([^a-z]|$)", re.IGNORECASE)
_HUB_DATASET = re.compile(r"(?:hf\.co|huggingface\.co)/datasets/([\w-]+/[\w.-]*[\w-])")
_SHARED = "shared_with_training"  # number of pairs, by test set
# A card shows a few samples; the others, and the files, stay with the run.
_OF_RUN = ("samples", MODEL_FILES, "report_files", "hypotheses", "warnings")
# What configuration fields that are None stand for.
_DEFAULTS = {"d_k": "d_model / h", "d_v": "d_model / h", "decoder_vocab_size": "vocab_size"}
_LONGEST_SAMPLE = 90  # characters, so that the picture can be read


def card_facts(
    directory: Path,
    *,
    run: Path | None,
    repo_id: str,
    revision: str | None = None,
    place: str | None = None,
    form: str,
    license: str | None,
    data_license: str | None,
    data_source: str | None,
) -> Metrics:
    """Collect what a card says about a model; an error names what is missing.

    Args:
        directory: Directory with metrics.json, as a run or `evaluate --output` writes it.
        run: Run directory with recipe, samples and curves, if `directory` is not one.
        repo_id: Name on the Hub.
        revision: Branch there. None is `main`.
        place: Directory that the card loads the model from, if it is not pushed.
        form: `NATIVE`, `WITH_CODE` or `STOCK`.
        license: Licence of the model.
        data_license: Licence of the training pairs. None takes the recipe's.
        data_source: Origin of the training pairs. None takes the recipe's.

    Returns:
        The content of metrics.json without paths of this machine, and under `published` what
        publishing adds.

    Raises:
        ValueError: There are no metrics, or no licence.
    """
    metrics, scores_of_run = trained_metrics(directory, run)
    recipe = metrics["recipe"]
    earlier = metrics.get("published", {})  # if the model comes from the Hub
    data_license = data_license or recipe.get("data_license") or earlier.get("data_license")
    data_source = data_source or recipe.get("data_source") or earlier.get("data_source")
    license, data_license = check_licenses(license, data_license)
    for name in (*FILES, "tokenizer"):
        several = listed(recipe.get(name))
        names = [",".join(path.name for path in named_files(text)) for text in several]
        if names:
            recipe[name] = names if len(names) > 1 else names[0]
    initial = _initial_model(metrics)
    if initial is not None and initial["repo"] is None:
        recipe["init_from"] = Path(recipe["init_from"]).name
    # A run records the files of a data set that is a local folder. Name the folder instead.
    if recipe.get("dataset") and "dataset" in metrics["data"].get("files", {}):
        files = recipe.get("train_file") or Path(recipe["dataset"]).name
        recipe |= {"dataset": None, "train_file": files}
    metrics["published"] = {
        "repo_id": repo_id if place is None else repo_id.rpartition("/")[2],
        "form": form,
        "license": license,
        "data_license": data_license,
        "data_source": data_source,
        "samples": _short_samples(samples_of_run(metrics), run or directory),
        "scores_of_run": scores_of_run,
    }
    if revision is not None and place is None:
        metrics["published"]["revision"] = revision
    if place is not None:
        trained_in = run or directory
        typed = place == str(trained_in)
        metrics["published"] |= {"directory": place, "run": place if typed else trained_in.name}
    return cast("Metrics", {key: value for key, value in metrics.items() if key not in _OF_RUN})


def is_non_commercial(license: str) -> bool:
    """Return whether a licence, by name or in words, allows only non-commercial use."""
    return bool(_NON_COMMERCIAL.search(license))


def render_card(facts: Metrics) -> ModelCard:
    """Render the card of a model from the content of its published metrics.json."""
    facts = _printable(facts)
    published, recipe = facts["published"], facts["recipe"]
    samples, branch = published["samples"], published.get("revision")
    right = [sample for sample in samples if sample["translation"] == sample["reference"]]
    sides = recipe.get("source_language") or "source", recipe.get("target_language") or "target"
    languages = [side for side in sides if _is_language(side)]
    scores = _test_scores(facts["scores"]) | facts["scores"]
    measures = [name for name in MEASURES if any(name in result for result in scores.values())]
    first = recipe.get("metric", measures[0]).split(",")[0]
    template = _template("card.md.j2")
    if "zh" in map(_iso_code, languages):
        template += "\n" + _template("card.zh-CN.md.j2")
    card = ModelCard.from_template(
        _card_data(facts, languages),
        template_str=template,
        facts=facts,
        published=published,
        model=published.get("directory", published["repo_id"]),
        at_branch=f", revision={json.dumps(branch)}" if branch else "",
        command=train_command(recipe, published["run"]) if "run" in published else None,
        recipe=recipe,
        example=(right or samples)[0],
        last_is_example=len(samples) > NUM_SAMPLES and right[:1] == samples[-1:],
        source=_plain(_language_name(sides[0])),
        target=_plain(_language_name(sides[1])),
        is_translation=len(languages) == 2,
        first=first if first in measures else measures[0],
        measures={name: MEASURES[name].label for name in measures},
        name=published["repo_id"].rpartition("/")[2],
        scores=scores,
        signatures=_signatures(facts["scores"]),
        beams=" and ".join(
            sorted({str(it["num_beams"]) for it in scores.values() if "num_beams" in it})
        ),
        differences=paper_differences(_as_shipped(facts), facts.get("model", {})),
        initial=_initial_model(facts),
        papers_model="big" if _preset(recipe) == "big" else "base",
        papers_updates=_number(paper_values(_preset(recipe))["max_steps"]),
        sampled="test sets" if set(facts["scores"]) - {"validation"} else "validation set",
        dataset=_dataset_on_hub(recipe),
        files=[file for name in FILES for file in listed(recipe.get(name))],
        machine=_machine(facts),
        duration=_duration(facts["training_minutes"]),
        non_commercial=is_non_commercial(published["data_license"]),
        literal=lambda text: json.dumps(text, ensure_ascii=False),
        one_line=_one_line,
        plain=_plain,
        code=_code,
        link=_link,
        number=_number,
        set_name=lambda name: _plain(name.replace("_", " ")),
    )
    # Omitted parts leave blank lines.
    text = re.sub(r"\n{3,}", "\n\n", str(card)).rstrip() + "\n"
    return ModelCard(text)


def _printable(value: Any) -> Any:
    """Escape control characters in all texts of a value; `_one_line` joins the lines."""
    if isinstance(value, str):
        return "\n".join(map(printable, value.splitlines()))
    if isinstance(value, dict):
        return {_printable(name): _printable(item) for name, item in value.items()}
    return [*map(_printable, value)] if isinstance(value, list) else value


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _plain(text: str) -> str:
    """Escape text so that Markdown shows it unchanged, in a paragraph or a table."""
    return _MARKUP.sub(r"\\\1", _one_line(text))


def _code(text: str, *, in_table: bool = False) -> str:
    """Put text between backticks."""
    text = _one_line(text).replace("`", "'")
    return f"`{text.replace('|', chr(92) + '|') if in_table else text}`"


def _link(name: str, place: str) -> str:
    """Link a name to its place on the Hub."""
    return f"[{_plain(name)}](https://hf.co/{quote(place)})"


def _as_shipped(facts: Metrics) -> dict[str, Any]:
    """Return the recipe with the length penalty that was chosen on validation pairs, if any.

    Without the number of averaged checkpoints, if the model is another average.
    """
    chosen: Mapping[str, Any] = facts.get(CHOSEN) or {}
    known = {name: chosen[name] for name in ("length_penalty",) if name in chosen}
    other = {} if facts["averaged_checkpoints"] else {"checkpoints_to_average": None}
    return facts["recipe"] | known | other


def paper_differences(
    recipe: Mapping[str, Any], model: Mapping[str, object] = MappingProxyType({})
) -> list[dict[str, str]]:
    """Return the settings that are not the paper's: name, value here, the paper's, meaning.

    Args:
        recipe: Recipe of the training.
        model: Configuration fields that no recipe has and that are not the paper's.
    """
    preset = _preset(recipe)
    rows = []
    for name, paper in paper_values(preset).items():
        here = recipe.get(name)
        # The card itself says how long the run was.
        if here is not None and here != paper and name != "max_steps":
            rows.append((name, here, paper, OPTIONS[name].metadata["help"]))
    config = VanillaTransformerConfig.from_preset(preset).to_dict()
    for name, here in model.items():
        paper = config.get(name)  # damaged metrics may have other names
        shown = _DEFAULTS.get(name, "-") if paper is None else paper
        rows.append((name, here, shown, "field of the configuration"))
    return [
        {"name": name, "here": _plain(_number(here)), "paper": _number(paper), "meaning": meaning}
        for name, here, paper, meaning in rows
    ]


def _preset(recipe: Mapping[str, Any]) -> str:
    """Return the paper's model that a recipe is compared with."""
    preset = recipe.get("preset")
    return preset if preset in PRESETS else "base"


def trained_metrics(directory: Path, run: Path | None) -> tuple[Metrics, bool]:
    """Return a run's metrics with this model's scores, and whether those are the run's scores too.

    Raises:
        ValueError: There is no run, its metrics are damaged, or this model was never scored.
    """
    own = _read(directory / METRICS)
    whole = own if run is None else _read(run / METRICS)
    if whole is None or "recipe" not in whole:
        raise RequestError(
            f"{run or directory} holds no metrics of a training run ({METRICS}), which a "
            "card needs; give the run directory with --run. A model that was imported, or trained "
            "by another program, has none: push it with model.push_to_hub and "
            "tokenizer.push_to_hub."
        )
    metrics = check_metrics(whole, (run or directory) / METRICS)
    scores_of_run = own is None or own == whole
    if own is not None and not scores_of_run:
        if "recipe" in own:
            raise RequestError(f"{directory} is itself a run, other than {run}; leave --run out.")
        search = _read(directory / GENERATION_CONFIG) or {}
        metrics = check_metrics(_of_another_model(metrics, own, search), directory / METRICS)
    scores = metrics["scores"].values()
    if not scores or not all("num_sentences" in it and MEASURES.keys() & it for it in scores):
        raise RequestError(
            f"{directory} was never scored, and a card shows scores and translations; train with "
            "validation or test pairs."
        )
    return metrics, scores_of_run


def _of_another_model(
    metrics: Metrics, scores: dict[str, Any], search: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a run's metrics for another average of its checkpoints, or one of them.

    Which ones is not recorded, and they may have been scored on other pairs than the run. Whether
    they have the length penalty that was chosen for the run says their own generation config.
    """
    data = {name: value for name, value in metrics["data"].items() if name != _SHARED}
    files = data.get("files", {}).items()
    data["files"] = {split: names for split, names in files if split in TRAINING_FILES}
    penalty = {name: search[name] for name in ("length_penalty",) if search.get(name) is not None}
    return {
        **{name: value for name, value in metrics.items() if name != CHOSEN},
        "scores": scores.get("scores", scores),
        "data": data,
        "recipe": metrics["recipe"] | penalty,
        "averaged_checkpoints": [],
    }


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    return read_json(own_file(path), remedy="measure the model again")


def check_licenses(license: str | None, data_license: str | None) -> tuple[str, str]:
    """Return both licences; raise ValueError if one is missing or they contradict each other."""
    if not license:
        raise RequestError(
            "got no licence; give the model's with --license, as the Hub names it: apache-2.0, "
            "cc-by-4.0, cc-by-nc-4.0, other ..."
        )
    if not data_license:
        raise RequestError(
            "the recipe does not name the licence of its training pairs; give it with "
            "--data-license, such as 'CC BY 4.0' or 'non-commercial research'."
        )
    if is_non_commercial(data_license) and not (is_non_commercial(license) or license == "other"):
        raise RequestError(
            f"got license {license!r}, but the training pairs are for non-commercial use "
            f"({data_license}); give a licence that says so, such as cc-by-nc-4.0, or other."
        )
    return license, data_license


def _short_samples(samples: Mapping[str, Sequence[Sample]], run: Path) -> list[Sample]:
    """Choose the first short sources, from each test set in turn, with their references.

    If the run translated none of them exactly like the reference, append the first short one that
    it did: the example of a card should not be a mistake of the model.
    """
    in_turn = [
        sample
        for row in itertools.zip_longest(*samples.values())
        for sample in row
        if sample is not None and sample["source"].strip()
    ]
    short = [sample for sample in in_turn if len(sample["source"]) <= _LONGEST_SAMPLE]
    chosen = short if len(short) >= NUM_SAMPLES else in_turn
    if not chosen:
        raise RequestError(
            f"{run / METRICS} holds no samples; give a run that was trained with pairs to score."
        )
    right = [sample for sample in chosen if sample.get("translation") == sample["reference"]]
    chosen = chosen[:NUM_SAMPLES]
    if right and right[0] not in chosen:
        chosen = [*chosen, right[0]]
    return [{"source": sample["source"], "reference": sample["reference"]} for sample in chosen]


def _template(name: str) -> str:
    return (shipped_folder("_model_cards", "model_cards") / name).read_text(encoding="utf-8")


def _initial_model(facts: Metrics) -> dict[str, str | None] | None:
    """Return the model that the training started from: how to show it, and its Hub name."""
    name, found = facts["recipe"].get("init_from"), facts["data"].get("init_from") or {}
    if name is None:
        return None
    if found.get("revision"):
        shown, commit = _link(name, name), f"revision {_code(found['revision'])}"
        return {"shown": shown, "mark": commit, "repo": name}
    digests = [_code(file["sha256"]) for file in found.get("files", [])[:1]]
    mark = f"SHA-256 of its weights {digests[0]}" if digests else None
    return {"shown": _code(Path(name).name), "mark": mark, "repo": None}


def _card_data(facts: Metrics, languages: list[str]) -> ModelCardData:
    published = facts["published"]
    task = "translation" if len(languages) == 2 else None
    results = list(_eval_results(facts, task or "text2text-generation"))
    # The Hub refuses a card whose `language` has a region or a script.
    with_regions = [code.replace("_", "-") for code in languages if code != _iso_code(code)]
    return ModelCardData(
        language=[_iso_code(code) for code in languages] or None,
        language_bcp47=with_regions or None,
        license=published["license"],
        library_name="vanilla_transformer" if published["form"] == NATIVE else "transformers",
        pipeline_tag=task,
        tags=[*filter(None, [task]), "transformer", "attention-is-all-you-need"],
        datasets=_hub_datasets(facts) or None,
        base_model=(_initial_model(facts) or {}).get("repo"),
        metrics=list(dict.fromkeys(result.metric_type for result in results)),
        model_name=published["repo_id"].rpartition("/")[2],
        eval_results=results,
    )


def _iso_code(language: str) -> str:
    """Return the code without region and script: "pt_BR" -> "pt"."""
    return re.split("[-_]", language)[0].lower()


def _is_language(side: str) -> bool:
    """Return whether a side is a language by its code, as the Hub takes it: en, pt-BR, zh_Hant."""
    known = _iso_code(side) in LANGUAGES or language_of(side) is not None
    return known and _LANGUAGE.fullmatch(side) is not None


def _language_name(language: str) -> str:
    """Return the English name, if there is one: "pt_BR" -> "Portuguese (pt_BR)"."""
    code = _iso_code(language)
    name = LANGUAGES[code].title() if code in LANGUAGES else language
    return name if language in (code, name) else f"{name} ({language})"


def _dataset_on_hub(recipe: Mapping[str, Any]) -> str | None:
    """Return the Hub name of the training pairs, if the recipe takes them from there."""
    return None if recipe.get("train_file") else recipe.get("dataset")


def _hub_datasets(facts: Metrics) -> list[str]:
    """Return Hub names of the training pairs: the recipe's, or those that its source links to."""
    if dataset := _dataset_on_hub(facts["recipe"]):
        return [dataset]
    return _HUB_DATASET.findall(facts["published"]["data_source"] or "")


def _eval_results(facts: Metrics, task: str) -> Iterator[EvalResult]:
    recipe, data = facts["recipe"], facts["data"]
    dataset = _dataset_on_hub(recipe) or "parallel-text"
    source = facts["published"]["data_source"]
    scores = _test_scores(facts["scores"])
    labels = {name: measure.label for name, measure in MEASURES.items()}
    labels |= {"exact_match": "exact_match", "perplexity": "perplexity"}
    sides = "-".join(filter(None, (recipe.get("source_language"), recipe.get("target_language"))))
    for name, result in scores.items():
        for metric in filter(result.__contains__, labels):
            signature = result.get(f"{metric}_signature")
            yield EvalResult(
                task_type=task,
                task_name=f"{task.replace('-', ' ').capitalize()} {sides}".strip(),
                dataset_type=dataset,
                dataset_name=source or dataset,
                dataset_split=name,
                dataset_revision=data.get("revision"),
                metric_type=metric,
                metric_name=labels[metric],
                metric_value=round(result[metric], 2 if metric in ("bleu", "chrf") else 3),
                metric_args={"signature": signature} if signature else None,
            )


def _test_scores(scores: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of the test sets, or of the validation set if there are none."""
    return {name: result for name, result in scores.items() if name != "validation"} or scores


def _signatures(scores: dict[str, Any]) -> list[str]:
    """Return how the measures are computed; an exact match needs no words."""
    named = [f"{name}_signature" for name in MEASURES if name != "exact_match"]
    found = scores.values()
    return list(dict.fromkeys(each[name] for name in named for each in found if name in each))


def _machine(facts: Metrics) -> str:
    hardware, devices = facts["hardware"], facts["devices"]
    if "gpu" in hardware:
        return f"{devices} x {_plain(hardware['gpu'])}"
    return f"{cpu_cores(facts)} ({_plain(hardware['cpu'])})"


def _duration(minutes: float) -> str:
    return f"{minutes / 60:.1f} hours" if minutes >= 120 else f"{minutes:.1f} minutes"


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
