"""Small JSON and YAML files are checked, and invalid ones give a one-line error naming them."""

import pytest

from vanilla_transformer.errors import RequestError
from vanilla_transformer.storage import reading
from vanilla_transformer.storage.reading import read_json, read_yaml


def refusal(read, path, content, **options):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RequestError) as refused:
        read(path, **options)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500
    return str(refused.value)


@pytest.mark.parametrize(
    "content", ["", "{", "nonsense", b"\xff\xfe", "[" * 100_000, '{"a": ' + "9" * 10_000 + "}"]
)
def test_invalid_json_is_rejected(tmp_path, content):
    assert "is not JSON" in refusal(read_json, tmp_path / "a.json", content)


@pytest.mark.parametrize(
    ("content", "got"),
    [("[]", "list"), ("null", "NoneType"), ("1.5", "float"), ('"a"', "str"), ("true", "bool")],
)
def test_json_that_is_not_an_object_is_rejected(tmp_path, content, got):
    assert f"holds a {got} instead of a dict" in refusal(
        read_json, tmp_path / "a.json", content, remedy="look"
    )


@pytest.mark.parametrize("value", ["null", "[]", "1", "true", '"a"'])
def test_values_of_the_wrong_type_are_rejected(tmp_path, value):
    content = f'{{"files": {value}}}'
    assert "'files'" in refusal(read_json, tmp_path / "a.json", content, keys={"files": dict})


def test_true_is_not_accepted_as_a_number(tmp_path):
    path = tmp_path / "a.json"
    refusal(read_json, path, '{"a": true}', keys={"a": (int, float)})
    assert "'b' in" in refusal(read_json, path, '{"a": 1}', keys={"a": int, "b": int})
    assert read_json(path, keys={"a": int}) == {"a": 1}


@pytest.mark.parametrize(
    "content",
    [
        "a: 1\na: 2",
        "a: {b: 1, b: 2}",
        "a: [",
        "[" * 20_000,
        "a: !!int abc",
        "a: !!int ''",
        "a: !!bool abc",
        "a: !!float ''",
        "a: " + "9" * 10_000,
        "a: !!python/name:os.system ''",
        "!!python/object/apply:os.system [x]",
        "? [1]\n: 2",
        b"\xff\xfe\xfa",
        "\x00",
    ],
)
def test_invalid_yaml_is_rejected(tmp_path, content):
    assert "is not YAML" in refusal(read_yaml, tmp_path / "a.yaml", content)


def test_yaml_that_is_not_a_mapping_is_rejected(tmp_path):
    assert "a list" in refusal(read_yaml, tmp_path / "a.yaml", "- 1")


def test_yaml_gives_only_json_types(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: 2024-01-01\nb: 1\nc: 1.5\nd: no\ne: null\nf: [x]\n")
    expected = {"a": "2024-01-01", "b": 1, "c": 1.5, "d": False, "e": None, "f": ["x"]}
    assert read_yaml(path) == expected
    path.write_text("# nothing\n")
    assert read_yaml(path) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("7", 7), ("-7", -7), ("37_000", 37000), ("0", 0), ("1.5", 1.5), (".5", 0.5)),
        *(("1e-9", 1e-9), ("1.0e-9", 1e-9), ("1E3", 1000.0), ("-.inf", float("-inf"))),
        *((text, text) for text in ("010", "1:30", "0x10", "0b1", "1.2.3", "1:30.5", "e5")),
    ],
)
def test_yaml_reads_only_plain_decimal_numbers_as_numbers(tmp_path, text, value):
    (tmp_path / "a.yaml").write_text(f"a: {text}\n")
    found = read_yaml(tmp_path / "a.yaml")["a"]
    assert (found, type(found)) == (value, type(value))


def test_yaml_key_may_override_a_merged_one(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("x: &x {a: 1, b: 1}\ny: {<<: *x, a: 2}\n")
    assert read_yaml(path)["y"] == {"a": 2, "b": 1}


@pytest.mark.parametrize(("read", "limit"), [(read_json, "JSON_BYTES"), (read_yaml, "YAML_BYTES")])
def test_file_over_the_size_limit_is_not_read(tmp_path, monkeypatch, read, limit):
    monkeypatch.setattr(reading, limit, 2**20)
    assert "1 MiB" in refusal(read, tmp_path / "a", " " * (2**20 + 1))


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_error_for_an_unreadable_file_names_it(tmp_path, read):
    with pytest.raises(OSError, match="Is a directory") as error:
        read(tmp_path)
    assert error.value.filename in (str(tmp_path), tmp_path)
