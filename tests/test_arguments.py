"""Arguments of Seq2SeqTrainer: our trainer treats each as it does, or refuses it."""

import dataclasses
import json
import math
import pickle

import pytest
import torch
from test_trainer import copy_task, make_trainer, tiny_model
from transformers import HfArgumentParser, Seq2SeqTrainer, Seq2SeqTrainingArguments

from vanilla_transformer.train.arguments import (
    UNUSED,
    VanillaTransformerTrainingArguments,
    check_arguments,
    share_of_update,
)
from vanilla_transformer.train.checkpoints import checkpoints

# Seq2SeqTrainer acts on these or leaves them to its caller; our trainer does the same.
OBEYED = """
output_dir num_train_epochs max_steps gradient_accumulation_steps max_grad_norm seed data_seed
full_determinism use_cpu do_train do_eval do_predict resume_from_checkpoint ignore_data_skip
learning_rate lr_scheduler_type lr_scheduler_kwargs warmup_steps warmup_ratio
optim optim_args optim_target_modules weight_decay adam_beta1 adam_beta2 adam_epsilon
bf16 fp16 tf32 use_cache neftune_noise_alpha torch_empty_cache_steps accelerator_config local_rank
activation_checkpointing activation_checkpointing_kwargs
gradient_checkpointing gradient_checkpointing_kwargs
torch_compile torch_compile_backend torch_compile_mode use_liger_kernel liger_kernel_config
logging_strategy logging_steps logging_first_step log_on_each_node logging_nan_inf_filter
logging_dir include_num_input_tokens_seen log_level log_level_replica disable_tqdm report_to
run_name project trackio_space_id trackio_bucket_id trackio_static_space_id
eval_strategy eval_steps eval_delay eval_on_start
save_strategy save_steps save_on_each_node save_only_model
load_best_model_at_end metric_for_best_model greater_is_better
restore_callback_states_from_checkpoint
push_to_hub hub_token hub_private_repo hub_model_id hub_revision
dataloader_num_workers dataloader_pin_memory dataloader_prefetch_factor
dataloader_multiprocessing_context
ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ddp_backend
ddp_timeout debug skip_memory_metrics generation_config
"""
# These belong to refused arguments: without those, Seq2SeqTrainer does not act on them.
MOOT = """
prediction_loss_only eval_do_concat_batches eval_use_gather_object eval_accumulation_steps
include_for_metrics batch_eval_metrics length_column_name sortish_sampler fsdp_config
"""


def arguments(**settings):
    return VanillaTransformerTrainingArguments("out", report_to="none", use_cpu=True, **settings)


def test_every_seq2seq_trainer_argument_is_obeyed_or_refused():
    acted_on = {*OBEYED.split(), *MOOT.split()}
    found = {field.name for field in dataclasses.fields(Seq2SeqTrainingArguments)}
    assert found <= acted_on | UNUSED.keys()
    assert not UNUSED.keys() & acted_on


@pytest.mark.parametrize("name", UNUSED)
def test_unused_arguments_are_refused_by_name(name):
    args = arguments()
    check_arguments(args)
    setattr(args, name, "another")
    with pytest.raises(ValueError, match=f"^got {name}='another'; .*[a-z0-9]\\.$"):
        check_arguments(args)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"per_device_train_batch_size": 4}, r"got per_device_train_batch_size=4; .* batch_tokens"),
        ({"hub_strategy": "end"}, "got hub_strategy='end'; .* push_to_hub"),
        ({"lr_scheduler_type": "linear"}, "lr_scheduler_type='linear' and no learning_rate"),
        ({"learning_rate": 0.0}, "learning_rate=0.0; it must be a number, more than 0"),
        ({"early_stopping_patience": 0}, "early_stopping_patience=0; it must be a whole number"),
        ({"learning_rate_factor": -0.5}, "learning_rate_factor=-0.5; it must be a number, more"),
        ({"batch_tokens": 0}, "batch_tokens=0; it must be a whole number"),
        ({"max_minutes": "5"}, "max_minutes='5'; it must be a number, more than 0"),
        ({"max_minutes": -1}, "max_minutes=-1; it must be a number, more than 0"),
        ({"save_every_minutes": math.nan}, "save_every_minutes=nan; it must be a number"),
        ({"checkpoints_to_keep": -3}, "checkpoints_to_keep=-3; it must be a whole number"),
        ({"learning_rate": math.nan}, "learning_rate=nan"),
        ({"learning_rate": 1e-4, "learning_rate_factor": 2.0}, "learning_rate_factor=2.0; learn"),
        (
            {"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "learning_rate_factor": 2.0},
            "learning_rate_factor=2.0; it belongs to Eq. 3, not to the schedule cosine",
        ),
        ({"lr_scheduler_kwargs": {"power": 2}}, "lr_scheduler_kwargs={'power': 2}; Eq. 3 has none"),
        ({"warmup_steps": 0}, "warmup_steps=0; Eq. 3 needs a warm-up"),
        ({"optim_args": "rank=2"}, "optim_args='rank=2'; .* name that with optim"),
        (
            {"optim": "galore_adamw_layerwise"},
            "galore_adamw_layerwise', whose rate Eq. 3 cannot set",
        ),
    ],
)
def test_invalid_or_conflicting_arguments_are_refused(tmp_path, settings, said):
    with pytest.raises(ValueError, match=said):
        make_trainer(tmp_path, **{"learning_rate_factor": 1.0, **settings})


