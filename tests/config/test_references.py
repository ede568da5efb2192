"""What references stand for is bounded before they are resolved."""

import pytest

from harness.config.leash import MOST, check_size
from harness.errors import BadInput


def bomb(levels: int, each: int) -> dict[str, str]:
    return {"z0": "x" * 10} | {f"z{i}": f"${{z{i - 1}}}" * each for i in range(1, levels)}


@pytest.mark.parametrize(
    "config",
    [
        bomb(11, 10),
        {"a": {"b": ["x" * 100, "${a.c}" * 100], "c": "${.b[0]}" * 100}},  # relative, into a list
        {"group": {"x": "y" * 1000}, **{f"z{i}": [f"${{{f'z{i - 1}' if i else 'group'}}}"] * 10 for i in range(4)}},
    ],
)
def test_references_of_references_are_counted(config):
    with pytest.raises(BadInput, match=r"refers to keys that refer to others: [\d,]+ characters in all"):
        check_size(config)


def test_a_name_that_is_itself_computed_is_refused():
    with pytest.raises(BadInput, match=r"a\.b: \$\{z\$\{i\}\}: a reference must name its key itself"):
        check_size({"i": 0, "z0": "x", "a": {"b": "${z${i}}"}})


@pytest.mark.parametrize(
    "config",
    [
        {"a": "x" * (MOST // 2)},
        {"kind": "env", "a": "${oc.${kind}:HARNESS_X}"},
        {"outputs": "o", "path": "${oc.env:CACHE,${outputs}/cache}"},
        {"a": "${b}", "b": "${a}"},  # OmegaConf refuses circles, and says where
        {"a": "${nowhere}"},
        bomb(4, 10),
    ],
)
def test_others_pass(config):
    check_size(config)
