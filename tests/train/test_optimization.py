import pytest

from vanilla_transformer.train.optimization import factor_of_peak, noam_lr, peak_rate


def test_without_warmup_the_first_update_has_the_peak():
    for step in (1, 2, 50):
        assert noam_lr(step, d_model=64, warmup_steps=0) == pytest.approx(64**-0.5 * step**-0.5)
    factor = factor_of_peak(1e-3, d_model=64, warmup_steps=0)
    assert peak_rate(d_model=64, warmup_steps=0, factor=factor) == pytest.approx(1e-3)
