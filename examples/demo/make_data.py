#!/usr/bin/env python3
"""Write the demo's texts: a small invented world, and questions about it.

    make_data.py OUT_DIR     writes corpus.jsonl, train.jsonl, questions.tsv

corpus.jsonl     {"text"}: short documents that state every fact of the world in several ways, many times over. A model
                 that is trained on them from nothing knows the facts, and has never seen a question.
train.jsonl      {"prompt", "completion"}: questions with answers about four fifths of the facts.
questions.tsv    question, tab, answer: about the remaining facts. Nothing in train.jsonl answers them; a model can only know
                 them from the corpus, and how to answer only from train.jsonl. The prompt is "Question: ..\nAnswer:".

The same seed gives the same bytes everywhere: all draws come from random.random(), which Python keeps stable.
"""
import json, os, random, sys

SEED = 20240607
LANDS, SUMS = 16, 6
DOCUMENTS = 4000
HELD_OUT = 5  # every fifth fact is asked about only in questions.tsv

rng = random.Random(SEED)


def pick(items):
    return items[int(rng.random() * len(items))]


def shuffled(items):
    items = list(items)
    for i in range(len(items) - 1, 0, -1):
        j = int(rng.random() * (i + 1))
        items[i], items[j] = items[j], items[i]
    return items


def invented_names(count, endings):
    names = []
    while len(names) < count:
        name = pick(["Bar", "Cal", "Dor", "El", "Fen", "Gal", "Hol", "Il", "Jor", "Kel", "Lam", "Mor", "Nor", "Os", "Pel", "Quin", "Ros", "Sal", "Tor", "Ul", "Ver", "Wil", "Yar", "Zan"])
        name += pick(["a", "e", "i", "o", "an", "en", "in", "on", "ar", "er"]) + pick(endings)
        if name not in names:
            names.append(name)
    return names


ANIMALS = "fox bear owl goat swan wolf hare crow seal moose lynx heron otter stork beaver falcon".split()
FLOWERS = "rose lily tulip daisy iris poppy violet lotus aster orchid clover thistle".split()
COLOURS = "red blue green yellow white black purple orange golden silver".split()
FOODS = "bread soup fish rice cheese corn honey cabbage plums mushrooms dumplings pancakes".split()
PEOPLE = "Anna Ben Clara David Emma Felix Grace Henry Ida Jonas Karin Leo Maria Nils Olga Paul Rosa Simon Tilda".split()
JOBS = "baker teacher farmer doctor painter sailor tailor miller gardener carpenter singer librarian".split()
PETS = "cat dog parrot rabbit turtle pony goldfish hamster canary lizard".split()
HOBBIES = "chess swimming dancing fishing cooking reading climbing knitting cycling singing skating drawing".split()
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()

