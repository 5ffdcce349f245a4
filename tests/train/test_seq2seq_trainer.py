"""What Seq2SeqTrainer can do, our trainer does too: each feature beside the stock trainer."""

import math

import numpy as np
import pytest
import torch
from datasets import Dataset
from published_runs import tiny_tokenizer
from stock_updates import collate
from tiny_trainers import VOCAB, At, assert_equal, copy_task, make_trainer, tiny_model, weights
from torch import nn
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments
from transformers.trainer_pt_utils import LabelSmoother

from vanilla_transformer.data.dataset import PairCollator
from vanilla_transformer.train import VanillaTransformerTrainer, VanillaTransformerTrainingArguments
from vanilla_transformer.train.cpu_settings import FastDropoutOfSums

# The same updates with both trainers: batches by number, a schedule and an optimizer by name.
SETTINGS = {
    "max_steps": 4,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    "disable_tqdm": True,
    "learning_rate": 0.1,
    "lr_scheduler_type": "linear",
    "optim": "sgd",  # Adam would divide rounding errors by themselves
    "warmup_steps": 0,
    "per_device_train_batch_size": 4,
    "max_grad_norm": 1.0,
}


class FirstCollator:
    """Makes batches of (input_ids, labels) in columns that only it knows."""

    def __call__(self, rows):
        pairs = [{"input_ids": row["question"], "labels": row["question"]} for row in rows]
        return collate(pairs)


def both(directory, *, model=None, given=None, **settings):
    """Return a stock trainer and ours with equal models, data and settings."""
    settings = SETTINGS | settings
    ours = VanillaTransformerTrainingArguments(
        str(directory / "ours"), batch_tokens=None, **settings
    )
    same = {name: getattr(ours, name) for name in ("adam_beta2", "adam_epsilon")}
    stock = Seq2SeqTrainingArguments(str(directory / "stock"), **settings, **same)
    collator = PairCollator(pad_token_id=0, vocab_size=VOCAB)
    given = {
        "train_dataset": copy_task(40),
        "eval_dataset": copy_task(13, seed=5),
        "data_collator": collator,
        **(given or {}),
    }
    return [
        trainer(tiny_model(dropout=0.0, **(model or {})), args, **given)
        for trainer, args in ((Seq2SeqTrainer, stock), (VanillaTransformerTrainer, ours))
    ]


def train_both(directory, **options):
    return train_alike(*both(directory, **options))


def train_alike(stock, ours):
    """Train both, compare the weights and the logged losses, and return them."""
    trainers = stock, ours
    for trainer in trainers:
        trainer.train()
    for name in weights(stock):
        # Ours computes attention and products on a CPU in another order.
        assert torch.allclose(weights(ours)[name], weights(stock)[name], atol=2e-5), name
    losses = [[log["loss"] for log in each.state.log_history if "loss" in log] for each in trainers]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    return trainers


def assert_same_predictions(one, other):
    np.testing.assert_equal((one.predictions, one.label_ids), (other.predictions, other.label_ids))


def token_accuracy(prediction):
    predicted = prediction.predictions
    if isinstance(predicted, tuple):
        predicted = predicted[0]
    predicted = predicted.argmax(-1) if predicted.ndim == 3 else predicted
    seen = prediction.label_ids != -100
    return {"accuracy": float((predicted[seen] == prediction.label_ids[seen]).mean()), "bleu": 7.5}


def test_batches_of_a_number_of_pairs_give_the_stock_updates(tmp_path):
    train_both(tmp_path, gradient_accumulation_steps=2)


def test_compute_metrics_sees_the_stock_predictions(tmp_path):
    def keep(prediction):
        kept.append(prediction)
        return token_accuracy(prediction)

    kept = []
    stock, ours = both(tmp_path, given={"compute_metrics": keep})
    expected, metrics = stock.evaluate(), ours.evaluate()
    assert metrics["eval_accuracy"] == expected["eval_accuracy"]
    assert_same_predictions(*kept)
    # Loss and perplexity stay those of the whole set by tokens.
    plain = both(tmp_path)[1].evaluate()
    for name in ("eval_loss", "eval_perplexity", "eval_training_loss"):
        assert metrics[name] == plain[name], name


