#!/usr/bin/env python3
"""Random chats of every shape over every chat template and tokenizer: ids and trained tokens beside transformers and TRL.

    draw_chats.py CHAT_LINES SHARED [--chats 10000] [--seed 1] [--seconds N] [--only NAME] [--show 3] [--shells] [--more DIR] [--write FILE]

CHAT_LINES is build/tests/chat_lines, SHARED the folder with tokenizers/. Templates are those of templates/ beside this file
(the constructs of families that TRL has none of), of SHARED, of DIR and, where trl is installed, those that it knows. Each chat is drawn for a template, and read with a tokenizer of letters that knows all markers,
and with one of SHARED to which the markers were added. What is compared:

text    the ids are those of transformers' apply_chat_template
marks   what {% generation %} marks is trained; TRL's training templates stand for the published ones that they give the same
        text as. Text behind the end of a turn and headers inside marks, which TRL trains, are left out
turns   what is trained is, for each turn of the assistant, its content whole, and no content of other messages; a plain answer is
        its content, what a template writes for an empty thought, and the end: `--shells` lists these
tokens  the same characters are trained with any tokenizer
last, inputs    train_on_last_turn trains the last of these turns; train_on_inputs has the same ends

A chat that one side refuses is counted with the reason; transformers and ferry must refuse the same ones, but for the reasons
listed at the end. Exit code 1 when something differs. --write makes the golden draw that tests/test_chat_draw.c reads: templates
of SHARED and of templates/ with tokenizers of SHARED.
"""
import argparse, collections, datetime, json, lzma, os, random, re, subprocess, sys, tempfile, time

import transformers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from random_chats import FAKES, Draw, text_in

transformers.logging.set_verbosity_error()
NOW = datetime.datetime(2026, 11, 27, 12)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = Clock
MARKER = re.compile(r"<\|[^|<>\s]{1,40}\|>|<｜[^｜]{1,40}｜>|<\|[a-z_]+>|<[a-z_]+\|>|\[/?[A-Z_]{2,30}\]|</?s>|<(?:start|end)_of_\w+>|<[be]os>|<extra_id_\d>|\[gMASK\]|<sop>|<end_of_utterance>")
# refusals of ferry alone that are meant
MEANT = [
    (r"does not write tool calls", "the template leaves out calls of tools"),
    (r"does not write the row's tools", "the template leaves out the row's tools"),
    (r"does not write the row's documents", "the template leaves out the row's documents"),
    (r"leaves out messages\[\d+\]", "the template leaves out a message"),
    (r"writes no end-of-turn token", "nothing ends a turn"),
    (r"in a place of its own", "a message has no place of its own"),
    (r"marks \d+ assistant turns, but the chat has", "the marks are not the turns"),
    (r"marks answers in several pieces", "several marks in a turn, and not all turns are trained"),
    (r"no row has a token to train", "no token is trained"),
]


# ---- templates and tokenizers ----


def templates(shared, with_trl, more=()):
    """name: (text, text of the marked twin or None, its file)"""
    found = {}
    for folder in [os.path.join(os.path.dirname(__file__), "templates"), os.path.join(shared, "tokenizers", "chat-templates"), *more]:
        for name in sorted(os.listdir(folder)):
            found[name[:-6]] = (open(os.path.join(folder, name)).read(), None, os.path.join(folder, name))
    try:
        import trl
    except ImportError:
        trl = None
    if with_trl and trl:
        folder = os.path.join(os.path.dirname(trl.__file__), "chat_templates")
        names = sorted(n[:-6] for n in os.listdir(folder) if n.endswith(".jinja"))
        for name in names:
            twin = name + "_training"
            text = open(os.path.join(folder, name + ".jinja")).read()
            found["trl:" + name] = (text, open(os.path.join(folder, twin + ".jinja")).read() if twin in names else None, None)
    return found


def letters(markers):
    """A tokenizer of single bytes and markers: any text comes back as it is."""
    byte = [chr(b) for b in list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))] + [chr(256 + n) for n in range(68)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}, "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                      "byte_fallback": False, "vocab": {c: i for i, c in enumerate(byte)}, "merges": []}}


