"""Publishing models and Spaces and loading them elsewhere, over HTTP with a Hub on loopback."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hub_server import TOKEN, Repository
from huggingface_hub import HfApi, ModelCard, constants, snapshot_download
from pages import BLOCKS, output_of
from published_runs import SENTENCES, named_code, tiny_model, tiny_tokenizer, write_run
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.cli import parser as cli
from vanilla_transformer.data.dataset import load_pairs, tokenize_pairs
from vanilla_transformer.publish import publishing, space
from vanilla_transformer.publish.hub import hub_errors, push_folder
from vanilla_transformer.storage.saved_model import load_saved_model
from vanilla_transformer.train import VanillaTransformerTrainer, VanillaTransformerTrainingArguments
from vanilla_transformer.translation import translate

REPO = "user/de-en"
# Packages that a machine with only torch and transformers does not have.
ABSENT = ("vanilla_transformer", "accelerate", "datasets", "sacrebleu", "matplotlib", "babel")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "mine")


@pytest.fixture
def folder(tmp_path):
    """Return a small folder to push."""
    path = tmp_path / "folder"
    (path / "sub").mkdir(parents=True)
    (path / "README.md").write_text("---\nlicense: mit\n---\n# A\n")
    (path / "model.safetensors").write_bytes(bytes(range(256)) * 8)
    (path / "sub" / "a.txt").write_text("a")
    return path


def published(arguments, capsys, code=0):
    assert cli.main(["publish", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    assert TOKEN not in captured.out + captured.err
    return captured.out if code == 0 else captured.err


def in_fresh_process(script, hub, home, *, token=None):
    """Run a script as on a machine with torch and transformers but not our package."""
    home.mkdir()
    head = f"import sys\nsys.modules.update(dict.fromkeys({ABSENT!r}))\n"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0"}
    environment |= {"HF_TOKEN": token} if token else {}
    return output_of([sys.executable, "-P", "-c", head + script], home, environment)


def assert_code_is_whole(hub, repo, folder):
    """Download a repository, and check that it has the code that its settings name, no other."""
    snapshot_download(repo, local_dir=folder, token=TOKEN)
    assert named_code(folder) == {path.name for path in folder.glob("*.py")} != set()


# ------------------------------------------------------------------------- publishing and loading


def test_remote_code_gives_the_same_model_on_a_machine_without_the_package(
    hub, run, tmp_path, capsys, quick_publishing
):
    """Push a model with its code; load it by its commit, push a copy, run the card's block."""
    arguments = [run, "--repo", REPO, "--license", "cc-by-4.0", "--with-code", "--push"]
    text = published([*arguments, "--private", "--token", TOKEN], capsys)
    (commit,) = set(re.findall(r'revision="(\w{40})"', text))
    names = set(hub.files(REPO))
    assert {"pipeline.py", "modeling_vanilla_transformer.py", "model.safetensors"} <= names
    assert not [name for name in names if "custom_generate" in name or name.endswith(".bin")]
    card = hub.files(REPO)["README.md"].decode()
    block = re.search(r"```python\n(.*?)```", card, re.DOTALL).group(1)
    shown = BLOCKS["remote_code"].replace("user/demo-en-de", REPO).replace("COMMIT", commit)
    script = f"""
import builtins, json, torch
builtins.input = sys.exit  # so that no question is answered
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
options = dict(trust_remote_code=True, revision={commit!r})
config = AutoConfig.from_pretrained({REPO!r}, **options)
body = AutoModel.from_pretrained({REPO!r}, **options).eval()
model = AutoModelForSeq2SeqLM.from_pretrained({REPO!r}, **options).eval()
# Without the argument, transformers asks whether to run the code.
tokenizer = AutoTokenizer.from_pretrained({REPO!r}, trust_remote_code=False, revision={commit!r})
model.push_to_hub("user/copy")
assert type(model).__module__.startswith("transformers_modules."), type(model).__module__
inputs = tokenizer("ein altes Haus", return_tensors="pt")
ids = torch.tensor([[1, 70, 71, 72]])
with torch.inference_mode():
    save_file(dict(
        logits=model(**inputs, decoder_input_ids=ids).logits,
        hidden=body(**inputs, decoder_input_ids=ids).last_hidden_state,
    ), "answer.safetensors")
{shown}
{block.replace('"main"', repr(commit))}
print(json.dumps([translator(text)[0] for text in {list(SENTENCES)!r}]))
print(json.dumps(translator("ein Hund", num_beams=1)[0]))
"""
    lines = in_fresh_process(script, hub, tmp_path / "home", token=TOKEN).splitlines()
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(run).eval(), tiny_tokenizer()
    from safetensors.torch import load_file

    answer = load_file(tmp_path / "home" / "answer.safetensors")
    inputs, ids = tokenizer("ein altes Haus", return_tensors="pt"), torch.tensor([[1, 70, 71, 72]])
    with torch.inference_mode():
        assert torch.equal(answer["logits"], model(**inputs, decoder_input_ids=ids).logits)
        hidden = model.model(**inputs, decoder_input_ids=ids).last_hidden_state
    assert torch.equal(answer["hidden"], hidden)
    expected = [next(translate(model, tokenizer, [text])) for text in SENTENCES]
    assert [row["translation_text"] for row in json.loads(lines[-2])] == expected
    (greedy,) = translate(model, tokenizer, ["ein Hund"], num_beams=1)
    assert json.loads(lines[-1])["translation_text"] == greedy
    assert f"# {' '.join(expected[0].split())}\n" in block
    assert_code_is_whole(hub, "user/copy", tmp_path / "copy")


