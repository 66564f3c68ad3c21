"""Probabilities of the next token that transformers' generate draws from: tests/golden/sampling.json.

    python3 make_sampling_golden.py > sampling.json

Each case has random logits, ids that the text has, and settings; the processors are those of transformers, in the
order of GenerationMixin._get_logits_processor.
"""

import json
import random

import torch
import transformers
from transformers import GenerationConfig
from transformers.generation.utils import GenerationMixin


def processors(settings):
    class Model(GenerationMixin):
        config = transformers.LlamaConfig()

    config = GenerationConfig(do_sample=settings["temperature"] > 0, **{k: v for k, v in settings.items() if k != "temperature"})
    config.temperature = settings["temperature"] or 1.0
    config.num_beams = 1
    return Model()._get_logits_processor(generation_config=config, input_ids_seq_length=1)


def case(rng, number):
    vocab = rng.choice([5, 40, 200])
    spread = rng.choice([0.5, 2, 6])
    logits = [round(rng.gauss(0, spread), 6) for _ in range(vocab)]  # no equals: which of them torch.sort puts first is open
    seen = [rng.randrange(vocab) for _ in range(rng.choice([1, 3, 12]))]
    settings = {
        "temperature": rng.choice([0, 0.3, 0.7, 1.0, 1.9]) if number % 7 else 0,
        "top_k": rng.choice([0, 1, 3, 20, 1000]),
        "top_p": rng.choice([1.0, 0.9, 0.5, 0.05]),
        "min_p": rng.choice([0.0, 0.05, 0.4]),
        "repetition_penalty": rng.choice([1.0, 1.3, 0.8]),
    }
    scores = processors(settings)(torch.tensor([seen]), torch.tensor([logits]))[0]
    if settings["temperature"] == 0:
        best = int(scores.argmax())
        return {"logits": logits, "seen": seen, **settings, "ids": [best], "probabilities": [1.0]}
    probabilities = scores.double().softmax(-1)
    ids = [i for i in range(vocab) if scores[i] != float("-inf")]
    return {"logits": logits, "seen": seen, **settings, "ids": ids, "probabilities": [round(float(probabilities[i]), 9) for i in ids]}


def main():
    rng = random.Random(5)
    cases = [case(rng, i) for i in range(120)]
    print('{"transformers": "%s",\n "cases": [' % transformers.__version__)
    print(",\n".join("  " + json.dumps(c) for c in cases))
    print(" ]}")


if __name__ == "__main__":
    main()
