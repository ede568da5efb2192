"""Short Korean documents and queries, with terms that repeat, terms that nobody has, and empty ones."""

from retrievers.base import Document, Query

KOREAN = [
    "달은 지구의 위성이다 달은 스스로 빛나지 않는다",
    "지구는 태양의 둘레를 돈다",
    "물은 백 도에서 끓는다",
    "",
    "달의 모양은 한 달 동안 변한다",
    "태양은 스스로 빛나는 별이다",
    "물은 영 도에서 언다 물은 얼면 부피가 는다",
]
KOREAN_QUERIES = ["달은 왜 빛나지", "물은 백 도에서", "물은 물은 끓는다", "태양의 둘레를", "없는말", ""]


def documents(texts):
    return [Document(f"{i:06d}", text) for i, text in enumerate(texts)]


def queries(texts):
    return [Query.of(f"q{i}", text) for i, text in enumerate(texts)]
