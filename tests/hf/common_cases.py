"""Marian and our model as cases of transformers' common tests; `run_common_tests.py` runs this.

The tests themselves come from a checkout of transformers on the path, as the package `tests`.
"""

import unittest

import torch
from transformers import MarianConfig, MarianModel, MarianMTModel, set_seed
from transformers.models.auto import modeling_auto

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)

# Many tests skip classes that transformers does not list.
model_type = VanillaTransformerConfig.model_type
modeling_auto.MODEL_MAPPING_NAMES[model_type] = VanillaTransformerModel.__name__
modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES[model_type] = (
    VanillaTransformerForConditionalGeneration.__name__
)

# After the settings above, which these modules read when they are imported.
from tests.generation.test_utils import GenerationTesterMixin  # noqa: E402
from tests.test_configuration_common import ConfigTester  # noqa: E402
from tests.test_modeling_common import ModelTesterMixin  # noqa: E402


class TinyModelTester:
    """The tiny configuration and inputs that the mixins need, the same for both models."""

    batch_size = 13
    seq_length = encoder_seq_length = decoder_seq_length = key_length = 7
    vocab_size = 99
    hidden_size = 16
    num_hidden_layers = 2
    num_attention_heads = 4
    is_training = True

    def __init__(self, config_class):
        self.config_class = config_class

    def get_config(self):
        return self.config_class(
            vocab_size=self.vocab_size,
            d_model=self.hidden_size,
            encoder_layers=self.num_hidden_layers,
            decoder_layers=self.num_hidden_layers,
            encoder_attention_heads=self.num_attention_heads,
            decoder_attention_heads=self.num_attention_heads,
            encoder_ffn_dim=4,
            decoder_ffn_dim=4,
            dropout=0.1,
            attention_dropout=0.1,
            max_position_embeddings=100,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )

    def prepare_config_and_inputs_for_common(self):
        shape = (self.batch_size, self.seq_length)
        source = torch.randint(4, self.vocab_size, shape)
        source[:, -1] = 2  # </s>
        target = torch.randint(4, self.vocab_size, shape)
        return self.get_config(), {
            "input_ids": source,
            "attention_mask": torch.ones_like(source),
            "decoder_input_ids": target,
            "decoder_attention_mask": torch.ones_like(target),
        }


class CommonTests(ModelTesterMixin, GenerationTesterMixin):
    is_encoder_decoder = True

    def setUp(self):
        set_seed(0)
        self.model_tester = TinyModelTester(self.config_class)
        self.config_tester = ConfigTester(self, config_class=self.config_class)

    def test_config(self):
        self.config_tester.run_common_tests()


class MarianTest(CommonTests, unittest.TestCase):
    config_class = MarianConfig
    all_model_classes = (MarianModel, MarianMTModel)


class VanillaTransformerTest(CommonTests, unittest.TestCase):
    config_class = VanillaTransformerConfig
    all_model_classes = (VanillaTransformerModel, VanillaTransformerForConditionalGeneration)
