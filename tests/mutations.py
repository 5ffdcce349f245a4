"""Mutation tests: each row breaks one thing in the package, and its tests must fail.

Run it before and after a change that moves code or tests: what was caught before must still be
caught. Rows quote code and name tests; if you change either, fix the row. There is one row for each
law, and a second one only if it breaks another side of it; a formula that a test writes out needs
none.

    python tests/mutations.py                        # all rows
    python tests/mutations.py --only search          # rows with "search" in file, text or tests
    python tests/mutations.py --list

Only a copy of the tracked files is changed. The exit code is 0 if tests caught every row.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TESTS = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py")}
PACKAGE = "vanilla_transformer"
SECONDS = 300  # per row; a mutation may cause an endless loop


class Mutation(NamedTuple):
    """A change that breaks the code, and the tests that must fail."""

    file: str  # path in the package
    old: str  # occurs in it exactly once
    new: str
    tests: str  # names of test functions, perhaps with parameters


# Under the name of a file of the package: what a row takes out (-) and puts in (+), with \n for an
# end of line, and the tests that must fail (!), each with its parameters if not all of them do.
_ROWS = r"""
modeling_vanilla_transformer.py
- mask = create_causal_mask(self.config, x, attention_mask, own_cache)
+ mask = create_bidirectional_mask(self.config, x, attention_mask)
! test_decoder_positions_see_themselves_and_earlier_ones_only
- mask = create_bidirectional_mask(self.config, x, attention_mask)
+ mask = None
! test_padding_changes_nothing_and_gets_no_gradient
- memory_mask = create_bidirectional_mask(self.config, x, source_mask, memory)
+ memory_mask = None
! test_attentions_and_hidden_states
- if attention_mask is not None and attention_mask.dim() == 2:
+ if False:
! test_model_matches_the_equations_of_the_paper
- if cache is not None and self.is_cross and cache.is_updated.get(layer):
+ if cache is not None and cache.is_updated.get(layer):
! test_cached_decoding_equals_full_decoding[dynamic-paper]
- scores = scores.to(torch.promote_types(scores.dtype, torch.float32)) + attention_mask
+ scores = scores + attention_mask
! test_row_of_padding_gives_no_nan_and_changes_no_other_row
- (tokens := positions.max() + 1) > len(self.weight)
+ (tokens := positions.max() + 1) >= len(self.weight)
! test_padding_may_extend_beyond_learned_positions
- else (cache, index)
+ else (cache, 0)
! test_every_decoder_follows_changed_stacks[share_a_layer]
- return shifted.masked_fill(is_gap & (rank < rank[:, -1:]), IGNORED)
+ return shifted
! test_collated_pairs_have_one_loss_on_whichever_side_they_are_padded
- packed.gather(1, rank - (~is_gap).long())
+ packed.gather(1, rank)
! test_decoder_input_is_the_target_offset_by_one_position
- return labels if is_end else labels.masked_fill
+ return labels.masked_fill
! test_padding_may_be_the_end_in_forward_search_and_evaluation
- check_masked(self.config._attn_implementation)
+ pass
! test_an_attention_without_a_mask_function_is_refused[False]
- positions = attention_mask.bool().long().cumsum(-1) - 1
+ positions = attention_mask.bool().long().cumsum(-1)
! test_generate_sees_what_its_masks_show

loss.py
- return is_plain and linear.bias is None and not (hooks or replaced)
+ return True
! test_training_uses_the_changed_model[hook_the_softmax]
- torch_module._has_any_global_hook()
+ bool(torch_module._global_forward_hooks)
! test_every_hook_of_the_softmax_is_called_in_training_and_search
- "forward" in linear.__dict__ or nn.Linear.forward is not _LINEAR_FORWARD
+ "forward" in linear.__dict__
! test_training_uses_the_changed_model[patch_every_linear_layer]
- is_plain and linear.bias is None and not
+ is_plain and not
! test_bias_of_a_replaced_softmax_is_trained
-  and type(linear.weight) is nn.Parameter
+
! test_a_weight_of_another_kind_is_multiplied_by_its_own_layer
- None if g is None else g.div_(num_items)
+ None if g is None else g.div_(num_items).to(hidden.dtype)
! test_scale_of_a_gradscaler_fits_a_model_in_float16
- row = -smooth * (hidden * counts).sum(0, dtype=sum_dtype)
+ row = -smooth * hidden.sum(0, dtype=sum_dtype)
! test_chunks_mask_ignored_labels_themselves

