"""What every importer does with files that are not what it expects, tested for each system."""

import json
import os
import pickle
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import marian_dev
import numpy as np
import pytest
import test_import_annotated as annotated
import test_import_fairseq as fairseq
import test_import_fsmt as fsmt
import test_import_joeynmt as joeynmt
import test_import_marian as marian
import test_import_marian_archive as archive
import test_import_opennmt as opennmt
import test_import_torch as torch_nn
import torch
import yaml
from safetensors.torch import load_file, save_file
from written_out import make_batch

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.errors import RequestError

MODEL = "model.safetensors"


class System(NamedTuple):
    """A small model of a system, and how it is imported.

    Attributes:
        write: Writes it into a new folder and returns what to import.
        read: Imports what `write` returned, into a directory.
        file: File with the tensors, relative to the folder.
        key: Entry of that file with the tensors; empty if they are the whole content.
        flags: Options of the command line.
    """

    write: Callable
    read: Callable
    file: str
    key: str = ""
    flags: tuple[str, ...] = ()


def saved(make_model):
    """Return `write` for models of transformers."""

    def write(folder):
        make_model().save_pretrained(folder)
        return folder

    return write


def torch_file(content):
    """Return `write` for a file of `torch.save`."""

    def write(folder):
        folder.mkdir()
        torch.save(content(), folder / "a.pt")
        return folder / "a.pt"

    return write


SYSTEMS = {
    "marian": System(saved(marian.make_marian), marian.import_marian, MODEL),
    "archive": System(archive.write, archive.import_marian, "opus.npz"),
    "fsmt": System(saved(fsmt.make_fsmt), fsmt.import_fsmt, MODEL),
    "fairseq": System(
        lambda folder: fairseq.save_checkpoint(
            folder / "a.pt", fairseq.fairseq_tensors(fairseq.make_fsmt())
        ),
        fairseq.import_fairseq,
        "a.pt",
        "model",
    ),
    "joeynmt": System(
        lambda folder: joeynmt.save_directory(folder, joeynmt.make_state(), joeynmt.settings()),
        joeynmt.import_joeynmt,
        "best.ckpt",
        "model_state",
    ),
    "opennmt": System(
        lambda folder: opennmt.save_checkpoint(folder / "a.pt", *opennmt.make_state()),
        opennmt.import_opennmt,
        "a.pt",
        "model",
    ),
    "torch": System(
        torch_file(lambda: torch_nn.make_model().state_dict()),
        lambda path, output, **given: torch_nn.import_torch(path, output, **torch_nn.GIVEN | given),
        "a.pt",
        flags=tuple(
            f"--{name.replace('_', '-')}={value}" for name, value in torch_nn.GIVEN.items()
        ),
    ),
    "annotated": System(
        torch_file(annotated.make_state),
        lambda path, output: annotated.import_annotated(path, output, heads=annotated.HEADS),
        "a.pt",
        flags=(f"--heads={annotated.HEADS}",),
    ),
}
# Tensors that may be missing: tables of positions, versions of the format, an output bias, and an
# output table that FSMT ties to the embedding.
OPTIONAL = re.compile(
    r"embed_positions|\.pe$|pos_embedding|\.version$|final_logits_bias|^generator\.bias$"
    r"|output_projection\.weight$"
)
# The option that the importer of `torch.nn.Transformer` names where tensors have no fixed name.
NAMED_AS = {
    "generator.weight": "generator",
    "src_tok_emb.embedding.weight": "source-embedding",
    "tgt_tok_emb.embedding.weight": "target-embedding",
    "transformer.encoder.layers.0.self_attn.in_proj_weight": "torch.nn.Transformer",
}
PICKLED = [name for name, it in SYSTEMS.items() if it.file not in (MODEL, "opus.npz")]
systems = pytest.mark.parametrize("system", SYSTEMS)


