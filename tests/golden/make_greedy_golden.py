"""Greedy continuations by transformers of random prompts, for the golden models: tests/golden/greedy.json.

    python3 make_greedy_golden.py SHARED/golden > greedy.json
"""

import json
import os
import random
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils import logging

MODELS = ["gpt2", "gpt_neox", "llama2", "llama3", "mistral", "qwen2", "qwen3", "more/phi3", "modern/lfm2",
          "modern/muse_glimmer", "mixtral", "modern/gemma4_moe", "modern/glm4_moe", "modern/qwen2_moe",
          "modern/qwen3_5_moe", "modern/qwen3_next"]
NEW_TOKENS = 24

logging.set_verbosity_error()
logging.disable_progress_bar()


def rows(directory):
    whole = hasattr(AutoConfig.from_pretrained(directory), "text_config")
    auto = AutoModelForImageTextToText if whole else AutoModelForCausalLM
    model = auto.from_pretrained(directory, dtype=torch.float32).eval()
    vocabulary = model.config.get_text_config().vocab_size - 16 * whole  # the last are of images
    rng = random.Random(1)
    for count in (1, 5, 17, 33, 60):
        prompt = [rng.randrange(3, vocabulary) for _ in range(count)]
        ids = torch.tensor([prompt])
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=0)
        yield {"prompt": prompt, "ids": out[0].tolist()[count:]}


def main():
    models = [{"model": name, "rows": list(rows(os.path.join(sys.argv[1], name, "hf")))} for name in MODELS]
    print(json.dumps({"transformers": transformers.__version__, "new_tokens": NEW_TOKENS, "models": models}))


if __name__ == "__main__":
    main()
