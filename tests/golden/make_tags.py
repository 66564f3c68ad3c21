"""Makes tests/golden/tags.json: labels of words, wanted and found, and what seqeval says of them.

    python make_tags.py        seqeval 1.2
"""
import json
import pathlib
import random
import warnings

from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score

warnings.simplefilter("ignore")
SETS = [["O", "B-PER", "I-PER", "B-LOC", "I-LOC"], ["I-A", "O", "B-A"], ["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "E-Y", "I-Y"],
        ["B-A", "I-A"], ["O", "S-A"]]


def draw(rng, names):
    want = [[rng.randrange(len(names)) for _ in range(rng.randint(1, 12))] for _ in range(rng.randint(1, 6))]
    near = rng.random()
    found = [[tag if rng.random() < near else rng.randrange(len(names)) for tag in row] for row in want]
    spelled = [[[names[tag] for tag in row] for row in rows] for rows in (want, found)]
    return {"names": names, "want": want, "found": found, "accuracy": accuracy_score(*spelled),
            "precision": precision_score(*spelled), "recall": recall_score(*spelled), "f1": f1_score(*spelled)}


rng = random.Random(5)
cases = [draw(rng, names) for names in SETS for _ in range(12)]
out = pathlib.Path(__file__).with_name("tags.json")
out.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
