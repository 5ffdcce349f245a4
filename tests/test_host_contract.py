"""What we need from transformers by name: hooks that it calls and settings that it reads.

Python reports a function of transformers that is gone when we call it, and mypy a parameter.
Nothing reports a hook that transformers no longer calls, or an attribute that it no longer reads.
The tests here list them, compare the list with the code, and watch transformers in tiny runs.
"""

import functools
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections import defaultdict

import accelerate
import pytest
import torch
import transformers
from tiny_models import byte_tokenizer, tiny_config
from tiny_trainers import copy_task, make_trainer, tiny_model
from transformers import (
    Cache,
    GenerationConfig,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerControl,
    pipeline,
)
from transformers.generation import GenerationMixin
from transformers.generation.utils import GenerateBeamEncoderDecoderOutput
from transformers.integrations import sdpa_attention
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.trainer_callback import CallbackHandler

import vanilla_transformer
from vanilla_transformer import VanillaTransformerForConditionalGeneration, generation_limits
from vanilla_transformer import modeling_vanilla_transformer as modeling
from vanilla_transformer.modeling_vanilla_transformer import eager_attention_forward
from vanilla_transformer.train import arguments, trainer
from vanilla_transformer.train.arguments import VanillaTransformerTrainingArguments
from vanilla_transformer.train.trainer import VanillaTransformerTrainer

HOSTS = ("transformers", "accelerate", "torch", "huggingface_hub")

# Methods and attributes of the host's classes that ours replace, by class of ours. The host reaches
# them in the runs below.
REACHED = {
    "VanillaTransformerConfig": "attribute_map from_dict get_text_config model_type",
    "LimitedGenerationMixin": "_beam_search _prepare_generated_length _prepare_generation_config",
    "VanillaTransformerPreTrainedModel": "_init_weights _no_split_modules"
    " _skip_keys_device_placement _supports_flex_attn _supports_sdpa base_model_prefix"
    " save_pretrained supports_gradient_checkpointing",
    "Encoder": "_can_record_outputs",
    "Decoder": "_can_record_outputs",
    "VanillaTransformerModel": "get_expanded_tied_weights_keys get_input_embeddings"
    " set_input_embeddings",
    "VanillaTransformerTranslationPipeline": "_forward _load_tokenizer"
    " _load_feature_extractor _load_image_processor _load_processor _load_video_processor"
    " _sanitize_parameters postprocess preprocess",
    "VanillaTransformerTrainingArguments": "adam_beta2 adam_epsilon learning_rate"
    " logging_nan_inf_filter lr_scheduler_type max_grad_norm optim output_dir warmup_steps",
    "RunControl": "on_epoch_begin on_epoch_end on_evaluate on_log on_save on_step_end"
    " on_substep_end on_train_begin",
    "VanillaTransformerTrainer": "_get_grad_norm _hp_search_setup _issue_warnings_after_load"
    " _load_optimizer_and_scheduler _load_rng_state"
    " _save_checkpoint create_scheduler evaluate evaluation_loop"
    " get_batch_samples get_optimizer_cls_and_kwargs get_train_dataloader log",
}
# These need the Hub or another engine, or users call them: the host's source mentions them.
MENTIONED = {
    "VanillaTransformerConfig": "__post_init__ is_encoder_decoder",
    # Only the host's own tests of models read the first, so far.
    "VanillaTransformerPreTrainedModel": "_can_compile_fullgraph _supports_attention_backend"
    " resize_token_embeddings",
    "VanillaTransformerTranslationPipeline": "__call__ save_pretrained",
    "VanillaTransformerTrainingArguments": "__post_init__",
    "PublishingTrainer": "create_model_card push_to_hub",
    "VanillaTransformerTrainer": "hyperparameter_search train",
}
# The host reads these, though no base class declares them any more (since 5.20).
UNDECLARED = {"VanillaTransformerConfig": "keys_to_ignore_at_inference"}
# Attributes of the host that our classes set, by the class of the object. The host reads them.
ASSIGNED = {
    VanillaTransformerTrainer: "_created_lr_scheduler _globalstep_last_logged _total_loss_scalar"
    " _tr_loss _train_batch_size args control data_collator label_smoother lr_scheduler optimizer",
    VanillaTransformerTrainingArguments: "_n_gpu dataloader_persistent_workers greater_is_better"
    " learning_rate lr_scheduler_type optim save_total_limit",
    TrainerControl: "should_evaluate should_log should_save should_training_stop",
    CallbackHandler: "eval_dataloader",
    accelerate.DataLoaderConfiguration: "data_seed dispatch_batches even_batches non_blocking"
    " split_batches",
    GenerationConfig: "_pad_token_tensor max_new_tokens suppress_tokens",
    VanillaTransformerForConditionalGeneration: "_tied_weights_keys generation_config",
    modeling.Stack: "gradient_checkpointing",
}
# What we look up with a default or in `**kwargs`, and would not miss, by where it is.
LOOKED_UP = {
    Trainer: "data_collator eval_dataset optimizers processing_class",
    Seq2SeqTrainingArguments: " ".join((*arguments._BATCHES, *arguments._SHARDED)),
    VanillaTransformerTrainer: " ".join(trainer._EVALUATION_STEPS),
    GenerateBeamEncoderDecoderOutput: "sequences sequences_scores",
    GenerationMixin.generate: "generation_config stopping_criteria",
    GenerationConfig: "cache_implementation eos_token_id guidance_scale max_new_tokens max_time"
    " prefill_chunk_size suppress_tokens",
    Cache: "is_compileable",
    byte_tokenizer(): "backend_tokenizer init_kwargs unk_token_id",
}