class Source:
    """A model in a folder, with files for a test to damage."""

    def __init__(self, name, folder):
        self.system, self.folder = SYSTEMS[name], folder
        self.path = self.system.write(folder / "source")
        self.file = folder / "source" / self.system.file
        self.output, self.given = folder / "ours", {}

    def change(self, change):
        """Apply a function to the dict of tensors by name, and save them."""
        if self.file.suffix == ".npz":
            content = tensors = {name: torch.from_numpy(it) for name, it in self.arrays().items()}
        elif self.file.name == MODEL:
            content = tensors = load_file(self.file)
        else:
            content = torch.load(self.file, weights_only=False)
            tensors = content[self.system.key] if self.system.key else content
        change(tensors)
        if self.file.suffix == ".npz":
            np.savez(self.file, **{name: it.numpy() for name, it in content.items()})
        elif self.file.name == MODEL:
            save_file(content, self.file)
        else:
            torch.save(content, self.file)
        return tensors

    def arrays(self):
        with np.load(self.file) as found:
            return dict(found)

    def configure(self, **values):
        """Set settings of the model in the file where its system keeps them."""
        if self.file.suffix == ".npz":
            text = marian_dev.options_text(marian_dev.OPTIONS | values)
            np.savez(self.file, **self.arrays() | {marian_dev.OPTIONS_KEY: text})
        elif self.file.name == MODEL:
            path = self.path / "config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
        elif self.system is SYSTEMS["joeynmt"]:
            path = self.path / "config.yaml"
            content = yaml.safe_load(path.read_text())
            model = content["model"]
            for part in (model, model["encoder"], model["decoder"]):
                part.update(values)
            path.write_text(yaml.safe_dump(content))
        elif self.system.key:
            content = torch.load(self.file, weights_only=False)
            options = content["cfg"]["model"] if "cfg" in content else content["opt"]
            vars(options).update(values)
            torch.save(content, self.file)
        else:
            self.given = values

    def read(self):
        return self.system.read(self.path, self.output, **self.given)

    def refusal(self):
        """Return the import's error, having checked that it is one line and nothing is written."""
        with pytest.raises(RequestError) as error:
            self.read()
        text = str(error.value)
        assert "\n" not in text
        assert [path.name for path in self.folder.iterdir()] == ["source"]
        return text


@pytest.fixture
def source(system, tmp_path):
    return Source(system, tmp_path)


@systems
def test_missing_tensors_are_named(system, source):
    names = [name for name in sorted(source.change(len)) if not OPTIONAL.search(name)]
    whole = source.file.read_bytes()
    for name in random.Random(0).sample(names, 8):
        source.change(lambda tensors, name=name: tensors.pop(name))
        # torch's matrix of query, key and value is three of ours
        assert NAMED_AS.get(name, name.replace(".in_proj_", ".q_proj.")) in source.refusal()
        source.file.write_bytes(whole)


@systems
def test_surplus_tensors_are_named(system, source):
    source.change(lambda tensors: tensors.update({"decoder.note_of_mine": torch.zeros(2)}))
    assert "surplus: decoder.note_of_mine" in source.refusal()


@systems
def test_wrongly_shaped_tensors_are_named_with_both_shapes(system, source):
    changed = []

    def widen(tensors):
        inner = [name for name in sorted(tensors) if re.search(r"(\.|_l)1[._]", name)]
        name = next(name for name in inner if tensors[name].dim() == 2)
        rows, columns = tensors[name].shape
        tensors[name] = torch.zeros(rows, columns + 1)
        changed.extend((name, f"({rows}, {columns + 1})", f"({rows}, {columns})"))

    source.change(widen)
    text = source.refusal()
    assert all(part in text for part in ["wrongly shaped", *changed])


@pytest.mark.parametrize(
    ("system", "legacy"),
    [*((name, False) for name in SYSTEMS), *((name, True) for name in PICKLED)],
)
def test_truncated_files_are_named(system, source, legacy):
    if legacy:  # the format of torch before 1.6
        content = torch.load(source.file, weights_only=False)
        torch.save(content, source.file, _use_new_zipfile_serialization=False)
    whole = source.file.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 20):
        source.file.write_bytes(whole[:size])
        assert source.file.name in source.refusal()


