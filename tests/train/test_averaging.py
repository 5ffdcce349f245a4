import json
import math
import shutil

import pytest
import torch
from command_line import error_of
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig

from vanilla_transformer.cli import main
from vanilla_transformer.train.averaging import average_checkpoints

WEIGHTS = "model.safetensors"


def tensors(seed, dtype=torch.float32):
    torch.manual_seed(seed)
    return {
        "model.shared.weight": torch.randn(5, 4).to(dtype),
        "model.fc1.bias": torch.randn(3).to(dtype),
        "steps": torch.tensor([seed]),
    }


def checkpoint(directory, state, **config):
    directory.mkdir(exist_ok=True)
    config = {"model_type": "vanilla_transformer", "d_model": 4} | config
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_text("{}")
    (directory / "tokenizer_config.json").write_text(f'{{"of": "{directory.name}"}}')
    (directory / "optimizer.pt").write_bytes(b"not to be copied")
    save_file(state, directory / WEIGHTS, metadata={"format": "pt"})
    return directory


@pytest.fixture
def three(tmp_path):
    return [checkpoint(tmp_path / f"checkpoint-{n}", tensors(n)) for n in (1, 2, 3)]


def sharded(directory, state):
    """Split the weights into two files and an index, as large models are saved."""
    (directory / WEIGHTS).unlink()
    weight_map = {key: f"{key == 'steps'}.safetensors" for key in state}
    for name in set(weight_map.values()):
        part = {key: value for key, value in state.items() if weight_map[key] == name}
        save_file(part, directory / name, metadata={"format": "pt"})
    (directory / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("in_shards", [(), (2, 3)])
def test_mean_equals_a_float64_mean_computed_by_hand(three, tmp_path, in_shards):
    for number in in_shards:
        sharded(three[number - 1], tensors(number))
    output = average_checkpoints(three, tmp_path / "mean")
    assert output == tmp_path / "mean"
    assert [path.name for path in output.glob("*.safetensors*")] == [WEIGHTS]
    mean = load_file(output / WEIGHTS)
    assert mean.keys() == tensors(1).keys()
    for key in ("model.shared.weight", "model.fc1.bias"):
        columns = zip(*(tensors(n)[key].flatten().tolist() for n in (1, 2, 3)), strict=True)
        expected = torch.tensor([sum(column) / 3 for column in columns], dtype=torch.float64)
        assert torch.equal(mean[key].flatten(), expected.float())
    assert torch.equal(mean["steps"], torch.tensor([3]))  # whole numbers are the last one's


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float64_and_keeps_its_dtype(dtype, tmp_path):
    # 256 + 1 is 256 in bfloat16 and 2048 + 1 is 2048 in float16: sums in half precision would
    # lose every 1 after the first term.
    big = 256.0 if dtype == torch.bfloat16 else 2048.0
    values = [big] + [1.0] * 7
    directories = [
        checkpoint(tmp_path / str(i), {"w": torch.tensor([value], dtype=dtype)})
        for i, value in enumerate(values)
    ]
    mean = load_file(average_checkpoints(directories, tmp_path / "mean") / WEIGHTS)
    assert mean["w"].dtype == dtype
    assert mean["w"] == torch.tensor([sum(values) / 8], dtype=torch.float64).to(dtype)
    assert mean["w"] != torch.tensor([big / 8], dtype=dtype)


def test_config_and_tokenizer_come_from_the_last_and_other_files_stay(three, tmp_path):
    output = tmp_path / "run"
    (output / "checkpoints").mkdir(parents=True)
    (output / "recipe.yaml").write_text("mine")
    (output / "tokenizer.json").write_text("old")
    average_checkpoints(three, output)
    names = {"checkpoints", "config.json", "recipe.yaml", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in output.iterdir()} == {*names, WEIGHTS}
    assert (output / "recipe.yaml").read_text() == "mine"
    assert (output / "tokenizer.json").read_text() == "{}"
    assert "checkpoint-3" in (output / "tokenizer_config.json").read_text()


def with_weights(**changes):
    return lambda path: save_file(tensors(1) | changes, path / WEIGHTS, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: checkpoint(path, tensors(1), d_model=8), r"-2 is not .*d_model: 4 -> 8"),
        (lambda path: (path / "config.json").write_text('{"d'), r"-2.config\.json is not JSON"),
        (lambda path: (path / WEIGHTS).unlink(), r"-2 has no .*model\.safetensors"),
        (lambda path: (path / WEIGHTS).write_bytes(b""), "-2.*is damaged"),
        (with_weights(another=torch.zeros(5)), r"-2 is not .*another: not set -> "),
        (with_weights(**{"model.fc1.bias": torch.zeros(4)}), r"-2 is not .*fc1\.bias: .*3\]' -> "),
        (with_weights(another=torch.tensor([math.nan])), r"another in .*-2.*NaN or infinity"),
    ],
)
def test_what_has_no_mean_is_refused_by_name(change, message, three, tmp_path):
    change(three[1])
    with pytest.raises(ValueError, match=message):
        average_checkpoints(three, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


# ----------------------------------------------------------------------- on the command line


@pytest.mark.parametrize("of_run", [False, True])
def test_last_checkpoints_of_a_run_or_trainer_are_averaged(of_run, three, tmp_path, monkeypatch):
    expected = load_file(average_checkpoints(three[1:], tmp_path / "expected") / WEIGHTS)
    folder = tmp_path / "run"
    inside = folder / "checkpoints" if of_run else folder
    inside.mkdir(parents=True)
    for path in three:
        shutil.move(path, inside / path.name)
    if of_run:
        (folder / "recipe.yaml").touch()
    search = GenerationConfig(num_beams=7, length_penalty=1.5)
    search.save_pretrained(folder)  # a run's lies there, not in its checkpoints
    monkeypatch.chdir(inside)
    best = tmp_path / "best"
    best.symlink_to(inside / "checkpoint-3")
    named = [inside / "checkpoint-2", inside / "checkpoint-3"]
    last, linked = [folder, "--last", "2"], ["checkpoint-2", best]
    for number, words in enumerate((last, named, ["checkpoint-2", "checkpoint-3"], linked)):
        output = tmp_path / str(number)
        assert main(["average", *map(str, words), "--output", str(output)]) == 0
        assert (output / "generation_config.json").exists() == of_run
        if of_run:
            kept = GenerationConfig.from_pretrained(output)
            assert (kept.num_beams, kept.length_penalty) == (7, 1.5)
        found = load_file(output / WEIGHTS)
        assert all(torch.equal(found[key], value) for key, value in expected.items())


def test_impossible_averages_give_a_one_line_error(three, tmp_path, capsys):
    output = ("--output", tmp_path / "mean")
    for folder, last, count in ((tmp_path, 4, 3), (three[0], 1, 0)):
        line = error_of(capsys, "average", folder, "--last", last, *output)
        assert f"has {count} checkpoints, fewer than {last}" in line
    for words in ((*three, "--last", 2), three[:1]):
        line = error_of(capsys, "average", *words, *output)
        assert "Give one run directory with --last N, or name several checkpoints" in line
    taken = error_of(capsys, "average", *three, "--output", three[0])
    assert "is also an input" in taken
    assert not (tmp_path / "mean").exists()


def test_checkpoints_with_other_tokenizers_are_not_averaged(three, tmp_path, capsys):
    """Ids of one run's pieces mean other pieces in another run."""
    (three[1] / "tokenizer.json").write_text('{"model": {"vocab": {"x": 0}}}')
    line = error_of(capsys, "average", *three, "--output", tmp_path / "mean")
    assert "checkpoint-2 is not the same model as" in line
    assert "(tokenizer: tokenizer.json changed)" in line
    assert not (tmp_path / "mean").exists()
    (three[1] / "tokenizer.json").unlink()
    average_checkpoints(three, tmp_path / "mean")
    for checkpoint in three:  # each with a tokenizer of its targets
        settings = {"target_tokenizer": f'{{"vocab": "{checkpoint.name}"}}'}
        (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))
    line = error_of(capsys, "average", *three, "--output", tmp_path / "other")
    assert "; tokenizer: target_tokenizer changed)" in line