masks.py
- mask = text
+ mask = torch.ones_like(text)
! test_a_forward_sees_what_its_masks_show_and_nothing_else

fast/unmodified.py
-  or torch_module._global_forward_pre_hooks
+
! test_search_and_evaluation_use_the_changed_model[hook_before_every_softmax]

beam_search.py
- decided | (self.ended_scores[:, -1] > -torch.inf)
+ decided
! test_search_equals_the_authors_search
- ended & (torch.arange(ended.size(1), device=ended.device) < self.beam)
+ ended
! test_search_equals_the_authors_search
- tokens.masked_fill(tokens < 0, self.pad)
+ tokens.masked_fill(tokens < 0, 0)
! test_other_ids_of_all_tokens_only_rename_the_results
-         self.cached = self.cached[order]\n
+         self.cached = self.cached[: len(order)]\n
! test_results_do_not_depend_on_the_batch_or_its_order
- self.memory[order]
+ self.memory[: len(order)]
! test_sentences_keep_their_source_when_others_finish
- attention_of(before) == SDPA and attention_of("eager") == EAGER
+ True
! test_training_uses_the_changed_model[register_another_sdpa]
- logits.log_softmax(-1, dtype=self.scores.dtype)
+ logits.log_softmax(-1).to(self.scores.dtype)
! test_only_the_logits_of_half_precision_are_rounded

fast/incremental_decoding.py
- if is_unmodified(model) else None
+ if model else None
! test_search_and_evaluation_use_the_changed_model[wrap_forward]
- mask.scatter_(3, self._places_of(ancestors)[:, None], 0.0)
+ mask.zero_()
! test_steps_equal_the_whole_decoder_for_random_histories
- if 2 * most >= self.kept:
+ if True:
! test_cache_rows_of_dead_hypotheses_are_dropped

batch_translation.py
- limits.repeat_interleave(rows_per_source)
+ limits.repeat(rows_per_source)
! test_generate_limits_each_translation_by_its_own_source
- if row == nothing or not text.strip()
+ if not text.strip()
! test_blank_text_beside_real_text_stays_blank_if_0_is_a_word

input_checks.py
- if given and (unread := _unread(tuple(given), attend)):
+ if given and (unread := []):
! test_an_argument_that_nothing_reads_is_refused_by_name
- set(ends) <= set(suppressed)
+ set(ends) & set(suppressed)
! test_a_generation_config_must_let_sentences_end

data/batches.py
- self._first + epoch, 0
+ epoch, 0
! test_a_stream_resumes_in_each_of_its_passes
- self.per_update))) == self.per_update:
+ self.per_update))):
! test_an_update_takes_batches_of_one_pass

data/augmentation.py
- pairs.take(_others(corpora, random.permutation(len(pairs))))
+ pairs
! test_each_pair_is_joined_with_others_in_the_same_order_on_both_sides
- block[MADE][row] += NOISY
+ block[MADE][row] += 0
! test_noise_changes_its_share_of_each_kind_of_pair_and_others_each_time
- pc.invert(pc.starts_with(pairs["source"], "<"))
+ pc.is_valid(pairs["source"])
! test_noise_leaves_tagged_sources_alone
- _others(corpora, random.permutation(len(pairs)))
+ random.permutation(len(pairs))
! test_a_made_pair_has_pairs_of_one_corpus

train/trainer.py
- if self._repeats_last and self.accelerator.gradient_state.end_of_dataloader:
+ if False:
! test_two_processes_train_as_one_with_an_odd_number_of_batches
- self._plain_loss(some)
+ loss
! test_eval_loss_is_the_token_mean_of_plain_cross_entropy
- (self.state.global_step + 1) % self.state.logging_steps
+ self.state.global_step % self.state.logging_steps
! test_each_line_of_the_log_has_the_norm_of_its_own_gradient
- not has_full_eval and not self._has_other_evaluation:
+ not has_full_eval:
! test_the_evaluation_loss_is_that_of_what_was_replaced

data/tokenizer.py
-         *after,\n
+
! test_what_a_phone_types_has_the_tokens_of_ascii
-         *before,  # first, so that NFC composes accents on letters\n        normalizers.NFC(),\n
+         normalizers.NFC(),\n        *before,\n
! test_hard_texts_survive_encoding

data/bpe_dropout.py
- self._taken_apart(side, parts, rng)
+ self._taken_apart(side, parts, np.random.default_rng(epoch))
! test_source_and_target_of_the_same_text_are_split_independently
- _parts(target_tokenizer(tokenizer))
+ _parts(tokenizer)
! test_each_side_is_split_by_the_merges_of_its_own_vocabulary

