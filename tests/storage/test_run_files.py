"""Records of what decides a result: equal ones are silent, others say each difference once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.errors import RequestError
from vanilla_transformer.storage.run_files import changed_files, config_identity, differences

ONE, OTHER = "a" * 64, "b" * 64
values = st.one_of(st.booleans(), st.integers(), st.text(max_size=5), st.just(ONE))
records = st.recursive(
    st.dictionaries(st.text(max_size=3), values, max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=3), st.one_of(values, inner), max_size=3),
)


@pytest.mark.parametrize(
    ("before", "now", "lines"),
    [
        ({"rate": 0.1}, {"rate": 0.2}, ["rate: 0.1 -> 0.2"]),
        ({"rate": None}, {"rate": 0}, ["rate: not set -> 0"]),
        ({"rate": 0.1}, {}, ["rate: 0.1 -> not set"]),
        ({"pairs": ONE}, {"pairs": OTHER}, ["pairs changed"]),
        ({"pairs": ONE}, {}, ["pairs: aaaaaaaa -> not set"]),
        ({"model": {"d": 4, "e": 1}}, {"model": {"d": 8, "e": 1}}, ["model: d: 4 -> 8"]),
        ({"test": {"a": ONE, "b": ONE}}, {"test": {"a": OTHER, "b": ONE}}, ["test: a changed"]),
        ({"test": {"a": ONE}}, {}, ["test: no longer a"]),
    ],
)
def test_each_difference_is_named_with_both_values(before, now, lines):
    assert differences(before, now) == lines


@given(records, records)
def test_only_equal_records_have_no_differences(before, now):
    assert differences(before, before) == []
    assert bool(differences(before, now)) == (before != now)


def test_digests_of_files_elsewhere_are_damaged(tmp_path):
    for damaged in ({}, {"../a": ONE}, {str(tmp_path / "a"): ONE}):
        with pytest.raises(RequestError, match=r"digests recorded for .* are damaged"):
            changed_files(tmp_path, damaged)


def test_a_configs_origin_is_no_part_of_it():
    config = {"d_model": 8, "_name_or_path": "x", "transformers_version": "5", "use_cache": True}
    assert config_identity(config) == {"d_model": 8}


def test_every_field_that_changes_what_a_model_computes_is_part_of_its_config():
    fields = VanillaTransformerConfig.__annotations__.keys()
    assert len(fields) > 30
    config = VanillaTransformerConfig().to_dict()
    assert fields - config_identity(config).keys() == {"use_cache"}