def add_markers(root, markers):
    taken = {t["content"] for t in root["added_tokens"]}
    vocab = root["model"].get("vocab", {})
    top = max([t["id"] for t in root["added_tokens"]] + [len(vocab) - 1] + (list(vocab.values()) if isinstance(vocab, dict) else []))
    for marker in dict.fromkeys(markers):
        if marker in taken:
            continue
        known = vocab.get(marker) if isinstance(vocab, dict) else None
        if known is None:
            top += 1
        root["added_tokens"].append({"id": top if known is None else known, "content": marker, "single_word": False, "lstrip": False, "rstrip": False,
                                     "normalized": False, "special": True})
    root["added_tokens"].sort(key=lambda t: t["id"])
    return root


class Reader:
    """A tokenizer of ferry and of transformers, both from one folder."""

    def __init__(self, program, root, config, tmp, name):
        self.dir = os.path.join(tmp, name)
        self.drops = False
        os.makedirs(self.dir, exist_ok=True)
        json.dump(root, open(self.dir + "/tokenizer.json", "w"))
        json.dump(config, open(self.dir + "/tokenizer_config.json", "w"))
        self.tok = PreTrainedTokenizerFast(tokenizer_file=self.dir + "/tokenizer.json", **{k: v for k, v in config.items() if v})
        self.ferry = subprocess.Popen([program, self.dir, self.dir + "/rows.jsonl"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def read(self, path, record, inputs=0, last=False):
        self.ferry.stdin.write(json.dumps({"template": path, "record": record, "inputs": inputs, "last": last}).encode() + b"\n")
        self.ferry.stdin.flush()
        line = self.ferry.stdout.readline()
        if not line:
            raise SystemExit("chat_lines ended: %s" % json.dumps(record))
        return json.loads(line)

    def encode(self, text):
        e = self.tok(text, add_special_tokens=False, return_offsets_mapping=True)
        return e["input_ids"], e["offset_mapping"]

    def close(self):
        self.ferry.stdin.close()
        self.ferry.wait()


def eos_of(name):
    """The end that a template wants of its tokenizer and does not write itself, or not after each answer."""
    return "<|return|>" if "gptoss" in name else "<|user|>" if "glm4moe" in name else None


def text_of(token):
    return token["content"] if isinstance(token, dict) else token


def open_shared(program, shared, folder, markers, eos, tmp):
    source = os.path.join(shared, "tokenizers", folder)
    raw = open(source + "/tokenizer.json", "rb").read() if os.path.exists(source + "/tokenizer.json") else lzma.open(source + "/tokenizer.json.xz").read()
    config = json.load(open(source + "/tokenizer_config.json")) if os.path.exists(source + "/tokenizer_config.json") else {}
    usual = ("<s>", "</s>") if markers else (None, None)  # without markers the tokenizer stays as it is
    config = {"bos_token": text_of(config.get("bos_token")) or usual[0], "eos_token": eos or text_of(config.get("eos_token")) or usual[1]}
    reader = Reader(program, add_markers(json.loads(raw), markers + sorted({v for v in config.values() if v})), config, tmp, "real")
    reader.drops = folder == "standin-no-unk"  # it drops characters, and the places that transformers gives for its tokens are wrong then
    return reader


# ---- the oracle ----


def reads_parts(tok, template, role):
    """Whether a template writes the texts of a list, and not the list."""
    call = {"type": "function", "id": "call00000", "function": {"name": "f", "arguments": {"a": "b"}}}
    before = {"assistant": [{"role": "user", "content": "a"}], "tool": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [call]}]}
    message = {"role": role, "content": [{"type": "text", "text": "k1q"}, {"type": "text", "text": "k2q"}], "tool_call_id": "call00000"}
    try:
        text, _ = render(tok, template, None, messages=[*before.get(role, []), message, *([{"role": "user", "content": "a"}] if role == "system" else [])])
    except Exception:
        return False
    return "k1q" in text and "k2q" in text and "'k1q" not in text and '"k1q' not in text


