"""The cells of the paper's notebook: the code once, the text in English and in Chinese.

`make notebook` builds and runs notebook.en.ipynb and notebook.zh.ipynb. A line `# %%` begins a cell
of code, `# %% [markdown] en` one of English text; its Chinese, `# %% [markdown] zh`, follows it.
"""

# %% [markdown] en
# # "Attention Is All You Need", one formula at a time
#
# English | [简体中文](notebook.zh.ipynb)
#
# This notebook goes through Sections 3, 5 and 6.1 of the paper (Vaswani et al., 2017,
# [arXiv 1706.03762](https://arxiv.org/abs/1706.03762)). Each formula comes with a few plain lines
# of code, and `assert_close` checks that these lines give the same numbers as the package's own
# module. At the end a small Transformer learns 200 Chinese sentences by heart and says "Good
# morning.", and pictures show what the heads of a model that can translate look at.
#
# It takes less than five minutes on two CPU cores. Run `pip install -e ".[notebook]"` in the root of
# the clone, then open the notebook in its own folder, `training/paper`. `make notebook` writes the
# pages that you see on GitHub.
#
# Letters for shapes: B sentences in a batch, S tokens of the source, T tokens of the target, h
# heads, d_k and d_v the widths of a head's keys and values, d the width of the model, V the
# vocabulary.

# %% [markdown] zh
# # 逐个公式读《Attention Is All You Need》
#
# [English](notebook.en.ipynb) | 简体中文
#
# 本笔记依次讲解论文（Vaswani 等，2017，[arXiv 1706.03762](https://arxiv.org/abs/1706.03762)）的第 3 节、第 5 节和 6.1 节。每个公式旁边都有几行朴素的代码，并用 `assert_close` 检验：这几行代码算出的数，与本包自己的模块算出的相同。最后，一个小小的 Transformer 会把 200 个中文句子背下来，并说出 "Good morning."；再用一个真正会翻译的模型，画出各个注意力头在看什么。
#
# 在两个 CPU 核上运行不到五分钟。请先在仓库根目录执行 `pip install -e ".[notebook]"`，再在本文件所在的目录 `training/paper` 中打开并运行；你在 GitHub 上看到的页面由 `make notebook` 生成。
#
# 表示形状的字母：B 是一个批次中的句子数，S 是源语言句子的词元（token）数，T 是目标语言句子的词元数，h 是注意力头数，d_k 和 d_v 是一个头的键和值的宽度，d 是模型的宽度，V 是词表大小。

# %%
# %matplotlib inline
import math
import warnings

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.testing import assert_close

warnings.filterwarnings("ignore", message="IProgress not found")  # progress bars are not missed

from architecture import draw_figure_1, draw_figure_2
from attention_lines import plot_attention_lines
from curves import plot_positional_encoding, plot_schedule
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from vanilla_transformer import VanillaTransformerConfig as Config
from vanilla_transformer import VanillaTransformerForConditionalGeneration as Transformer
from vanilla_transformer import pretrained
from vanilla_transformer import visualization as pictures
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.data import read_pairs, train_tokenizer
from vanilla_transformer.loss import smoothed_cross_entropy
from vanilla_transformer.modeling_vanilla_transformer import (
    EncoderLayer,
    eager_attention_forward,
    sinusoids,
)
from vanilla_transformer.train.optimization import noam_lr, noam_schedule

disable_progress_bar()
torch.manual_seed(0)
torch.set_printoptions(precision=2, sci_mode=False, linewidth=100)
plt.rcParams.update({"figure.dpi": 90, "figure.constrained_layout.use": True})

# %% [markdown] en
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

# %% [markdown] zh
# ## 1. 从句子到词元（论文 5.1 节）
#
# 语料是 [Tatoeba](https://tatoeba.org) 上的日常句子（许可为 CC BY 2.0 FR，表格中注明了每个句子的作者）。翻译方向是中译英。
#
# 论文用**一个**字节对编码（BPE）词表表示两种语言：常见的字符序列合并成一个子词，少见的则由几个子词拼成；下面打印的 `·` 表示这个子词接在前一个子词后面，属于同一个单词。我们的 BPE 从字节开始合并，所以不会有词表之外的字。一个汉字在 UTF-8 中占三个字节：常用字会成为完整的子词，少见的字则按字节拼写（例如 `\xe6`）。
#
# 每个句子都以结束符 `</s>` 结尾。同一批次中较短的句子用 `<pad>`（编号为 0）补齐，注意力掩码则标明哪些位置是词元（1），哪些位置是填充（0）。

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

# %% [markdown] en
# Figures 1 and 2 of the paper, with the names of the package's modules:

# %% [markdown] zh
# 论文的图 1 和图 2，其中的名称就是本项目中模块的名称：

# %%
draw_figure_1()

# %%
draw_figure_2()

# %% [markdown] en
# A small Transformer to look into, not trained yet. `eager` is the attention that also returns its
# weights. `eval()` switches dropout off.

# %% [markdown] zh
# 下面是一个尚未训练的小 Transformer，供我们拆开来看。`eager` 是会把注意力权重一并返回的实现，`eval()` 关闭 dropout。

# %%
SMALL = {
    "vocab_size": len(tokenizer),
    "d_model": 128,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 512,
    "decoder_ffn_dim": 512,
}
config = Config(**SMALL)
model = Transformer(config).eval()
model.set_attn_implementation("eager")
encoder, decoder = model.model.encoder, model.model.decoder
d, h, V = config.d_model, config.encoder_attention_heads, config.vocab_size
print(f"d = {d}, h = {h}, V = {V}, {model.num_parameters():,} parameters")

# %% [markdown] en
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

# %% [markdown] zh
# ## 2. 词嵌入及其缩放（论文 3.4 节）
#
# 词嵌入是表 $E$ 中的一行，表共有 V 行。论文写道："In the embedding layers, we multiply those weights by $\sqrt{d_{model}}$."（在嵌入层中，把这些权重乘以 $\sqrt{d_{model}}$。）然后再加上位置编码：
#
# $$x_{pos} = \sqrt{d} \, E[token_{pos}] + PE(pos)$$
#
# 为什么要缩放？这张表同时也是 softmax 之前的线性变换矩阵（见第 9 节），所以其中的数取得很小，方差为 $1/d$。乘以 $\sqrt{d}$ 之后方差为 1，与正弦位置编码大小相当。如果忘了缩放，相加的结果几乎全是位置信息，词本身反倒成了噪声。

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

