"""Mutation tests: each row breaks one thing in the package, and its tests must fail.

Run it before and after a change that moves code or tests: what was caught before must still be
caught. Rows quote code and name tests by their ids; if you change either, fix the row.

    python tests/mutations.py                        # all rows
    python tests/mutations.py --only search          # rows with "search" in file, text or tests
    python tests/mutations.py --list

Rows that no test catches are kept, with the reason in `survives`. Only a copy of the tracked files
is changed. The exit code is 0 if every row that was run came out as expected.
"""

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, NoReturn

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
PACKAGE = "vanilla_transformer"
SECONDS = 300  # per row; a mutation may cause an endless loop
HEAVY = (
    *("pytest", "hypothesis", "torch", "transformers.modeling_utils", "transformers.pipelines"),
    *("transformers.trainer_seq2seq", "transformers.models.marian.modeling_marian"),
    *("datasets", "sacrebleu", "matplotlib.figure", "peft"),
)
# Tests of models that users have changed; a row appends the parameter in brackets.
SEARCHED = "test_changed_models.py::test_search_and_evaluation_use_the_changed_model"
TRAINED = "test_changed_models.py::test_training_uses_the_changed_model"
# Laws that many rows break.
SEARCH = "test_beam_search.py::test_search_equals_the_authors_search"
CHOICES = "evaluation/test_measures.py::test_every_choice_takes_the_texts_with_the_fewest_errors"
NO_PATH = "publish/test_publishing.py::test_no_path_of_this_machine_is_published"
TAGS = "data/test_language_names.py::test_tags_mean_each_other_unless_both_say_what_differs"
HOOKS = "test_modeling.py::test_every_hook_of_the_softmax_is_called_in_training_and_search"
FORWARD = "test_padding.py::test_a_forward_sees_what_its_masks_show_and_nothing_else"
EVALUATED = "test_padding.py::test_evaluation_and_collators_see_what_the_mask_shows"
ROUNDED = "test_beam_search.py::test_only_the_logits_of_half_precision_are_rounded"
SCALES = "convert/test_import_joeynmt.py::test_both_tables_are_scaled_alike"
SIGNS = "convert/test_import_torch.py::test_of_two_signs_that_of_more_tokens_joins"


class Mutation(NamedTuple):
    """A change that breaks the code, and the tests that must fail."""

    file: str  # path in the package
    old: str  # occurs in it exactly once
    new: str
    tests: str  # pytest ids relative to the tests folder, separated by spaces
    survives: str = ""  # why no test fails, if known