class Gone(AssertionError):
    """Something that the host had."""


def require(there, what, advice="look for its new name in the host"):
    if not there:
        raise Gone(f"transformers {transformers.__version__}: {what}; {advice}.")


# ------------------------------------------------------------------------------- what there is


@functools.cache
def our_modules():
    found = []
    for module in pkgutil.walk_packages(vanilla_transformer.__path__, "vanilla_transformer."):
        if not module.name.endswith("__main__"):
            try:
                found.append(importlib.import_module(module.name))
            except ModuleNotFoundError:  # of an extra
                continue
    return found


def our_classes():
    """Return our classes that have a base class of transformers, by name."""
    return {
        kind.__name__: kind
        for module in our_modules()
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and host_bases(kind)
    }


def host_bases(kind):
    return [base for base in kind.__mro__ if base.__module__.split(".")[0] == "transformers"]


def overridden(kind):
    """Return the names that a class defines and that a base class of the host has too."""
    hooks = {"__call__", "__post_init__"}
    return {
        name
        for name, value in vars(kind).items()
        if (name in hooks or not name.startswith("__"))
        and not (inspect.isfunction(value) and value.__module__ != kind.__module__)
        and name not in ("config_class", "_abc_impl")  # made by Python and by the host
        and any(name in vars(base) for base in host_bases(kind))
    }


def listed(*tables):
    names = defaultdict(set)
    for table in tables:
        for kind, text in table.items():
            names[kind] |= set(text.split())
    return names


def check_overrides():
    """Compare the lists with what our classes and the host's have in common."""
    written, found = listed(REACHED, MENTIONED), {}
    for name, kind in our_classes().items():
        found[name] = overridden(kind) - listed(UNDECLARED)[name]
    gone = [f"{kind}.{name}" for kind in written for name in written[kind] - found.get(kind, set())]
    require(not gone, f"no base class has {', '.join(sorted(gone))} any more, which we override")
    new = [f"{kind}.{name}" for kind in found for name in found[kind] - written[kind]]
    require(not new, f"we override its {', '.join(sorted(new))}", "add it to a list of this file")


# ---------------------------------------------------------------- what the host calls and reads


def is_from_host():
    """Return whether the caller of a function of this file is code of the host."""
    frame = sys._getframe(1)
    while frame.f_globals is globals():
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").split(".")[0] in HOSTS


class Watched:
    """A class attribute that notes when the host reads it."""

    def __init__(self, value, note):
        self.value, self.note = value, note

    def __get__(self, instance, owner):
        if is_from_host():
            self.note()
        return self.value


def watch(patch, kind, name, seen):
    """Note when the host calls a method of a class, or reads another attribute of it."""
    value = vars(kind)[name]
    bare = getattr(value, "__func__", value)
    if not inspect.isfunction(bare):
        patch.setattr(kind, name, Watched(value, lambda: seen.add((kind, name))))
        return

    @functools.wraps(bare)
    def watched(*args, **kwargs):
        if is_from_host():
            seen.update({(kind, name), *((kind, f"{name}({given})") for given in kwargs)})
        return bare(*args, **kwargs)

    patch.setattr(kind, name, watched if value is bare else type(value)(watched))


def watch_instances(patch, kind, names, seen):
    """Note which attributes of a class's instances the host reads."""
    found = kind.__getattribute__

    def read(self, name):
        if name in names and is_from_host():
            seen.add((kind, name))
        return found(self, name)

    patch.setattr(kind, "__getattribute__", read)


