/* The table of verbs. */
#include "config/table.h"

const struct verb_info verb_infos[VERB_COUNT] = {
        [VERB_TRAIN] = {"train", "[CONFIG.yaml] [key=value | --key value]...", "fine-tune a model", NULL,
                "model data output_dir",
                "  ferry train model=MODEL_DIR data=rows.jsonl output_dir=out\n"
                "  ferry train run.yaml lr=1e-5 --cpu-offload on\n"
                "  ferry train out/config.yaml resume_from_checkpoint=auto\n",
                VERB_MAKES_RESULT},
        [VERB_EVAL] = {"eval", "[CONFIG.yaml] [key=value | --key value]...",
                "compute loss, perplexity and scores on data", NULL, "model data",
                "  ferry eval model=out/model data=test.jsonl --json\n", 0},
        [VERB_GENERATE] = {"generate", "[CONFIG.yaml] [key=value | --key value]...",
                "continue a prompt, or talk with the model", NULL, "model",
                "  ferry generate model=out/model prompt='Once upon a time' max_new_tokens=40\n"
                "  ferry generate model=out/model chat=on\n"
                "  ferry generate model=out/model data_format=alpaca prompt='Name three colours.'\n",
                VERB_IS_ALONE},
        [VERB_PLAN] = {"plan", "[MODEL | CONFIG.yaml] [key=value | --key value]...",
                "count memory, traffic and time of a run, without weights", "model", "model",
                "  ferry plan MODEL_DIR/config.json max_length=2048\n"
                "  ferry plan examples/models/llama-2-70b.json \\\n"
                "      machine=examples/machines/pc-rtx-4090.yaml\n",
                0},
        [VERB_EXPORT] = {"export", "CHECKPOINT output_dir=DIR [key=value | --key value]...",
                "convert a ferry checkpoint to a HuggingFace directory", "checkpoint",
                "checkpoint output_dir", "  ferry export out/checkpoint-000500 output_dir=model-500\n",
                VERB_MAKES_RESULT},
        [VERB_MERGE] = {"merge", "model=DIR lora_adapter=DIR output_dir=DIR [key=value]...",
                "write a model with an adapter merged into it", NULL, "model lora_adapter output_dir",
                "  ferry merge model=MODEL_DIR lora_adapter=out/adapter output_dir=merged\n",
                VERB_MAKES_RESULT},
        [VERB_INSPECT] = {"inspect", "PATH [--json]", "show what a file or directory contains", "path",
                "path", "  ferry inspect MODEL_DIR\n  ferry inspect out/checkpoint-000500 --json\n", 0},
        [VERB_VERIFY] = {"verify", "PATH [--json]", "compare a checkpoint with its checksums", "path", "path",
                "  ferry verify out/checkpoint-000500\n", 0},
        [VERB_TOKENIZE] = {"tokenize", "model=DIR [FILE] [key=value | --key value]...",
                "convert text to ids, or ids to text", "path", "model|tokenizer",
                "  ferry tokenize model=MODEL_DIR text.txt\n"
                "  echo '[1, 2, 3]' | ferry tokenize model=MODEL_DIR --decode\n",
                0},
        [VERB_DATA] = {"data", "show [CONFIG.yaml] [key=value | --key value]...",
                "show the first rows as they will be trained on, with counts", NULL, "data",
                "  ferry data show model=MODEL_DIR data=rows.jsonl packing=bfd\n", 0},
        [VERB_CONFIG] = {"config", "[CONFIG.yaml] [key=value | --key value]...",
                "show where each value is set; without a file, ask and write one", NULL, "",
                "  ferry config run.yaml lr=1e-5\n"
                "  ferry config axolotl.yml > run.yaml\n"
                "  ferry config\n",
                VERB_IS_ALONE},
        [VERB_INIT] = {"init", "CONFIG.json output_dir=DIR [key=value | --key value]...",
                "make a model with random weights", "config", "config output_dir",
                "  ferry init config.json output_dir=model seed=1\n", VERB_MAKES_RESULT},
        [VERB_TOPO] = {"topo", "[--json]", "show the machine and what ferry uses of it", NULL, "",
                "  ferry topo\n", 0},
        [VERB_BENCH] = {"bench", "NAME | list [key=value | --key value]...", "run a benchmark", "name",
                "name", "  ferry bench list\n", 0},
        [VERB_EMBED] = {"embed", "[CONFIG.yaml] [key=value | --key value]...", "write the vectors of texts",
                NULL, "model data output",
                "  ferry embed model=out/model data=texts.jsonl output=vectors.npy\n"
                "  ferry embed model=out/model data=questions.csv field_text=question \\\n"
                "      prompt_name=query "
                "output=q.npy\n",
                VERB_MAKES_RESULT | VERB_IS_ALONE},
        [VERB_REPORT] = {"report", "OUTPUT_DIR... [key=value | --key value]...",
                "write a page with curves, memory, waits and configuration of runs", "output_dirs",
                "output_dirs",
                "  ferry report out\n"
                "  ferry report out-a out-b html=ab.html\n",
                VERB_MAKES_RESULT | VERB_TAKES_SEVERAL},
};

int verb_makes_result(enum verb verb)
{
	return verb_infos[verb].facts & VERB_MAKES_RESULT;
}