PARTS = {}


def parts_of(tok, template):
    """The roles whose lists of parts a template reads. ferry joins those of others."""
    if template not in PARTS:
        PARTS[template] = {role for role in ("system", "user", "assistant", "tool") if reads_parts(tok, template, role)}
    return PARTS[template]


def render(tok, template, record, prompt=False, marks=False, messages=None):
    """(text, marked spans)"""
    if not messages:
        taken = parts_of(tok, template)
        messages = [{k: v if k != "content" or m["role"] in taken else text_in(m) for k, v in m.items() if k != "weight"} for m in record["messages"]]
    record = record or {}
    special = {k: v for k, v in tok.special_tokens_map.items() if isinstance(v, str)}
    rendered, spans = chat_template_utils.render_jinja_template(
        conversations=[messages], tools=record.get("tools"), documents=record.get("documents"), chat_template=template, return_assistant_tokens_mask=marks,
        continue_final_message=False, add_generation_prompt=prompt, **{**special, **record.get("chat_template_kwargs", {})})
    return rendered[0], spans[0] if marks and spans else []


def prompt_of(tok, template, record):
    ask = [{"role": "user", "content": "hi"}]
    try:
        off, _ = render(tok, template, record, messages=ask)
        on, _ = render(tok, template, record, prompt=True, messages=ask)
    except Exception:
        return ""
    same = len(os.path.commonprefix([on, off]))
    for m in MARKER.finditer(on):
        if m.start() < same < m.end():
            same = m.start()
    return on[same:]


def cut(text, spans, prompt, ends, turn_ends):
    """Marks without a header at their begin and without text behind the end of the turn."""
    out = []
    for start, end in spans:
        first = MARKER.match(prompt)
        if first and text.startswith(first.group(), start) and not text.startswith(prompt, start):
            start += len(first.group())
        for k in range(len(prompt), -1, -1):  # the mark may begin anywhere in the prompt
            if text[:start].endswith(prompt[:k]) and text.startswith(prompt[k:], start):
                start += len(prompt) - k
                break
        last = max([text.rfind(e, start, end) + len(e) for e in ends if text.rfind(e, start, end) >= 0] or [-1])
        if last > 0 and not text[last:end].strip():
            end = last
        if prompt:  # TRL trains no end here, ferry does
            end += max([len(e) for e in turn_ends if text.startswith(e, end)] or [0])
        if not (prompt and text[start:end] in ends and out and not text[out[-1][1]:start].strip()):  # TRL trains a second end
            out.append((start, end))
    return out


def plain(text, spans):
    """Neighbouring spans joined, and blanks at their begins left out."""
    out = []
    for start, end in spans:
        while start < end and text[start] in " \n":
            start += 1
        if out and out[-1][1] == start:
            out[-1] = (out[-1][0], end)
        elif end > start:
            out.append((start, end))
    return out


def tags(text):
    return set(re.findall(r"k\d+q", text))


class Checks:
    def __init__(self, show, why=None):
        self.why = why
        self.count, self.bad, self.refused, self.shells = collections.Counter(), collections.Counter(), collections.Counter(), collections.defaultdict(collections.Counter)
        self.where = collections.defaultdict(collections.Counter)
        self.show = show

    def fail(self, kind, name, record, text):
        self.bad[kind] += 1
        if self.bad[kind] <= self.show:
            print("-- %s: %s\n%s\n%s\n" % (kind, name, json.dumps(record, ensure_ascii=False)[:3000], text))

    def turns(self, name, record, text, spans, trained, is_marked):
        """What is trained, by the contents themselves."""
        said = "".join(text[a:b] for a, b in spans)
        mine = set()
        for i, m in enumerate(record["messages"]):
            if i in trained:
                mine |= tags(text_in(m)) & tags(text)
                for call in m.get("tool_calls", []):
                    mine |= tags(json.dumps(call)) & tags(text)
        others = tags(text) - set().union(*[tags(json.dumps(record["messages"][i])) for i in trained] or [set()])
        if not mine <= tags(said):
            self.fail("turns: a content is not trained", name, record, "%s of\n%r" % (sorted(mine - tags(said)), [text[a:b] for a, b in spans]))
        if others & tags(said):
            self.fail("turns: a content of others is trained", name, record, "%s of\n%r" % (sorted(others & tags(said)), [text[a:b] for a, b in spans]))
        for i in trained:
            m = record["messages"][i]
            content = text_in(m).strip()
            mine = [text[a:b] for a, b in spans if content and content in text[a:b]]
            if len(mine) != 1 or "tool_calls" in m or "<think>" in content or not tags(content):
                continue
            shell = mine[0].replace(content, "C")
            thought = m.get("thinking", "").strip()
            if thought and thought in shell:
                shell = shell.replace(thought, "T")
            self.shells[name][re.sub(r"\s*([CT])\s*", r"\1", shell)] += 1
            self.count["plain turns"] += 1


