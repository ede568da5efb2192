"""Templates of requests and places in replies: tables worked by hand."""

import pytest

from retrievers.base import BadInput
from retrievers.external.http import JsonPath, Missing, fill_address, fill_template, names_in

VALUES = {"query": 'a "b" 물', "quoted_query": '"a \\"b\\" 물"', "k": 10, "vector": [0.5, -1.0]}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{query}", 'a "b" 물'),
        ("{k}", 10),
        ("{vector}", [0.5, -1.0]),
        ("{k} best", "10 best"),
        ("v={vector}", "v=[0.5, -1.0]"),
        ('bm25: {query: {quoted_query}}, limit: {k}', 'bm25: {query: "a \\"b\\" 물"}, limit: 10'),
        ({"size": "{k}", "query": {"match": {"a": "{query}"}}}, {"size": 10, "query": {"match": {"a": 'a "b" 물'}}}),
        ([["{vector}"], 1, None, True, 0.5], [[[0.5, -1.0]], 1, None, True, 0.5]),
        ({"{query}": 1}, {"{query}": 1}),  # keys are no templates
        ("{other} {}", "{other} {}"),
    ],
)  # fmt: skip
def test_a_template_is_filled(template, expected):
    assert fill_template(template, VALUES) == expected


def test_what_a_query_says_is_no_template():
    assert fill_template("{query}!", VALUES | {"query": "{k}"}) == "{k}!"


def test_an_address_is_encoded():
    address = fill_address("http://h/s?q={query}&k={k}", VALUES | {"query": "a&b=물/ ?#\ud800"})
    assert address == "http://h/s?q=a%26b%3D%EB%AC%BC%2F%20%3F%23%3F&k=10"


def test_the_names_of_a_template():
    assert names_in(["http://h/{k}", {"a": ["{query}"], "b": 3, "c": None}]) == {"k", "query"}
    with pytest.raises(BadInput, match=r"body has \{qeury\}, which stands for nothing\. Did you mean 'query'\?"):
        names_in({"q": "{qeury}"})


REPLY = {"hits": [{"id": "a", "s": {"x.y": 2}}, {"id": "b", "s": {"x.y": 1}}], "ids": [["a", "b"]], "none": None}


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("hits[*].id", ["a", "b"]),
        ("$.hits[*].id", ["a", "b"]),
        ("hits[*].s['x.y']", [2, 1]),
        ("ids[0][*]", ["a", "b"]),
        ("hits?[*].id", ["a", "b"]),
        ("more?[*].id", []),
        ("none?[*].id", []),
        ("hits[*].id?", ["a", "b"]),
    ],
)
def test_a_place_leads_to_values(place, expected):
    assert JsonPath.parse(place, "ids").values(REPLY) == expected


def test_a_reply_may_be_a_list():
    assert JsonPath.parse("[*].id", "ids").values(REPLY["hits"]) == ["a", "b"]
    assert JsonPath.parse("$[*]", "ids").values(["a"]) == ["a"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("hit[*].id", "the reply has no 'hit'. Did you mean 'hits'?"),
        ("hits[*].ids", "hits[0] has no 'ids'. Did you mean 'id'?"),
        ("hits[*].s.x", "hits[0].s has no 'x'."),
        ("hits.id[*]", "hits has no 'id'."),
        ("hits[*].id[*]", "hits[0].id is not a list."),
        ("ids[1][*]", "ids has no element 1."),
        ("none[*]", "the reply has no 'none'."),
        ("ids?.x[*]", "ids has no 'x'."),
    ],
)
def test_a_place_that_leads_nowhere(place, message):
    with pytest.raises(Missing) as caught:
        JsonPath.parse(place, "ids").values(REPLY)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text", ["", "hits", "hits.id", "hits[", "hits[*", "hits..id[*]", "[*]id", "hits[-1]", "a b[*]", "$"]
)
def test_what_is_no_place_is_refused(text):
    with pytest.raises(BadInput, match=r"ids=.* is no place of a value for each result"):
        JsonPath.parse(text, "ids")
