"""A model that a user has changed is decoded, drawn, evaluated and trained with the change.

The oracle is a slow beam search over `model(...)` without a cache. Each change must alter the
scores, or testing it would prove nothing.
"""

import logging
from collections import OrderedDict
from contextlib import nullcontext

import pytest
import torch
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from peft import LoraConfig, get_peft_model
from reference import authors_search
from slow_path import without_fast_path
from tiny_models import tiny_config
from torch import nn
from torch.nn.utils import parametrizations
from transformers import GenerationMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    create_causal_mask,
    eager_mask,
    sdpa_mask,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling, CausalLMOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from wandering_model import END, make_model

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    modeling_vanilla_transformer,
    translate,
)
from vanilla_transformer.beam_search import beam_search, evaluation_mode, returned_attention_weights
from vanilla_transformer.evaluation import score_model
from vanilla_transformer.fast import incremental_decoder, is_unmodified, onednn, unmodified
from vanilla_transformer.modeling_vanilla_transformer import (
    DecoderLayer,
    EncoderLayer,
    Stack,
    VanillaTransformerPreTrainedModel,
)
from vanilla_transformer.pipeline import VanillaTransformerTranslationPipeline
from vanilla_transformer.train import VanillaTransformerTrainer, VanillaTransformerTrainingArguments
from vanilla_transformer.train import trainer as trainer_module
from vanilla_transformer.train.cpu_settings import cpu_training_settings
from vanilla_transformer.visualization import attention_weights

TEXTS = ["a dog", "it is"]
MOST = 8  # tokens of a translation

# ---------------------------------------------------------------------------- what users do


def sigmoid_attention(module, query, key, value, attention_mask, scaling, **kwargs):
    """Sigmoids instead of the softmax, with the arguments that transformers passes."""
    weights = (query @ key.transpose(2, 3) * scaling).sigmoid()
    if attention_mask is not None:
        weights = weights * (
            attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
        )
    elif module.is_causal and query.size(2) > 1:
        weights = weights.tril()
    return (weights @ value).transpose(1, 2).contiguous(), weights


def register_an_attention(model, patch):
    patch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "sigmoid", sigmoid_attention)
    patch.setitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "sigmoid", eager_mask)
    model.set_attn_implementation("sigmoid")


def register_another_sdpa(model, patch):
    patch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", sigmoid_attention)


def without_the_second_word(*arguments, **options):
    options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    mask = sdpa_mask(*arguments, **options).clone()
    mask[..., 1:2] = False
    return mask


def register_a_mask(model, patch):
    patch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "hiding", sdpa_attention_forward)
    patch.setitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "hiding", without_the_second_word)
    model.set_attn_implementation("hiding")


def register_another_mask_for_sdpa(model, patch):
    patch.setitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "sdpa", without_the_second_word)


def patch_eager_attention(model, patch):
    patch.setattr(modeling_vanilla_transformer, "eager_attention_forward", sigmoid_attention)
    model.set_attn_implementation("eager")


def patch_eager_attention_but_use_another(model, patch):
    patch.setattr(modeling_vanilla_transformer, "eager_attention_forward", sigmoid_attention)


def patch_a_method_of_a_class(model, patch):
    residual = DecoderLayer.residual
    patch.setattr(DecoderLayer, "residual", lambda *arguments: 1.5 * residual(*arguments))


def patch_a_method_of_one_module(model, patch):
    embed = model.model.decoder.embed
    model.model.decoder.embed = lambda *arguments: -embed(*arguments)


def patch_positions(model, patch):
    patch.setattr(
        modeling_vanilla_transformer,
        "sinusoids",
        lambda positions, d_model, style: torch.ones(*positions.shape, d_model).double(),
    )


def wrap_forward(model, patch):
    forward = model.forward

    def sharper(*args, **kwargs):
        outputs = forward(*args, **kwargs)
        if outputs.logits is not None:
            outputs.logits = outputs.logits * 2
        return outputs

    model.forward = sharper


def hook_attention(model, patch):
    attention = model.model.decoder.layers[1].cross_attn
    attention.register_forward_hook(lambda module, inputs, output: (output[0] * 0, output[1]))


