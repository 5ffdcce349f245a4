"""Imported models with separate source and target vocabularies, wherever words are shown.

The same ids are different words on the two sides, so using the wrong side is noticed.
"""

import json
import math
import shutil

import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    FSMTConfig,
    FSMTForConditionalGeneration,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.cli import main
from vanilla_transformer.convert.importers.fsmt import import_fsmt
from vanilla_transformer.convert.importers.state_dict import Imported, finish
from vanilla_transformer.convert.importers.vocabulary import vocabulary_tokenizer
from vanilla_transformer.data.dataset import tokenize_pairs
from vanilla_transformer.data.tokenizer import train_tokenizer
from vanilla_transformer.evaluation import score_model
from vanilla_transformer.evaluation.models import decode_ids
from vanilla_transformer.storage.saved_model import load_saved_model, load_saved_tokenizer
from vanilla_transformer.target_tokenizer import source_tokenizer, target_tokenizer
from vanilla_transformer.texts.targets import hold_target_tokenizer
from vanilla_transformer.translation.many_texts import translate
from vanilla_transformer.visualization.attention import attention_weights

SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
SIZES |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
SIZES |= {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 30}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
SOURCE_PIECES = ["th", "e</w>", "the</w>", "d", "og</w>", "!</w>"]
TARGET_PIECES = ["d", "er</w>", "H", "und</w>", "!</w>", "mit</w>", "Hut</w>"]
SOURCE, TARGET = "the dog!", "der Hund"
# Worked out by hand, without the start symbol.
LABELS = {"fsmt": [4, 5, 6, 7, 2], "words": [4, 5, 6, 2]}


def fsmt(folder):
    """Import an FSMT model, which keeps its tokenizer: Moses, then BPE with end-of-word marks."""
    pytest.importorskip("sacremoses", reason="comes with the extra import")
    sizes = {"src_vocab_size": 4 + len(SOURCE_PIECES), "tgt_vocab_size": 4 + len(TARGET_PIECES)}
    model = FSMTForConditionalGeneration(FSMTConfig(langs=["en", "de"], **sizes, **SIZES))
    model.save_pretrained(folder / "fsmt")
    merges = ["t h", "th e</w>", "o g</w>", "e r</w>", "u n", "un d</w>"]
    files = {
        "vocab-src.json": {token: i for i, token in enumerate([*SPECIAL, *SOURCE_PIECES])},
        "vocab-tgt.json": {token: i for i, token in enumerate([*SPECIAL, *TARGET_PIECES])},
        "tokenizer_config.json": {"langs": ["en", "de"]},
    }
    for name, content in files.items():
        (folder / "fsmt" / name).write_text(json.dumps(content))
    (folder / "fsmt" / "merges.txt").write_text("\n".join(f"{merge} 9" for merge in merges) + "\n")
    import_fsmt(folder / "fsmt", folder / "ours")


