import io
import math
import pickle

import pytest
import torch

from vanilla_transformer.train.optimization import (
    ADAM_BETAS,
    ADAM_EPSILON,
    WARMUP_STEPS,
    noam_lr,
    noam_schedule,
    paper_adam,
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


def test_schedule_equals_eq3():
    optimizer = paper_adam([parameter(1.0)])
    scheduler = noam_schedule(optimizer, d_model=512, warmup_steps=7)
    expected = [512**-0.5 * min(k**-0.5, k * 7**-1.5) for k in range(1, 31)]
    assert rates_used(optimizer, scheduler, 30) == pytest.approx(expected, rel=1e-14)
    assert [noam_lr(k, d_model=512, warmup_steps=7) for k in range(1, 31)] == pytest.approx(
        expected, rel=1e-14
    )


def test_first_update_uses_step_one_and_moves_the_weights():
    weight = parameter(1.0)
    optimizer = paper_adam([weight])
    noam_schedule(optimizer, d_model=512, warmup_steps=4000)
    weight.grad = torch.ones(1)
    optimizer.step()
    # Adam's first step has the size of the learning rate, whatever the gradient.
    assert 1.0 - weight.item() == pytest.approx(512**-0.5 * 4000**-1.5, rel=0.1)


def test_base_model_learning_rate_peaks_at_the_end_of_warmup():
    rates = [noam_lr(k, d_model=512, warmup_steps=WARMUP_STEPS) for k in range(1, 12_001)]
    assert rates.index(max(rates)) + 1 == 4000
    assert max(rates) == pytest.approx(6.988e-4, rel=1e-4)
    assert max(rates) == pytest.approx((512 * 4000) ** -0.5, rel=1e-14)
    assert noam_lr(4000, d_model=1024, warmup_steps=4000) == pytest.approx(4.941e-4, rel=1e-4)


def test_factor_multiplies_the_whole_schedule():
    for step in (1, 10, 1000):
        once = noam_lr(step, d_model=64, warmup_steps=10)
        assert noam_lr(step, d_model=64, warmup_steps=10, factor=2.5) == pytest.approx(2.5 * once)


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


def test_schedule_pickles():
    scheduler = noam_schedule(paper_adam([parameter(1.0)]), d_model=64, warmup_steps=5)
    twin = pickle.loads(pickle.dumps(scheduler))
    assert twin.get_last_lr() == scheduler.get_last_lr()


@pytest.mark.parametrize("fused", [True, False])
def test_adam_equals_kingma_and_ba(fused):
    """Algorithm 1 of arXiv:1412.6980, computed for one scalar at a time in float64."""
    torch.manual_seed(0)
    weights = torch.randn(6, dtype=torch.float64)
    gradients = torch.randn(40, 6, dtype=torch.float64) * 10.0 ** torch.arange(-9.0, 3.0, 2.0)
    weight = torch.nn.Parameter(weights.clone())
    optimizer = paper_adam([weight])
    optimizer.param_groups[0]["fused"] = fused
    scheduler = noam_schedule(optimizer, d_model=16, warmup_steps=9)
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
        scheduler.step()

    for i, theta in enumerate(weights.tolist()):
        m = v = 0.0
        for t, g in enumerate(gradients[:, i].tolist(), start=1):
            alpha = 16**-0.5 * min(t**-0.5, t * 9**-1.5)
            m = 0.9 * m + (1 - 0.9) * g
            v = 0.98 * v + (1 - 0.98) * g * g
            m_hat = m / (1 - 0.9**t)
            v_hat = v / (1 - 0.98**t)
            theta -= alpha * m_hat / (math.sqrt(v_hat) + 1e-9)
        assert weight[i].item() == pytest.approx(theta, rel=1e-12, abs=1e-12)


def test_adam_has_the_papers_constants_and_no_decay():
    (group,) = paper_adam([parameter(1.0)]).param_groups
    assert (ADAM_BETAS, ADAM_EPSILON) == ((0.9, 0.98), 1e-9)
    assert (group["betas"], group["eps"], group["lr"]) == (ADAM_BETAS, ADAM_EPSILON, 1.0)
    assert group["weight_decay"] == 0
    assert not group["amsgrad"]
    assert group["fused"]


def test_adam_accepts_parameter_groups():
    groups = [{"params": [parameter(1.0)]}, {"params": [parameter(2.0)], "lr": 0.5}]
    assert [group["lr"] for group in paper_adam(groups).param_groups] == [1.0, 0.5]


def test_adam_accepts_a_generator():
    layer = torch.nn.Linear(2, 2)
    (group,) = paper_adam(layer.parameters()).param_groups
    assert len(group["params"]) == 2


@pytest.mark.parametrize(
    ("name", "value"), [("warmup_steps", 0), ("warmup_steps", -4), ("d_model", 0), ("factor", 0.0)]
)
def test_non_positive_constants_are_rejected(name, value):
    arguments = {"d_model": 64, "warmup_steps": 10, "factor": 1.0} | {name: value}
    with pytest.raises(ValueError, match=f"{name}={value}"):
        noam_lr(1, **arguments)
    with pytest.raises(ValueError, match=f"{name}={value}"):
        noam_schedule(paper_adam([parameter(1.0)]), **arguments)


def test_step_zero_is_rejected():
    with pytest.raises(ValueError, match="step 1"):
        noam_lr(0, d_model=64, warmup_steps=10)


def test_base_rate_other_than_one_is_rejected():
    with pytest.raises(ValueError, match=r"lr=0\.001"):
        noam_schedule(paper_adam([parameter(1.0)], lr=1e-3), d_model=64, warmup_steps=10)


def test_float16_parameters_are_rejected():
    with pytest.raises(ValueError, match="float32"):
        paper_adam([parameter(1.0, dtype=torch.float16)])