def run_training(folder):
    """Train, evaluate, save, load the best model, resume, and use another optimizer."""
    often = {"save_steps": 1, "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    often |= {"train": copy_task(20), "given": {"eval_dataset": copy_task(4)}}
    for updates in (2, 3):  # the second one resumes
        best = {"load_best_model_at_end": True, "metric_for_best_model": "loss"}
        trainer = make_trainer(folder / "ours", max_steps=updates, **often, **best)
        trainer.train(resume_from_checkpoint=updates == 3)
    other = {"batch_tokens": None, "optim": "sgd", "lr_scheduler_type": "linear"}
    other["learning_rate_factor"] = 1.0
    make_trainer(folder / "theirs", max_steps=1, save_strategy="no", **other).train()


def run_search(folder):
    """Search greedily, by beams, with a static cache, an assistant, and by the pipeline."""
    tokenizer = byte_tokenizer()
    model = VanillaTransformerForConditionalGeneration(tiny_config(len(tokenizer))).eval()
    one = tokenizer(["a dog"], return_tensors="pt", return_token_type_ids=False)
    searches = ({}, {"num_beams": 2}, {"assistant_model": model})
    for search in (*searches, {"cache_implementation": "static", "disable_compile": True}):
        model.generate(**one, max_new_tokens=3, **search)
    translate = pipeline("translate", model=model, tokenizer=tokenizer)
    translate("a dog", do_sample=True)


def run_model(folder):
    """Make, change, save and load a model, and ask for its attention."""
    model = tiny_model()
    for attention in ("sdpa", "flex_attention", "eager"):
        model.set_attn_implementation(attention)
    model.resize_token_embeddings(44)
    model.gradient_checkpointing_enable()
    make_trainer(folder / "run", model=model).save_model(folder / "model")
    kind = VanillaTransformerForConditionalGeneration
    model = kind.from_pretrained(folder / "model", device_map={"": "cpu"})
    ids = torch.tensor([[5, 6, 2]])
    model(ids, decoder_input_ids=ids, output_attentions=True, output_hidden_states=True)
    model.generate(ids, max_new_tokens=2)


# Keywords that the host hands to the whole model.
HANDED = """input_ids attention_mask labels num_items_in_batch decoder_input_ids encoder_outputs
    return_dict use_cache output_attentions output_hidden_states"""


def not_reached(folder):
    """Run the host, and return what we rely on and it does not call, read or hand over."""
    seen, classes = set(), our_classes()
    model = VanillaTransformerForConditionalGeneration
    assigned = {kind: {*names.split()} for kind, names in ASSIGNED.items()}
    hooks = {classes[kind]: {*names.split()} for kind, names in REACHED.items()}
    needed = {(kind, name) for table in (assigned, hooks) for kind in table for name in table[kind]}
    needed |= {(model, name) for name in (*HANDED.split(), generation_limits.CACHE)}
    # These only have `**kwargs` in the host.
    options = ("on_epoch_begin(train_dataloader)", "on_log(logs)")
    needed |= {(classes["RunControl"], option) for option in options}
    with pytest.MonkeyPatch.context() as patch:
        for kind, names in hooks.items():
            fields = getattr(kind, "__dataclass_fields__", {}).keys() & names
            if instances := {*fields, *assigned.pop(kind, ())}:
                watch_instances(patch, kind, instances, seen)
            for name in names - fields:
                watch(patch, kind, name, seen)
        for kind, names in assigned.items():
            watch_instances(patch, kind, names, seen)
        forward = model.forward

        @functools.wraps(forward)
        def noted(*args, **kwargs):
            seen.update((model, name) for name in kwargs if kwargs[name] is not None)
            return forward(*args, **kwargs)

        patch.setattr(model, "forward", noted)
        for run in (run_training, run_search, run_model):
            run(folder)
    return sorted(f"{kind.__name__}.{name}" for kind, name in needed - seen)


def host_source(*modules):
    return "\n".join(inspect.getsource(module) for module in modules)


@functools.cache
def sources_of_host():
    """Return the text of those modules of the host that have to do with our classes."""
    names = ("modeling_utils", "configuration_utils", "trainer", "masking_utils", "pipelines")
    names += ("trainer_callback", "training_args", "generation.utils", "pipelines.base")
    names += ("integrations.accelerate", "training_args_seq2seq", "trainer_seq2seq")
    names += ("utils.auto_docstring",)
    texts = [host_source(importlib.import_module(f"transformers.{name}")) for name in names]
    return "\n".join([*texts, host_source(accelerate.accelerator)])


def check_mentions():
    """See that the host's source has the names that no run here reaches."""
    for kind, names in listed(MENTIONED, UNDECLARED).items():
        for name in sorted(names):
            there = re.search(rf"\b{name}\b", sources_of_host())
            require(there, f"its source has no {name}, for {kind}")


def check_lookups():
    """See that what we look up with a default is there."""
    for owner, names in LOOKED_UP.items():
        found = {*inspect.signature(owner).parameters, *vars(owner)}
        found |= {*GenerationConfig().to_dict()} if owner is GenerationConfig else set()
        gone = [name for name in names.split() if name not in found and not hasattr(owner, name)]
        require(not gone, f"{getattr(owner, '__name__', 'a tokenizer')} has no {', '.join(gone)}")


def check_outputs(limits=generation_limits):
    """See that the outputs have the cache under a name that the model's arguments have too."""
    known = limits.CACHE in limits.CACHE_NAMES
    require(known, f"outputs call the cache {limits.CACHE}, not {' or '.join(limits.CACHE_NAMES)}")
    for kind in (modeling.DecoderOutput, modeling.Seq2SeqModelOutput, modeling.Seq2SeqLMOutput):
        require(limits.CACHE in kind.__dataclass_fields__, f"{kind.__name__} has no {limits.CACHE}")


def check_attention(name):
    """See that each option that a layer hands to an attention of the host changes its result."""
    function, module = ALL_ATTENTION_FUNCTIONS[name], torch.nn.Module()  # in training mode
    torch.manual_seed(0)
    tensors = torch.randn(3, 1, 2, 4, 8)

    def attend(is_causal_module=False, **options):
        module.is_causal = is_causal_module
        return function(module, *tensors, None, **{"scaling": 0.3, "dropout": 0.0, **options})[0]

    options = {"scaling": (0.3, 0.9), "dropout": (0.0, 0.9)}
    if name != "flex_attention":  # which always gets a mask
        options |= {"is_causal": (False, True), "is_causal_module": (False, True)}
    for option, values in options.items():
        try:
            first, second = (attend(**{option: value}) for value in values)
            reads = not torch.allclose(first, second, atol=1e-5)
        except ValueError as error:  # it has none, and says so
            reads = option in str(error)
        what = option.replace("_module", " from the module, as users' do")
        require(reads, f"{name} attention does not read {what}")


# ------------------------------------------------------------ what a layer hands to its attention


def register(patch, function, model, mask=sdpa_mask):
    patch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "another", function)
    if mask is not None:
        patch.setitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "another", mask)
    model.set_attn_implementation("another")