MUTATIONS = [
    # The model: attention and masks (Section 3.2).
    Mutation(
        "modeling_vanilla_transformer.py",
        "self.scaling = self.d_k**-0.5",
        "self.scaling = config.d_model**-0.5",
        "test_paper.py::test_eq1_scaled_dot_product_attention"
        " test_paper.py::test_multi_head_attention_is_h_heads_on_slices",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "mask = create_causal_mask(self.config, x, attention_mask, own_cache)",
        "mask = create_bidirectional_mask(self.config, x, attention_mask)",
        "test_paper.py::test_decoder_positions_see_themselves_and_earlier_ones_only",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "mask = create_bidirectional_mask(self.config, x, attention_mask)",
        "mask = None",
        "test_paper.py::test_padding_changes_nothing_and_gets_no_gradient",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "memory_mask = create_bidirectional_mask(self.config, x, source_mask, memory)",
        "memory_mask = None",
        "test_paper.py::test_padding_gets_weight_zero",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "if attention_mask is not None and attention_mask.dim() == 2:",
        "if False:",
        "test_parity.py::test_model_matches_the_equations_of_the_paper",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "if cache is not None and self.is_cross and cache.is_updated.get(layer):",
        "if cache is not None and cache.is_updated.get(layer):",
        "test_modeling.py::test_cached_decoding_equals_full_decoding[dynamic-paper]",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "scores = scores.to(torch.promote_types(scores.dtype, torch.float32)) + attention_mask",
        "scores = scores + attention_mask",
        "test_modeling.py::test_row_of_padding_gives_no_nan_and_changes_no_other_row",
    ),
    # The model: norms, residuals and dropout (Sections 3.1 and 5.4).
    Mutation(
        "modeling_vanilla_transformer.py",
        "return norm(x + self.dropout(sublayer(x)))",
        "return x + norm(self.dropout(sublayer(x)))",
        "test_paper.py::test_encoder_sublayer_is_norm_of_x_plus_sublayer_of_x",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "return x + self.dropout(sublayer(norm(x)))",
        "return norm(x) + self.dropout(sublayer(norm(x)))",
        "test_paper.py::test_norm_first_moves_the_norms_and_adds_one_after_each_stack",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "return self.dropout(x + self.embed_positions(x, attention_mask, past_length))",
        "return self.dropout(x) + self.embed_positions(x, attention_mask, past_length)",
        "test_paper.py::test_dropout_covers_the_sum_of_embedding_and_position",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "weights = nn.functional.dropout(weights, p=dropout, training=module.training)",
        "weights = nn.functional.dropout(weights, p=0.1, training=module.training)",
        "test_paper.py::test_attention_weights_and_relu_are_not_dropped_by_default",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "dropout = self.attention_dropout if self.training else 0.0",
        "dropout = self.attention_dropout",
        "test_parity.py::test_model_matches_the_equations_of_the_paper",
    ),
    # The model: positions, embeddings, softmax (Sections 3.4 and 3.5).
    Mutation(
        "modeling_vanilla_transformer.py",
        "return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)",
        "return torch.stack((angles.cos(), angles.sin()), dim=-1).flatten(-2)",
        "test_paper.py::test_sinusoids_by_formula",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "max(d_model // 2 - 1, 1)",
        "max(d_model // 2, 1)",
        "test_paper.py::test_tensor2tensor_sinusoids_follow_the_authors_code",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "x = inputs_embeds * math.sqrt(self.config.d_model)",
        "x = inputs_embeds * 1.0",
        "test_paper.py::test_embeddings_are_scaled_by_sqrt_d_model_and_logits_are_not",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        '_tied_weights_keys = {"lm_head.weight": f"model.{table}.weight"}',
        "_tied_weights_keys = {}",
        "test_paper.py::test_both_embeddings_and_the_softmax_share_one_matrix",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "init.normal_(module.weight, std=self.config.d_model**-0.5)",
        "init.normal_(module.weight, std=0.02)",
        "test_paper.py::test_embeddings_start_with_variance_one_over_d_model",
    ),
    Mutation(
        "configuration_vanilla_transformer.py",
        '        "dropout": 0.3,\n',
        '        "dropout": 0.1,\n',
        "test_configuration.py::test_preset_is_the_row_of_table_3",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "(tokens := positions.max() + 1) > len(self.weight)",
        "(tokens := positions.max() + 1) >= len(self.weight)",
        "test_modeling.py::test_padding_may_extend_beyond_learned_positions",
    ),
    # The loss (Section 5.4).
    Mutation(
        "loss.py",
        "return is_plain and linear.bias is None and not (hooks or replaced)",
        "return True",
        f"{TRAINED}[hook_the_softmax] {TRAINED}[adapt]",
    ),
    Mutation(
        "loss.py", "torch_module._has_any_global_hook() or ", "", f"{TRAINED}[hook_every_softmax]"
    ),
    Mutation(
        "loss.py",
        "torch_module._has_any_global_hook()",
        "bool(torch_module._global_forward_hooks)",
        HOOKS,
    ),
    Mutation(
        "fast/unmodified.py",
        " or torch_module._global_forward_pre_hooks",
        "",
        f"{SEARCHED}[hook_before_every_softmax]",
    ),
    Mutation(
        "fast/unmodified.py",
        "(*module._forward_hooks.values(), *module._forward_pre_hooks.values())",
        "module._forward_hooks.values()",
        HOOKS,
    ),
    Mutation(
        "loss.py",
        '"forward" in linear.__dict__ or nn.Linear.forward is not _LINEAR_FORWARD',
        '"forward" in linear.__dict__',
        f"{TRAINED}[patch_every_linear_layer]",
    ),
    Mutation(
        "loss.py",
        "is_plain and linear.bias is None and not",
        "is_plain and not",
        "test_modeling.py::test_bias_of_a_replaced_softmax_is_trained",
    ),
    Mutation("loss.py", '"_backward_hooks", "_backward_pre_hooks")', ")", HOOKS),
    Mutation(
        "loss.py",
        " and type(linear.weight) is nn.Parameter",
        "",
        "test_modeling.py::test_a_weight_of_another_kind_is_multiplied_by_its_own_layer",
    ),
    # Users' changes of the tables and of the stacks.
    Mutation(
        "modeling_vanilla_transformer.py",
        "else (cache, index)",
        "else (cache, 0)",
        "test_changed_models.py::test_every_decoder_follows_changed_stacks[share_a_layer]",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "eps = self.config.label_smoothing if self.training else 0.0",
        "eps = self.config.label_smoothing",
        "test_paper.py::test_label_smoothing_in_training_and_plain_loss_in_evaluation",
    ),
    Mutation("loss.py", "mask = text", "mask = torch.ones_like(text)", FORWARD),
    Mutation(
        "modeling_vanilla_transformer.py",
        "return shifted.masked_fill(is_gap & (rank < rank[:, -1:]), IGNORED)",
        "return shifted",
        "test_modeling.py::test_collated_pairs_have_one_loss_on_whichever_side_they_are_padded",
    ),
    Mutation(
        "generation_limits.py",
        "torch.full_like(padding, -1)",
        "padding",
        "test_modeling.py::test_rows_hold_padding_alone_after_their_first_end",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "packed.gather(1, rank - (~is_gap).long())",
        "packed.gather(1, rank)",
        "test_paper.py::test_decoder_input_is_the_target_offset_by_one_position",
    ),
    Mutation(
        "loss.py",
        "1 - label_smoothing, label_smoothing / table.size(0)",
        "1 - label_smoothing, label_smoothing / (table.size(0) - 1)",
        "test_loss.py::test_value_and_gradient_equal_the_plain_formula",
    ),
    Mutation(
        "loss.py",
        "return loss / num_items",
        "return loss / labels.numel()",
        "test_loss.py::test_num_items_divides_the_sum",
    ),
    Mutation(
        "loss.py",
        "None if g is None else g.div_(num_items)",
        "g",
        "test_loss.py::test_value_and_gradient_equal_the_plain_formula",
    ),
    Mutation(
        "loss.py",
        "@once_differentiable  # else our gradients would count as constants\n",
        "",
        "test_loss.py::test_second_derivatives_are_an_error_of_torch_and_never_zero",
    ),
    Mutation(
        "loss.py",
        "None if g is None else g.div_(num_items)",
        "None if g is None else g.div_(num_items).to(hidden.dtype)",
        "test_loss.py::test_scale_of_a_gradscaler_fits_a_model_in_float16",
    ),
    Mutation(
        "loss.py",
        "grad_table += grad_logits.t() @ (states * count.to(states.dtype))",
        "grad_table += grad_logits.t() @ states",
        "test_loss.py::test_loss_in_bfloat16_sums_in_float32"
        " test_loss.py::test_ignored_labels_have_neither_loss_nor_gradient"
        " test_loss.py::test_loss_compiles_as_one_graph",
        survives="on a CPU, rows without a label are removed earlier; bfloat16 on a GPU keeps them",
    ),
    Mutation(
        "loss.py",
        "row = -smooth * (hidden * counts).sum(0, dtype=sum_dtype)",
        "row = -smooth * hidden.sum(0, dtype=sum_dtype)",
        "test_loss.py::test_chunks_mask_ignored_labels_themselves",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "return labels if is_end else labels.masked_fill",
        "return labels.masked_fill",
        "test_padding.py::test_padding_may_be_the_end_in_forward_search_and_evaluation",
    ),
    # The paper's beam search (Section 6.1).
    Mutation(
        "beam_search.py",
        "decided | (self.ended_scores[:, -1] > -torch.inf)",
        "decided",
        "test_beam_search.py::test_search_equals_the_authors_search",
    ),
    Mutation(
        "beam_search.py",
        "ended & (torch.arange(ended.size(1), device=ended.device) < self.beam)",
        "ended",
        "test_beam_search.py::test_search_equals_the_authors_search",
    ),
    Mutation(
        "beam_search.py",
        "return ((5 + length) / 6) ** alpha",
        "return ((6 + length) / 7) ** alpha",
        "test_beam_search.py::test_a_wide_beam_equals_exhaustive_search",
    ),
    Mutation(
        "search_settings.py",
        "length_penalty: float = 0.6",
        "length_penalty: float = 1.0",
        "test_beam_search.py::test_search_without_settings_is_the_papers",
    ),
    Mutation(
        "search_settings.py",
        "{name: getattr(generation_config, name, None) for name in SAVED}",
        "dict.fromkeys(SAVED)",
        "test_search_settings.py::test_settings_are_the_calls_then_the_models_then_the_papers",
    ),
    Mutation(
        "ranges.py",
        "EXTRA_TOKENS = 50",
        "EXTRA_TOKENS = 51",
        "test_beam_search.py::test_wrong_arguments_are_named",
    ),
    Mutation(
        "beam_search.py",
        "return (mask.sum(1) + settings.max_extra_tokens)",
        "return (mask.sum(1) * 0 + mask.size(1) + settings.max_extra_tokens)",
        "test_beam_search.py::test_each_sentence_has_its_own_length_limit",
    ),
    Mutation(
        "generation_limits.py",
        'if kind == "learned" or getattr(',
        "if getattr(",
        "test_beam_search.py::test_learned_positions_limit_the_length",
    ),
    Mutation(
        "beam_search.py",
        "self.candidates = 1 if self.beam == 1 else self.beam * (1 + len(self.ends))",
        "self.candidates = self.beam",
        "test_beam_search.py::test_search_equals_the_authors_search",
    ),
    Mutation("beam_search.py", "self.beam * (1 + len(self.ends))", "self.beam * 2", SEARCH),
    Mutation(
        "beam_search.py",
        "ended = torch.isin(tokens, self.ends)",
        "ended = tokens == self.ends[:1].sum()",
        SEARCH,
    ),
    Mutation(
        "beam_search.py",
        "self.ended_scores[:, self.count - 1] > best / self.limit_penalties",
        "self.ended_scores[:, self.count - 1] > best / length_penalty_of(1, self.alpha)",
        "test_beam_search.py::test_search_equals_the_authors_search",
    ),
    Mutation(
        "beam_search.py",
        "decided = self.ended_scores[:, self.count - 1]",
        "decided = self.ended_scores[:, 0]",
        "test_beam_search.py::test_a_wide_beam_equals_exhaustive_search",
    ),
    Mutation(
        "beam_search.py",
        "self.ended_scores, picked = pool.topk(self.beam)",
        "self.ended_scores, picked = (part.flip(1) for part in pool.topk(self.beam))",
        SEARCH,
    ),
    Mutation(
        "beam_search.py",
        "picked = missing.long().argsort(dim=1, stable=True)[:, : self.count]",
        "picked = scores.argsort(dim=1, descending=True)[:, : self.count]",
        SEARCH,
    ),
    Mutation(
        "beam_search.py",
        "log_probs.index_fill_(-1, self.never, -torch.inf)",
        "log_probs.size()",
        SEARCH,
    ),
    Mutation(
        "beam_search.py",
        "log_probs.index_fill_(-1, self.never, -torch.inf)",
        "log_probs.index_fill_(-1, self.never, -torch.inf)[..., -1] = -torch.inf",
        "test_beam_search.py::test_a_wide_beam_equals_exhaustive_search",
    ),
    Mutation(
        "beam_search.py",
        "ids_outside_of_text() if n not in ends]",
        "ids_outside_of_text()]",
        SEARCH,
    ),
    Mutation(
        "beam_search.py",
        "if self.prefix is None or position >= self.prefix.size(1):",
        "if True:",
        SEARCH,
    ),
    Mutation(
        "beam_search.py",
        "best, picked = torch.cat((chosen, log_probs[..., blocks * BLOCK :]), dim=-1).topk(count)",
        "best, picked = chosen.topk(count)",
        "test_beam_search.py::test_best_tokens_found_in_blocks_equal_topk",
    ),
    Mutation(
        "beam_search.py",
        "log_probs[..., blocks * BLOCK :]), dim=-1)",
        "log_probs[..., blocks * BLOCK : -1]), dim=-1)",
        "test_beam_search.py::test_best_tokens_found_in_blocks_equal_topk",
    ),
    Mutation(
        "fast/incremental_decoding.py",
        "alignments.append(weights.mean(1))",
        "alignments.append(weights[:, 0])",
        "test_beam_search.py::test_alignments_are_the_models_cross_attention",
    ),
    Mutation(
        "beam_search.py",
        "tokens.masked_fill(tokens < 0, self.pad)",
        "tokens.masked_fill(tokens < 0, 0)",
        "test_beam_search.py::test_other_ids_of_all_tokens_only_rename_the_results",
    ),
    # The search over `model(...)`, for changed models.
    Mutation(
        "beam_search.py",
        "parents = ancestors[:, :, -1] - (self.rows - self.width)",
        "parents = ancestors[:, :, -1] * 0",
        "test_beam_search.py::test_search_equals_the_authors_search",
    ),
    Mutation(
        "beam_search.py",
        "        self.cached = self.cached[order]\n",
        "        self.cached = self.cached[: len(order)]\n",
        "test_beam_search.py::test_results_do_not_depend_on_the_batch_or_its_order",
    ),
    Mutation(
        "beam_search.py",
        "Inputs(None, mask[order], BaseModelOutput",
        "Inputs(None, mask[: len(order)], BaseModelOutput",
        "test_beam_search.py::test_results_do_not_depend_on_the_batch_or_its_order",
    ),
    Mutation(
        "beam_search.py",
        "BaseModelOutput(encoded[0][order])",
        "BaseModelOutput(encoded[0][: len(order)])",
        "test_changed_models.py::test_sentences_keep_their_source_when_others_finish",
    ),
    Mutation(
        "beam_search.py",
        "weights[layer][:, :, -1].mean(1)",
        "weights[-1][:, :, -1].mean(1)",
        "test_beam_search.py::test_alignments_are_the_models_cross_attention",
    ),
    Mutation(
        "beam_search.py",
        'return attention_of(chosen) == SDPA and attention_of("eager") == EAGER',
        "return True",
        f"{TRAINED}[register_another_sdpa] {TRAINED}[patch_eager_attention_but_use_another]",
    ),
    Mutation(
        "beam_search.py",
        "mask = ALL_MASK_ATTENTION_FUNCTIONS.get(implementation)",
        'mask = eager_mask if implementation == "eager" else sdpa_mask',
        f"{TRAINED}[register_a_mask] {SEARCHED}[register_another_mask_for_sdpa]",
    ),
    # Which models the fast path takes.
    Mutation(
        "fast/incremental_decoding.py",
        "if is_unmodified(model) else None",
        "if model else None",
        f"{SEARCHED}[wrap_forward]",
    ),
    # The fast path: the decoder, one position at a time.
    Mutation(
        "fast/incremental_decoding.py",
        "mask.scatter_(3, self._places_of(ancestors)[:, None], 0.0)",
        "mask.zero_()",
        "fast/test_incremental_decoding.py::test_steps_equal_the_whole_decoder_for_random_histories",
    ),
    Mutation(
        "fast/incremental_decoding.py",
        "places = (used.cumsum(1) - 1).clamp(min=0)",
        "places = (used.cumsum(1) - 2).clamp(min=0)",
        "fast/test_incremental_decoding.py::test_steps_equal_the_whole_decoder_for_random_histories",
    ),
    Mutation(
        "fast/incremental_decoding.py",
        "if 2 * most >= self.kept:",
        "if True:",
        "fast/test_incremental_decoding.py::test_cache_rows_of_dead_hypotheses_are_dropped",
    ),
    Mutation(
        "fast/incremental_decoding.py",
        "keys = keys * cross.scaling",
        "keys = keys * 1.0",
        "fast/test_fused_layer.py::test_search_over_folded_sources_finds_the_same"
        " fast/test_fused_layer.py::test_fused_layer_equals_its_modules",
    ),
    Mutation(
        "fast/incremental_decoding.py",
        "module.normalized_shape, module.weight, module.bias, module.eps",
        "module.normalized_shape, module.weight, module.bias, 1e-6",
        "fast/test_fused_layer.py::test_fused_layer_equals_its_modules",
    ),
    # Batches of texts, and the pipeline.
    Mutation(
        "batch_translation.py",
        "self.limits.repeat_interleave(rows_per_source)",
        "self.limits.repeat(rows_per_source)",
        "test_pipeline.py::test_generate_limits_each_translation_by_its_own_source",
    ),
    Mutation(
        "batch_translation.py",
        'criteria = options.get("stopping_criteria") or []',
        "criteria = []",
        "test_pipeline.py::test_generate_obeys_a_calls_own_limits",
    ),
    Mutation(
        "batch_translation.py",
        "if row == nothing or not text.strip()",
        "if not text.strip()",
        "test_pipeline.py::test_blank_text_beside_real_text_stays_blank_if_0_is_a_word",
    ),
    Mutation(
        "translation/many_texts.py",
        "size = min(window, 2 * size)",
        "size = 2 * size",
        "test_pipeline.py::test_no_more_than_a_window_of_texts_is_read_ahead",
    ),
    Mutation(
        "input_checks.py",
        '"dropout": options["dropout"] == 0,',
        '"dropout": True,',
        "test_host_contract.py::test_an_attention_that_ignores_an_option_is_refused[False-without_dropout]",
    ),
    Mutation(
        "input_checks.py",
        "(is_causal or says)",
        "is_causal",
        "test_host_contract.py::test_only_the_host_must_read_is_causal_where_nothing_is_causal",
    ),
    Mutation(
        "input_checks.py",
        "(is_causal or says)",
        "True",
        "test_host_contract.py::test_only_the_host_must_read_is_causal_where_nothing_is_causal",
    ),
    Mutation(
        "input_checks.py",
        "if not source or len(re",
        "if len(source) or len(re",
        "test_host_contract.py::test_an_attention_that_ignores_an_option_is_refused",
    ),
    Mutation(
        "input_checks.py",
        "if not source or len(re",
        "if len(re",
        "test_host_contract.py::test_an_attention_may_hand_its_options_on",
    ),
    Mutation(
        "input_checks.py",
        "> 1 + len(looked_up):",
        "> 99:",
        "test_host_contract.py::test_an_attention_may_hand_its_options_on",
    ),
    Mutation(
        "input_checks.py",
        "read |= {*looked_up, *re.findall(in_module, source)}",
        "read |= {*looked_up}",
        "test_changed_models.py::test_training_uses_the_changed_model[register_an_attention]",
    ),
    Mutation(
        "input_checks.py",
        "@torch.compiler.assume_constant_result",
        "@torch.compiler.disable",
        "test_modeling.py::test_model_compiles_as_one_graph[sdpa]",
    ),
    Mutation(
        "input_checks.py",
        "not in (None, 1):",
        "is None:",
        "test_search_settings.py::test_settings_of_decoder_only_models_are_refused_by_name[False-guidance_scale]",
    ),
    Mutation(
        "input_checks.py",
        "(ids == -100).any()",
        "(ids == -1).any()",
        "test_search_settings.py::test_gaps_in_a_beginning_are_refused_by_generate[search0]",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        '"dropout": dropout, "is_causal": self.is_causal}',
        '"dropout": dropout, "is_causal": False}',
        "test_paper.py::test_decoder_positions_see_themselves_and_earlier_ones_only",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "check_read(options, attend, attention_mask)",
        "check_read({**options, 'is_causal': None}, attend, attention_mask)",
        "test_host_contract.py::test_an_attention_that_ignores_an_option_is_refused[False-without_is_causal]",
    ),
    Mutation(
        "input_checks.py",
        '"is_causal": mask is not None}',
        '"is_causal": False}',
        "test_host_contract.py test_modeling.py test_changed_models.py",
    ),
    Mutation(
        "generation_limits.py",
        'if "Cache" in str(_FIELDS[name].type)',
        "if name in CACHE_NAMES",
        "test_host_contract.py::test_a_cache_with_a_new_name_in_outputs_is_named",
    ),
    Mutation(
        "input_checks.py",
        "set(ends) <= set(suppressed)",
        "set(ends) & set(suppressed)",
        "test_beam_search.py::test_a_generation_config_must_let_sentences_end",
    ),
    Mutation(
        "pipeline.py",
        'empty = pad if name == "sequences" else 0',
        "empty = 0",
        "test_pipeline.py::test_blank_text_beside_real_text_stays_blank_if_0_is_a_word",
    ),
    Mutation(
        "pipeline.py",
        "ids.new_empty((len(ids), count, 0))",
        "ids.new_empty((len(ids), 1, 0))",
        "test_pipeline.py::test_blank_text_is_not_passed_to_the_model",
    ),
    # Batches by a budget of tokens (Section 5.1).
    Mutation(
        "data/batches.py",
        "size = self.max_tokens // int(longest[bounds[-1] - 1])",
        "size = 1 + self.max_tokens // int(longest[bounds[-1] - 1])",
        "data/test_batching.py::test_batches_keep_the_budget_and_hold_every_example_once",
    ),
    Mutation(
        "data/batches.py",
        "return min(fewest + self.shuffle, len(longest))",
        "return fewest + self.shuffle",
        "data/test_batching.py::test_batches_keep_the_budget_and_hold_every_example_once",
    ),
    Mutation(
        "data/batches.py",
        "np.random.default_rng([self.seed, self.epoch, stream])",
        "np.random.default_rng([self.epoch, stream])",
        "data/test_batching.py::test_seed_and_epoch_decide_the_batches",
    ),
    Mutation(
        "data/batches.py",
        "np.random.default_rng([self.seed, self.epoch, stream])",
        "np.random.default_rng([self.seed, stream])",
        "data/test_batching.py::test_batches_of_two_epochs_differ_in_composition",
    ),
    Mutation(
        "data/batches.py",
        "largest = int(sizes.argmax())",
        "largest = 0",
        "data/test_batching.py::test_batches_keep_the_budget_and_hold_every_example_once",
    ),
    # Pairs that are made of few.
    Mutation(
        "data/augmentation.py",
        "pairs.take(_others(corpora, random.permutation(len(pairs))))",
        "pairs",
        "data/test_augmentation.py"
        "::test_each_pair_is_joined_with_others_in_the_same_order_on_both_sides",
    ),
    Mutation(
        "data/augmentation.py",
        "_others(corpora, random.permutation(len(pairs)))",
        "random.permutation(len(pairs))",
        "data/test_augmentation.py::test_a_made_pair_has_pairs_of_one_corpus",
    ),
    Mutation(
        "data/augmentation.py",
        "forward = [pairs, pairs, joined]",
        "forward = [pairs, joined]",
        "data/test_augmentation.py::test_each_kind_of_pair_has_its_share_of_the_tokens",
    ),
    Mutation(
        "data/augmentation.py",
        'yield made(table, tagged, table["source"], OPPOSITE)',
        'yield made(table, table["target"], table["source"], OPPOSITE)',
        "data/test_augmentation.py::test_the_opposite_direction_is_tagged_and_the_given_one_is_not",
    ),
    # The same updates by any number of processes.
    Mutation(
        "train/trainer.py",
        "if self._repeats_last and self.accelerator.gradient_state.end_of_dataloader:",
        "if False:",
        "train/test_two_processes.py::test_two_processes_train_as_one_with_an_odd_number_of_batches",
    ),
    Mutation(
        "train/trainer.py",
        "0 < left <= self.args.process_index",
        "0 < left < self.args.process_index",
        "train/test_two_processes.py::test_two_processes_train_as_one_with_an_odd_number_of_batches",
    ),
    # Typographic characters, and lengths after a transform.
    Mutation(
        "data/tokenizer.py",
        "        *after,\n",
        "",
        "data/test_tokenization.py::test_what_a_phone_types_has_the_tokens_of_ascii",
    ),
    Mutation(
        "data/tokenizer.py",
        "        *before,  # so that accents on them are composed\n        normalizers.NFC(),\n",
        "        normalizers.NFC(),\n        *before,\n",
        "data/test_tokenization.py::test_hard_texts_survive_encoding",
    ),
    Mutation(
        "data/dataset.py",
        'if dataset.format["type"] == "custom":',
        "if False:",
        "train/test_seq2seq_trainer.py::test_a_budget_holds_for_rows_that_a_transform_lengthens",
    ),
    # BPE-dropout.
    Mutation(
        "data/bpe_dropout.py",
        "rng.random(len(candidates)) < self.probability",
        "rng.random(len(candidates)) < self.probability / 2",
        "data/test_bpe_dropout.py::test_every_merge_is_undone_with_the_given_probability",
    ),
    Mutation(
        "data/bpe_dropout.py",
        "np.random.default_rng([self.seed, epoch, batch])",
        "np.random.default_rng([self.seed, batch])",
        "data/test_bpe_dropout.py::test_seed_epoch_and_batch_decide_the_draw",
    ),
    Mutation(
        "data/bpe_dropout.py",
        "self._taken_apart(side, parts, rng)",
        "self._taken_apart(side, parts, np.random.default_rng(epoch))",
        "data/test_bpe_dropout.py::test_source_and_target_of_the_same_text_are_split_independently",
    ),
    Mutation(
        "data/bpe_dropout.py",
        "_parts(target_tokenizer(tokenizer))",
        "_parts(tokenizer)",
        "data/test_bpe_dropout.py::test_each_side_is_split_by_the_merges_of_its_own_vocabulary",
    ),
    # Adam and the learning rate (Section 5.3).
    Mutation(
        "train/optimization.py",
        "min(step**-0.5, step * warmup_steps**-1.5)",
        "max(step**-0.5, step * warmup_steps**-1.5)",
        "test_paper.py::test_eq3_learning_rate",
    ),
    Mutation(
        "train/optimization.py",
        "return noam_lr(updates + 1, d_model=d_model",
        "return noam_lr(max(updates, 1), d_model=d_model",
        "test_paper.py::test_eq3_learning_rate",
    ),
    Mutation(
        "train/optimization.py",
        "ADAM_BETAS = (0.9, 0.98)",
        "ADAM_BETAS = (0.9, 0.999)",
        "test_paper.py::test_adam_with_the_papers_constants",
    ),
    # The mean of checkpoints (Section 6.1).
    Mutation(
        "train/averaging.py",
        "torch.zeros(tensor.shape, dtype=torch.float64)",
        "torch.zeros(tensor.shape, dtype=tensor.dtype)",
        "train/test_averaging.py::test_half_precision_is_summed_in_float64_and_keeps_its_dtype",
    ),
    Mutation(
        "train/averaging.py",
        "total += tensor",
        "total *= 0.5; total += tensor",
        "train/test_averaging.py::test_mean_equals_a_float64_mean_computed_by_hand",
    ),
    Mutation(
        "train/trainer.py",
        "self._plain_loss(some)",
        "loss",
        "train/test_trainer.py::test_eval_loss_is_the_token_mean_of_plain_cross_entropy",
    ),
    Mutation(
        "train/averaging.py",
        "companions += folder.parent.glob(GENERATION_CONFIG)",
        "pass",
        "train/test_averaging.py::test_last_checkpoints_of_a_run_or_stock_trainer_are_averaged",
    ),
    Mutation(
        "train/averaging.py",
        "last.absolute().parent, last.resolve().parent",
        "last.absolute().parent,",
        "train/test_averaging.py::test_last_checkpoints_of_a_run_or_stock_trainer_are_averaged",
    ),
    # Plain `generate` of a barely trained model.
    Mutation(
        "generation_limits.py",
        "generation_config.max_new_tokens = min(most, longest)",
        "pass",
        "test_modeling.py::test_generated_length_is_limited_by_default_to_source_plus_50",
    ),
    Mutation(
        "generation_limits.py",
        'if limits == ["max_length"]:',
        "if False:",
        "test_modeling.py::test_generated_length_is_limited_by_default_to_source_plus_50",
    ),
    Mutation(
        "generation_limits.py",
        "least = max(generation_config.min_new_tokens or 0, generation_config.min_length or 0)",
        "least = generation_config.min_new_tokens or 0",
        "test_modeling.py::test_generated_length_is_limited_by_default_to_source_plus_50",
    ),
    # The trainer.
    Mutation(
        "train/trainer.py",
        "torch.tensor([float(loss) * count, count], dtype=torch.float64)",
        "torch.tensor([float(loss), 1], dtype=torch.float64)",
        "train/test_trainer.py::test_eval_loss_is_the_token_mean_of_plain_cross_entropy",
    ),
    Mutation(
        "train/optimization.py",
        "return learning_rate / peak_rate(d_model=d_model, warmup_steps=warmup_steps)",
        "return learning_rate / peak_rate(d_model=d_model, warmup_steps=1)",
        "train/test_arguments.py::test_learning_rate_without_a_schedule_is_the_peak_of_eq3",
    ),
    Mutation(
        "train/trainer.py",
        "has_full_eval = self.args.bf16_full_eval or self.args.fp16_full_eval",
        "has_full_eval = False",
        "train/test_seq2seq_trainer.py::test_evaluation_in_bfloat16_is_the_stock_one",
    ),
    Mutation(
        "train/trainer.py",
        "            self.optimizer.eval()\n",
        "            pass\n",
        "train/test_trainer.py::test_evaluation_uses_the_averaged_weights_of_a_schedule_free_optimizer",
    ),
    Mutation(
        "train/trainer.py",
        "(self.state.global_step + 1) % self.state.logging_steps",
        "self.state.global_step % self.state.logging_steps",
        "train/test_trainer.py::test_each_line_of_the_log_has_the_norm_of_its_own_gradient",
    ),
    Mutation(
        "train/checkpoints.py",
        "now, tokens = self.seconds - self.evaluation_seconds",
        "now, tokens = self.seconds",
        "train/test_checkpoints.py::test_evaluations_count_in_the_time_and_not_in_the_speed",
    ),
    Mutation(
        "train/checkpoints.py",
        "best = MEASURES[watched].best if watched in MEASURES else min",
        "best = min",
        CHOICES,
    ),
    Mutation(
        "train/trainer.py",
        "not has_full_eval and not self._has_other_evaluation:",
        "not has_full_eval:",
        "train/test_seq2seq_trainer.py::test_the_evaluation_loss_is_that_of_what_was_replaced",
    ),
    Mutation(
        "train/trainer.py",
        "any(replaced) or type(self.data_collator) not in collators",
        "any(replaced)",
        "train/test_seq2seq_trainer.py::test_the_evaluation_loss_is_that_of_what_was_replaced",
    ),
    Mutation(
        "train/trainer.py",
        "        given.update(logs)",
        "        pass",
        "train/test_seq2seq_trainer.py::test_metrics_have_the_epoch_and_a_log_that_is_off_is_empty",
    ),
    Mutation(
        "train/trainer.py",
        "            compute_objective = compute_objective or _eval_loss",
        "            pass",
        "train/test_seq2seq_trainer.py::"
        "test_a_search_over_rate_and_batches_trains_with_what_it_tries",
    ),
    Mutation(
        "train/trainer.py",
        "if 0 < self.state.max_steps <= self.state.global_step:",
        "if False:",
        "train/test_streams.py::test_a_complete_training_is_not_continued",
    ),
    # Streams, pass after pass.
    Mutation(
        "train/resumption.py",
        "self._first + epoch, 0",
        "epoch, 0",
        "train/test_streams.py::test_a_stream_resumes_in_each_of_its_passes",
    ),
    Mutation(
        "train/resumption.py",
        "            restore()\n",
        "",
        "train/test_streams.py::test_a_stream_resumes_in_each_of_its_passes",
    ),
    Mutation(
        "train/resumption.py",
        "self.per_update))) == self.per_update:",
        "self.per_update))):",
        "train/test_streams.py::test_an_update_takes_batches_of_one_pass",
    ),
    # Padding, masks, and ids of 32 bits.
    Mutation(
        "evaluation/models.py",
        "- {*ends})",
        "- set())",
        "test_padding.py::test_padding_may_be_the_end_in_training",
    ),
    Mutation(
        "evaluation/models.py",
        'return ids[np.asarray(example.get("attention_mask", np.ones_like(ids))) != 0]',
        "return ids",
        EVALUATED,
    ),
    Mutation("loss.py", "mask = mask.bool() & text", "mask = text", FORWARD),
    Mutation("loss.py", "mask = mask.bool() & text", "mask = mask.bool()", FORWARD),
    Mutation(
        "data/dataset.py",
        'mask[real] = np.concatenate([row["attention_mask"] for row in features])',
        "pass",
        EVALUATED,
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "positions = attention_mask.bool().long().cumsum(-1) - 1",
        "positions = attention_mask.bool().long().cumsum(-1)",
        "test_padding.py::test_generate_sees_what_its_masks_show",
    ),
    Mutation(
        "loss.py",
        "if labels.dtype == torch.int32:",
        "if False:",
        "test_modeling.py::test_ids_and_labels_may_have_32_bits"
        " train/test_trainer.py::test_labels_of_32_bits_train_alike",
    ),
    # Measures of which the lower is better.
    Mutation(
        "evaluation/significance.py",
        "(difference > 0) != MEASURES[name].lower_is_better",
        "difference > 0",
        CHOICES,
    ),
    Mutation(
        "storage/metrics.py",
        '"cer": Measure("character error rate", lower_is_better=True)',
        '"cer": Measure("character error rate")',
        CHOICES,
    ),
    Mutation(
        "train/select_checkpoints.py",
        "best = measure.best(greedy.values())",
        "best = max(greedy.values())",
        CHOICES,
    ),
    Mutation(
        "train/select_checkpoints.py",
        "penalty = measure.best(beams, key=beams.__getitem__)",
        "penalty = max(beams, key=beams.__getitem__)",
        CHOICES,
    ),
    Mutation(
        "train/checkpoints.py",
        "best = MEASURES[watched].best if watched in MEASURES else min",
        "best = max if watched in MEASURES else min",
        CHOICES,
    ),
    Mutation(
        "train/curves.py",
        "measure.best for measure in MEASURES.values()}",
        "max for measure in MEASURES.values()}",
        CHOICES,
    ),
    Mutation(
        "train/arguments.py",
        '{"perplexity", *(name for name in MEASURES if MEASURES[name].lower_is_better)}',
        '{"perplexity"}',
        CHOICES,
    ),
    # Precision of scores.
    Mutation(
        "beam_search.py",
        "logits.log_softmax(-1, dtype=self.scores.dtype)",
        "logits.log_softmax(-1).to(self.scores.dtype)",
        ROUNDED,
    ),
    Mutation(
        "beam_search.py",
        "torch.promote_types(model.dtype, torch.float32),",
        "model.dtype,",
        ROUNDED,
    ),
    Mutation(
        "evaluation/models.py",
        ".to(torch.promote_types(row.dtype, torch.float32))",
        "",
        "evaluation/test_likelihood.py::test_only_the_logits_of_half_precision_are_rounded",
    ),
    # What is published.
    Mutation(
        "publish/card.py", 'for name in (*FILES, "tokenizer"):', "for name in FILES:", NO_PATH
    ),
    Mutation(
        "publish/card.py", 'recipe["init_from"] = Path(recipe["init_from"]).name', "pass", NO_PATH
    ),
    Mutation(
        "publish/card.py",
        'recipe.get("train_file") or Path(recipe["dataset"]).name',
        'recipe.get("train_file") or recipe["dataset"]',
        NO_PATH,
    ),
    Mutation(
        "publish/publishing.py",
        "is None else Path(output).name",
        "is None else str(output)",
        NO_PATH,
    ),
    Mutation(
        "publish/publishing.py", '("_name_or_path", "name_or_path", ', '("name_or_path", ', NO_PATH
    ),
    Mutation("recipes/options.py", '"test_file", "monolingual_target")', '"test_file")', NO_PATH),
    Mutation(
        "publish/card.py",
        'is_non_commercial(license) or license == "other"',
        "is_non_commercial(license)",
        "publish/test_publishing.py::test_a_model_of_non_commercial_pairs_says_so",
    ),
    Mutation(
        "publish/card.py",
        "if code != _iso_code(code)]",
        'if "_" in code]',
        "publish/test_publishing.py::test_languages_with_a_region_or_script_are_named_as_the_hub_allows",
    ),
    # Languages, and what other systems mean.
    Mutation("data/language_names.py", "variant != other_variant or any(", "any(", TAGS),
    Mutation(
        "data/language_names.py",
        "any(a != b for a, b in both if a and b)",
        "any(a != b for a, b in both)",
        TAGS,
    ),
    Mutation(
        "data/language_names.py",
        '(*Locale("en").scripts, *Locale("en").variants)',
        'Locale("en").scripts',
        "data/test_language_names.py::test_every_spelling_of_a_tag_has_one_language_and_one_script",
    ),
    Mutation(
        "train/back_translation.py",
        'hashlib.sha256("-".join(recipe.languages).encode())',
        "hashlib.sha256()",
        "train/test_back_translation.py::test_other_pairs_or_languages_have_another_digest",
    ),
    Mutation(
        "convert/importers/joeynmt.py",
        'used = ("encoder",) if model.get("tied_embeddings") else STACKS',
        'used = ("encoder",)',
        SCALES,
    ),
    Mutation(
        "convert/importers/joeynmt.py",
        'used = ("encoder",) if model.get("tied_embeddings") else STACKS',
        "used = STACKS",
        SCALES,
    ),
    Mutation(
        "convert/importers/vocabulary.py", "if joining > spaced:", "if joining >= spaced:", SIGNS
    ),
    Mutation(
        "convert/importers/vocabulary.py",
        'token.endswith("@@") and token != "@@"',
        'token.endswith("@@")',
        SIGNS,
    ),
    Mutation(
        "convert/importers/vocabulary.py",
        'joined = decoders.Replace("@@ ", "")',
        'joined = decoders.Replace("@@", "")',
        "convert/test_import_torch.py::test_word_tokenizer_joins_pieces_as_their_authors_do",
    ),
    # What a model is, and models of other systems.
    Mutation(
        "storage/identity.py",
        '"use_cache", "dtype", "torch_dtype"',
        '"use_cache", "position_offset", "dtype", "torch_dtype"',
        "storage/test_identity.py::test_every_field_that_changes_what_a_model_computes_is_part_of_its_config",
    ),
    Mutation(
        "convert/importers/fairseq.py",
        "longest = min(number(",
        "longest = max(number(",
        "convert/test_import_fairseq.py::test_imported_logits_equal_those_of_fairseq",
    ),
    Mutation(
        "convert/importers/joeynmt.py",
        '"encoder": (8, 4)',
        '"encoder": (4, 8)',
        "convert/test_import_joeynmt.py::test_stacks_without_sizes_have_those_of_joeynmt",
    ),
]


