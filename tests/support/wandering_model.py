"""A random model with translations of different lengths, and sources, for tests of search."""

import torch
from tiny_models import tiny_config
from torch import nn

from vanilla_transformer import VanillaTransformerForConditionalGeneration

PAD, START, END, UNKNOWN = range(4)


def make_model(vocab_size=32, *, seed=0, sharpness=0.6, end=1.2, **options):
    """Return a random float64 model whose outputs vary in tokens and length."""
    torch.manual_seed(seed)
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "dropout": 0.5}
    config = tiny_config(vocab_size, **{**sizes, **options})
    model = VanillaTransformerForConditionalGeneration(config).double().eval()
    width = config.d_model
    with torch.no_grad():
        # Tied embeddings make a random model repeat its last token; separate ones do not.
        for module, scale in ((model.model.decoder.embed_tokens, 1.0), (model.lm_head, sharpness)):
            table = scale * torch.randn(config.target_vocab_size, width, dtype=torch.float64)
            module.weight = nn.Parameter(table)
        model.lm_head.weight[END] *= end
    return model


def make_sources(lengths, vocab_size=32, seed=1):
    """Return random sources of these lengths, (B, S), and their mask."""
    torch.manual_seed(seed)
    lengths = torch.tensor(lengths)
    ids = torch.randint(4, vocab_size, (len(lengths), int(lengths.max())))
    mask = (torch.arange(ids.size(1)) < lengths[:, None]).long()
    return ids.masked_fill(mask == 0, PAD), mask
