"""The trainer: batches, loss, settings, and resumption after signals and kills."""

import json
import math
import os
import re
import signal
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from copies import copy_of_this_process
from datasets import Dataset
from published_runs import tiny_tokenizer
from tiny_trainers import At, assert_equal, copy_task, make_trainer, tiny_model, weights
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.data.dataset import PairCollator
from vanilla_transformer.errors import NotFiniteError, RequestError
from vanilla_transformer.machine.cpu_threads import FreeThreads
from vanilla_transformer.machine.environment import resolve_precision
from vanilla_transformer.train import callbacks
from vanilla_transformer.train import trainer as trainer_module
from vanilla_transformer.train.checkpoints import Progress, checkpoints, last_whole_checkpoint
from vanilla_transformer.train.trainer import TrainingInterrupted


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Train 12 updates, about two and a half epochs, without interruption."""
    directory = tmp_path_factory.mktemp("uninterrupted")
    trainer = make_trainer(directory)
    trainer.train()
    updates = math.ceil(len(trainer.train_sampler) / 2)
    assert 7 % updates > 0, "the signals below must come within an epoch"
    return directory, weights(trainer)


@pytest.mark.parametrize(
    ("step", "signum"), [(2, signal.SIGTERM), (7, signal.SIGINT), (10, signal.SIGTERM)]
)
def test_resuming_after_a_signal_gives_the_same_weights(tmp_path, uninterrupted, step, signum):
    handler = signal.getsignal(signum)
    first = make_trainer(tmp_path, callbacks=[At(step, lambda: os.kill(os.getpid(), signum))])
    with pytest.raises(TrainingInterrupted, match="same command again") as caught:
        first.train()
    assert caught.value.signum == signum
    # Our callback may run after the one that checks the flag.
    assert caught.value.checkpoint.name in (f"checkpoint-{step}", f"checkpoint-{step + 1}")
    assert signal.getsignal(signum) is handler
    second = make_trainer(tmp_path, model=tiny_model(d_model=16))
    torch.manual_seed(99)  # what the new process did before must not matter
    second.train(resume_from_checkpoint=True)
    assert_equal(weights(second), uninterrupted[1])


def test_losses_logged_after_a_resumption_are_means_over_as_many_updates(tmp_path):
    intervals = {"max_steps": 10, "logging_steps": 4, "save_steps": 3}
    whole = make_trainer(tmp_path / "whole", **intervals)
    whole.train()
    resumed = make_trainer(tmp_path / "resumed", **intervals)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-6"))
    logged = ([log.get("loss") for log in each.state.log_history] for each in (whole, resumed))
    assert next(logged) == next(logged)
    means = [trainer.state.log_history[-1]["train_loss"] for trainer in (whole, resumed)]
    assert means[1] < means[0]  # of the later updates alone


def test_resuming_between_weighted_corpora_gives_the_uninterrupted_weights(tmp_path, caplog):
    caplog.set_level("INFO", logger="vanilla_transformer")
    train = copy_task(600).add_column("corpus", [0] * 100 + [1] * 500)
    settings = {"train": train, "train_weights": [4, 1], "batch_tokens": 60, "max_steps": 30}
    whole = make_trainer(tmp_path / "whole", save_steps=30, **settings)
    whole.train()
    assert 5 < whole.updates_per_epoch < 20 < 2 * whole.updates_per_epoch
    for stop in (5, 20):  # within the first epoch and the second
        part = make_trainer(tmp_path / "part", save_steps=stop, **{**settings, "max_steps": stop})
        part.train(resume_from_checkpoint=stop > 5)
    resumed = make_trainer(tmp_path / "part", save_steps=30, **settings)
    for changed in ({"train_weights": [4, 2]}, {"train": train.remove_columns("corpus")}):
        with pytest.raises(ValueError, match=r"train_weights: |training pairs changed"):
            make_trainer(tmp_path / "part", **{**settings, **changed}).train(True)
    resumed.train(resume_from_checkpoint=True)
    assert_equal(weights(resumed), weights(whole))
    # An epoch is no pass over the pairs.
    assert re.search(r"600 training pairs\.\n.* ends after 30 updates\.\n", caplog.text)


def test_a_training_is_neither_replaced_nor_begun_by_mistake(tmp_path):
    with pytest.raises(ValueError, match=r" holds no complete checkpoint; give .*=False"):
        make_trainer(tmp_path).train(resume_from_checkpoint=True)
    make_trainer(tmp_path, max_steps=4).train()
    kept = sorted(tmp_path.rglob("*"))
    for start in (None, False):
        with pytest.raises(ValueError, match=r" holds checkpoint-4; give .*=True"):
            make_trainer(tmp_path).train(resume_from_checkpoint=start)
    assert sorted(tmp_path.rglob("*")) == kept


def test_no_checkpoint_of_another_training_is_deleted(tmp_path):
    args = Seq2SeqTrainingArguments(
        str(tmp_path / "stock"), max_steps=2, save_steps=1, report_to="none", use_cpu=True
    )
    collator = PairCollator(pad_token_id=0)
    Seq2SeqTrainer(tiny_model(), args, train_dataset=copy_task(100), data_collator=collator).train()
    make_trainer(tmp_path / "one", max_steps=4).train()
    make_trainer(tmp_path / "two").train()
    kept = sorted(tmp_path.rglob("*"))
    for start in (None, True):
        with pytest.raises(RequestError, match=r"checkpoint-1 belongs to another run"):
            make_trainer(tmp_path / "stock").train(resume_from_checkpoint=start)
    with pytest.raises(RequestError, match=r"two.* belongs to another run"):
        make_trainer(tmp_path / "two").train(tmp_path / "one" / "checkpoint-4")
    assert sorted(tmp_path.rglob("*")) == kept
    make_trainer(tmp_path / "three").train(tmp_path / "one" / "checkpoint-4")  # where none are


@pytest.mark.parametrize(("limit", "expected"), [(None, 12), (1, 2), (2, 2), (9, 9)])
def test_as_many_checkpoints_are_kept_as_asked(tmp_path, limit, expected):
    make_trainer(tmp_path, save_steps=1, save_total_limit=limit).train()
    assert len(list(tmp_path.glob("checkpoint-*"))) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"bf16": True},
        {
            **{"learning_rate": 1e-3, "learning_rate_factor": 1.0, "lr_scheduler_type": "linear"},
            **{"weight_decay": 0.1},
        },
        {"batch_tokens": None, "per_device_train_batch_size": 4, "optim": "sgd"},
    ],
)
def test_repeated_and_interrupted_trainings_are_bit_identical(tmp_path, settings):
    """On one machine with the same versions and numbers of threads and processes."""
    settings = {"max_steps": 4, "save_steps": 4, "warmup_steps": 3, **settings}
    runs = []
    for name in ("first", "second"):
        runs.append(make_trainer(tmp_path / name, **settings))
        runs[-1].train()
    interrupt = At(3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(TrainingInterrupted):
        make_trainer(tmp_path / "third", callbacks=[interrupt], **settings).train()
    runs.append(make_trainer(tmp_path / "third", **settings))
    torch.manual_seed(99)  # what the new process did before must not matter
    runs[-1].train(resume_from_checkpoint=True)
    for trainer in runs[1:]:
        assert_equal(weights(trainer), weights(runs[0]))


def train_and_die_while_saving(directory):
    """Train until the second checkpoint, half of which is written."""
    save = torch.save

    def save_half(thing, path, *args, **kwargs):
        save(thing, path, *args, **kwargs)
        if "checkpoint-8" in str(path) and str(path).endswith("optimizer.pt"):
            os.truncate(path, 1000)
            os.kill(os.getpid(), signal.SIGKILL)

    torch.save = save_half
    make_trainer(directory).train()


def test_training_killed_while_saving_resumes_from_the_last_checkpoint(tmp_path, uninterrupted):
    killed = copy_of_this_process(train_and_die_while_saving, tmp_path)
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert list(checkpoints(tmp_path)) == [4, 8]
    assert last_whole_checkpoint(tmp_path).name == "checkpoint-4"
    second = make_trainer(tmp_path)
    second.train(resume_from_checkpoint=True)
    assert_equal(weights(second), uninterrupted[1])


def test_unreadable_checkpoint_is_an_error_and_not_a_broken_one(tmp_path, monkeypatch):
    """Otherwise the training would begin again, and remove the later checkpoints."""
    make_trainer(tmp_path, max_steps=4).train()
    checkpoint = tmp_path / "checkpoint-4"
    modes = {path.stat().st_mode for path in checkpoint.glob("*.*") if path.suffix != ".pt"}
    assert len(modes) == 1  # who may read the config may read the weights

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("vanilla_transformer.storage.run_files.sha256", refuse)
    with pytest.raises(PermissionError):
        last_whole_checkpoint(tmp_path)


@pytest.mark.parametrize(("end", "warned"), [(2, False), ([3, 2], False), (1, True)])
def test_targets_that_end_otherwise_than_the_model_are_noted(tmp_path, caplog, end, warned):
    make_trainer(tmp_path, model=tiny_model(eos_token_id=end))
    assert ("ends with id 2, but the model's eos_token_id is 1" in caplog.text) == warned


def test_evaluation_frequency_does_not_change_the_weights(tmp_path, uninterrupted):
    trainer = make_trainer(tmp_path, eval_strategy="steps", eval_steps=3)
    trainer.train()
    assert_equal(weights(trainer), uninterrupted[1])


@pytest.mark.parametrize("budget", [150, 11])  # some pairs are longer than the smaller one
def test_eval_loss_is_the_token_mean_of_plain_cross_entropy(tmp_path, budget):
    trainer = make_trainer(tmp_path, train=copy_task(20), batch_tokens=budget)
    metrics = trainer.evaluate()
    nats, tokens = 0.0, 0
    trainer.model.eval()
    for row in trainer.eval_dataset:
        ids = torch.tensor([row["input_ids"]])
        labels = torch.tensor(row["labels"])
        logits = trainer.model(input_ids=ids, labels=labels[None]).logits[0].double()
        nats += F.cross_entropy(logits, labels, reduction="sum").item()
        tokens += len(labels)
    assert metrics["eval_loss"] == pytest.approx(nats / tokens, rel=1e-5)
    # With so few training pairs all are used, so an evaluation on them has the same loss.
    of_training = trainer.evaluate(trainer.train_dataset)
    assert metrics["eval_training_loss"] == pytest.approx(of_training["eval_loss"], rel=1e-6)
    assert metrics["eval_training_loss"] != metrics["eval_loss"]
    assert metrics["eval_perplexity"] == pytest.approx(math.exp(nats / tokens), rel=1e-5)


def test_each_line_of_the_log_has_the_norm_of_its_own_gradient(tmp_path):
    norms = []
    for every in (1, 3):
        trainer = make_trainer(tmp_path, max_steps=6, logging_steps=every, save_strategy="no")
        trainer.train()
        logs = trainer.state.log_history
        norms.append({log["step"]: log.get("grad_norm") for log in logs if "loss" in log})
    assert norms[1] == {step: norms[0][step] for step in (3, 6)}
    assert all(norms[0].values())


def test_evaluation_uses_the_averaged_weights_of_a_schedule_free_optimizer(tmp_path):
    class ScheduleFree(torch.optim.SGD):
        """Has other weights in training, twice the averaged ones."""

        is_training = True

        def eval(self):
            for parameter in model.parameters() if self.is_training else ():
                parameter.data /= 2
            self.is_training = False

    model, averaged = tiny_model(), tiny_model()
    for parameter in averaged.parameters():
        parameter.data /= 2
    names = ("eval_loss", "eval_training_loss")
    expected = make_trainer(tmp_path, model=averaged).evaluate()
    trainer = make_trainer(tmp_path, model=model)
    trainer.optimizer = ScheduleFree(model.parameters())
    found = trainer.evaluate()
    assert [found[name] for name in names] == [expected[name] for name in names]


def test_training_loss_is_estimated_on_pairs_from_the_whole_training_set(tmp_path):
    """As for a set that was joined from two sources, one after the other."""
    halves = copy_task(2).select([0] * 200 + [1] * 200)
    trainer = make_trainer(tmp_path, train=halves)
    expected = trainer.evaluate(halves)["eval_loss"]
    assert trainer.evaluate()["eval_training_loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_accumulated_gradient_equals_that_of_one_large_batch(tmp_path, smoothing):
    def gradient(batches):
        trainer = make_trainer(tmp_path, model=tiny_model(dropout=0.0, label_smoothing=smoothing))
        trainer.optimizer = trainer.create_optimizer()
        collated = iter([trainer.data_collator(batch) for batch in batches])
        samples, num_items = trainer.get_batch_samples(collated, len(batches), torch.device("cpu"))
        trainer.current_gradient_accumulation_steps = len(samples)
        loss = sum(trainer.training_step(trainer.model, batch, num_items) for batch in samples)
        return loss, torch.cat([p.grad.flatten() for p in trainer.model.parameters()])

    rows = list(copy_task(12).select_columns(["input_ids", "labels"]))
    loss, whole = gradient([rows])
    loss_of_parts, parts = gradient([rows[:2], rows[2:7], rows[7:]])
    assert loss_of_parts.item() == pytest.approx(loss.item(), rel=1e-6)
    assert (whole - parts).abs().max() <= 1e-6 * whole.abs().max()


def test_target_token_count_excludes_padding(tmp_path):
    data = copy_task(100)
    trainer = make_trainer(tmp_path, train=data)
    trainer.get_train_dataloader()
    updates = math.ceil(len(trainer.train_sampler) / 2)
    trainer = make_trainer(tmp_path, train=data, max_steps=updates, save_steps=updates)
    trainer.train()
    assert trainer.progress.target_tokens == sum(data["target_length"])
    saved = json.loads((tmp_path / f"checkpoint-{updates}" / "progress.json").read_text())
    assert saved["target_tokens"] == sum(data["target_length"])


def test_checkpoints_hold_neither_the_cpu_settings_nor_those_of_a_search(uninterrupted, tmp_path):
    checkpoint = uninterrupted[0] / "checkpoint-12"
    reloaded = VanillaTransformerForConditionalGeneration.from_pretrained(checkpoint)
    assert reloaded.config._attn_implementation == tiny_model().config._attn_implementation
    assert "eager" not in (checkpoint / "config.json").read_text()
    tiny_model().save_pretrained(tmp_path)
    fresh, trained = (
        json.loads((folder / "generation_config.json").read_text())
        for folder in (tmp_path, checkpoint)
    )
    assert trained == fresh


def reversed_labels(row):
    """Return other ids of the same length."""
    return {"labels": [*row["labels"][-2::-1], 2]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gradient_accumulation_steps": 3}, r"\(batches_per_update: 2 -> 3\)"),
        ({"batch_tokens": 120}, r"\(batch_tokens: 150 -> 120\)"),
        ({"seed": 5}, r"\(seed of the order: 42 -> 5\)"),
        ({"bf16": True}, r"\(precision: 'fp32' -> 'bf16'\)"),
        ({"train": copy_task(100, seed=3)}, r"\(training pairs changed\)"),
        ({"train": copy_task(100).map(reversed_labels)}, r"\(training pairs changed\)"),
        ({"learning_rate_factor": 0.5}, r"\(learning_rate_factor: 0.1 -> 0.5\)"),
        (
            {"bpe_dropout": 0.5, "given": {"processing_class": tiny_tokenizer()}},
            r"\(tokenizer: not set -> .*; bpe_dropout: 0.0 -> 0.5\)",
        ),
        ({"model": tiny_model(dropout=0.5)}, r"\(model: dropout: .* -> 0.5\)"),
    ],
)
def test_resuming_with_other_updates_is_refused(uninterrupted, change, message):
    """The batches before the checkpoint are skipped, so they must be the same."""
    with pytest.raises(ValueError, match=message):
        make_trainer(uninterrupted[0], **change).train(resume_from_checkpoint=True)


def test_resuming_with_other_versions_and_threads_is_recorded(tmp_path, monkeypatch, caplog):
    make_trainer(tmp_path, max_steps=4).train()
    monkeypatch.setattr(trainer_module, "versions", lambda: {"torch": "99"})
    second = make_trainer(tmp_path, max_steps=8)
    look = At(6, lambda: second.threads.used.append(7))
    second.add_callback(look)
    second.train(resume_from_checkpoint=True)
    assert f"torch: '{torch.__version__}' -> '99'" in caplog.text
    progress = Progress.load(tmp_path / "checkpoint-8")
    assert progress.versions == {"torch": "99"}
    assert progress.threads == [torch.get_num_threads(), 7]


def test_threads_follow_the_free_cores_only_in_a_training(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(FreeThreads, "adapt", lambda threads: calls.append(threads))
    other_loss = {"label_smoothing_factor": 0.1, "model": tiny_model(label_smoothing=0.0)}
    trainer = make_trainer(tmp_path, max_steps=1, save_strategy="no", **other_loss)
    trainer.train()
    assert calls
    calls.clear()
    trainer.evaluate()
    assert not calls


def test_bleu_of_validation_pairs_is_not_reported_for_other_data(tmp_path, monkeypatch):
    given = {"validation_pairs": [("a", "b")], "target_language": "de"}
    given["processing_class"] = tiny_tokenizer()
    trainer = make_trainer(tmp_path, given=given)
    monkeypatch.setattr(trainer, "_greedy_scores", lambda: {"bleu": 12.5})
    other = copy_task(9, seed=3)
    assert trainer.evaluate()["eval_bleu"] == 12.5
    for metrics in (
        trainer.predict(other).metrics,
        trainer.evaluate(other, metric_key_prefix="test"),
        trainer.evaluate(other),
        trainer.evaluate({"other": other}),
    ):
        assert not [name for name in metrics if "bleu" in name or "training_loss" in name]


def test_validation_pairs_may_be_a_data_set_and_need_language_and_tokenizer(tmp_path):
    pairs = Dataset.from_dict({"source": ["a", "b"], "target": ["c", "d"]})
    needed = {"target_language": "de", "processing_class": tiny_tokenizer()}
    trainer = make_trainer(tmp_path, given={**needed, "validation_pairs": pairs})
    assert trainer.validation_pairs == [("a", "c"), ("b", "d")]
    for name in needed:
        given = {**needed, name: None, "validation_pairs": pairs}
        with pytest.raises(ValueError, match="got validation_pairs; give target_language"):
            make_trainer(tmp_path, given=given)


def test_a_log_shows_what_others_log_and_measure(tmp_path, caplog):
    caplog.set_level("INFO")
    trainer = make_trainer(tmp_path)
    trainer.log({"mine": 1.5, "epoch": 0.5})
    trainer.log({"loss": 2.0})
    trainer.evaluate(metric_key_prefix="test")
    mine, loss, test = (each.message for each in caplog.records if "update 0: " in each.message)
    assert mine == "update 0: mine 1.5"
    assert "loss 2" in loss
    assert "test_perplexity" in test


@pytest.mark.parametrize(
    ("limits", "end"),
    [
        ({"max_steps": 12}, 12),
        ({"max_steps": 12, "max_minutes": 9 / 60}, 9),
        ({"max_steps": 12, "max_minutes": 1}, 12),
    ],
)
def test_log_describes_a_training_and_predicts_its_end(limits, end, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", logger="vanilla_transformer")
    trainer = make_trainer(tmp_path, save_strategy="no", logging_steps=5, **limits)
    clock = property(lambda progress: float(trainer.state.global_step))  # a second per update
    monkeypatch.setattr(Progress, "seconds", clock)
    trainer.train()
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    each = trainer.updates_per_epoch
    assert f"{parameters:,} parameters, 100 training pairs, {each} updates an epoch" in caplog.text
    assert f"ends after 12 updates ({12 / each:.1f} epochs)" in caplog.text
    minutes = limits.get("max_minutes")
    assert (f" or {minutes or 0:g} min." in caplog.text) == (minutes is not None)
    assert trainer.state.global_step == end
    lines = re.findall(
        rf"update (\d+) of {12 if end == 12 else '~9'}: loss .* of ~([\d.]+) min", caplog.text
    )
    total = f"{min(12 / 60, minutes or 1):.1f}"
    assert lines == [(str(step), total) for step in (5, 10, 12) if step < end] + [(str(end), total)]


def test_time_limit_ends_training_with_a_checkpoint(tmp_path):
    trainer = make_trainer(tmp_path, max_steps=10_000, max_minutes=1e-9)
    trainer.train()
    assert trainer.state.global_step == 1
    assert last_whole_checkpoint(tmp_path).name == "checkpoint-1"
    assert not [log for log in trainer.state.log_history if "eval_loss" in log]  # nobody asked


def test_timed_checkpoints_are_replaced_and_scheduled_ones_kept(tmp_path):
    trainer = make_trainer(tmp_path, save_every_minutes=1e-9, max_steps=11, checkpoints_to_keep=2)
    trainer.train()
    assert list(checkpoints(tmp_path)) == [4, 8, 11]


def test_timed_checkpoints_are_counted_from_the_last_one(tmp_path, monkeypatch):
    sealed, seal = [], trainer_module.seal
    trainer = make_trainer(tmp_path, save_every_minutes=3, save_steps=5, max_steps=8)
    clock = SimpleNamespace(monotonic=lambda: 60.0 * trainer.state.global_step)
    monkeypatch.setattr(callbacks, "time", clock)
    monkeypatch.setattr(trainer_module, "seal", lambda path: sealed.append(path.name) or seal(path))
    trainer.train()
    assert sealed == [f"checkpoint-{update}" for update in (3, 5, 8)]


def test_non_finite_loss_ends_the_run(tmp_path):
    model = tiny_model()
    with torch.no_grad():
        model.model.shared.weight.fill_(math.nan)
    trainer = make_trainer(tmp_path, model=model, logging_steps=1, disable_tqdm=False)
    with pytest.raises(ValueError, match="lower learning_rate_factor"):
        trainer.train()
    assert trainer.threads is None


def test_weights_that_are_not_finite_replace_no_checkpoint(tmp_path):
    trainer = make_trainer(tmp_path, save_steps=1, logging_steps=100)
    shared = trainer.model.model.shared.weight
    trainer.add_callback(At(6, lambda: shared.data.fill_(math.nan)))
    with pytest.raises(NotFiniteError, match="before update 6; lower learning_rate_factor"):
        trainer.train()
    assert last_whole_checkpoint(tmp_path).name == "checkpoint-5"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"lr_scheduler_type": "linear"}, {"max_steps": 20}),
        ({"warmup_steps": 0.5}, {"max_steps": 20}),
        (
            {"lr_scheduler_type": "inverse_sqrt", "lr_scheduler_kwargs": {"timescale": 10}},
            {"lr_scheduler_kwargs": {"timescale": 100}},
        ),
    ],
)
def test_a_schedule_goes_on_from_the_rate_that_it_ended_with(tmp_path, first, then):
    given = {"learning_rate": 0.01, "learning_rate_factor": 1.0, "warmup_steps": 2, **first}
    make_trainer(tmp_path, max_steps=4, **given).train()
    with pytest.raises(RequestError, match="checkpoint's learning rate is "):
        make_trainer(tmp_path, **{**given, **then}).train(True)
    make_trainer(tmp_path, max_steps=4, **given).train(True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": copy_task(100, seed=3)}, r"\(training pairs changed\)"),
        ({"per_device_train_batch_size": 4}, r"\(examples in a batch: 8 -> 4\)"),
        ({"neftune_noise_alpha": 5.0}, r"\(neftune_noise_alpha: .* -> 5.0\)"),
    ],
)
def test_resuming_with_other_batches_of_examples_is_refused(tmp_path, change, message):
    make_trainer(tmp_path, batch_tokens=None, max_steps=4).train()
    with pytest.raises(RequestError, match=message):
        make_trainer(tmp_path, batch_tokens=None, **change).train(True)


def test_bfloat16_reaches_the_loss_of_float32(tmp_path):
    losses = []
    for bf16 in (False, True):
        model = tiny_model(dropout=0.0)
        directory = tmp_path / str(bf16)
        trainer = make_trainer(directory, model=model, bf16=bf16, save_steps=12)
        first = trainer.evaluate()["eval_loss"]
        trainer.train()
        losses.append(trainer.evaluate()["eval_loss"])
    assert losses[0] < first - 0.1
    assert losses[1] == pytest.approx(losses[0], abs=0.02)
    loaded = VanillaTransformerForConditionalGeneration.from_pretrained(directory / "checkpoint-12")
    assert loaded.dtype == torch.float32


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("AuthenticAMD", "fpu avx2", "fp32"),
        ("AuthenticAMD", "avx512f avx512_bf16", "bf16"),
        ("GenuineIntel", "avx512f avx512_bf16", "fp32"),
        ("GenuineIntel", "avx512_bf16 amx_bf16 amx_tile", "bf16"),
    ],
)
def test_auto_precision_is_bfloat16_on_cpus_faster_in_it(monkeypatch, vendor, flags, expected):
    facts = {"vendor_id": vendor, "flags": flags}
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("vanilla_transformer.machine.environment.processor_facts", lambda: facts)
    assert resolve_precision("auto") == expected
    assert [resolve_precision(name) for name in ("fp32", "bf16")] == ["fp32", "bf16"]
