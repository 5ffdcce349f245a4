# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # "Attention Is All You Need", one formula at a time
#
# English | [简体中文](notebook.zh.ipynb)
#
# This notebook goes through Sections 3, 5 and 6.1 of the paper (Vaswani et al., 2017,
# [arXiv 1706.03762](https://arxiv.org/abs/1706.03762)). Each formula comes with a few plain lines
# of code, and `assert_close` checks that these lines give the same numbers as the package's own
# module. At the end a small Transformer learns 200 Chinese sentences by heart and says "Good
# morning."
#
# It takes less than five minutes on two CPU cores. Run `pip install -e ".[notebook]"` in the root of
# the clone, then open the notebook in its own folder, `training/paper`. `make notebook` writes the
# pages that you see on GitHub.
#
# Letters for shapes: B sentences in a batch, S tokens of the source, T tokens of the target, h
# heads, d_k and d_v the widths of a head's keys and values, d the width of the model, V the
# vocabulary.

# %%
# %matplotlib inline
import math
import warnings
from dataclasses import replace

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.testing import assert_close

warnings.filterwarnings("ignore", message="IProgress not found")  # progress bars are not missed

from vanilla_transformer import VanillaTransformerConfig as Config
from vanilla_transformer import VanillaTransformerForConditionalGeneration as Transformer
from vanilla_transformer import beam_search
from vanilla_transformer import visualization as pictures
from vanilla_transformer.data import read_pairs, train_tokenizer
from vanilla_transformer.loss import smoothed_cross_entropy
from vanilla_transformer.modeling_vanilla_transformer import (
    EncoderLayer,
    eager_attention_forward,
    sinusoids,
)
from vanilla_transformer.train.curves import plot_schedule
from vanilla_transformer.train.optimization import noam_lr, noam_schedule, paper_adam

torch.manual_seed(0)
torch.set_printoptions(precision=2, sci_mode=False, linewidth=100)
plt.rcParams.update({"figure.dpi": 90, "figure.constrained_layout.use": True})

# %% [markdown]
# ## 1. From sentences to tokens (Section 5.1)
#
# The pairs are everyday sentences from [Tatoeba](https://tatoeba.org) (CC BY 2.0 FR; the table
# names the authors of each sentence). We translate from Chinese into English.
#
# The paper encodes both languages with *one* vocabulary of byte-pair encoding (BPE): frequent
# sequences become one piece, rare ones stay in several; `·` marks a piece that continues a word.
# Our BPE starts from bytes, so no character is unknown. A Chinese character has three bytes in
# UTF-8; frequent characters become one piece, rare ones are spelt in bytes (`\xe6` and the like).
#
# Every sentence ends with `</s>`, the end mark. Sentences of one batch are padded with `<pad>`,
# whose id is 0, and the attention mask says which positions are tokens (1) and which are padding
# (0).

# %%
pairs = list(read_pairs("tatoeba_en_zh.tsv", source_language="zh", target_language="en"))
chinese, english = zip(*pairs, strict=True)
tokenizer = train_tokenizer(chinese + english, vocab_size=700, show_progress=False)

for text in ("Good morning.", "早上好！", "谢谢你的耐心。"):
    ids = tokenizer(text)["input_ids"]
    print(pictures.token_words(tokenizer, ids), ids)
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert ids[-1] == tokenizer.eos_token_id

# %%
batch = tokenizer(["早上好！", "谢谢你的耐心。"], padding=True, return_tensors="pt")
print(batch.input_ids)
print(batch.attention_mask)

# %% [markdown]
# A small Transformer to look into, not trained yet. `eager` is the attention that also returns its
# weights. `eval()` switches dropout off.

# %%
SMALL = {
    "vocab_size": len(tokenizer),
    "d_model": 128,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "attention_heads": 4,
    "ffn_dim": 512,
}
config = Config(**SMALL)
model = Transformer(config).eval()
model.set_attn_implementation("eager")
encoder, decoder = model.model.encoder, model.model.decoder
d, h, V = config.d_model, config.attention_heads, config.vocab_size
print(f"d = {d}, h = {h}, V = {V}, {model.num_parameters():,} parameters")

# %% [markdown]
# ## 2. Embeddings and their scale (Section 3.4)
#
# An embedding is a row of a table $E$ with V rows. "In the embedding layers, we multiply those
# weights by $\sqrt{d_{model}}$." Then the positional encodings are added:
#
# $$x_{pos} = \sqrt{d} \, E[token_{pos}] + PE(pos)$$
#
# Why the scale? The same table is used as the softmax matrix (Section 9), so its numbers are drawn
# small, with variance $1/d$. Times $\sqrt{d}$ they have variance 1, about the size of the
# sinusoids. Without the scale nearly all of the sum would be position, and the word would be noise.

# %%
table = model.model.shared.weight.detach()  # (V, d)
ids = tokenizer(["早上好！"], return_tensors="pt").input_ids  # (1, S)
positions = sinusoids(torch.arange(ids.size(1)), d).float()  # (S, d)

x = table[ids] * math.sqrt(d) + positions
assert_close(x, encoder.embed(ids, None, None))


def share_of_word(words, positions):
    word, position = words.square().mean(), positions.square().mean()
    return (word / (word + position)).item()


print(f"standard deviation of the table    {table.std():.3f} = 1 / sqrt(d) = {d**-0.5:.3f}")
print(f"the same times sqrt(d)             {(table * math.sqrt(d)).std():.3f}")
print(f"root mean square of the sinusoids  {positions.square().mean().sqrt():.3f}")
print(f"share of the word with the scale   {share_of_word(table[ids] * d**0.5, positions):.0%}")
print(f"share of the word without it       {share_of_word(table[ids], positions):.0%}")