def hook_before_a_layer(model, patch):
    layer = model.model.decoder.layers[0]
    layer.register_forward_pre_hook(lambda module, inputs: (-inputs[0], *inputs[1:]))


def hook_the_softmax(model, patch):
    model.lm_head.register_forward_hook(lambda module, inputs, output: output.roll(1, dims=-1))


def hook_every_softmax(model, patch):
    def roll(module, inputs, output):
        return output.roll(1, dims=-1) if module is model.lm_head else None

    patch.setattr(nn.modules.module, "_global_forward_hooks", {0: roll})


def hook_before_every_softmax(model, patch):
    patch.setattr(nn.modules.module, "_global_forward_pre_hooks", OrderedDict())
    nn.modules.module.register_module_forward_pre_hook(
        lambda module, inputs: (-inputs[0],) if module is model.lm_head else None
    )


def patch_every_linear_layer(model, patch):
    forward = nn.Linear.forward
    patch.setattr(nn.Linear, "forward", lambda *arguments: 1.5 * forward(*arguments))


def patch_relu(model, patch):
    patch.setattr(nn.functional, "relu", lambda x, inplace=False: x.clamp(max=0))


class PreviousLayer(DecoderLayer):
    def forward(self, x, mask, memory, memory_mask, past, output_attentions=None):
        return super().forward(x, mask, memory, memory_mask, past=past) - x


def subclass_a_layer(model, patch):
    model.model.decoder.layers[1].__class__ = PreviousLayer


class Averaging(nn.Module):
    """The mean of the source instead of attention."""

    def __init__(self, width):
        super().__init__()
        self.out = nn.Linear(width, width).double()

    def forward(self, x, attention_mask=None, memory=None, **kwargs):
        mean = memory.mean(1, keepdim=True).expand(-1, x.size(1), -1)
        return self.out(mean), None


def replace_attention(model, patch):
    torch.manual_seed(5)
    model.model.decoder.layers[0].cross_attn = Averaging(model.config.d_model)


def parametrize(model, patch):
    parametrizations.weight_norm(model.lm_head)
    with torch.no_grad():
        model.lm_head.parametrizations.weight.original0[4::3] *= 1.3


def adapt(model, patch):
    torch.manual_seed(3)
    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj", "fc1", "lm_head"])
    adapted = get_peft_model(model, config)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter)
    return adapted


class Sharper(VanillaTransformerForConditionalGeneration):
    def forward(self, *args, **kwargs):
        outputs = super().forward(*args, **kwargs)
        return (
            outputs
            if outputs.logits is None
            else type(outputs)(**{**outputs, "logits": outputs.logits.roll(3, dims=-1)})
        )


def subclass_the_model(model, patch):
    model.__class__ = Sharper


def share_a_layer(model, patch):
    layers = model.model.decoder.layers
    model.model.decoder.layers = nn.ModuleList([layers[0], layers[0], layers[1]])
    model.config.decoder_layers = 3


def drop_the_first_layer(model, patch):
    model.model.decoder.layers = model.model.decoder.layers[1:]
    model.config.decoder_layers -= 1