def test_predict_returns_the_stock_predictions(tmp_path):
    expected, found = (trainer.predict(copy_task(9, seed=1)) for trainer in both(tmp_path))
    assert_same_predictions(found, expected)
    assert found.metrics["test_perplexity"] == pytest.approx(math.exp(found.metrics["test_loss"]))


def test_compute_loss_func_replaces_the_loss(tmp_path):
    def twice(outputs, labels, num_items_in_batch=None):
        loss = torch.nn.functional.cross_entropy(
            outputs.logits.flatten(0, 1), labels.flatten(), reduction="sum"
        )
        return 2 * loss / num_items_in_batch

    tokenizer = tiny_tokenizer()
    collator = DataCollatorForSeq2Seq(tokenizer, model=tiny_model())
    given = {"compute_loss_func": twice, "data_collator": collator}
    stock, ours = train_both(tmp_path, given=given)
    metrics = ours.evaluate()
    assert metrics["eval_loss"] == pytest.approx(stock.evaluate()["eval_loss"], rel=1e-5)
    # The perplexity stays the model's own.
    assert metrics["eval_perplexity"] < math.exp(0.6 * metrics["eval_loss"])


@pytest.mark.parametrize("side", ["right", "left"])
def test_label_smoothing_factor_replaces_the_models_loss(tmp_path, side):
    whole = DataCollatorForSeq2Seq(tiny_tokenizer(), model=tiny_model())
    settings = {"label_smoothing_factor": 0.2, "model": {"label_smoothing": 0.0}}
    stock, ours = both(tmp_path, given={"data_collator": whole}, **settings)
    ours.data_collator = DataCollatorForSeq2Seq(tiny_tokenizer(), model=ours.model)
    ours.data_collator.tokenizer.padding_side = side
    train_alike(stock, ours)
    metrics = ours.evaluate()
    assert metrics["eval_loss"] == pytest.approx(stock.evaluate()["eval_loss"], rel=1e-5)
    assert math.log(metrics["eval_perplexity"]) != pytest.approx(metrics["eval_loss"], rel=1e-3)


