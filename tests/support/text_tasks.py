"""Small files of text tasks: corrections and answers with their references."""

import csv
import json
from pathlib import Path

SENTENCES = {  # id -> kind, source, reference
    "s1": ("맞춤법", "감자기 침대에서 일어났다", "갑자기 침대에서 일어났다"),
    "s2": ("조사", "나는 학교을 갔다", "나는 학교를 갔다"),
    "s3": ("띄어쓰기", "할수 있다", "할 수 있다"),
    "s4": ("조사", "밥을 먹었다", "밥을 먹었다"),
    "s5": ("맞춤법", "집에 갓다", "집에 갔다"),
}
# One edit right and one needless (TP, FP, FR), right (TP), missed (FN), nothing, wrong (FP): 2 / 5 and 2 / 5.
WORSE = {one: text for one, (_, text, _) in SENTENCES.items()}
WORSE |= {"s1": "갑자기 침대에 일어났다", "s2": "나는 학교를 갔다", "s5": "집에 갓따"}
# Right, missed, right, nothing, right: 3 / 4 and 3 / 3.
BETTER = {one: text for one, (_, _, text) in SENTENCES.items()} | {"s2": "나는 학교을 갔다"}
CORRECTIONS = ("task=corrections", "references=R.csv", "experiment_name=e")
SCORE = ("score", *CORRECTIONS, "format=json")
WORSE_SCORED, BETTER_SCORED = (*SCORE, "predictions=worse.csv"), (*SCORE, "predictions=better.csv")
ANSWERS = ("task=answers", "predictions=P.json", "references=R.json", "metrics=[exact_match]", "objective=exact_match")


def rows_of_sentences(sentences):
    return [
        {"id": one, "source": source, "reference": reference, "error_type": kind}
        for one, (kind, source, reference) in sentences.items()
    ]


def rows_of_predictions(predictions):
    return [{"id": one, "prediction": text} for one, text in predictions.items()]


def write(file, rows):
    """Rows as JSON lines or as CSV, by the file's name."""
    if file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
        return
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read(file):
    with Path(file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def write_corrections(folder):
    """Five sentences and two submissions."""
    write(folder / "R.csv", rows_of_sentences(SENTENCES))
    write(folder / "worse.csv", rows_of_predictions(WORSE))
    write(folder / "better.csv", rows_of_predictions(BETTER))


def answer(number, kind, text):
    return {"id": number, "input": {"question_type": kind, "question": "무엇이 옳은가?"}, "output": {"answer": text}}


def write_answers(folder):
    """Four answers with their reasons; the predictions are right in two, and give a reason in three."""
    reasons = ("물은 100도에서 끓는다", "달은 지구를 돈다", "비가 온다", "해가 뜬다")
    right = ["'적잖은'이 옳다. " + reasons[0], "가가 옳다#나가 옳다. " + reasons[1], "다가 옳다. " + reasons[2],
            "라가 옳다. " + reasons[3]]  # fmt: skip
    made = ["적잖은이 옳다. 물은 끓는다", "나가 옳다. 달은 돈다", "라가 옳다. 비가 온다", "마가 옳다"]
    for name, texts in (("R.json", right), ("P.json", made)):
        rows = [answer(i, "선택형" if i < 2 else "교정형", text) for i, text in enumerate(texts)]
        (folder / name).write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
