"""One test per claim of "Attention Is All You Need", in the paper's order.

Expected values come from plain loops and formulas in float64. Choices that the paper leaves open
(initialization, settings of the authors' code) are tested at the end.
"""

import itertools
import math

import pytest
import reference
import tiny_models
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from written_out import perturb

from vanilla_transformer import (
    PRESETS,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.loss import smoothed_cross_entropy
from vanilla_transformer.modeling_vanilla_transformer import (
    Encoder,
    MultiHeadAttention,
    PositionalEncoding,
    eager_attention_forward,
    sinusoids,
)
from vanilla_transformer.train import VanillaTransformerTrainer, VanillaTransformerTrainingArguments
from vanilla_transformer.train.optimization import noam_lr, noam_schedule


def tiny_config(*, vocab_size=19, **overrides):
    sizes = {
        **{"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24},
        **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "attention": "eager"},
    }
    return tiny_models.tiny_config(vocab_size, **{**sizes, **overrides})


def tiny_model(model_class=VanillaTransformerForConditionalGeneration, **overrides):
    """Return a float64 model with large random weights, biases and norms, so no term is hidden."""
    torch.manual_seed(0)
    return perturb(model_class(tiny_config(**overrides)).double(), factor=1.5)


def tiny_attention(*, num_heads=4, **overrides):
    kinds = {key: overrides.pop(key) for key in ("is_causal", "is_cross") if key in overrides}
    torch.manual_seed(0)
    attention = MultiHeadAttention(tiny_config(**overrides), num_heads, **kinds).double()
    for parameter in attention.parameters():
        nn.init.normal_(parameter, std=0.5)
    return attention


def layer_norm(x, norm):
    """Compute LayerNorm by its formula: biased variance, epsilon inside the root."""
    return reference.layer_norm(dict(norm.named_parameters("norm")), "norm", x, norm.eps)


def feed_forward(x, ffn):
    """Compute Eq. 2 by its formula."""
    inner = x @ ffn.fc1.weight.T + ffn.fc1.bias
    return inner.clamp(min=0) @ ffn.fc2.weight.T + ffn.fc2.bias


def attention_by_loops(query, key, value):
    """Compute Eq. 1 for one head, score by score: query (T, d_k), key (L, d_k), value (L, d_v)."""
    outputs = []
    for q in query:
        exponentials = [
            math.exp(sum(a * b for a, b in zip(q.tolist(), k, strict=True)) / math.sqrt(len(q)))
            for k in key.tolist()
        ]
        weighted = sum(e * v for e, v in zip(exponentials, value, strict=True))
        outputs.append(weighted / sum(exponentials))
    return torch.stack(outputs)


def heads_by_slices(attention, x, memory, **options):
    """Section 3.2.2: each head attends with its own slice of W^Q, W^K and W^V; W^O joins them."""
    weights, heads = dict(attention.named_parameters("attention")), attention.num_heads
    return reference.attention(weights, "attention", x, heads, memory=memory, **options)


def assert_close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# ------------------------------------------------------ Section 3.1: encoder and decoder stacks


def by_sublayers(layer, x, memory=None, *, norm_first):
    """Section 3.1: LayerNorm(x + Sublayer(x)); if the norms come first, x + Sublayer(norm(x))."""

    def sublayer(name, x, function):
        norm = getattr(layer, f"{name}_norm")
        if norm_first:
            return x + function(layer_norm(x, norm))
        return layer_norm(x + function(x), norm)

    x = sublayer("self_attn", x, lambda x: layer.self_attn(x)[0])
    if memory is not None:
        x = sublayer("cross_attn", x, lambda x: layer.cross_attn(x, None, memory)[0])
    return sublayer("feed_forward", x, lambda x: feed_forward(x, layer.feed_forward))


@pytest.mark.parametrize("norm_first", [False, True])
def test_layers_have_two_sublayers_and_the_decoders_cross_attention_between_them(norm_first):
    """Section 3.1: the decoder inserts a third sub-layer, attention over the encoder's output."""
    model = tiny_model(norm_first=norm_first).model
    x, memory = torch.randn(2, 5, 16).double(), torch.randn(2, 7, 16).double()
    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    assert_close(encoder(x, None), by_sublayers(encoder, x, norm_first=norm_first))
    expected = by_sublayers(decoder, x, memory, norm_first=norm_first)
    assert_close(decoder(x, None, memory, None), expected)


@pytest.mark.parametrize("norm_first", [False, True])
def test_norm_first_moves_the_norms_and_adds_one_after_each_stack(norm_first):
    """Deviation from Section 3.1, off by default: x + Sublayer(LayerNorm(x))."""
    model = tiny_model(norm_first=norm_first).model
    ids = torch.arange(4, 9)[None]
    out = model(input_ids=ids, decoder_input_ids=ids, output_hidden_states=True)
    for stack, states, last in (
        (model.encoder, out.encoder_hidden_states, out.encoder_last_hidden_state),
        (model.decoder, out.decoder_hidden_states, out.last_hidden_state),
    ):
        assert isinstance(stack.norm, torch.nn.LayerNorm) == norm_first
        assert len(stack.layers) == 2
        final_norm = stack.norm if norm_first else stack.layers[-1].feed_forward_norm
        standardised = (last - final_norm.bias) / final_norm.weight
        assert_close(standardised.mean(-1), torch.zeros(1, 5).double(), 1e-9)
        assert_close(standardised.var(-1, unbiased=False), torch.ones(1, 5).double(), 1e-4)
        assert len(states) == 3


@pytest.mark.parametrize("norm_first", [False, True])
def test_residual_connections_carry_the_gradient_past_zero_sublayers(norm_first):
    """Section 3.1: with zero sub-layers a layer is its two norms, or the identity if norm_first."""
    layer = tiny_model(norm_first=norm_first).model.encoder.layers[0]
    for linear in (layer.self_attn.out_proj, layer.feed_forward.fc2):
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
    x = torch.randn(1, 3, 16, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn_like(x)
    y = layer(x, None)
    norms_alone = layer_norm(layer_norm(x, layer.self_attn_norm), layer.feed_forward_norm)
    expected = x if norm_first else norms_alone
    assert_close(y, expected)
    (actual,) = torch.autograd.grad(y, x, gradient)
    assert_close(actual, torch.autograd.grad(expected, x, gradient)[0])
    assert actual.abs().sum() > 0


def influence(output, inputs):
    """Return (T, S): whether output position t depends on input position s, by gradient."""
    direction = torch.randn(output.shape[-1], dtype=output.dtype)
    rows = [
        torch.autograd.grad((output[0, t] * direction).sum(), inputs, retain_graph=True)[0][0]
        for t in range(output.size(1))
    ]
    return torch.stack([row.abs().amax(-1) for row in rows]) != 0


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_decoder_positions_see_themselves_and_earlier_ones_only(attention):
    """Section 3.1: "predictions for position i can depend only on known outputs before i"."""
    model = tiny_model(attention=attention).model
    source = torch.randn(1, 4, 16, dtype=torch.float64, requires_grad=True)
    target = torch.randn(1, 6, 16, dtype=torch.float64, requires_grad=True)
    out = model(inputs_embeds=source, decoder_inputs_embeds=target)
    assert torch.equal(influence(out.last_hidden_state, target), torch.ones(6, 6).tril().bool())
    # Section 3.2.3: every decoder position attends over all positions of the source, and each
    # position in the encoder to all of the layer below.
    assert influence(out.last_hidden_state, source).all()
    assert influence(out.encoder_last_hidden_state, source).all()


def test_decoder_input_is_the_target_offset_by_one_position():
    """Section 3.1: "the output embeddings are offset by one position"."""
    labels = torch.tensor([[7, 8, 9, 2], [5, 2, -100, -100]])
    expected = torch.tensor([[1, 7, 8, 9], [1, 5, 2, 0]])
    model = tiny_model()
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(labels), expected)
    source = torch.arange(4, 8)[None].expand(2, -1)
    by_labels = model(input_ids=source, labels=labels)
    by_inputs = model(input_ids=source, decoder_input_ids=expected)
    assert torch.equal(by_labels.logits, by_inputs.logits)
    log_probs = by_inputs.logits.log_softmax(-1)
    known = [(b, t) for b in range(2) for t in range(4) if labels[b, t] != -100]
    loss = -sum(log_probs[b, t, labels[b, t]] for b, t in known) / len(known)
    assert_close(by_labels.loss, loss)


# -------------------------------------------------------------------------- Section 3.2: attention


def test_eq1_scaled_dot_product_attention():
    """Section 3.2.1, Eq. 1: softmax(Q K^T / sqrt(d_k)) V, by plain loops."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 4, 5).double(), torch.randn(2, 3, 6, 5).double()
    value = torch.randn(2, 3, 6, 7).double()
    module = tiny_attention(d_k=5, d_v=7)
    out, weights = eager_attention_forward(module, query, key, value, None, module.scaling)
    for b, i in itertools.product(range(2), range(3)):
        assert_close(out[b, :, i], attention_by_loops(query[b, i], key[b, i], value[b, i]))
    assert_close(weights @ value, out.transpose(1, 2))
    assert_close(weights.sum(-1), torch.ones(2, 3, 4).double())


def test_scaling_keeps_the_variance_of_dot_products_at_one():
    """Section 3.2.1, footnote 4: q . k has variance d_k; without 1 / sqrt(d_k) gradients vanish."""
    torch.manual_seed(0)
    gradients = {}
    for d_k in (4, 64, 256):
        query, key = torch.randn(2, 1, 1, 400, d_k)
        assert (query @ key.mT).var().item() == pytest.approx(d_k, rel=0.1)
        scaling = tiny_attention(d_k=d_k).scaling
        _, weights = eager_attention_forward(nn.Module(), query, key, key, None, scaling)
        # log softmax equals the scores up to a constant per row
        assert weights.log().var(-1).mean().item() == pytest.approx(1, rel=0.1)
        for scale in (1.0, scaling):
            probabilities = (query @ key.mT * scale).softmax(-1)
            gradients[d_k, scale] = (probabilities * (1 - probabilities)).sum(-1).mean().item()
    assert gradients[256, 1.0] < 0.5 * gradients[256, 256**-0.5]
    assert gradients[256, 256**-0.5] == pytest.approx(gradients[4, 4**-0.5], rel=0.05)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("widths", [{}, {"d_k": 3}, {"d_k": 5, "d_v": 2}], ids=str)
def test_multi_head_attention_is_h_heads_on_slices(attention, widths):
    """Section 3.2.2: Concat(head_1, ..., head_h) W^O, with d_k = d_v = d_model / h by default."""
    module = tiny_attention(attention=attention, is_cross=True, **widths)
    assert (module.d_k, module.d_v) == (widths.get("d_k", 4), widths.get("d_v", 4))
    x, memory = torch.randn(2, 3, 16).double(), torch.randn(2, 5, 16).double()
    out = module(x, None, memory)[0]
    for b in range(2):
        assert_close(out[b], heads_by_slices(module, x[b], memory[b]))


def test_order_of_heads_does_not_matter():
    """Section 3.2.2: permuting the heads in every projection changes nothing."""
    module = tiny_attention(d_k=3, d_v=5)
    x = torch.randn(2, 4, 16, dtype=torch.float64)
    before = module(x)[0]
    order = [2, 0, 3, 1]
    with torch.no_grad():
        for linear, width in ((module.q_proj, 3), (module.k_proj, 3), (module.v_proj, 5)):
            linear.weight.copy_(linear.weight.view(4, width, 16)[order].reshape(-1, 16))
            linear.bias.copy_(linear.bias.view(4, width)[order].flatten())
        columns = module.out_proj.weight.view(16, 4, 5)[:, order]
        module.out_proj.weight.copy_(columns.reshape(16, -1))
    assert_close(module(x)[0], before)


def test_each_attention_has_the_right_queries_keys_and_mask():
    """Section 3.2.3: sources of queries, keys and values, and the causal mask."""
    model = tiny_model().model
    x, memory = torch.randn(1, 4, 16).double(), torch.randn(1, 6, 16).double()
    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    assert not encoder.self_attn.is_causal
    assert decoder.self_attn.is_causal
    assert not decoder.cross_attn.is_causal
    assert_close(encoder.self_attn(x)[0][0], heads_by_slices(encoder.self_attn, x[0], x[0]))
    crossed = decoder.cross_attn(x, None, memory)[0][0]
    assert_close(crossed, heads_by_slices(decoder.cross_attn, x[0], memory[0]))
    # The decoder's own mask, through the whole stack: its first layer attends to the past.
    seen = {}
    decoder.self_attn.register_forward_hook(lambda _, args, out: seen.update(x=args[0], y=out[0]))
    model(inputs_embeds=memory, decoder_inputs_embeds=x)
    expected = heads_by_slices(decoder.self_attn, seen["x"][0], seen["x"][0], causal=True)
    assert_close(seen["y"][0], expected)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_padding_changes_nothing_and_gets_no_gradient(attention):
    """Section 3.2.3: illegal connections are set to minus infinity; padding is one of them."""
    model = tiny_model(attention=attention)
    source, target = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, 8, 9]])
    alone = model(input_ids=source, decoder_input_ids=target)
    padded_source = torch.tensor([[5, 6, 7, 2, 11, 0]])  # the ids in the padding do not matter
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    embeds = model.get_input_embeddings()(padded_source).detach().requires_grad_()
    padded = model(
        inputs_embeds=embeds, attention_mask=mask, decoder_input_ids=torch.tensor([[1, 8, 9, 0]])
    )
    assert_close(padded.logits[:, :3], alone.logits)
    assert_close(padded.encoder_last_hidden_state[:, :4], alone.encoder_last_hidden_state)
    padded.logits[:, :3].square().sum().backward()
    positions_with_gradient = embeds.grad[0].abs().sum(-1) > 0
    assert positions_with_gradient.tolist() == [True] * 4 + [False] * 2


# ----------------------------------------------- Section 3.3: position-wise feed-forward networks


def test_eq2_feed_forward_and_kernel_1_convolutions():
    """Section 3.3, Eq. 2: max(0, x W_1 + b_1) W_2 + b_2, "two convolutions with kernel size 1"."""
    ffn = tiny_model().model.encoder.layers[0].feed_forward
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    assert_close(ffn(x), feed_forward(x, ffn))
    inner = nn.functional.conv1d(x.mT, ffn.fc1.weight[..., None], ffn.fc1.bias).relu()
    assert_close(ffn(x), nn.functional.conv1d(inner, ffn.fc2.weight[..., None], ffn.fc2.bias).mT)
    # "applied to each position separately and identically"
    assert_close(ffn(x)[:, [3, 1]], ffn(x[:, [3, 1]]))


# --------------------------------------------------------------- Section 3.4: embeddings, softmax


def test_both_embeddings_and_the_softmax_share_one_matrix():
    """Section 3.4: the shared matrix's gradient is the sum of the gradients of its three uses."""
    tied = tiny_model()
    uses = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    assert len({tied.get_submodule(use).weight.data_ptr() for use in uses}) == 1
    untied = tiny_model(tie_word_embeddings=False, share_encoder_decoder_embeddings=False)
    untied.load_state_dict(tied.state_dict(), strict=False)  # which holds them as shared, too
    assert len({untied.get_submodule(use).weight.data_ptr() for use in uses}) == 3
    batch = {"input_ids": torch.tensor([[4, 5, 6, 2]]), "labels": torch.tensor([[7, 5, 2]])}
    for model in (tied, untied):
        model(**batch).loss.backward()
    separate = [untied.get_submodule(use).weight.grad for use in uses]
    assert all(gradient.abs().sum() > 0 for gradient in separate)
    assert_close(tied.model.shared.weight.grad, sum(separate))


def test_embeddings_are_scaled_by_sqrt_d_model_and_logits_are_not():
    """Section 3.4 and 3.5: sqrt(d_model) E[id] + PE(pos) into both stacks; logits = E h."""
    model = tiny_model()
    table, ids = model.model.shared.weight, torch.tensor([[5, 9, 2]])
    out = model(input_ids=ids, decoder_input_ids=ids, output_hidden_states=True)
    expected = table[ids] * 4 + sinusoids(torch.arange(3), 16)  # sqrt(16)
    assert_close(out.encoder_hidden_states[0], expected)
    assert_close(out.decoder_hidden_states[0], expected)
    assert_close(out.logits, out.decoder_hidden_states[-1] @ table.T)
    assert model.lm_head.bias is None


# --------------------------------------------------------------- Section 3.5: positional encoding


def encode(config, length, *, past_length=0, dtype=torch.float64):
    x = torch.zeros(1, length, config.d_model, dtype=dtype)
    return PositionalEncoding(config)(x, None, past_length)


@pytest.mark.parametrize(
    ("style", "d_model"),
    [("sinusoidal", 16), ("tensor2tensor", 16), ("tensor2tensor", 15), ("tensor2tensor", 2)],
)
def test_sinusoids_by_formula(style, d_model):
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i / d)), PE(pos, 2i+1) = cos(the same).

    In the authors' code (common_attention.add_timing_signal_1d): sines, cosines, last wavelength
    1e4.
    """
    config = tiny_config(d_model=d_model, position_encoding=style, d_k=4, d_v=4)
    expected = reference.position_encoding({}, config, "encoder", 50)
    assert_close(encode(config, 50), expected)


def test_wavelengths_are_geometric_from_2_pi_to_10000_times_2_pi():
    """Section 3.5; the last wavelength approaches 10000 * 2 pi as d_model grows."""
    angles = encode(tiny_config(d_model=512), 2)[1, 0::2].asin()  # position 1: the frequencies
    wavelengths = (2 * math.pi / angles).tolist()
    ratio = 10000 ** (2 / 512)
    expected = [2 * math.pi * ratio**i for i in range(256)]
    assert wavelengths == pytest.approx(expected, rel=1e-9)
    assert wavelengths[-1] * ratio == pytest.approx(10000 * 2 * math.pi, rel=1e-9)


def test_an_offset_is_a_linear_map_of_the_encoding():
    """Section 3.5: "PE(pos + k) can be represented as a linear function of PE(pos)"."""
    encodings = encode(tiny_config(), 60)
    for k in (1, 7):
        rotation = torch.zeros(16, 16, dtype=torch.float64)
        for i in range(0, 16, 2):
            angle = torch.tensor(k / 10000 ** (i / 16), dtype=torch.float64)
            sine, cosine = angle.sin(), angle.cos()
            rotation[i : i + 2, i : i + 2] = torch.tensor([[cosine, sine], [-sine, cosine]])
        assert_close(encodings[k:], encodings[:-k] @ rotation.T)


def test_sinusoids_have_no_maximum_length():
    """Section 3.5: "may allow the model to extrapolate": no table limit, no loss of precision."""
    config = tiny_config(max_position_embeddings=8)
    model = VanillaTransformerModel(config).eval()
    ids = torch.randint(4, 19, (1, 40))
    assert model(input_ids=ids, decoder_input_ids=ids).last_hidden_state.isfinite().all()
    far = encode(config, 2, past_length=100_000, dtype=torch.float32)
    there = tiny_config(position_offset=100_000)
    expected = reference.position_encoding({}, there, "encoder", 2)
    assert_close(far, expected.float(), 1e-6)
    rounded = encode(config, 2, past_length=100_000, dtype=torch.bfloat16)
    assert torch.equal(rounded, expected.bfloat16())
    with torch.device("meta"):
        assert not dict(PositionalEncoding(config).named_buffers())


def test_encoder_without_positions_is_permutation_equivariant():
    """Section 3.5: without positions the model could not make use of the order."""
    model = tiny_model(position_encoding="learned").model.encoder
    ids, order = torch.tensor([[5, 9, 7, 12, 2]]), torch.tensor([3, 0, 4, 2, 1])

    def equivariant():
        straight, permuted = (model(input_ids=x).last_hidden_state for x in (ids, ids[:, order]))
        return torch.allclose(straight[:, order], permuted, rtol=0, atol=1e-10)

    assert not equivariant()
    nn.init.zeros_(model.embed_positions.weight)
    assert equivariant()


def test_learned_positions_are_rows_of_a_table():
    """Section 3.5 and Table 3 (E): learned positional embeddings instead of sinusoids."""
    model = tiny_model(position_encoding="learned", max_position_embeddings=9).model
    ids = torch.tensor([[5, 9, 2]])
    out = model(input_ids=ids, decoder_input_ids=ids, output_hidden_states=True)
    for stack, states in (
        (model.encoder, out.encoder_hidden_states),
        (model.decoder, out.decoder_hidden_states),
    ):
        table = stack.embed_positions.weight
        assert table.shape == (9, 16)
        assert_close(states[0], model.shared.weight[ids] * 4 + table[:3])


# -------------------------------------------------------------------- Section 4: why self-attention


def attention_flops(length, *, num_heads, d_model):
    """Count the operations (FLOPs) of one self-attention sub-layer's matrix products."""
    module = tiny_attention(num_heads=num_heads, d_model=d_model)
    with FlopCounterMode(display=False) as counter:
        module(torch.randn(1, length, d_model, dtype=torch.float64))
    return counter.get_total_flops()