class Pooled(nn.Module):
    """An encoder with an output more."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, *args, **kwargs):
        states = -self.encoder(*args, **kwargs).last_hidden_state
        return BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=states[:, 0])


def replace_the_encoder(model, patch):
    model.model.encoder = Pooled(model.model.encoder)


def write_by_data(model, patch):
    model.lm_head.weight.data[END, 9] += 30


CHANGES = [
    register_an_attention,
    register_another_sdpa,
    register_a_mask,
    register_another_mask_for_sdpa,
    patch_eager_attention,
    patch_eager_attention_but_use_another,
    patch_a_method_of_a_class,
    patch_a_method_of_one_module,
    patch_positions,
    wrap_forward,
    hook_attention,
    hook_before_a_layer,
    hook_the_softmax,
    hook_every_softmax,
    hook_before_every_softmax,
    patch_every_linear_layer,
    patch_relu,
    subclass_a_layer,
    replace_attention,
    parametrize,
    adapt,
    subclass_the_model,
    write_by_data,
]
# The model does not use this change; the next one changes weights, not code.
SAME = {patch_eager_attention_but_use_another}
STILL_PLAIN = {write_by_data}


@pytest.fixture
def unchanged(tokenizer, monkeypatch):
    monkeypatch.setattr(onednn, "SMALLEST", 0)
    monkeypatch.setattr(onednn, "LEAST_WORK", 0)
    unmodified._log.cache_clear()
    model = make_model(len(tokenizer), dropout=0.0)
    model.generation_config.max_new_tokens = None
    return model


@pytest.fixture(params=CHANGES, ids=lambda change: change.__name__)
def changed(request, unchanged, tokenizer, monkeypatch):
    """Return a model that was used and then changed, and the change."""
    list(translate(unchanged, tokenizer, TEXTS, max_new_tokens=3))
    torch.manual_seed(0)
    return request.param(unchanged, monkeypatch) or unchanged, request.param


def slowly(model, tokenizer, beam):
    """Return the oracle's scores and tokens, sentence by sentence."""
    ids = [tokenizer(text, return_tensors="pt")["input_ids"] for text in TEXTS]
    return [authors_search(model, source, beam, limit=MOST)[0] for source in ids]


def texts_of(tokenizer, found):
    return [tokenizer.decode(tokens, skip_special_tokens=True) for _, tokens in found]


# ------------------------------------------------------------------------------ what must hold


@pytest.fixture(scope="module")
def scores_without_change(tokenizer):
    return [score for score, _ in slowly(make_model(len(tokenizer), dropout=0.0), tokenizer, 4)]


def test_search_and_evaluation_use_the_changed_model(
    changed, tokenizer, caplog, scores_without_change
):
    model, change = changed
    expected = slowly(model, tokenizer, beam=4)
    same = [score for score, _ in expected] == pytest.approx(scores_without_change, abs=1e-6)
    assert same == (change in SAME)
    with caplog.at_level(logging.WARNING):
        for text, (score, tokens) in zip(TEXTS, expected, strict=True):
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            found = beam_search(model, ids, max_new_tokens=MOST)
            assert tuple(found.sequences[0, 0].tolist()) == tokens
            assert found.scores[0, 0].item() == pytest.approx(score, abs=1e-9)
    lines = [line for line in caplog.messages if "own modules" in line]
    assert len(lines) == (change not in STILL_PLAIN), lines
    translations = texts_of(tokenizer, expected)
    assert list(translate(model, tokenizer, TEXTS, max_new_tokens=MOST)) == translations
    by_pipeline = VanillaTransformerTranslationPipeline(model=model, tokenizer=tokenizer)
    answers = by_pipeline(TEXTS, max_new_tokens=MOST)
    assert [answer["translation_text"] for answer in answers] == translations
    scores = score_model(model, tokenizer, TEXTS, TEXTS, target_language="de", max_new_tokens=MOST)
    assert scores["hypotheses"] == translations


@pytest.mark.parametrize("change", [share_a_layer, drop_the_first_layer, replace_the_encoder])
def test_every_decoder_follows_changed_stacks(change, unchanged, tokenizer):
    before = slowly(unchanged, tokenizer, beam=4)
    change(unchanged, None)
    expected = slowly(unchanged, tokenizer, beam=4)  # without a cache
    assert [score for score, _ in expected] != pytest.approx([score for score, _ in before])
    for decoding in (nullcontext, without_fast_path):
        for text, (score, tokens) in zip(TEXTS, expected, strict=True):
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            with decoding():
                found = beam_search(unchanged, ids, max_new_tokens=MOST)
            assert tuple(found.sequences[0, 0].tolist()) == tokens
            assert found.scores[0, 0].item() == pytest.approx(score, abs=1e-9)


def test_alignments_are_those_of_the_layers_that_are_left(unchanged):
    unchanged.model.decoder.layers = unchanged.model.decoder.layers[:1]  # the config says 2
    ids = torch.tensor([[5, 7, 9, 2]])
    options = {"max_new_tokens": MOST, "return_alignments": True, "alignment_layer": -1}
    fast = beam_search(unchanged, ids, **options)
    with without_fast_path():
        slow = beam_search(unchanged, ids, **options)
    assert torch.equal(fast.sequences, slow.sequences)
    torch.testing.assert_close(fast.alignments, slow.alignments)


