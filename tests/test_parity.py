"""Same weights, same numbers: against torch.nn, MarianMTModel and the paper's equations."""

import math

import pytest
import torch
from marian_tensors import from_marian_tensors
from torch import nn

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.convert.exporters.marian import to_marian
from vanilla_transformer.convert.tensor_names import tensor_map
from vanilla_transformer.modeling_vanilla_transformer import DecoderLayer, EncoderLayer

VOCAB_SIZE = 50


def make_config(**overrides):
    """Encoder and decoder that agree in nothing that may differ."""
    fields = {
        "vocab_size": VOCAB_SIZE,
        "d_model": 24,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 28,
        "dropout": 0.0,
        "max_position_embeddings": 64,
    }
    return VanillaTransformerConfig(**{**fields, **overrides})


def perturb(module):
    """Move biases and norms away from zeros and ones, which would hide mistakes."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


def make_model(*, attention="sdpa", seed=0, **overrides):
    torch.manual_seed(seed)
    model = VanillaTransformerForConditionalGeneration(make_config(**overrides))
    model.set_attn_implementation(attention)
    return perturb(model).eval()


def make_batch(*, padded=True, seed=1):
    """Source, its mask, target and labels, the rows of different lengths if padded."""
    torch.manual_seed(seed)
    source, labels = torch.randint(4, VOCAB_SIZE, (3, 9)), torch.randint(4, VOCAB_SIZE, (3, 7))
    mask = torch.ones_like(source)
    if padded:
        for row, (source_length, target_length) in enumerate(((9, 4), (5, 7), (2, 6))):
            source[row, source_length:] = 0
            mask[row, source_length:] = 0
            labels[row, target_length:] = -100
    target = nn.functional.pad(labels[:, :-1], (1, 0), value=1)
    return source, mask, target.masked_fill(target == -100, 0), labels


def assert_close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


# ------------------------------------------------------------------------------------ torch.nn


def torch_attention_tensors(attention, name):
    """Our attention's tensors under the names of nn.MultiheadAttention."""
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    return {
        f"{name}.in_proj_weight": torch.cat([part.weight for part in parts]),
        f"{name}.in_proj_bias": torch.cat([part.bias for part in parts]),
        f"{name}.out_proj.weight": attention.out_proj.weight,
        f"{name}.out_proj.bias": attention.out_proj.bias,
    }


def torch_layer(layer, config, kind, *, heads, ffn_dim):
    """A layer of torch.nn with the weights of ours."""
    reference = kind(
        config.d_model,
        heads,
        ffn_dim,
        dropout=0.0,
        activation="relu",
        layer_norm_eps=config.layer_norm_eps,
        batch_first=True,
        norm_first=config.norm_first,
    )
    tensors = torch_attention_tensors(layer.self_attn, "self_attn")
    norms = [layer.self_attn_norm, layer.feed_forward_norm]
    if kind is nn.TransformerDecoderLayer:
        tensors |= torch_attention_tensors(layer.cross_attn, "multihead_attn")
        norms.insert(1, layer.cross_attn_norm)
    for i, norm in enumerate(norms, start=1):
        tensors |= {f"norm{i}.weight": norm.weight, f"norm{i}.bias": norm.bias}
    for i, linear in enumerate((layer.feed_forward.fc1, layer.feed_forward.fc2), start=1):
        tensors |= {f"linear{i}.weight": linear.weight, f"linear{i}.bias": linear.bias}
    reference.load_state_dict({key: value.detach().clone() for key, value in tensors.items()})
    return reference


def assert_equal_gradients(layer, reference):
    """Compare the gradients of all weights; those of Q, K and V are one tensor in torch.nn."""
    gradients = {key: parameter.grad for key, parameter in reference.named_parameters()}
    pairs = [("self_attn", "self_attn"), ("cross_attn", "multihead_attn")]
    for ours, theirs in pairs:
        if not hasattr(layer, ours):
            continue
        attention = getattr(layer, ours)
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        for kind in ("weight", "bias"):
            fused = torch.cat([getattr(part, kind).grad for part in parts])
            assert_close(fused, gradients.pop(f"{theirs}.in_proj_{kind}"))
            out = getattr(attention.out_proj, kind).grad
            assert_close(out, gradients.pop(f"{theirs}.out_proj.{kind}"))
    feed_forward = layer.feed_forward
    named = {"linear1": feed_forward.fc1, "linear2": feed_forward.fc2}
    norms = [layer.self_attn_norm, layer.feed_forward_norm]
    if hasattr(layer, "cross_attn"):
        norms.insert(1, layer.cross_attn_norm)
    named |= {f"norm{i}": norm for i, norm in enumerate(norms, start=1)}
    for name, module in named.items():
        for kind in ("weight", "bias"):
            assert_close(getattr(module, kind).grad, gradients.pop(f"{name}.{kind}"))
    assert not gradients


