import pytest

from vanilla_transformer.train.optimization import noam_lr, peak_rate


def test_without_warmup_the_first_update_has_the_peak():
    for step in (1, 2, 50):
        assert noam_lr(step, d_model=64, warmup_steps=0) == pytest.approx(64**-0.5 * step**-0.5)
    assert peak_rate(d_model=64, warmup_steps=0, factor=2.0) == pytest.approx(2 * 64**-0.5)