def test_training_uses_the_changed_model(changed, tokenizer, monkeypatch, tmp_path):
    model, _ = changed
    inputs = tokenizer(TEXTS[0], return_tensors="pt")
    batch = {"input_ids": inputs["input_ids"], "labels": inputs["input_ids"].flip(1)}
    expected = model.train()(**batch, return_logits=True).loss
    assert model(**batch).loss.item() == pytest.approx(expected.item(), abs=1e-9)
    found, translate_ = [], trainer_module.translate

    def recorded(*args, **kwargs):
        found.extend(translate_(*args, max_new_tokens=MOST, **kwargs))
        return iter(found)

    monkeypatch.setattr(trainer_module, "translate", recorded)
    arguments = VanillaTransformerTrainingArguments(tmp_path, use_cpu=True, report_to="none")
    trainer = VanillaTransformerTrainer(
        model,
        arguments,
        processing_class=tokenizer,
        validation_pairs=[(text, text) for text in TEXTS],
        target_language="de",
    )
    with cpu_training_settings(model):
        assert model(**batch).loss.item() == pytest.approx(expected.item(), abs=1e-9)
        trainer._greedy_scores()
    assert found == texts_of(tokenizer, slowly(model.eval(), tokenizer, beam=1))


def test_attention_is_drawn_from_the_changed_model(changed, tokenizer):
    model, change = changed
    no_weights = (replace_attention, register_a_mask, register_another_mask_for_sdpa)
    if change in (*no_weights, patch_eager_attention_but_use_another):
        # The first three have no weights; those of the last may not be the ones that `sdpa` uses.
        with pytest.raises(ValueError, match="returns no weights"):
            attention_weights(model, tokenizer, *TEXTS, merge_words=False)
        return
    ids = tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]
    labels = tokenizer(TEXTS[1], return_tensors="pt")["input_ids"]
    drawn = attention_weights(model, tokenizer, *TEXTS, merge_words=False)
    found = []
    attention = model.get_submodule(
        f"{'base_model.model.' if change is adapt else ''}model.decoder.layers.1.cross_attn"
    )
    implementation = model.config._attn_implementation
    if implementation == "sdpa" and change is not register_another_sdpa:
        model.set_attn_implementation("eager")
    with attention.register_forward_hook(lambda module, inputs, output: found.append(output[1])):
        decoder_input_ids = model.prepare_decoder_input_ids_from_labels(labels)
        model(input_ids=ids, decoder_input_ids=decoder_input_ids)
    assert torch.tensor(drawn.cross[1]).numpy() == pytest.approx(
        found[0][0].detach().numpy(), abs=1e-9
    )


def test_unchanged_model_is_decoded_fast_without_warning(unchanged, tokenizer, monkeypatch, caplog):
    taken = []

    def noted(*args, **kwargs):
        taken.append(incremental_decoder(*args, **kwargs))
        return taken[-1]

    monkeypatch.setitem(beam_search.__globals__, "FASTER_DECODERS", [noted])
    assert next(translate(unchanged, tokenizer, ["a"], max_new_tokens=2)) is not None
    # The hooks with which transformers records attention are no change.
    attention_weights(unchanged, tokenizer, *TEXTS)
    beam_search(unchanged, torch.tensor([[5, 2]]), max_new_tokens=2, return_alignments=True)
    unchanged.gradient_checkpointing_enable()
    beam_search(unchanged, torch.tensor([[5, 2]]), max_new_tokens=2)
    assert len(taken) == 3
    assert None not in taken
    assert not caplog.messages


def test_model_is_plain_while_another_thread_decodes_it(unchanged):
    model = unchanged.float()
    with torch.inference_mode(), onednn.packed_linears(model.model):
        assert is_unmodified(model)