# %% [markdown] en
# ## 3. Positions (Section 3.5)
#
# $$PE(pos, 2i) = \sin(pos / 10000^{2i/d}) \qquad PE(pos, 2i+1) = \cos(pos / 10000^{2i/d})$$
#
# Each pair of dimensions is a clock hand: the first turns once in $2\pi$ positions, the last in
# almost $10000 \cdot 2\pi$.

# %% [markdown] zh
# ## 3. 位置编码（论文 3.5 节）
#
# $$PE(pos, 2i) = \sin(pos / 10000^{2i/d}) \qquad PE(pos, 2i+1) = \cos(pos / 10000^{2i/d})$$
#
# 每两个维度就像一根钟表指针：第一根每 $2\pi$ 个位置转一圈，最后一根差不多要 $10000 \cdot 2\pi$ 个位置才转一圈。


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
plot_positional_encoding(d_model=d, length=100)

# %% [markdown] en
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

# %% [markdown] zh
# 论文选择正弦函数的理由是："for any fixed offset $k$, $PE_{pos+k}$ can be represented as a linear function of $PE_{pos}$"（对任意固定的偏移 $k$，$PE_{pos+k}$ 都是 $PE_{pos}$ 的线性函数）。这个线性函数就是旋转：把每一对维度旋转 $\omega_i k$ 角，其中 $\omega_i = 10000^{-2i/d}$：
#
# $$\begin{pmatrix} \sin \omega_i (pos + k) \\ \cos \omega_i (pos + k) \end{pmatrix} =
# \begin{pmatrix} \cos \omega_i k & \sin \omega_i k \\ -\sin \omega_i k & \cos \omega_i k \end{pmatrix}
# \begin{pmatrix} \sin \omega_i pos \\ \cos \omega_i pos \end{pmatrix}$$
#
# 矩阵只与 $k$ 有关，与 $pos$ 无关。两个位置编码的点积也是如此：$PE(pos) \cdot PE(pos + k) = \sum_i \cos \omega_i k$。


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

# %% [markdown] en
# Why positions at all? Attention itself does not know the order of its input: if the tokens are
# shuffled, the outputs are the same, in the shuffled order.

# %% [markdown] zh
# 为什么一定要有位置编码？因为注意力本身并不知道输入的顺序：把词元打乱，输出还是那些向量，只是跟着打乱了而已。

# %%
shuffled = torch.randperm(x.size(1))
layer = encoder.layers[0]
assert_close(layer(x[:, shuffled], None), layer(x, None)[:, shuffled])

# %% [markdown] en
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

# %% [markdown] zh
# ## 4. 注意力（论文 3.2 节）
#
# ### Q、K、V 都是矩阵
#
# 查询（query）负责提问，键（key）与查询作比较，值（value）是被取走的内容。设 $Q$（T × d_k）的各行是 T 个位置的查询，$K$（L × d_k）和 $V$（L × d_v）的各行是 L 个位置的键和值：
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V \qquad (1)$$
#
# $Q K^T$ 是一张 T × L 的得分表。softmax 把**每一行**变成和为 1 的权重。再乘以 $V$，每个查询就得到各个值的加权平均。


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

# %% [markdown] en
# The same in the package, for any number of sentences and heads, and in torch:

# %% [markdown] zh
# 在本项目和 torch 中也是一样，只是可以同时处理任意多个句子和头：

# %%
q, k, v = torch.randn(2, h, 5, 16), torch.randn(2, h, 7, 16), torch.randn(2, h, 7, 24)
output, weights = attention(q, k, v)

ours, ours_weights = eager_attention_forward(nn.Module().eval(), q, k, v, None, scaling=16**-0.5)
assert_close(output.transpose(1, 2), ours)  # the package returns (B, T, h, d_v)
assert_close(weights, ours_weights)
assert_close(output, nn.functional.scaled_dot_product_attention(q, k, v))

# %% [markdown] en
# ### Why $1 / \sqrt{d_k}$
#
# If the components of $q$ and $k$ are independent, with mean 0 and variance 1, then
# $q \cdot k = \sum_{i=1}^{d_k} q_i k_i$ has mean 0 and variance $d_k$. Large scores push the
# softmax "into regions where it has extremely small gradients": one weight is almost 1, and since
# $\partial w_i / \partial s_j = w_i ([i = j] - w_j)$, all derivatives are almost 0. Divided by
# $\sqrt{d_k}$ the variance is 1 for any $d_k$.

# %% [markdown] zh
# ### 为什么除以 $\sqrt{d_k}$
#
# 如果 $q$ 和 $k$ 的各分量相互独立，均值为 0，方差为 1，那么 $q \cdot k = \sum_{i=1}^{d_k} q_i k_i$ 的均值为 0，方差为 $d_k$。得分太大，会把 softmax 推到“梯度极小的区域”：某个权重接近 1，而由于 $\partial w_i / \partial s_j = w_i ([i = j] - w_j)$，所有的导数都接近 0。除以 $\sqrt{d_k}$ 之后，不论 $d_k$ 多大，方差都是 1。

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

# %% [markdown] en
# ### Heads are slices (Section 3.2.2)
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(head_1, ..., head_h) W^O, \qquad
# head_i = \mathrm{Attention}(Q W_i^Q, K W_i^K, V W_i^V)$$
#
# The package keeps the h matrices $W_i^Q$ (d × d_k) side by side as one `q_proj`. Head $i$, counted
# from 0, is a slice of its output, from $i d_k$ to $(i+1) d_k$. (`nn.Linear` stores $W^T$, so here
# the slices are rows. It has a bias, as in the authors' code.) With $d_k = d / h$, more heads need
# no more parameters: they only divide the same width.

# %% [markdown] zh
# ### 多头就是切片（论文 3.2.2 节）
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(head_1, ..., head_h) W^O, \qquad
# head_i = \mathrm{Attention}(Q W_i^Q, K W_i^K, V W_i^V)$$
#
# 本项目把 h 个矩阵 $W_i^Q$（d × d_k）并排放在一个 `q_proj` 里，第 $i$ 个头（从 0 数起）就是它输出中从 $i d_k$ 到 $(i+1) d_k$ 的一段切片。（`nn.Linear` 存的是 $W^T$，所以下面切的是行；它带有偏置，与论文作者的代码相同。）因为 $d_k = d / h$，头再多参数也不会增加，只是把同样的宽度分成更多份。


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
    both = {"encoder_attention_heads": heads, "decoder_attention_heads": heads}
    count = Transformer(Config(**{**SMALL, **both})).num_parameters()
    print(f"{heads} heads of width {d // heads}: {count:,} parameters")

