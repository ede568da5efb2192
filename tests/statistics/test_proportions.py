"""Wilson's interval, against scipy's."""

import pytest
from scipy.stats import binomtest

from harness.statistics.agreement import Proportion


@pytest.mark.parametrize(
    ("count", "of"), [(0, 1), (1, 1), (0, 20), (20, 20), (7, 20), (1, 3), (999, 1000), (500, 1000)]
)
def test_the_interval_is_wilsons(count, of):
    one = Proportion(count, of)
    assert one.share == count / of
    wanted = binomtest(count, of).proportion_ci(method="wilson")
    assert one.interval == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_the_text():
    assert Proportion(18, 20).text() == "18 of 20 (90 %, 95 % interval 70 to 97 %)"
