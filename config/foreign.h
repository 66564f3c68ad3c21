/* Settings in the words of other trainers: accelerate, axolotl, torchtune, LLaMA-Factory, transformers and
 * TRL.
 *
 * A table (config/foreign_keys.inc) says what each foreign key does. It sets a key of ferry under another
 * name, has no effect here, or is refused because it would change what is trained. A dialect is the tool that
 * a file was written for, recognised from the keys in the file. It matters only for keys that mean different
 * things in different tools.
 */
#ifndef FERRY_CONFIG_FOREIGN_H
#define FERRY_CONFIG_FOREIGN_H

#include "base/yaml.h"
#include "config/foreign_sets.h"
#include "config/table.h"

enum dialect {
	DIALECT_FERRY,
	DIALECT_ACCELERATE,
	DIALECT_AXOLOTL,
	DIALECT_TORCHTUNE,
	DIALECT_LLAMA_FACTORY,
	DIALECT_TRANSFORMERS,
	DIALECT_TRL,
	DIALECT_DEEPSPEED,
	DIALECT_COUNT
};
#define FOREIGN_DEEPSPEED                                                                                    \
	"DeepSpeed configurations are not supported yet; set sharding_strategy and cpu_offload"

const char *dialect_name(enum dialect dialect);
enum dialect dialect_find(const struct yaml_doc *doc);

/* Whether a key is in a list of names separated by blanks. Each name may hold one *, which stands for any
 * text. */
int foreign_name_matches(const char *name, const char *list);

/* A setting kept for later. */
struct foreign_item {
	char *file, *name, *text; /* file NULL: the command line */
	int line;
};

/* Settings refused for one reason: "use_dora=true, peft_use_dora=true (line 4)". */
struct foreign_refusal {
	char *why;
	struct str keys;
};
enum { FOREIGN_REFUSALS_MAX = 128 }; /* more than there are reasons */

/* The trainer whose words switch LoRA on; its defaults count. */
enum foreign_lora_by {
	FOREIGN_LORA_UNSAID,
	FOREIGN_LORA_OFF,
	FOREIGN_LORA_ON, /* in nobody's words */
	FOREIGN_LORA_AXOLOTL,
	FOREIGN_LORA_LLAMA_FACTORY,
	FOREIGN_LORA_TRL,
	FOREIGN_LORA_TORCHTUNE,
	FOREIGN_LORA_PEFT,
	FOREIGN_LORA_COUNT
};
struct foreign_lora {
	enum foreign_lora_by by;
	struct foreign_item item, dropout; /* item: what switched it */
};

/* Preference training: what LLaMA-Factory's stage dpo and axolotl's rl leave to be checked. */
struct foreign_preference {
	struct foreign_item stage, pref_loss, rl_simpo;
	int cpo_alpha_said;
};

enum foreign_event { FOREIGN_SAVE, FOREIGN_EVAL, FOREIGN_LOG, FOREIGN_EVENTS };
/* transformers' strategy of an event; item: what says it. */
struct foreign_strategy {
	enum { FOREIGN_UNSAID, FOREIGN_STEPS, FOREIGN_EPOCH, FOREIGN_NEVER } when;
	struct foreign_item item;
};

/* What foreign keys leave to be worked out at the end of parsing. Zero-initialise; foreign_free. */
struct foreign {
	enum dialect dialect;                          /* of the present layer */
	enum dialect file_dialect;                     /* of the last file */
	const char *file;                              /* the last file */
	struct foreign_sets sets;                      /* of the present layer */
	struct str passed;                             /* keys of the current layer without effect */
	struct foreign_item per_epoch[FOREIGN_EVENTS]; /* a number */
	struct foreign_strategy strategy[FOREIGN_EVENTS];
	struct foreign_item pretrains; /* LLaMA-Factory's stage pt */
	struct foreign_item zero;      /* the last of DeepSpeed's words about offload */
	int zero_offload;              /* bits of enum config_offload, by these words */
	int only_loss;                 /* of the present layer: bits of train_on_inputs by TRL's words */
	int assistant_only_said;
	struct foreign_lora lora;
	struct foreign_preference preference;
	struct foreign_item evaluates, data_seed, tokenizer_path;
	struct foreign_refusal refusals[FOREIGN_REFUSALS_MAX]; /* of the present layer */
	int refusal_count;
	struct foreign_item total_batch_item; /* axolotl's batch_size */
	int64_t total_batch;                  /* the same: rows of a step on one device */
};

enum foreign_scope { FOREIGN_OWN_MEANING, FOREIGN_ANY };
enum foreign_found { FOREIGN_UNKNOWN, FOREIGN_TAKEN };

/* Translates one setting of a file or the command line. FOREIGN_TAKEN if the key is known and is now done,
 * FOREIGN_UNKNOWN if it is not, or ERR_* with place and key. FOREIGN_OWN_MEANING considers only keys that
 * mean something special in the layer's dialect. */
int foreign_set(struct foreign *f, struct config *c, struct config_layer *layer, const char *name,
        const char *text, int line, int is_null, enum foreign_scope scope);

/* Notes a key as one without effect. */
int foreign_pass(struct foreign *f, const char *name);

/* Takes the layer's next refusal: ERR_UNSUPPORTED with one line for all settings of a reason, or 0. */
int foreign_refusal_next(struct foreign *f);

/* Before the next layer. */
void foreign_layer_begin(struct foreign *f);

/* After all layers: strategies and counts per epoch become steps. ERR_INPUT, ERR_UNSUPPORTED: what a file
 * asks for by keys together, or by leaving one out. */
int foreign_finish(struct foreign *f, struct config *c);
void foreign_free(struct foreign *f);

#endif
