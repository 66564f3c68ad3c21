/* What people type, and words of several trainers. */
#include "config/dialect_item.h"

static int switch_lora(const struct item *s)
{
	return lora_switch(s, NULL, ITEM_ON);
}

static const struct dialect_key keys[] = {
        CALL("use_lora lora", switch_lora),
        ONLY("gpus num_gpus n_gpus n_gpu nproc_per_node", "1 auto",
                "start one rank for each GPU: set ranks=N"),
        KEY("vram vram_gb gpu_memory max_vram", "vram_budget"),
        KEY("ram ram_gb host_memory cpu_memory max_ram", "ram_budget"),
        ONLY("num_beams beams", "1",
                "beam search is not supported; temperature=0 takes the most likely token, above 0 samples"),
        KEY("warmup", "warmup_steps"),
        KEY("precision", "compute_dtype"),
        ONLY("config config_file", "", "name the file alone: ferry VERB FILE.yaml"),
        KEYS_END,
};

const struct dialect dialect_people = {.keys = keys};