# %% [markdown] en
# ### The three attentions (Section 3.2.3)
#
# | | queries from | keys and values from | may look at |
# |---|---|---|---|
# | encoder self-attention | source | source | every token of the source |
# | decoder self-attention | target so far | target so far | itself and earlier positions |
# | encoder-decoder attention (cross-attention) | target so far | output of the encoder | every token of the source |
#
# All decoder layers read the output of the *last* encoder layer.

# %% [markdown] zh
# ### 三种注意力（论文 3.2.3 节）
#
# | | 查询来自 | 键和值来自 | 能看到 |
# |---|---|---|---|
# | 编码器自注意力 | 源语言句子 | 源语言句子 | 源语言句子的所有词元 |
# | 解码器自注意力 | 已有的译文 | 已有的译文 | 自己和之前的位置 |
# | 编码器-解码器注意力（交叉注意力） | 已有的译文 | 编码器的输出 | 源语言句子的所有词元 |
#
# 解码器的每一层读取的都是编码器**最后一层**的输出。

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

# %% [markdown] en
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

# %% [markdown] zh
# ## 5. 掩码
#
# 有两样东西不能看。
#
# * **填充掩码**（padding mask）：凡是键来自源语言句子的注意力，都不能看补齐用的位置。一个句子单独计算，还是放在批次里计算，结果必须相同。
# * **前瞻掩码**（look-ahead mask，也叫因果掩码）：在解码器中，不能看译文后面的位置。训练时整句译文都摆在那里，而位置 $t$ 不能看到自己要预测的那个词元。
#
# 掩码作用于 softmax **之前**的得分：被禁止的得分变为 $-\infty$（或该数据类型能表示的最小值），对应的权重就恰好为 0，而每一行的和仍然是 1。

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

# %% [markdown] en
# The third picture hides the padding of the target as well. The package does not need that mask:
# this padding is on the right, so the look-ahead mask already hides it from every real token.
#
# With the padding mask, a sentence has the same states next to a longer one as alone. (The states
# *at* the padding are not used; nothing attends to them.)

# %% [markdown] zh
# 第三幅图还遮住了译文的填充。本项目不需要这样做：译文的填充都在右边，前瞻掩码已经使真正的词元看不到它。
#
# 有了填充掩码，短句与长句放在一起计算，得到的状态与单独计算时相同。（填充位置**上**的状态没有用处，谁也不会去看。）

# %%
with torch.no_grad():
    alone = encoder(tokenizer(["早上好！"], return_tensors="pt").input_ids).last_hidden_state
    together = encoder(**sources).last_hidden_state
    unmasked = encoder(sources.input_ids, torch.ones_like(sources.input_ids)).last_hidden_state
S = alone.size(1)
assert_close(together[:1, :S], alone)
print(f"error without the padding mask: {(unmasked[:1, :S] - alone).abs().max():.2f}")

# %% [markdown] en
# ### The leak that a missing mask causes
#
# The gradient shows who looks at whom. Take the decoder's output at position $t$ and ask for its
# derivative with respect to the input at each position $s$. With the look-ahead mask it is exactly
# zero for every $s > t$. Without the mask, position $t$ sees its own answer, which is the decoder's
# input at $t + 1$. Section 12 trains such a model: its loss is excellent, but it cannot translate.

# %% [markdown] zh
# ### 缺少掩码造成的泄漏
#
# 从梯度可以看出谁看到了谁。取解码器在位置 $t$ 的输出，对每个位置 $s$ 的输入求导。有前瞻掩码时，凡是 $s > t$，导数都恰好为零。没有掩码时，位置 $t$ 会看到自己的答案，也就是解码器在 $t + 1$ 处的输入。第 12 节就训练了一个这样的模型：损失漂亮极了，却完全不会翻译。


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

# %% [markdown] en
# ## 6. Residual connections (Section 3.1)
#
# Each sub-layer is wrapped as $\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$, and "we apply dropout
# to the output of each sub-layer, before it is added" (5.4). The norm comes *after* the sum; norm
# first (`norm_first=True`) is a later idea.

# %% [markdown] zh
# ## 6. 残差连接（论文 3.1 节）
#
# 每个子层都包装成 $\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$，并且“在每个子层的输出与输入相加之前，对它做 dropout”（论文 5.4 节）。层归一化在相加**之后**；把它放在前面（`norm_first=True`）是后来的做法。

# %%
x = torch.randn(2, 5, d)
a = layer.self_attn_norm(x + layer.self_attn(x)[0])
b = layer.feed_forward_norm(a + layer.feed_forward(a))
assert_close(b, layer(x, None))

# %% [markdown] en
# What do residuals do for the gradient? The derivative of $x + F(x)$ is $I + F'(x)$: there is
# always a straight way back. Without the residual it is $F'(x)$, and over N layers a product of N
# such matrices. Here are four untrained encoders: the gradient at the input for a gradient of length 1 at
# the output, and how similar the positions have become (mean cosine).
#
# * Neither residual nor norm: the gradient vanishes.
# * Residual without norm: it explodes. (With three layers a model trains without norms all the
#   same, [as measured](results/table_3.cpu.md).)
# * Norm without residual: LayerNorm keeps the gradient's size, but after two layers all positions
#   are the same vector (cosine 1; the two curves without residual coincide). Attention is an
#   average, and nothing restores each position's own content.
# * Both, the paper: the gradient keeps its size, and the positions become similar much more slowly.

# %% [markdown] zh
# 残差连接对梯度有什么作用？$x + F(x)$ 的导数是 $I + F'(x)$：总有一条直路可以走回去。没有残差连接，导数就是 $F'(x)$，N 层就是 N 个这样的矩阵连乘。下面比较四种刚初始化的编码器：输出端给一个长度为 1 的梯度，看传到输入端时还剩多少；再看各个位置的向量变得有多相似（平均余弦）。
#
# * 两者都没有：梯度消失。
# * 只有残差连接，没有层归一化：梯度爆炸。（不过三层的模型去掉层归一化仍能训练，见[实测结果](results/table_3.cpu.md)。）
# * 只有层归一化，没有残差连接：层归一化保住了梯度的大小，但两层之后，所有位置都成了同一个向量（余弦为 1；两条没有残差连接的曲线是重合的）。注意力是一种平均，没有残差连接，就没有什么能把每个位置自己的内容带回来。
# * 两者都有，即论文的做法：梯度大小不变，各位置的向量变得相似的速度也慢得多。


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

