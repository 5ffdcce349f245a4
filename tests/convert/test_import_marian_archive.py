"""The import of Marian's own archives, compared with marian-dev's equations in NumPy."""

import json

import marian_dev
import numpy as np
import pytest
import torch
import yaml
from marian_dev import OPTIONS, PRENORM, UNTIED, save_archive, zipped
from transformers import AutoTokenizer
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from vanilla_transformer import VanillaTransformerForConditionalGeneration, translate
from vanilla_transformer.convert.exporters.stock import to_stock
from vanilla_transformer.convert.importers.marian import import_marian

DIALECTS = {
    "post-norm": {},
    "relu": {"transformer-ffn-activation": "relu"},
    "pre-norm": PRENORM,
    "post-norm with a last norm": {"transformer-postprocess-top": "n"},
    "untied": UNTIED,
    "shared, but not with the softmax": {**UNTIED, "tied-embeddings-src": True},
    "pre-norm, two tables": {**PRENORM, **UNTIED, "tied-embeddings": True},
    "no bias": {"output-omit-bias": True},
    "narrow decoder": {"transformer-decoder-dim-ffn": 12},
}
PAIRS = [
    ([5, 6, 7, 9, 12, 22, 11, 8, 30, 1], [4, 8, 11, 20, 1]),
    ([9, 1], [2, 5, 5, 34, 5, 5, 5, 5, 5, 5, 5, 1]),
]


def write(folder, options=None):
    save_archive(folder, options)
    return folder


def logits_of(model, source, target):
    start = [model.config.decoder_start_token_id, *target[:-1]]
    with torch.no_grad():
        return model(torch.tensor([source]), decoder_input_ids=torch.tensor([start])).logits[0]


def assert_logits(model, tensors, options, **how):
    for source, target in PAIRS:
        expected = marian_dev.logits(tensors, OPTIONS | options, source, target, **how)
        found = logits_of(model, source, target).numpy()
        np.testing.assert_allclose(found[:, : expected.shape[1]], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_imported_logits_equal_those_of_marian(tmp_path, dialect):
    options = DIALECTS[dialect]
    tensors = save_archive(tmp_path / "opus", options)
    import_marian(tmp_path / "opus", tmp_path / "ours")
    ours = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path / "ours")
    assert_logits(ours, tensors, options)
    assert ours.config.tie_word_embeddings == ("Wt" not in " ".join(tensors))


@pytest.mark.parametrize("sizes", [(40, 36), (36, 40)], ids=str)
def test_vocabularies_of_two_sizes_have_padding_at_one_id(tmp_path, sizes):
    tensors = save_archive(tmp_path / "opus", UNTIED, sizes)
    ours = import_marian(tmp_path / "opus").model
    assert_logits(ours, tensors, UNTIED)
    assert ours.config.pad_token_id == ours.config.decoder_start_token_id == 40
    # What Marian does not have is never produced, and takes no probability from the others.
    found = logits_of(ours, *PAIRS[0]).softmax(-1)
    assert found[:, sizes[1] :].max() < 1e-30


def test_like_transformers_computes_what_its_classes_compute(tmp_path):
    """Its conversion gives other positions and another epsilon, and `<pad>` a logit of 0."""

    def positions(length, width):
        table = MarianSinusoidalPositionalEmbedding(length, width)
        table.weight.data = table.create_weight()
        return table.weight.double().numpy()

    tensors = save_archive(tmp_path / "opus")
    ours = import_marian(tmp_path / "opus", like_transformers=True).model
    assert_logits(ours, tensors, {}, positions=positions, epsilon=1e-5)
    stock = to_stock(ours)
    for pair in PAIRS:
        found = logits_of(stock, *pair)
        torch.testing.assert_close(found, logits_of(ours, *pair), atol=1e-5, rtol=0)
        assert (found[:, -1] == 0).all()


def test_zip_files_are_the_same_model_also_with_a_folder_inside(tmp_path):
    expected = import_marian(write(tmp_path / "outer" / "opus")).model.state_dict()
    for folder in (tmp_path / "outer" / "opus", tmp_path / "outer"):
        found = import_marian(zipped(folder)).model.state_dict()
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_ids_are_those_of_the_vocabulary_file_and_language_tokens_stay(tmp_path):
    import_marian(write(tmp_path / "opus"), tmp_path / "ours")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    ids = marian_dev.vocabulary(40)
    pieces = ["\u2581dog", "s", "\u2581run"]
    assert tokenizer(">>deu<< dogs run").input_ids == [2, *map(ids.get, pieces), ids["</s>"]]
    assert tokenizer("dogs 7").input_ids[-2:] == [ids["<unk>"], ids["</s>"]]
    assert tokenizer.decode([*map(ids.get, pieces), 1], skip_special_tokens=True) == "dogs run"
    assert tokenizer.pad_token_id == 40


