"""BPE dropout: randomly split pieces spell the same texts, at the given rate, reproducibly."""

import os
import signal

import numpy as np
import pytest
import torch
from published_runs import tiny_model
from tiny_trainers import At, assert_equal, weights
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from vanilla_transformer.data.bpe_dropout import BpeDropout
from vanilla_transformer.data.dataset import PairCollator, load_pairs, pair_lengths, tokenize_pairs
from vanilla_transformer.data.tokenizer import make_tokenizer, train_tokenizer
from vanilla_transformer.texts.targets import hold_target_tokenizer
from vanilla_transformer.train.trainer import (
    TrainingInterrupted,
    VanillaTransformerTrainer,
    VanillaTransformerTrainingArguments,
)

TEXTS = [
    "The transformer translates the translations of transformers.",
    "Der Übersetzer übersetzt 1234 Übersetzungen: </s> 翻译者翻译了译文 \U0001f642.",
    "a",
]
PAIRS = [(f"{source} {n}", f"{n} {source} and again") for n in range(40) for source in TEXTS]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS * 3, vocab_size=400, show_progress=False)


def features_of(tokenizer, texts):
    return [
        {"input_ids": tokenizer(text).input_ids, "labels": tokenizer(text[::-1]).input_ids}
        for text in texts
    ]


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 1.0])
def test_split_pieces_spell_the_same_texts(tokenizer, probability):
    split = BpeDropout(tokenizer, probability)(features_of(tokenizer, TEXTS), epoch=3)
    for text, feature in zip(TEXTS, split, strict=True):
        assert tokenizer.decode(feature["input_ids"], skip_special_tokens=True) == text
        assert tokenizer.decode(feature["labels"], skip_special_tokens=True) == text[::-1]
        assert feature["input_ids"][-1] == tokenizer.eos_token_id
        assert (feature["input_ids"] == tokenizer.eos_token_id).sum() == 1


def test_padding_of_a_data_set_is_left_out(tokenizer):
    plain = features_of(tokenizer, TEXTS)
    padded = [{**each, "input_ids": [*each["input_ids"], 0, 0]} for each in plain]
    for each in padded:
        each["attention_mask"] = [1] * (len(each["input_ids"]) - 2) + [0, 0]
    both = (BpeDropout(tokenizer, 0.5)(features, epoch=3) for features in (plain, padded))
    for one, other in zip(*both, strict=True):
        assert [*one["input_ids"]] == [*other["input_ids"]]


def test_dropout_of_zero_splits_nothing_and_of_one_gives_bytes(tokenizer):
    features = features_of(tokenizer, TEXTS)
    whole, bytes_ = (BpeDropout(tokenizer, p)(features) for p in (0.0, 1.0))
    for text, feature, same, single in zip(TEXTS, features, whole, bytes_, strict=True):
        assert same["input_ids"].tolist() == feature["input_ids"]
        assert len(single["input_ids"]) == len(text.encode()) + 1


def test_every_merge_is_undone_with_the_given_probability(tokenizer):
    """A piece stays whole with probability 1 - p; if it is split, so does each of its parts."""
    words = [" transformer" * 50]
    features = [{"input_ids": tokenizer(words[0]).input_ids, "labels": [2]}]
    merges, probability = BpeDropout(tokenizer, 0.0), 0.3

    def expected_pieces(piece):
        left, right = merges.parts[0][piece]
        if left < 0:
            return 1.0
        parts = expected_pieces(left) + expected_pieces(right)
        return 1 - probability + probability * parts

    expected = sum(map(expected_pieces, features[0]["input_ids"]))
    dropout = BpeDropout(tokenizer, probability)
    counts = [len(dropout(features, epoch=epoch)[0]["input_ids"]) for epoch in range(400)]
    error = np.std(counts) / len(counts) ** 0.5
    assert len(features[0]["input_ids"]) * 1.2 < expected
    assert abs(np.mean(counts) - expected) < 4 * error


def test_seed_epoch_and_batch_decide_the_draw(tokenizer):
    features = features_of(tokenizer, TEXTS)

    def draw(features=features, seed=0, epoch=0):
        rows = BpeDropout(tokenizer, 0.5, seed=seed)(features, epoch=epoch)
        return [row["input_ids"].tolist() for row in rows]

    assert draw() == draw()
    assert draw(epoch=1) != draw()
    assert draw(seed=1) != draw()
    assert draw(features[::-1])[::-1] != draw()
    assert draw(features[:2]) != draw()[:2]


def test_source_and_target_of_the_same_text_are_split_independently(tokenizer):
    ids = tokenizer(TEXTS[0]).input_ids
    rows = BpeDropout(tokenizer, 0.5)([{"input_ids": ids, "labels": ids}] * 50)
    assert not any(np.array_equal(*row.values()) for row in rows)


def test_each_side_is_split_by_the_merges_of_its_own_vocabulary():
    source, target = (
        train_tokenizer([text] * 9, vocab_size=280, show_progress=False) for text in TEXTS[:2]
    )
    hold_target_tokenizer(source, target)
    features = [
        {"input_ids": source(text).input_ids, "labels": target(text).input_ids}
        for text in TEXTS[:2]
    ]
    for probability in (0.5, 1.0):
        rows = BpeDropout(source, probability)(features)
        for text, row, whole in zip(TEXTS, rows, features, strict=False):
            assert source.decode(row["input_ids"], skip_special_tokens=True) == text
            assert target.decode(row["labels"], skip_special_tokens=True) == text
            assert len(row["labels"]) > len(whole["labels"])
            assert probability < 1 or len(row["labels"]) == len(text.encode()) + 1


