"""Measure how many updates of a model fit into a limit in minutes."""

import torch
from accelerate.utils import broadcast_object_list
from torch.utils.benchmark import Timer

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..machine.cpu_threads import free_threads
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from .arguments import VanillaTransformerTrainingArguments
from .cpu_settings import cpu_training_settings

_SPENT = 0.8  # share of the minutes for updates; making batches, evaluating and saving take time
_SECONDS = 4.0  # spent on measuring the speed
_ROW = 16  # tokens of each measured sentence


def updates_within(
    args: VanillaTransformerTrainingArguments,
    config: VanillaTransformerConfig,
    batch_tokens: int,
    batches: int,
) -> int:
    """Return how many updates fit into `max_minutes` under the machine's current load.

    A few updates of a new model on random ids are timed. All ranks return the same number.

    Args:
        args: The training arguments.
        config: Config of the model to train.
        batch_tokens: Source tokens, and target tokens, in a batch.
        batches: Batches of each process in an update.
    """
    model = VanillaTransformerForConditionalGeneration(config).to(args.device)  # type: ignore[arg-type]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)
    shape = (max(1, batch_tokens // _ROW), _ROW)
    ids = torch.randint(4, config.vocab_size, shape, device=args.device)
    batch = {"input_ids": ids, "labels": ids % config.target_vocab_size}
    with cpu_training_settings(model), free_threads() as threads:

        def update() -> None:
            threads.adapt()
            for _ in range(batches):
                with torch.autocast(args.device.type, torch.bfloat16, enabled=args.bf16):
                    loss = model(**batch).loss
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        timer = Timer("update()", globals={"update": update}, num_threads=torch.get_num_threads())
        seconds = [timer.blocked_autorange(min_run_time=_SECONDS).mean]
    broadcast_object_list(seconds)
    return max(1, int(_SPENT * 60 * (args.max_minutes or 0.0) / seconds[0]))
