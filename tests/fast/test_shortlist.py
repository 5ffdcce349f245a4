"""Search with a shortlist: as in a model without other pieces, for each sentence on its own."""

import copy
import random
import shutil
from collections import Counter

import datasets
import pytest
import torch
from damages import DAMAGES
from slow_path import without_fast_path
from tiny_models import tiny_config
from wandering_model import END, PAD, START, UNKNOWN, make_model, make_sources

from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.cli import main
from vanilla_transformer.fast import shortlist as fast
from vanilla_transformer.fast.shortlist import (
    SHORTLISTS,
    Shortlist,
    learn_shortlists,
    read_shortlist,
    use_shortlist,
    write_shortlist,
)
from vanilla_transformer.publish.publishing import stage_model
from vanilla_transformer.storage.saved_model import SHORTLIST
from vanilla_transformer.translation.many_texts import pad_ids

SPECIAL = {PAD, START, END, UNKNOWN}


def some_pieces():
    """Return a shortlist for a vocabulary of 32, in which sources of one token have the fewest."""
    likely = torch.tensor([[(5 * n) % 32, (7 * n + 3) % 32] for n in range(32)])
    return Shortlist(torch.tensor([END, 9, 20, 25]), likely)


def bits(found):
    return [found[name] for name in ("sequences", "scores", "token_scores")]


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("prepack", [True, False])
def test_search_equals_that_of_a_model_without_other_pieces(beams, prepack):
    model, shortlist = make_model(lm_head_bias=True), some_pieces()
    ids, mask = make_sources([9, 3, 5, 7, 1])
    options = {"num_beams": beams, "num_return_sequences": beams, "max_new_tokens": 12}
    SHORTLISTS[model] = shortlist
    found = beam_search(model, ids, mask, prepack=prepack, **options)
    for number, length in enumerate(mask.sum(1)):
        source = ids[number : number + 1, :length]
        own = {*shortlist.usual.tolist(), *shortlist.likely[source].flatten().tolist()} | SPECIAL
        others = [piece for piece in range(32) if piece not in own]
        assert others
        without = copy.deepcopy(model)
        without.lm_head.bias.data[others] = -torch.inf
        with without_fast_path():
            expected = beam_search(without, source, **options)
        tokens = found.sequences[number, :, : expected.sequences.size(-1)]
        assert torch.equal(tokens, expected.sequences[0])
        torch.testing.assert_close(found.scores[number], expected.scores[0])
        torch.testing.assert_close(found.token_scores[number], expected.token_scores[0])


def test_a_shortlist_of_all_pieces_changes_no_bit(everyday):
    model, size = copy.deepcopy(everyday.model), everyday.model.config.vocab_size
    batch = pad_ids(everyday.tokenizer(everyday.sentences[:40])["input_ids"], PAD)
    expected = beam_search(model, *batch, num_return_sequences=4)
    SHORTLISTS[model] = Shortlist(torch.arange(size), torch.randint(size, (size, 4)))
    found = beam_search(model, *batch, num_return_sequences=4)
    assert all(map(torch.equal, bits(found), bits(expected)))


def test_what_the_reference_computes_does_not_depend_on_a_shortlist():
    model, (ids, mask) = make_model(), make_sources([5, 3])

    def results():
        yield model(ids, mask, decoder_input_ids=ids).logits
        yield model.generate(ids, attention_mask=mask, max_new_tokens=9)
        yield from bits(beam_search(model, ids, mask, prefix=[[30, 31], [29]]))
        with without_fast_path():
            yield from bits(beam_search(model, ids, mask))

    expected = [*results()]
    SHORTLISTS[model] = Shortlist(torch.tensor([END]), torch.full((32, 1), 9))
    assert all(map(torch.equal, results(), expected))
    assert {*beam_search(model, ids, mask).sequences.unique().tolist()} <= {PAD, END, 9}


def test_suppressed_pieces_are_not_produced():
    model, batch = make_model(), make_sources([5, 3])
    SHORTLISTS[model] = some_pieces()
    used = {*beam_search(model, *batch).sequences.unique().tolist()}
    assert {9, 20} & used
    found = beam_search(model, *batch, suppress_tokens=[9, 20]).sequences
    assert not {9, 20} & {*found.unique().tolist()}


