"""Model cards: Markdown with the Hub's metadata, rendered from the facts in a metrics.json.

`card_facts` collects the facts and removes local paths. `render_card` depends on nothing else, so
that a published metrics.json renders to exactly the same card again. Facts that are missing, such
as those of a run without our recipes, are left out of the card.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict, cast
from urllib.parse import quote

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..configuration_vanilla_transformer import PRESETS, VanillaTransformerConfig
from ..data.languages import english_name, language_of
from ..errors import RequestError
from ..machine.environment import cpu_cores
from ..recipes.data import FILES, named_files
from ..recipes.options import OPTIONS, PAPERS_TRAINER, is_changeable, listed
from ..recipes.plan import changed_settings_as_yaml
from ..recipes.recipe import paper_values
from ..storage.metrics import MEASURES, NUM_SAMPLES, Metrics, Published, Sample
from ..storage.reading import printable
from ..storage.run_files import MODEL_FILES
from ..storage.shipped import shipped_folder

# The forms that a model is published in.
NATIVE, WITH_CODE, STOCK = "native", "with_code", "stock"

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")
_MARKUP = re.compile(r"([\\`*\[\]<>|])")
_NON_COMMERCIAL = re.compile(r"non.?commercial|(^|[^a-z])nc([^a-z]|$)", re.IGNORECASE)
# What configuration fields that are None stand for.
_DEFAULTS = {"d_k": "d_model / h", "d_v": "d_model / h", "decoder_vocab_size": "vocab_size"}
_TIMES = ("runtime", "_per_second")  # ends of names in a Trainer's log that are not scores
_LONGEST_SAMPLE = 90  # characters, so that its attention picture can be read


class TrainerFacts(TypedDict, total=False):
    """Fields of a Trainer's state that a card shows."""

    global_step: int
    epoch: float | None
    log_history: list[dict[str, Any]]


def card_facts(metrics: Metrics, published: Published) -> Metrics:
    """Return the content of the published metrics.json: the facts of a card, without local paths.

    Args:
        metrics: Facts about the model, such as the metrics.json of its run.
        published: Facts that publishing adds. If licence and origin of the data are missing, the
            recipe's are used.
    """
    recipe = dict(metrics.get("recipe", {}))
    defaults = {name: recipe.get(name) for name in ("data_license", "data_source")}
    for name in (*FILES.values(), "tokenizer"):
        several = listed(recipe.get(name))
        names = [",".join(path.name for path in named_files(text)) for text in several]
        if names:
            recipe[name] = names if len(names) > 1 else names[0]
    facts: dict[str, Any] = {name: it for name, it in metrics.items() if name != MODEL_FILES}
    if recipe.get("init_from") and _base_model(metrics) is None:
        recipe["init_from"] = Path(recipe["init_from"]).name
    # A run records the files of a data set that is a local folder. Name the folder instead.
    if recipe.get("dataset") and "dataset" in metrics["data"].get("files", {}):
        files = recipe.get("train_file") or Path(recipe["dataset"]).name
        recipe |= {"dataset": None, "train_file": files}
    if "recipe" in metrics:
        facts["recipe"] = recipe
    facts["samples"] = {"card": _chosen_samples(metrics.get("samples", {}))}
    facts["published"] = defaults | {name: value for name, value in published.items() if value}
    if teachers := metrics.get("data", {}).get("teachers", []):
        recipe["teachers"] = [teacher["name"] for teacher in teachers]
        terms = [f"teacher {it['name']}: {it['license']}" for it in teachers if it["license"]]
        terms = [*filter(None, [facts["published"]["data_license"]]), *terms]
        facts["published"]["data_license"] = "; ".join(terms) or None
    check_licenses(facts["published"].get("license"), facts["published"]["data_license"])
    return cast("Metrics", facts)


def training_facts(state: TrainerFacts) -> Metrics:
    """Return facts about a run from the Trainer's state (trainer_state.json)."""
    facts = Metrics(updates=state.get("global_step", 0), epochs=state.get("epoch") or 0.0)
    for entry in state.get("log_history", ()):
        if "train_runtime" in entry:
            facts["training_minutes"] = entry["train_runtime"] / 60
        scores = [it for it in entry if it.startswith("eval_") and not it.endswith(_TIMES)]
        if scores:
            facts["last_evaluation"] = {name: entry[name] for name in scores}
    return facts if facts["updates"] else Metrics()


def is_non_commercial(license: str) -> bool:
    """Return True if a licence, by name or in words, forbids commercial use."""
    return bool(_NON_COMMERCIAL.search(license))


def check_licenses(license: str | None, data_license: str | None) -> None:
    """Raise ValueError if the model has no licence, or one that its data's licence forbids."""
    if not license:
        raise RequestError("the model needs a --license as the Hub names it: apache-2.0, other ...")
    allowed = is_non_commercial(license) or license == "other"
    if data_license and is_non_commercial(data_license) and not allowed:
        use = f"non-commercial use ({data_license})"
        raise RequestError(f"got {license!r}, but the training data's licence allows only {use}.")