class Malicious:
    """Creates a file when it is unpickled without protection."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("system", sorted(SYSTEMS.keys() - {"archive"}))  # NumPy unpickles nothing
@pytest.mark.parametrize("place", ["among the tensors", "beside them", "in place of the file"])
def test_malicious_pickles_do_not_run(system, source, place, tmp_path_factory):
    marker = tmp_path_factory.mktemp("ran") / "executed"
    if system not in PICKLED:
        tensors = load_file(source.file)
        source.file.unlink()
        source.file = source.file.with_name("pytorch_model.bin")
        torch.save(tensors, source.file)
    content = torch.load(source.file, weights_only=False)
    tensors = content[source.system.key] if source.system.key else content
    (tensors if place == "among the tensors" else content)["x"] = Malicious(marker)
    if place == "in place of the file":
        source.file.write_bytes(pickle.dumps(Malicious(marker), protocol=2))
    else:
        torch.save(content, source.file)
    text = source.refusal()
    assert "no code in it was run" in text
    assert source.file.name in text
    assert not marker.exists()
    if place == "in place of the file":  # the marker would show it: unprotected, the pickle runs
        pickle.loads(source.file.read_bytes())
        assert marker.exists()


SETTINGS = {
    "marian": [
        ({"model_type": "bart"}, "holds a bart model, not marian"),
        ({"d_model": "24"}, "expected int"),
        ({"normalize_before": True}, "normalize_before=True"),
    ],
    "archive": [
        ({"type": "s2s"}, "type='s2s'"),
        ({"transformer-decoder-autoreg": "average-attention"}, "autoreg='average-attention'"),
        ({"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"}, "decoder-autoreg='rnn'"),
        ({"transformer-ffn-activation": "gelu"}, "activation='gelu'; allowed: 'relu', 'swish'"),
        ({"transformer-ffn-depth": 3}, "transformer-ffn-depth=3"),
        ({"transformer-tied-layers": [1, 1, 1]}, "transformer-tied-layers="),
        ({"transformer-attention-mask": "alibi"}, "transformer-attention-mask='alibi'"),
        ({"transformer-preprocess": "n"}, "'preprocess': 'n', 'postprocess': 'dan'"),
        ({"transformer-postprocess": "dhn"}, "'postprocess': 'dhn'"),
        ({"transformer-heads": 5}, "not divisible by 5 encoder heads"),
        ({"enc-depth": "x"}, "'encoder_layers' expected int"),
        ({"enc-depth": 3}, "missing: encoder_l3_self_Wq"),
        ({"dec-depth": 2}, "surplus: decoder_l3_"),
    ],
    "fsmt": [({"pad_token_id": None}, "'pad_token_id' expected int")],
    "fairseq": [
        ({"arch": "latent_multilingual_transformer"}, "transformer', which is not supported"),
        ({"task": "translation_lev"}, "task='translation_lev'"),
        ({"layer_wise_attention": True}, "layer_wise_attention=True"),
        ({"encoder_langtok": "tgt"}, "encoder_langtok='tgt'"),
        ({"langtoks": {"main": ("src", "tgt")}}, "langtoks="),
        ({"quant_noise": {"pq": 0, "scalar": 0.5}}, "quant_noise_scalar=0.5"),
        ({"encoder_normalize_before": True}, "normalize_before={'encoder': True"),
        ({"activation_fn": "relu6"}, "got relu6"),
        ({"encoder_attention_heads": "x"}, "'encoder_attention_heads' expected int"),
        ({"encoder_attention_heads": 3}, "not divisible by 3 encoder heads"),
    ],
    "joeynmt": [
        ({"alpha": 0.5}, "alpha=0.5"),
        ({"initializer": "xavier_normal"}, "initializer='xavier_normal'"),
        ({"type": "recurrent"}, "'recurrent'"),
        ({"layer_norm": "deep"}, "layer_norm='deep'"),
    ],
    "opennmt": [
        ({"copy_attn": True}, "copy_attn=True"),
        ({"position_encoding": False}, "position_encoding=False"),
        ({"generator_function": "sparsemax"}, "generator_function='sparsemax'"),
        ({"dropout": []}, "'dropout' with value []"),
    ],
    "torch": [
        ({"heads": 5}, "not divisible by 5 encoder heads"),
        ({"pad_token_id": 99}, "pad_token_id=99"),
    ],
}


@pytest.mark.parametrize(
    ("system", "settings", "reason"),
    [(system, *row) for system, rows in SETTINGS.items() for row in rows],
)
def test_unsupported_settings_are_refused_with_the_reason(system, source, settings, reason):
    source.configure(**settings)
    assert reason in source.refusal()


# Options of training and search, or off, as real models have them.
KNOWN = {
    "archive": {"skip": True, "ulr": False, "transformer-tied-layers": [], "lemma-dim-emb": 0},
    "marian": {"add_bias_logits": False, "normalize_before": False, "num_beams": 6},
    "fsmt": {"langs": ["en", "ru"], "static_position_embeddings": True, "length_penalty": 1.1},
    "fairseq": {"lr": [0.0005], "adaptive_input": False, "task": "translation", "langtoks": None},
    "joeynmt": {"init_gain": 1.0, "alpha": 1.0, "freeze": False},
    "opennmt": {"data": {"corpus": {"path_src": "a"}}, "rnn_type": "LSTM", "quant_layers": []},
}


@pytest.mark.parametrize("system", KNOWN)
def test_options_that_no_table_has_are_noted(system, source):
    source.configure(**KNOWN[system], option_of_mine=None)
    source.output = None
    notes = source.read().notes
    assert not [note for note in notes if "Unknown options" in note]
    source.configure(option_of_mine="x", another=True)
    new = [note for note in source.read().notes if note not in notes]
    assert new == [
        "Unknown options, taken to have no effect on the model: another, option_of_mine."
    ]


def renamed(prefix, state):
    return {prefix + name: tensor for name, tensor in state.items()}


FORMS = {
    "DDP": lambda state: renamed("module.", state),
    "mean": lambda state: {**renamed("module._orig_mod.", state), "n_averaged": torch.tensor(5)},
}
CHECKPOINTS = {
    "safetensors": None,
    "tutorial": lambda state: {
        **{"model_state_dict": state, "rng": {"cpu": torch.zeros(9, dtype=torch.uint8)}},
        **{"optimizer_state_dict": {"state": {0: {"exp_avg": torch.ones(3)}}}, "epoch": 3},
    },
    "Lightning": lambda state: {
        **{"state_dict": renamed("model.", state), "current_model_state": {"a": torch.ones(2, 2)}},
        "hyper_parameters": {"nhead": 4, "h": annotated.HEADS, "lr": 1e-3},
    },
}


@pytest.mark.parametrize(
    ("system", "form"),
    [(system, form) for system in PICKLED for form in FORMS]
    + [(system, form) for system in ("torch", "annotated") for form in CHECKPOINTS],
)
def test_other_forms_of_a_model_are_the_same_model(source, form):
    source.output = None
    expected = source.read().model.state_dict()
    content, key = torch.load(source.file, weights_only=False), source.system.key
    if form == "safetensors":
        source.path = source.file.with_suffix(".safetensors")
        save_file(content, source.path)
    else:
        change = (FORMS | CHECKPOINTS)[form]
        torch.save({**content, key: change(content[key])} if key else change(content), source.file)
    imported = source.read()
    torch.testing.assert_close(imported.model.state_dict(), expected, rtol=0, atol=0)
    assert any("Unknown options" in note for note in imported.notes) == (form == "Lightning")


NO_SINUSOIDS, WEIGHTS = "does not hold the expected sinusoids", {"a.weight": torch.ones(2, 2)}
TENSORS = [
    ("marian", {"model.decoder.layers.0.fc2.weight": torch.tensor(1.0)}, "fc2.weight ()"),
    ("marian", {"lm_head.weight": torch.ones(marian.VOCAB_SIZE, 24)}, "must be equal, but differ"),
    ("archive", {"Wemb": torch.ones(40, dtype=torch.int8)}, "is quantized (Wemb)"),
    ("marian", {"model.encoder.embed_positions.weight": torch.ones(64, 24)}, NO_SINUSOIDS),
    ("annotated", {"encoder.norm.a_2": torch.tensor([1.0, torch.nan])}, "holds NaN or infinity"),
    ("annotated", {"src_embed.1.pe": torch.zeros(1, 50, annotated.WIDTH)}, NO_SINUSOIDS),
    ("opennmt", {"encoder.embeddings.make_embedding.pe.pe": torch.zeros(50, 1, 16)}, NO_SINUSOIDS),
    ("fairseq", {"decoder.embed_positions.weights": torch.zeros(50, 16)}, NO_SINUSOIDS),
    ("torch", {"ema": WEIGHTS, "model": WEIGHTS}, "several models (ema, model)"),
    ("torch", {"model": WEIGHTS, "hyper_parameters": {"norm_first": True}}, "norm_first=True"),
    ("annotated", {"model": WEIGHTS, "hyper_parameters": {"h": 3}}, "has h=3"),
    ("fairseq", {"decoder.note": "text"}, "more than tensors (decoder.note"),
    # What the rest has in its name is missing.
    ("fairseq", "", "holds nothing instead of tensors"),
    ("torch", "encoder.layers.0.self_attn.in_proj_weight", "none; expected one torch.nn"),
    ("marian", ".fc1.", "and 6 more"),
]


@pytest.mark.parametrize(("system", "changed", "reason"), TENSORS)
def test_tensors_that_contradict_the_settings_are_named(system, source, changed, reason):
    def change(tensors):
        if isinstance(changed, dict):
            tensors.update(changed)
        else:
            for name in [name for name in tensors if changed in name]:
                del tensors[name]

    source.change(change)
    assert reason in source.refusal()


@pytest.mark.parametrize(
    ("system", "files", "reason"),
    [
        ("marian", {"source.spm": "s"}, "all files of the source: the source has no tokenizer"),
        ("marian", {"tokenizer_config.json": '{"source_lang": "e'}, "is not JSON"),
        ("marian", {"generation_config.json": "{"}, "generation_config.json is not JSON"),
        ("marian", {"config.json": "[]"}, "the content in"),
        ("fsmt", {"vocab-src.json": "{}", "vocab-tgt.json": "{}"}, "does not load"),
    ],
)
def test_damaged_settings_and_incomplete_tokenizers_are_refused(system, source, files, reason):
    for name, text in files.items():
        (source.path / name).write_text(text)
    assert reason in source.refusal()


@pytest.mark.parametrize("system", PICKLED)
def test_generation_gives_no_padding_start_or_unknown_unless_it_is_the_end(source):
    model = source.read().model
    written = VanillaTransformerForConditionalGeneration.from_pretrained(source.output)
    torch.testing.assert_close(written.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert written.config.to_diff_dict() | {"dtype": None} == model.config.to_diff_dict() | {
        "dtype": None
    }
    config, forbidden = model.config, model.generation_config.suppress_tokens
    special = {config.pad_token_id, config.bos_token_id, config.unk_token_id}
    assert set(forbidden) == special - {config.eos_token_id}
    inputs, mask, _ = make_batch(8, pad=config.pad_token_id)
    search = {"attention_mask": mask, "max_new_tokens": 8}
    ids = written.generate(inputs, **search)
    assert torch.equal(ids, model.generate(inputs, **search))
    assert (ids[:, 0] == config.decoder_start_token_id).all()
    assert not set(ids[:, 1:].flatten().tolist()) & (set(forbidden) - {config.pad_token_id})


@pytest.mark.parametrize(
    ("system", "folder", "output"),
    [("fsmt", "wmt19-en-ru", "wmt19-en-ru"), ("joeynmt", "models/iwslt14", "iwslt14")],
)
def test_blocks_import_fsmt_and_import_joeynmt(documented_command, system, folder, output):
    Path(folder).parent.mkdir(exist_ok=True)
    SYSTEMS[system].write(Path(folder))
    documented_command(f"import_{system}")
    VanillaTransformerForConditionalGeneration.from_pretrained(f"runs/{output}")