def additive(allowed):
    """A mask as the attention implementations take it: 0 where allowed, hugely negative else."""
    return torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_equals_torch(norm_first, attention):
    torch.manual_seed(0)
    config = make_config(norm_first=norm_first, attn_implementation=attention)
    layer = perturb(EncoderLayer(config))
    reference = torch_layer(layer, config, nn.TransformerEncoderLayer, heads=2, ffn_dim=40)
    x = torch.randn(3, 9, 24)
    x_ours, x_theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    keep = make_batch()[1].bool()  # (B, S)
    ours = layer(x_ours, additive(keep[:, None, None, :]))
    theirs = reference(x_theirs, src_key_padding_mask=~keep)
    assert_close(ours, theirs)
    upstream = torch.randn_like(x) / 10
    ours.backward(upstream)
    theirs.backward(upstream)
    assert_close(x_ours.grad, x_theirs.grad)
    assert_equal_gradients(layer, reference)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer_equals_torch(norm_first, attention):
    torch.manual_seed(0)
    config = make_config(norm_first=norm_first, attn_implementation=attention)
    layer = perturb(DecoderLayer(config, layer_idx=0))
    reference = torch_layer(layer, config, nn.TransformerDecoderLayer, heads=4, ffn_dim=28)
    x, memory = torch.randn(3, 7, 24), torch.randn(3, 9, 24)
    inputs_ours = [tensor.clone().requires_grad_() for tensor in (x, memory)]
    inputs_theirs = [tensor.clone().requires_grad_() for tensor in (x, memory)]
    keep = make_batch()[1].bool()  # (B, S)
    keep_target = make_batch()[3] != -100  # (B, T)
    causal = torch.ones(7, 7, dtype=torch.bool).tril()
    ours = layer(
        inputs_ours[0],
        additive(causal & keep_target[:, None, None, :]),
        inputs_ours[1],
        additive(keep[:, None, None, :]),
    )
    theirs = reference(
        *inputs_theirs,
        tgt_mask=~causal,
        tgt_key_padding_mask=~keep_target,
        memory_key_padding_mask=~keep,
    )
    assert_close(ours, theirs)
    upstream = torch.randn_like(x) / 10
    ours.backward(upstream)
    theirs.backward(upstream)
    for our_input, their_input in zip(inputs_ours, inputs_theirs, strict=True):
        assert_close(our_input.grad, their_input.grad)
    assert_equal_gradients(layer, reference)


@pytest.mark.parametrize("norm_first", [False, True])
def test_whole_model_equals_stacks_of_torch_layers(norm_first):
    """The masks are made by torch here, and by our model from the padding alone there."""
    model = make_model(norm_first=norm_first)
    config, body = model.config, model.model
    source, mask, target, _ = make_batch()
    keep = mask.bool()
    x = body.encoder.embed(source, None, None)
    for layer in body.encoder.layers:
        reference = torch_layer(layer, config, nn.TransformerEncoderLayer, heads=2, ffn_dim=40)
        x = reference(x, src_key_padding_mask=~keep)
    memory = body.encoder.norm(x) if norm_first else x
    y = body.decoder.embed(target, None, None)
    causal = nn.Transformer.generate_square_subsequent_mask(target.size(1))
    for layer in body.decoder.layers:
        reference = torch_layer(layer, config, nn.TransformerDecoderLayer, heads=4, ffn_dim=28)
        y = reference(y, memory, tgt_mask=causal, memory_key_padding_mask=~keep)
    y = body.decoder.norm(y) if norm_first else y
    outputs = model(source, mask, target)
    assert_close(outputs.encoder_last_hidden_state[keep], memory[keep])
    assert_close(outputs.logits, y @ body.shared.weight.t())


# ------------------------------------------------------------------------------- MarianMTModel


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_logits_and_loss_equal_marian(attention, padded):
    model = make_model(attention=attention)
    marian = to_marian(model)
    marian.set_attn_implementation(attention)
    source, mask, target, labels = make_batch(padded=padded)
    ours = model(source, mask, labels=labels)
    theirs = marian(source, mask, labels=labels)
    assert_close(ours.logits, theirs.logits)
    assert_close(ours.loss, theirs.loss)
    assert_close(model(source, mask, target).logits, theirs.logits)