def test_learned_pieces_are_those_most_often_in_the_same_pairs(monkeypatch):
    monkeypatch.setattr(fast, "USUAL", (3, 6, 30))
    monkeypatch.setattr(fast, "LIKELY", 4)
    chance = random.Random(0)
    sources = [[*chance.choices(range(4, 30), k=chance.randint(1, 9)), END] for _ in range(300)]
    targets = [[n * n % 37 + 4 for n in row if chance.random() < 0.9] for row in sources]
    pairs = datasets.Dataset.from_dict({"input_ids": sources, "labels": targets})
    config = tiny_config(35, decoder_vocab_size=50, share_encoder_decoder_embeddings=False)
    found = learn_shortlists(pairs, config)
    assert [len(shortlist.usual) for shortlist in found] == [3, 6]
    frequency = Counter(n for row in targets for n in row)
    for usual, likely in found:
        often = [frequency[n] for n in usual.tolist()]
        assert often == sorted(frequency.values(), reverse=True)[: len(often)]
        assert likely.shape == (35, 4)
        for piece, row in enumerate(likely.tolist()):
            beside = Counter()
            for source, target in zip(sources, targets, strict=True):
                for n in {*target} - {*usual.tolist()}:
                    beside[n] += source.count(piece) * target.count(n)
            best = [count for _, count in (+beside).most_common(4)]
            assert [beside[n] for n in row if n] == best
    monkeypatch.setattr(fast, "MOST_PIECES", 49)
    assert learn_shortlists(pairs, config) == []


@pytest.fixture
def folder(everyday, tmp_path):
    """Return a folder with everyday-en-de, and a shortlist of pieces drawn by chance."""
    folder = tmp_path / "model"
    shutil.copytree(everyday.folder, folder)
    torch.manual_seed(0)
    shortlist = Shortlist(torch.arange(300), torch.randint(4, 4000, (4000, 3)))
    write_shortlist(shortlist, folder, 2.5)
    return folder


def translated(folder, capsys, *options):
    """Return the output of `translate` for a few sentences, and its warnings about a shortlist."""
    text = folder / "text.txt"
    text.write_text("Good morning.\nWhere can I buy a ticket?\nI have a dog.\n", encoding="utf-8")
    assert main(["translate", str(folder), str(text), *options]) == 0
    printed = capsys.readouterr()
    return printed.out, [line for line in printed.err.splitlines() if SHORTLIST in line]


def test_translate_uses_the_shortlist_of_a_folder(everyday, folder, capsys):
    whole = translated(folder, capsys, "--no-shortlist")
    assert whole[0] == "Guten Morgen!\nWo kann ich eine Fahrkarte kaufen?\nIch habe einen Hund.\n"
    assert translated(folder, capsys)[0] != whole[0]
    (folder / SHORTLIST).unlink()
    assert translated(folder, capsys) == whole


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shortlist_is_left_out_and_named(damage, everyday, folder, caplog, monkeypatch):
    monkeypatch.chdir(folder)
    path, chance = folder / SHORTLIST, random.Random(0)
    whole = path.read_bytes()
    for _ in range(1 if damage == "a folder" else 10):
        path.write_bytes(whole)
        DAMAGES[damage](chance, path)
        caplog.clear()
        use_shortlist(everyday.model, folder)
        assert everyday.model not in SHORTLISTS
        assert len(caplog.records) == path.is_file()


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_a_shortlist_of_another_model_is_left_out(name, everyday, folder, caplog):
    path = folder / name
    path.write_text(path.read_text(encoding="utf-8").replace("4000", "4001") + " ")
    use_shortlist(everyday.model, folder)
    assert everyday.model not in SHORTLISTS
    (record,) = caplog.records
    assert "is damaged or another model's; delete it." in record.message


def test_publishing_copies_the_shortlist(folder, tmp_path):
    stage_model(folder, tmp_path / "staged", with_code=False)
    shortlist, doubtful_below = read_shortlist(tmp_path / "staged")
    assert torch.equal(shortlist.usual, torch.arange(300))
    assert (len(shortlist.likely), doubtful_below) == (4000, 2.5)
