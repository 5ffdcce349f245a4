"""Import of models as marian-dev saves them, with the files of OPUS-MT's archives.

marian-dev computes the paper's network with the sinusoids of the authors' code, an epsilon of 1e-6
and an output bias. Its decoder starts from a zero vector, which is the row of `<pad>` here.
transformers' conversion of these archives has the paper's sinusoids and an epsilon of 1e-5.
"""

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...errors import RequestError
from ...storage import reading
from ...storage.saved_model import TOKENIZER_SETTINGS, named_errors
from ..layer_names import STACKS, LayerNames
from ..marian_names import MARIAN_NORM_EPS, reordered
from .options import check_options, options_in
from .safe_files import listed
from .state_dict import Imported, Piece, Source, finish, setting, special_ids

DECODER = "decoder.yml"  # lists the archive's other files
_OPTIONS = "special:model.yml"
_DAMAGED = "{} is damaged, or not Marian's"  # zipfile and NumPy raise many kinds of errors
_MOST_UNPACKED = 16  # factor by which an archive may grow when unpacked; weights hardly compress
_BIAS = "decoder_ff_logit_out_b"
_UNUSED = -100.0  # logit of an id that Marian does not have
# Marian's encoder_l1_self_Wq is called encoder_l.0.self.q.weight here (_marian_name).
_LAYERS = LayerNames(
    layers={stack: f"{stack}_l" for stack in STACKS},
    attentions={"encoder": ("self",), "decoder": ("self", "context")},
    norms={
        "encoder": ("self_Wo_ln", "ffn_ffn_ln"),
        "decoder": ("self_Wo_ln", "context_Wo_ln", "ffn_ffn_ln"),
    },
    projections=("q", "k", "v", "o"),
    feed_forward=("ffn.1", "ffn.2"),
    last_norm="{}_top_ln",
)
# Operations before each sub-layer, after it and after a stack (a adds, n normalizes; dropout is
# left out), and the fields of our configuration that say the same.
_ORDERS: dict[tuple[str, ...], dict[str, Any]] = {
    ("", "an", ""): {},
    ("", "an", "n"): {"final_norm": True},
    ("n", "a", "n"): {"norm_first": True},
}
_OPERATIONS = {"preprocess": "", "postprocess": "dan", "postprocess-top": ""}  # Marian's defaults
_Decoder = TypedDict(
    "_Decoder", {"models": list[str], "vocabs": list[str], "beam-size": NotRequired[int]}
)


def import_archive(
    path: Path, output: reading.StrPath | None = None, *, like_transformers: bool = False
) -> Imported:
    """Import a model of marian-dev with its vocabularies and SentencePiece models.

    Exact: logits differ from those of marian-dev's equations by rounding alone.

    Args:
        path: A folder or zip file with decoder.yml, the files that it names, source.spm and
            target.spm.
        output: A new or empty directory. None means nothing is written.
        like_transformers: Whether to compute what transformers' conversion computes.

    Raises:
        ValueError: A file is missing or damaged, the model is of a kind that this package lacks, or
            `output` is not empty.
    """
    with named_errors(_DAMAGED.format(path)):
        folder = path if path.is_dir() else _inside(path)
        settings = _file(folder, DECODER)
        decoder = reading.checked(reading.read_yaml(settings, typed=True), _Decoder, settings)
        if len(decoder["models"]) != 1 or not decoder["vocabs"]:
            models = listed(decoder["models"]) or "none"
            raise RequestError(f"{settings} lists models: {models}; give one, with its vocabs.")
        tensors, options = _read_model(_file(folder, decoder["models"][0]))
        names = [decoder["vocabs"][0], decoder["vocabs"][-1]]
        vocabularies = [_read_vocabulary(_file(folder, name)) for name in names]
        files = {name: _file(folder, name).read_bytes() for name in ("source.spm", "target.spm")}
    source = Source(path, tensors, check_options(options, "marian_dev", origin=path))
    sizes = _find_tables(source, options, unused=0.0 if like_transformers else _UNUSED)
    config = _make_config(source, options, vocabularies, sizes, like_transformers)
    for key, name in _LAYERS.tensors(config).items():
        is_matrix = key.endswith(".weight") and "norm" not in key  # transposed in Marian
        change = Tensor.t if is_matrix else Tensor.flatten
        source.pieces[key] = Piece((_marian_name(name, config),), change)
    source.pieces["lm_head.bias"] = Piece((_BIAS,))
    model = source.build_model(config)
    if like_transformers:  # transformers puts all sines before all cosines
        tensors = reordered(model.state_dict(), config.d_model, from_marian=True)
        model.load_state_dict(tensors)
    else:
        note = "Sinusoids and epsilon are Marian's; --like-transformers takes transformers' own"
        source.notes += (f"{note}, as export stock needs them.",)
    model.generation_config.num_beams = decoder.get("beam-size")
    classes = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": names[0] != names[1]}
    texts: dict[str, Mapping[str, object]] = {TOKENIZER_SETTINGS: classes}
    for name, tokens in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=True):
        texts[name] = {**tokens, "<pad>": config.pad_token_id}
    files |= {name: json.dumps(text, ensure_ascii=False).encode() for name, text in texts.items()}
    return finish(Imported(model, files=files, notes=source.notes), output)