def test_the_last_user_of_a_changed_model_restores_it(unchanged):
    unchanged.train()
    for change, changed in (
        (evaluation_mode, lambda: not unchanged.training),
        (returned_attention_weights, lambda: unchanged.config._attn_implementation == "eager"),
    ):
        first, second = change(unchanged), change(unchanged)
        for step, expected in (
            (first.__enter__, True),
            (second.__enter__, True),
            (lambda first=first: first.__exit__(None, None, None), True),
            (lambda second=second: second.__exit__(None, None, None), False),
        ):
            step()
            assert changed() is expected, change


def test_a_switch_of_the_attention_in_mid_batch_changes_nothing(unchanged):
    sources = torch.randint(4, 32, (3, 6))
    mask = (torch.arange(6) < torch.tensor([[6], [2], [4]])).long()
    encoder = unchanged.model.encoder
    with torch.no_grad():
        expected = encoder(sources, attention_mask=mask)[0]
        switch = returned_attention_weights(unchanged)  # by another thread, after the first layer
        encoder.layers[0].register_forward_hook(lambda *arguments: switch.__enter__())
        found = encoder(sources, attention_mask=mask)[0]
    switch.__exit__(None, None, None)
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()])


def test_sentences_keep_their_source_when_others_finish(monkeypatch):
    model = make_model()
    replace_attention(model, monkeypatch)  # reads the source anew at each position
    sources = torch.randint(4, 32, (6, 5))
    together = beam_search(model, sources)
    lengths = together.lengths[:, 0].tolist()
    assert len(set(lengths)) > 2
    for row, length in enumerate(lengths):
        alone = beam_search(model, sources[row : row + 1])
        assert torch.equal(together.sequences[row, 0, :length], alone.sequences[0, 0, :length])
        torch.testing.assert_close(together.scores[row], alone.scores[0])


def test_alignments_from_attention_without_weights_are_refused(unchanged, monkeypatch):
    replace_attention(unchanged, monkeypatch)
    with pytest.raises(ValueError, match=r"returns no weights.* must be a subclass of it"):
        beam_search(unchanged, torch.tensor([[5, 9, 2]]), max_new_tokens=4, return_alignments=True)


# -------------------------------------------------------------------------- a decoder alone


@strict
class LanguageModelConfig(VanillaTransformerConfig):
    model_type = "language_model_of_our_layers"
    is_encoder_decoder: bool = False


class LanguageModel(VanillaTransformerPreTrainedModel, GenerationMixin):
    """Layers without cross-attention under the causal mask: what predicts the next word."""

    config_class = LanguageModelConfig

    def __init__(self, config):
        super().__init__(config)
        layers = [EncoderLayer(config) for _ in range(config.encoder_layers)]
        self.model = Stack(config, config.vocab_size, layers)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self._tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
        self.post_init()

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def forward(self, input_ids, attention_mask=None, labels=None, **kwargs):
        x = self.model.embed(input_ids, None, attention_mask)
        mask = create_causal_mask(self.config, x, attention_mask, None)
        for layer in self.model.layers:
            x = layer(x, mask)
        logits = self.lm_head(self.model.norm(x))
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits[:, :-1].mT, labels[:, 1:])
        return CausalLMOutput(loss=loss, logits=logits)


def test_a_subclass_can_be_a_decoder_alone(tmp_path):
    torch.manual_seed(0)
    fields = {**tiny_config(20).to_diff_dict(), "use_cache": False}
    with pytest.raises(StrictDataclassError, match="requires is_encoder_decoder=False"):
        LanguageModelConfig(**fields)
    fields.pop("is_encoder_decoder")
    model = LanguageModel(LanguageModelConfig(**fields))
    assert model.config.is_encoder_decoder is False
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    texts = torch.tensor([[1, 5, 6, 7, 2], [1, 8, 9, 10, 2]])
    for _ in range(60):
        model(texts, labels=texts).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(tmp_path)
    loaded = LanguageModel.from_pretrained(tmp_path).eval()
    assert loaded.config.is_encoder_decoder is False
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    for text in texts:
        written = loaded.generate(text[None, :2], max_new_tokens=5, do_sample=False)
        assert written.tolist() == [text.tolist()]