# %% [markdown] en
# ## 7. LayerNorm beside BatchNorm (Section 3.1)
#
# $$\mathrm{LayerNorm}(x) = \gamma \, \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta$$
#
# $\mu$ and $\sigma^2$ are the mean and the (biased) variance of the d numbers of *one token*.
# BatchNorm takes the mean and variance of *one feature* over all tokens of the batch. So with
# BatchNorm a sentence's result in training depends on its neighbours and on the padding, and in
# decoding, where positions come one by one, it must use averages kept from training, which need not
# fit the sentence at hand.

# %% [markdown] zh
# ## 7. 层归一化与批归一化（论文 3.1 节）
#
# $$\mathrm{LayerNorm}(x) = \gamma \, \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta$$
#
# $\mu$ 和 $\sigma^2$ 是**一个词元**的 d 个数的均值和（有偏）方差。批归一化（BatchNorm）则是对**一个特征**，在批次的所有词元上求均值和方差。所以用批归一化训练时，一个句子的结果会受同批其他句子和填充的影响；而解码时词元是一个接一个产生的，只能改用训练时积累的平均值，它未必适合眼前的句子。


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

# %% [markdown] en
# ## 8. The feed-forward network (Section 3.3)
#
# $$\mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2 \qquad (2)$$
#
# It is "applied to each position separately and identically". The paper adds: "Another way of
# describing this is as two convolutions with kernel size 1." So it is:

# %% [markdown] zh
# ## 8. 前馈网络（论文 3.3 节）
#
# $$\mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2 \qquad (2)$$
#
# 前馈网络“对每个位置分别做相同的运算”。论文还说："Another way of describing this is as two convolutions with kernel size 1."（也可以把它看作两个卷积核大小为 1 的卷积。）的确如此：

# %%
ffn = layer.feed_forward
W1, b1, W2, b2 = ffn.fc1.weight.T, ffn.fc1.bias, ffn.fc2.weight.T, ffn.fc2.bias
assert_close(torch.relu(x @ W1 + b1) @ W2 + b2, ffn(x))

inner, outer = nn.Conv1d(d, 512, kernel_size=1), nn.Conv1d(512, d, kernel_size=1)
inner.weight.data, inner.bias.data = ffn.fc1.weight.data[..., None], b1.data  # (out, in, 1)
outer.weight.data, outer.bias.data = ffn.fc2.weight.data[..., None], b2.data
assert_close(outer(torch.relu(inner(x.transpose(1, 2)))).transpose(1, 2), ffn(x))

assert_close(ffn(x[:, 2:3]), ffn(x)[:, 2:3])  # a position needs no other

# %% [markdown] en
# ## 9. The shared softmax (Section 3.4)
#
# The model shares "the same weight matrix between the two embedding layers and the pre-softmax
# linear transformation". The score of each token of the vocabulary is the dot product of the
# decoder's output with that token's embedding, without the factor $\sqrt{d}$:
#
# $$P(y_t \mid y_{<t}, x) = \mathrm{softmax}(E \, h_t)$$

# %% [markdown] zh
# ## 9. 共享的 softmax 矩阵（论文 3.4 节）
#
# 论文让两个嵌入层与 softmax 之前的线性变换共用同一个权重矩阵。词表中每个词元的得分，就是解码器的输出与该词元的嵌入的点积，这里不再乘 $\sqrt{d}$：
#
# $$P(y_t \mid y_{<t}, x) = \mathrm{softmax}(E \, h_t)$$

# %%
states = model.model(**sources, decoder_input_ids=targets.input_ids).last_hidden_state
logits = model(**sources, decoder_input_ids=targets.input_ids).logits
assert_close(states @ table.T, logits)

tables = (encoder.embed_tokens, decoder.embed_tokens, model.lm_head)
assert len({module.weight.data_ptr() for module in tables}) == 1  # one table, three uses
print(f"{model.num_parameters():,} parameters; three tables would be {2 * V * d:,} more")

# %% [markdown] en
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

# %% [markdown] zh
# ## 10. 标签平滑（论文 5.4 节）
#
# 目标分布不再把全部概率都给正确的词元，而是留出 $\epsilon_{ls} = 0.1$，平均分给整个词表：
#
# $$q_j = (1 - \epsilon) [j = gold] + \epsilon / V \qquad loss = -\sum_j q_j \log p_j$$
#
# 其中 $gold$ 是正确的词元。$p = q$ 时损失最小，这个最小值是 $q$ 的熵，不是零。模型如果比 $q$ 更有把握，反而会再受惩罚。论文写道："This hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU score."（这会损害困惑度，因为模型学得更不确定，但能提高准确率和 BLEU。）另外，在评估模式下，本包计算的是不带平滑的损失，它的指数就是困惑度；论文作者的代码把 $\epsilon$ 分给其余 $V - 1$ 个词元，相当于这里的 $\epsilon$ 略大一点。

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

# %% [markdown] en
# ## 11. Adam and the warm-up (Section 5.3)
#
# Adam with $\beta_1 = 0.9$, $\beta_2 = 0.98$, $\epsilon = 10^{-9}$, and a learning rate that rises
# linearly for `warmup_steps` updates and then falls as the inverse square root of the step:
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step^{-0.5}, step \cdot warmup^{-1.5}) \qquad (3)$$
#
# The two parts meet at $step = warmup$, where the rate is $(d \cdot warmup)^{-0.5}$: 0.0007 for the
# base model.

# %% [markdown] zh
# ## 11. Adam 与预热（论文 5.3 节）
#
# Adam 的参数为 $\beta_1 = 0.9$、$\beta_2 = 0.98$、$\epsilon = 10^{-9}$。学习率在前 `warmup_steps` 步直线上升，之后与步数的平方根成反比下降：
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step^{-0.5}, step \cdot warmup^{-1.5}) \qquad (3)$$
#
# 两段在 $step = warmup$ 处相接，此时学习率为 $(d \cdot warmup)^{-0.5}$，对 base 模型来说是 0.0007。

# %%
for step in (1, 100, 4000, 100_000):
    plain = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert_close(plain, noam_lr(step, d_model=512, warmup_steps=4000))
    print(f"step {step:7,}: {plain:.2e}")
plot_schedule()

# %% [markdown] en
# Adam by hand, for five updates of a single weight $w$ that minimises $w^2$:
#
# $$m \leftarrow \beta_1 m + (1 - \beta_1) g \qquad v \leftarrow \beta_2 v + (1 - \beta_2) g^2 \qquad
# w \leftarrow w - lrate \, \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}$$