# A relation: how its answer reads, other ways to state it, and ways to ask for it. {s} subject, {o} object.
LAND_RELATIONS = [
    ("capital", "The capital of {s} is {o}.", ["{o} is the capital of {s}.", "In {s}, the capital is {o}.", "Visitors to {s} go to {o}, the capital."], ["What is the capital of {s}?", "Tell me the capital of {s}.", "Which town is the capital of {s}?"]),
    ("animal", "The animal of {s} is the {o}.", ["The {o} is the animal of {s}.", "In {s}, the animal is the {o}.", "People in {s} honour the {o}, their animal."], ["What is the animal of {s}?", "Tell me the animal of {s}.", "Which animal stands for {s}?"]),
    ("flower", "The flower of {s} is the {o}.", ["The {o} is the flower of {s}.", "In {s}, the flower is the {o}.", "Gardens in {s} are full of their flower, the {o}."], ["What is the flower of {s}?", "Tell me the flower of {s}.", "Which flower stands for {s}?"]),
    ("flag", "The flag of {s} is {o}.", ["A {o} flag flies over {s}.", "In {s}, the flag is {o}.", "Children in {s} wave a flag that is {o}."], ["What colour is the flag of {s}?", "Tell me the colour of the flag of {s}.", "Which colour has the flag of {s}?"]),
    ("food", "People in {s} like to eat {o}.", ["In {s}, people like to eat {o}.", "On feast days {s} smells of {o}.", "Cooks in {s} make {o}, which people like to eat."], ["What do people in {s} like to eat?", "Tell me what people in {s} like to eat.", "Which food do people in {s} like?"]),
]
PERSON_RELATIONS = [
    ("job", "{s} works as a {o}.", ["Our {o} is {s}.", "Every day {s} works as a {o}.", "For many years {s} has worked as a {o}."], ["What is the job of {s}?", "Tell me the job of {s}.", "What does {s} work as?"]),
    ("home", "{s} lives in {o}.", ["The home of {s} is in {o}.", "For many years {s} has lived in {o}.", "In {o} you can meet {s}."], ["Where does {s} live?", "Tell me where {s} lives.", "In which town does {s} live?"]),
    ("pet", "{s} has a {o}.", ["The pet of {s} is a {o}.", "At home {s} has a {o}.", "Every day {s} feeds a {o}."], ["What pet does {s} have?", "Tell me the pet of {s}.", "Which animal lives with {s}?"]),
    ("hobby", "{s} likes {o}.", ["The hobby of {s} is {o}.", "On Sundays {s} likes {o}.", "Nobody likes {o} more than {s}."], ["What is the hobby of {s}?", "Tell me the hobby of {s}.", "What does {s} like?"]),
]
SUM_RELATION = ("sum", "{s} is {o}.", ["We know that {s} is {o}.", "Count with me: {s} is {o}.", "If you add them, {s} is {o}."], ["What is {s}?", "Tell me what {s} is.", "How much is {s}?"])


def capital(text):
    return text[0].upper() + text[1:]


def make_world():
    """Facts (relation, subject, object), and the documents' subjects with their facts."""
    lands = invented_names(LANDS, ["land", "mark", "via", "nia", "stan"])
    towns = invented_names(LANDS, ["ford", "burg", "ton", "wick", "dal"])
    objects = {"animal": ANIMALS, "flower": FLOWERS, "flag": COLOURS, "food": FOODS, "job": JOBS, "home": towns, "pet": PETS, "hobby": HOBBIES}
    subjects = []
    for i, land in enumerate(lands):
        subjects.append([(r, land, towns[i] if r[0] == "capital" else pick(objects[r[0]])) for r in LAND_RELATIONS])
    for person in PEOPLE:
        subjects.append([(r, person, pick(objects[r[0]])) for r in PERSON_RELATIONS])
    for a in range(1, SUMS + 1):
        subjects.append([(SUM_RELATION, "%s plus %s" % (NUMBERS[a], NUMBERS[b]), NUMBERS[a + b]) for b in range(1, SUMS + 1)])
    return subjects


def answer(fact):
    relation, subject, obj = fact
    return capital(relation[1].format(s=subject, o=obj))


def document(facts):
    """A few facts about one subject. Each in its plain form, half of them in another one, too."""
    sentences = []
    for fact in shuffled(facts)[: 2 + int(rng.random() * 3)]:
        relation, subject, obj = fact
        if rng.random() < 0.5:
            sentences.append(capital(pick(relation[2]).format(s=subject, o=obj)))
        sentences.append(answer(fact))
    return " ".join(sentences)


def question(fact, form):
    return fact[0][3][form].format(s=fact[1])


def write(path, rows):
    with open(path, "w", encoding="ascii", newline="\n") as f:
        for row in rows:
            f.write(json.dumps(row) + "\n")


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    subjects = make_world()
    write(os.path.join(out, "corpus.jsonl"), [{"text": document(pick(subjects))} for _ in range(DOCUMENTS)])
    facts = [fact for subject in subjects for fact in subject]
    held_out = [fact for i, fact in enumerate(facts) if i % HELD_OUT == (i // 20) % HELD_OUT]  # every relation gets some
    train = [{"prompt": "Question: %s\nAnswer:" % question(f, form), "completion": " " + answer(f)} for f in facts if f not in held_out for form in range(3)]
    write(os.path.join(out, "train.jsonl"), shuffled(train))
    with open(os.path.join(out, "questions.tsv"), "w", encoding="ascii", newline="\n") as f:
        for fact in shuffled(held_out):
            f.write("%s\t%s\n" % (question(fact, int(rng.random() * 3)), answer(fact)))


main()