def expected_trained(record, last):
    turns = [i for i, m in enumerate(record["messages"]) if m["role"] == "assistant"]
    if last:
        turns = turns[-1:]
    return [i for i in turns if record["messages"][i].get("weight", 1)]


def spans_of(offsets, runs):
    return [(offsets[a][0], offsets[b - 1][1]) for a, b in runs]


def check_chat(c, reader, real, name, path, text_of_template, twin, record, last):
    """Compares one chat; returns what the golden draw keeps of it, or None."""
    marked = "{% generation" in text_of_template or "{%- generation" in text_of_template
    try:
        want, marks = render(reader.tok, text_of_template, record, marks=marked)
    except Exception as e:
        got = reader.read(path, record)
        c.count["refused by transformers"] += 1
        if "ids" in got:
            c.fail("ferry takes what transformers refuses", name, record, str(e))
        return None
    got = reader.read(path, record, last=last)
    trained = expected_trained(record, last)
    if "error" in got:
        why = [short for pattern, short in MEANT if re.search(pattern, got["error"])]
        c.refused[why[0] if why else got["error"][:160]] += 1
        c.where[why[0] if why else "?"][name] += 1
        if c.why and re.search(c.why, got["error"]):
            print("-- %s\n%s\n%s\n%r" % (name, got["error"], json.dumps(record, ensure_ascii=False), want))
        c.count["refused by ferry alone"] += 1
        if not why:
            c.fail("ferry refuses what transformers takes", name, record, got["error"])
        return None
    c.count["compared"] += 1
    ids, offsets = reader.encode(want)
    if got["ids"][: len(ids)] != ids:
        c.fail("text", name, record, "%r\n%r" % (want, reader.tok.decode(got["ids"])))
        return None
    if len(got["ids"]) > len(ids):  # the tail that ends a last answer
        tail = reader.tok.decode(got["ids"][len(ids):])
        c.count["tails"] += 1
        want += tail
        ids, offsets = reader.encode(want)
        if ids != got["ids"]:
            c.fail("tail", name, record, "%r" % tail)
            return None
    spans = spans_of(offsets, got["trained"])
    ends = [reader.tok.convert_ids_to_tokens(i) for i in got["ends"]]
    prompt = prompt_of(reader.tok, text_of_template, record)
    if twin:
        try:
            twin_text, marks = render(reader.tok, twin, record, marks=True)
            marked = twin_text == want
        except Exception:
            marked = False
        c.count["with marks of TRL" if marked else "TRL's own text is another"] += 1
    if marked and not last and len(trained) == len(expected_trained({"messages": [{**m, "weight": 1} for m in record["messages"]]}, False)):
        mark = plain(want, cut(want, marks, prompt if twin else "", sorted(set(MARKER.findall(want)) | set(ends)), ends))
        if mark != plain(want, spans):
            c.fail("marks", name, record, "marked  %r\ntrained %r" % ([want[a:b] for a, b in mark], [want[a:b] for a, b in plain(want, spans)]))
    c.turns(name, record, want, spans, trained, marked)
    everything = reader.read(path, record, inputs=7)
    if len(trained) < sum(m["role"] == "assistant" for m in record["messages"]):
        pass  # turns that are not trained may be refused here
    elif everything.get("ids") != got["ids"] or everything["trained"] != [[0, len(ids)]]:
        c.fail("inputs", name, record, str(everything)[:300])
    elif not last and set(everything["ends"]) != set(got["ends"]):
        c.fail("inputs: other ends", name, record, "%s %s" % (everything["ends"], got["ends"]))
    if real:
        check_real(c, real, name, path, record, last, want, spans)
    return {"ids": ids, "trained": got["trained"]}