def render_card(facts: Metrics) -> ModelCard:
    """Render the card of a model from the content of its published metrics.json."""
    facts = _printable(facts)
    published, recipe = facts["published"], facts.get("recipe", {})
    samples, branch = facts["samples"]["card"], published.get("revision")
    right = [sample for sample in samples if sample.get("translation") == sample["reference"]]
    sides = _sides(facts)
    languages = [side for side in sides if _is_language(side)]
    scores = _test_scores(facts)
    measures = [name for name in MEASURES if any(name in result for result in scores.values())]
    wanted = recipe.get("metric", "").split(",")[0]
    preset = _preset(recipe)
    beams = sorted({str(it["num_beams"]) for it in scores.values() if "num_beams" in it})
    template = shipped_folder("_model_cards", "model_cards") / "card.md.j2"
    card = ModelCard.from_template(
        _card_data(facts, languages),
        template_str=template.read_text(encoding="utf-8"),
        facts=facts,
        published=published,
        recipe=recipe,
        name=_name(published),
        at_branch=f", revision={json.dumps(branch)}" if branch else "",
        recipe_file=changed_settings_as_yaml(recipe).replace("```", "'''"),
        samples=samples,
        example=next(iter([*right, *samples]), None),
        last_is_example=len(samples) > NUM_SAMPLES and right[:1] == samples[-1:],
        source=_plain(_language_name(sides[0])),
        target=_plain(_language_name(sides[1])),
        is_translation=len(languages) == 2,
        first=wanted if wanted in measures else next(iter(measures), None),
        measures={name: MEASURES[name].label for name in measures},
        scores=scores,
        beams=" and ".join(beams),
        differences=paper_differences(_as_published(facts), facts.get("model", {})),
        base_model=_base_model(facts),
        papers_model=preset,
        papers_updates=_number(paper_values(preset)["max_steps"]),
        dataset=_dataset_on_hub(recipe),
        machine=_machine(facts),
        duration=_duration(facts.get("training_minutes", 0)),
        non_commercial=is_non_commercial(published.get("data_license") or ""),
        literal=lambda text: json.dumps(text, ensure_ascii=False),
        one_line=_one_line,
        plain=_plain,
        code=_code,
        link=_link,
        number=_number,
        set_name=lambda name: _plain(name.replace("_", " ")),
    )
    # Omitted parts leave blank lines.
    return ModelCard(re.sub(r"\n{3,}", "\n\n", str(card)).rstrip() + "\n")


def _printable(value: Any) -> Any:
    """Escape control characters in all texts of a value, but keep line breaks."""
    if isinstance(value, str):
        return "\n".join(map(printable, value.splitlines()))
    if isinstance(value, dict):
        return {_printable(name): _printable(item) for name, item in value.items()}
    return [*map(_printable, value)] if isinstance(value, list) else value


def _name(published: Published) -> str:
    return published["model"].rpartition("/")[2]


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
    """Render a name as a link to the Hub."""
    return f"[{_plain(name)}](https://hf.co/{quote(place)})"


def _as_published(facts: Metrics) -> dict[str, Any]:
    """Return the recipe, with the published model's length penalty.

    The number of averaged checkpoints is left out if the model is not the run's own average.
    """
    penalty = facts["published"].get("length_penalty")
    values = dict(facts.get("recipe", {}))
    if penalty is not None:
        values["length_penalty"] = penalty
    if not facts.get("averaged_checkpoints"):
        values["checkpoints_to_average"] = None
    return values


def paper_differences(
    recipe: Mapping[str, Any], model: Mapping[str, object] = MappingProxyType({})
) -> list[dict[str, str]]:
    """List the settings that differ from the paper: name, value here, the paper's value, meaning.

    Args:
        recipe: Recipe of the run.
        model: Configuration fields that differ from the paper's and are not in the recipe.
    """
    preset = _preset(recipe)
    rows = []
    for name, paper in paper_values(preset).items():
        here = recipe.get(name)
        # The card itself says how long the run was.
        if here is not None and here != paper and name != "max_steps":
            rows.append((name, here, paper, OPTIONS[name].metadata["help"]))
    for name, here in (recipe.get("trainer") or {}).items():
        paper = PAPERS_TRAINER.get(name, "-")
        if here != paper and name != "save_steps" and not is_changeable(name):
            rows.append((name, here, paper, "argument of the trainer"))
    config = VanillaTransformerConfig.from_preset(preset).to_dict()
    for name, here in model.items():
        paper = config[name]
        shown = _DEFAULTS.get(name, "-") if paper is None else paper
        rows.append((name, here, shown, "field of the configuration"))
    return [
        {"name": name, "here": _plain(_number(here)), "paper": _number(paper), "meaning": meaning}
        for name, here, paper, meaning in rows
    ]