def _checked(archive: zipfile.ZipFile, packed: int, path: object) -> zipfile.ZipFile:
    """Return a zip file, but refuse one that expands to many times its size."""
    size = sum(member.file_size for member in archive.infolist())
    if size > _MOST_UNPACKED * packed:
        raise RequestError(f"{path} decompresses to {size:,} bytes, too many; download it again.")
    return archive


def _inside(path: Path) -> Any:
    """Return the folder with decoder.yml in a zip file, as an object like `Path`."""
    top = zipfile.Path(_checked(zipfile.ZipFile(path), path.stat().st_size, path))
    return next((each for each in top.iterdir() if (each / DECODER).is_file()), top)


def _file(folder: Any, name: str) -> Any:
    """Return the path of a file in the archive; `name` may begin with another machine's folder.

    Raises:
        ValueError: The file is missing, or a link to a file elsewhere.
    """
    path = folder / Path(name).name
    if not path.is_file():
        raise RequestError(f"{folder} has no {path.name}; give the archive with all of its files.")
    return reading.own_file(path) if isinstance(path, Path) else path


def _read_model(path: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the options of an .npz file.

    Raises:
        ValueError: The file is damaged, has no options, or holds integers instead of weights.
    """
    with named_errors(_DAMAGED.format(path)), path.open("rb") as file:
        content = io.BytesIO(file.read())
        _checked(zipfile.ZipFile(content), content.getbuffer().nbytes, path)
        with np.load(content, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
        text = found.pop(_OPTIONS).tobytes().rstrip(b"\0").decode()
        options = options_in(reading.parse_yaml(text, typed=True))
    if integers := [name for name, array in found.items() if array.dtype.kind != "f"]:
        raise RequestError(f"{path} is quantized ({listed(integers)}); give the float32 model.")
    return {name: torch.from_numpy(array) for name, array in found.items()}, options


def _read_vocabulary(path: Any) -> dict[str, int]:
    """Return the ids of a vocabulary's tokens.

    Raises:
        ValueError: The file is damaged, has no `</s>` or `<unk>`, or lacks an id.
    """
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # all values are text

    def parse(text: str) -> dict[str, int]:
        tokens = reading.checked(yaml.load(text, loader), dict[str, str], path)
        ids = {token: int(number) for token, number in tokens.items()}
        if not {"</s>", "<unk>"} <= ids.keys() or sorted(ids.values()) != [*range(len(ids))]:
            raise RequestError("it has no </s> or <unk>, or its ids are not 0, 1, 2 ...")
        return ids

    return reading.read_text(path, "a vocabulary of Marian", reading.JSON_BYTES, parse)


def _find_tables(source: Source, options: Mapping[str, Any], *, unused: float) -> tuple[int, int]:
    """Find the embedding tables, and pad them to one length with zero rows, the last for `<pad>`.

    Args:
        source: The model.
        options: Marian's options of the model.
        unused: Logit of `<pad>`.

    Returns:
        The numbers of ids that Marian has for source and target.
    """
    every, tensors = options.get("tied-embeddings-all"), source.tensors
    shared = every or options.get("tied-embeddings-src")
    encoder, decoder = ("Wemb", "Wemb") if shared else ("encoder_Wemb", "decoder_Wemb")
    tied = every or options.get("tied-embeddings")
    softmax = decoder if tied else "decoder_ff_logit_out_Wt"
    sources, targets, _ = map(len, source.matrices(encoder, decoder, softmax))
    length = max(sources, targets) + 1
    if options.get("output-omit-bias"):
        tensors[_BIAS] = torch.zeros(targets)
    for name, size in {encoder: sources, decoder: targets, softmax: targets}.items():
        tensors[name] = nn.functional.pad(tensors[name], (0, 0, 0, length - size))
    if _BIAS in tensors:
        more = torch.tensor([_UNUSED] * (length - 1 - targets) + [unused])
        tensors[_BIAS] = torch.cat((tensors[_BIAS].flatten(), more))
    source.find_tables((encoder, decoder, softmax))
    return sources, targets


def _make_config(
    source: Source,
    options: Mapping[str, Any],
    vocabularies: Sequence[Mapping[str, int]],
    sizes: tuple[int, int],
    like_transformers: bool,
) -> VanillaTransformerConfig:
    """Return the configuration; refuse vocabularies that do not fit the model or each other."""
    counts = tuple(map(len, vocabularies))
    special = {(tokens["</s>"], tokens["<unk>"]) for tokens in vocabularies}
    if len(special) > 1 or counts != sizes:
        vocabs = f"vocabularies of {counts} tokens with </s> and <unk> at {sorted(special)}"
        raise RequestError(f"{source.origin}: {vocabs} for {sizes} embeddings; give the model's.")
    ((end, unknown),) = special
    given = {name: setting(options, f"transformer-{name}", it) for name, it in _OPERATIONS.items()}
    order = tuple(str(value).replace("d", "") for value in given.values())
    if order not in _ORDERS:
        allowed = "'', 'dan' and '' or 'n' (post-norm); 'n', 'da' and 'n' (pre-norm)"
        raise RequestError(f"{source.origin} has transformer options {given}; allowed: {allowed}.")
    heads = setting(options, "transformer-heads", 8)
    inner = setting(options, "transformer-dim-ffn", 2048)
    return source.make_config(
        **special_ids("pad", pad=max(sizes), bos=None, eos=end, unk=unknown),
        **_ORDERS[order],
        **{f"{stack}_layers": setting(options, f"{stack[:3]}-depth", 1) for stack in STACKS},
        **{f"{stack}_attention_heads": heads for stack in STACKS},
        encoder_ffn_dim=inner,
        decoder_ffn_dim=options.get("transformer-decoder-dim-ffn") or inner,
        activation_function=setting(options, "transformer-ffn-activation", "swish"),
        position_encoding="sinusoidal" if like_transformers else "tensor2tensor",
        layer_norm_eps=MARIAN_NORM_EPS if like_transformers else 1e-6,
        lm_head_bias=True,
    )


def _marian_name(name: str, config: VanillaTransformerConfig) -> str:
    """Return Marian's name of a tensor: encoder_l.0.self.q.weight is encoder_l1_self_Wq."""
    name = re.sub(r"_l\.(\d+)\.", lambda number: f"_l{int(number[1]) + 1}_", name)
    module, part = name.rsplit(".", 1)
    if module.endswith("_ln"):
        pre = "_pre" if config.norm_first and "top" not in module else ""
        return f"{module}_{'scale' if part == 'weight' else 'bias'}{pre}"
    module, letter = module.rsplit(".", 1)
    return f"{module}_{'W' if part == 'weight' else 'b'}{letter}"
