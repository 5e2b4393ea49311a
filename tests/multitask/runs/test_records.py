"""A sealed record is read as it was written, or refused."""

from contextlib import suppress

import pytest

from minbert.errors import InputError
from multitask.runs.records import read_sealed, write_sealed


def test_a_sealed_record_is_read_as_it_was_written_or_not_at_all(tmp_path):
    path = tmp_path / "record.json"
    write_sealed(path, {"b": [1, 2.5, None], "a": "ü"})
    assert read_sealed(path, dict) == {"b": [1, 2.5, None], "a": "ü"}
    other = path.rename(path.with_name("other.json"))
    with pytest.raises(InputError, match=r"other\.json: damaged; its hash does not fit its content and name"):
        read_sealed(other, dict)
    other.rename(path)
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with suppress(InputError):
            assert read_sealed(path, dict) == {"b": [1, 2.5, None], "a": "ü"}  # a changed space between two parts