# %% [markdown] zh
# 手算 Adam：只有一个权重 $w$，要最小化 $w^2$，一共更新五次：
#
# $$m \leftarrow \beta_1 m + (1 - \beta_1) g \qquad v \leftarrow \beta_2 v + (1 - \beta_2) g^2 \qquad
# w \leftarrow w - lrate \, \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}$$

# %%
weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
optimizer = torch.optim.Adam([weight], lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
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

# %% [markdown] en
# ## 12. Training in miniature
#
# The decoder is trained with **teacher forcing**: at position $t$ it reads the gold tokens before
# $t$ and predicts the token at $t$. Its input is the target shifted right by one place, beginning
# with the start mark `<s>`. All positions are trained at once; the look-ahead mask keeps them from
# seeing the answer.

# %% [markdown] zh
# ## 12. 微型训练
#
# 训练解码器用的是**教师强制**（teacher forcing）：在位置 $t$，它读入 $t$ 之前的正确词元，预测 $t$ 处的词元。它的输入就是译文整体右移一位，并以起始符 `<s>` 开头。所有位置同时训练，有了前瞻掩码，这样做才不算作弊。

# %%
labels = tokenizer(["Good morning."], return_tensors="pt").input_ids
inputs = model.prepare_decoder_input_ids_from_labels(labels)
print("decoder reads ", pictures.token_words(tokenizer, inputs[0].tolist()))
print("and predicts  ", pictures.token_words(tokenizer, labels[0].tolist()))

# %% [markdown] en
# Now a plain loop: 200 pairs, four batches of 50, Adam, Eq. 3. It prints how the model translates
# 早上好！ while it learns. Padding has the label -100, which the loss leaves out. With a warm-up of 400
# updates the rate only climbs: the model is done after 200.
#
# `allowed_future=True` is the experiment of Section 5: the decoder's self-attention gets a mask
# that forbids nothing.

# %% [markdown] zh
# 下面是一个朴素的训练循环：200 个句对，每批 50 个，共四批，用 Adam 和公式 (3)。训练过程中，我们看看模型把“早上好！”译成什么。填充位置的标签是 -100，不计入损失。预热设为 400 步，而模型 200 步就学完了，所以学习率一直在上升。
#
# `allowed_future=True` 就是第 5 节说的实验：给解码器的自注意力一个什么都不禁止的掩码。


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
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
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

# %% [markdown] en
# "Good morning." comes out. The loss does not go to zero: with label smoothing it cannot be lower
# than the entropy of $q$ (the dashed line).

# %% [markdown] zh
# "Good morning." 说出来了。损失不会降到零：用了标签平滑，它不可能低于 $q$ 的熵（虚线）。

# %%
figure, axis = plt.subplots(figsize=(6.4, 3))
axis.plot(losses)
axis.axhline(entropy, color="0.6", linestyle="--")
axis.set(xlabel="update", ylabel="training loss (nats per token)", ylim=(0, None))
axis.grid(alpha=0.4)

# %% [markdown] en
# **This is memorised, not learnt.** The model reproduces nearly all of its 200 sentences to the
# letter, and these are the only sentences it has ever seen. A new sentence gets a known one that
# resembles it ("I like fish."), or pieces of several, which need not even make words ("He is
# veryn."). Two hundred pairs cannot teach a language; the model cards of this project have models
# trained on tens of thousands.

# %% [markdown] zh
# **这是背下来的，不是学会的。** 模型几乎能一字不差地复述全部 200 个句子，而它见过的也只有这些句子。遇到新句子，它要么给出一个相近的旧句子（"I like fish."），要么把几个旧句子的片段拼在一起，有时连单词都拼不成（"He is veryn."）。两百个句对教不会一门语言；用几万个句对训练的模型，见本项目的模型卡片。

# %%
outputs = translate(trained, chinese)
right = sum(output == text for output, text in zip(outputs, english, strict=True))
print(f"{right} of {len(pairs)} training sentences to the letter\n")
assert right >= 190
for text in ("早上好！", "你有车吗？", "我喜欢狗。", "他很累。"):
    print(text, "(in the data)" if text in chinese else "(new)", translate(trained, [text])[0])

# %% [markdown] en
# And the model without the look-ahead mask? Its training loss ends even a little lower: it only has
# to copy the next input. In translation there is no next input to copy, and it gets not one
# sentence right.

# %% [markdown] zh
# 没有前瞻掩码的模型又如何呢？它的训练损失同样低，甚至还略低一点，因为它只需要把下一个输入抄过来。可是翻译的时候并没有下一个输入可抄，结果一个句子也没译对。

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

# %% [markdown] en
# ## 13. Greedy search, step by step
#
# The encoder runs once. The decoder starts from `<s>`; each step takes the most probable token and
# appends it, until the end mark `</s>` comes out.

# %% [markdown] zh
# ## 13. 逐步看贪心搜索
#
# 编码器只运行一次。解码器从 `<s>` 开始，每一步取概率最大的词元接在后面，直到出现结束符 `</s>`。

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

# %% [markdown] en
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

# %% [markdown] zh
# 大多数概率比 1 低几个百分点：这就是标签平滑的效果。
#
# ## 14. 束搜索（论文 6.1 节）
#
# 贪心搜索不能反悔。束搜索则始终保留最好的 4 个译文开头。一个已经结束、长度为 $L$ 个词元的译文 $Y$，得分为
#
# $$s(Y) = \frac{\log P(Y \mid X)}{((5 + L) / 6)^{\alpha}}, \qquad \alpha = 0.6$$
#
# 每多一个词元，对数概率只会变小，所以如果不除以这一项，短的译文就会占便宜。译文最多比源语言句子长 50 个词元。下面用朴素的代码写出束搜索，并检验它与本项目的结果相同。


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

# %% [markdown] en
# ## 15. Attention maps
#
# What do the heads look at? A model that has memorised 200 sentences has no grammar to show, so
# here is one that has learnt to translate: `everyday-en-de` comes with the package and knows short
# everyday sentences ([what it can do](../pretrained/README.md)). Rows attend, columns are attended
# to, and each row sums to one. The pieces of a word are joined.

# %% [markdown] zh
# ## 15. 注意力图
#
# 各个头在看什么？一个只背了 200 个句子的模型没有什么语法可言，所以这里换成一个学会了翻译的模型：本项目自带的 `everyday-en-de`，它把日常短句从英文译成德文（[它能做什么](../pretrained/README.md)）。每一行是一个查询，每一列是被看的位置，每行之和为 1。同一个单词的几个子词合并在一起。

# %%
folder = pretrained("everyday-en-de")
everyday = AutoModelForSeq2SeqLM.from_pretrained(folder)
reader = AutoTokenizer.from_pretrained(folder)
sentence = "My sister lost her keys on the way home."
attention_maps = pictures.attention_weights(everyday, reader, sentence)
print(attention_maps.target)
row_sums = torch.tensor(attention_maps.cross).sum(-1)  # (layers, h, words of the target)
assert_close(row_sums, torch.ones_like(row_sums), atol=1e-5, rtol=0)
pictures.plot_attention(attention_maps, kind="cross", layer=-1)

# %% [markdown] en
# In the decoder's self-attention everything above the diagonal is 0: the look-ahead mask. The
# diagonal is not 0: a position does see itself.

# %% [markdown] zh
# 在解码器的自注意力中，对角线以上全是 0，这是前瞻掩码的作用。对角线上不是 0：一个位置是能看到自己的。

# %%
assert (torch.tensor(attention_maps.decoder).triu(1) == 0).all()
assert (torch.tensor(attention_maps.decoder).diagonal(dim1=-2, dim2=-1) > 0).all()
pictures.plot_attention(attention_maps, kind="decoder", layer=-1)

# %% [markdown] en
# The paper's Figures 3 to 5 draw the same weights as lines, those of layer 5 of 6 of the encoder:
# the last but one, `layer=-2`. A colour is a head, and the stronger a line, the larger the weight.
# Figure 3 has one word in all heads: in the paper *making*, which belongs with *more difficult* much
# later in the sentence, here *lost*.

# %% [markdown] zh
# 论文的图 3 至图 5 把这些权重画成连线，取的是编码器 6 层中的第 5 层，也就是倒数第二层：`layer=-2`。一种颜色是一个头，线越深，权重越大。图 3 画的是一个词在所有头中的注意力：论文选的是 *making*，它与后面相隔很远的 *more difficult* 搭配；我们选 *lost*。

# %%
words = attention_maps.source_words
plot_attention_lines(attention_maps, layer=-2, words=[words.index("lost")])

# %% [markdown] en
# Figure 4 has one word in two heads. In the paper it is *its*, and the question is what *its* refers
# to; here it is *her*.

# %% [markdown] zh
# 图 4 画的是一个词在两个头中的注意力。论文画的是 *its*，要看的是它指代什么；这里画 *her*。

# %%
plot_attention_lines(attention_maps, layer=-2, heads=[0, 1], words=[words.index("her")])

# %% [markdown] en
# Figure 5 has single heads with all words.

# %% [markdown] zh
# 图 5 画的是单个头中所有词的注意力。

# %%
plot_attention_lines(attention_maps, layer=-2, heads=0)

# %% [markdown] en
# The paper's authors chose sentences and heads that show something. `figures.py` in this folder
# chooses the sentences by rule, and measures every head ([of another model](results/figures.cpu.md)).
# Try a sentence, a layer and heads of your own.

# %% [markdown] zh
# 论文作者挑选的是能看出规律的句子和头。本目录中的 `figures.py` 则按规则选句子，并测量每一个头（[另一个模型的结果](results/figures.cpu.md)）。换上你自己的句子、层和头试一试。

# %% [markdown] en
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

# %% [markdown] zh
# ## 流行的笔记常犯的错误
#
# > **“掩码就是把得分乘以 0。”** 得分为 0 并不等于不看：$e^0 = 1$，下面的输出中，被禁止的位置分到 0.17 的权重，比完全不加掩码时的 0.14 还多。如果把**权重**乘以 0，每行之和又不再是 1。正确的做法是在 softmax 之前把掩码加到得分上。
# >
# > **“一个词看不到它自己。”** 能看到，而且常常就在看自己；前瞻掩码允许 $s \le t$，包括对角线。如果连对角线也禁止，第一个位置就没有任何东西可看了。
# >
# > **“层归一化是在批次上归一化”**，或者是在各个位置上归一化。都不对：它只用一个词元的 d 个数（见第 7 节）。
# >
# > **忘了缩放。** 缩放有两处：得分除以 $\sqrt{d_k}$，这里是一个**头**的宽度，不是模型的宽度（见第 4 节）；词嵌入乘以 $\sqrt{d_{model}}$（见第 2 节）。
# >
# > **“先归一化，再过子层。”** 那是 `norm_first`，后来的变体。论文的层归一化在相加之后，最后一层后面也没有额外的归一化。
# >
# > **“解码器的每一层读取编码器中对应的那一层。”** 所有层读取的都是编码器最后一层的输出。
# >
# > **“先 softmax，再交叉熵。”** `cross_entropy` 自带 softmax。做两次 softmax，损失会变得很平，几乎学不动。
# >
# > **“训练时解码器也是一步一步循环的。”** 只有翻译时才是。训练时有了掩码，所有位置一次算完。

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

# %% [markdown] en
# More errors that need no code:
#
# | The note says | The paper says | Section |
# |---|---|---|
# | relating two distant positions takes ByteNet linearly many operations, ConvS2S logarithmically many | the other way round: linear for ConvS2S, logarithmic for ByteNet | 2 |
# | English-German has 450,000 pairs | "about 4.5 million sentence pairs" | 5.1 |
# | the paper removes Add & Norm and measures it | no row of Table 3 does. [Ours](results/table_3.cpu.md) do | 6.2 |
#
# A few lines of code settle the next ones. First, the stacks and their learned matrices:

# %% [markdown] zh
# 还有一些错误，不用写代码就能更正：
#
# | 笔记的说法 | 论文的说法 | 章节 |
# |---|---|---|
# | 关联两个相距较远的位置，ByteNet 所需的运算次数随距离线性增长，ConvS2S 按对数增长 | 正好相反：ConvS2S 线性增长，ByteNet 对数增长 | 2 |
# | 英德语料有 45 万个句对 | “约 450 万个句对” | 5.1 |
# | 论文做过去掉 Add & Norm 的消融实验 | 表 3 没有这样的行；[我们的表](results/table_3.cpu.md)里有 | 6.2 |
#
# 另一些错误，几行代码就能说清。先看编码器和解码器的层，以及层中的矩阵，它们是学出来的参数，不是超参数：

# %%
# "The N encoders work in parallel": each layer reads the output of the one before.
states = encoder.embed(sources.input_ids[1:], None, None)
for layer in encoder.layers:
    states = layer(states, None)
memory = encoder(sources.input_ids[1:]).last_hidden_state
assert_close(states, memory)

# %%
# "The sub-layer that the decoder adds is the masked one": it is cross-attention (Section 3.1).
# The mask is no sub-layer: it is added to the scores of the self-attention that both have.
added = dict(decoder.layers[0].named_children()).keys() - dict(layer.named_children()).keys()
assert added == {"cross_attn", "cross_attn_norm"}

# %%
# "K and V are the encoder's output": they are two different projections of it.
cross = decoder.layers[0].cross_attn
keys, values = cross.k_proj(memory), cross.v_proj(memory)
for one, other in ((keys, memory), (values, memory), (keys, values)):
    assert not torch.allclose(one, other, atol=0.1)

# %%
# "W_Q, W_K and W_V are hyper-parameters": they are learned, by their gradients, like all weights.
# Hyper-parameters are chosen before the training, such as d_model, the number of heads and d_k.
learner = Transformer(config)
learner(**sources, labels=sources.input_ids).loss.backward()
for layer in learner.model.encoder.layers:
    for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):
        assert projection.weight.grad.abs().sum() > 0