def test_gradients_equal_marian():
    model = make_model(label_smoothing=0.0).train()
    marian = to_marian(model).train()
    source, mask, _, labels = make_batch()
    model(source, mask, labels=labels).loss.backward()
    marian(source, mask, labels=labels).loss.backward()
    theirs = from_marian_tensors(
        {key: parameter.grad for key, parameter in marian.named_parameters()}, model.config
    )
    ours = dict(model.named_parameters())
    assert theirs.keys() == tensor_map(model.config).keys() == ours.keys()
    for key, gradient in theirs.items():
        assert_close(ours[key].grad, gradient)


@pytest.mark.parametrize("num_beams", [1, 4])
def test_generate_equals_marian(num_beams):
    model = make_model()
    source, mask, _, _ = make_batch()
    settings = {"num_beams": num_beams, "max_new_tokens": 20, "no_repeat_ngram_size": 2}
    ours = model.generate(source, attention_mask=mask, **settings)
    assert torch.equal(to_marian(model).generate(source, attention_mask=mask, **settings), ours)
    assert ours.unique().numel() > 6  # else nothing but one repeated token was compared


# ---------------------------------------------------------- the paper's equations, transcribed


def paper_sinusoids(length, d_model):
    """Section 3.5."""
    table = torch.zeros(length, d_model, dtype=torch.float64)
    for position in range(length):
        for i in range(d_model // 2):
            table[position, 2 * i] = math.sin(position / 10000 ** (2 * i / d_model))
            table[position, 2 * i + 1] = math.cos(position / 10000 ** (2 * i / d_model))
    return table


def paper_attention(weights, name, x, allowed, heads, memory=None):
    """Eq. 1 and Section 3.2.2, one head and one sentence at a time; no memory: self-attention."""
    memory = x if memory is None else memory
    w = {part: weights[f"{name}.{part}_proj.weight"].t() for part in ("q", "k", "v", "out")}
    b = {part: weights[f"{name}.{part}_proj.bias"] for part in ("q", "k", "v", "out")}
    d_k, d_v = w["q"].size(1) // heads, w["v"].size(1) // heads
    rows = []
    for sentence in range(x.size(0)):
        outputs = []
        for head in range(heads):
            k, v = slice(head * d_k, (head + 1) * d_k), slice(head * d_v, (head + 1) * d_v)
            queries = x[sentence] @ w["q"][:, k] + b["q"][k]  # (T, d_k)
            keys = memory[sentence] @ w["k"][:, k] + b["k"][k]  # (L, d_k)
            values = memory[sentence] @ w["v"][:, v] + b["v"][v]  # (L, d_v)
            scores = torch.einsum("td,ld->tl", queries, keys) / math.sqrt(d_k)
            scores = scores.masked_fill(~allowed[sentence], -math.inf)
            exponentials = scores.exp()
            outputs.append(exponentials / exponentials.sum(-1, keepdim=True) @ values)
        rows.append(torch.cat(outputs, -1) @ w["out"] + b["out"])
    return torch.stack(rows)


def paper_feed_forward(weights, name, x):
    """Eq. 2."""
    inner = (x @ weights[f"{name}.fc1.weight"].t() + weights[f"{name}.fc1.bias"]).clamp(min=0)
    return inner @ weights[f"{name}.fc2.weight"].t() + weights[f"{name}.fc2.bias"]


def paper_norm(weights, name, x, eps):
    """Layer normalization (Ba et al., 2016)."""
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    normal = (x - mean) / (variance + eps).sqrt()
    return normal * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def paper_logits(weights, config, source, source_mask, target):
    """Figure 1 as far as the softmax; norm_first moves the norms."""

    def embed(ids):  # Sections 3.4 and 3.5
        scaled = weights["model.shared.weight"][ids] * math.sqrt(config.d_model)
        return scaled + paper_sinusoids(ids.size(1), config.d_model)

    def norm(name, x):
        return paper_norm(weights, name, x, config.layer_norm_eps)

    def sublayer(name, x, function, *arguments):  # Section 3.1
        if config.norm_first:
            return x + function(weights, name, norm(f"{name}_norm", x), *arguments)
        return norm(f"{name}_norm", x + function(weights, name, x, *arguments))

    rows, length = target.shape
    real = source_mask.bool()[:, None, :]  # (B, 1, S)
    earlier = torch.tensor([[[j <= t for j in range(length)] for t in range(length)]] * rows)
    x, heads = embed(source), config.encoder_attention_heads
    for i in range(config.encoder_layers):
        layer = f"model.encoder.layers.{i}"
        x = sublayer(f"{layer}.self_attn", x, paper_attention, real, heads)
        x = sublayer(f"{layer}.feed_forward", x, paper_feed_forward)
    memory = norm("model.encoder.norm", x) if config.norm_first else x
    y, heads = embed(target), config.decoder_attention_heads
    for i in range(config.decoder_layers):
        layer = f"model.decoder.layers.{i}"
        y = sublayer(f"{layer}.self_attn", y, paper_attention, earlier, heads)
        y = sublayer(f"{layer}.cross_attn", y, paper_attention, real, heads, memory)
        y = sublayer(f"{layer}.feed_forward", y, paper_feed_forward)
    y = norm("model.decoder.norm", y) if config.norm_first else y
    return y @ weights["model.shared.weight"].t()


def paper_loss(logits, labels, epsilon):
    """Section 5.4: cross-entropy with (1 - eps) on the label and eps / V on every token."""
    total, count = 0.0, 0
    for scores, label in zip(logits.flatten(0, 1), labels.flatten().tolist(), strict=True):
        if label != -100:
            log_probabilities = scores - scores.exp().sum().log()
            expected = torch.full_like(scores, epsilon / scores.numel())
            expected[label] += 1 - epsilon
            total, count = total - (expected * log_probabilities).sum(), count + 1
    return total / count


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"norm_first": True},
        {"d_k": 7, "d_v": 5},
        {"encoder_attention_heads": 5, "d_k": 3, "d_v": 8, "norm_first": True},
        {"encoder_layers": 1, "decoder_layers": 4, "layer_norm_eps": 1e-3},
    ],
)
def test_model_equals_the_equations_of_the_paper(overrides, attention):
    model = make_model(attention=attention, **overrides).double()
    source, mask, target, labels = make_batch()
    expected = paper_logits(model.state_dict(), model.config, source, mask, target)
    assert_close(model(source, mask, target).logits, expected, 1e-10)
    plain = model(source, mask, labels=labels)
    assert_close(plain.loss, paper_loss(expected, labels, 0.0), 1e-10)
    smoothed = model.train()(source, mask, labels=labels, return_logits=True)
    assert_close(smoothed.logits, expected, 1e-10)
    assert_close(smoothed.loss, paper_loss(expected, labels, model.config.label_smoothing), 1e-10)


