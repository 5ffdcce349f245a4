import io

import pytest
import torch

from vanilla_transformer.train.optimization import (
    factor_of_peak,
    noam_lr,
    noam_schedule,
    paper_adam,
    peak_rate,
)


def parameter(*values, dtype=torch.float32):
    return torch.nn.Parameter(torch.tensor(values, dtype=dtype))


def rates_used(optimizer, scheduler, updates):
    """Return the learning rate used at each update, as in a trainer's loop."""
    rates = []
    for _ in range(updates):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def test_factor_multiplies_the_whole_schedule():
    for step in (1, 10, 1000):
        once = noam_lr(step, d_model=64, warmup_steps=10)
        assert noam_lr(step, d_model=64, warmup_steps=10, factor=2.5) == pytest.approx(2.5 * once)


def test_without_warmup_the_first_update_has_the_peak():
    for step in (1, 2, 50):
        assert noam_lr(step, d_model=64, warmup_steps=0) == pytest.approx(64**-0.5 * step**-0.5)
    factor = factor_of_peak(1e-3, d_model=64, warmup_steps=0)
    assert peak_rate(d_model=64, warmup_steps=0, factor=factor) == pytest.approx(1e-3)


def test_saved_schedule_resumes_where_it_stopped():
    def build():
        optimizer = paper_adam([parameter(1.0)])
        return optimizer, noam_schedule(optimizer, d_model=64, warmup_steps=5, factor=2.0)

    whole = rates_used(*build(), 20)
    optimizer, scheduler = build()
    rates = rates_used(optimizer, scheduler, 8)
    stored = io.BytesIO()
    torch.save({"opt": optimizer.state_dict(), "schedule": scheduler.state_dict()}, stored)
    stored.seek(0)
    # A Trainer loads with weights_only=True, so the state must hold no code.
    state = torch.load(stored, weights_only=True)
    optimizer, scheduler = build()
    optimizer.load_state_dict(state["opt"])
    scheduler.load_state_dict(state["schedule"])
    assert rates + rates_used(optimizer, scheduler, 12) == whole


def test_schedule_created_after_restoring_the_optimizer_starts_from_eq3():
    optimizer = paper_adam([parameter(1.0)])
    rates_used(optimizer, noam_schedule(optimizer, d_model=64, warmup_steps=5), 3)
    restored = paper_adam([parameter(1.0)])
    restored.load_state_dict(optimizer.state_dict())
    noam_schedule(restored, d_model=64, warmup_steps=5)
    assert restored.param_groups[0]["lr"] == noam_lr(1, d_model=64, warmup_steps=5)


def test_base_rate_other_than_one_is_rejected():
    with pytest.raises(ValueError, match=r"lr=0\.001"):
        noam_schedule(paper_adam([parameter(1.0)], lr=1e-3), d_model=64, warmup_steps=10)
