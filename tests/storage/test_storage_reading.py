"""Small JSON and YAML files are checked, and invalid ones give a one-line error naming them."""

from typing import NotRequired, TypedDict

import pytest

from vanilla_transformer.errors import RequestError
from vanilla_transformer.storage import reading
from vanilla_transformer.storage.reading import checked, read_json, read_yaml

DIGITS = "9" * 10_000


class Known(TypedDict):
    files: dict[str, float]
    names: NotRequired[list[str]]
    point: NotRequired[tuple[float, float]]


def read_known(path):
    return checked(read_json(path), Known, path)


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        *(
            (read_json, content, "is not JSON")
            for content in ("", "{", b"\xff\xfe", "[" * 100_000, f'{{"a": {DIGITS}}}')
        ),
        (read_json, "[]", "the content in"),
        (read_known, '{"files": null}', "files in"),
        (read_known, '{"files": {"x": true}}', "files.x in"),
        (read_known, '{"files": {}, "names": [1, "a"]}', "names[] in"),
        (read_known, '{"files": {}, "point": [1]}', "point in"),
        (read_known, '{"files": {}, "point": [1, "a"]}', "point[] in"),
        *(
            (read_yaml, content, "is not YAML")
            for content in (
                *("a: 1\na: 2", "a: {b: 1, b: 2}", "a: [", "[" * 2_000, "? [1]\n: 2", "\x00"),
                *(
                    "a: !!int abc",
                    "a: !!int ''",
                    "a: !!bool abc",
                    "a: !!float ''",
                    f"a: !!int {DIGITS}",
                ),
                "x: &x 1\ny: *x",
                *("a: !!python/name:os.system ''", "!!python/object/apply:os.system [x]"),
                b"\xff\xfe\xfa",
            )
        ),
        (read_yaml, "- 1", "the content in"),
        (read_json, " " * (2**20 + 1), "1 MiB"),
        (read_yaml, " " * (2**20 + 1), "1 MiB"),
    ],
)
def test_invalid_files_give_a_line_that_names_them(tmp_path, monkeypatch, read, content, message):
    for limit in ("JSON_BYTES", "YAML_BYTES"):
        monkeypatch.setattr(reading, limit, 2**20)
    path = tmp_path / "file"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RequestError) as refused:
        read(path)
    said = str(refused.value)
    assert str(path) in said
    assert message in said
    assert "\n" not in said
    assert len(said) < 500


def test_yaml_gives_text_unless_types_are_asked_for(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: 2024-01-01\nb: 010\nc: 1e-9\nd: no\ne: null\nf: [1]\ng:\n")
    expected = {"a": "2024-01-01", "b": "010", "c": "1e-9", "d": "no", "e": None, "f": ["1"]}
    assert read_yaml(path) == {**expected, "g": None}
    assert read_yaml(path, typed=True)["d"] is False
    path.write_text("# nothing\n")
    assert read_yaml(path) == {}
