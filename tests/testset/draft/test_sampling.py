"""The sample of documents: every file has its share, and more documents or files disturb it little."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from harness.testset.draft.drafting import draw_ids
from harness.testset.draft.drafts import picked

FILES = {f"{file}{number}": file for file, count in {"a": 60, "b": 30, "c": 10}.items() for number in range(count)}


def test_every_file_comes_first_and_then_has_its_share():
    order = draw_ids(FILES, 0, None)
    assert sorted(order) == sorted(FILES)
    assert set(draw_ids(FILES, 1, 10)) != set(order[:10]), "another seed draws others"
    assert {FILES[one] for one in order[:3]} == {"a", "b", "c"}
    for limit in (10, 20, 50):  # the share of a file, rounded up, as each has given one before
        counts = Counter(FILES[one] for one in order[:limit])
        for file, total in {"a": 60, "b": 30, "c": 10}.items():
            assert abs(counts[file] - limit * total / 100) <= 1, (limit, counts)


@given(
    st.dictionaries(st.text("ab01", min_size=1), st.sampled_from("xyz")),
    st.sets(st.text("cd", min_size=1)),
    st.integers(0, 12),
)
def test_an_added_file_changes_no_order_within_the_others(files, added, limit):
    before = draw_ids(files, 0, None)
    after = draw_ids(files | dict.fromkeys(added, "new"), 0, None)
    for name in "xyz":
        assert [one for one in after if files.get(one) == name] == [one for one in before if files[one] == name]
    assert len(draw_ids(files, 0, limit)) == min(limit, len(files))


def test_values_are_picked_by_their_key_whatever_their_order():
    values = [str(number) for number in range(20)]
    assert picked(values, 5, 0, "fact") == picked(reversed(values), 5, 0, "fact")
    assert picked(values, 5, 0, "fact") != picked(values, 5, 0, "search")
    assert picked(values, 5, "x")[:3] == picked(values, 3, "x")
