#!/usr/bin/env python3
"""Labels of random chats: `ferry data show` beside the assistant masks of transformers and TRL, token by token.

    labels.py FERRY TOKENIZER_DIR [--chats 1000] [--seed 1]

Chats have system messages, one to six turns and odd texts. Each template is used twice: with {% generation %}, from which
transformers makes its masks (TRL's assistant_only_loss uses them), and without, where ferry finds the turns by itself.
Needs `pip install transformers jinja2`.
"""
import argparse, json, os, random, subprocess, tempfile

TEMPLATES = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "llama3": "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|eot_id|>' }}{% endgeneration %}{% else %}{{ m.content + '<|eot_id|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
}
WORDS = ["yes", "No.", "the", "river", " two  blanks", "\n", "\n\n", "naïve", "東京", "123", "x = y;", "\t", "🙂", "don't", "...", "(a)", "<b>", "assistant"]


def text(r):
    return " ".join(r.choice(WORDS) for _ in range(r.randint(0, 25)))


def chat(r):
    messages = [{"role": "system", "content": text(r)}] if r.random() < 0.4 else []
    for _ in range(r.randint(1, 6)):
        messages += [{"role": "user", "content": text(r)}, {"role": "assistant", "content": text(r)}]
    return messages


def plain(template):
    for mark in ("{% generation %}", "{% endgeneration %}"):
        template = template.replace(mark, "")
    return template


def ferry_rows(o, tmp, template):
    path = os.path.join(tmp, "t.jinja")
    open(path, "w", encoding="utf-8").write(template)
    command = [o.ferry, "data", "show", "tokenizer=" + o.tokenizer, "data=" + os.path.join(tmp, "chats.jsonl"), "chat_template=" + path, "rows=all", "max_length=off", "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["examples"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ferry")
    p.add_argument("tokenizer")
    p.add_argument("--chats", type=int, default=1000)
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args()
    import transformers

    tok = transformers.PreTrainedTokenizerFast.from_pretrained(o.tokenizer)
    r = random.Random(o.seed)
    chats = [chat(r) for _ in range(o.chats)]
    with tempfile.TemporaryDirectory() as tmp:
        with open(os.path.join(tmp, "chats.jsonl"), "w") as f:
            f.writelines(json.dumps({"messages": c}) + "\n" for c in chats)
        for name, template in TEMPLATES.items():
            if "<|im_end|>" in template and "<|im_end|>" not in tok.get_vocab() or "<|eot_id|>" in template and "<|eot_id|>" not in tok.get_vocab():
                continue
            want = [tok.apply_chat_template(c, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True) for c in chats]
            for kind, source in (("with {% generation %}", template), ("without", plain(template))):
                rows = ferry_rows(o, tmp, source)
                ids = sum(row["input_ids"] != w["input_ids"] for row, w in zip(rows, want))
                labels = sum([int(x != -100) for x in row["labels"]] != list(w["assistant_masks"]) for row, w in zip(rows, want))
                tokens = sum(len(row["input_ids"]) for row in rows)
                trained = sum(x != -100 for row in rows for x in row["labels"])
                print(f"{name} {kind}: {len(rows)} chats, {tokens} tokens, {trained} trained; {ids} chats with other ids, {labels} with other labels")
                assert len(rows) == len(want)


if __name__ == "__main__":
    main()