def test_target_vocabulary_of_its_own_is_used_for_targets(tmp_path):
    path = write(tmp_path / "opus", UNTIED)
    ids = yaml.safe_load((path / "opus.src.vocab.yml").read_text())
    swapped = {**ids, "\u2581dog": ids["\u2581cat"], "\u2581cat": ids["\u2581dog"]}
    (path / "opus.trg.vocab.yml").write_text(json.dumps(swapped))
    import_marian(path, tmp_path / "ours")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    source, target = tokenizer("a dog").input_ids, tokenizer(text_target="a cat").input_ids
    assert source == target
    assert tokenizer.decode(source, skip_special_tokens=True) == "a cat"


def test_greedy_translations_are_those_of_marians_equations(tmp_path):
    tensors = save_archive(tmp_path / "opus")
    import_marian(tmp_path / "opus", tmp_path / "ours")
    ours = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path / "ours")
    assert ours.generation_config.num_beams == 6  # as decoder.yml says
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    (found,) = translate(ours, tokenizer, ["the cats run"], num_beams=1, max_new_tokens=8)
    source, target = tokenizer("the cats run").input_ids, []
    while len(target) < 8 and 1 not in target:
        last = marian_dev.logits(tensors, OPTIONS, source, [*target, 1])[-1]
        last[3] = -np.inf  # Marian produces no <unk> unless told to
        target.append(int(last.argmax()))
    assert found == tokenizer.decode(target, skip_special_tokens=True)
    assert len(target) > 3


DAMAGES = [  # a file, its new content (None: it is missing), and what the error says
    ("target.spm", None, "has no target.spm; give the archive"),
    ("opus.npz", None, "has no opus.npz"),
    ("opus.src.vocab.yml", None, "has no opus.src.vocab.yml"),
    ("opus.src.vocab.yml", "a: 0\n", "no </s> or <unk>"),
    ("opus.src.vocab.yml", "a: [0]\n", "a in "),
    ("opus.src.vocab.yml", "</s>: 0\n<unk>: 1\nx: 3\n", "or its ids are not 0, 1, 2 ..."),
    ("opus.src.vocab.yml", "</s>: 0\n<unk>: 1\n", "of (2, 2) tokens"),
    ("decoder.yml", "models: opus.npz\n", "models, vocabs in"),
    ("decoder.yml", "models: [a.npz, b.npz]\nvocabs: [a]\n", "models: a.npz, b.npz; give one"),
    (
        "opus.npz",
        {"special:model.yml": np.array([{}])},
        "opus.npz is damaged, or not Marian's: Object arrays",
    ),
    ("opus.npz", {"Wemb": np.zeros((10**6, 1))}, "decompresses to 8,000,128 bytes"),
]


@pytest.mark.parametrize("zips", [False, True])
@pytest.mark.parametrize(("name", "content", "reason"), DAMAGES)
def test_damaged_and_incomplete_archives_are_refused(tmp_path, name, content, reason, zips):
    path = write(tmp_path / "opus")
    if content is None:
        (path / name).unlink()
    elif isinstance(content, str):
        (path / name).write_text(content)
    else:
        np.savez_compressed(path / name, **content)
    path = zipped(path) if zips else path
    with pytest.raises(ValueError, match="opus") as error:
        import_marian(path, tmp_path / "ours")
    assert reason in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ours").exists()


def test_damaged_zip_files_are_refused(tmp_path):
    path = zipped(write(tmp_path / "opus"))
    whole = path.read_bytes()
    for content in (b"", b"text", whole[:-30], whole[:5000] + b"x" * 99 + whole[5099:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"opus.zip(/opus.npz)? is damaged"):
            import_marian(path)


def test_block_import_archive(documented_command, tmp_path):
    zipped(write(tmp_path / "opus-2021-02-22"))
    documented_command("import_archive")
    VanillaTransformerForConditionalGeneration.from_pretrained("runs/opus-en-de")
