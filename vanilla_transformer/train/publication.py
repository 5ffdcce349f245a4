"""`push_to_hub` of our Trainer: publish a model card and a model that anybody can load."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from huggingface_hub import CommitInfo
from transformers import Seq2SeqTrainer

from ..recipes.options import listed
from ..storage.atomic import temporary_folder
from ..storage.metrics import Metrics, Published
from ..storage.run_files import TRAINER_STATE

if TYPE_CHECKING:
    from ..publish.card import TrainerFacts

# Arguments of transformers' model card that our card does not use.
_OF_THE_HOST = ("tags", "tasks", "dataset_tags", "dataset_args", "model_name")


class PublishingTrainer(Seq2SeqTrainer):
    """Seq2SeqTrainer whose `push_to_hub` publishes as `vanilla-transformer publish` does."""

    def create_model_card(self, *, model_name: str | None = None, **facts: Any) -> None:  # type: ignore[override]  # arguments by name
        """Write our model card, with the facts known so far, into the output directory.

        Args:
            model_name: Name of the model.
            **facts: As for `push_to_hub`.
        """
        from ..publish.card import NATIVE, card_facts, render_card, training_facts

        if not self.is_world_process_zero():
            return
        output = Path(str(self.args.output_dir))
        known = _for_our_card(**facts)
        pair = known.pop("pair")
        published = cast("Published", {**known, "languages": pair.split("-") if pair else []})
        published |= {"model": model_name or self.hub_model_id or output.name, "form": NATIVE}
        state = cast("TrainerFacts", vars(self.state))
        parameters = sum(weight.numel() for weight in cast("Any", self.model).parameters())
        metrics = Metrics(parameters=parameters, **training_facts(state))
        render_card(card_facts(metrics, published)).save(output / "README.md")

    def push_to_hub(  # type: ignore[override]  # returns None on other processes
        self,
        commit_message: str | None = None,
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **options: Any,
    ) -> CommitInfo | None:
        """Publish the model as `publish_folder` does, with its code, in one commit.

        Args:
            commit_message: Message of the commit. None names the model.
            blocking: Ignored: the call always waits for the push.
            token: Access token of the Hub. None takes `hub_token` of the arguments.
            revision: Branch. None takes `hub_revision` of the arguments.
            private: Make the repository private if it is created.
            **options: Other arguments of `publish_folder`, such as `license`, `pair` or `stock`.
                transformers' names `language` (of both sides), `dataset` and `finetuned_from` are
                read too.

        Returns:
            The commit; None on other processes than the first.

        Raises:
            ValueError: As for `publish_folder`.
        """
        from ..publish.publishing import publish_folder

        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        token = token or self.args.hub_token
        if self.hub_model_id is None:
            self.init_hf_repo(token=token, private=private)
        with temporary_folder() as folder:
            self.save_model(str(folder), _internal_call=True)
            if not self.is_world_process_zero():
                return None
            self.state.save_to_json(str(folder / TRAINER_STATE))
            self._finish_current_push()
            card = {"with_code": not options.get("stock"), **_for_our_card(**options)}
            card |= {"token": token, "revision": revision or self.args.hub_revision}
            name = cast("str", self.hub_model_id)
            return publish_folder(folder, name, push=True, message=commit_message, **card).commit


def _for_our_card(
    license: str | None = None,
    language: str | list[str] | None = None,
    dataset: str | list[str] | None = None,
    finetuned_from: str | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Convert arguments of transformers' model card to arguments of `publish_folder`."""
    languages = listed(language)
    is_local = finetuned_from is not None and Path(finetuned_from).exists()
    return {
        "license": license or "unknown",  # the Hub's name for an unstated licence
        "data_source": ", ".join(listed(dataset)) or None,
        "pair": "-".join(languages) if len(languages) == 2 else None,
        "base_model": None if is_local else finetuned_from,
        **{name: value for name, value in others.items() if name not in _OF_THE_HOST},
    }