def check_real(c, real, name, path, record, last, want, spans):
    got = real.read(path, record, last=last)
    if "error" in got:
        c.refused["with a tokenizer of SHARED: " + got["error"][:120]] += 1
        return
    text, _ = render(real.tok, open(path).read(), record)
    if text != want[: len(text)]:
        c.count["another text by the tokenizer's own tokens"] += 1
        return
    ids, offsets = real.encode(want)
    c.count["compared with a tokenizer of SHARED"] += 1
    if got["ids"] != ids:
        c.fail("ids", name, record, "%r" % (got["ids"][:60],))
        return
    if real.drops:
        return
    same = real.tok.decode(ids) == want  # else borders are found by prefixes: to a token
    labels = [False] * len(ids)
    for a, b in got["trained"]:
        labels[a:b] = [True] * (b - a)
    for k, (a, b) in enumerate(offsets):
        inside = any(a < end and b > start for start, end in spans)
        beside = not same and any(a <= edge + 3 and b >= edge - 3 for span in spans for edge in span)
        across = beside or any(a < edge < b for span in spans for edge in span) or a == b or any(a == edge or b == edge for span in spans for edge in span)
        if labels[k] != inside and not across:
            c.fail("tokens", name, record, "%r at %d: %s %s" % (want[a:b], a, labels[k], [want[s:e] for s, e in spans]))
            return
        c.count["tokens on a border that differ"] += labels[k] != inside


# ---- main ----


# the tokenizer of SHARED that a template of SHARED is read with in the golden draw
OWN = {"falcon": "qwen3", "granite": "llama-3", "gemma": "gemma-3", "llama-2": "llama-2", "llama-3": "llama-3", "mistral-7b": "mistral-7b-v0.1", "mixtral": "mistral-7b-v0.1", "zephyr": "mistral-7b-v0.1",
       "mistral": "mistral-nemo", "phi": "phi-3-mini", "qwen": "qwen3", "smollm": "qwen3"}


