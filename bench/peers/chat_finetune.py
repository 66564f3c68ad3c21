#!/usr/bin/env python3
"""Fine-tunes of two small models on chats in three kinds of files; transformers loads each result and finds ferry's loss.

    chat_finetune.py FERRY GOLDEN_DIR DATA_DIR

GOLDEN_DIR has llama2/hf and mistral/hf (vocabularies of about 256), DATA_DIR messages.jsonl and sharegpt_dummy.json; a
Parquet file is made of the messages by pyarrow. A tokenizer of 200 pieces is made here. After 20 steps, `ferry eval` of
the result is compared with the cross-entropy that transformers computes in fp32 over ferry's labels.
Needs `pip install torch transformers tokenizers pyarrow`.
"""
import json, os, shutil, subprocess, sys, tempfile

import pyarrow, pyarrow.parquet, tokenizers, torch, transformers


def make_tokenizer(folder, texts):
    tok = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    tok.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tok.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>", "<s>", "</s>"], limit_alphabet=120)
    tok.train_from_iterator(texts, trainer)
    tok.save(os.path.join(folder, "tokenizer.json"))
    json.dump({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}, open(os.path.join(folder, "tokenizer_config.json"), "w"))


def ferry(binary, *words):
    run = subprocess.run([binary, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if run.returncode:
        raise SystemExit(run.stderr.decode() + run.stdout.decode())
    return [json.loads(line) for line in run.stdout.decode().splitlines() if line.startswith("{")][-1]


def reference_loss(model_dir, rows):
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    total = count = 0
    with torch.no_grad():
        for row in rows:
            ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"])[1:]
            logits = model(ids).logits[0, :-1].double()
            total += float(torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum"))
            count += int((labels != -100).sum())
    return total / count, count


def main():
    binary, golden, data = sys.argv[1:4]
    torch.set_num_threads(1)
    binary = os.path.abspath(binary)
    with tempfile.TemporaryDirectory() as tmp:
        messages = [json.loads(line) for line in open(os.path.join(data, "messages.jsonl"))]
        table = pyarrow.Table.from_pylist(messages)
        pyarrow.parquet.write_table(table, os.path.join(tmp, "messages.parquet"))
        files = [os.path.join(data, "messages.jsonl"), os.path.join(data, "sharegpt_dummy.json"), os.path.join(tmp, "messages.parquet")]
        print("| model | file | rows | trained tokens | loss before | loss after, ferry | transformers | relative difference |\n|---|---|---|---|---|---|---|---|")
        for name, template in (("llama2", "llama2"), ("mistral", "mistral")):
            model = os.path.join(tmp, name)
            shutil.copytree(os.path.join(golden, name, "hf"), model)
            make_tokenizer(model, [m["content"] for row in messages for m in row["messages"]])
            for path in files:
                out = os.path.join(tmp, f"{name}-out")
                shutil.rmtree(out, ignore_errors=True)
                keys = ["data=" + path, "chat_template=" + template, "max_length=128"]
                before = ferry(binary, "eval", "model=" + model, "compute_dtype=fp32", *keys)["loss"]
                ferry(binary, "train", "model=" + model, *keys, "output_dir=" + out, "max_steps=20", "per_device_train_batch_size=8", "learning_rate=3e-3", "compute_dtype=fp32")
                result = os.path.join(out, "model")
                after = ferry(binary, "eval", "model=" + result, "compute_dtype=fp32", *keys)
                rows = ferry(binary, "data", "show", "model=" + result, *keys, "rows=all")["examples"]
                loss, count = reference_loss(result, rows)
                assert loss == loss and count > 0
                print(f"| {name} | {os.path.basename(path)} | {len(rows)} | {count} | {before:.4f} | {after['loss']:.7f} | {loss:.7f} | {abs(after['loss'] - loss) / loss:.1e} |", flush=True)


main()
