"""Training arguments: what is refused, rates and optimizers, resumption."""

import dataclasses
import json
import pickle

import pytest
import torch
from published_runs import tiny_tokenizer
from tiny_trainers import copy_task, make_trainer, tiny_model
from transformers import HfArgumentParser, Seq2SeqTrainer, Seq2SeqTrainingArguments

from vanilla_transformer.train import VanillaTransformerTrainer
from vanilla_transformer.train import trainer as trainer_module
from vanilla_transformer.train.arguments import VanillaTransformerTrainingArguments, share_of_update
from vanilla_transformer.train.checkpoints import checkpoints, last_whole_checkpoint


def arguments(**settings):
    return VanillaTransformerTrainingArguments("out", report_to="none", use_cpu=True, **settings)


@pytest.mark.parametrize(
    ("watched", "rises"),
    [
        *(("perplexity", False), ("eval_wer", False), ("eval_loss", False)),
        *(("eval_bleu", True), ("mine", True)),
    ],
)
def test_the_best_model_is_best_in_the_direction_of_its_measure(watched, rises):
    assert arguments(metric_for_best_model=watched).greater_is_better is rises
    given = arguments(metric_for_best_model=watched, greater_is_better=not rises)
    assert given.greater_is_better is not rises


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"per_device_train_batch_size": 4}, "per_device_train_batch_size=4; batches are filled"),
        ({"dataloader_drop_last": True}, "dataloader_drop_last=True; .* set that to None, or leav"),
        ({"fsdp": True}, "fsdp=True; here each process holds the whole model"),
        ({"early_stopping_patience": 1}, "patience=1, but no evaluation has eval_loss"),
        ({"early_stopping_patience": 1, "early_stopping_on": "ble"}, "no evaluation has eval_ble"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size=True; batches are filled"),
        ({"bpe_dropout": 0.1, "batch_tokens": None}, "bpe_dropout=0.1; batches by tokens need"),
        (
            {"train_weights": [1, 2], "batch_tokens": None},
            r"train_weights=\[1, 2\]; batches by tokens",
        ),
        # By those that use the value.
        ({"batch_tokens": 0}, "max_tokens=0; it must be a whole number"),
    ],
)
def test_arguments_without_effect_or_sense_are_refused(tmp_path, settings, said):
    given = {"processing_class": tiny_tokenizer()}
    with pytest.raises(ValueError, match=said):
        make_trainer(tmp_path, given=given, **{"learning_rate_factor": 1.0, **settings}).train()


def test_arguments_of_the_host_are_refused(tmp_path):
    args = Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True)
    with pytest.raises(ValueError, match=r"got args of type Seq2SeqTrainingArguments; give Vanil"):
        VanillaTransformerTrainer(tiny_model(), args, train_dataset=copy_task(9))


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
    kind, groups, rates = prepared(trainer, 20)
    assert kind is torch.optim.Adam
    assert rates == pytest.approx(eq3(20, factor=0.1), rel=1e-14)
    constants = {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0, "initial_lr": 1.0}
    assert all({name: group[name] for name in constants} == constants for group in groups)
    trained = {number for group in groups for number in group["params"]}
    assert trained == {id(parameter) for parameter in trainer.model.parameters()}


PEAK = {"learning_rate": 1e-3, "learning_rate_factor": 1.0}


@pytest.mark.parametrize(
    ("settings", "factor", "warmup"),
    [
        ({"warmup_steps": 0.25}, 0.1, 5),
        *(({**PEAK, "optim": optim}, 1e-3 * (16 * 10) ** 0.5, 10) for optim in (None, "adafactor")),
    ],
    ids=str,
)
def test_warmup_may_be_a_fraction_and_the_rate_is_the_peak(tmp_path, settings, factor, warmup):
    _, _, rates = prepared(make_trainer(tmp_path, **settings), 20)
    assert rates == pytest.approx(eq3(20, factor=factor, warmup=warmup), rel=1e-12)


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
    constant = {"given": {"optimizers": (optimizer, None)}, "lr_scheduler_type": "constant"}
    optimizer.param_groups[0]["lr"] = 0.5
    assert prepared(make_trainer(tmp_path, **settings | constant), 3)[2] == [0.5] * 3