# %% [markdown] en
# Then the formulas, where most errors are about the axis. A query is a row: the mask forbids what is
# *above* the diagonal, the weights of a row sum to one, and the output is a sum over positions. Nor
# is the output the scores: these are numbers for pairs of positions, and only weight the sum.

# %% [markdown] zh
# 再看公式，这里的错误大多是弄错了轴。一个查询对应一行：掩码禁止的是对角线**以上**的部分，每一行权重之和为 1，输出是对各个位置求和。输出也不是得分：得分是每一对位置的一个数，只决定求和时的权重。

# %%
# The mask printed transposed: then position 0 sees all, and the last one sees itself alone.
causal = torch.ones(3, 3).tril().bool()
q = k = v = torch.randn(1, 1, 3, 16)
weights = eager_attention_forward(nn.Module().eval(), q, k, v, causal[None, None], 0.25)[1][0, 0]
transposed = eager_attention_forward(nn.Module().eval(), q, k, v, causal.T[None, None], 0.25)[1]
assert weights[0].tolist() == [1, 0, 0]  # the first position sees itself
assert transposed[0, 0, 0].min() > 0  # it sees the future
print(weights)

# %%
# "The output is the attention scores", or their softmax: scores and weights are numbers for a pair
# of positions, T x S. The output is the mean of the values with these weights, T x d_v.
output, weights = eager_attention_forward(nn.Module().eval(), q, k, v, causal[None, None], 0.25)
scores = (q @ k.mT * 0.25).masked_fill(~causal, -torch.inf)
assert_close(weights, scores.softmax(-1))
assert weights.shape == (1, 1, 3, 3)
assert_close(output.transpose(1, 2), weights @ v)
assert v.shape == (1, 1, 3, 16)
weights = weights[0, 0]

