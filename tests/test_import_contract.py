"""What every importer does with files that are not what it expects, tested for each system."""

import os
import pickle
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import test_import_annotated as annotated
import test_import_fairseq as fairseq
import test_import_fsmt as fsmt
import test_import_joeynmt as joeynmt
import test_import_marian as marian
import test_import_opennmt as opennmt
import test_import_torch as torch_nn
import torch
from safetensors.torch import load_file, save_file

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.cli import main
from vanilla_transformer.errors import RequestError

MODEL = "model.safetensors"


class System(NamedTuple):
    """A small model of a system, and how it is imported.

    Attributes:
        write: writes it into a new folder and returns what to import.
        read: imports what `write` returned, into a directory.
        file: file with the tensors, relative to the folder.
        key: entry of that file with the tensors; empty if they are the whole content.
        flags: options of the command line.
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
        lambda path, output: torch_nn.import_torch(path, output, **torch_nn.GIVEN),
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
PICKLED = [name for name, system in SYSTEMS.items() if system.file != MODEL]
systems = pytest.mark.parametrize("system", SYSTEMS)


class Source:
    """A model in a folder, with files for a test to damage."""

    def __init__(self, name, folder):
        self.system, self.folder = SYSTEMS[name], folder
        self.path = self.system.write(folder / "source")
        self.file = folder / "source" / self.system.file
        self.output = folder / "ours"

    def change(self, change):
        """Apply a function to the dict of tensors by name, and save them."""
        if self.file.name == MODEL:
            content = tensors = load_file(self.file)
        else:
            content = torch.load(self.file, weights_only=False)
            tensors = content[self.system.key] if self.system.key else content
        change(tensors)
        if self.file.name == MODEL:
            save_file(content, self.file)
        else:
            torch.save(content, self.file)
        return tensors

    def read(self):
        return self.system.read(self.path, self.output)

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
        assert NAMED_AS.get(name, name) in source.refusal()
        source.file.write_bytes(whole)


@systems
def test_surplus_tensors_are_named(system, source):
    source.change(lambda tensors: tensors.update({"decoder.note_of_mine": torch.zeros(2)}))
    assert "surplus: decoder.note_of_mine" in source.refusal()


@systems
def test_wrongly_shaped_tensors_are_named_with_both_shapes(system, source):
    changed = []

    def widen(tensors):
        name = next(name for name in sorted(tensors) if ".1." in name and tensors[name].dim() == 2)
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


@systems
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
    assert "nothing in it was run" in text
    assert source.file.name in text
    assert not marker.exists()
    if place == "in place of the file":  # the marker would show it: unprotected, the pickle runs
        pickle.loads(source.file.read_bytes())
        assert marker.exists()


@systems
def test_output_directories_that_are_not_empty_are_left_alone(system, source):
    source.output.mkdir()
    (source.output / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="not an empty directory"):
        source.read()
    assert [path.name for path in source.output.iterdir()] == ["mine.txt"]


@systems
def test_failed_import_leaves_no_files(system, source, monkeypatch):
    save = VanillaTransformerForConditionalGeneration.save_pretrained

    def save_and_fail(self, directory, **kwargs):
        save(self, directory, **kwargs)
        raise OSError("disk full")

    monkeypatch.setattr(
        VanillaTransformerForConditionalGeneration, "save_pretrained", save_and_fail
    )
    with pytest.raises(OSError, match="disk full"):
        source.read()
    assert [path.name for path in source.folder.iterdir()] == ["source"]


@systems
@pytest.mark.parametrize("damage", ["a file of noise", "no file"])
def test_import_command_refuses_in_one_line(system, source, damage, capsys):
    source.file.write_bytes(b"no tensors") if damage == "a file of noise" else source.file.unlink()
    command = ["import", system, str(source.path), str(source.output), *source.system.flags]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert Path(source.path).name in error
    assert not source.output.exists()
