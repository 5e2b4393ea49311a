"""A grid that is killed at any moment and started again ends with the same bits as one that is left alone."""

import pytest

from tests.reliability.kills import try_kills
from tests.reliability.world import quick_reports

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_killed_grid_ends_with_the_bytes_of_an_undisturbed_one(tmp_path, at_once, capfd):
    with quick_reports():
        killed, different = try_kills(tmp_path, "1,reviews", 8, at_once)
    assert killed.total() >= 8
    assert different == []