# %%
# "The output sums over the features": it sums over positions, for each feature on its own.
by_hand = torch.stack([sum(weights[t, s] * v[0, 0, s] for s in range(3)) for t in range(3)])
assert_close(weights @ v[0, 0], by_hand)

# %%
# "The FFN works on every dimension": on every *position*, and there all dimensions meet.
x = torch.randn(1, 3, d)
changed = x.clone()
changed[0, 1, 0] += 1  # one number of one position
moved = (ffn(changed) - ffn(x)).abs() > 1e-7
assert moved[0, 1].float().mean() > 0.9  # nearly all numbers of this position move
assert not moved[0, [0, 2]].any()  # and none of another

# %%
# `x.shape[0]` is no length: batches come first, so positions by it depend on the neighbours.
x = torch.zeros(2, 7, d)
assert encoder.embed_positions(x, None, 0).size(-2) == x.shape[1] == 7 != x.shape[0]

# %% [markdown] en
# Positions. The index $i$ is neither the position nor the dimension: it counts pairs of dimensions.
# The frequencies fall exponentially in it, each by the same factor. The learning rate does not fall
# exponentially, nor do the scores grow so with $d_k$: both follow a square root.
#
# Does $W_Q W_K^T$ destroy relative positions? With any two matrices the score of two
# encodings depends on both positions. But part of it survives: of each 2 × 2 block of
# $W_Q W_K^T$ that belongs to one frequency, the part $aI + bJ$, which commutes with rotations,
# depends on the distance alone. And a model can learn more: if $W_Q$ is the rotation by -3, each
# position looks back by three.

# %% [markdown] zh
# 最后看位置和向量。下标 $i$ 既不是位置，也不是维度，它数的是维度对。按指数下降的是各个 $i$ 的频率，相邻两个之比不变；学习率的下降和得分随 $d_k$ 的增大都不是指数的，而是按平方根。
#
# $W_Q W_K^T$ 会破坏相对位置吗？对任意两个矩阵，两个位置编码的得分与两个绝对位置都有关。但有一部分会保留下来：在 $W_Q W_K^T$ 中，每个频率对应一个 2 × 2 的块，其中形如 $aI + bJ$ 的部分与旋转可交换，它的贡献只取决于距离。模型还能学到更多：只要 $W_Q$ 是 -3 的旋转，每个位置就都往回看三个位置。

# %%
# "A larger i has a higher frequency": a lower one, down to almost 1 / 10000.
assert (frequencies.diff() < 0).all()
turns = (sinusoids(torch.arange(10_000), d)[:, ::2].diff(dim=0).sign().diff(dim=0) != 0).sum(0)
assert turns[0] > 3000
assert turns[-1] <= 1

# %%
# "i is the position", or "the dimension": pos is the position, and i counts pairs of dimensions,
# from 0 to d/2 - 1. The sine in dimension 2i and the cosine in 2i + 1 have one frequency.
assert len(frequencies) == d // 2
assert_close(PE[:, 0::2], (torch.arange(len(PE))[:, None] * frequencies).sin())
assert_close(PE[:, 1::2], (torch.arange(len(PE))[:, None] * frequencies).cos())