def test_native_form_is_loaded_without_code(hub, run, capsys, monkeypatch, quick_publishing):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    published([run, "--repo", REPO, "--license", "cc-by-4.0", "--push"], capsys)
    repository = hub.repositories["model", REPO]
    assert repository.titles == ["initial commit", "Publish de-en"]  # all in one commit
    files = set(hub.files(REPO)) - {".gitattributes"}
    pictures = {f"attention-{number}.png" for number in (1, 2, 3)}
    assert files - {path.name for path in run.iterdir()} == {"README.md", *pictures}
    assert not any(name.endswith((".py", ".bin", ".pt", ".yaml")) for name in files)
    monkeypatch.delenv("HF_TOKEN")
    model, ours = AutoModelForSeq2SeqLM.from_pretrained(REPO), tiny_model()
    assert type(model) is type(ours)
    for name, tensor in ours.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
    assert model.config.use_cache
    found, expected = AutoTokenizer.from_pretrained(REPO), tiny_tokenizer()
    assert found("ein altes Haus")["input_ids"] == expected("ein altes Haus")["input_ids"]
    card = ModelCard.load(REPO)
    assert f'pipeline("translate", model="{REPO}")' in card.text
    assert "not on the Hub" not in card.text
    assert card.data.eval_results


def test_push_removes_code_weights_and_pictures_of_earlier_ones(hub, run, capsys, quick_publishing):
    hub.repositories["model", REPO] = repository = Repository()
    stale = ("custom_generate/generate.py", "pytorch_model.bin", "attention-9.png", "merges.txt")
    stale += ("model-00001-of-00002.safetensors", "model.safetensors.index.json")
    kept = (".gitattributes", "notes.md", "onnx/model.onnx", "theirs/x.py")
    kept = dict.fromkeys((*kept, "model.bin", "attention-of-mine.png"), b"x")
    repository.commit("main", {**kept, **dict.fromkeys(stale, b"x")}, "By hand")
    arguments = [run, "--license", "mit", "--push", "--token", TOKEN, "--repo"]
    published([*arguments, REPO, "--with-code"], capsys)
    published([*arguments, REPO], capsys)
    published([*arguments, "user/new"], capsys)
    assert {*hub.files(REPO)} == {*kept, *hub.files("user/new")}


