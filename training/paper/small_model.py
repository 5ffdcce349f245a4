"""Train a small translation model: code shared by the rows of `attention.py` and `table_3.py`.

All rows see the same pairs, pieces and batches, for the same number of updates. A row changes only
its config, or the model made from that config.
"""

import argparse
import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from experiment import Experiment, Settings
from transformers import set_seed

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.data import load_pairs, sentences, tokenize_pairs, train_tokenizer
from vanilla_transformer.errors import NotFiniteError
from vanilla_transformer.evaluation import score_model
from vanilla_transformer.recipes.data import training_pairs, validation_pairs
from vanilla_transformer.recipes.planning import argument_values
from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.storage.atomic import write_json
from vanilla_transformer.storage.reading import read_json
from vanilla_transformer.train import VanillaTransformerTrainer
from vanilla_transformer.train.checkpoints import last_whole_checkpoint
from vanilla_transformer.train.cpu_settings import without_training_changes
from vanilla_transformer.train.run import training_arguments

PARTS = ("train", "validation")
Change = Callable[[VanillaTransformerForConditionalGeneration], None]


class Translation:
    """The pairs and the tokenizer of an experiment, and the training of its models.

    Args:
        name: Name of the experiment, and of its folder among the runs.
        recipe: Name of the recipe that defines the pairs and the training.
        values: Values that replace the recipe's.
        options: Options of the command line, as `TranslationExperiment` defines them.
    """

    def __init__(
        self, name: str, recipe: str, values: Mapping[str, object], options: argparse.Namespace
    ) -> None:
        files = {key: vars(options)[key] for key in ("train_file", "validation_file")}
        files = {key: file for key, file in files.items() if file is not None}
        self.recipe = load_recipe(recipe, {**values, **files})
        self.folder = options.runs / f"{name}.{options.size}"

    @cached_property
    def _data(self) -> tuple[object, ...]:
        recipe = self.recipe
        pairs, texts = training_pairs(recipe), validation_pairs(recipe)
        tokenizer = train_tokenizer(
            sentences(pairs), vocab_size=recipe.vocab_size, split_digits=recipe.split_digits
        )
        languages = (recipe.source_language, recipe.target_language)
        validation = load_pairs(
            [*zip(texts.sources, texts.targets, strict=True)],
            source_language=languages[0],
            target_language=languages[1],
        )
        return tokenizer, *(tokenize_pairs(part, tokenizer) for part in (pairs, validation)), texts

    def train(
        self, row: str, config: Mapping[str, object], change: Change | None = None, *, seed: int = 0
    ) -> dict[str, object]:
        """Train one row's model, and evaluate its last weights by beam search, as Table 3 does.

        Args:
            row: Name of the row, and of its folder during training.
            config: Config values that differ from the paper's base model.
            change: Function applied to the new model before its first update.
            seed: Seed of the weights, the order of the batches and dropout.

        Returns:
            Parameters, precision, updates, perplexity and BLEU on the validation pairs; or, in
            `failed`, the reason why there are no scores.
        """
        tokenizer, training, validation, texts = self._data
        set_seed(seed)
        model = VanillaTransformerForConditionalGeneration(
            VanillaTransformerConfig(vocab_size=len(tokenizer), **config)
        )
        if change is not None:
            change(model)
        folder = self.folder / row.replace(" ", "_")
        recipe = dataclasses.replace(self.recipe, seed=seed)
        # Checkpoints that an earlier version of the row has left cannot be continued.
        mark = folder / "row.json"
        identity = json.loads(json.dumps({"config": config, "recipe": dataclasses.asdict(recipe)}))
        if mark.is_file() and read_json(mark) != identity:
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(mark, identity)
        trainer = VanillaTransformerTrainer(
            model,
            training_arguments(argument_values(recipe), folder),
            train_dataset=training,
            eval_dataset=validation,
            processing_class=tokenizer,
        )
        facts = {
            "parameters": model.num_parameters(),
            "seed": seed,
            "precision": trainer.args.precision,
        }
        try:
            trainer.train(resume_from_checkpoint=last_whole_checkpoint(folder))
            with without_training_changes(model):
                scores = score_model(
                    model,
                    tokenizer,
                    texts.sources,
                    texts.targets,
                    target_language=recipe.target_language,
                    num_beams=4,
                    length_penalty=0.6,
                )
        except NotFiniteError as error:  # a training that diverges is a result too
            shutil.rmtree(folder)
            return {**facts, "failed": str(error)}
        shutil.rmtree(folder)
        return {
            **facts,
            "updates": trainer.state.global_step,
            "perplexity": round(scores["perplexity"], 3),
            "bleu": round(scores["bleu"], 2),
        }


class TranslationExperiment(Experiment):
    """An experiment whose rows are trained by `Translation`, on pairs that are prepared once."""

    arguments = "[--train-file FILE --validation-file FILE]"
    _translation: Translation | None = None

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the paths of the pairs, and a folder for unfinished models."""
        for part in PARTS:
            text = f"{part} pairs, instead of those in the recipe"
            parser.add_argument(f"--{part}-file", metavar="FILE", help=text)
        folder = Path("runs/paper")
        parser.add_argument("--runs", type=Path, default=folder, help="for unfinished trainings")

    def files(self) -> dict[str, Path | None]:
        """Return the files of the pairs."""
        given = {part: getattr(self.options, f"{part}_file") for part in PARTS}
        return {part: file and Path(file) for part, file in given.items()}

    def translation(self, settings: Settings) -> Translation:
        """Return the `Translation` that trains the rows' models as the settings say."""
        if self._translation is None:
            recipe, values = settings["recipe"], settings["values"]
            self._translation = Translation(self.name, recipe, values, self.options)
        return self._translation
