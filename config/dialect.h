/* Settings in the words of other trainers: axolotl, LLaMA-Factory, torchtune, transformers, TRL and others.
 *
 * A dialect is a list of a trainer's keys and what each does here. It sets a key of ferry under another name,
 * has no effect here, or is refused because it would change what is trained. The keys of every dialect are
 * understood in any file and on the command line. The dialect of a file is recognised from its keys. It
 * matters for keys that mean different things in different trainers, and for defaults.
 *
 * To add a trainer, write config/dialect_NAME.c and add its row to DIALECT_LIST. dialect_item.h explains what
 * the file holds.
 */
#ifndef FERRY_CONFIG_DIALECT_H
#define FERRY_CONFIG_DIALECT_H

#include "base/yaml.h"
#include "config/dialect_sets.h"
#include "config/table.h"

/* ROW(name): struct dialect dialect_<name>. After parsing they finish in this order. The last ones are words
 * that many share. */
#define DIALECT_LIST(ROW)                                                                                    \
	ROW(ms_swift)                                                                                        \
	ROW(mlx)                                                                                             \
	ROW(peft)                                                                                            \
	ROW(preference)                                                                                      \
	ROW(transformers)                                                                                    \
	ROW(trl)                                                                                             \
	ROW(torchtune)                                                                                       \
	ROW(llama_factory)                                                                                   \
	ROW(llama_factory_v1)                                                                                \
	ROW(unsloth)                                                                                         \
	ROW(surogate)                                                                                        \
	ROW(deepspeed)                                                                                       \
	ROW(accelerate)                                                                                      \
	ROW(axolotl)                                                                                         \
	ROW(datasets)                                                                                        \
	ROW(people)

struct dialect;
struct dialect_state;
#define DIALECT_DECLARE(name) extern const struct dialect dialect_##name;
DIALECT_LIST(DIALECT_DECLARE)
#undef DIALECT_DECLARE

/* "axolotl" */
const char *dialect_name(const struct dialect *dialect);

/* The last file, or "command line". */
const char *dialect_place(const struct dialect_state *d);

/* The trainer that a file was written for; NULL: ferry. */
const struct dialect *dialect_recognize(const struct yaml_doc *doc);

/* A setting kept until all are read. */
struct dialect_kept {
	const char *slot;         /* what it is kept as; a later setting replaces an earlier one */
	char *file, *name, *text; /* file NULL: the command line */
	int line;
};

/* Settings refused for one reason: "use_dora=true, peft_use_dora=true (line 4)". */
struct dialect_refusal {
	char *why;
	struct str keys;
};
/* More than there are reasons, slots, and files that a file names. */
enum { DIALECT_REFUSALS_MAX = 128, DIALECT_KEPT_MAX = 48, DIALECT_PATHS_MAX = 16 };

enum dialect_lora_asked { DIALECT_LORA_UNSAID, DIALECT_LORA_OFF, DIALECT_LORA_ON };

/* The translation of one configuration. Zero-initialise; dialect_state_free. */
struct dialect_state {
	const struct dialect *layer;    /* of the present layer; NULL: ferry */
	const struct dialect *file;     /* of the last file, or of a command line without one; NULL: ferry */
	const char *file_path;          /* the last file; NULL: none */
	struct dialect_sets sets;       /* of the present layer, */
	struct dialect_sets eval_sets;  /* and those to evaluate on */
	struct str passed;              /* keys of the present layer without effect */
	char *paths[DIALECT_PATHS_MAX]; /* of files that the files name */
	int path_count;
	struct dialect_kept kept[DIALECT_KEPT_MAX];
	struct dialect_refusal refusals[DIALECT_REFUSALS_MAX]; /* of the present layer */
	int refusal_count;
	char *method; /* of the present layer: why its file is not one that ferry can train; NULL: none */
	const struct dialect *lora_by; /* whose words ask for LoRA, and whose defaults count */
	enum dialect_lora_asked lora;
	int only_loss; /* of the present layer: bits of train_on_inputs by TRL's words */
	int assistant_only_said;
};

enum dialect_scope { DIALECT_OWN_MEANING, DIALECT_ANY };
enum dialect_found { DIALECT_UNKNOWN, DIALECT_TAKEN };

/* Translates one setting of a file or the command line. DIALECT_TAKEN if the key is known and is now done,
 * DIALECT_UNKNOWN if it is not, or ERR_* with place and key. DIALECT_OWN_MEANING considers only keys that
 * mean something special in the layer's dialect. */
int dialect_set(struct dialect_state *d, struct config *c, struct config_layer *layer, const char *name,
        const char *text, int line, int is_null, enum dialect_scope scope);

/* Whether some dialect has keys in this section: "fsdp_config" of "fsdp_config.x". */
int dialect_knows_section(const char *name, size_t section_bytes);

/* Notes a key as one without effect. */
int dialect_pass(struct dialect_state *d, const char *name);

/* Takes the layer's next refusal: ERR_UNSUPPORTED with one line for all settings of a reason, or 0. */
int dialect_refusal_next(struct dialect_state *d);

/* Takes what alone is wrong with the layer: ERR_UNSUPPORTED, as it trains by a method that ferry does not
 * have; or 0. Its other problems say nothing then. */
int dialect_method_take(struct dialect_state *d);

/* Before the next layer. */
void dialect_layer_begin(struct dialect_state *d);

/* After all layers: strategies and counts per epoch become steps, and the like. ERR_INPUT, ERR_UNSUPPORTED:
 * what a file asks for by keys together, or by leaving one out. */
int dialect_finish(struct dialect_state *d, struct config *c);
void dialect_state_free(struct dialect_state *d);

#endif