def words(folder, target=("der", "Hu@@", "nd", "!", "mit"), output="ours"):
    """Import a model with two whitespace tokenizers that start every text with <s>."""
    vocabularies = {"source": ["the", "do@@", "g", "!"], "target": target}
    for side, tokens in vocabularies.items():
        (folder / f"{side}.txt").write_text("\n".join([*SPECIAL, *tokens]))
    config = VanillaTransformerConfig(
        **{"vocab_size": 8, "decoder_vocab_size": 4 + len(target)},
        share_encoder_decoder_embeddings=False,
        **{"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "unk_token_id": 3},
        decoder_start_token_id=0,
        **SIZES,
    )
    paths = (folder / "source.txt", folder / "target.txt")
    tokenizer = vocabulary_tokenizer(paths, config, "bos $A eos")
    model = VanillaTransformerForConditionalGeneration(config)
    return finish(Imported(model, tokenizer), output and folder / output)


@pytest.fixture(scope="module", params=[fsmt, words], ids=lambda make: make.__name__)
def kind(request):
    return request.param.__name__


@pytest.fixture(scope="module")
def directory(kind, tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp(kind)
    globals()[kind](folder)
    return folder / "ours"


@pytest.fixture(scope="module")
def model(directory):
    return AutoModelForSeq2SeqLM.from_pretrained(directory).eval()


@pytest.fixture(scope="module")
def tokenizer(directory):
    return AutoTokenizer.from_pretrained(directory)


def texts(kind):
    """Return a source and a target in the form that the tokenizers expect."""
    return (SOURCE, TARGET) if kind == "fsmt" else ("the do@@ g !", "der Hu@@ nd")


def test_pictures_show_the_words_of_both_languages(kind, model, tokenizer):
    found = attention_weights(model, tokenizer, *texts(kind))
    start = [] if kind == "fsmt" else ["<s>"]
    assert found.source_words == [*start, "the", "dog", "!", "</s>"]
    assert found.target_words == ["der", "Hund", "</s>"]
    assert found.decoder_words == [SPECIAL[model.config.decoder_start_token_id], "der", "Hund"]
    pieces = attention_weights(model, tokenizer, *texts(kind), merge_words=False)
    ends = ["H", "\u00b7und"] if kind == "fsmt" else ["Hu", "\u00b7nd"]
    assert pieces.target_words[-3:] == [*ends, "</s>"]


def test_perplexity_uses_the_target_vocabularys_ids(kind, model, tokenizer):
    source, target = texts(kind)
    labels = torch.tensor([LABELS[kind]])
    with torch.inference_mode():
        expected = model(**tokenizer(source, return_tensors="pt"), labels=labels).loss.item()
    found = score_model(model, tokenizer, [source], [target], target_language="de")
    assert found["perplexity"] == pytest.approx(math.exp(expected), rel=1e-5)
    assert found["target_tokens"] == len(LABELS[kind])
    assert found["hypotheses"] == list(translate(model, tokenizer, [source]))
    assert decode_ids(tokenizer, [[*LABELS[kind], -100]]) == ["der Hund"]


@pytest.mark.usefixtures("own_cache")
def test_block_finetune_two_vocabularies(kind, directory, documented_code, tmp_path):
    """A stock trainer can train on the block's results."""
    shutil.copytree(directory, tmp_path / "runs/wmt16-en-de")
    block = documented_code("finetune_two_vocabularies")
    model, tokenizer, pairs = (block[name] for name in ("model", "tokenizer", "pairs"))
    end = model.config.eos_token_id
    for labels, text in zip(pairs["labels"], block["targets"], strict=True):
        assert labels[0] == 4  # no start symbol: "d" or "der"
        assert labels[-1] == end
        assert 0 <= min(labels) <= max(labels) < model.config.decoder_vocab_size
        if kind == "fsmt":
            assert decode_ids(tokenizer, [labels]) == [text.replace(" !", "!")]
    arguments = Seq2SeqTrainingArguments(
        str(tmp_path), max_steps=30, learning_rate=1e-2, report_to="none", use_cpu=True
    )
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    trainer = Seq2SeqTrainer(model, arguments, train_dataset=pairs, data_collator=collator)
    before = trainer.evaluate(pairs)["eval_loss"]
    trainer.train()
    assert trainer.evaluate(pairs)["eval_loss"] < 0.7 * before


def test_tokenized_pairs_hold_the_ids_of_both_vocabularies(kind, tokenizer, tmp_path):
    source, target = texts(kind)
    pairs = Dataset.from_dict({"source": [source], "target": [target]})
    (row,) = tokenize_pairs(pairs, tokenizer, cache_dir=tmp_path, show_progress=False)
    assert row["input_ids"] == tokenizer(source)["input_ids"]
    assert row["labels"] == LABELS[kind]


def test_tokens_are_cached_by_both_vocabularies(two, tmp_path):
    pairs = Dataset.from_dict({"source": ["the"], "target": ["der nd"]})
    for target, expected in ((("der", "nd"), [4, 5, 2]), (("nd", "der"), [5, 4, 2])):
        tokens = tokenize_pairs(pairs, two(target).tokenizer, cache_dir=tmp_path)
        assert tokens["labels"][:] == [expected]


def test_raw_text_for_a_model_of_pieces_gives_one_warning_for_each_side(tmp_path, caplog):
    torch.manual_seed(0)
    words(tmp_path)
    model, tokenizer = load_saved_model(tmp_path / "ours"), load_saved_tokenizer(tmp_path / "ours")
    raw, split = "the dog barks!", "the do@@ g !"
    list(translate(model, tokenizer, [split, "", split]))
    assert not caplog.messages
    list(translate(model, tokenizer, [raw] * 200, window=70))
    (message,) = caplog.messages
    assert "% of the tokens are <unk>, as in 'the dog barks!': give texts in the form" in message
    caplog.clear()
    pairs = Dataset.from_dict({"source": [split, split], "target": ["der Hund", "der Hu@@ nd"]})
    tokenize_pairs(pairs, tokenizer, show_progress=False)
    (message,) = caplog.messages
    assert message.startswith("On the target side 14% of the tokens are <unk>, as in 'der Hund'")


def pieces(folder):
    """Save a model with a byte-level BPE vocabulary for each side."""
    tokenizer, target = (
        train_tokenizer([text] * 9, vocab_size=size, show_progress=False)
        for text, size in (("the dog and the other dog!", 264), ("der Hund mit Hut", 270))
    )
    hold_target_tokenizer(tokenizer, target)
    config = VanillaTransformerConfig(
        **{"vocab_size": 264, "decoder_vocab_size": 270},
        share_encoder_decoder_embeddings=False,
        **SIZES,
    )
    model = VanillaTransformerForConditionalGeneration(config)
    finish(Imported(model, tokenizer), folder / "ours")


@pytest.mark.usefixtures("own_cache", "quick_publishing")
@pytest.mark.parametrize("make", [pytest.param(fsmt, marks=pytest.mark.slow), pieces])
def test_training_goes_on_from_a_model_with_two_vocabularies(make, tmp_path):
    make(tmp_path)
    first, run = tmp_path / "ours", tmp_path / "run"
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"{source}\t{TARGET}\n" for source in (SOURCE, "the other dog!", "the dog") * 9)
    )
    bpe_dropout = 0.3 if make is pieces else 0
    recipe = {
        **{"pair": "en-de", "init_from": first, "learning_rate": 0.01, "warmup_steps": 1},
        **{f"{split}_file": tmp_path / "pairs.tsv" for split in ("train", "validation", "test")},
        # One target for all sources could be a remark instead: the columns are named.
        **{"source_column": 1, "target_column": 2},
        **{"batch_tokens": 256, "gradient_accumulation": 1, "max_steps": 60, "num_beams": 2},
        **{"bpe_dropout": bpe_dropout, "data_license": "CC0", "data_source": "Three pairs"},
    }
    lines = [f"{name}: {value}\n" for name, value in recipe.items()]
    (tmp_path / "tiny.yaml").write_text("".join(lines))
    assert main(["train", str(tmp_path / "tiny.yaml"), "--output-dir", str(run)]) == 0

    model, tokenizer = load_saved_model(run), load_saved_tokenizer(run)
    target = target_tokenizer(tokenizer)
    assert target.get_vocab() == target_tokenizer(load_saved_tokenizer(first)).get_vocab()
    weights, earlier = model.state_dict(), load_saved_model(first).state_dict()
    assert weights.keys() == earlier.keys()
    assert not torch.equal(weights["lm_head.weight"], earlier["lm_head.weight"])
    metrics = json.loads((run / "metrics.json").read_text())
    sizes = (model.config.vocab_size, model.config.decoder_vocab_size)
    assert (metrics["vocabulary"], metrics["target_vocabulary"]) == sizes
    assert metrics["model"]["decoder_vocab_size"] == sizes[1]
    assert (run / "hypotheses.test.txt").read_text().splitlines() == [TARGET] * 27
    sources = [SOURCE, "the other dog!", "the dog"]
    assert list(translate(model, tokenizer, sources)) == [TARGET] * 3

    command = ["publish", str(run), "--repo", "user/en-de", "--license", "mit", "--force"]
    copy = tmp_path / "copy" / "en-de"
    assert main([*command, "--output", str(copy)]) == 0
    again, tokenizer = load_saved_model(copy), load_saved_tokenizer(copy)
    assert list(translate(again, tokenizer, sources)) == [TARGET] * 3
    card = (copy / "README.md").read_text()
    assert f"of a vocabulary of {sizes[1]} pieces (the source's has {sizes[0]})" in card
    assert f"| `decoder_vocab_size` | {sizes[1]} | vocab_size |" in card