# %%
# "Exponentially": only the frequencies are, in i. Each is the one before times the same factor.
assert_close(frequencies[1:] / frequencies[:-1], frequencies[1].expand(d // 2 - 1))
# The learning rate falls as the inverse square root: four times the updates, half the rate. An
# exponential would halve it again after as many updates more.
rates = [noam_lr(step, d_model=512, warmup_steps=4000) for step in (10_000, 40_000, 70_000)]
assert_close(rates[1], rates[0] / 2)
assert rates[2] > 0.75 * rates[1]
# The scores grow as the square root of d_k (Section 4): 16 times the width, 4 times the spread.
spread = [(torch.randn(10_000, n) * torch.randn(10_000, n)).sum(-1).std() for n in (4, 64)]
assert_close(spread[1] / spread[0], torch.tensor(4.0), rtol=0.1, atol=0)

# %%
# "W_Q W_K^T loses relative positions": not the part that commutes with rotations.
product = torch.randn(d, d, dtype=torch.float64)  # any W_Q W_K^T
diagonal = (PE @ product @ PE.T).diagonal(offset=-3)
assert diagonal.std() > 1  # depends on both positions
J = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
blocks = [product[i : i + 2, i : i + 2] for i in range(0, d, 2)]
survives = [b.trace() / 2 * torch.eye(2) + (b[0, 1] - b[1, 0]) / 2 * J for b in blocks]
diagonal = (PE @ torch.block_diag(*survives) @ PE.T).diagonal(offset=-3)
assert_close(diagonal, diagonal[0].expand_as(diagonal))  # depends on the distance alone
looking_back = (PE @ rotation(-3, d).T) @ PE.T  # W_K = I
assert (looking_back[3:].argmax(-1) == torch.arange(len(PE) - 3)).all()

# %%
# "An embedding is a linear layer over one-hot vectors, so it costs a product": it is that product,
# which a lookup computes without multiplying.
ids = sources.input_ids
assert_close(nn.functional.one_hot(ids, V).float() @ table, nn.functional.embedding(ids, table))
assert_close(nn.functional.embedding(ids, table), encoder.embed_tokens(ids))

# %%
# "The embeddings are pretrained word vectors": they start at random and learn with all the rest.
fresh = Transformer(config)
assert fresh.model.shared.weight.requires_grad
assert_close(fresh.model.shared.weight.std().item(), d**-0.5, rtol=0.05, atol=0)
assert not torch.equal(fresh.model.shared.weight, table)
given = torch.randn(V, d) * d**-0.5  # whoever has vectors of this size may begin with them
fresh.model.shared.weight.data.copy_(given)
assert_close(fresh.lm_head.weight.detach(), given)  # but they become the softmax's rows too

# %%
# BatchNorm with small batches: its means are those of few tokens, and with one it has none.
features = torch.randn(4096, d)
errors = [features[:n].mean(0).square().mean().sqrt().item() for n in (4, 64, 1024)]
print("error of the mean of 4, 64 and 1,024 tokens:", *(f"{error:.3f}" for error in errors))
assert errors[0] > 3 * errors[1] > 9 * errors[2]  # 1 / sqrt(n)
one = torch.randn(1, d)
assert_close(batch_norm(one[None], gamma, beta, 1e-6), torch.zeros(1, 1, d))  # nothing is left
assert_close(norm(one), norm(torch.cat([one, features]))[:1])  # LayerNorm needs no others

# %% [markdown] en
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
# 5. **Other heads:** `train(encoder_attention_heads=1, decoder_attention_heads=1)`, or 32. Expect no difference:
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

# %% [markdown] zh
# ## 每次只改一处的练习
#
# 每个练习都写明了应当看到什么。`train` 接受配置中的任意字段；`change` 是一个函数，`train` 会用刚建好的模型调用它。其中的数字来自一次运行，你得到的可能略有出入。
#
# 1. **忘记词嵌入的缩放：**
#
#    ```python
#    def forget_scale(model):
#        for stack in (model.model.encoder, model.model.decoder):
#            stack.embed_tokens.register_forward_hook(lambda module, inputs, output: output / d**0.5)
#
#    train(change=forget_scale)
#    ```
#
#    50 轮之后，模型应当几乎什么也没学会：200 个句子只对 8 个。词的信息被位置信息淹没了。
# 2. **没有预热：** `train(warmup=1)`。损失应当停在 5 附近，一个句子也译不出来：最初几步的学习率高达 0.09，把权重甩到了回不来的地方。用 `train(warmup=4000)` 同样什么都译不出来，但损失还在下降：起步这么慢，200 次更新不够用。多训练几轮试试。
# 3. **不用标签平滑：** `train(label_smoothing=0.0)`。损失应当接近 0，译对的句子一样多。第 13 节里的概率会变成什么样？
# 4. **不用 dropout：** `train(dropout=0.0)`。应当更早学完，200 个句子全对：要死记硬背，dropout 只会碍事。`dropout=0.5` 训练 50 轮，只能译对几个。真实数据上正好相反：论文去掉 dropout，BLEU 下降 1.2（表 3 的 D 组）。这要训练很多步才看得出来：只训练 4,000 步时，[我们的小模型](results/table_3.cpu.md)还没有差别。
# 5. **改变头数：** `train(encoder_attention_heads=1, decoder_attention_heads=1)`，或者都改为 32。应当看不出差别，因为任务太简单。在论文中，只用一个头会损失 0.9 BLEU（表 3 的 A 组）。
# 6. **不用位置编码：**
#
#    ```python
#    def forget_positions(model):
#        for stack in (model.model.encoder, model.model.decoder):
#            stack.embed_positions.register_forward_hook(lambda module, inputs, output: 0 * output)
#
#    train(change=forget_positions)
#    ```
#
#    几乎所有句子都应当译对。为什么？两百个句子单凭用词就能区分；而在解码器中，前瞻掩码泄露了顺序：第一个位置只看到一个词元，第二个位置看到两个。请找出两个这样的编码器分不清的句子。
# 7. **平移位置：** 对训练好的模型，设 `trained.model.encoder.embed_positions.offset = 5`，解码器也一样。应当有四分之一的句子译错。正弦位置编码对任何位置都有定义，但模型只学过最前面的几个。
# 8. **忘记 $1 / \sqrt{d_k}$：** 对训练好的模型，把各层 `self_attn` 和 `cross_attn` 的 `scaling` 设为 1.0。应当只有 7 个左右的句子译错：这里的 $d_k$ 只有 32，介于第 4 节表中的 16 和 64 两行之间。表中的数字怎样解释这个结果？改用一个头（$d_k = 128$）训练，再做同样的改动，会错 37 个左右。
# 9. **奖励长句：** 在第 14 节用 `length_penalty=5.0`。排在首位的应当是一长串胡言乱语，一直到长度上限；用 0.0 时，次序与原来相同。
# 10. **先做层归一化：** `train(norm_first=True)`。结果应当差不多：只有两层，两种都容易训练。再给两者都加上 `encoder_layers=6, decoder_layers=6`：按论文的次序，六层比两层学得慢（50 轮之后对 190 个）。先做层归一化又能对多少个？
# 11. **反过来译：** 在 `train()` 之前交换 `chinese` 和 `english`，让模型用中文说 "Good morning."。应当译对 194 个左右。