def hash_of(ids):
    """FNV-1a over the ids."""
    h = 0xCBF29CE484222325
    for i in ids:
        h = ((h ^ i) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % h


def write(a):
    """A few chats of each template of SHARED, each compared as in a draw, and what is refused."""
    rng, c, lines = random.Random(a.seed), Checks(a.show), []
    all_templates = templates(a.shared, False)
    markers = sorted({m for text, _, _ in all_templates.values() for m in MARKER.findall(text)})
    with tempfile.TemporaryDirectory() as tmp:
        letter = Reader(a.program, add_markers(letters(markers), markers + ["<s>", "</s>"]), {"bos_token": "<s>", "eos_token": "</s>"}, tmp, "letters")
        for name, (text, _, file) in sorted(all_templates.items()):
            folder = next((OWN[k] for k in OWN if name.startswith(k)), "llama-2")
            real, path, kept, tries = open_shared(a.program, a.shared, folder, [], None, tmp), file, 0, 0
            while kept < a.chats and tries < 40 * a.chats:
                tries += 1
                record, last = Draw(rng).chat(text), rng.random() < 0.1
                if len(json.dumps(record)) > 2200 or not check_chat(c, letter, real, name, path, text, None, record, last):
                    continue
                got, (want, _) = real.read(path, record, last=last), render(real.tok, text, record)
                if "ids" not in got or got["ids"] != real.encode(want)[0]:
                    continue
                kept += 1
                lines.append({"template": os.path.basename(file) if a.shared in file else "templates/" + os.path.basename(file), "tokenizer": folder, "record": record, "last": last, "count": len(got["ids"]),
                              "ids": hash_of(got["ids"]), "trained": got["trained"]})
            real.close()
        letter.close()
    with open(a.write, "w") as f:
        for line in lines:
            f.write(json.dumps(line, ensure_ascii=False) + "\n")
    print("%d chats of %d templates in %s; %s" % (len(lines), len({x["template"] for x in lines}), a.write, dict(c.bad) or "no difference"))
    return 1 if c.bad else 0


def run(a):
    all_templates = {n: t for n, t in templates(a.shared, True, a.more).items() if not a.only or a.only in n}
    markers = sorted({m for text, twin, _ in templates(a.shared, True, a.more).values() for m in MARKER.findall(text)} | {f for f in FAKES if MARKER.fullmatch(f)})
    folders = sorted(f for f in os.listdir(os.path.join(a.shared, "tokenizers")) if os.path.exists(os.path.join(a.shared, "tokenizers", f, "golden.jsonl")))
    rng, c, began = random.Random(a.seed), Checks(a.show, a.why), time.time()
    with tempfile.TemporaryDirectory() as tmp:
        readers = {}
        for eos in ("</s>", "<|return|>", "<|user|>"):
            readers[eos] = Reader(a.program, add_markers(letters(markers), markers + ["<s>", "</s>", "<|return|>", "<|user|>"]), {"bos_token": "<s>", "eos_token": eos}, tmp, "letters" + eos.strip("</>|"))
        paths = {}
        for name, (text, twin, _) in all_templates.items():
            paths[name] = os.path.join(tmp, name.replace(":", "_") + ".jinja")
            open(paths[name], "w").write(text)
        done = 0
        while done < a.chats and (not a.seconds or time.time() - began < a.seconds):
            folder = rng.choice(folders)
            eos = rng.choice(["<|return|>", "<|user|>"]) if rng.random() < 0.05 else None
            real = open_shared(a.program, a.shared, folder, markers, eos, tmp) if not a.letters else None
            for _ in range(min(50, a.chats - done)):
                done += 1
                name = rng.choice([n for n in all_templates if eos_of(n) == eos] or list(all_templates))
                eos = eos_of(name)
                text, twin, _ = all_templates[name]
                reader = readers[eos or "</s>"]
                check_chat(c, reader, real, name, paths[name], text, twin, Draw(rng).chat(text), rng.random() < 0.1)
            if real:
                real.close()
        for r in readers.values():
            r.close()
    print("%d chats, %d templates, %d tokenizers, seed %d, %.0f s" % (done, len(all_templates), len(folders) + 1, a.seed, time.time() - began))
    for kind, n in sorted(c.count.items()):
        print("  %6d %s" % (n, kind))
    for why, n in c.refused.most_common():
        print("  %6d refused by ferry: %s" % (n, why))
        if a.shells:
            print("         " + ", ".join("%s %d" % x for x in c.where[why].most_common()))
    for kind, n in sorted(c.bad.items()):
        print("  %6d DIFFER: %s" % (n, kind))
    if a.shells:
        for name, shells in sorted(c.shells.items()):
            print(name)
            for shell, n in shells.most_common():
                print("    %5d %r" % (n, shell))
    return 1 if c.bad else 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("shared")
    p.add_argument("--chats", type=int, default=10000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--seconds", type=float)
    p.add_argument("--only")
    p.add_argument("--show", type=int, default=3)
    p.add_argument("--shells", action="store_true")
    p.add_argument("--letters", action="store_true", help="the tokenizer of letters alone")
    p.add_argument("--why", help="print the chats that ferry refuses with a reason like this")
    p.add_argument("--more", action="append", default=[], help="a folder with more templates")
    p.add_argument("--write")
    a = p.parse_args()
    sys.exit((write if a.write else run)(a))


if __name__ == "__main__":
    main()