def test_rows_that_would_exceed_max_length_stay_whole(tokenizer):
    features = features_of(tokenizer, TEXTS)
    longest = len(features[0]["input_ids"])
    rows = BpeDropout(tokenizer, 1.0, max_length=longest)(features)
    assert rows[0]["input_ids"].tolist() == features[0]["input_ids"]
    assert len(rows[2]["input_ids"]) <= longest


def test_ignored_and_out_of_range_ids_are_left_to_the_collator(tokenizer):
    features = [{"input_ids": [4, 10_000], "labels": [5, -100]}]
    (row,) = BpeDropout(tokenizer, 1.0)(features)
    assert row["input_ids"].tolist() == [4, 10_000]
    assert row["labels"].tolist() == [5, -100]
    with pytest.raises(ValueError, match="got token id 10000 in input_ids"):
        PairCollator(vocab_size=400)([row])


def test_tokenizers_other_than_bpe_are_refused():
    unigram = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.Unigram()))
    with pytest.raises(ValueError, match="a BPE tokenizer, not Unigram; set bpe_dropout=0"):
        BpeDropout(unigram, 0.1)
    empty = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    for tokenizer in (empty, make_tokenizer("bytes", ["a"], vocab_size=999)):
        with pytest.raises(ValueError, match="the tokenizer has no merges to undo"):
            BpeDropout(tokenizer, 0.1)


# --------------------------------------------------------------------------------- in training


def trainer_of(tokenizer, directory, **settings):
    torch.manual_seed(7)
    model = settings.pop("model", None) or tiny_model(vocab_size=len(tokenizer))
    processing_class = settings.pop("processing_class", tokenizer)
    dataset = load_pairs(PAIRS, source_language="en", target_language="de", show_progress=False)
    pairs = tokenize_pairs(dataset, tokenizer, show_progress=False)
    settings = {
        **{"max_steps": 9, "bpe_dropout": 0.4, "batch_tokens": 1500, "warmup_steps": 10},
        **{"learning_rate_factor": 0.1, "save_strategy": "steps", "save_steps": 9},
        **{"report_to": "none", "use_cpu": True, **settings},
    }
    args = VanillaTransformerTrainingArguments(str(directory), **settings)
    return VanillaTransformerTrainer(
        model, args, train_dataset=pairs, eval_dataset=pairs, processing_class=processing_class
    )


def lengths_of(loader):
    return [batch["attention_mask"].sum(1).tolist() for batch in loader]


def test_training_splits_pieces_anew_each_epoch_and_evaluation_never(tokenizer, tmp_path):
    trainer = trainer_of(tokenizer, tmp_path)
    loader = trainer.get_train_dataloader()
    sampler = trainer.train_sampler
    plan = list(sampler)
    whole = [trainer.train_dataset[i]["source_length"] for batch in plan for i in batch]
    first = [n for batch in lengths_of(loader) for n in batch]
    assert sum(first) > 1.2 * sum(whole)
    collate = loader.collate_fn
    features = [trainer.train_dataset[i] for i in plan[0]]
    once, same = collate(features), collate(features)
    assert torch.equal(once["input_ids"], same["input_ids"])
    sampler.set_epoch(5)
    assert collate(features)["input_ids"].tolist() != once["input_ids"].tolist()
    evaluated = [n for batch in lengths_of(trainer.get_eval_dataloader()) for n in batch]
    assert sum(evaluated) == sum(whole)


def test_training_that_cannot_apply_bpe_dropout_is_refused(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="bpe_dropout needs a BPE tokenizer, not NoneType"):
        trainer_of(tokenizer, tmp_path, processing_class=None).train()


def test_workers_draw_the_same_as_the_main_process(tokenizer, tmp_path):
    batches = []
    for workers in (0, 1):
        trainer = trainer_of(tokenizer, tmp_path, dataloader_num_workers=workers)
        loader = trainer.get_train_dataloader()
        batches.append([batch["input_ids"].tolist() for batch in loader])
    assert batches[0] == batches[1]


def test_mid_epoch_resumption_gives_the_uninterrupted_weights(tokenizer, tmp_path):
    whole = trainer_of(tokenizer, tmp_path / "whole")
    whole.train()
    batches = len(whole.train_sampler)
    assert batches < 7
    assert 7 % batches  # the second epoch has begun and not ended
    stopped = trainer_of(tokenizer, tmp_path / "stopped")
    stopped.add_callback(At(7, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    with pytest.raises(TrainingInterrupted):
        stopped.train()
    resumed = trainer_of(tokenizer, tmp_path / "stopped")
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 9
    assert_equal(weights(resumed), weights(whole))


def test_learned_positions_limit_the_length_of_rows(tokenizer, tmp_path):
    dataset = trainer_of(tokenizer, tmp_path).train_dataset
    longest = max(int(lengths.max()) for lengths in pair_lengths(dataset))
    model = tiny_model(
        vocab_size=len(tokenizer), position_encoding="learned", max_position_embeddings=longest
    )
    trainer = trainer_of(tokenizer, tmp_path, bpe_dropout=1.0, model=model)
    assert max(n for batch in lengths_of(trainer.get_train_dataloader()) for n in batch) <= longest