train/checkpoints.py
- best = MEASURES[watched].best if watched in MEASURES else min
+ best = min
! test_every_choice_takes_the_texts_with_the_fewest_errors

evaluation/models.py
- if not all(sources):
+ if False:
! test_pairs_without_tokens_are_an_error

publish/card.py
- for name in (*FILES.values(), "tokenizer"):
+ for name in FILES.values():
! test_no_path_of_this_machine_is_published

data/languages.py
- frozenset([script.lower(), *parts] if
+ frozenset([*parts] if
! test_tags_mean_each_other_unless_both_say_what_differs

data/columns.py
- if named is not None and named[0] in sides[0] and named[1] in sides[1]:
+ if named is not None:
! test_content_wins_over_names_and_names_over_the_order

data/doubts.py
- kinds[swapped & (target.odds - source.odds >= 2 * _CERTAIN)] = 3
+ pass
! test_two_files_in_the_wrong_order_are_refused_whatever_their_names
- repeats & (shares < _NO_WORDS)
+ repeats
! test_doubtful_pairs_are_counted_by_kind

train/synthetic_pairs.py
- made_from["text"] = None if new.text is None else sha256(Path(new.text))
+ made_from["text"] = None
! test_pairs_of_other_pairs_or_another_text_are_not_taken
"""


def _read(table: str) -> Iterator[Mutation]:
    file = old = new = ""
    for line in filter(None, table.splitlines()):
        mark, text = line[0], line[2:].replace(r"\n", "\n")
        if mark == "-":
            old = text
        elif mark == "+":
            new = text
        elif mark == "!":
            yield Mutation(file, old, new, text)
        else:
            file = line


MUTATIONS = [*_read(_ROWS)]


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
        print("\n".join(f"{shown(row)}  [{row.tests}]" for row in rows))
        return 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as temporary:
        copy_tracked(Path(temporary))
        return run_all(rows, Path(temporary))


def shown(row: Mutation) -> str:
    """Return a row's file and change on one line."""
    return " ".join(f"{row.file}: {row.old} -> {row.new or 'nothing'}".split())


def times(row: Mutation) -> int:
    """Return how often the old text occurs in the file."""
    path = ROOT / PACKAGE / row.file
    return path.read_text(encoding="utf-8").count(row.old) if path.is_file() else 0


def places_of(row: Mutation) -> list[str]:
    """Return the paths of a row's tests, which are named by their functions, as pytest's ids."""
    places = []
    for test in row.tests.split():
        found = [path for path, text in TESTS.items() if f"def {test.partition('[')[0]}(" in text]
        if not found:
            raise ValueError(f"no file has the test {test}.")
        places += [f"{path.relative_to(ROOT)}::{test}" for path in found]
    return places


def copy_tracked(copy: Path) -> None:
    """Copy the tracked files as they are in the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)


def run_all(rows: list[Mutation], copy: Path) -> int:
    """Run the tests once on unchanged code, then for each row; return the exit code."""
    code, output = run_tests([*dict.fromkeys(it for row in rows for it in places_of(row))], copy)
    if code != 0:
        print(f"{output}\nThese tests do not pass on the unchanged code.")
        return 1
    counts = {"caught": 0, "SURVIVED": 0, "error": 0}
    for number, row in enumerate(rows, start=1):
        path = copy / PACKAGE / row.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(row.old, row.new), encoding="utf-8")
        code, output = run_tests(places_of(row), copy)
        path.write_text(text, encoding="utf-8")
        status = {0: "SURVIVED", 1: "caught"}.get(code, "error")
        counts[status] += 1
        if status == "error":
            print("\n".join(output.splitlines()[-20:]))
        print(f"{number}/{len(rows)} {status}: {shown(row)}", flush=True)
    print(", ".join(f"{count} {status}" for status, count in counts.items()))
    return int(counts["caught"] < len(rows))


def run_tests(tests: list[str], copy: Path) -> tuple[int, str]:
    """Return pytest's exit code, -1 if it took too long, and its output."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-n", "0", "-m", "not slow and not gpu"]
    limit = SECONDS * (1 if len(tests) < 20 else 10)
    # Caches of broken code must not affect the next row.
    with tempfile.TemporaryDirectory() as home:
        variables = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "HF_HOME": home}
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "pytest", *options, *tests],
                cwd=copy,
                env={**os.environ, **variables, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return -1, f"No end after {limit} seconds."
    return ended.returncode, ended.stdout


if __name__ == "__main__":
    sys.exit(main())