@pytest.mark.parametrize("compiled", [False, True])
def test_an_attention_without_a_mask_function_is_refused(compiled, monkeypatch):
    """It would see padding and later tokens: transformers makes no masks for it."""
    model, ids = tiny_model(), torch.tensor([[5, 6, 2]])
    register(monkeypatch, eager_attention_forward, model, mask=None)
    run = torch.compile(model, backend="eager", fullgraph=True) if compiled else model
    with pytest.raises(Exception, match="'another' has no mask function"):
        run(ids, decoder_input_ids=ids)


def counted(*args, **kwargs):
    return sdpa_attention.sdpa_attention_forward(*args, **kwargs)


class WithoutSource:
    def __call__(self, *args, **kwargs):
        return counted(*args, **kwargs)


def temperature(module, query, key, value, mask, scaling, **kwargs):
    """Ignores what the host hands on, and takes a keyword that the model does not know."""
    return eager_attention_forward(module, query, key, value, mask, 0.5 * kwargs.get("heat", 1.0))


@pytest.mark.parametrize("function", [counted, WithoutSource(), functools.partial(counted)])
def test_an_attention_may_hand_its_options_on(function, monkeypatch):
    model, ids = tiny_model().eval(), torch.tensor([[5, 6, 2]])
    expected = model(ids, decoder_input_ids=ids).logits
    register(monkeypatch, function, model)
    assert torch.equal(model(ids, decoder_input_ids=ids).logits, expected)


def test_an_attention_may_ignore_options_and_read_others(monkeypatch):
    model, ids = tiny_model().eval(), torch.tensor([[5, 6, 2]])
    scaling = model.model.encoder.layers[0].self_attn.scaling
    expected = model(ids, decoder_input_ids=ids).logits
    register(monkeypatch, temperature, model, eager_mask)
    heated = model(ids, decoder_input_ids=ids, heat=2 * scaling).logits
    torch.testing.assert_close(heated, expected)
    assert not torch.allclose(model(ids, decoder_input_ids=ids).logits, expected)


# ------------------------------------------------------------------------------- the host as it is


@pytest.mark.parametrize("check", [check_lookups, check_overrides, check_mentions, check_outputs])
def test_the_host_has_what_we_need(check):
    check()


@pytest.mark.parametrize("name", ["sdpa", "flex_attention"])
def test_the_attention_of_the_host_reads_its_options(name):
    with torch.compiler.set_stance("force_eager"):  # to compile flex attention takes minutes
        check_attention(name)


def test_the_host_calls_and_reads_what_we_rely_on(tmp_path):
    assert not not_reached(tmp_path)