def main() -> int:
    """Run the rows that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="rows that hold this text")
    parser.add_argument("--list", action="store_true", help="show the rows and run nothing")
    options = parser.parse_args()
    rows = [row for row in MUTATIONS if options.only in " ".join(row)]
    faults = [f"{shown(row)}: found {times(row)} times" for row in rows if times(row) != 1]
    if faults or not rows:
        print("\n".join(faults) or f"no row holds {options.only!r}")
        return 1
    if options.list:
        print("\n".join(f"{shown(row)}  [{row.survives or row.tests}]" for row in rows))
        return 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as temporary:
        copy, home = Path(temporary).resolve() / "copy", Path(temporary).resolve() / "home"
        copy_tracked(copy)
        home.mkdir()
        import_heavy_libraries(home)
        return run_all(rows, copy, home)


def shown(row: Mutation) -> str:
    """Return a row's file and change on one line."""
    return " ".join(f"{row.file}: {row.old} -> {row.new or 'nothing'}".split())


def times(row: Mutation) -> int:
    """Return how often the old text occurs in the file."""
    path = ROOT / PACKAGE / row.file
    return path.read_text(encoding="utf-8").count(row.old) if path.is_file() else 0


def copy_tracked(copy: Path) -> None:
    """Copy the tracked files as they are in the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)


def import_heavy_libraries(home: Path) -> None:
    """Import what most tests use, once for all rows, with caches in `home`."""
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HOME": str(home)}  # both are read on import
    for name in HEAVY:
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)


def run_all(rows: list[Mutation], copy: Path, home: Path) -> int:
    """Run the tests once on unchanged code, then for each row; return the exit code."""
    tests = dict.fromkeys(test for row in rows for test in row.tests.split())
    code, output, seconds = run_tests(list(tests), copy, home)
    if code != 0:
        print(f"{output}\nThese tests do not pass on the unchanged code.")
        return 1
    print(
        f"{len(tests)} selections of tests pass on the unchanged code, {seconds:.0f} s.", flush=True
    )
    counts = {"caught": 0, "SURVIVED": 0, "error": 0}
    unexpected = 0
    for number, row in enumerate(rows, start=1):
        status, output, seconds = run_row(row, copy, home)
        counts[status] += 1
        as_expected = status == ("SURVIVED" if row.survives else "caught")
        unexpected += not as_expected
        if row.survives:
            status = "survived (known)" if as_expected else f"{status} (known to survive)"
        if status.startswith("error"):
            print("\n".join(output.splitlines()[-20:]))
        print(f"{number}/{len(rows)} {status}, {seconds:.1f} s: {shown(row)}", flush=True)
    caught, survived, errors = counts.values()
    print(f"{caught} caught, {survived} survived, {errors} errors")
    return min(unexpected, 1)


def run_row(row: Mutation, copy: Path, home: Path) -> tuple[str, str, float]:
    """Return the status of a row, the output of its tests and the seconds they took."""
    path = copy / PACKAGE / row.file
    text = path.read_text(encoding="utf-8")
    replace(path, text.replace(row.old, row.new))
    try:
        code, output, seconds = run_tests(row.tests.split(), copy, home)
    finally:
        replace(path, text)
    return {0: "SURVIVED", 1: "caught"}.get(code, "error"), output, seconds


def replace(path: Path, text: str) -> None:
    """Write a file and delete its compiled forms, which Python could take for current."""
    path.write_text(text, encoding="utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()


def run_tests(tests: list[str], copy: Path, home: Path) -> tuple[int, str, float]:
    """Return pytest's exit code (-1 if it took too long), its output and the seconds.

    The tests run in a fork: it has already imported the heavy libraries, which takes longer than
    most tests, but nothing of the package.
    """
    for path in home.iterdir():  # caches written by broken code must not affect the next row
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    started = time.monotonic()
    limit = SECONDS * (1 if len(tests) < 20 else 10)
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            become_pytest(tests, copy, output.fileno())
        code = None
        while code is None and time.monotonic() - started < limit:
            time.sleep(0.02)
            done, status = os.waitpid(child, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if done else None
        if code is None:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            code = -1
        output.seek(0)
        return code, output.read().decode(errors="replace"), time.monotonic() - started


def become_pytest(tests: list[str], copy: Path, output: int) -> NoReturn:
    """Run tests of the copy in this process, then exit."""
    code = -1
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(copy)
        sys.path[0] = str(copy)
        folders = [str(copy), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
        if Path(importlib.util.find_spec(PACKAGE).origin).is_relative_to(copy):
            pytest = importlib.import_module("pytest")
            hypothesis = importlib.import_module("hypothesis")  # a failure is enough: no shrinking
            phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
            hypothesis.settings.register_profile("mutations", phases=phases)
            hypothesis.settings.load_profile("mutations")
            places = [f"{TESTS.name}/{test}" for test in tests]
            options = ["-q", "-x", "-p", "no:cacheprovider", "-n", "0"]
            code = int(pytest.main([*options, "-m", "not slow and not gpu", *places]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