# %% [markdown]
# ## 3. Positions (Section 3.5)
#
# $$PE(pos, 2i) = \sin(pos / 10000^{2i/d}) \qquad PE(pos, 2i+1) = \cos(pos / 10000^{2i/d})$$
#
# Each pair of dimensions is a clock hand: the first turns once in $2\pi$ positions, the last in
# almost $10000 \cdot 2\pi$.


# %%
def plain_sinusoids(length, d):
    encoding = torch.zeros(length, d, dtype=torch.float64)
    for pos in range(length):
        for i in range(d // 2):
            angle = pos / 10000 ** (2 * i / d)
            encoding[pos, 2 * i] = math.sin(angle)
            encoding[pos, 2 * i + 1] = math.cos(angle)
    return encoding


PE = plain_sinusoids(100, d)
assert_close(PE, sinusoids(torch.arange(100), d))
pictures.plot_positional_encoding(d_model=d, length=100)

# %% [markdown]
# The paper chose sinusoids because "for any fixed offset $k$, $PE_{pos+k}$ can be represented as a
# linear function of $PE_{pos}$". The function is a rotation of each pair by the angle $\omega_i k$,
# with $\omega_i = 10000^{-2i/d}$:
#
# $$\begin{pmatrix} \sin \omega_i (pos + k) \\ \cos \omega_i (pos + k) \end{pmatrix} =
# \begin{pmatrix} \cos \omega_i k & \sin \omega_i k \\ -\sin \omega_i k & \cos \omega_i k \end{pmatrix}
# \begin{pmatrix} \sin \omega_i pos \\ \cos \omega_i pos \end{pmatrix}$$
#
# The matrix depends on $k$ and not on $pos$. So does the dot product of two encodings:
# $PE(pos) \cdot PE(pos + k) = \sum_i \cos \omega_i k$.


# %%
def rotation(k, d):
    blocks = []
    for i in range(d // 2):
        angle = k / 10000 ** (2 * i / d)
        c, s = math.cos(angle), math.sin(angle)
        blocks.append(torch.tensor([[c, s], [-s, c]], dtype=torch.float64))
    return torch.block_diag(*blocks)  # (d, d)


frequencies = 10000 ** (-2 * torch.arange(d // 2, dtype=torch.float64) / d)
for k in (1, 7, 30):
    assert_close(PE[:-k] @ rotation(k, d).T, PE[k:])
    dot_products = (PE[:-k] * PE[k:]).sum(-1)
    assert_close(dot_products, (frequencies * k).cos().sum().expand_as(dot_products))
    print(f"k = {k:2}: PE(pos) . PE(pos + k) = {dot_products[0]:.2f} at every position")

# %% [markdown]
# Why positions at all? Attention itself does not know the order of its input: if the tokens are
# shuffled, the outputs are the same, in the shuffled order.

# %%
shuffled = torch.randperm(x.size(1))
layer = encoder.layers[0]
assert_close(layer(x[:, shuffled], None), layer(x, None)[:, shuffled])

# %% [markdown]
# ## 4. Attention (Section 3.2)
#
# ### Q, K and V are matrices
#
# A query is compared with keys, and each key has a value to fetch. With the queries of T positions
# as the rows of $Q$ (T × d_k), and keys and values of L positions in $K$ (L × d_k) and
# $V$ (L × d_v):
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V \qquad (1)$$
#
# $Q K^T$ is a T × L table of scores. The softmax turns each *row* into weights that sum to one. The
# product with $V$ is then, for every query, a weighted mean of the values.


# %%
def attention(q, k, v, allowed=None):
    """Eq. 1. `allowed` is True where a query may look at a key."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    weights = scores.softmax(dim=-1)
    return weights @ v, weights


Q = torch.tensor([[3.0, 0.0], [0.0, 3.0]])  # two queries
K = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # three keys
values = torch.tensor([[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]])  # and their values
output, weights = attention(Q, K, values)
print("scores\n", Q @ K.T / math.sqrt(2))
print("weights: each row sums to one\n", weights)
print("output: means of the values\n", output)

# %% [markdown]
# The same in the package, for any number of sentences and heads, and in torch:

# %%
q, k, v = torch.randn(2, h, 5, 16), torch.randn(2, h, 7, 16), torch.randn(2, h, 7, 24)
output, weights = attention(q, k, v)

ours, ours_weights = eager_attention_forward(nn.Module().eval(), q, k, v, None, scaling=16**-0.5)
assert_close(output.transpose(1, 2), ours)  # the package returns (B, T, h, d_v)
assert_close(weights, ours_weights)
assert_close(output, nn.functional.scaled_dot_product_attention(q, k, v))

# %% [markdown]
# ### Why $1 / \sqrt{d_k}$
#
# If the components of $q$ and $k$ are independent, with mean 0 and variance 1, then
# $q \cdot k = \sum_{i=1}^{d_k} q_i k_i$ has mean 0 and variance $d_k$. Large scores push the
# softmax "into regions where it has extremely small gradients": one weight is almost 1, and since
# $\partial w_i / \partial s_j = w_i ([i = j] - w_j)$, all derivatives are almost 0. Divided by
# $\sqrt{d_k}$ the variance is 1 for any $d_k$.

# %%
print("          |        without the scale         |        with the scale")
print("      d_k |  variance  largest w.  gradient  |  variance  largest w.  gradient")
for d_k in (4, 16, 64, 256, 1024):
    q, k = torch.randn(2000, 1, d_k), torch.randn(2000, 16, d_k)
    row = f"{d_k:9} |"
    for scale in (1.0, d_k**-0.5):
        scores = (q * k).sum(-1) * scale  # 2000 queries, 16 keys each
        w = scores.softmax(-1)
        jacobian = torch.diag_embed(w) - w[:, :, None] * w[:, None, :]
        gradient = jacobian.abs().flatten(1).sum(dim=1).mean()  # 1.875 if all weights are equal
        row += f"{scores.var():10.2f}{w.amax(-1).mean():12.2f}{gradient:10.3f}  |"
    print(row[:-1])

# %% [markdown]
# ### Heads are slices (Section 3.2.2)
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(head_1, ..., head_h) W^O, \qquad
# head_i = \mathrm{Attention}(Q W_i^Q, K W_i^K, V W_i^V)$$
#
# The package keeps the h matrices $W_i^Q$ (d × d_k) side by side as one `q_proj`. Head $i$, counted
# from 0, is a slice of its output, from $i d_k$ to $(i+1) d_k$. (`nn.Linear` stores $W^T$, so here
# the slices are rows. It has a bias, as in the authors' code.) With $d_k = d / h$, more heads need
# no more parameters: they only divide the same width.


# %%
def multi_head(module, x, memory, allowed=None):
    """Concat(head_1, ..., head_h) W^O, one head after the other."""
    heads = []
    for i in range(module.num_heads):
        keys = slice(i * module.d_k, (i + 1) * module.d_k)
        values = slice(i * module.d_v, (i + 1) * module.d_v)
        q = x @ module.q_proj.weight[keys].T + module.q_proj.bias[keys]  # (B, T, d_k)
        k = memory @ module.k_proj.weight[keys].T + module.k_proj.bias[keys]
        v = memory @ module.v_proj.weight[values].T + module.v_proj.bias[values]
        heads.append(attention(q, k, v, allowed)[0])  # (B, T, d_v)
    return torch.cat(heads, dim=-1) @ module.out_proj.weight.T + module.out_proj.bias


self_attention = encoder.layers[0].self_attn
x = torch.randn(2, 5, d)
assert_close(multi_head(self_attention, x, x), self_attention(x)[0])

for heads in (1, 2, 4, 8):
    count = Transformer(Config(**{**SMALL, "attention_heads": heads})).num_parameters()
    print(f"{heads} heads of width {d // heads}: {count:,} parameters")

# %% [markdown]
# ### The three attentions (Section 3.2.3)
#
# | | queries from | keys and values from | may look at |
# |---|---|---|---|
# | encoder self-attention | source | source | every token of the source |
# | decoder self-attention | target so far | target so far | itself and earlier positions |
# | encoder-decoder attention (cross-attention) | target so far | output of the encoder | every token of the source |
#
# All decoder layers read the output of the *last* encoder layer.

# %%
memory = torch.randn(2, 7, d)  # as if from the encoder: 7 tokens
look_ahead = torch.ones(5, 5).tril().bool()  # True: allowed
additive = torch.zeros(5, 5).masked_fill(~look_ahead, torch.finfo(torch.float32).min)

masked_attention = decoder.layers[0].self_attn
cross_attention = decoder.layers[0].cross_attn
assert_close(multi_head(masked_attention, x, x, look_ahead), masked_attention(x, additive)[0])
assert_close(multi_head(cross_attention, x, memory), cross_attention(x, None, memory)[0])

sources = tokenizer(["早上好！", "谢谢你的耐心。"], padding=True, return_tensors="pt")
thanks = "Thank you for your patience."
targets = tokenizer(["Good morning.", thanks], padding=True, return_tensors="pt")
seen = model(**sources, decoder_input_ids=targets.input_ids, output_attentions=True)
print("encoder self-attention, layer 1", tuple(seen.encoder_attentions[0].shape), "(B, h, S, S)")
print("decoder self-attention, layer 1", tuple(seen.decoder_attentions[0].shape), "(B, h, T, T)")
print("cross-attention, layer 1       ", tuple(seen.cross_attentions[0].shape), "(B, h, T, S)")

# %% [markdown]
# ## 5. Masks
#
# Attention must ignore two things.
#
# * **Padding mask**: hides padding in every attention whose keys come from the source. A sentence
#   must give the same result alone and in a batch.
# * **Look-ahead mask** (causal mask): hides later positions of the target in the decoder. In
#   training the decoder gets the whole target at once; position $t$ must not see the token that it
#   has to predict.
#
# A mask acts on the scores *before* the softmax: forbidden scores become $-\infty$ (or the most
# negative number), their weights become exactly 0, and each row still sums to one.

# %%
source_mask = sources.attention_mask.bool()[0]  # of the shorter sentence
target_mask = targets.attention_mask.bool()[0]
T = len(target_mask)
causal = torch.ones(T, T).tril().bool()

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6))
for axis, (title, allowed) in zip(
    axes,
    {
        "padding: source attends to source": source_mask.expand(len(source_mask), -1),
        "look-ahead: target attends to target": causal,
        "look-ahead and padding": causal & target_mask,
    }.items(),
    strict=True,
):
    axis.imshow(allowed, cmap="Blues", vmin=-0.2, vmax=1.5)
    axis.set(title=title, xlabel="key", ylabel="query")
    for row, column in allowed.logical_not().nonzero().tolist():
        axis.text(column, row, "×", ha="center", va="center", color="0.6")

# %% [markdown]
# The third picture hides the padding of the target as well. The package does not need that mask:
# this padding is on the right, so the look-ahead mask already hides it from every real token.
#
# With the padding mask, a sentence has the same states next to a longer one as alone. (The states
# *at* the padding are not used; nothing attends to them.)

# %%
with torch.no_grad():
    alone = encoder(tokenizer(["早上好！"], return_tensors="pt").input_ids).last_hidden_state
    together = encoder(**sources).last_hidden_state
    unmasked = encoder(sources.input_ids).last_hidden_state
S = alone.size(1)
assert_close(together[:1, :S], alone)
print(f"error without the padding mask: {(unmasked[:1, :S] - alone).abs().max():.2f}")

# %% [markdown]
# ### The leak that a missing mask causes
#
# The gradient shows who looks at whom. Take the decoder's output at position $t$ and ask for its
# derivative with respect to the input at each position $s$. With the look-ahead mask it is exactly
# zero for every $s > t$. Without the mask, position $t$ sees its own answer, which is the decoder's
# input at $t + 1$. Section 12 trains such a model: its loss is excellent, but it cannot translate.


# %%
def influence(model, decoder_mask=None):
    """Size of the derivative of output t by input s, (T, T)."""
    one = {"input_ids": sources.input_ids[1:], "attention_mask": sources.attention_mask[1:]}
    inputs = table[targets.input_ids[1:]].requires_grad_()
    out = model(**one, decoder_inputs_embeds=inputs, decoder_attention_mask=decoder_mask).logits
    rows = []
    for t in range(T):
        (gradient,) = torch.autograd.grad(out[0, t].square().sum(), inputs, retain_graph=True)
        rows.append(gradient[0].norm(dim=-1))
    return torch.stack(rows)


everything_allowed = torch.zeros(1, 1, T, T)  # four dimensions: added to the scores as it is
with_mask, without_mask = influence(model), influence(model, everything_allowed)
assert with_mask.triu(1).count_nonzero() == 0  # nothing comes from the future
assert (without_mask.triu(1)[causal.logical_not()] > 0).all()  # everything does

figure, axes = plt.subplots(1, 2, figsize=(8, 3.6))
for axis, picture, title in zip(
    axes, (with_mask, without_mask), ("with the look-ahead mask", "without it"), strict=True
):
    axis.imshow(picture / picture.amax(1, keepdim=True), cmap="Blues", vmax=0.4)
    axis.set(title=title, xlabel="input position s", ylabel="output position t")

# %% [markdown]
# ## 6. Residual connections (Section 3.1)
#
# Each sub-layer is wrapped as $\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$, and "we apply dropout
# to the output of each sub-layer, before it is added" (5.4). The norm comes *after* the sum; norm
# first (`norm_first=True`) is a later idea.

# %%
x = torch.randn(2, 5, d)
a = layer.self_attn_norm(x + layer.self_attn(x)[0])
b = layer.feed_forward_norm(a + layer.feed_forward(a))
assert_close(b, layer(x, None))

# %% [markdown]
# What do residuals do for the gradient? The derivative of $x + F(x)$ is $I + F'(x)$: there is
# always a straight way back. Without the residual it is $F'(x)$, and over N layers a product of N
# such matrices. Here are four fresh stacks: the gradient at the input for a gradient of length 1 at
# the output, and how similar the positions have become (mean cosine).
#
# * Neither residual nor norm: the gradient vanishes.
# * Residual without norm: it explodes. (With three layers a model trains without norms all the
#   same, [as measured](results/table_3.cpu.md).)
# * Norm without residual: LayerNorm keeps the gradient's size, but after two layers all positions
#   are the same vector (cosine 1; the two curves without residual coincide). Attention is an
#   average, and nothing restores each position's own content.
# * Both, the paper: the gradient keeps its size, and the positions become similar much more slowly.


# %%
class NormAlone(EncoderLayer):
    def residual(self, x, sublayer, norm):
        return norm(sublayer(x))


class ResidualAlone(EncoderLayer):
    def residual(self, x, sublayer, norm):
        return x + sublayer(x)


class Neither(EncoderLayer):
    def residual(self, x, sublayer, norm):
        return sublayer(x)


def gradient_and_likeness(kind, depth):
    torch.manual_seed(1)
    stack = Transformer(Config(**{**SMALL, "encoder_layers": depth})).eval().model.encoder
    x = torch.randn(4, 10, d).requires_grad_()
    states = x
    for fresh in stack.layers:
        fresh.__class__ = kind
        states = fresh(states, None)
    direction = torch.randn_like(states)
    states.backward(direction / direction.norm())
    unit = states / states.norm(dim=-1, keepdim=True)
    return x.grad.norm().item(), (unit @ unit.transpose(1, 2)).mean().item()


depths = (1, 2, 4, 6, 12)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
for kind, name in {
    EncoderLayer: "residual and norm (the paper)",
    ResidualAlone: "residual, no norm",
    NormAlone: "norm, no residual",
    Neither: "neither",
}.items():
    gradients, likeness = zip(*(gradient_and_likeness(kind, n) for n in depths), strict=True)
    left.semilogy(depths, gradients, "o-", label=name)
    right.plot(depths, likeness, "o-")
    print(f"{name:30} 12 layers: gradient {gradients[-1]:9.2g}, likeness {likeness[-1]:.4f}")
left.set(xlabel="layers", ylabel="gradient at the input")
right.set(xlabel="layers", ylabel="mean cosine of positions", ylim=(0, 1.05))
figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
left.grid(alpha=0.4)

# %% [markdown]
# ## 7. LayerNorm beside BatchNorm (Section 3.1)
#
# $$\mathrm{LayerNorm}(x) = \gamma \, \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta$$
#
# $\mu$ and $\sigma^2$ are the mean and the (biased) variance of the d numbers of *one token*.
# BatchNorm takes the mean and variance of *one feature* over all tokens of the batch. So with
# BatchNorm a sentence's result in training depends on its neighbours and on the padding, and in
# decoding, where positions come one by one, it must use averages kept from training, which need not
# fit the sentence at hand.


# %%
def layer_norm(x, gamma, beta, eps):
    mean = x.mean(dim=-1, keepdim=True)  # over the d numbers of a token
    variance = (x - mean).square().mean(dim=-1, keepdim=True)  # divided by d, not by d - 1
    return gamma * (x - mean) / torch.sqrt(variance + eps) + beta


def batch_norm(x, gamma, beta, eps):
    mean = x.mean(dim=(0, 1))  # of each feature, over all tokens of all sentences
    variance = (x - mean).square().mean(dim=(0, 1))
    return gamma * (x - mean) / torch.sqrt(variance + eps) + beta


norm = layer.self_attn_norm
x = torch.randn(3, 5, d) * 2 + 1
assert_close(layer_norm(x, norm.weight, norm.bias, norm.eps), norm(x))
by_torch = nn.BatchNorm1d(d)  # wants the features in the middle
assert_close(
    batch_norm(x, by_torch.weight, by_torch.bias, by_torch.eps),
    by_torch(x.transpose(1, 2)).transpose(1, 2),
)

gamma, beta = torch.ones(d), torch.zeros(d)
for name, function in {"LayerNorm": layer_norm, "BatchNorm": batch_norm}.items():
    change = function(x, gamma, beta, 1e-6)[:1] - function(x[:1], gamma, beta, 1e-6)
    print(f"{name}: sentence 1 alone or beside two others: {change.abs().max():.2g} apart")

# %% [markdown]
# ## 8. The feed-forward network (Section 3.3)
#
# $$\mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2 \qquad (2)$$
#
# It is "applied to each position separately and identically". The paper adds: "Another way of
# describing this is as two convolutions with kernel size 1." So it is:

# %%
ffn = layer.feed_forward
W1, b1, W2, b2 = ffn.fc1.weight.T, ffn.fc1.bias, ffn.fc2.weight.T, ffn.fc2.bias
assert_close(torch.relu(x @ W1 + b1) @ W2 + b2, ffn(x))

inner, outer = nn.Conv1d(d, 512, kernel_size=1), nn.Conv1d(512, d, kernel_size=1)
inner.weight.data, inner.bias.data = ffn.fc1.weight.data[..., None], b1.data  # (out, in, 1)
outer.weight.data, outer.bias.data = ffn.fc2.weight.data[..., None], b2.data
assert_close(outer(torch.relu(inner(x.transpose(1, 2)))).transpose(1, 2), ffn(x))

assert_close(ffn(x[:, 2:3]), ffn(x)[:, 2:3])  # a position needs no other

# %% [markdown]
# ## 9. The shared softmax (Section 3.4)
#
# The model shares "the same weight matrix between the two embedding layers and the pre-softmax
# linear transformation". The score of each token of the vocabulary is the dot product of the
# decoder's output with that token's embedding, without the factor $\sqrt{d}$:
#
# $$P(y_t \mid y_{<t}, x) = \mathrm{softmax}(E \, h_t)$$

# %%
states = model.model(**sources, decoder_input_ids=targets.input_ids).last_hidden_state
logits = model(**sources, decoder_input_ids=targets.input_ids).logits
assert_close(states @ table.T, logits)

tables = (encoder.embed_tokens, decoder.embed_tokens, model.lm_head)
assert len({module.weight.data_ptr() for module in tables}) == 1  # one table, three uses
print(f"{model.num_parameters():,} parameters; three tables would be {2 * V * d:,} more")

# %% [markdown]
# ## 10. Label smoothing (Section 5.4)
#
# The target distribution does not put all probability on the gold token, but keeps
# $\epsilon_{ls} = 0.1$ for the whole vocabulary:
#
# $$q_j = (1 - \epsilon) [j = gold] + \epsilon / V \qquad loss = -\sum_j q_j \log p_j$$
#
# The loss is least at $p = q$, where it is the entropy of $q$ and not zero. A model that becomes
# more certain than $q$ has a higher loss again. "This hurts perplexity, as the model learns to be
# more unsure, but improves accuracy and BLEU score." (In evaluation mode the package's loss is the
# plain one: its exponential is the perplexity. The authors' code spreads $\epsilon$ over the
# $V - 1$ other tokens, which is the same with a slightly larger $\epsilon$ here.)

# %%
eps = 0.1
labels = torch.tensor([[5, 17, 2]])
scores = torch.randn(1, 3, V)
q = torch.full((1, 3, V), eps / V)
q.scatter_add_(-1, labels[..., None], torch.full((1, 3, 1), 1 - eps))
plain = -(q * scores.log_softmax(-1)).sum(-1).mean()
assert_close(plain, smoothed_cross_entropy(scores, None, labels, label_smoothing=eps))

p = torch.linspace(0.5, 0.9999, 2000)  # of the gold token; the others share the rest
gold, other = 1 - eps + eps / V, eps / V
smoothed = -(gold * p.log() + (V - 1) * other * ((1 - p) / (V - 1)).log())
best = p[smoothed.argmin()]
entropy = -(gold * math.log(gold) + (V - 1) * other * math.log(other))
assert_close(best.item(), gold, atol=1e-3, rtol=0)
print(f"least loss {smoothed.min():.3f} at p = {best:.3f}; entropy of q = {entropy:.3f}")

figure, axis = plt.subplots(figsize=(6.4, 3.2))
axis.plot(p, -p.log(), label="plain cross-entropy")
axis.plot(p, smoothed, label="smoothed, 0.1")
axis.axvline(gold, color="0.7", linestyle="--")
axis.set(xlabel="probability of the gold token", ylabel="loss (nats)", ylim=(0, 1.8))
axis.legend()
axis.grid(alpha=0.4)

# %% [markdown]
# ## 11. Adam and the warm-up (Section 5.3)
#
# Adam with $\beta_1 = 0.9$, $\beta_2 = 0.98$, $\epsilon = 10^{-9}$, and a learning rate that rises
# linearly for `warmup_steps` updates and then falls as the inverse square root of the step:
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step^{-0.5}, step \cdot warmup^{-1.5}) \qquad (3)$$
#
# The two parts meet at $step = warmup$, where the rate is $(d \cdot warmup)^{-0.5}$: 0.0007 for the
# base model.

# %%
for step in (1, 100, 4000, 100_000):
    plain = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert_close(plain, noam_lr(step, d_model=512, warmup_steps=4000))
    print(f"step {step:7,}: {plain:.2e}")
plot_schedule()

# %% [markdown]
# Adam by hand, for five updates of a single weight $w$ that minimises $w^2$:
#
# $$m \leftarrow \beta_1 m + (1 - \beta_1) g \qquad v \leftarrow \beta_2 v + (1 - \beta_2) g^2 \qquad
# w \leftarrow w - lrate \, \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}$$

# %%
weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
optimizer = paper_adam([weight])
schedule = noam_schedule(optimizer, d_model=512, warmup_steps=4)
w, m, v = 1.0, 0.0, 0.0
for t in range(1, 6):
    weight.square().backward()
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()

    g = 2 * w
    m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
    rate = noam_lr(t, d_model=512, warmup_steps=4)
    w -= rate * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.98**t)) + 1e-9)
    assert_close(weight.item(), w)
    print(f"update {t}: rate {rate:.4f}, w = {w:.4f}")

# %% [markdown]
# ## 12. Training in miniature
#
# The decoder is trained with **teacher forcing**: at position $t$ it reads the gold tokens before
# $t$ and predicts the token at $t$. Its input is the target shifted right by one place, beginning
# with the start mark `<s>`. All positions are trained at once; the look-ahead mask keeps them from
# seeing the answer.

# %%
labels = tokenizer(["Good morning."], return_tensors="pt").input_ids
inputs = model.prepare_decoder_input_ids_from_labels(labels)
print("decoder reads ", pictures.token_words(tokenizer, inputs[0].tolist()))
print("and predicts  ", pictures.token_words(tokenizer, labels[0].tolist()))

# %% [markdown]
# Now a plain loop: 200 pairs, four batches of 50, Adam, Eq. 3. It prints how the model translates
# 早上好！ while it learns. Padding has the label -100, which the loss leaves out. With a warm-up of 400
# updates the rate only climbs: the model is done after 200.
#
# `allowed_future=True` is the experiment of Section 5: the decoder's self-attention gets a mask
# that forbids nothing.


# %%
def translate(model, texts, **options):
    batch = tokenizer(list(texts), padding=True, return_tensors="pt")
    found = beam_search(model, batch.input_ids, batch.attention_mask, **options)
    return tokenizer.batch_decode(found.sequences[:, 0], skip_special_tokens=True)


def train(epochs=50, *, warmup=400, allowed_future=False, change=None, **fields):
    torch.manual_seed(0)
    model = Transformer(Config(**{**SMALL, **fields}))
    if change:
        change(model)
    optimizer = paper_adam(model.parameters())
    schedule = noam_schedule(optimizer, d_model=model.config.d_model, warmup_steps=warmup)
    losses = []
    for epoch in range(1, epochs + 1):
        model.train()
        for chosen in torch.randperm(len(pairs)).split(50):
            source = tokenizer([chinese[i] for i in chosen], padding=True, return_tensors="pt")
            target = tokenizer([english[i] for i in chosen], padding=True, return_tensors="pt")
            labels = target.input_ids.masked_fill(target.attention_mask == 0, -100)
            length = labels.size(1)
            mask = torch.zeros(len(labels), 1, length, length) if allowed_future else None
            loss = model(**source, labels=labels, decoder_attention_mask=mask).loss
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        if epoch % 5 == 0:
            said = translate(model, ["早上好！"], num_beams=1)[0]
            print(f"epoch {epoch:3}, loss {loss:.2f}: {said[:60]}")
    return model.eval(), losses


trained, losses = train()
assert translate(trained, ["早上好！"]) == ["Good morning."]

# %% [markdown]
# "Good morning." comes out. The loss does not go to zero: with label smoothing it cannot be lower
# than the entropy of $q$ (the dashed line).

# %%
figure, axis = plt.subplots(figsize=(6.4, 3))
axis.plot(losses)
axis.axhline(entropy, color="0.6", linestyle="--")
axis.set(xlabel="update", ylabel="training loss (nats per token)", ylim=(0, None))
axis.grid(alpha=0.4)

# %% [markdown]
# **This is memorised, not learnt.** The model reproduces nearly all of its 200 sentences to the
# letter, and these are the only sentences it has ever seen. A new sentence gets a known one that
# resembles it ("I like fish."), or pieces of several, which need not even make words ("He is
# veryn."). Two hundred pairs cannot teach a language; the model cards of this project have models
# trained on tens of thousands.

# %%
outputs = translate(trained, chinese)
right = sum(output == text for output, text in zip(outputs, english, strict=True))
print(f"{right} of {len(pairs)} training sentences to the letter\n")
assert right >= 190
for text in ("早上好！", "你有车吗？", "我喜欢狗。", "他很累。"):
    print(text, "(in the data)" if text in chinese else "(new)", translate(trained, [text])[0])

# %% [markdown]
# And the model without the look-ahead mask? Its training loss ends even a little lower: it only has
# to copy the next input. In translation there is no next input to copy, and it gets not one
# sentence right.

# %%
leaky, leaky_losses = train(40, allowed_future=True)
wrong = translate(leaky, chinese, num_beams=1)
right = sum(output == text for output, text in zip(wrong, english, strict=True))
print(f"without the mask: {right} of {len(pairs)} training sentences to the letter")
assert right == 0
assert leaky_losses[-1] < losses[len(leaky_losses) - 1]
for updates in (40, 80, 120, 160):
    recent = slice(updates - 10, updates)
    honest, leaking = (sum(values[recent]) / 10 for values in (losses, leaky_losses))
    print(f"loss at update {updates}: {honest:.2f} with the mask, {leaking:.2f} without")

# %% [markdown]
# ## 13. Greedy search, step by step
#
# The encoder runs once. The decoder starts from `<s>`; each step takes the most probable token and
# appends it, until the end mark `</s>` comes out.

# %%
source = tokenizer("早上好！", return_tensors="pt")
written = [trained.config.decoder_start_token_id]
with torch.no_grad():
    memory = trained.model.encoder(**source)
    while written[-1] != tokenizer.eos_token_id:
        so_far = torch.tensor([written])
        logits = trained(encoder_outputs=memory, decoder_input_ids=so_far).logits[0, -1]
        best = logits.softmax(-1).topk(3)
        candidates = zip(
            [pictures.token_words(tokenizer, [*written, i])[-1] for i in best.indices.tolist()],
            best.values.tolist(),
            strict=True,
        )
        reads = pictures.token_words(tokenizer, written)
        print(f"{' '.join(reads):36} → ", "  ".join(f"{w!r} {p:.2f}" for w, p in candidates))
        written.append(best.indices[0].item())
print(repr(tokenizer.decode(written, skip_special_tokens=True)))

found = beam_search(trained, **source, num_beams=1)
assert found.sequences[0, 0].tolist() == written[1:]

# %% [markdown]
# Most probabilities stay a few hundredths below 1, because of label smoothing.
#
# ## 14. Beam search (Section 6.1)
#
# Greedy search cannot take a word back. Beam search keeps the best 4 beginnings alive. An ended
# translation $Y$ of $L$ tokens scores
#
# $$s(Y) = \frac{\log P(Y \mid X)}{((5 + L) / 6)^{\alpha}}, \qquad \alpha = 0.6$$
#
# The log-probability falls with each token, so without the division short translations have an
# advantage.
# The output has at most the source's length + 50 tokens. Below is the search in plain code, and a
# check that it equals the package's.


# %%
def plain_beam_search(model, source, beam=4, alpha=0.6):
    limit = source.input_ids.size(1) + 50
    never = [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.unk_token_id]
    living, ended = [(0.0, [model.config.decoder_start_token_id])], []
    for length in range(1, limit + 1):
        several = source.input_ids.expand(len(living), -1)
        with torch.no_grad():
            prefixes = torch.tensor([ids for _, ids in living])
            logits = model(several, decoder_input_ids=prefixes).logits[:, -1]
        log_p = logits.log_softmax(-1)
        log_p[:, never] = -torch.inf
        extended = [
            (total + log_p[row, token].item(), [*ids, token])
            for row, (total, ids) in enumerate(living)
            for token in log_p[row].topk(2 * beam).indices.tolist()
        ]
        extended = sorted(extended, reverse=True)[: 2 * beam]
        penalty = ((5 + length) / 6) ** alpha
        ended += [(p / penalty, ids) for p, ids in extended if ids[-1] == tokenizer.eos_token_id]
        ended = sorted(ended, reverse=True)[:beam]
        living = [entry for entry in extended if entry[1][-1] != tokenizer.eos_token_id][:beam]
    return ended


source = tokenizer("我喜欢狗。", return_tensors="pt")
hypotheses = plain_beam_search(trained, source)
for score, ids in hypotheses:
    print(f"{score:7.3f}  {tokenizer.decode(ids, skip_special_tokens=True)}")

found = beam_search(trained, **source, num_beams=4, length_penalty=0.6, num_return_sequences=4)
plain = torch.tensor([score for score, _ in hypotheses])
assert_close(found.scores[0], plain, atol=1e-4, rtol=1e-4)  # sums in another order
texts = tokenizer.batch_decode(found.sequences[0], skip_special_tokens=True)
assert texts == [tokenizer.decode(ids, skip_special_tokens=True) for _, ids in hypotheses]

# %% [markdown]
# ## 15. Attention maps
#
# What do the heads look at? Rows attend, columns are attended to, and each row sums to one. The
# pinyin stands for the characters (zǎo shàng hǎo: 早上好), so that the picture needs no Chinese font.

# %%
attention_maps = pictures.attention_weights(trained, tokenizer, "早上好！", "Good morning.")
words = ["zǎo", "shàng hǎo", "!", "</s>"]
attention_maps = replace(attention_maps, source="zǎo shàng hǎo!", source_words=words)
row_sums = torch.tensor(attention_maps.cross).sum(-1)  # (layers, h, words of the target)
assert_close(row_sums, torch.ones_like(row_sums), atol=1e-5, rtol=0)
pictures.plot_attention(attention_maps, kind="cross", layer=-1)

# %% [markdown]
# In the decoder's self-attention everything above the diagonal is 0: the look-ahead mask. The
# diagonal is not 0: a position does see itself.

# %%
assert (torch.tensor(attention_maps.decoder).triu(1) == 0).all()
assert (torch.tensor(attention_maps.decoder).diagonal(dim1=-2, dim2=-1) > 0).all()
pictures.plot_attention(attention_maps, kind="decoder", layer=-1)

# %% [markdown]
# As lines, in the manner of the paper's Figures 3 to 5. A model that has memorised 200 sentences
# has no grammar to show; do not read much into its heads.

# %%
pictures.plot_attention_lines(attention_maps, kind="encoder", layer=-1, heads=[0, 1])

# %% [markdown]
# ## What popular notes get wrong
#
# > **"The mask multiplies the scores by 0."** A score of 0 is not "no attention": $e^0 = 1$. The
# > output below gives the forbidden positions 0.17 of the weight, more than the 0.14 that they have
# > with no mask at all. Multiplying the *weights* by 0 gives rows that no longer sum to one. A mask
# > is added before the softmax.
# >
# > **"A word cannot attend to itself."** It can, and often does; the look-ahead mask allows
# > $s \le t$, with the diagonal. With the diagonal forbidden, the first position would have nothing
# > to look at.
# >
# > **"LayerNorm normalises over the batch"**, or over the positions. It takes the d numbers of one
# > token (Section 7).
# >
# > **The scale is forgotten.** There are two: scores divided by $\sqrt{d_k}$, the width of one
# > *head* and not of the model (Section 4), and embeddings multiplied by $\sqrt{d_{model}}$
# > (Section 2).
# >
# > **"Norm, then sub-layer."** That is `norm_first`, a later variant. The paper's norm comes after
# > the sum, and there is no norm after the last layer.
# >
# > **"Each decoder layer reads the encoder layer of the same height."** All read the output of the
# > last one.
# >
# > **"Softmax, then cross-entropy."** `cross_entropy` contains the softmax. Applying it twice gives
# > a flat loss, with which a model hardly learns.
# >
# > **"The decoder works in a loop in training."** Only in translation. In training all positions
# > are computed at once, under the mask.

# %%
scores = torch.tensor([[2.0, 1.0, -3.0, 0.5]])
allowed = torch.tensor([[True, True, False, False]])
multiplied = (scores * allowed).softmax(-1)
weights_cut = scores.softmax(-1) * allowed
masked = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
print(f"scores times 0:  {multiplied}, forbidden {multiplied[~allowed].sum():.2f}")
print(f"weights times 0: {weights_cut}, sum {weights_cut.sum():.2f}")
print(f"masked:          {masked}, sum {masked.sum():.2f}")
assert multiplied[~allowed].sum() > 0.1
assert weights_cut.sum() < 1
assert masked[~allowed].sum() == 0

no_diagonal = torch.ones(3, 3).tril(-1).bool()
assert attention(Q.new_ones(3, 2), K, values, no_diagonal)[1][0].isnan().all()  # nothing to see

by_head, by_model = self_attention.scaling, d**-0.5
assert by_head == (d / h) ** -0.5 == math.sqrt(h) * by_model

one_hot = nn.functional.one_hot(torch.tensor([3]), V).float() * 50  # as sure as can be
once = nn.functional.cross_entropy(one_hot, torch.tensor([3])).item()
twice = nn.functional.cross_entropy(one_hot.softmax(-1), torch.tensor([3])).item()
print(f"loss of a perfect answer: {once:.2f}; with softmax twice: {twice:.2f}")

# %% [markdown]
# ## Exercises that change one thing
#
# Each says what to expect. `train` takes any field of the config, and with `change` a function
# that is called with the fresh model. The numbers are those of one run; yours may differ by a few.
#
# 1. **Forget the scale of the embeddings:**
#
#    ```python
#    def forget_scale(model):
#        for stack in (model.model.encoder, model.model.decoder):
#            stack.embed_tokens.register_forward_hook(lambda module, inputs, output: output / d**0.5)
#
#    train(change=forget_scale)
#    ```
#
#    Expect a model that has learnt almost nothing after 50 epochs: 8 sentences of 200. The words
#    are drowned by the positions.
# 2. **No warm-up:** `train(warmup=1)`. Expect a loss that stays near 5 and no sentence at all: the
#    first updates, at a rate of 0.09, throw the weights so far that they never recover. With
#    `train(warmup=4000)` nothing comes out either, but the loss still falls: 200 updates are too
#    few for such a slow start. Give it more epochs.
# 3. **No label smoothing:** `train(label_smoothing=0.0)`. Expect a loss near 0 and as many
#    sentences. How do the probabilities in Section 13 change?
# 4. **No dropout:** `train(dropout=0.0)`. Expect it to finish sooner, with all 200 sentences: for
#    learning by heart, dropout is only an obstacle. With `dropout=0.5` 50 epochs give a handful. On
#    real data it is the other way round: without dropout the paper loses 1.2 BLEU (Table 3 D). That
#    takes many updates: after 4,000, [our small models](results/table_3.cpu.md) do not differ yet.
# 5. **Other heads:** `train(attention_heads=1)`, `train(attention_heads=32)`. Expect no difference:
#    the task is too easy. In the paper one head costs 0.9 BLEU (Table 3 A).
# 6. **No positions:**
#
#    ```python
#    def forget_positions(model):
#        for stack in (model.model.encoder, model.model.decoder):
#            stack.embed_positions.register_forward_hook(lambda module, inputs, output: 0 * output)
#
#    train(change=forget_positions)
#    ```
#
#    Expect nearly all sentences. Why? The words alone distinguish the 200 sentences, and in the
#    decoder the look-ahead mask reveals the order: the first position sees one token,
#    the second two. Find two sentences that this encoder cannot tell apart.
# 7. **Shift the positions** of the trained model:
#    `trained.model.encoder.embed_positions.offset = 5`, and the same in the decoder. Expect to lose
#    a quarter of the sentences. Sinusoids exist for any position, but the model has only learnt the
#    first few.
# 8. **Forget $1 / \sqrt{d_k}$** in the trained model: set `scaling = 1.0` in each `self_attn` and
#    `cross_attn` of its layers. Expect to lose only some 7 sentences: $d_k$ is 32 here, between the
#    rows 16 and 64 of the table in Section 4. How does the table explain it? Train with one head
#    ($d_k = 128$) and do the same: some 37 are lost.
# 9. **Reward length:** `length_penalty=5.0` in Section 14. Expect nonsense in first place that runs
#    on to the length limit; with 0.0 the order is the same as before.
# 10. **Norm first:** `train(norm_first=True)`. Expect about the same: with two layers both are easy
#     to train. Then give both `encoder_layers=6, decoder_layers=6`: in the paper's order six layers
#     learn more slowly than two (190 sentences after 50 epochs). How many has norm first?
# 11. **The other way:** swap `chinese` and `english` before `train()`, and let it say "Good morning."
#     in Chinese. Expect some 194 sentences.