@pytest.fixture
def two(tmp_path):
    """Return a function that imports a word model without saving it, for a given target."""

    def make(target=("der", "Hu@@", "nd")):
        return words(tmp_path, target=target, output=None)

    return make


def test_unsaved_import_decodes_with_the_target_vocabulary(two):
    imported = two()
    assert target_tokenizer(imported.tokenizer).get_vocab()["Hu@@"] == 5
    (text,) = translate(imported.model, imported.tokenizer, ["the do@@ g"], max_new_tokens=9)
    assert not set(text.split()) & {"the", "dog", "!"}
    assert decode_ids(imported.tokenizer, [[4, 5, 6, 2]]) == ["der Hund"]


def test_saved_tokenizer_includes_the_target_and_is_not_cached(two, tmp_path):
    """As after fine-tuning or a download: saved to another folder, which is then overwritten."""
    place = tmp_path / "saved"
    for last in ("nd", "t"):
        two(("der", "Hu@@", last)).tokenizer.save_pretrained(tmp_path / "first")
        loaded = AutoTokenizer.from_pretrained(tmp_path / "first")
        loaded.save_pretrained(place)
        shutil.rmtree(tmp_path / "first")
        again = AutoTokenizer.from_pretrained(place)
        assert decode_ids(again, [[4, 5, 6, 2]]) == [f"der Hu{last}"]
        target = target_tokenizer(again)
        assert target("der dog")["input_ids"] == [0, 4, 3, 2]
        assert (target.pad_token_id, target.padding_side) == (1, "right")
        assert target_tokenizer(again) is target  # read once


def test_shared_vocabulary_keeps_one_tokenizer():
    from tokenizers import Tokenizer, models

    one = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0})))
    assert source_tokenizer(one) is one
    assert target_tokenizer(one) is one