def test_a_trainer_publishes_a_model_that_strangers_load(hub, tmp_path, monkeypatch):
    """With our card and the code, and nothing else of the training; `hub_strategy="end"`."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    pairs, tokenizer = list(SENTENCES.items()), tiny_tokenizer()
    data = load_pairs(pairs, show_progress=False, source_language="de", target_language="en")
    args = VanillaTransformerTrainingArguments(
        str(tmp_path / "out"),
        **{"push_to_hub": True, "hub_strategy": "end", "hub_model_id": REPO, "hub_token": TOKEN},
        **{"max_steps": 2, "warmup_steps": 2, "use_cpu": True, "report_to": "none"},
    )
    data = tokenize_pairs(data, tokenizer, show_progress=False)
    given = {"train_dataset": data, "processing_class": tokenizer}
    trainer = VanillaTransformerTrainer(tiny_model(), args, **given)
    trainer.train()
    assert hub.repositories["model", REPO].titles == ["initial commit"]
    # As the host's examples call it.
    card = {"language": ["de", "en"], "tasks": "translation", "dataset": "our own manuals"}
    card |= {"finetuned_from": str(tmp_path), "dataset_tags": "own"}
    commit = trainer.push_to_hub("Two updates", license="cc-by-4.0", **card)
    assert commit.oid == hub.repositories["model", REPO].branches["main"]
    assert hub.repositories["model", REPO].titles == ["initial commit", "Two updates"]
    model = {"config.json", "generation_config.json", "model.safetensors", "metrics.json"}
    others = {"tokenizer.json", "tokenizer_config.json", "README.md", ".gitattributes"}
    assert {name for name in hub.files(REPO) if not name.endswith(".py")} == model | others
    pushed = hub.files(REPO)["README.md"].decode()
    assert "license: cc-by-4.0" in pushed
    assert "German to English" in pushed
    assert "2 updates" in pushed
    assert "our own manuals" in pushed
    assert str(tmp_path) not in pushed
    trainer.create_model_card(license="cc-by-4.0", **card)
    assert "German to English" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]
    # A clean process has loaded it before the push, by its code.
    assert_code_is_whole(hub, REPO, tmp_path / "copy")
    pushed, trained = load_saved_model(tmp_path / "copy").state_dict(), trainer.model.state_dict()
    assert all(torch.equal(pushed[name], weight) for name, weight in trained.items())


# ------------------------------------------------------------------------------------ one commit


@pytest.mark.parametrize("fault", ["commit", "connection"])
def test_failed_push_leaves_the_old_revision_intact(hub, folder, fault):
    first = push_folder(folder, REPO, token=TOKEN, message="one")
    before = dict(hub.files(REPO))
    (folder / "model.safetensors").write_bytes(b"new weights")
    (folder / "sub" / "a.txt").write_text("new")
    hub.fault = fault
    with pytest.raises(ValueError, match="failed, and the repository is unchanged") as refusal:
        push_folder(folder, REPO, token=TOKEN, message="two")
    assert TOKEN not in str(refusal.value)
    assert hub.files(REPO) == before
    assert hub.repositories["model", REPO].branches["main"] == first.oid
    hub.fault = None
    push_folder(folder, REPO, token=TOKEN, message="two")
    assert hub.files(REPO)["sub/a.txt"] == b"new"


@pytest.mark.parametrize(
    "error", [RuntimeError(f"Illegal header 'Bearer {TOKEN}'"), ValueError(f"{TOKEN} is odd")]
)
def test_token_is_in_no_error(error):
    with pytest.raises(ValueError, match=r"\*\*\*") as refusal, hub_errors(REPO):
        raise error
    assert "hf_" not in str(refusal.value)


def test_concurrent_push_is_not_overwritten(hub, folder, monkeypatch):
    push_folder(folder, REPO, token=TOKEN, message="one")
    (folder / "sub" / "a.txt").write_text("new")
    repository, create_commit = hub.repositories["model", REPO], HfApi.create_commit

    def overtaken(*args, **kwargs):
        repository.commit("main", {**hub.files(REPO), "theirs.txt": b"theirs"}, "theirs")
        return create_commit(*args, **kwargs)

    monkeypatch.setattr(HfApi, "create_commit", overtaken)
    with pytest.raises(ValueError, match="the push to user/de-en failed"):
        push_folder(folder, REPO, token=TOKEN, message="two")
    assert repository.titles[-1] == "theirs"
    assert hub.files(REPO)["theirs.txt"] == b"theirs"


def test_push_to_a_branch_leaves_main_and_the_token_alone(hub, folder, caplog, capfd, tmp_path):
    caplog.set_level("DEBUG")
    push_folder(folder, REPO, token=TOKEN, message="one", revision="smaller")
    assert "README.md" in hub.files(REPO, revision="smaller")
    assert set(hub.files(REPO)) == {".gitattributes"}
    captured = capfd.readouterr()
    assert TOKEN not in caplog.text + captured.out + captured.err
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    files += hub.files(REPO, revision="smaller").values()
    assert not [content for content in files if TOKEN.encode() in content]


# -------------------------------------------------------------------------- accounts and tokens


def test_push_without_a_valid_token_is_refused_in_one_line(hub, folder):
    for token in (None, "hf_wrong"):
        with pytest.raises(ValueError, match=r"push to user/de-en failed.*hf auth login") as e:
            push_folder(folder, REPO, token=token, message="one")
        assert "hf_wrong" not in str(e.value)
        assert "\n" not in str(e.value)
    with pytest.raises(ValueError, match="push to somebody/else failed"):
        push_folder(folder, "somebody/else", token=TOKEN, message="one")
    assert hub.repositories == {}


def test_private_repository_stays_private(hub, folder):
    push_folder(folder, REPO, token=TOKEN, message="one", private=True)
    assert hub.repositories["model", REPO].private
    with pytest.raises(ValueError, match="failed, and the repository is unchanged"):
        push_folder(folder, REPO, message="two")
    with pytest.raises(OSError, match="private") as refusal:
        AutoTokenizer.from_pretrained(REPO)
    assert TOKEN not in str(refusal.value)
    hub.repositories["model", REPO].private = False
    with pytest.raises(ValueError, match="exists and is public; make it private"):
        push_folder(folder, REPO, token=TOKEN, message="two", private=True, revision="new")
    assert hub.repositories["model", REPO].titles == ["initial commit", "one"]
    assert "new" not in hub.repositories["model", REPO].branches


# How code of a model could look for a token, short of reading other processes' memory.
HUNT = """
import os, pathlib, sys
import huggingface_hub
from huggingface_hub.utils import get_stored_tokens
found = [*os.environ.values(), huggingface_hub.get_token(), get_stored_tokens(), sys.stdin.read()]
homes = {os.path.expanduser("~"), os.environ["HOME"], huggingface_hub.constants.HF_HOME, "."}
for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "NETRC", "GIT_CONFIG_GLOBAL"):
    homes |= {os.environ.get(name, ".")}