def _preset(recipe: Mapping[str, Any]) -> str:
    """Return the preset (base or big) of the paper that a recipe is compared with."""
    preset = recipe.get("preset")
    return preset if preset in PRESETS else "base"


def _chosen_samples(samples: Mapping[str, Sequence[Sample]]) -> list[Sample]:
    """Choose the first short sources, from each test set in turn, with their references.

    If the run translated none of them exactly like the reference, append the first short source
    that it did, so that the example of a card is not a mistake of the model.
    """
    rows = itertools.zip_longest(*samples.values())
    in_turn = [it for row in rows for it in row if it is not None and it["source"].strip()]
    short = [sample for sample in in_turn if len(sample["source"]) <= _LONGEST_SAMPLE]
    candidates = short if len(short) >= NUM_SAMPLES else in_turn
    right = [it for it in candidates if it.get("translation") == it["reference"]]
    chosen = candidates[:NUM_SAMPLES]
    if right and right[0] not in chosen:
        chosen = [*chosen, right[0]]
    return [{"source": sample["source"], "reference": sample["reference"]} for sample in chosen]


def _base_model(facts: Metrics) -> str | None:
    """Return the model on the Hub that the run started from, if any."""
    if (facts.get("data", {}).get("init_from") or {}).get("revision"):
        return facts["recipe"]["init_from"]
    return facts.get("published", {}).get("base_model")


def _sides(facts: Metrics) -> list[str]:
    """Return the languages of source and target, or else "source" and "target"."""
    recipe, names = facts.get("recipe", {}), facts["published"].get("languages") or ("", "")
    return [
        name or recipe.get(f"{side}_language") or side
        for side, name in zip(("source", "target"), names, strict=True)
    ]


def _card_data(facts: Metrics, languages: list[str]) -> ModelCardData:
    published, dataset = facts["published"], _dataset_on_hub(facts.get("recipe", {}))
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
        datasets=[dataset] if dataset else None,
        base_model=_base_model(facts),
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        model_name=_name(published),
        eval_results=results or None,
    )


def _iso_code(language: str) -> str:
    """Return a language code without region and script: "pt_BR" -> "pt"."""
    return re.split("[-_]", language)[0].lower()


def _is_language(side: str) -> bool:
    """Return True if the name of source or target is a language code: en, pt-BR, zh_Hant."""
    return language_of(side) is not None and _LANGUAGE.fullmatch(side) is not None


def _language_name(language: str) -> str:
    """Return the English name of a language, if known: "pt_BR" -> "Portuguese (pt_BR)"."""
    code = _iso_code(language)
    name = english_name(code) if _is_language(language) else language
    return name if language in (code, name) else f"{name} ({language})"


def _dataset_on_hub(recipe: Mapping[str, Any]) -> str | None:
    """Return the Hub name of the training pairs, if they are from a data set on the Hub."""
    return None if recipe.get("train_file") else recipe.get("dataset")


def _eval_results(facts: Metrics, task: str) -> Iterator[EvalResult]:
    recipe = facts.get("recipe", {})
    dataset = _dataset_on_hub(recipe) or "parallel-text"
    labels = {name: measure.label for name, measure in MEASURES.items()}
    labels |= {"exact_match": "exact_match", "perplexity": "perplexity"}
    sides = "-".join(side for side in _sides(facts) if side not in ("source", "target"))
    for name, result in _test_scores(facts, only=True).items():
        for metric in filter(result.__contains__, labels):
            signature = result.get(f"{metric}_signature")
            yield EvalResult(
                task_type=task,
                task_name=f"{task.replace('-', ' ').capitalize()} {sides}".strip(),
                dataset_type=dataset,
                dataset_name=facts["published"].get("data_source") or dataset,
                dataset_split=name,
                dataset_revision=facts.get("data", {}).get("revision"),
                metric_type=metric,
                metric_name=labels[metric],
                metric_value=round(result[metric], 2 if metric in ("bleu", "chrf") else 3),
                metric_args={"signature": signature} if signature else None,
            )


def _test_scores(facts: Metrics, *, only: bool = False) -> dict[str, Any]:
    """Return the scores by test set, with the validation set last.

    Args:
        facts: Content of a metrics.json.
        only: Leave out the validation set if there is a test set.
    """
    scores: dict[str, Any] = dict(facts.get("scores", {}))
    tests = {name: result for name, result in scores.items() if name != "validation"}
    return tests if only and tests else tests | scores


def _machine(facts: Metrics) -> str | None:
    hardware = facts.get("hardware")
    if not hardware:
        return None
    if "gpu" in hardware:
        return f"{facts['devices']} x {_plain(hardware['gpu'])}"
    return f"{cpu_cores(facts)} ({_plain(hardware['cpu'])})"


def _duration(minutes: float) -> str:
    return f"{minutes / 60:.1f} hours" if minutes >= 120 else f"{minutes:.1f} minutes"


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
