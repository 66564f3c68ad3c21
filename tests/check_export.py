"""Do directories that ferry exported load in transformers as they are, with the loss that ferry has?

    python3 check_export.py DIR ROWS.jsonl LOSS [DIR ROWS.jsonl LOSS]...

DIR is a model, or an adapter that peft loads over the model that its config names. Each must load without a
missing, unexpected or mismatched tensor and have the loss LOSS (of `ferry eval
compute_dtype=fp32`) over all rows, computed here in fp32, to 2e-6. Exit 0 when all do.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.set_num_threads(2)


def loss_of(model, path):
    total, count = 0.0, 0
    with open(path) as file:
        for line in file:
            row = json.loads(line)
            ids = torch.tensor([row["input_ids"]])
            labels = torch.tensor(row.get("labels", row["input_ids"]))[1:]
            with torch.no_grad():
                logits = model(input_ids=ids).logits[0, :-1].float()
            total += torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum").item()
            count += int((labels != -100).sum())
    return total / count


def check(directory, rows, loss):
    adapter = Path(directory, "adapter_config.json")
    base = json.loads(adapter.read_text())["base_model_name_or_path"] if adapter.exists() else directory
    is_whole = hasattr(AutoConfig.from_pretrained(base), "vision_config")
    auto = AutoModelForImageTextToText if is_whole else AutoModelForCausalLM
    model, info = auto.from_pretrained(base, torch_dtype=torch.float32, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not info.get(key), f"{directory}: {key} {info[key]}"
    if adapter.exists():
        import peft

        model = peft.PeftModel.from_pretrained(model, directory)
    got = loss_of(model.eval(), rows)
    assert abs(got - loss) <= 2e-6 * abs(loss), f"{directory}: loss {got:.8f}, ferry has {loss:.8f}"
    print(f"{directory}: loss {got:.6f}, ferry {loss:.6f}, {model.num_parameters()} parameters")


def main():
    for at in range(1, len(sys.argv), 3):
        check(sys.argv[at], sys.argv[at + 1], float(sys.argv[at + 2]))


if __name__ == "__main__":
    main()
