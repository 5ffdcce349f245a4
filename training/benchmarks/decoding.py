r"""Decoding speed: the paper's search against MarianMTModel.generate with the same weights.

There are two workloads. The first decodes batches of several sizes with random weights, and writes
exactly 20 tokens per sentence: all contenders suppress the end symbol. The second, with
--run-directory, is a test file from text to text: `translate` against a loop over `generate` in
batches of 32 in the file's order, with the BLEU of both. CTranslate2 takes part if installed.

Each contender runs in its own process, and they take turns in rotated order (interleave.py). A
ratio is the median over rounds of the ratio within a round.

    python training/benchmarks/decoding.py
    python training/benchmarks/decoding.py --run-directory runs/multi30k_en_de \
        --test-file test.jsonl.gz --pair en-de
"""

import argparse
import functools
import importlib.util
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from interleave import Answer, processes, take_turns
from report import file_and_title, has_bf16, write_results
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    translate,
)
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.convert.exporters.stock import to_stock

SIZES = {
    "base": {"vocab_size": 37_000},
    "small": {"vocab_size": 10_000, "d_model": 256, "encoder_layers": 3, "decoder_layers": 3}
    | {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    | {"encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024},
    "tiny": {"vocab_size": 50, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
    | {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    | {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32},  # to try the script
}
SPECIAL = [0, 1, 2, 3]
NEW_TOKENS, BEAM, ALPHA = 20, 4, 0.6
MARIAN = "MarianMTModel.generate"

Contender = Callable[[int], list[list[int]]]  # from a batch size to translations


def random_model(size: str) -> VanillaTransformerForConditionalGeneration:
    """Return a model with random weights in evaluation mode."""
    torch.manual_seed(0)
    config = VanillaTransformerConfig(**SIZES[size])
    return VanillaTransformerForConditionalGeneration(config).eval()


def random_batch(batch_size: int, vocab_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random sources of 8 to 20 tokens, and their mask."""
    generator = torch.Generator().manual_seed(batch_size)
    lengths = torch.randint(8, 21, (batch_size, 1), generator=generator)
    mask = (torch.arange(int(lengths.max())) < lengths).long()
    ids = torch.randint(4, vocab_size, mask.shape, generator=generator)
    return ids.masked_fill(mask == 0, 0), mask


def ours(model: VanillaTransformerForConditionalGeneration, **options: object) -> Contender:
    """Return a function that translates a random batch with this package's `beam_search`."""

    def run(batch_size: int) -> list[list[int]]:
        found = beam_search(
            model,
            *random_batch(batch_size, model.config.vocab_size),
            num_beams=BEAM,
            length_penalty=ALPHA,
            max_new_tokens=NEW_TOKENS,
            suppress_tokens=SPECIAL,
            **options,
        )
        return found.sequences[:, 0].tolist()

    return run


def host(model: torch.nn.Module) -> Contender:
    """Return a function that uses `generate`, without min_new_tokens, which would slow it down."""

    def run(batch_size: int) -> list[list[int]]:
        ids, mask = random_batch(batch_size, model.config.vocab_size)
        ids = model.generate(
            ids,
            attention_mask=mask,
            num_beams=BEAM,
            length_penalty=ALPHA,
            max_new_tokens=NEW_TOKENS,
            suppress_tokens=SPECIAL,
        )
        return ids[:, 1:].tolist()

    return run


def engine(
    model: VanillaTransformerForConditionalGeneration, quantization: str, threads: int, folder: Path
) -> Contender:
    """Return a function that uses CTranslate2 with the model's weights."""
    import ctranslate2

    from vanilla_transformer.convert.exporters.ctranslate2 import VanillaTransformerLoader

    tokens = ["<pad>", "<s>", "</s>", "<unk>"]
    tokens += [f"t{number}" for number in range(4, model.config.vocab_size)]
    spec = VanillaTransformerLoader().get_model_spec(model)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.decoder_start_token, spec.config.eos_token = "<s>", "</s>"
    spec.config.bos_token, spec.config.unk_token = "<s>", "<unk>"
    spec.config.layer_norm_epsilon = model.config.layer_norm_eps
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))
    translator = ctranslate2.Translator(
        str(folder), compute_type=quantization, inter_threads=1, intra_threads=threads
    )
    never = [[tokens[number]] for number in SPECIAL]

    def run(batch_size: int) -> list[list[int]]:
        batch = random_batch(batch_size, len(tokens))
        rows = [ids[mask.bool()].tolist() for ids, mask in zip(*batch, strict=True)]
        found = translator.translate_batch(
            [[tokens[number] for number in row] for row in rows],
            beam_size=BEAM,
            length_penalty=ALPHA,
            max_decoding_length=NEW_TOKENS,
            suppress_sequences=never,
        )
        return [[int(token[1:]) for token in result.hypotheses[0]] for result in found]

    return run


def contender(name: str, size: str) -> Contender:
    """Return the contender with this name in the table; all have the same weights."""
    if name.startswith("CTranslate2"):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # PyTorch's threads would slow CTranslate2's down even if idle
        with tempfile.TemporaryDirectory() as folder:
            return engine(random_model(size), name.split()[-1], threads, Path(folder))
    model = random_model(size)
    if name.endswith("bf16"):
        model = model.bfloat16()
    if name.startswith(MARIAN):
        if name.endswith("medium"):
            torch.set_float32_matmul_precision("medium")
        return host(to_stock(model))
    return ours(model, prepack="one copy" not in name)


def contenders() -> list[str]:
    """Return the names of the contenders that this machine can run."""
    names = ["ours", "ours, one copy of the weights", MARIAN, f"{MARIAN}, precision medium"]
    if importlib.util.find_spec("ctranslate2"):
        names += ["CTranslate2 float32", "CTranslate2 int8"]
    return names + ["ours, bf16", f"{MARIAN}, bf16"] * has_bf16()


def seconds_of(answers: dict[str, list[Answer]]) -> dict[str, list[float]]:
    """Return the seconds of each contender in each round."""
    return {name: [answer.seconds for answer in turns] for name, turns in answers.items()}


def ratio(seconds: dict[str, list[float]], name: str, baseline: str) -> float:
    """Return a contender's speed relative to the baseline's: the median of each round's ratio."""
    pairs = zip(seconds[baseline], seconds[name], strict=True)
    return statistics.median(base / own for base, own in pairs)


def fixed_length(size: str, batch_sizes: Sequence[int], rounds: int) -> dict[str, object]:
    """Measure sentences/s at 20 tokens each, and the share of translations equal to Marian's."""
    names = contenders()
    answers = {}
    with processes({name: (contender, (name, size)) for name in names}) as running:
        for batch_size in batch_sizes:
            take_turns(running, batch_size, rounds=1)  # to warm up
            answers[batch_size] = take_turns(running, batch_size, rounds)
    measured = {batch_size: seconds_of(turns) for batch_size, turns in answers.items()}
    rows = []
    for name in names:
        row: list[object] = [name]
        for batch_size, seconds in measured.items():
            speed = batch_size / statistics.median(seconds[name])
            row += [round(speed, 2), round(ratio(seconds, name, MARIAN), 2)]
        same = [
            mine == theirs
            for turns in answers.values()
            for mine, theirs in zip(turns[name][-1].output, turns[MARIAN][-1].output, strict=True)
        ]
        rows.append([*row, f"{100 * statistics.mean(same):.0f} %"])
    columns = ["Contender"]
    for batch_size in batch_sizes:
        columns += [f"sentences/s, batch {batch_size}", f"ratio, batch {batch_size}"]
    return {
        "title": f"{size} model, random weights, beam {BEAM}, {NEW_TOKENS} tokens out",
        "columns": [*columns, "same tokens as Marian"],
        "rows": rows,
        "seconds": measured,
    }


def marian_loop(model: torch.nn.Module, tokenizer: object, sentences: Sequence[str]) -> list[str]:
    """Translate as a user of generate would: in batches of 32, in the order of the file."""
    texts: list[str] = []
    for start in range(0, len(sentences), 32):
        batch = list(sentences[start : start + 32])
        inputs = tokenizer(batch, return_tensors="pt", padding=True, return_token_type_ids=False)
        longest = inputs["input_ids"].size(1)
        ids = model.generate(**inputs, max_new_tokens=longest + 50)  # its config sets 4 beams
        texts += tokenizer.batch_decode(ids, skip_special_tokens=True)
    return texts


def text_contender(name: str, run_directory: Path) -> Callable[[Sequence[str]], list[str]]:
    """Return one of the contenders that translate sentences with a trained model."""
    model = AutoModelForSeq2SeqLM.from_pretrained(run_directory).eval()
    tokenizer = AutoTokenizer.from_pretrained(run_directory)
    if name == MARIAN:
        return functools.partial(marian_loop, to_stock(model), tokenizer)
    return lambda sentences: list(translate(model, tokenizer, sentences))


def real_workload(
    run_directory: Path, pairs: Sequence[tuple[str, str]], language: str, rounds: int
) -> dict[str, object]:
    """Measure sentences per second from text to text, and BLEU."""
    from vanilla_transformer.evaluation import corpus_scores

    sources, references = (list(column) for column in zip(*pairs, strict=True))
    names = ["ours: translate", MARIAN]
    with processes({name: (text_contender, (name, run_directory)) for name in names}) as running:
        take_turns(running, sources[:32], rounds=1)  # to warm up
        answers = take_turns(running, sources, rounds)
    seconds = seconds_of(answers)
    rows = []
    for name in names:
        scores = corpus_scores(answers[name][-1].output, references, target_language=language)
        speed = len(sources) / statistics.median(seconds[name])
        rows.append(
            [
                name,
                round(speed, 1),
                round(ratio(seconds, name, MARIAN), 2),
                round(scores["bleu"], 2),
            ]
        )
    return {
        "title": f"{len(sources)} sentences of a test set, text to text, beam {BEAM}",
        "columns": ["Contender", "sentences/s", "ratio", "BLEU"],
        "rows": rows,
        "signature": scores["bleu_signature"],
        "seconds": seconds,
    }


def main() -> None:
    """Measure decoding with random weights and, if given, a trained model; write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--batch-sizes", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--run-directory", type=Path, help="trained model of the second workload")
    parser.add_argument("--test-file", help="test pairs of that model")
    parser.add_argument("--pair", default="en-de", help="languages of that model")
    parser.add_argument("--sentences", type=int, help="use only this many of the test pairs")
    output, title = file_and_title("decoding", "Decoding")
    parser.add_argument("--output", type=Path, default=output)
    options = parser.parse_args()
    tables = []
    if options.batch_sizes:
        tables.append(fixed_length(options.size, options.batch_sizes, options.rounds))
    if options.run_directory:
        from vanilla_transformer.data.pair_files import read_pairs

        source, target = options.pair.split("-")
        pairs = list(read_pairs(options.test_file, source_language=source, target_language=target))[
            : options.sentences
        ]
        tables.append(real_workload(options.run_directory, pairs, target, options.rounds))
    settings = {"rounds": options.rounds, "beam": BEAM, "length_penalty": ALPHA}
    write_results(options.output, title, tables=tables, settings=settings)


if __name__ == "__main__":
    main()