class OperationCounter(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_complexity_of_self_attention():
    """Table 1: O(n^2 d) per layer plus the projections' O(n d^2); O(1) sequential operations.

    Section 3.2.2: with many heads, the cost is that of one with full dimensionality.
    """
    for length, width, heads in itertools.product((4, 8, 16), (8, 16), (1, 2, 4, 8)):
        expected = 8 * length * width**2 + 4 * length**2 * width
        assert attention_flops(length, num_heads=heads, d_model=width) == expected
    counts = []
    for length in (2, 50):
        with OperationCounter() as counter:
            tiny_attention(d_k=4)(torch.randn(1, length, 16, dtype=torch.float64))
        counts.append(counter.count)
    assert counts[0] == counts[1]


def test_path_between_any_two_positions_has_length_one():
    """Table 1: after one layer every position depends on every other, at any distance."""
    encoder = tiny_model(Encoder, encoder_layers=1)
    source = torch.randn(1, 40, 16, dtype=torch.float64, requires_grad=True)
    assert influence(encoder(inputs_embeds=source).last_hidden_state, source).all()


# ------------------------------------------------------------------------- Section 5.3: optimizer


def test_adam_with_the_papers_constants():
    """Section 5.3: beta_1 = 0.9, beta_2 = 0.98, epsilon = 1e-9; Kingma and Ba's update."""
    weight = nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    kind, constants = VanillaTransformerTrainer.get_optimizer_cls_and_kwargs(
        VanillaTransformerTrainingArguments(), nn.ParameterList([weight])
    )
    optimizer = kind([weight], **{**constants, "lr": 0.1})
    expected, m, v = weight.detach().clone(), 0, 0
    for step in range(1, 5):
        weight.grad = torch.tensor([1e-8, 0.5, -step], dtype=torch.float64)
        m, v = 0.9 * m + 0.1 * weight.grad, 0.98 * v + 0.02 * weight.grad**2
        rate = 0.1 / (1 - 0.9**step)
        expected -= rate * m / ((v / (1 - 0.98**step)).sqrt() + 1e-9)
        optimizer.step()
    assert_close(weight.detach(), expected, 1e-9)
    assert all(group["weight_decay"] == 0 for group in optimizer.param_groups)


def test_eq3_learning_rate():
    """Section 5.3, Eq. 3: d^-0.5 min(step^-0.5, step * warmup^-1.5) with 4000 warm-up steps."""
    for step in (1, 2, 100, 3999, 4000, 4001, 100_000):
        expected = min(1 / math.sqrt(step), step / 4000**1.5) / math.sqrt(512)
        assert noam_lr(step, d_model=512, warmup_steps=4000) == pytest.approx(expected, rel=1e-12)
    # "increasing linearly for the first warmup_steps, decreasing thereafter with the inverse root"
    optimizer = torch.optim.Adam([nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = noam_schedule(optimizer, d_model=64, warmup_steps=5)
    rates = []
    for _ in range(20):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates[:5] == pytest.approx([rates[0] * k for k in range(1, 6)])
    assert rates[19] == pytest.approx(rates[4] * math.sqrt(5 / 20))


# -------------------------------------------------------------------- Section 5.4: regularization


def run_in_training_mode(model):
    ids = torch.arange(4, 9)[None]
    return model.train()(input_ids=ids, decoder_input_ids=ids, output_hidden_states=True)


def test_dropout_applies_to_sublayer_outputs_and_embedding_sums_only(monkeypatch):
    """Section 5.4: P_drop at 1 + 2N places in the encoder and 1 + 3N in the decoder, no others."""
    active = []

    def record(x, p=0.5, training=True, inplace=False):
        if training and p > 0:
            active.append((p, tuple(x.shape)))
        return x

    monkeypatch.setattr(nn.functional, "dropout", record)
    run_in_training_mode(tiny_model(dropout=0.1))
    assert active == [(0.1, (1, 5, 16))] * ((1 + 2 * 2) + (1 + 3 * 2))
    active.clear()
    model = tiny_model(dropout=0.1)
    model(input_ids=torch.arange(4, 9)[None], decoder_input_ids=torch.arange(4, 9)[None])
    assert not active  # evaluation mode has none
    # Optional dropout that the paper's base model lacks: on attention weights and on the ReLU.
    run_in_training_mode(tiny_model(dropout=0.0, attention_dropout=0.2, activation_dropout=0.3))
    assert active.count((0.2, (1, 4, 5, 5))) == 2 + 2 * 2
    assert active.count((0.3, (1, 5, 24))) == 2 + 2
    assert len(active) == 10


def test_dropout_precedes_the_residual_sum_and_the_norm():
    """Section 5.4: "before it is added to the sub-layer input and normalized"."""
    model = tiny_model().model
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.dropout.p = 1.0  # drop every sub-layer's output: only the norms remain
    for stack in (model.encoder, model.decoder):
        stack.dropout.p = 0.0
    out = run_in_training_mode(model)
    for stack, states in (
        (model.encoder, out.encoder_hidden_states),
        (model.decoder, out.decoder_hidden_states),
    ):
        x = states[0]
        for layer in stack.layers:
            norms = [layer.self_attn_norm, layer.feed_forward_norm]
            if hasattr(layer, "cross_attn_norm"):
                norms.insert(1, layer.cross_attn_norm)
            for norm in norms:
                x = layer_norm(x, norm)
        assert_close(states[-1], x)
        assert states[0].abs().sum() > 0


def test_dropout_covers_the_sum_of_embedding_and_position():
    """Section 5.4: "to the sums of the embeddings and the positional encodings" in both stacks."""
    model = tiny_model().model
    for stack in (model.encoder, model.decoder):
        stack.dropout.p = 1.0
    out = run_in_training_mode(model)
    assert not out.encoder_hidden_states[0].any()
    assert not out.decoder_hidden_states[0].any()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention_weights_and_relu_are_not_dropped_by_default(attention):
    """Section 5.4 names no other place: with both rates at zero, training equals evaluation."""
    model = tiny_model(attention=attention)
    ids = torch.arange(4, 9)[None]
    expected = model(input_ids=ids, decoder_input_ids=ids).logits
    assert not torch.allclose(run_in_training_mode(model).logits, expected)
    for module in (model.model.encoder, model.model.decoder):
        for place in (module, *module.layers):
            place.dropout.p = 0.0
    assert torch.equal(run_in_training_mode(model).logits, expected)


def test_label_smoothing_in_training_and_plain_loss_in_evaluation():
    """Section 5.4: eps_ls = 0.1; perplexity is measured without it."""
    model = tiny_model(dropout=0.0)
    batch = {"input_ids": torch.tensor([[5, 6, 2]]), "labels": torch.tensor([[7, 8, 9, 2]])}
    plain, labels = model(**batch), batch["labels"][0]
    assert_close(plain.loss, reference.label_smoothed_loss(plain.logits[0], labels, 0.0))
    smoothed = model.train()(**batch)
    assert_close(smoothed.loss, reference.label_smoothed_loss(plain.logits[0], labels, 0.1))
    assert VanillaTransformerConfig().label_smoothing == 0.1


def test_authors_label_smoothing_equals_ours_at_a_larger_epsilon():
    """Their code puts eps / (V - 1) on other classes only: equal to ours at eps * V / (V - 1)."""
    torch.manual_seed(0)
    hidden, table = torch.randn(6, 8).double(), torch.randn(11, 8).double()
    labels = torch.arange(6)
    gold = nn.functional.one_hot(labels, 11).double()
    theirs = 0.9 * gold + 0.1 / 10 * (1 - gold)
    expected = -(theirs * (hidden @ table.T).log_softmax(-1)).sum(-1).mean()
    ours = smoothed_cross_entropy(hidden, table, labels, label_smoothing=0.1 * 11 / 10)
    assert_close(ours, expected)


def test_label_smoothing_penalizes_overconfidence():
    """Section 5.4: it "hurts perplexity, as the model learns to be more unsure"."""
    table, labels = torch.eye(11).double(), torch.tensor([4])
    peak = math.log((0.9 + 0.1 / 11) / (0.1 / 11))  # where softmax equals the smoothed target

    def loss(height):
        hidden = height * nn.functional.one_hot(labels, 11).double()
        return smoothed_cross_entropy(hidden, table, labels, label_smoothing=0.1).item()

    assert loss(peak) < min(loss(peak - 0.1), loss(peak + 0.1), loss(3 * peak))


# ----------------------------------------------------------- Section 6: results, sizes, beam search


def parameters(preset, vocab_size):
    with torch.device("meta"):
        config = VanillaTransformerConfig.from_preset(preset, vocab_size=vocab_size)
        model = VanillaTransformerForConditionalGeneration(config)
    return sum(parameter.numel() for parameter in model.parameters())


def test_beam_search_defaults_are_the_papers():
    """Section 6.1: beam size 4 and length penalty 0.6."""
    model, ids = tiny_model(), torch.tensor([[4, 5, 6, 2]])
    by_default = beam_search(model, ids)
    papers = beam_search(model, ids, num_beams=4, length_penalty=0.6)
    assert torch.equal(by_default.sequences, papers.sequences)
    assert torch.equal(by_default.scores, papers.scores)


@pytest.mark.parametrize(("preset", "expected"), [("base", 63_082_496), ("big", 214_245_376)])
def test_exact_parameter_counts_at_37000_pieces(preset, expected):
    assert parameters(preset, 37_000) == expected


# (A) and (D) have as many parameters as base; (E) and big do not match at this vocabulary size.
TABLE_3_MILLIONS = {
    **{"base": 65, "B_dk16": 58, "B_dk32": 60, "C_N2": 36, "C_N4": 50, "C_N8": 80},
    **{"C_d256": 28, "C_d1024": 168, "C_ff1024": 53, "C_ff4096": 90},
}


@pytest.mark.parametrize("preset", TABLE_3_MILLIONS)
def test_table_3_parameter_counts(preset):
    """Table 3: millions of parameters, with the authors' 40,960 vocabulary rows and the 32
    target-space rows that only their encoder input has."""
    d_model = PRESETS[preset].get("d_model", 512)
    millions = (parameters(preset, 40_960) + 32 * d_model) / 1e6
    assert round(millions) == TABLE_3_MILLIONS[preset]


@pytest.mark.parametrize("preset", [name for name in PRESETS if name[0] in "AD"])
def test_rows_a_and_d_keep_the_base_models_size(preset):
    """Table 3 (A): the number of heads varies, "keeping the amount of computation constant"."""
    assert parameters(preset, 37_000) == 63_082_496


# --------------------------------------------- Left open by the paper, as in the authors' code


def test_layer_norm_by_formula_and_independent_of_the_batch():
    """Ba et al. (2016), cited in Section 3.1: statistics of one position only."""
    norm = tiny_model().model.encoder.layers[0].self_attn_norm
    x = torch.randn(3, 4, 16, dtype=torch.float64)
    assert_close(norm(x), layer_norm(x, norm))
    assert_close(norm(x)[1:2, 2:3], norm(x[1:2, 2:3]), 1e-15)
    assert norm.eps == VanillaTransformerConfig().layer_norm_eps == 1e-5
    other = tiny_model(layer_norm_eps=1e-6).model.decoder.layers[0]
    assert other.cross_attn_norm.eps == other.feed_forward_norm.eps == 1e-6


@pytest.fixture(scope="module")
def fresh():
    torch.manual_seed(0)
    return VanillaTransformerForConditionalGeneration(
        tiny_config(
            **{"vocab_size": 500, "d_model": 256, "d_k": 48, "d_v": 64, "norm_first": True},
            **{"position_encoding": "learned", "max_position_embeddings": 200},
            **{"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 512},
            **{"decoder_ffn_dim": 512, "tie_word_embeddings": False},
        )
    )


# Glorot: variance 2 / (fan_in + fan_out). Q, K and V are parts of one matrix (in cross-attention
# only K and V). With h d_k = 192 and h d_v = 256, fan_out is that matrix's 640 (448).
VARIANCES = {
    "model.encoder.layers.0.self_attn.q_proj": 2 / (256 + 640),
    "model.encoder.layers.0.self_attn.k_proj": 2 / (256 + 640),
    "model.encoder.layers.0.self_attn.v_proj": 2 / (256 + 640),
    "model.encoder.layers.0.self_attn.out_proj": 2 / (256 + 256),
    "model.decoder.layers.0.self_attn.v_proj": 2 / (256 + 640),
    "model.decoder.layers.0.cross_attn.q_proj": 2 / (256 + 192),
    "model.decoder.layers.0.cross_attn.k_proj": 2 / (256 + 448),
    "model.decoder.layers.0.cross_attn.v_proj": 2 / (256 + 448),
    "model.decoder.layers.0.cross_attn.out_proj": 2 / (256 + 256),
    "model.encoder.layers.0.feed_forward.fc1": 2 / (256 + 512),
    "model.decoder.layers.0.feed_forward.fc2": 2 / (512 + 256),
}


@pytest.mark.parametrize("name", VARIANCES)
def test_matrices_start_glorot_uniform(fresh, name):
    """tensor2tensor's uniform_unit_scaling; Q, K and V are drawn as one matrix."""
    weight = fresh.get_submodule(name).weight
    assert weight.var().item() == pytest.approx(VARIANCES[name], rel=0.03)
    # in a uniform distribution the bound is at sqrt(3) standard deviations
    assert weight.abs().max().item() == pytest.approx((3 * VARIANCES[name]) ** 0.5, rel=0.01)


def test_variance_of_the_base_models_projections_is_half_of_glorots():
    """With h d_k = h d_v = d_model the fused matrix gives 1 / (2 d), cross-attention 2 / (3 d)."""
    config = tiny_config(d_model=256)
    for is_cross, expected in ((False, 1 / 512), (True, 2 / 768)):
        module = MultiHeadAttention(config, 4, is_cross=is_cross)
        VanillaTransformerModel(tiny_config(d_model=256))._init_weights(module.k_proj)
        assert module.k_proj.weight.var().item() == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(
    "name",
    ["model.shared", "model.encoder.embed_tokens", "model.decoder.embed_positions", "lm_head"],
)
def test_embeddings_start_with_variance_one_over_d_model(fresh, name):
    """N(0, 1 / d): times sqrt(d) they are as large as the sinusoids for any vocabulary size."""
    weight = fresh.get_submodule(name).weight
    assert weight.mean().item() == pytest.approx(0, abs=1e-3)
    assert weight.var().item() == pytest.approx(1 / 256, rel=0.03)
    if name != "lm_head":  # untied, the output matrix is uniform with the same variance
        kurtosis = ((weight / weight.std()) ** 4).mean().item()
        assert kurtosis == pytest.approx(3, rel=0.05)


def test_biases_start_at_zero_and_norms_at_one(fresh):
    for name, parameter in fresh.named_parameters():
        if parameter.dim() == 1:
            start = 1.0 if "norm.weight" in name else 0.0
            assert torch.equal(parameter, torch.full_like(parameter, start)), name
