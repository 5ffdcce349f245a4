"""Draw attention weights as heat maps, with words as labels.

    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
    from vanilla_transformer import pretrained, visualization as pictures

    folder = pretrained("everyday-en-de")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    attention = pictures.attention_weights(model, tokenizer, "Where can I buy a ticket?")
    pictures.save_figure(pictures.plot_attention(attention), "attention.png")

`vanilla_transformer.train.curves` draws a training run, and `training/paper/attention_lines.py` in
the repository draws attention as lines, as Figures 3 to 5 do.
"""

from .attention import Attention as Attention
from .attention import attention_weights as attention_weights
from .attention import plot_attention as plot_attention
from .figure import save_figure as save_figure
from .subwords import token_words as token_words