def test_a_given_optimizer_must_fit_its_schedule(tmp_path):
    model = tiny_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    settings = {"model": model, "learning_rate_factor": 1.0}
    with pytest.raises(ValueError, match="a schedule without its optimizer"):
        make_trainer(tmp_path, given={"optimizers": (None, schedule)}, **settings).train()
    with pytest.raises(ValueError, match=r"lr=0\.5, which would multiply Eq\. 3; create it with"):
        make_trainer(tmp_path, given={"optimizers": (optimizer, None)}, **settings).train()


# ------------------------------------------------------------------------------------- resumption

LINEAR = {"learning_rate": 1e-3, "learning_rate_factor": 1.0, "lr_scheduler_type": "linear"}
DECAY = {**LINEAR, "weight_decay": 0.1}
MODEL = tiny_model()
ADAM = torch.optim.Adam(MODEL.parameters(), lr=1.0, betas=(0.5, 0.98), eps=1e-9)
OWN = {"model": MODEL, "given": {"optimizers": (ADAM, None)}}


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
        ({}, LINEAR, r"learning_rate: not set -> 0\.001; .*lr_scheduler_type: not set -> 'linear'"),
        ({}, {"adam_beta2": 0.9}, r"\(adam_beta2: 0\.98 -> 0\.9\)"),
        (DECAY, {**DECAY, "weight_decay": 0.2}, r"\(weight_decay: 0\.1 -> 0\.2\)"),
        ({}, OWN, r"optimizer's betas: not set -> "),
        ({"save_only_model": True}, {}, r"lacks .* optimizer\.pt, which save_only_model"),
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
    assert "lr_scheduler_type" in args.to_sanitized_dict()


def test_data_seed_decides_the_order_of_batches(tmp_path):
    orders = []
    for seeds in ({"seed": 3}, {"seed": 4, "data_seed": 3}, {"seed": 4}):
        trainer = make_trainer(tmp_path, **seeds)
        trainer.get_train_dataloader()
        orders.append(list(trainer.train_sampler))
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("limit", [{"checkpoints_to_keep": 2}, {"save_total_limit": 1}], ids=str)
def test_the_best_checkpoint_is_kept_and_loaded_at_the_end(tmp_path, limit, monkeypatch):
    # The learning rate is so high that the loss soon rises.
    trainer = make_trainer(
        tmp_path,
        **{"learning_rate": 3.0, "learning_rate_factor": 1.0, "lr_scheduler_type": "constant"},
        **{"save_steps": 1, "eval_steps": 1, "eval_strategy": "steps", "max_steps": 6},
        **{"load_best_model_at_end": True, **limit},
    )
    last, seal = [], trainer_module.seal

    def noting(checkpoint):
        last.append(last_whole_checkpoint(tmp_path))
        seal(checkpoint)

    monkeypatch.setattr(trainer_module, "seal", noting)
    trainer.train()
    assert last == [None, *(tmp_path / f"checkpoint-{step}" for step in range(1, 6))]
    losses = [log["eval_loss"] for log in trainer.state.log_history if "eval_loss" in log]
    best = losses.index(min(losses)) + 1
    assert best < 5  # otherwise it would be among the last two anyway
    assert list(checkpoints(tmp_path)) == [best, 5, 6]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(min(losses), rel=1e-6)


def test_gradient_accumulation_is_divided_among_processes():
    for batches, processes, share in ((1, 1, 1), (8, 8, 1), (8, 2, 4)):
        assert share_of_update(batches, processes) == share
    message = "gradient_accumulation=3; not divisible by 2 processes"
    with pytest.raises(ValueError, match=message):
        share_of_update(3, 2)