def test_metric_functions_and_search_options_are_refused(tmp_path):
    for name in ("compute_metrics", "preprocess_logits_for_metrics", "compute_loss_func"):
        with pytest.raises(ValueError, match=f"got {name}; .* Use Seq2SeqTrainer"):
            make_trainer(tmp_path, given={name: print})
    with pytest.raises(ValueError, match="got num_beams, max_length; BLEU is greedy"):
        make_trainer(tmp_path).evaluate(num_beams=4, max_length=9)


def test_validation_pairs_need_a_target_language(tmp_path):
    with pytest.raises(ValueError, match="got validation_pairs and no target_language"):
        make_trainer(tmp_path, given={"validation_pairs": [("a", "b")]})


# --------------------------------------------------------------------------- rates and optimizers

HOSTS = [
    {"learning_rate": 1e-3, "lr_scheduler_type": "linear", "warmup_steps": 3},
    {"learning_rate": 1e-3, "lr_scheduler_type": "linear", "warmup_steps": 0, "weight_decay": 0.1},
    {"learning_rate": 1e-2, "lr_scheduler_type": "cosine", "warmup_steps": 0.3},
    {
        **{"learning_rate": 1e-2, "lr_scheduler_type": "polynomial", "warmup_steps": 2},
        **{"lr_scheduler_kwargs": {"power": 2.0}, "optim": "adamw_torch", "adam_beta2": 0.9},
    },
    {"learning_rate": 1e-5, "lr_scheduler_type": "constant", "optim": "adafactor"},
    {
        **{"learning_rate": 1e-5, "lr_scheduler_type": "constant_with_warmup", "warmup_steps": 4},
        **{"optim": "sgd", "weight_decay": 0.1},
    },
]


def prepared(trainer, updates=10):
    """Return class and groups of the optimizer, and the rate of each update."""
    trainer.create_optimizer_and_scheduler(num_training_steps=updates)
    groups = [
        {**group, "params": [id(parameter) for parameter in group["params"]]}
        for group in trainer.optimizer.param_groups
    ]
    rates = []
    for _ in range(updates):
        rates.append(trainer.optimizer.param_groups[0]["lr"])
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    return type(trainer.optimizer), groups, rates


@pytest.mark.parametrize("settings", HOSTS)
def test_optimizer_and_rates_equal_those_of_seq2seq_trainer(tmp_path, settings):
    model = tiny_model()
    ours = make_trainer(tmp_path, model=model, **{"learning_rate_factor": 1.0, **settings})
    papers = {"adam_beta2": 0.98, "adam_epsilon": 1e-9, "report_to": "none", "use_cpu": True}
    stock = Seq2SeqTrainingArguments(str(tmp_path), **{**papers, **settings})
    expected, found = prepared(Seq2SeqTrainer(model, stock)), prepared(ours)
    assert found[2] == expected[2]
    if "optim" in settings or "weight_decay" in settings:
        assert found[:2] == expected[:2]
    else:
        assert found[0] is torch.optim.Adam


def eq3(updates, *, factor, d_model=16, warmup=10):
    return [factor * d_model**-0.5 * min(k**-0.5, k * warmup**-1.5) for k in range(1, updates + 1)]


def test_defaults_are_eq3_and_the_papers_adam(tmp_path):
    trainer = make_trainer(tmp_path)
    kind, (group,), rates = prepared(trainer, 20)
    assert kind is torch.optim.Adam
    assert rates == pytest.approx(eq3(20, factor=0.1), rel=1e-14)
    constants = {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0, "initial_lr": 1.0}
    assert {name: group[name] for name in constants} == constants
    assert group["params"] == [id(parameter) for parameter in trainer.model.parameters()]


@pytest.mark.parametrize("optim", [None, "adamw_torch", "adafactor"])
def test_learning_rate_without_a_schedule_is_the_peak_of_eq3(tmp_path, optim):
    settings = {"learning_rate": 1e-3, "learning_rate_factor": 1.0, "optim": optim}
    _, _, rates = prepared(make_trainer(tmp_path, **settings), 30)
    assert max(rates) == rates[10 - 1] == pytest.approx(1e-3, rel=1e-12)
    assert rates == pytest.approx(eq3(30, factor=1e-3 * (16 * 10) ** 0.5), rel=1e-12)


