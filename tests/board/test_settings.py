"""The settings in which runs differ, and the short names that say them."""

from harness.board.settings import changed_settings


def test_what_follows_from_another_choice_is_no_difference_of_its_own():
    """The hybrid brings keys that BM25 lacks: only those that were set count."""

    def run(**params):
        return {key.replace("__", "."): one for key, one in params.items()}

    plain = run(retriever="bm25", gate="none", tokenizer="word")
    hybrid = run(
        retriever="hybrid_lexical", gate="score", tokenizer="kiwi", fusion="rrf", fusion__k="60",
        fusion__weights__bm25="2", retriever__bigram__k1="1.5", retriever__bigram__b="0.5", gate__threshold="3",
        gate__signal="top_score", gate__source="null",
        tokenizer__tags='["NN*", "NR", "NP", "VV*", "VA*", "XR", "SL", "SN", "SH", "MA*"]',
    )  # fmt: skip
    assert changed_settings([plain, hybrid]) == {
        "retriever": ["bm25", "hybrid_lexical"], "gate": ["none", "score"], "tokenizer": ["word", "kiwi"],
        "fusion": [None, "rrf"], "fusion.weights.bm25": [None, "2"], "retriever.bigram.b": [None, "0.5"],
        "gate.threshold": [None, "3"],
    }  # fmt: skip
    other = run(retriever="hybrid_lexical", fusion="rrf", fusion__k="10")
    assert changed_settings([plain, hybrid, other])["fusion.k"] == [None, "60", "10"]
