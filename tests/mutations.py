"""Mutation tests: each row breaks one thing in the package, and its tests must fail.

Run it before and after a change that moves code or tests: what was caught before must still be
caught. Rows quote code and name tests by their ids; if you change either, fix the row.

    python tests/mutations.py                        # all rows
    python tests/mutations.py --only search          # rows with "search" in file, text or tests
    python tests/mutations.py --list

Rows that no test catches are kept, with the reason in `survives`. A row is left out, and reported,
if its tests need a package that is not installed. Only a copy of the tracked files is changed. The
exit code is 0 if every row that was run came out as expected.
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


class Mutation(NamedTuple):
    """A change that breaks the code, and the tests that must fail."""

    file: str  # path in the package
    old: str  # occurs in it exactly once
    new: str
    tests: str  # pytest ids relative to the tests folder, separated by spaces
    survives: str = ""  # why no test fails, if known
    needs: str = ""  # optional packages that the tests need, separated by spaces


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
        '_tied_weights_keys = {"lm_head.weight": "model.shared.weight"}',
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
        "return type(linear) is nn.Linear and linear.bias is None and not (hooks or replaced)",
        "return True",
        f"{TRAINED}[hook_the_softmax] {TRAINED}[adapt]",
    ),
    Mutation(
        "loss.py",
        "hooks or torch_module._has_any_global_hook()",
        "hooks",
        f"{TRAINED}[hook_every_softmax]",
    ),
    Mutation(
        "loss.py",
        '"forward" in linear.__dict__ or nn.Linear.forward is not _LINEAR_FORWARD',
        '"forward" in linear.__dict__',
        f"{TRAINED}[patch_every_linear_layer]",
    ),
    Mutation(
        "loss.py",
        "return type(linear) is nn.Linear and linear.bias is None and not (hooks or replaced)",
        "return type(linear) is nn.Linear and not (hooks or replaced)",
        "test_modeling.py::test_bias_of_a_replaced_softmax_is_trained",
    ),
    Mutation(
        "loss.py",
        "    hooks = hooks or linear._backward_hooks or linear._backward_pre_hooks\n",
        "",
        "test_modeling.py::test_backward_hooks_of_the_softmax_are_called_in_training",
    ),
    # Tables that spreadsheets write.
    Mutation(
        "data/readers.py",
        "            lines.give_back()\n",
        "",
        "test_reading.py::test_stray_quote_costs_one_line",
    ),
    Mutation(
        "data/readers.py",
        "if any(cell.strip() for cell in row[width:]):",
        "if False:",
        "test_reading.py::test_cells_with_an_unquoted_comma_are_malformed",
    ),
    Mutation(
        "recipes/recipe.py",
        "            untrue |= {*replaced}\n",
        "            untrue |= {*columns}\n",
        "test_recipes.py::"
        "test_files_are_not_read_without_the_columns_that_the_recipe_gives_for_them",
    ),
    Mutation(
        "train/evaluating.py",
        "for name in TRAINING_FILES & began.keys():",
        'for name in {"train"} & began.keys():',
        "test_runs.py::test_folder_of_pairs_must_stay_as_it_was",
    ),
    # Users' changes of the tables and of the stacks.
    Mutation(
        "modeling_vanilla_transformer.py",
        "nn.Embedding.from_pretrained(value.weight.clone(), False)",
        "value",
        "test_modeling.py::test_resizing_an_untied_model_keeps_its_logits",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "else (cache, index)",
        "else (cache, 0)",
        "test_changed_models.py::test_every_decoder_follows_changed_stacks[share_a_layer]",
    ),
    Mutation(
        "fast/onednn.py",
        "(parameter.size(-1) * size, parameter.storage_offset() * size)",
        "(parameter.size(-1) * size,)",
        "test_onednn.py::"
        "test_parameters_in_one_flat_tensor_and_strided_biases_are_searched_as_well",
    ),
    Mutation(
        "word_alignment.py",
        "if byte_level and text and index not in added:",
        "if byte_level and text:",
        "test_pipeline.py::test_words_that_a_user_has_added_are_words",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "eps = self.config.label_smoothing if self.training else 0.0",
        "eps = self.config.label_smoothing",
        "test_paper.py::test_label_smoothing_in_training_and_plain_loss_in_evaluation",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "shifted = labels.roll(1, dims=1)",
        "shifted = labels.clone()",
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
        "if torch.is_grad_enabled() and not traced:",
        "if False:",
        "test_loss.py::test_gradients_can_be_differentiated_again",
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
    # The paper's beam search (Section 6.1).
    Mutation(
        "beam_search.py",
        "if any(cache is not None and cache.get_seq_length() for cache in caches):",
        "if False:",
        "test_beam_search.py::test_learned_prompts_are_left_to_generate",
    ),
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
        "publish/card.py",
        "        example=(right or samples)[0],\n",
        "        example=samples[0],\n",
        "test_publishing.py::test_cards_example_is_a_correct_translation_if_there_is_one",
    ),
    Mutation(
        "storage/reading.py",
        "    _add_numbers(Dumper)  # quotes text that looks like a number\n",
        "",
        "test_recipes.py::test_accepted_text_survives_writing_and_reading",
    ),
    Mutation(
        "beam_search.py",
        "return ((5 + length) / 6) ** alpha",
        "return ((6 + length) / 7) ** alpha",
        "test_beam_search.py::test_a_wide_beam_equals_exhaustive_search",
    ),
    Mutation(
        "beam_search.py",
        "NUM_BEAMS_OF_THE_PAPER, LENGTH_PENALTY_OF_THE_PAPER = 4, 0.6",
        "NUM_BEAMS_OF_THE_PAPER, LENGTH_PENALTY_OF_THE_PAPER = 4, 1.0",
        "test_beam_search.py::test_search_without_settings_is_the_papers",
    ),
    Mutation(
        "beam_search.py",
        'length_penalty = getattr(model.generation_config, "length_penalty", None)',
        "length_penalty = 0.6",
        "test_beam_search.py::test_beams_and_penalty_default_to_the_generation_config",
    ),
    Mutation(
        "ranges.py",
        "EXTRA_TOKENS = 50",
        "EXTRA_TOKENS = 51",
        "test_beam_search.py::test_wrong_arguments_are_named",
    ),
    Mutation(
        "beam_search.py",
        "return (mask.sum(1) + extra_tokens).clamp(max=longest)",
        "return (mask.sum(1) * 0 + mask.size(1) + extra_tokens).clamp(max=longest)",
        "test_beam_search.py::test_each_sentence_has_its_own_length_limit",
    ),
    Mutation(
        "beam_search.py",
        'if kind == "learned" or getattr(',
        "if getattr(",
        "test_beam_search.py::test_learned_positions_limit_the_length",
    ),
    Mutation(
        "beam_search.py",
        "self.candidates = 1 if num_beams == 1 else num_beams * (1 + len(self.ends))",
        "self.candidates = num_beams",
        "test_beam_search.py::test_search_equals_the_authors_search",
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
        "test_beam_search.py::test_n_best_are_sorted_distinct_and_scored_by_the_model",
    ),
    Mutation(
        "beam_search.py",
        "picked = missing.long().argsort(dim=1, stable=True)[:, : self.count]",
        "picked = scores.argsort(dim=1, descending=True)[:, : self.count]",
        "test_beam_search.py::test_finished_hypotheses_come_before_cut_off_ones",
    ),
    Mutation(
        "beam_search.py",
        "log_probs.index_fill_(-1, self.never, -torch.inf)",
        "log_probs.size()",
        "test_beam_search.py::test_padding_start_and_unknown_are_never_produced",
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
        "test_beam_search.py::test_end_token_may_be_the_start_token",
    ),
    Mutation(
        "beam_search.py",
        "if self.prefix is None or position >= self.prefix.size(1):",
        "if True:",
        "test_beam_search.py::test_translations_begin_with_their_prefix",
    ),
    Mutation(
        "beam_search.py",
        "forced = self.prefix[sources, position, None]",
        "forced = self.prefix[: len(log_probs), position, None]",
        "test_beam_search.py::test_logits_of_some_sources_at_a_time_find_the_same",
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
        "            module.training = True",
        "            module.training = False",
        "test_beam_search.py::test_search_runs_without_dropout_and_restores_training_mode",
    ),
    Mutation(
        "batch_translation.py",
        'found.setdefault("max_new_tokens", bound - 1)',
        'found.setdefault("max_new_tokens", bound)',
        "test_pipeline.py::test_callers_length_limit_is_kept",
    ),
    Mutation(
        "batch_translation.py",
        'found["max_extra_tokens"] = None',
        'found["max_extra_tokens"] = 50',
        "test_pipeline.py::test_callers_length_limit_is_kept",
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
        "[weights[order] for weights in self.alignments]",
        "[weights[: len(order)] for weights in self.alignments]",
        "test_beam_search.py::test_results_do_not_depend_on_the_batch_or_its_order",
    ),
    Mutation(
        "beam_search.py",
        "weights[layer][:, :, -1].mean(1)",
        "weights[-1][:, :, -1].mean(1)",
        "test_beam_search.py::test_alignments_are_the_models_cross_attention",
    ),
    Mutation(
        "beam_search.py",
        "weights[layer][:, :, -1].mean(1)",
        "weights[layer][:, 0, -1]",
        "test_beam_search.py::test_alignments_are_the_models_cross_attention",
    ),
    Mutation(
        "beam_search.py",
        "if len(weights) != len(self.model.get_decoder().layers):",
        "if False:",
        "test_changed_models.py::test_alignments_from_attention_without_weights_are_refused",
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
    Mutation(
        "beam_search.py",
        "return part.max_length == config.max_length",
        "return True",
        "test_beam_search.py::test_generate_refuses_parts_and_ids_of_the_call",
    ),
    Mutation(
        "beam_search.py",
        'if mask is not None and mask.device.type == "cpu" and not mask.any(1).all():',
        "if False:",
        "test_beam_search.py::test_a_source_without_tokens_is_refused",
    ),
    # Which models the fast path takes.
    Mutation(
        "fast/incremental_decoding.py",
        "if not is_plain(model):",
        "if False:",
        f"{SEARCHED}[wrap_forward]",
    ),
    Mutation(
        "fast/plain.py",
        "if kind not in _AS_IMPORTED and not _is_activation(module):",
        "if False:",
        f"{SEARCHED}[subclass_attention]",
    ),
    Mutation(
        "fast/plain.py",
        "if not functions.items() <= vars(owner).items():",
        "if False:",
        f"{SEARCHED}[patch_a_method_of_a_class] {SEARCHED}[patch_positions]",
    ),
    Mutation(
        "fast/plain.py",
        "if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:",
        "if False:",
        f"{SEARCHED}[hook_every_module]",
    ),
    Mutation(
        "fast/plain.py",
        'is_method = getattr(own, "__func__", None) is getattr(kind, name)',
        "is_method = True",
        f"{SEARCHED}[patch_a_method_of_one_module]",
    ),
    Mutation(
        "fast/plain.py",
        '        ("lm_head", model.lm_head),\n',
        "",
        f"{SEARCHED}[hook_the_softmax]",
    ),
    Mutation(
        "fast/plain.py",
        "if attention_of(chosen) not in (EAGER, SDPA):",
        "if False:",
        f"{SEARCHED}[register_an_attention]",
    ),
    Mutation(
        "fast/onednn.py",
        "if _has_many_rows(x) or not _can_pack() or x.dtype != self.module.weight.dtype:",
        "if _has_many_rows(x):",
        "test_onednn.py::test_an_encoder_that_chooses_its_precision_is_searched",
    ),
    Mutation(
        "fast/plain.py",
        'if any(getattr(hook, "__module__", None) not in _HARMLESS for hook in hooks):',
        "if False:",
        f"{SEARCHED}[hook_attention]",
    ),
    # The fast path: the decoder, one position at a time.
    Mutation(
        "fast/incremental_decoding.py",
        "mask.scatter_(3, self._places_of(ancestors)[:, None], 0.0)",
        "mask.zero_()",
        "test_incremental_decoding.py::test_steps_equal_the_whole_decoder_for_random_histories",
    ),
    Mutation(
        "fast/incremental_decoding.py",
        "places = (used.cumsum(1) - 1).clamp(min=0)",
        "places = (used.cumsum(1) - 2).clamp(min=0)",
        "test_incremental_decoding.py::test_steps_equal_the_whole_decoder_for_random_histories",
    ),
    Mutation(
        "fast/incremental_decoding.py",
        "if 2 * most >= self.kept:",
        "if True:",
        "test_incremental_decoding.py::test_cache_rows_of_dead_hypotheses_are_dropped",
    ),
    Mutation(
        "beam_search.py",
        "order[holes] = kept[kept.numel() - holes.numel() :]",
        "order[holes] = kept[: holes.numel()]",
        "test_beam_search.py::test_results_do_not_depend_on_the_batch_or_its_order",
    ),
    Mutation(
        "fast/incremental_decoding.py",
        "keys = keys * cross.scaling",
        "keys = keys * 1.0",
        "test_fused_layer.py::test_search_over_folded_sources_finds_the_same"
        " test_fused_layer.py::test_fused_layer_equals_its_modules",
    ),
    Mutation(
        "fast/incremental_decoding.py",
        "module.normalized_shape, module.weight, module.bias, module.eps",
        "module.normalized_shape, module.weight, module.bias, 1e-6",
        "test_fused_layer.py::test_fused_layer_equals_its_modules",
    ),
    # Packed weights.
    Mutation(
        "fast/onednn.py",
        "if known is None or not _are_unchanged(parameters, known.seen):",
        "if known is None:",
        "test_onednn.py::test_changed_weights_are_packed_again",
    ),
    Mutation(
        "fast/onednn.py",
        "        and torch.equal(_sums_of_bits(parameter), known.sums)\n",
        "",
        "test_onednn.py::test_changed_weights_are_packed_again",
    ),
    Mutation(
        "fast/onednn.py",
        "        and torch.equal(_sample(parameter), known.sample)\n",
        "",
        "test_onednn.py::test_changed_weights_are_packed_again",
    ),
    Mutation(
        "fast/onednn.py",
        "if type(module) is not nn.Linear or change_of(module):",
        "if type(module) is not nn.Linear:",
        "test_onednn.py::test_layers_that_may_compute_otherwise_are_not_packed"
        " test_onednn.py::test_layers_with_their_own_forward_are_not_packed",
    ),
    Mutation(
        "fast/onednn.py",
        "if not parameter.is_contiguous() or parameter.is_inference():",
        "if not parameter.is_contiguous():",
        "test_onednn.py::test_layers_that_may_compute_otherwise_are_not_packed",
    ),
    # Translating many sentences.
    Mutation(
        "batch_translation.py",
        "order = sorted(range(len(lengths)), key=lambda index: -lengths[index])",
        "order = list(range(len(lengths)))",
        "test_pipeline.py::test_batches_hold_every_index_once_within_the_budget",
    ),
    Mutation(
        "batch_translation.py",
        'batch_tokens // generation_option(model, generation_kwargs, "num_beams")',
        "batch_tokens",
        "test_pipeline.py::test_batches_are_filled_up_to_a_budget_that_counts_all_beams",
    ),
    Mutation(
        "batch_translation.py",
        "FIRST_WINDOW = 64",
        "FIRST_WINDOW = WINDOW",
        "test_pipeline.py::test_windows_grow_from_64_sentences_to_the_given_size",
    ),
    # Arguments of a model's calls.
    Mutation(
        "modeling_vanilla_transformer.py",
        "        check_read(kwargs, attend)\n",
        "",
        "test_modeling.py::test_an_argument_that_nothing_reads_is_refused_by_name",
    ),
    Mutation(
        "generation_limits.py",
        "len(given) == 1 or given[0].get_seq_length()",
        "True",
        "test_modeling.py::test_of_two_caches_the_filled_one_counts",
    ),
    Mutation(
        "input_checks.py",
        "not ((mask == 0) | (mask == 1)).all()",
        "mask.min() < 0",
        "test_modeling.py::test_masks_of_wrong_type_shape_or_values_are_refused",
    ),
    Mutation(
        "input_checks.py",
        "shape != (rows, shape[1] if length is None else length)",
        "shape[0] != rows",
        "test_modeling.py::test_masks_of_wrong_type_shape_or_values_are_refused",
    ),
    Mutation(
        "input_checks.py",
        "if ids.dtype not in (torch.int64, torch.int32):",
        "if ids.is_floating_point():",
        "test_modeling.py::test_ids_of_wrong_type_or_shape_are_refused_by_name",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "attention_mask.bool().long().cumsum(-1)",
        "attention_mask.long().cumsum(-1)",
        "test_modeling.py::test_unchecked_masks_count_any_nonzero_value_as_a_token",
    ),
    Mutation(
        "batch_translation.py",
        "if len(row) > limit:",
        "if False:",
        "test_pipeline.py::test_text_over_the_length_limits_raises_an_error_naming_it",
    ),
    Mutation(
        "cli/translate.py",
        "_check_texts(_Sources(_rows(source, name, options.tsv), languages), model, tokenizer)",
        "None",
        "test_cli_translate.py::test_file_with_a_bad_line_is_refused_before_translation",
    ),
    Mutation(
        "cli/parser.py",
        "return self.parse_known_intermixed_args(args, namespace)",
        "return super().parse_known_args(args, namespace)",
        "test_cli_translate.py::test_options_may_stand_anywhere",
    ),
    Mutation(
        "storage/hub_model.py",
        '*("config.json", "generation_config.json", "*.safetensors*"),',
        '*("*", "config.json", "generation_config.json", "*.safetensors*"),',
        "test_hub.py::test_translate_command_uses_models_of_the_hub",
    ),
    Mutation(
        "word_alignment.py",
        "words = [(place, word) for place, word in enumerate(source) if word is not None]",
        "words = [(place, word or 0) for place, word in enumerate(source)]",
        "test_pipeline.py::test_alignment_links_to_the_strongest_token_that_is_a_word",
    ),
    Mutation(
        "batch_translation.py",
        "links = word_alignment(tokenizer, source, ids[1:], weights)",
        "links = word_alignment(tokenizer, source, ids, weights)",
        "test_pipeline.py::test_prefixes_and_alignments_equal_those_of_the_search",
    ),
    Mutation(
        "cli/translate.py",
        "yield _Row(line, cells[place - 1])",
        "yield _Row(line, cells[0])",
        "test_cli_translate.py::test_a_column_is_translated_and_the_others_stay",
    ),
    Mutation(
        "cli/translate.py",
        "if tokens > self.longest:",
        "if False:",
        "test_cli_translate.py::test_text_longer_than_any_in_training_warns_once",
    ),
    # Pairs: reading, tokenising, caching.
    Mutation(
        "data/readers.py",
        "self.num_malformed += 1",
        "self.num_malformed = 1",
        "test_reading.py::test_all_malformed_lines_are_counted_and_the_first_five_kept",
    ),
    Mutation(
        "data/readers.py",
        "if counts[0] != counts[1]:",
        "if False:",
        "test_reading.py::test_files_of_unequal_length_are_rejected_with_both_counts",
    ),
    Mutation(
        "data/readers.py",
        "if size > TEXT_BYTES:",
        "if size > 2 * TEXT_BYTES:",
        "test_reading.py::test_each_side_is_limited_to_64_kib",
    ),
    Mutation(
        "data/readers.py",
        "if len(line) > LINE_BYTES:",
        "if len(line) > LINE_BYTES + 1:",
        "test_reading.py::test_each_line_is_limited_to_1_mib",
    ),
    Mutation(
        "storage/reading.py",
        "while line := file.readline(LINE_BYTES + len(mark) + 2):",
        "while line := file.readline():",
        "test_reading.py::test_very_long_lines_are_not_held_in_memory",
    ),
    Mutation(
        "data/readers.py",
        "with errors_naming(path), gzip.open",
        "with gzip.open",
        "test_reading.py::test_errors_while_reading_or_opening_name_the_file",
    ),
    Mutation(
        "data/readers.py",
        "if columns.named_by_themselves(cells) or str in",
        "if str in",
        "test_reading.py::test_columns_are_found_by_name_or_number",
    ),
    Mutation(
        "data/readers.py",
        "        if self.size > LINE_BYTES:\n",
        "        if False:\n",
        "test_reading.py::test_multi_line_rows_are_limited_to_1_mib",
    ),
    Mutation(
        "data/dataset.py",
        "        key.append([str(source_column), str(target_column)])\n",
        "        pass\n",
        "test_data.py::test_other_columns_use_another_cache",
    ),
    Mutation(
        "data/cache.py",
        'if report["sha256"] != sha256(file):',
        "if False:",
        "test_data.py::test_an_edited_cache_of_the_same_size_is_rebuilt",
    ),
    Mutation(
        "data/cache.py",
        "return [state.st_size, state.st_mtime_ns, state.st_ctime_ns]",
        "return [state.st_size, state.st_mtime_ns]",
        "test_data.py::test_an_edited_cache_of_the_same_size_is_rebuilt",
    ),
    Mutation(
        "data/cache.py",
        '                _write_report(folder, report, report["sha256"])\n',
        "                pass\n",
        "test_data.py::test_a_copied_cache_is_verified_by_its_digest_once",
    ),
    Mutation(
        "data/dataset.py",
        "fits = (lengths[0] <= bounds[0]) & (lengths[1] <= bounds[1])",
        "fits = (lengths[0] < bounds[0]) & (lengths[1] <= bounds[1])",
        "test_data.py::test_only_pairs_beyond_a_length_limit_are_left_out_and_counted",
    ),
    Mutation(
        "data/dataset.py",
        "fits = (lengths[0] <= bounds[0]) & (lengths[1] <= bounds[1])",
        "fits = lengths[0] <= bounds[0]",
        "test_data.py::test_only_pairs_beyond_a_length_limit_are_left_out_and_counted",
    ),
    Mutation(
        "data/dataset.py",
        "key = [dataset._fingerprint, identity, limits]",
        "key = [dataset._fingerprint, identity]",
        "test_data.py::test_tokens_are_cached_by_text_tokenizer_and_limits",
    ),
    Mutation(
        "data/dataset.py",
        "(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns)",
        "(str(path.resolve()),)",
        "test_data.py::test_a_changed_file_is_read_again",
    ),
    Mutation(
        "data/dataset.py",
        "backend.encode_special_tokens = tokenizer.split_special_tokens",
        "backend.encode_special_tokens = False",
        "test_data.py::test_special_tokens_in_the_data_stay_text",
    ),
    Mutation(
        "data/dataset.py",
        "torch.from_numpy(real.astype(np.int64))",
        "torch.from_numpy((padded != self.pad_token_id).astype(np.int64))",
        "test_data.py::test_padding_ids_are_configurable_and_do_not_decide_the_mask",
    ),
    Mutation(
        "storage/saved_model.py",
        "isinstance(of_model, int) and own != of_model",
        "isinstance(of_model, int) and False",
        "test_loading.py::test_tokenizer_with_other_special_ids_gives_a_warning",
    ),
    Mutation(
        "data/selection.py",
        "np.maximum(*_lengths(dataset)) > _LONGEST_HELD_OUT",
        "_lengths(dataset)[0] > _LONGEST_HELD_OUT",
        "test_data.py::test_pairs_too_long_to_translate_are_not_held_out",
    ),
    Mutation(
        "train/report.py",
        "progress.hardware or hardware()",
        "hardware()",
        "test_runs.py::test_metrics_name_the_machine_that_trained",
    ),
    Mutation(
        "train/report.py",
        "progress.precision or args.precision",
        "args.precision",
        "test_runs.py::test_metrics_name_the_machine_that_trained",
    ),
    Mutation(
        "train/run.py",
        "load_saved_tokenizer(averaged[-1])  #",
        "load_saved_tokenizer(run)  #",
        "test_runs.py::test_choosing_needs_validation_pairs_and_beams",
    ),
    Mutation(
        "data/selection.py",
        "rows = np.flatnonzero(~(there[0] | there[1] | too_long))",
        "rows = np.flatnonzero(~(there[0] | too_long))",
        "test_data.py::test_held_out_pairs_share_no_text_with_the_others",
    ),
    Mutation(
        "data/selection.py",
        "rows = rows[np.argsort(sources[rows])]",
        "rows = rows",
        "test_data.py::test_held_out_pairs_depend_only_on_the_texts",
    ),
    Mutation(
        "data/selection.py",
        "pc.utf8_trim_whitespace(column)",
        "column",
        "test_data.py::test_held_out_pairs_share_no_text_with_the_others",
    ),
    Mutation(
        "train/run_directory.py",
        'return {"held_out_pairs": 0, **recorded}',
        'return {"held_out_pairs": None, **recorded}',
        "test_runs.py::test_older_run_without_held_out_pairs_continues_with_all_pairs",
    ),
    Mutation(
        "train/run.py",
        "    if not len(texts) and not test_sets:\n        pairs,",
        "    if not test_sets:\n        pairs,",
        "test_runs.py::test_no_pairs_are_held_out_if_validation_or_test_pairs_are_given",
    ),
    Mutation(
        "data/selection.py",
        "(longer > 3 * shorter) & (longer > shorter + 30)",
        "longer > 3 * shorter",
        "test_data.py::test_faulty_pairs_are_counted_and_left_out_by_one_rule",
    ),
    Mutation(
        "data/selection.py",
        "(longer > 3 * shorter) & (longer > shorter + 30)",
        "longer > shorter + 30",
        "test_data.py::test_faulty_pairs_are_counted_and_left_out_by_one_rule",
    ),
    Mutation(
        "recipes/pairs.py",
        "return clean_pairs(pairs) if recipe.clean else pairs",
        "return pairs",
        "test_runs.py::test_bad_pairs_are_reported_and_left_out_with_clean",
    ),
    # Batches by a budget of tokens (Section 5.1).
    Mutation(
        "data/batches.py",
        "size = self.max_tokens // int(longest[bounds[-1] - 1])",
        "size = 1 + self.max_tokens // int(longest[bounds[-1] - 1])",
        "test_batching.py::test_batches_keep_the_budget_and_hold_every_example_once",
    ),
    Mutation(
        "data/batches.py",
        "return min(fewest + self.shuffle, len(longest))",
        "return fewest + self.shuffle",
        "test_batching.py::test_batches_keep_the_budget_and_hold_every_example_once",
    ),
    Mutation(
        "data/batches.py",
        "np.random.default_rng([self.seed, self.epoch, stream])",
        "np.random.default_rng([self.epoch, stream])",
        "test_batching.py::test_seed_and_epoch_decide_the_batches",
    ),
    Mutation(
        "data/batches.py",
        "np.random.default_rng([self.seed, self.epoch, stream])",
        "np.random.default_rng([self.seed, stream])",
        "test_batching.py::test_batches_of_two_epochs_differ_in_composition",
    ),
    Mutation(
        "data/batches.py",
        "largest = int(sizes.argmax())",
        "largest = 0",
        "test_batching.py::test_batches_keep_the_budget_and_hold_every_example_once",
    ),
    # The same updates by any number of processes.
    Mutation(
        "train/arguments.py",
        "if batches % processes == 0:",
        "if True:",
        "test_arguments.py::test_indivisible_gradient_accumulation_is_refused_with_advice",
    ),
    Mutation(
        "train/run.py",
        "recipe.gradient_accumulation, args.world_size",
        "recipe.gradient_accumulation, 1",
        "test_two_processes.py::test_only_the_first_of_two_processes_writes_the_run",
    ),
    Mutation(
        "train/trainer.py",
        "if self._repeats_last and self.accelerator.gradient_state.end_of_dataloader:",
        "if False:",
        "test_two_processes.py::test_two_processes_train_as_one_with_an_odd_number_of_batches",
    ),
    Mutation(
        "train/trainer.py",
        "0 < left <= self.args.process_index",
        "0 < left < self.args.process_index",
        "test_two_processes.py::test_two_processes_train_as_one_with_an_odd_number_of_batches",
    ),
    Mutation(
        "train/trainer.py",
        "if written_by in (None, self.args.world_size):",
        "if True:",
        "test_two_processes.py::test_resuming_with_other_processes_draws_new_reproducible_numbers",
    ),
    Mutation(
        "train/trainer.py",
        "self._draw_apart(update=0)",
        "pass",
        "test_two_processes.py::test_each_process_draws_its_own_random_numbers",
    ),
    # BPE-dropout.
    Mutation(
        "data/bpe_dropout.py",
        "rng.random(len(candidates)) < self.probability",
        "rng.random(len(candidates)) < self.probability / 2",
        "test_bpe_dropout.py::test_every_merge_is_undone_with_the_given_probability",
    ),
    Mutation(
        "data/bpe_dropout.py",
        "np.random.default_rng([self.seed, epoch, batch])",
        "np.random.default_rng([self.seed, batch])",
        "test_bpe_dropout.py::test_seed_epoch_and_batch_decide_the_draw",
    ),
    Mutation(
        "data/bpe_dropout.py",
        "np.random.default_rng([self.seed, epoch, batch])",
        "np.random.default_rng([self.seed, epoch])",
        "test_bpe_dropout.py::test_seed_epoch_and_batch_decide_the_draw",
    ),
    Mutation(
        "data/bpe_dropout.py",
        "split = [self._taken_apart(side, rng) for side in sides]",
        "split = [self._taken_apart(side, np.random.default_rng(epoch)) for side in sides]",
        "test_bpe_dropout.py::test_source_and_target_of_the_same_text_are_split_independently",
    ),
    Mutation(
        "train/trainer.py",
        "self.args.process_index :: self.args.world_size],\n"
        "            collate_fn=self.data_collator,",
        "self.args.process_index :: self.args.world_size],\n"
        "            collate_fn=self._training_collator(),",
        "test_bpe_dropout.py::test_training_splits_pieces_anew_each_epoch_and_evaluation_never",
    ),
    # The tokenizer (Section 5.1).
    Mutation(
        "data/tokenizer.py",
        "split_special_tokens=True,",
        "split_special_tokens=False,",
        "test_tokenization.py::test_hard_texts_survive_encoding",
    ),
    Mutation(
        "data/tokenizer.py",
        "Digits(individual_digits=True)",
        "Digits(individual_digits=False)",
        "test_tokenization.py::test_texts_survive_encoding_with_split_digits",
    ),
    Mutation(
        "data/tokenizer.py",
        'single="$A </s>",',
        'single="$A",',
        "test_tokenization.py::test_targets_and_batches_end_like_sources",
    ),
    Mutation(
        "data/tokenizer.py",
        "initial_alphabet=sorted(alphabet),",
        "initial_alphabet=sorted(alphabet)[:9],",
        "test_tokenization.py::test_vocabulary_always_contains_all_bytes",
    ),
    Mutation(
        "data/tokenizer.py",
        'truncation_side="right",',
        'truncation_side="left",',
        "test_tokenization.py::test_truncation_keeps_the_end_symbol",
    ),
    # Adam and the learning rate (Section 5.3).
    Mutation(
        "train/optimization.py",
        "min(step**-0.5, step * warmup_steps**-1.5)",
        "max(step**-0.5, step * warmup_steps**-1.5)",
        "test_optimization.py::test_schedule_equals_eq3",
    ),
    Mutation(
        "train/optimization.py",
        "return _eq3(updates + 1, d_model, warmup_steps, factor)",
        "return _eq3(max(updates, 1), d_model, warmup_steps, factor)",
        "test_optimization.py::test_schedule_equals_eq3"
        " test_optimization.py::test_first_update_uses_step_one_and_moves_the_weights",
    ),
    Mutation(
        "train/optimization.py",
        "ADAM_BETAS = (0.9, 0.98)",
        "ADAM_BETAS = (0.9, 0.999)",
        "test_optimization.py::test_adam_has_the_papers_constants_and_no_decay",
    ),
    Mutation(
        "train/arguments.py",
        "adam_epsilon: float = field(default=Recipe.adam_epsilon)",
        "adam_epsilon: float = field(default=1e-8)",
        "test_trainer.py::test_defaults_are_the_papers",
    ),
    # The mean of checkpoints (Section 6.1).
    Mutation(
        "train/averaging.py",
        "total = torch.zeros(last.shape, dtype=torch.float64)",
        "total = torch.zeros(last.shape, dtype=last.dtype)",
        "test_averaging.py::test_half_precision_is_summed_in_float64_and_keeps_its_dtype",
    ),
    Mutation(
        "train/averaging.py",
        "total += tensor",
        "total = tensor * len(weights)",
        "test_averaging.py::test_mean_equals_a_float64_mean_computed_by_hand",
    ),
    Mutation(
        "train/averaging.py",
        "companions_from=checkpoints[-1]",
        "companions_from=checkpoints[0]",
        "test_averaging.py::test_config_and_tokenizer_come_from_the_last_and_other_files_stay",
    ),
    Mutation(
        "storage/atomic.py",
        "key=lambda path: path.name == last",
        "key=lambda path: path.name != last",
        "test_atomic.py::test_the_file_named_as_last_is_moved_last",
    ),
    Mutation(
        "train/checkpoints.py",
        "wanted = step % every == 0 or not chosen",
        "wanted = True",
        "test_checkpoints.py::test_average_takes_scheduled_checkpoints_and_the_last",
    ),
    # Average and length penalty are chosen on validation pairs.
    Mutation(
        "train/choosing.py",
        "for count in (own, *(count for count in reversed(COUNTS) if count < own)):",
        "for count in (*(count for count in COUNTS if count < own), own):",
        "test_runs.py::test_ties_keep_the_recipes_values",
    ),
    Mutation(
        "train/choosing.py",
        "best = max(greedy, key=",
        "best = min(greedy, key=",
        "test_runs.py::test_average_and_length_penalty_are_chosen_on_validation_pairs",
    ),
    Mutation(
        "train/choosing.py",
        "        average(best)\n",
        "",
        "test_runs.py::test_ties_keep_the_recipes_values",
    ),
    Mutation(
        "train/run.py",
        'averaged = averaged[-chosen["averaged"] :]',
        "pass",
        "test_runs.py::test_average_and_length_penalty_are_chosen_on_validation_pairs",
    ),
    Mutation(
        "publish/card.py",
        "known = {name: value for name, value in whole.items() if name != CHOSEN}",
        "known = whole",
        "test_publishing.py::test_runs_choice_is_not_reported_for_another_average",
    ),
    # The end of a training.
    Mutation(
        "train/run.py",
        "or out_of_time or early",
        "or out_of_time",
        "test_runs.py::test_early_stopped_run_is_complete_and_continues_with_more_patience",
    ),
    Mutation(
        "train/outlook.py",
        "left = min(left, math.ceil(in_time / max(each, 1e-9)))",
        "pass",
        "test_trainer.py::test_log_describes_the_training_and_predicts_its_end",
    ),
    Mutation(
        "train/outlook.py",
        "self.trainer.warn_of_warmup(last)",
        "pass",
        "test_trainer.py::test_time_limit_within_the_warmup_gives_a_warning",
    ),
    # Files of a run.
    Mutation(
        "train/curves.py",
        '_series(log_history, "eval_training_loss"), validation)',
        '_series(log_history, "loss"), validation)',
        "test_curves.py::test_curves_show_what_was_logged",
    ),
    Mutation(
        "train/trainer.py",
        "self._plain_loss(self.get_eval_dataloader(some))",
        "loss",
        "test_trainer.py::test_eval_loss_is_the_token_mean_of_plain_cross_entropy",
    ),
    Mutation(
        "train/run_directory.py",
        'taken |= target.match(HYPOTHESES.format("*"))',
        "pass",
        "test_runs.py::test_scores_never_overwrite_files_of_a_run",
    ),
    # Plain `generate` of a barely trained model.
    Mutation(
        "generation_limits.py",
        "generation_config.max_new_tokens = longest if most is None else min(most, longest)",
        "pass",
        "test_modeling.py::test_generated_length_is_limited_by_default_to_source_plus_50",
    ),
    Mutation(
        "generation_limits.py",
        'most is not None or kwargs["has_default_max_length"]',
        "most is not None",
        "test_modeling.py::test_generated_length_is_limited_by_default_to_source_plus_50",
    ),
    Mutation(
        "pipeline.py",
        "if score != -math.inf or place == 0",
        "if True",
        "test_pipeline.py::test_generation_arguments_pass_through",
    ),
    # Folders of pairs.
    Mutation(
        "data/readers.py",
        'if split == "all" and Path(name).is_dir():',
        "if False:",
        "test_runs.py::test_every_file_of_a_folder_is_read_and_none_may_change_or_be_replaced",
    ),
    Mutation(
        "data/readers.py",
        'if not any(part.startswith(".") for part in path.parts)',
        "if True",
        "test_runs.py::test_every_file_of_a_folder_is_read_and_none_may_change_or_be_replaced",
    ),
    Mutation(
        "recipes/pairs.py",
        "elif paths[0].is_dir():",
        "elif False:",
        "test_runs.py::test_every_file_of_a_folder_is_read_and_none_may_change_or_be_replaced",
    ),
    Mutation(
        "train/run_directory.py",
        "target.is_relative_to(path.resolve()) for path in sources",
        "target == path.resolve() for path in sources",
        "test_runs.py::test_every_file_of_a_folder_is_read_and_none_may_change_or_be_replaced",
    ),
    Mutation(
        "train/averaging.py",
        "companions_from = companions_from.absolute()",
        "pass",
        "test_compare.py::test_average_keeps_its_runs_search_and_other_searches_are_noted",
    ),
    # Documents.
    Mutation(
        "cli/translate.py",
        "[first, *itertools.islice(found, len(texts) - 1)]",
        "[first]",
        "test_cli_translate.py::test_document_is_translated_by_sentence_and_keeps_its_lines",
    ),
    Mutation(
        "data/sentence_splitting.py",
        'space = "" if _base(language) in _WITHOUT_SPACES else " "',
        'space = " "',
        "test_cli_translate.py::test_sentences_are_joined_by_a_space_except_in_zh_and_ja",
    ),
    # Training that starts from a trained model.
    Mutation(
        "train/initial_model.py",
        "    model.load_state_dict(saved.state_dict())\n",
        "",
        "test_init_from.py::test_training_starts_with_the_models_weights_and_tokenizer",
    ),
    Mutation(
        "train/run.py",
        "    if start is not None:\n        return load_initial_model(start, recipe)\n",
        "",
        "test_init_from.py::test_run_resumes_bit_by_bit_without_its_initial_model",
    ),
    Mutation(
        "train/run_directory.py",
        "another |= recorded.get(INIT_FROM) != identity.get(INIT_FROM)",
        "pass",
        "test_init_from.py::test_training_starts_with_the_models_weights_and_tokenizer",
    ),
    Mutation(
        "recipes/recipe.py",
        'if field.metadata["inherited"] and value is not None:',
        "if False:",
        "test_init_from.py::test_options_fixed_by_the_initial_model_are_refused",
    ),
    # Pictures count from 1.
    Mutation(
        "visualization/attention.py",
        '[f"head {index + 1}" for index in indices]',
        '[f"head {index}" for index in indices]',
        "test_visualization.py::test_title_counts_from_1_and_shortens_the_sentence_to_fit",
    ),
    Mutation(
        "cli/translate.py",
        'return int(text) - (not text.startswith("-"))',
        "return int(text)",
        "test_cli_translate.py::test_any_layer_and_head_can_be_drawn",
    ),
    # Complete checkpoints.
    Mutation(
        "train/checkpoints.py",
        'if not same or sha256(path) != facts.get("sha256"):',
        "if not same:",
        "test_checkpoints.py::test_damaged_checkpoint_is_not_whole",
    ),
    Mutation(
        "train/checkpoints.py",
        "[-max(keep, 2) :]",
        "[-keep:]",
        "test_checkpoints.py::test_pruning_keeps_an_earlier_checkpoint_to_fall_back_on",
    ),
    Mutation(
        "train/checkpoints.py",
        "        if is_whole(path):\n            return path",
        "        if path.is_dir():\n            return path",
        "test_trainer.py::test_truncated_checkpoint_is_skipped_with_a_warning",
    ),
    Mutation(
        "train/checkpoints.py",
        "or Path(name).name != name:",
        "or False:",
        "test_checkpoints.py::test_manifest_with_files_outside_its_checkpoint_is_refused",
    ),
    Mutation(
        "train/checkpoints.py",
        "        Progress.load(checkpoint)\n",
        "",
        "test_checkpoints.py::test_checkpoint_without_valid_progress_is_not_whole",
    ),
    Mutation(
        "train/checkpoints.py",
        "broken.append(found[step])",
        "continue",
        "test_checkpoints.py::test_broken_checkpoints_left_out_of_the_average_are_named",
    ),
    # Newcomers' files of pairs.
    Mutation(
        "data/readers.py",
        "if self._undecoded >= 10 and self._undecoded > count / 10:",
        "if self._undecoded > 10 * count:",
        "test_reading.py::test_files_in_other_encodings_are_rejected",
    ),
    Mutation(
        "data/selection.py",
        "pairs, others = _pair_hashes(*_hashes(dataset)), _pair_hashes(*_hashes(other))",
        "pairs, others = _hashes(dataset)[0], _hashes(other)[0]",
        "test_data.py::test_test_pairs_shared_with_training_are_counted",
    ),
    Mutation(
        "train/evaluating.py",
        "        _check_files_held_out_from(recipe, run)\n",
        "",
        "test_compare.py::test_held_out_pairs_of_a_changed_file_are_not_tested_on",
    ),
    Mutation(
        "train/averaging.py",
        "if companions_from.parent.name == CHECKPOINTS and (run / RECIPE).is_file():",
        "if False:",
        "test_compare.py::test_average_keeps_its_runs_search_and_other_searches_are_noted",
    ),
    # Resumption.
    Mutation(
        "storage/pickles.py",
        'map_location="cpu", weights_only=True)',
        'map_location="cpu", weights_only=False)',
        "test_checkpoints.py::test_resumption_runs_no_code_of_a_checkpoint",
    ),
    Mutation(
        "train/trainer.py",
        "check_state(Path(resume_from_checkpoint), self.model, plain_adam=plain_adam)",
        "pass",
        "test_checkpoints.py::test_damaged_state_is_refused_by_name",
    ),
    Mutation(
        "train/checkpoints.py",
        'if self.data not in ("", data):',
        "if False:",
        "test_trainer.py::test_resuming_with_other_training_pairs_is_rejected",
    ),
    Mutation(
        "train/checkpoints.py",
        "if self.world_size > 1 and not self.batches_per_update:",
        "if False:",
        "test_trainer.py::test_resuming_older_multi_process_checkpoints_is_rejected",
    ),
    Mutation(
        "train/checkpoints.py",
        "if self.batches_per_update not in (0, batches_per_update):",
        "if False:",
        "test_trainer.py::test_resuming_with_other_batches_per_update_is_rejected",
    ),
    Mutation(
        "train/checkpoints.py",
        'if self.precision not in ("", precision):',
        "if False:",
        "test_trainer.py::test_resuming_with_another_precision_is_rejected",
    ),
    Mutation(
        "train/trainer.py",
        "self.progress = Progress.load(Path(resume_from_checkpoint))",
        "Progress.load(Path(resume_from_checkpoint))",
        "test_trainer.py::test_resumption_keeps_the_matmul_precision_of_the_first_start",
    ),
    # The trainer.
    Mutation(
        "train/trainer.py",
        "torch.tensor([float(loss) * count, count], dtype=torch.float64)",
        "torch.tensor([float(loss), 1], dtype=torch.float64)",
        "test_trainer.py::test_eval_loss_is_the_token_mean_of_plain_cross_entropy",
    ),
    Mutation(
        "train/trainer.py",
        "range(0, count, -(-count // _TRAINING_PAIRS))",
        "range(min(count, _TRAINING_PAIRS))",
        "test_trainer.py::test_training_loss_is_estimated_on_pairs_from_the_whole_training_set",
    ),
    Mutation(
        "train/arguments.py",
        "for name, advice in UNUSED.items():",
        "for name, advice in ():",
        "test_trainer.py::test_trainers_label_smoothing_and_generation_are_rejected"
        " test_arguments.py::test_unused_arguments_are_refused_by_name",
    ),
    Mutation(
        "train/trainer.py",
        'if not math.isfinite(logs["loss"]):',
        "if False:",
        "test_trainer.py::test_non_finite_loss_ends_the_run",
    ),
    Mutation(
        "train/trainer.py",
        "with torch.random.fork_rng(devices=devices):",
        "with torch.enable_grad():",
        "test_trainer.py::test_evaluation_frequency_does_not_change_the_weights",
    ),
    Mutation(
        "train/arguments.py",
        'return {**self.__dict__, "hub_token": None}',
        "return {**self.__dict__}",
        "test_hub.py::test_only_push_to_hub_of_the_trainer_uploads_a_model",
    ),
    Mutation(
        "train/trainer.py",
        "seed=self._order_seed,",
        "",
        "test_trainer.py::test_seed_determines_the_order_of_batches",
    ),
    Mutation(
        "train/trainer.py",
        "if self.args.data_seed is None else self.args.data_seed",
        "",
        "test_arguments.py::test_data_seed_decides_the_order_of_batches",
    ),
    # Arguments of the host.
    Mutation(
        "train/arguments.py",
        "return self.learning_rate",
        "return 1.0",
        "test_arguments.py::test_optimizer_and_rates_equal_those_of_seq2seq_trainer",
    ),
    Mutation(
        "train/trainer.py",
        "self.args.optim is not None or self.args.weight_decay:",
        "self.args.optim is not None:",
        "test_arguments.py::test_optimizer_and_rates_equal_those_of_seq2seq_trainer",
    ),
    Mutation(
        "train/trainer.py",
        "        if kind is not None:\n            return super()",
        "        if False:\n            return super()",
        "test_arguments.py::test_optimizer_and_rates_equal_those_of_seq2seq_trainer",
    ),
    Mutation(
        "train/optimization.py",
        "return learning_rate * (d_model * warmup_steps) ** 0.5",
        "return learning_rate * d_model**0.5",
        "test_arguments.py::test_learning_rate_without_a_schedule_is_the_peak_of_eq3",
    ),
    Mutation(
        "train/trainer.py",
        "if name in wanted and wanted[name] != found[name]:",
        "if False:",
        "test_arguments.py::test_resuming_with_other_or_no_optimizer_state_is_refused",
    ),
    Mutation(
        "train/checkpoints.py",
        'if step not in kept and path.name != Path(spare or "").name:',
        "if step not in kept:",
        "test_arguments.py::test_the_best_checkpoint_is_kept_and_loaded_at_the_end",
    ),
    Mutation(
        "train/trainer.py",
        '            "arguments": self._arguments_beyond_paper,\n',
        "",
        "test_hub.py::test_only_push_to_hub_of_the_trainer_uploads_a_model",
    ),
    Mutation(
        "train/cpu_settings.py",
        'return "medium" if error <= _FLOAT32_ERROR else "highest"',
        'return "medium"',
        "test_cpu_training.py::test_products_below_float32_precision_are_refused",
    ),
    # Recipes.
    Mutation(
        "recipes/recipe.py",
        "elif key not in known:",
        "elif False:",
        "test_recipes.py::test_invalid_recipes_give_a_one_line_error",
    ),
    Mutation(
        "recipes/recipe.py",
        'value.lower() in ("none", "null")',
        'value.lower() in ("null",)',
        "test_recipes.py::test_overrides_win_and_are_converted_to_the_fields_type",
    ),
    Mutation(
        "recipes/recipe.py",
        "if len(given) > 1:",
        "if False:",
        "test_recipes.py::test_two_sources_of_training_pairs_are_rejected",
    ),
    Mutation(
        "recipes/recipe.py",
        'untrue = {*_PLACES, *_OF_A_DATASET, "data_source", "data_license"}',
        "untrue = {*_PLACES, *_OF_A_DATASET}",
        "test_recipes.py::test_new_training_pairs_reset_the_recipes_data_options",
    ),
    Mutation(
        "recipes/recipe.py",
        '        changeable=True,\n        argument="max_steps",\n',
        '        argument="max_steps",\n',
        "test_runs.py::test_extended_run_equals_one_long_run",
    ),
    Mutation(
        "recipes/recipe.py",
        '        argument="seed",\n',
        '        argument="seed",\n        changeable=True,\n',
        "test_runs.py::test_complete_run_without_checkpoints_is_not_retrained",
    ),
    Mutation(
        "recipes/recipe.py",
        '"P_drop of Section 5.4", _MODEL, config=("dropout",)',
        '"P_drop of Section 5.4", _MODEL, config=("attention_dropout",)',
        "test_recipes.py::test_each_option_sets_the_field_or_argument_it_is_named_after",
    ),
    Mutation(
        "recipes/recipe.py",
        '        argument="gradient_accumulation_steps",\n',
        "",
        "test_recipes.py::test_each_option_sets_the_field_or_argument_it_is_named_after",
    ),
    Mutation(
        "recipes/recipe.py",
        'values[strategy] = "steps" if value else "no"',
        'values[strategy] = "steps"',
        "test_recipes.py::test_reconstructed_recipe_omits_epoch_intervals",
    ),
    Mutation(
        "ranges.py",
        "value < self.most if self.below else value <= self.most",
        "value <= self.most",
        "test_recipes.py::test_invalid_recipes_give_a_one_line_error",
    ),
    Mutation(
        "ranges.py",
        "fits = value > self.least if self.above else value >= self.least",
        "fits = value >= self.least",
        "test_recipes.py::test_invalid_recipes_give_a_one_line_error",
    ),
    Mutation(
        "ranges.py",
        "isinstance(value, bool) or not",
        "not",
        "test_recipes.py::test_invalid_recipes_give_a_one_line_error",
    ),
    Mutation(
        "recipes/recipe.py",
        'values = _without_model(values, given["preset"])',
        "pass",
        "test_recipes.py::test_preset_on_the_command_line_replaces_the_recipes_model",
    ),
    Mutation(
        "recipes/recipe.py",
        "        check_text(field.name, value)\n",
        "        pass\n",
        "test_recipes.py::test_any_value_of_an_option_is_used_or_rejected_by_name",
    ),
    Mutation(
        "configuration_vanilla_transformer.py",
        "        _for_each_side(fields)\n",
        "",
        "test_configuration.py::test_name_for_both_sides_may_not_contradict_that_of_one_side",
    ),
    Mutation(
        "configuration_vanilla_transformer.py",
        "        _check_names(others)\n",
        "",
        "test_configuration.py::test_misspelled_field_is_refused_with_a_suggestion",
    ),
    Mutation(
        "configuration_vanilla_transformer.py",
        "abs(len(near) - len(name)) <= 2 and",
        "",
        "test_configuration.py::test_fields_of_a_later_version_are_kept",
    ),
    Mutation(
        "beam_search.py",
        'found["scores"][:, 0].isnan().any()',
        "False",
        "test_beam_search.py::test_a_model_with_nonfinite_outputs_is_refused",
    ),
    Mutation(
        "beam_search.py",
        "if value not in allowed:",
        "if False:",
        "test_beam_search.py::test_wrong_arguments_are_named",
    ),
    Mutation(
        "recipes/recipe.py",
        'if preset == "big" and field.metadata["big"] is not None:',
        "if False:",
        "test_recipes.py::test_paper_values_differ_for_the_big_model_and_exclude_time_limits",
    ),
    # Runs.
    Mutation(
        "train/run_directory.py",
        "            lock.acquire(timeout=0)\n",
        "",
        "test_runs.py::test_killed_process_leaves_no_lock",
    ),
    Mutation(
        "train/run_directory.py",
        "    if there:  #",
        "    if False:  #",
        "test_runs.py::test_model_changed_after_its_run_is_rejected_and_not_replaced",
    ),
    Mutation(
        "cli/evaluate.py",
        "    check_output(Path(options.output), sources=sources)",
        "",
        "test_runs.py::test_scores_never_overwrite_files_of_a_run",
    ),
    Mutation(
        "train/run_directory.py",
        'if metrics is None or make_recipe(metrics["recipe"]) != recipe:',
        "if True:",
        "test_runs.py::test_same_command_again_does_nothing",
    ),
    Mutation(
        "train/run_directory.py",
        "if changed and trained:",
        "if False:",
        "test_runs.py::test_changed_training_pairs_are_rejected_after_training_began",
    ),
    Mutation(
        "train/run.py",
        "    _ship_search(recipe, length_penalty, run)\n",
        "",
        "test_runs.py::test_generation_config_has_the_search_used_for_evaluation",
    ),
    Mutation(
        "train/run.py",
        '        "samples": samples,\n',
        "",
        "test_runs.py::test_samples_show_source_reference_and_translation",
    ),
    Mutation(
        "train/trainer.py",
        '            "samples": choose_samples({"validation": {**result, **texts}}, 20),\n',
        "",
        "test_hub.py::test_only_push_to_hub_of_the_trainer_uploads_a_model",
    ),
    Mutation(
        "train/cpu_settings.py",
        "in model.__dict__ else None\n    _set_plain_dropout(model)\n",
        "in model.__dict__ else None\n",
        "test_cpu_training.py::test_decoding_within_training_uses_the_users_model",
    ),
    Mutation(
        "train/cpu_settings.py",
        'model.forward = model.__dict__["_original_forward"]',
        "pass",
        "test_cpu_training.py::test_decoding_within_training_uses_the_users_model",
    ),
    Mutation(
        "train/curves.py",
        '    perplexity |= _series(log_history, "eval_perplexity")\n',
        "",
        "test_curves.py::test_logged_perplexity_is_preferred_to_the_exponential_of_the_loss",
    ),
    Mutation(
        "train/curves.py",
        '({}, _series(log_history, "eval_bleu"))',
        '(_series(log_history, "eval_bleu"), {})',
        "test_curves.py::test_curves_show_what_was_logged",
    ),
    Mutation(
        "train/curves.py",
        'best = max if "BLEU" in name else min',
        "best = min",
        "test_curves.py::test_titles_say_the_best_value",
    ),
    # Evaluation, metrics.json, samples.md.
    Mutation(
        "evaluation/scores.py",
        '"bleu_signature": str(metric.get_signature())',
        '"bleu_signature": "BLEU"',
        "test_evaluation.py::test_scores_equal_those_of_sacrebleu",
    ),
    Mutation(
        "evaluation/scores.py",
        '("zh", "zho", "chi", "cmn", "yue"), "zh"',
        '("zh", "zho", "chi", "cmn", "yue"), "13a"',
        "test_evaluation.py::test_bleu_tokenizer_follows_the_target_language",
    ),
    # Comparing runs, scoring pairs, averaging from the command line.
    Mutation(
        "evaluation/likelihood.py",
        "attention_mask=mask.to(device),",
        "attention_mask=None,",
        "test_compare.py::test_log_probabilities_equal_a_loop_over_tokens",
    ),
    Mutation(
        "evaluation/likelihood.py",
        "if not math.isfinite(value):",
        "if False:",
        "test_compare.py::test_nan_log_probability_is_reported_as_a_broken_model",
    ),
    Mutation(
        "evaluation/likelihood.py",
        "found[index] = Likelihood(",
        "found[batch[0]] = Likelihood(",
        "test_compare.py::test_log_probabilities_equal_a_loop_over_tokens",
    ),
    Mutation(
        "evaluation/significance.py",
        "if result.p_value is None or result.score == first.score:",
        "if result.p_value is None:",
        "test_compare.py::test_equal_scores_have_no_p_value",
    ),
    Mutation(
        "evaluation/significance.py",
        "if num_sentences < FEWEST_SENTENCES:",
        "if False:",
        "test_compare.py::test_the_verdict_needs_both_scores_and_enough_sentences",
    ),
    Mutation(
        "evaluation/significance.py",
        "if agreeing:",
        "if better:",
        "test_compare.py::test_the_verdict_needs_both_scores_and_enough_sentences",
    ),
    Mutation(
        "evaluation/scores.py",
        "lowercase=lowercase, force=force, smooth_method=smooth_method",
        "lowercase=lowercase, force=force",
        "test_evaluation.py::test_compound_bleu_equals_multi_bleu_with_split_compounds",
    ),
    Mutation(
        "train/comparing.py",
        "if texts[0] != texts[1]:",
        "if texts[0].keys() != texts[1].keys():",
        "test_compare.py::test_runs_with_different_test_pairs_or_languages_are_refused",
    ),
    Mutation(
        "train/comparing.py",
        "run = runs[(turn + place) % len(runs)]",
        "run = runs[place]",
        "test_compare.py::test_runs_take_turns_and_the_first_call_is_not_timed",
    ),
    Mutation(
        "train/comparing.py",
        "all(labels == ids[0] for labels in ids)",
        "True",
        "test_compare.py::test_compared_runs_have_the_scores_of_evaluate",
    ),
    Mutation(
        "cli/compare.py",
        "self.before.append(self.complaints - complaints)\n            complaints",
        "self.before.append(0)\n            complaints",
        "test_compare.py::test_score_prints_each_score_on_the_line_of_its_pair",
    ),
    Mutation(
        "cli/evaluate.py",
        '"\\t": r"\\t", "\\n"',
        '"\\t": " ", "\\n"',
        "test_compare.py::test_evaluation_gives_other_kinds_of_bleu_and_the_texts",
    ),
    Mutation(
        "train/checkpoints.py",
        "if sealed and not is_whole(path):",
        "if False:",
        "test_averaging.py::test_impossible_averages_give_a_one_line_error",
    ),
    Mutation(
        "evaluation/models.py",
        "return loss.item() * tokens, tokens",
        "return loss.item(), 1",
        "test_evaluation.py::test_perplexity_equals_plain_float64_loop_at_any_batch_size",
    ),
    Mutation(
        "train/report.py",
        "count = max(count, _FEWEST_SAMPLES)",
        "count = max(count, 1)",
        "test_publishing.py::test_at_least_three_samples_are_kept_for_the_card",
    ),
    # Publishing.
    Mutation(
        "publish/publishing.py",
        '    "merges.txt",\n)',
        '    "merges.txt",\n    "notes.txt",\n)',
        "test_publishing.py::test_dry_run_lists_every_file_without_contacting_the_hub",
    ),
    Mutation(
        "storage/saved_model.py",
        "                check_finite(name, tensor, path)\n",
        "",
        "test_publishing.py::test_non_finite_weights_are_rejected"
        " test_loading.py::test_files_that_do_not_load_give_a_one_line_error",
    ),
    Mutation(
        "storage/saved_model.py",
        "if target.is_relative_to(directory):",
        "if True:",
        "test_publishing.py::test_symlinks_to_outside_the_directory_are_rejected",
    ),
    Mutation(
        "publish/publishing.py",
        "shutil.copyfile(own_file((run or source) / name), folder / name)",
        "shutil.copyfile((run or source) / name, folder / name)",
        "test_publishing.py::test_symlinks_to_outside_the_directory_are_rejected",
    ),
    Mutation(
        "publish/card.py",
        ' and name != "max_steps"',
        "",
        "test_publishing.py::test_card_lists_the_recipes_differences_from_the_paper",
    ),
    Mutation(
        "publish/card.py",
        '_MARKUP.sub(r"\\\\\\1", _one_line(text))',
        "_one_line(text)",
        "test_publishing.py::test_everything_in_the_metrics_is_escaped_in_the_card",
    ),
    Mutation(
        "publish/card.py",
        "if not license:",
        "if False:",
        "test_publishing.py::test_missing_or_invalid_licences_are_rejected",
    ),
    Mutation(
        "publish/card.py",
        'return _HUB_DATASET.findall(facts["published"]["data_source"] or "")',
        "return []",
        "test_publishing.py::test_metadata_names_the_hub_data_set_used_or_linked",
    ),
    Mutation(
        "storage/extras.py",
        "f\"in the clone of vanilla_transformer, pip install '.[{EXTRAS[package]}]'\"",
        "f\"pip install 'vanilla-transformer[{EXTRAS[package]}]'\"",
        "test_figures.py::test_no_text_installs_the_package_by_its_bare_name",
    ),
    Mutation(
        "cli/train.py",
        '    require("Training", *TRAIN)\n',
        "",
        "test_cli.py::test_training_without_its_extra_says_what_to_install",
    ),
    Mutation(
        "publish/card.py",
        'recipe[name] = ",".join(path.name for path in named_files(recipe[name]))',
        "pass",
        "test_publishing.py::test_dry_run_lists_every_file_without_contacting_the_hub",
    ),
    Mutation(
        "publish/card.py",
        "value = round(result[metric], 3)",
        "value = round(result[metric], 0)",
        "test_publishing.py::test_metadata_of_the_card_round_trips"
        " test_publishing.py::test_committed_cards_match_their_metrics",
    ),
    Mutation(
        "publish/publishing.py",
        "if not _SECRET.search(name.upper())",
        "if True",
        "test_hub.py::test_processes_that_try_out_a_model_find_no_token",
    ),
    Mutation(
        "publish/publishing.py",
        'environment |= {"HOME": str(home), "USERPROFILE": str(home), "HF_HOME": str(home)}',
        'environment |= {"HF_HOME": str(home)}',
        "test_hub.py::test_processes_that_try_out_a_model_find_no_token",
    ),
    Mutation(
        "publish/publishing.py",
        "if not _close(logits, expected):",
        "if False:",
        "test_publishing.py::test_model_with_other_outputs_in_a_clean_process_is_rejected",
    ),
    # Published code and the Hub.
    Mutation(
        "publish/remote_code.py",
        "{pipeline, *map(Path, get_relative_import_files(pipeline))}",
        "{pipeline}",
        "test_publishing.py::test_embedded_code_is_exactly_what_the_classes_import",
    ),
    Mutation(
        "publish/publishing.py",
        "for name in CHOOSE_CODE:  # such as code that is not pushed",
        "for name in ():",
        "test_publishing.py"
        "::test_published_config_has_no_leftovers_from_training"
        " test_publishing.py"
        "::test_embedded_code_is_flat_and_ordinary_checkpoints_have_none",
    ),
    Mutation(
        "publish/hub.py",
        "parent_commit=before.sha,",
        "parent_commit=None,",
        "test_hub.py::test_concurrent_push_is_not_overwritten",
    ),
    Mutation(
        "publish/hub.py",
        "if private and not is_private:",
        "if False:",
        "test_hub.py::test_private_repository_stays_private",
    ),
    Mutation(
        "publish/hub.py",
        "*[CommitOperationDelete(name) for name in stale]",
        "*[]",
        "test_hub.py::test_push_deletes_replaced_files_in_the_same_commit",
    ),
    Mutation(
        "publish/hub.py",
        'return _TOKEN.sub("***", " ".join(str(error).split()))',
        'return " ".join(str(error).split())',
        "test_hub.py::test_token_may_end_with_a_newline_and_is_in_no_error",
    ),
    # Atomic writing of files.
    Mutation(
        "storage/atomic.py",
        '    sync(*aside.rglob("*"), aside)\n',
        "",
        "test_atomic.py::test_files_are_synced_before_the_rename_and_folders_after",
    ),
    Mutation(
        "storage/atomic.py",
        "        if refusal is None:\n",
        "        if True:\n",
        "test_atomic.py::test_disk_errors_give_one_line_and_keep_the_old_file",
    ),
    Mutation(
        "storage/atomic.py",
        "if is_device or (path.exists() and not path.is_file()):",
        "if is_device:",
        "test_atomic.py::test_a_device_is_written_to_and_not_replaced",
    ),
    Mutation(
        "storage/atomic.py",
        "if is_device or (path.exists() and not path.is_file()):",
        "if path.exists() and not path.is_file():",
        "test_atomic.py::test_standard_output_is_written_to_and_not_replaced",
    ),
    Mutation(
        "storage/atomic.py",
        '_SEVERAL = f"{PARTIAL}files-"',
        "_SEVERAL = PARTIAL",
        "test_atomic.py::test_a_file_and_its_folder_can_be_written_at_the_same_time",
    ),
    Mutation(
        "cli/translate.py",
        "                aside.replace(kept)\n",
        "",
        "test_cli.py::test_translate_keeps_what_it_had_written_before_an_error",
    ),
    Mutation(
        "fast/plain.py",
        "if not is_method and not isinstance(own, TemporaryForward):",
        "if not is_method:",
        "test_changed_models.py::test_model_is_plain_while_another_thread_decodes_it",
    ),
    Mutation(
        "storage/atomic.py",
        "target = path.resolve()",
        "target = path.absolute()",
        "test_atomic.py::test_writing_to_a_symlink_replaces_its_target",
    ),
    Mutation(
        "storage/atomic.py",
        "        yield aside / target.name\n",
        "        yield target\n",
        "test_atomic.py::test_crash_leaves_the_old_file_and_nothing_else",
    ),
    Mutation(
        "storage/atomic.py",
        "shutil.rmtree(aside, ignore_errors=True)",
        "pass",
        "test_atomic.py::test_crash_leaves_the_old_file_and_nothing_else",
    ),
    Mutation(
        "storage/atomic.py",
        "            let_others_read_weights(whole)\n",
        "",
        "test_atomic.py::test_weights_have_the_permissions_of_other_files",
    ),
    # Loading and importing: no code is run, no tensor is lost.
    Mutation(
        "storage/pickles.py",
        'map_location="cpu", weights_only=True)',
        'map_location="cpu", weights_only=False)',
        "test_import_contract.py::test_malicious_pickles_do_not_run",
    ),
    Mutation(
        "storage/saved_model.py",
        'for problem in ("missing_keys", "unexpected_keys"):',
        "for problem in ():",
        "test_loading.py::test_files_that_do_not_load_give_a_one_line_error",
    ),
    Mutation(
        "storage/saved_model.py",
        "    _check_fit(directory, kind, config, tensors)\n",
        "",
        "test_loading.py::test_files_that_do_not_load_give_a_one_line_error",
    ),
    Mutation(
        "storage/saved_model.py",
        "return kind.from_dict(_without_code(found, kind))",
        "return kind.from_dict(found)",
        "test_loading.py::test_config_files_cannot_choose_code_or_replace_methods",
    ),
    Mutation(
        "storage/saved_model.py",
        "if not isinstance(name, str) or Path(name).name != name or not name.endswith(ending):",
        "if not isinstance(name, str) or not name.endswith(ending):",
        "test_loading.py::test_files_that_do_not_load_give_a_one_line_error",
    ),
    Mutation(
        "storage/saved_model.py",
        "        if value is not None and not fits:\n",
        "        if False:\n",
        "test_loading.py::test_files_that_do_not_load_give_a_one_line_error",
    ),
    Mutation(
        "batch_translation.py",
        '        text.encode("utf-8")\n',
        "        pass\n",
        "test_pipeline.py::test_pipeline_errors_name_the_input_that_is_not_text"
        " test_pipeline.py::test_wrong_arguments_are_named",
    ),
    Mutation(
        "convert/importers/state_dict.py",
        'problems["surplus"] = [name for name in tensors if name not in known]',
        'problems["surplus"] = []',
        "test_import_contract.py::test_surplus_tensors_are_named",
    ),
    Mutation(
        "convert/importers/fairseq.py",
        "_FIRST_POSITION = 2",
        "_FIRST_POSITION = 1",
        "test_import_fairseq.py::test_imported_logits_equal_those_of_fairseq",
    ),
    Mutation(
        "convert/importers/fairseq.py",
        '    "layernorm_embedding": "a norm of the embeddings",\n',
        "",
        "test_import_fairseq.py::test_unsupported_settings_are_refused_with_the_reason",
    ),
    Mutation(
        "convert/importers/marian.py",
        "Piece((place.key,), reordered(place.axis))",
        "Piece((place.key,), reordered(None))",
        "test_import_marian.py::test_imported_logits_equal_those_of_marian",
    ),
    Mutation(
        "convert/importers/marian.py",
        '"lm_head_bias": bias is not None and bool(bias.any()),',
        '"lm_head_bias": False,',
        "test_import_marian.py::test_imported_logits_equal_those_of_marian",
    ),
    Mutation(
        "convert/importers/torch.py",
        'for third, projection in enumerate("qkv"):',
        'for third, projection in enumerate("kqv"):',
        "test_import_torch.py::test_imported_logits_equal_those_of_torch",
    ),
    Mutation(
        "convert/importers/opennmt.py",
        '"q_proj": "linear_query",\n    "k_proj": "linear_keys",',
        '"q_proj": "linear_keys",\n    "k_proj": "linear_query",',
        "test_import_opennmt.py::test_imported_logits_equal_the_equations",
    ),
    Mutation(
        "convert/importers/joeynmt.py",
        '"self_attn": ("trg_trg_att", "x_layer_norm"),',
        '"self_attn": ("trg_trg_att", "dec_layer_norm"),',
        "test_import_joeynmt.py::test_imported_logits_equal_the_equations_of_joeynmt",
    ),
    Mutation(
        "convert/importers/annotated.py",
        "return scale * math.sqrt((scale.numel() - 1) / scale.numel())",
        "return scale",
        "test_import_annotated.py::test_imported_log_probabilities_equal_the_equations",
    ),
    # Exporting: the written files compute the same as the model.
    Mutation(
        "convert/exporters/marian.py",
        'if config.norm_first:\n        yield "norm_first',
        'if False:\n        yield "norm_first',
        "test_export_marian.py::test_settings_that_marian_lacks_are_refused_by_name",
    ),
    Mutation(
        "convert/exporters/marian.py",
        '"scale_embedding": True,',
        '"scale_embedding": False,',
        "test_export_marian.py::test_marian_export_computes_the_same_logits",
    ),
    Mutation(
        "convert/exporters/marian.py",
        'return check_equal(got, expected, tolerance=TOLERANCE, name="MarianMTModel")',
        "return 0.0",
        "test_export_contract.py::test_export_that_differs_from_the_model_is_deleted[marian]",
    ),
    Mutation(
        "convert/verification.py",
        "if not difference <= tolerance:",
        "if difference > tolerance:",
        "test_export_marian.py::test_nan_differences_fail_the_export_check",
    ),
    Mutation(
        "convert/exporters/ctranslate2.py",
        "differences[stored] = _verify(model, aside, stored)",
        "differences[stored] = 0.0",
        "test_export_contract.py::test_export_that_differs_from_the_model_is_deleted[ctranslate2]",
        needs="ctranslate2",
    ),
    Mutation(
        "convert/exporters/ctranslate2.py",
        "spec.queries_scale = attention.scaling",
        "spec.queries_scale = width**-0.5",
        "test_export_ctranslate2.py::test_every_variant_scores_and_translates_equally",
        needs="ctranslate2",
    ),
    Mutation(
        "convert/exporters/onnx.py",
        "difference = _verify(model, aside)",
        "difference = 0.0",
        "test_export_contract.py::test_export_that_differs_from_the_model_is_deleted[onnx]",
        needs="onnx onnxscript onnxruntime",
    ),
    # Pictures.
    Mutation(
        "visualization/attention.py",
        'weights = weights[_checked_number("layer", layer, len(weights))]',
        "weights = weights[-1]",
        "test_visualization.py",
    ),
    Mutation(
        "visualization/attention.py",
        'return weights[indices], [f"head {index + 1}" for index in indices]',
        'return weights[: len(indices)], [f"head {index + 1}" for index in indices]',
        "test_visualization.py",
    ),
    Mutation(
        "visualization/attention.py",
        '"cross": (self.target_words, self.source_words),',
        '"cross": (self.source_words, self.target_words),',
        "test_visualization.py::test_heat_maps_show_the_weights_with_words_on_the_axes",
    ),
    # The command line.
    Mutation(
        "cli/train.py",
        'if field.metadata["common"]:',
        "if False:",
        "test_cli.py::test_train_help_begins_with_the_common_options",
    ),
    Mutation(
        "cli/train.py",
        "--output-dir runs/mine\n",
        "--output-directory runs/mine\n",
        "test_cli.py::test_every_command_has_examples_that_the_parser_accepts",
    ),
    Mutation(
        "__init__.py",
        'if Path(*sys.argv[:1]).name not in ("vanilla-transformer", "vanilla-transformer.exe"):',
        "if True:",
        "test_cli.py::test_help_and_mistyped_commands_load_no_slow_library",
    ),
    Mutation("cli/parser.py", "    register()\n", "", "test_readme.py::test_block_translate_cli"),
    Mutation(
        "cli/parser.py",
        'print(f"vanilla-transformer: {line}", file=sys.stderr)\n        return 2',
        'print(f"vanilla-transformer: {line}", file=sys.stderr)\n        return 1',
        "test_cli.py::test_mistakes_give_a_one_line_error",
    ),
    Mutation(
        "cli/parser.py",
        "except (RequestError, OSError, ImportError) as error:\n"
        "        if (line := _line_for(error))",
        "except (ValueError, OSError, ImportError) as error:\n        if (line := str(error))",
        "test_cli.py::test_defects_keep_their_traceback",
    ),
    Mutation(
        "cli/parser.py",
        'return f"{_short(str(error.filename))}: {error.strerror}"',
        "return repr(error)",
        "test_cli_translate.py::test_unreadable_source_is_named",
    ),
    Mutation(
        "cli/parser.py",
        'return " ".join(str(error).split())',
        'return str(error).replace(". ", "\\n")',
        "test_cli.py::test_mistakes_give_a_one_line_error",
    ),
    # The paper as a notebook: the same code in both languages, with the outputs of that code.
    Mutation(
        "../training/paper/notebook.zh.py",
        "scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))",
        "scores = q @ k.transpose(-2, -1) / math.sqrt(d)",
        "test_notebook.py::test_both_languages_have_the_same_code",
    ),
    Mutation(
        "../training/paper/notebook.en.py",
        "## 2. Embeddings and their scale (Section 3.4)",
        "## 2. Embeddings (Section 3.4)",
        "test_notebook.py::test_stored_notebook_equals_its_source_and_was_run_in_order",
    ),
    # Tables 1 and 2 of the paper.
    Mutation(
        "../training/paper/table_1.py",
        "seen = ((at - others).abs() <= radius)",
        "seen = ((at - others).abs() < radius)",
        "test_table_1.py::test_restricted_attention_equals_attention_with_a_band_mask",
    ),
    Mutation(
        "../training/paper/table_1.py",
        "weakref.finalize(storage, self.live.pop, storage._cdata)",
        "pass",
        "test_table_1.py::test_memory_of_freed_tensors_is_not_counted",
    ),
    Mutation(
        "../training/paper/table_2.py",
        "2 * (devices - 1) / devices * 4 * parameters",
        "2 * devices * 4 * parameters",
        "test_table_2.py::test_table_2_adds_up",
    ),
    # Trees of Table 4: EVALB's rules and malformed trees.
    Mutation(
        "../training/paper/trees.py",
        "(ours & theirs).total()",
        "len(ours.keys() & theirs.keys())",
        "test_table_4.py::test_bracket_counts_match_manual_counts",
    ),
    Mutation(
        "../training/paper/trees.py",
        "return start + (not next(words))",
        "return start + 1",
        "test_table_4.py::test_bracket_counts_match_manual_counts",
    ),
    Mutation(
        "../training/paper/trees.py",
        "SAME_LABEL.get(part.label, part.label)",
        "part.label",
        "test_table_4.py::test_bracket_counts_match_manual_counts",
    ),
    Mutation(
        "../training/paper/trees.py",
        "return root, whole and not left",
        "return root, not left",
        "test_table_4.py::test_malformed_sequences_are_repaired",
    ),
    Mutation(
        "../training/paper/table_4.py",
        "found[place] = attach(symbols, sentences[place])",
        "found[place] = attach(symbols[1:], sentences[place])",
        "test_table_4.py::test_parser_fits_its_training_trees",
    ),
    # Generated pairs.
    Mutation(
        "data/cldr/pairs.py",
        " or _split_of(source) != split:",
        ":",
        "test_cldr.py::test_no_source_is_in_two_splits_for_any_seed",
    ),
    # Requests, files and resumptions that were once misread.
    Mutation(
        "data/cldr/pairs.py",
        '"percent", "date", "time", "interval"',
        '"percent", "date", "interval"',
        "test_cldr.py::test_languages_that_share_only_numbers_and_dates_are_refused",
    ),
    Mutation(
        "recipes/pairs.py",
        '"Unknown split|Bad split"',
        '"Unknown split"',
        "test_runs.py::test_missing_splits_of_a_data_set_are_held_out",
    ),
    Mutation(
        "cli/translate.py",
        "    _check_distinct(options.file, ",
        "    print(options.file, ",
        "test_cli_translate.py::test_no_file_is_given_twice",
    ),
    Mutation(
        "data/readers.py",
        "if not any(cell.strip() for cell in row):",
        "if False:",
        "test_reading.py::test_header_may_follow_blank_lines",
    ),
    Mutation(
        "data/dataset.py",
        'if kind not in ("pairs", "clean", "tokens"):',
        "if not kind:",
        "test_data.py::test_counting_and_cleaning_come_before_holding_out",
    ),
    Mutation(
        "train/choosing.py",
        '"early_stopping": recipe.stop_search_early',
        '"early_stopping": False',
        "test_runs.py::test_average_and_length_penalty_are_chosen_on_validation_pairs",
    ),
    Mutation(
        "train/checkpoints.py",
        "if self.batch_tokens not in (None, batch_tokens):",
        "if False:",
        "test_trainer.py::test_resuming_with_other_batches_is_rejected",
    ),
    Mutation(
        "train/checkpoints.py",
        "if self.order_seed not in (None, order_seed):",
        "if False:",
        "test_trainer.py::test_resuming_with_other_batches_is_rejected",
    ),
    Mutation(
        "train/trainer.py",
        "                self.progress.stop()\n",
        "                pass\n",
        "test_trainer.py::test_only_the_training_itself_counts_as_its_time",
    ),
    Mutation(
        "train/trainer.py",
        "self.progress = Progress(matmul_precision=self.progress.matmul_precision)",
        "pass",
        "test_trainer.py::test_only_the_training_itself_counts_as_its_time",
    ),
    Mutation(
        "generation_limits.py",
        ' and not getattr(generation_config, "bounded_by_call", False):',
        ":",
        "test_modeling.py::test_generated_length_is_limited_by_default_to_source_plus_50",
    ),
    Mutation(
        "batch_translation.py",
        "if getattr(config, name, None) is not None]",
        "if getattr(config, name, None)]",
        "test_pipeline.py::test_forced_token_with_id_0_excludes_the_papers_search",
    ),
    Mutation(
        "beam_search.py",
        '    check_mask(attention_mask, shape[0], shape[1], "attention_mask")\n',
        "",
        "test_beam_search.py::test_sources_and_masks_of_a_wrong_shape_are_refused",
    ),
    Mutation(
        "convert/verification.py",
        "    ends[:, 0] = False",
        "    ends[:, 0] = ends[:, 0]",
        "test_export_marian.py::test_greedy_check_covers_models_that_start_with_their_end_symbol",
    ),
    Mutation(
        "convert/importers/safe_files.py",
        "own_file(source / name).read_bytes()",
        "(source / name).read_bytes()",
        "test_import_marian.py::test_tokenizer_files_that_are_links_elsewhere_are_refused",
    ),
    Mutation(
        "publish/card.py",
        " and right[:1] == samples[-1:]",
        "",
        "test_publishing.py::test_cards_example_is_a_correct_translation_if_there_is_one",
    ),
    Mutation(
        "evaluation/models.py",
        "        target_ids(model, tokenizer, references[window], first=start + 1)\n",
        "",
        "test_evaluation.py::test_too_long_reference_is_refused_before_translation_starts",
    ),
    Mutation(
        "evaluation/scores.py",
        "for kind in set(labels):",
        "for kind in labels:",
        "test_evaluation.py::test_exact_match_by_kind_counts_each_sentence_once",
    ),
    Mutation(
        "train/checkpoints.py",
        "except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError):",
        "except (OSError, ValueError):",
        "test_trainer.py::test_unreadable_checkpoint_is_an_error_and_not_a_broken_one",
    ),
    Mutation(
        "train/checkpoints.py",
        "    let_others_read_weights(checkpoint)\n",
        "",
        "test_trainer.py::test_unreadable_checkpoint_is_an_error_and_not_a_broken_one",
    ),
    Mutation(
        "train/run_directory.py",
        "and complete and last_whole_checkpoint(run / CHECKPOINTS) is None:",
        "and not checkpoints(run / CHECKPOINTS):",
        "test_runs.py::test_complete_run_with_broken_checkpoints_is_not_trained_anew",
    ),
    Mutation(
        "recipes/pairs.py",
        'if kind_of(recipe.dataset) != "hub":',
        "if False:",
        "test_runs.py::test_file_given_as_a_data_set_is_refused",
    ),
    Mutation(
        "train/evaluating.py",
        'make_recipe({"num_beams": beams, **overrides})',
        "make_recipe(overrides)",
        "test_runs.py::test_model_without_a_recipe_is_evaluated_with_its_own_beams",
    ),
    Mutation(
        "train/run.py",
        "                    write_text(run / RECIPE, recipe.to_yaml())\n",
        "                    pass\n",
        "test_runs.py::test_stopped_continuation_does_not_change_a_complete_run",
    ),
    Mutation(
        "train/run.py",
        "                _check_updates(recipe, run)\n",
        "                pass\n",
        "test_runs.py::test_run_cannot_be_shortened",
    ),
    Mutation(
        "train/initial_model.py",
        "if folder != Path(name) and folder",
        "if folder",
        "test_init_from.py::test_folder_of_a_snapshot_may_be_the_initial_model",
    ),
    Mutation(
        "train/trainer.py",
        "if self.stopped and state.global_step % self.trainer.updates_per_epoch:",
        "if False:",
        "test_trainer.py::test_signal_in_an_epoch_saves_once_and_evaluates_nothing",
    ),
    Mutation(
        "data/readers.py",
        'max(",;\\t", key=equal_rows)',
        "','",
        "test_reading.py::test_delimiter_of_a_csv_is_the_one_of_most_rows",
    ),
    # What a hunt for bugs by reading found.
    Mutation(
        "data/dataset.py",
        "    if writes_start(tokenizer):",
        "    if False:",
        "test_data.py::test_labels_begin_without_a_start_symbol",
    ),
    Mutation(
        "target_tokenizer.py",
        "at_least = 2 if start == tokenizer.eos_token_id else 1",
        "at_least = 1",
        "test_data.py::test_labels_begin_without_a_start_symbol",
    ),
    Mutation(
        "train/trainer.py",
        "if self.validation_pairs and self._translates:",
        "if self.validation_pairs:",
        "test_trainer.py::test_bleu_of_validation_pairs_is_not_reported_for_other_data",
    ),
    Mutation(
        "train/trainer.py",
        "            args._n_gpu = 1",
        "            pass",
        "test_trainer.py::test_one_process_trains_on_one_gpu",
    ),
    Mutation(
        "train/checkpoints.py",
        "num_items.long() if isinstance(num_items, torch.Tensor) else num_items",
        "num_items",
        "test_checkpoints.py::test_tokens_are_counted_beyond_what_float32_holds",
    ),
    Mutation(
        "configuration_vanilla_transformer.py",
        "value if own else None",
        "value",
        "test_configuration.py::test_ids_of_another_vocabulary_are_not_guessed",
    ),
    Mutation(
        "beam_search.py",
        "        check_ends(never, ends)\n",
        "        pass\n",
        "test_beam_search.py::test_a_generation_config_must_let_sentences_end",
    ),
    Mutation(
        "train/run.py",
        "args.ddp_find_unused_parameters = not model.config.tie_word_embeddings",
        "args.ddp_find_unused_parameters = False",
        "test_two_processes.py::test_two_processes_train_a_model_without_ties",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "labels is None or not self.training or not return_dict",
        "labels is None or not self.training",
        "test_modeling.py::test_a_tuple_in_training_holds_the_logits_in_their_place",
    ),
    Mutation(
        "generation_limits.py",
        'if limits == ["max_length"]:',
        "if False:",
        "test_modeling.py::test_generated_length_is_limited_by_default_to_source_plus_50",
    ),
    Mutation(
        "generation_limits.py",
        "not in (None, getattr(own, name))",
        "is not None",
        "test_modeling.py::test_generated_length_is_limited_by_default_to_source_plus_50",
    ),
    Mutation(
        "generation_limits.py",
        "check_generation(prepared, kwargs, is_own=generation_config is None)",
        "pass",
        "test_beam_search.py::test_a_generation_config_must_let_sentences_end",
    ),
    Mutation(
        "configuration_vanilla_transformer.py",
        "if number is not None and number not in ends})",
        "if number is not None})",
        "test_import_torch.py::test_an_end_symbol_with_a_second_role_ends_translations",
    ),
    Mutation(
        "modeling_vanilla_transformer.py",
        "if attention_mask is not None and attention_mask.dtype == torch.bool:",
        "if False:",
        "test_changed_models.py::test_a_switch_of_the_attention_in_mid_batch_changes_nothing",
    ),
    Mutation(
        "beam_search.py",
        "            if users > 1:",
        "            if False:",
        "test_changed_models.py::test_the_last_user_of_a_changed_model_restores_it",
    ),
    Mutation(
        "fast/incremental_decoding.py",
        "all(type(norm) is nn.LayerNorm for norm in norms)",
        "True",
        "test_fused_layer.py::test_modules_that_a_user_has_exchanged_are_called",
    ),
    Mutation(
        "fast/incremental_decoding.py",
        "all(type(part) in (nn.Dropout, nn.Identity) for part in (layer.dropout, ffn.dropout))",
        "True",
        "test_fused_layer.py::test_modules_that_a_user_has_exchanged_are_called",
    ),
    Mutation(
        "target_tokenizer.py",
        "if start == target.bos_token_id and writes_start(target):",
        "if False:",
        "test_import_torch.py::test_labels_begin_with_no_start_symbol_even_if_it_is_the_end_symbol",
    ),
    Mutation(
        "batch_translation.py",
        'model = getattr(model, "_orig_mod", model)',
        "model = model",
        "test_pipeline.py::test_compiled_model_is_searched_like_the_model",
    ),
    Mutation(
        "evaluation/models.py",
        'elif model.config.model_type == "fsmt":',
        "elif False:",
        "test_import_fsmt.py::test_perplexity_equals_that_of_the_imported_model",
    ),
    Mutation(
        "publish/publishing.py",
        " or (Path(card_dir) / RECIPE).is_file()",
        "",
        "test_publishing.py::test_card_overwrites_no_other_run",
    ),
    Mutation(
        "publish/publishing.py",
        "(*weight_files(directory), *known)",
        "weight_files(directory)",
        "test_publishing.py::test_weights_that_changed_after_they_were_scored_are_rejected",
    ),
    Mutation(
        "convert/engines.py",
        "if use_cache is False:",
        "if False:",
        "test_export_onnx.py::test_onnx_translations_equal_those_of_the_model",
        needs="onnxruntime",
    ),
    Mutation(
        "cli/translate.py",
        "            check_output(Path(output), sources=())\n",
        "            pass\n",
        "test_cli_translate.py::test_no_file_of_a_model_is_replaced",
    ),
    Mutation(
        "publish/publishing.py",
        "    _check_scored_model(source)\n",
        "",
        "test_publishing.py::test_weights_that_changed_after_they_were_scored_are_rejected",
    ),
    Mutation(
        "storage/atomic.py",
        "parent = output if output.is_dir() else output.parent",
        "parent = output.parent",
        "test_atomic.py::test_an_empty_folder_stays_and_gets_the_files",
    ),
    Mutation(
        "convert/importers/vocabulary.py",
        'token.endswith("@@") and token != "@@"',
        'token.endswith("@@")',
        "test_import_torch.py::test_word_tokenizer_joins_pieces_into_text",
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
    missing = {row: lacking(row) for row in rows}
    tests = dict.fromkeys(test for row in rows if not missing[row] for test in row.tests.split())
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
        if missing[row]:
            status, seconds = f"left out (no {missing[row]})", 0.0
        else:
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


def lacking(row: Mutation) -> str:
    """Return the first package that the tests of a row need and that is not installed, or ""."""
    return next((name for name in row.needs.split() if not importlib.util.find_spec(name)), "")


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
            places = [f"{TESTS.name}/{test}" for test in tests]
            options = ["-q", "-x", "-p", "no:cacheprovider", "-n", "0"]
            code = int(pytest.main([*options, "-m", "not slow and not gpu", *places]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
