#!/usr/bin/env python3
"""Which tokens of random chats are trained: ferry beside TRL, or transformers' assistant masks.

    compare_chat_labels.py FERRY SHARED [--chats 1000] [--seed 1] [--trl]

FERRY is the program, SHARED the folder with tokenizers/. For each tokenizer and format the chats are rendered by a template
with {% generation %}, and ferry is given that template, its built-in one, and one without marks, whose turns it must find by
rendering parts of the chat. Labels must be those of the oracle: transformers' return_assistant_tokens_mask, or with --trl what
SFTTrainer(assistant_only_loss=True) makes of the rows and its collator hands to the model. With --trl published templates are
compared, too: TRL then trains with a template of its own for that model, and ferry with the published one. Needs transformers;
trl, torch and datasets for --trl.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from transformers import PreTrainedTokenizerFast

GEN, END = "{% generation %}", "{% endgeneration %}"
# name: (tokenizer, template with @ where the marks are)
FORMATS = {
    "llama3": ("llama-3", "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}{% if m.role == 'assistant' %}@<"
               "{{ m.content | trim + '<|eot_id|>' }}@>{% else %}{{ m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"),
    "chatml": ("qwen3", "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}@<{{ m.content + '<|im_end|>' }}@>{{ '\n' }}"
               "{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
    "phi3": ("phi-3-mini", "{% for m in messages %}{{ '<|' + m.role + '|>\n' }}{% if m.role == 'assistant' %}@<{{ m.content + '<|end|>' }}@>{{ '\n' }}{% else %}"
             "{{ m.content + '<|end|>\n' }}{% endif %}{% endfor %}{{ '<|assistant|>\n' if add_generation_prompt else eos_token }}"),
    "gemma": ("gemma-3", "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
              "{% if m.role == 'assistant' %}@<{{ m.content | trim + '<end_of_turn>' }}@>{{ '\n' }}{% else %}{{ m.content | trim + '<end_of_turn>\n' }}{% endif %}"
              "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"),
    "llama2": ("llama-2", "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' + m.content.strip() + ' [/INST]' }}{% else %}@<"
               "{{ ' ' + m.content.strip() + ' ' + eos_token }}@>{% endif %}{% endfor %}"),
    "mistral": ("mistral-7b-v0.1", "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ ' [INST] ' + m.content + ' [/INST]' }}{% else %}@<"
                "{{ ' ' + m.content + eos_token }}@>{% endif %}{% endfor %}"),
}
# published templates that TRL has one of its own for, by its names of them: tokenizer
PUBLISHED = {"qwen3": "qwen3", "qwen3_instruct_2507": "qwen3", "qwen2_5": "qwen3", "llama3": "llama-3", "phi3": "phi-3-mini", "gemma": "gemma-3",
             "gemma3": "gemma-3"}
NO_SYSTEM = ("gemma", "llama2", "mistral", "own:gemma")  # templates that refuse a system message
WORDS = ["Hello", "world", "the", "a", "tokens,", "naïve", "日本", "😀", "x = 1;", "\n", "\n\n", "- item\n", "  two", "1234", "<b>", "it's", "</think>", "."]


def chats(rng, count, with_system):
    for _ in range(count):
        say = lambda: rng.choice(["", "", " ", "\n"]) + " ".join(rng.choices(WORDS, k=rng.randrange(1, 30))) + rng.choice(["", "", "\n", " "])
        messages = [{"role": "system", "content": say()}] if with_system and rng.random() < 0.4 else []
        for _ in range(rng.choice([1, 1, 2, 3, 5])):
            messages += [{"role": "user", "content": say()}, {"role": "assistant", "content": say()}]
        yield messages


def is_border(ids, want, got, added, is_own):
    """An added token that takes the white space behind it (rstrip) may take an answer's first blanks: the mask then trains that token,
    which belongs to the prompt, and ferry does not. TRL's own templates mark a line break in front of an answer or behind its end of
    turn, which ferry does not train: the first or last token of what they mark."""
    for k, (w, g) in enumerate(zip(want, got)):
        is_first = k == 0 or want[k - 1] == -100
        is_last = k + 1 == len(want) or want[k + 1] == -100
        if w != g and (g != -100 or not (is_own and (is_first or is_last) or ids[k] in added and is_first)):
            return False
    return len(want) == len(got)


def by_masks(tok, rows, template):
    out = []
    for messages in rows:
        r = tok.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        out.append((r["input_ids"], [i if m else -100 for i, m in zip(r["input_ids"], r["assistant_masks"])]))
    return out


def by_trl(tok, rows, template):
    """As SFTTrainer prepares the rows and its collator makes labels of them."""
    import datasets, torch, transformers, trl

    tok.chat_template = template
    tok.pad_token = tok.pad_token or tok.eos_token or tok.convert_ids_to_tokens(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(tok) + 16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1))
    with tempfile.TemporaryDirectory() as tmp:
        args = trl.SFTConfig(output_dir=tmp, assistant_only_loss=True, max_length=None, report_to="none", use_cpu=True, bf16=False,
                             packing=False, eos_token=tok.eos_token, pad_token=tok.pad_token)
        trainer = trl.SFTTrainer(model=model, args=args, processing_class=tok, train_dataset=datasets.Dataset.from_list([{"messages": m} for m in rows]))
        out = []
        for row in trainer.train_dataset:
            batch = trainer.data_collator([row])
            out.append((batch["input_ids"][0].tolist(), batch["labels"][0].tolist()))
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ferry")
    parser.add_argument("shared")
    parser.add_argument("--chats", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--trl", action="store_true")
    a = parser.parse_args()
    wrong = 0
    formats = dict(FORMATS)
    if a.trl:
        import trl

        for name, folder in PUBLISHED.items():
            formats["own:" + name] = (folder, open(os.path.join(os.path.dirname(trl.__file__), "chat_templates", name + ".jinja")).read())
    for name, (folder, template) in formats.items():
        if a.only and not name.startswith(a.only):
            continue
        rng = random.Random(a.seed)
        source = os.path.join(a.shared, "tokenizers", folder)
        with tempfile.TemporaryDirectory() as tmp:
            if os.path.exists(source + "/tokenizer.json"):
                os.symlink(os.path.abspath(source + "/tokenizer.json"), tmp + "/tokenizer.json")
            else:
                subprocess.run("xz -dkc '%s/tokenizer.json.xz' > '%s/tokenizer.json'" % (source, tmp), shell=True, check=True)
            config = json.load(open(source + "/tokenizer_config.json"))
            config.pop("chat_template", None)
            json.dump(config, open(tmp + "/tokenizer_config.json", "w"))
            marked, plain = template.replace("@<", GEN).replace("@>", END), template.replace("@<", "").replace("@>", "")
            open(tmp + "/marked.jinja", "w").write(marked)
            open(tmp + "/plain.jinja", "w").write(plain)
            text = lambda t: t["content"] if isinstance(t, dict) else t
            tok = PreTrainedTokenizerFast(tokenizer_file=tmp + "/tokenizer.json", bos_token=text(config.get("bos_token")), eos_token=text(config.get("eos_token")))
            added = set(tok.get_added_vocab().values())
            rows = list(chats(rng, a.chats, name not in NO_SYSTEM))
            with open(tmp + "/rows.jsonl", "w") as f:
                for messages in rows:
                    f.write(json.dumps({"messages": messages}) + "\n")
            want = (by_trl if a.trl else by_masks)(tok, rows, marked)
            for way in ("plain.jinja",) if name.startswith("own:") else ("marked.jinja", "plain.jinja", name):
                choice = tmp + "/" + way if way.endswith("jinja") else way
                p = subprocess.run([a.ferry, "data", "show", "--json", "tokenizer=" + tmp, "data=" + tmp + "/rows.jsonl", "show_rows=all", "max_length=off",
                                    "chat_template=" + choice], capture_output=True, text=True)
                if p.returncode:
                    print("%s with %s: %s" % (name, way, p.stderr.strip()[-300:]))
                    wrong += 1
                    continue
                got = json.loads(p.stdout)
                ids = labels = border = 0
                for (i, l), row, messages in zip(want, got["examples"], rows):
                    if row["input_ids"] != i:
                        ids += 1
                    elif row["labels"] != l and is_border(i, l, row["labels"], added, name.startswith("own:")):
                        border += 1
                    elif row["labels"] != l:
                        labels += 1
                        if labels == 1:
                            bad = [k for k in range(len(i)) if l[k] != row["labels"][k]]
                            print("first difference at tokens %s of %s" % (bad[:8], json.dumps(messages)[:600]))
                            print([(tok.convert_ids_to_tokens(i[k]), l[k], row["labels"][k]) for k in range(max(0, bad[0] - 3), bad[0] + 4) if k < len(i)])
                print("%-8s %-16s %-14s %d chats: %d with other ids, %d with other labels, %d differ in a border token only; %d ends of turns "
                      "trained" % (name, folder, way, len(rows), ids, labels, border, got["turn_ends"]))
                wrong += ids + labels + (len(rows) != len(got["examples"]))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