def test_warmup_may_be_a_fraction_of_the_run(tmp_path):
    trainer = make_trainer(tmp_path, warmup_steps=0.25)
    assert prepared(trainer, 20)[2] == pytest.approx(eq3(20, factor=0.1, warmup=5), rel=1e-14)


def test_training_follows_the_chosen_schedule(tmp_path):
    settings = {"learning_rate": 3e-3, "learning_rate_factor": 1.0, "lr_scheduler_type": "linear"}
    trainer = make_trainer(tmp_path, warmup_steps=0, max_steps=3, logging_steps=1, **settings)
    trainer.train()
    rates = [log["learning_rate"] for log in trainer.state.log_history if "loss" in log]
    assert rates == pytest.approx([3e-3, 2e-3, 1e-3])


def test_a_given_optimizer_and_schedule_are_used(tmp_path):
    model = tiny_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    settings = {"model": model, "learning_rate_factor": 1.0, "max_steps": 3, "logging_steps": 1}
    trainer = make_trainer(tmp_path, given={"optimizers": (optimizer, schedule)}, **settings)
    trainer.train()
    rates = [log["learning_rate"] for log in trainer.state.log_history if "loss" in log]
    assert rates == [0.5, 0.25, 0.125]
    assert trainer.lr_scheduler is schedule
    assert trainer._arguments_beyond_paper == {"optim": "SGD", "lr_scheduler_type": "StepLR"}
    constant = {"given": {"optimizers": (optimizer, None)}, "lr_scheduler_type": "constant"}
    optimizer.param_groups[0]["lr"] = 0.5
    assert prepared(make_trainer(tmp_path, **settings | constant), 3)[2] == [0.5] * 3


@pytest.mark.parametrize(
    ("settings", "which", "said"),
    [
        ({}, "optimizer", r"lr=0\.5, which Eq. 3 would multiply"),
        ({}, "schedule", "a schedule without its optimizer"),
        ({"weight_decay": 0.1}, "both", "weight_decay=0.1; the optimizer that was given has"),
        ({"learning_rate": 0.1}, "both", "learning_rate=0.1; the optimizer that was given has"),
        ({"lr_scheduler_type": "linear"}, "both", "lr_scheduler_type='linear'; the schedule that"),
        ({"learning_rate_factor": 0.1}, "both", "learning_rate_factor=0.1; the schedule that was"),
    ],
)
def test_arguments_conflicting_with_a_given_optimizer_are_refused(tmp_path, settings, which, said):
    model = tiny_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    given = (None if which == "schedule" else optimizer, None if which == "optimizer" else schedule)
    settings = {"learning_rate_factor": 1.0, **settings}
    with pytest.raises(ValueError, match=said):
        make_trainer(tmp_path, model=model, given={"optimizers": given}, **settings)


# ------------------------------------------------------------------------------------- resumption