for home in map(pathlib.Path, homes):
    found += [path.read_bytes() for path in [home, *home.rglob("*")] if path.is_file()]
sys.exit(f"found {found}")
"""


def test_processes_that_try_out_a_model_find_no_token(run, tmp_path, monkeypatch):
    home = tmp_path / "home"
    held = {
        ".cache/huggingface/token": TOKEN,
        ".cache/huggingface/stored_tokens": f"[mine]\nhf_token = {TOKEN}\n",
        ".netrc": f"machine huggingface.co login user password {TOKEN}",
        ".git-credentials": f"https://user:{TOKEN}@huggingface.co",
        ".gitconfig": f"[http]\n\textraHeader = Authorization: Bearer {TOKEN}\n",
    }
    for name, content in held.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "github_token"):
        monkeypatch.setenv(name, TOKEN)
    cache = str(home / ".cache")
    for name, value in {
        **{"HOME": str(home), "XDG_CACHE_HOME": cache, "HF_HOME": f"{cache}/huggingface"},
        **{"HF_TOKEN_PATH": f"{cache}/huggingface/token", "NETRC": str(home / ".netrc")},
        **{"HF_STORED_TOKENS_PATH": f"{cache}/huggingface/stored_tokens"},
        **{"GIT_CONFIG_GLOBAL": str(home / ".gitconfig"), "GIT_ASKPASS": TOKEN},
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "space").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")  # HUNT reads all files of the current directory
    hunt = functools.partial(hunted, run=subprocess.run)
    assert TOKEN in hunt([], env=dict(os.environ), input="", capture_output=True, text=True).stderr
    monkeypatch.setattr(subprocess, "run", hunt)
    for attempt in (
        lambda: publishing.load_in_clean_process(run, ["ein Hund"], form="with_code", name="it"),
        lambda: space._try_out(tmp_path / "space", run),
    ):
        with pytest.raises(ValueError, match="found ") as said:
            attempt()
        assert os.environ["PATH"] in str(said.value)
        assert TOKEN not in str(said.value)


def hunted(command, *, run, **options):
    return run([sys.executable, "-c", HUNT], **options)


# -------------------------------------------------------------------------------- the demo Space


# A Space needs none of our extras, and uses its own copy of the package.
NOT_REQUIRED = ("accelerate", "datasets", "evaluate", "sacrebleu", "babel", "peft")
STRICTLY = f"""
import os, sys
sys.modules.update(dict.fromkeys({NOT_REQUIRED!r}))
{{trial}}
assert t.vanilla_transformer.__file__.startswith(os.getcwd()), t.vanilla_transformer.__file__
assert "gradio" not in sys.modules
"""


@pytest.mark.parametrize("trial", ["", pytest.param(space._TRIAL, marks=pytest.mark.slow)])
def test_space_is_tried_out_and_pushed_in_one_commit(hub, run, folder, capsys, monkeypatch, trial):
    monkeypatch.setattr(space, "_TRIAL", STRICTLY.format(trial=trial) if trial else "")
    push_folder(folder, REPO, message="A model", token=TOKEN)
    arguments = [run, "--repo", REPO, "--space", "--push", "--private", "--token", TOKEN]
    text = published(arguments, capsys)
    repository = hub.repositories["space", REPO]
    assert f"{hub.url}/spaces/{REPO}/commit/{repository.branches['main']}" in text
    assert (repository.sdk, repository.private) == ("gradio", True)
    assert repository.titles == ["initial commit", f"Show {REPO}"]
    files = hub.files(REPO, kind="space")
    assert {"app.py", "requirements.txt", "vanilla_transformer/pipeline.py"} <= set(files)
    assert files["model_id"].decode() == f"{REPO}\n"
    assert set(hub.files(REPO)) == {".gitattributes", "README.md", "model.safetensors", "sub/a.txt"}


def test_a_space_that_does_not_work_or_lacks_its_model_is_not_pushed(hub, run, capsys, monkeypatch):
    arguments = [run, "--repo", REPO, "--space"]
    push = [*arguments, "--push", "--token", TOKEN]
    with monkeypatch.context() as patch:
        patch.setattr(space, "_TRIAL", "raise ValueError('out of order')")
        text = published(push, capsys, code=2)
    assert text.strip().endswith(f"the Space of {run} does not work: ValueError: out of order")
    monkeypatch.setattr(space, "_try_out", lambda folder, directory: None)
    assert "Nothing was pushed; give --push." in published(arguments, capsys)
    assert hub.requests == []
    assert f"no model {REPO} on the Hub" in published(push, capsys, code=2)
    assert hub.repositories == {}


# ----------------------------------------------------------- translating with models of the Hub


def test_translate_command_uses_models_of_the_hub(hub, run, tmp_path, monkeypatch, capsys):
    files = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    foreign = {"modeling_other.py": b"raise SystemExit", "pytorch_model.bin": b"code", "x.txt": b""}
    hub.repositories["model", REPO] = repository = Repository()
    first = repository.commit("main", {**files, **foreign, "spiece.model": b""}, "Publish")
    repository.commit("main", {"README.md": b"emptied"}, "Empty")
    monkeypatch.chdir(tmp_path)
    Path("source.txt").write_text("ein Hund\n")

    def translated(*words, code=0):
        assert cli.main(["translate", *map(str, words), "source.txt"]) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    expected = translated(run)
    assert translated(REPO, "--revision", first) == expected
    downloaded = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert {"model.safetensors", "spiece.model", "metrics.json"} <= downloaded
    assert not downloaded & {*foreign, "README.md"}
    for words, reason in (
        ((REPO,), f"{REPO} on the Hub has no model"),
        ((REPO, "--revision", "gone"), "Revision Not Found"),
        (("user/other",), "There is no folder user/other, and no model of that name"),
        ((run, "--revision", "main"), "is a local model; leave out --revision"),
    ):
        assert reason in translated(*words, code=2)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert translated(REPO, "--revision", first) == expected  # from the cache
    assert "outgoing traffic has been disabled" in translated("user/other", code=2)
    Path(REPO).mkdir(parents=True)  # a folder of that name comes first
    assert f"{REPO} has no trained model" in translated(REPO, code=2)