def test_gradients_equal_those_of_the_equations():
    model = make_model(d_k=7, d_v=5).double().train()
    source, mask, target, labels = make_batch()
    weights = {key: p.detach().clone().requires_grad_() for key, p in model.named_parameters()}
    logits = paper_logits(weights, model.config, source, mask, target)
    paper_loss(logits, labels, model.config.label_smoothing).backward()
    model(source, mask, labels=labels).loss.backward()
    for key, parameter in model.named_parameters():
        assert_close(parameter.grad, weights[key].grad, 1e-10)


@pytest.mark.parametrize("training", [False, True])
def test_loss_is_a_function_of_the_logits_beside_it(training):
    """And the same number as without logits, whichever way it is computed."""
    model = make_model().train(training)
    source, mask, _, labels = make_batch()
    epsilon = model.config.label_smoothing if training else 0.0
    outputs = model(source, mask, labels=labels, return_logits=True)
    reported = torch.autograd.grad(outputs.loss, outputs.logits, retain_graph=True)[0]
    expected_loss = paper_loss(outputs.logits, labels, epsilon)
    expected = torch.autograd.grad(expected_loss, outputs.logits)[0]
    assert_close(reported, expected, 1e-7)
    assert_close(outputs.loss, expected_loss)
    assert_close(model(source, mask, labels=labels, return_logits=False).loss, outputs.loss)


# --------------------------------------------------------------------------- eager equals sdpa


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("overrides", [{}, {"norm_first": True}, {"d_k": 7, "d_v": 5}])
def test_eager_equals_sdpa(overrides, padded):
    source, mask, _, labels = make_batch(padded=padded)
    results = []
    for attention in ("eager", "sdpa"):
        model = make_model(attention=attention, **overrides).train()
        assert model.config._attn_implementation == attention
        outputs = model(source, mask, labels=labels, return_logits=True)
        outputs.loss.backward()
        results.append((outputs, [parameter.grad for parameter in model.parameters()]))
    (eager, eager_gradients), (sdpa, sdpa_gradients) = results
    assert_close(eager.logits, sdpa.logits)
    assert_close(eager.loss, sdpa.loss)
    for eager_gradient, sdpa_gradient in zip(eager_gradients, sdpa_gradients, strict=True):
        assert_close(eager_gradient, sdpa_gradient)


def test_eager_generates_what_sdpa_does():
    source, mask, _, _ = make_batch()
    settings = {"max_new_tokens": 15, "no_repeat_ngram_size": 2}
    ids = [
        make_model(attention=attention).generate(source, attention_mask=mask, **settings)
        for attention in ("eager", "sdpa")
    ]
    assert torch.equal(*ids)