LINEAR = {"learning_rate": 1e-3, "learning_rate_factor": 1.0, "lr_scheduler_type": "linear"}
DECAY = {**LINEAR, "weight_decay": 0.1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the directory of a one-update training; each setting is trained only once."""
    done = {}

    def train(settings):
        if (name := str(settings)) not in done:
            done[name] = tmp_path_factory.mktemp("trained")
            make_trainer(done[name], max_steps=1, save_steps=1, **settings).train()
        return done[name]

    return train


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ({}, LINEAR, r"initial_lr=0\.001; .*checkpoint-1 was trained with 1\.0"),
        (LINEAR, {**LINEAR, "learning_rate": 1e-4}, r"initial_lr=0\.0001; .* with 0\.001"),
        ({}, {"adam_beta2": 0.9}, r"betas=\(0\.9, 0\.9\); .* with \(0\.9, 0\.98\)"),
        (DECAY, {**DECAY, "weight_decay": 0.2}, r"weight_decay=0\.2; .* with 0\.1"),
        (LINEAR, DECAY, "another optimizer: .* parameter groups"),
        (DECAY, {**DECAY, "optim": "sgd"}, "another optimizer. Give the same"),
        ({"save_only_model": True}, {}, r"holds no optimizer\.pt, because of save_only_model"),
    ],
)
def test_resuming_with_other_or_no_optimizer_state_is_refused(trained, first, then, said):
    directory = trained(first)
    with pytest.raises(ValueError, match=said):
        make_trainer(directory, max_steps=2, **then).train(resume_from_checkpoint=True)


# ---------------------------------------------------------------------------------- other arguments


@pytest.mark.parametrize("settings", [{}, HOSTS[-1]])
def test_arguments_survive_copies_files_and_command_lines(settings, tmp_path):
    args = arguments(**settings)
    names = ("learning_rate", "lr_scheduler_type", "optim", "weight_decay", "disable_tqdm")
    values = {name: getattr(args, name) for name in names}
    line = [f"--{name}={value}" for name, value in settings.items()]
    parser = HfArgumentParser(VanillaTransformerTrainingArguments)
    (parsed,) = parser.parse_args_into_dataclasses([*line, "--output_dir=out", "--use_cpu"])
    known = json.loads(args.to_json_string())
    rebuilt = VanillaTransformerTrainingArguments(
        **{name: known[name] for name in (*names, "output_dir", "use_cpu")}
    )
    torch.save(args, tmp_path / "training_args.bin")
    for copy in (
        pickle.loads(pickle.dumps(args)),
        torch.load(tmp_path / "training_args.bin", weights_only=False),
        dataclasses.replace(args, seed=7),
        parsed,
        rebuilt,
    ):
        assert {name: getattr(copy, name) for name in names} == values
        check_arguments(copy)
    assert "lr_scheduler_type" in args.to_sanitized_dict()


def test_data_seed_decides_the_order_of_batches(tmp_path):
    orders = []
    for seeds in ({"seed": 3}, {"seed": 4, "data_seed": 3}, {"seed": 3, "data_seed": 4}):
        trainer = make_trainer(tmp_path, **seeds)
        trainer.get_train_dataloader()
        orders.append(list(trainer.train_sampler))
    assert orders[0] == orders[1] != orders[2]


def test_the_best_checkpoint_is_kept_and_loaded_at_the_end(tmp_path):
    # The learning rate is so high that the loss soon rises.
    trainer = make_trainer(
        tmp_path,
        **{"learning_rate": 3.0, "learning_rate_factor": 1.0, "lr_scheduler_type": "constant"},
        **{"save_steps": 1, "eval_steps": 1, "eval_strategy": "steps", "max_steps": 6},
        **{"checkpoints_to_keep": 2, "load_best_model_at_end": True},
    )
    trainer.train()
    losses = [log["eval_loss"] for log in trainer.state.log_history if "eval_loss" in log]
    best = losses.index(min(losses)) + 1
    assert best < 5  # otherwise it would be among the last two anyway
    assert list(checkpoints(tmp_path)) == [best, 5, 6]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(min(losses), rel=1e-6)


def test_epoch_checkpoints_are_kept_like_scheduled_ones(tmp_path):
    limits = {"max_steps": -1, "num_train_epochs": 3, "checkpoints_to_keep": 2}
    trainer = make_trainer(tmp_path, train=copy_task(20), save_strategy="epoch", **limits)
    trainer.train()
    epoch = trainer.updates_per_epoch
    assert list(checkpoints(tmp_path)) == [2 * epoch, 3 * epoch]


def test_save_steps_may_be_a_fraction_of_the_run(tmp_path):
    make_trainer(tmp_path, max_steps=4, save_steps=0.25, checkpoints_to_keep=2).train()
    assert list(checkpoints(tmp_path)) == [3, 4]


def test_neftune_noise_reaches_the_training(tmp_path):
    found = []
    for alpha in (None, 5.0):
        settings = {"max_steps": 1, "save_strategy": "no"}
        trainer = make_trainer(tmp_path, neftune_noise_alpha=alpha, **settings)
        trainer.train()
        found.append(torch.cat([p.flatten() for p in trainer.model.parameters()]))
    assert not torch.equal(*found)


def test_default_collator_is_the_pair_collator(tmp_path):
    trainer = make_trainer(tmp_path, given={"data_collator": None})
    assert trainer.data_collator([copy_task(1)[0]])["labels"].shape[0] == 1


@pytest.mark.parametrize(
    ("batches", "processes", "advice"),
    [
        (1, 2, "give 2 batches, or start 1 process"),
        (3, 2, "give 2 or 4 batches, or start 1 process"),
        (8, 3, "give 6 or 9 batches, or start 2 processes"),
        (8, 16, "give 16 batches, or start 8 processes"),
    ],
)
def test_indivisible_gradient_accumulation_is_refused_with_advice(batches, processes, advice):
    message = f"gradient_accumulation: got {batches} .* among {processes} processes; {advice}\\."
    with pytest.raises(ValueError, match=message):
        share_of_update(batches, processes)


@pytest.mark.parametrize(("batches", "processes", "share"), [(1, 1, 1), (8, 8, 1), (8, 2, 4)])
def test_gradient_accumulation_is_divided_among_processes(batches, processes, share):
    assert share_of_update(batches, processes) == share