def test_several_evaluation_sets_have_figures_of_their_own(tmp_path):
    sets = {"near": copy_task(9), "far": copy_task(9, seed=1)}
    settings = {
        **{"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2},
        **{"load_best_model_at_end": True, "metric_for_best_model": "eval_far_loss"},
    }
    _, ours = both(tmp_path, given={"eval_dataset": sets}, **settings)
    ours.train()
    metrics = ours.evaluate()
    for name, data in sets.items():
        assert metrics[f"eval_{name}_loss"] == ours.evaluate(data)["eval_loss"]
        loss = metrics[f"eval_{name}_loss"]
        assert metrics[f"eval_{name}_perplexity"] == pytest.approx(math.exp(loss))
    history = [log["eval_far_loss"] for log in ours.state.log_history if "eval_far_loss" in log]
    assert ours.state.best_metric == min(history[:2])  # during training; its attention rounds apart
    assert ours.state.best_metric == pytest.approx(metrics["eval_far_loss"], rel=1e-6)


def test_predictions_of_generate_equal_the_stock_ones(tmp_path):
    seen = []

    def keep(prediction):
        seen.append(prediction.predictions)
        return {"bleu": 1.0}

    settings = {"predict_with_generate": True, "generation_num_beams": 2}
    trainers = both(tmp_path, given={"compute_metrics": keep}, **settings)
    metrics = [trainer.evaluate(max_length=9) for trainer in trainers]
    np.testing.assert_array_equal(*seen)
    assert metrics[1]["eval_bleu"] == 1.0
    stock, ours = (trainer.predict(copy_task(5), num_beams=1) for trainer in trainers)
    assert_same_predictions(ours, stock)


def test_predictions_are_as_wide_as_the_longest_and_keep_the_papers_limit(tmp_path):
    """Source + 50, in the second batch too: Seq2SeqTrainer then has set a length of 20."""
    data = copy_task(12)
    for trainer in both(tmp_path, predict_with_generate=True, per_device_eval_batch_size=6):
        for _ in range(2):
            # With </s> suppressed, only the limit ends a translation.
            found = trainer.predict(data, suppress_tokens=[0, 1, 2, 3]).predictions
            lengths = [(row > 3).sum() for row in found]
            widest = [max(data[batch]["source_length"]) for batch in (slice(6), slice(6, 12))]
            assert lengths == [width + 50 for width in widest for _ in range(6)]
            assert found.shape[1] == 1 + 50 + max(widest)


def test_data_sets_of_others_and_their_collators_train(tmp_path):
    """Columns without lengths, padded by transformers, in batches by tokens."""
    rows = [{"input_ids": row["input_ids"], "labels": row["labels"]} for row in copy_task(40)]
    data = Dataset.from_list([{**it, "attention_mask": [1] * len(it["input_ids"])} for it in rows])
    collator = DataCollatorForSeq2Seq(tiny_tokenizer(), model=tiny_model())
    found = []
    for train, given in (
        (copy_task(40), {}),
        (data.add_column("x", ["?"] * 40), {"data_collator": collator}),
    ):
        trainer = make_trainer(tmp_path, train=train, given=given, max_steps=3, save_strategy="no")
        trainer.train()
        found.append((weights(trainer), trainer.evaluate()["eval_loss"]))
    assert_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize("streams", [False, True])
def test_columns_that_only_the_collator_knows_train_in_batches_by_number(tmp_path, streams, caplog):
    data = Dataset.from_list([{"question": row["input_ids"]} for row in copy_task(40)])
    train = data.to_iterable_dataset() if streams else data
    given = {"train_dataset": train, "eval_dataset": data, "data_collator": FirstCollator()}
    settings = {"remove_unused_columns": False, "dataloader_pin_memory": False}
    stock, ours = train_both(tmp_path, given=given, **settings)
    assert ours.evaluate()["eval_loss"] == pytest.approx(stock.evaluate()["eval_loss"], rel=1e-5)
    ours.args.batch_tokens, ours.args.max_steps = 100, 1
    ours.train()
    assert "batches are of size 4, whatever batch_tokens is" in caplog.text


def test_a_model_of_model_init_trains_with_the_settings_for_a_cpu(tmp_path):
    def settings():
        encoder = trainer.model.model.encoder
        return type(encoder.dropout), encoder.config._attn_implementation

    seen = []
    trainer = make_trainer(
        tmp_path,
        given={"model_init": lambda: tiny_model()},
        callbacks=[At(1, lambda: seen.append(settings()))],
        max_steps=1,
    )
    before = trainer.model
    trainer.train()
    assert trainer.model is not before
    assert seen == [(FastDropoutOfSums, "eager")]
    assert settings() == (nn.Dropout, "sdpa")


def test_evaluation_in_bfloat16_is_the_stock_one(tmp_path):
    expected, found = (trainer.evaluate() for trainer in both(tmp_path, bf16_full_eval=True))
    assert found["eval_loss"] == expected["eval_loss"]


# ---------------------------------------------------- what a user, a data set or a search replaces


def shifted(compute):
    """Return a function with a loss that is 1000 above that of `compute_loss`."""

    def compute_loss(model, inputs, return_outputs=False, **kwargs):
        loss, outputs = compute(model, inputs, return_outputs=True, **kwargs)
        return (loss + 1000, outputs) if return_outputs else loss + 1000

    return compute_loss


class Loss:
    def compute_loss(self, *args, **kwargs):
        return shifted(super().compute_loss)(*args, **kwargs)


class Step:
    def prediction_step(self, *args, **kwargs):
        loss, *rest = super().prediction_step(*args, **kwargs)
        return (loss + 1000, *rest)


class Inputs:
    def _prepare_inputs(self, inputs):
        inputs = super()._prepare_inputs(inputs)
        return {**inputs, "labels": inputs["labels"].clamp(max=2)}


class Loader:
    def get_eval_dataloader(self, eval_dataset=None):
        return super().get_eval_dataloader(self.eval_dataset.select(range(4)))


class Collator(PairCollator):
    def __call__(self, rows):
        batch = super().__call__(rows)
        return {**batch, "labels": batch["labels"].clamp(max=2)}


@pytest.mark.parametrize("replaced", [Loss, Step, Inputs, Loader, Collator, "attribute", "patch"])
def test_the_evaluation_loss_is_that_of_what_was_replaced(tmp_path, replaced, caplog, monkeypatch):
    """Else early stopping and the best model follow a loss that nobody trains."""
    given = {}
    if replaced is Collator:
        given["data_collator"] = Collator(pad_token_id=0, vocab_size=VOCAB)
    trainers = both(tmp_path, given=given, per_device_eval_batch_size=13)
    plain = trainers[1].evaluate()["eval_loss"]
    for trainer in trainers:
        if replaced == "attribute":
            trainer.compute_loss = shifted(trainer.compute_loss)
        elif replaced == "patch":
            step = Seq2SeqTrainer.prediction_step
            higher = lambda *a, step=step, **kw: (step(*a, **kw)[0] + 1000, None, None)  # noqa: E731
            monkeypatch.setattr(Seq2SeqTrainer, "prediction_step", higher)
        elif replaced is not Collator:
            trainer.__class__ = type("Replaced", (replaced, type(trainer)), {})
    stock, ours = (trainer.evaluate() for trainer in trainers)
    assert ours["eval_loss"] == pytest.approx(stock["eval_loss"], rel=1e-5)
    if replaced is not Collator:
        assert ours["eval_loss"] != pytest.approx(plain, rel=0.01)
    assert "eval_perplexity" not in ours
    assert "eval_loss is a mean over batches" in caplog.text


def test_metrics_have_the_epoch_and_a_log_that_is_off_is_empty(tmp_path):
    for trainer in both(tmp_path, logging_strategy="no", max_steps=5):
        assert trainer.train().metrics["epoch"] == 0.5
        assert trainer.evaluate()["epoch"] == 0.5
        assert not [log for log in trainer.state.log_history if "loss" in log]


def test_columns_that_no_collator_of_ours_can_batch_are_refused(tmp_path):
    data = copy_task(13, seed=5)
    given = {"train": data.map(lambda row: {"inputs_embeds": [[0.0] * 16] * len(row["input_ids"])})}
    with pytest.raises(ValueError, match="PairCollator cannot batch inputs_embeds"):
        make_trainer(tmp_path, **given).train()


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("side", ["input_ids", "labels"])
def test_a_pair_with_an_empty_side_is_named(tmp_path, side, streams):
    data = copy_task(9).map(lambda row, n: {side: row[side][: 4 * (n != 7)]}, with_indices=True)
    rows = data.to_iterable_dataset() if streams else data
    said = f"a pair without any {side};" if streams else "example 7 has .* allowed are 1 or more"
    with pytest.raises(ValueError, match=said):
        make_trainer(tmp_path, train=rows, batch_tokens=None).train()


def test_a_budget_holds_for_rows_that_a_transform_lengthens(tmp_path):
    def twice(batch):
        return {name: [ids[:-1] + ids for ids in batch[name]] for name in ("input_ids", "labels")}

    trainer = make_trainer(tmp_path, train=copy_task(60).with_transform(twice), batch_tokens=60)
    sizes = [batch["labels"].numel() for batch in trainer.get_train_dataloader()]
    assert 45 < max(sizes) <= 60


def test_weights_of_half_precision_are_told_once(tmp_path, caplog):
    trainer = make_trainer(tmp_path, model=tiny_model().bfloat16(), max_steps=2)
    for resumes in (False, True):
        trainer.train(resumes)
        trainer.args.max_steps = 3
    assert caplog.text.count("The weights are bfloat16, in which most small updates round") == 1


def test_arguments_that_a_budget_makes_void_are_named_once(tmp_path, caplog):
    void = {"per_device_eval_batch_size": 3, "dataloader_in_order": False}
    void |= {"accelerator_config": {"even_batches": False}}
    given = {**void, "dataloader_num_workers": 1, "max_steps": 2}
    trainer = make_trainer(tmp_path / "one", **given, eval_strategy="steps", eval_steps=1)
    trainer.train()
    named = [text for text in caplog.messages if "without effect" in text]
    assert named == [
        "per_device_eval_batch_size=3, dataloader_in_order=False, even_batches=False: without "
        "effect, because batches are filled up to batch_tokens=150."
    ]
    caplog.clear()
    evaluated = {"per_device_eval_batch_size": 3}  # by the loop of transformers
    given = {"compute_metrics": token_accuracy}
    make_trainer(tmp_path / "two", given=given, **evaluated, max_steps=1).train()
    make_trainer(tmp_path / "three", **void, batch_tokens=None, max_steps=1).train()
    assert "without effect" not in caplog.text


def test_a_label_smoother_of_the_users_stays(tmp_path):
    trainer = make_trainer(tmp_path, max_steps=1)
    smoother = trainer.label_smoother = LabelSmoother(epsilon=0.3)
    trainer.train()
    assert trainer.label_smoother is smoother


SPACES = {
    "tokens": lambda trial: {"batch_tokens": trial.suggest_int("batch_tokens", 60, 200)},
    "pairs": lambda trial: {
        "per_device_train_batch_size": trial.suggest_int("per_device_train_batch_size", 2, 7)
    },
}


@pytest.mark.parametrize("batches", SPACES)
def test_a_search_over_rate_and_batches_trains_with_what_it_tries(tmp_path, batches):
    tried, models = [], []

    def space(trial):
        rate = {"learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)}
        return rate | SPACES[batches](trial)

    def note():
        sampler = trainer.callback_handler.train_dataloader.batch_sampler
        size = sampler.max_tokens if batches == "tokens" else sampler.batch_size
        tried.append((trainer.optimizer.param_groups[0]["initial_lr"], size))
        models.append(trainer.model)

    settings = {"batch_tokens": 150 if batches == "tokens" else None, "max_steps": 2}
    settings |= {"lr_scheduler_type": "constant", "learning_rate_factor": 1.0, "save_steps": 1}
    trainer = make_trainer(
        tmp_path, given={"model_init": lambda: tiny_model()}, callbacks=[At(1, note)], **settings
    )
    seen = []
    evaluate = trainer.evaluate
    trainer.evaluate = lambda *a, **kw: seen.append(evaluate(*a, **kw)) or seen[-1]
    names = {"hp_name": lambda trial: f"rate-{trial.params['learning_rate']}"}
    best = trainer.hyperparameter_search(space, n_trials=3, backend="optuna", **names)
    assert len({*tried}) == len(seen) == 3
    assert best.objective == min(metrics["eval_loss"] for metrics in seen)
    assert tuple(best.hyperparameters.values()) in [pytest.approx(values) for values in tried]
    for rate, _ in tried:
        (folder,) = tmp_path.glob(f"rate-{rate}")
        args = torch.load(folder / "checkpoint-2" / "training_args.bin", weights_only=False)
        assert args.learning_rate == rate


def test_a_search_over_what_a_budget_makes_void_is_refused(tmp_path):
    trainer = make_trainer(tmp_path, given={"model_init": lambda: tiny_model()}, max_steps=1)
    with pytest.raises(ValueError, match=r"got per_device_train_batch_size=\d; batches are filled"):
        trainer.hyperparameter_search(SPACES["pairs"], n_trials=1, backend="optuna")


def test_arguments_count_as_they_are_when_a_training_starts(tmp_path):
    trainer = make_trainer(tmp_path / "one", max_steps=3)
    trainer.args.batch_tokens, trainer.args.learning_rate_factor = 80, 0.05
    trainer.train()
    other = make_trainer(tmp_path / "two", max_steps=3, batch_tokens=80, learning_rate_factor=0.05)
    other.train()
    assert_equal(weights(trainer), weights(other))
    for name, settings in {
        "pairs": {"batch_tokens": None, "per_device_train_batch_size": 3},
        "smoothing": {"label_smoothing_factor": 0.3},
    }.items():
        late = make_trainer(tmp_path / f"{name}-late", max_steps=2)
        vars(late.args).update(settings)
        late.train()
        early = make_trainer(tmp_path / f"{name}-early", max_steps=2, **settings)
        early.train()
        assert_equal(weights(late), weights(early))
    late.args.output_dir, late.args.bf16 = str(tmp_path / "four"), True
    with pytest.raises(ValueError, match="set bf16 or fp16 when you make the arguments"):
        late.train()
    trainer.args.output_dir, trainer.args.dataloader_drop_last = str(tmp_path / "three"), True
    with pytest.raises(ValueError, match="dataloader_drop_last=True; batches are filled"):
        trainer.train()
