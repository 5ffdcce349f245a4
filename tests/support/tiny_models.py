"""Configs of tiny models, and a tokenizer that needs no training."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from vanilla_transformer import VanillaTransformerConfig

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]


def tiny_config(vocab_size, *, attention=None, **fields):
    """Return the config of a model with one layer of 2 heads and 16 numbers on each side."""
    sizes = {
        **{"d_model": 16, "encoder_layers": 1, "decoder_layers": 1},
        **{"encoder_attention_heads": 2, "decoder_attention_heads": 2},
        **{"encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
    }
    sizes |= {"attn_implementation": attention}
    return VanillaTransformerConfig(vocab_size=vocab_size, **{**sizes, **fields})


def byte_tokenizer():
    """Return a tokenizer whose tokens are bytes, with the special ids of the contract."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(SPECIAL + alphabet)}
    tokens = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokens.decoder = decoders.ByteLevel()
    return with_end(tokens, padding_side="right", split_special_tokens=True)


def with_end(tokens, **options):
    """Return the tokenizer of transformers, which ends each text with </s>."""
    tokens.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    roles = ("pad_token", "bos_token", "eos_token", "unk_token")
    names = dict(zip(roles, SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokens, **names, **options)


def word_level(words):
    """Return a tokenizer of whole words, with the special ids of the contract."""
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *words])}
    tokens = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return with_end(tokens)
