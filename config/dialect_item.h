/* What a trainer's file (dialect_NAME.c) holds, and what its functions may call.
 *
 *     static const struct dialect_key keys[] = {
 *             KEY("num_epochs", "num_train_epochs"),
 *             PASS("flash_attention xformers_attention"),
 *             ONLY("s2_attention", ITEM_OFF, "shifted attention is not supported; remove it"),
 *             CALL("saves_per_epoch", per_epoch), KEYS_END};
 *     const struct dialect dialect_axolotl = {.name = "axolotl", .markers = markers, .keys = keys, ...};
 *
 * A name is dotted where keys are nested, and may hold one *, which stands for any text. The row with the
 * longest name that fits a key counts, so the order of rows means nothing; of equal ones that of the layer's
 * dialect counts.
 */
#ifndef FERRY_CONFIG_DIALECT_ITEM_H
#define FERRY_CONFIG_DIALECT_ITEM_H

#include "base/json.h"
#include "config/dialect.h"

#define ITEM_ON "on true yes 1"
#define ITEM_OFF "off false no 0 none null"
#define ITEM_NOT_QUANTIZED "not supported; base_format quantizes the base to nf4, fp4, fp8, int8 or mxfp4; "
#define ITEM_REWARD "write a file of ferry's keys with objective=reward"
#define ITEM_BY_NAME "ferry chooses parameters by name; write "
#define ITEM_FREEZE_EXAMPLE "freeze='model\\.layers\\.[0-3]\\..*'"
#define ITEM_TRAINABLE_EXAMPLE                                                                               \
	"trainable='model\\.layers\\.3[01]\\..*' (layers 30 and 31), with finetuning_type=full"

/* The setting that is being translated. */
struct item {
	struct dialect_state *d;
	struct config *c;
	struct config_layer *layer;
	const char *name, *text;
	int line;
};

/* What a key does. With every kind but DIALECT_OR_OFF an empty value (null) sets nothing. */
enum dialect_kind {
	DIALECT_KEY,     /* `arg` under another name */
	DIALECT_JOIN,    /* the same, of several data sets: joined by commas */
	DIALECT_WEAK,    /* the same, but a stronger spelling beside it wins */
	DIALECT_OR_OFF,  /* the same; null switches it off instead of leaving its default */
	DIALECT_OR_AUTO, /* the same; auto sets nothing */
	DIALECT_PASS,    /* changes nothing here */
	DIALECT_ONLY, /* changes nothing while it has one of the values in `arg`, else refused with `note` */
	DIALECT_METHOD, /* as ONLY; `note` says what the whole file does: "trains a reward model" */
	DIALECT_IF,     /* sets `arg` ("key=value") when on */
	DIALECT_CALL,   /* calls a function */
};

struct dialect_key {
	const char *names; /* separated by blanks; NULL ends the list */
	enum dialect_kind kind;
	const char *arg, *note;
	int (*call)(const struct item *s);
};
/* clang-format off */
#define KEY(names, key) {names, DIALECT_KEY, key, NULL, NULL}
#define JOIN(names, key) {names, DIALECT_JOIN, key, NULL, NULL}
#define WEAK(names, key) {names, DIALECT_WEAK, key, NULL, NULL}
#define OR_OFF(names, key) {names, DIALECT_OR_OFF, key, NULL, NULL}
#define OR_AUTO(names, key) {names, DIALECT_OR_AUTO, key, NULL, NULL}
#define PASS(names) {names, DIALECT_PASS, NULL, NULL, NULL}
#define ONLY(names, values, note) {names, DIALECT_ONLY, values, note, NULL}
#define METHOD(names, values, note) {names, DIALECT_METHOD, values, note, NULL}
#define IF(names, setting) {names, DIALECT_IF, setting, NULL, NULL}
#define CALL(names, function) {names, DIALECT_CALL, NULL, NULL, function}
#define KEYS_END {NULL, DIALECT_PASS, NULL, NULL, NULL}
/* clang-format on */

/* Keys by which a file is recognised; 2 points are enough. With 0 points: only in a file that is recognised
 * as one of the trainer that this one is built on. */
struct dialect_marker {
	const char *names; /* NULL ends the list */
	int points;
};

/* A default that differs from ferry's and changes what is trained. */
struct dialect_default {
	const char *key, *value, *or_key; /* or_key: says the same; NULL = none */
	enum {
		DIALECT_ROWS_ANY,
		DIALECT_ROWS_TEXTS,
		DIALECT_ROWS_PAIRS,
		DIALECT_ROWS_JUDGED
	} rows; /* pairs: with preference_loss; judged: with that of KTO */
};

/* LoRA where a file says nothing. A default that is NULL must be said; need_* names how. */
struct dialect_lora {
	const char *rank, *alpha, *targets, *dropout; /* targets "peft": PEFT's for the model's family */
	int alpha_is_times_rank;
	int quants_once; /* no double quantization, unless its file says so */
	const char *need_rank, *need_alpha, *need_targets;
	const char *ask;  /* how a file asks for LoRA: "adapter: lora" */
	const char *full; /* how it asks for every weight, where LoRA is what it does unasked; NULL: not so */
	/* Settings without effect where it does not ask; an error if they may be meant for ferry. */
	struct {
		const char *key, *as;
		int is_error;
	} unasked[2];
};

struct dialect {
	const char *name;           /* NULL: words that many share */
	const struct dialect *base; /* the trainer that it is built on, whose keys its files have too */
	const struct dialect_marker *markers;
	const struct dialect_key
	        *own; /* keys that mean this in its files alone, though ferry may have them too */
	const struct dialect_key *keys; /* its other keys, wherever they stand */
	const struct dialect_default *defaults;
	const struct dialect_lora *lora;
	int cosine_has_floor; /* its cosine ends at min_lr_rate, without another name */
	int (*finish)(struct dialect_state *d, struct config *c); /* once all settings are read */
};

/* Whether a key is in a list of names: 0, or the number of characters that the name fixes and 1. */
int dialect_name_fits(const char *name, const char *list);

/* Sets a key of ferry. Messages name it as the file does. */
int item_set(const struct item *s, const char *key, const char *text, enum config_strength strength);

/* Appends the text to what this layer has set for the key, unless it is there already. */
int item_add(const struct item *s, const char *key);

/* Counts the setting among those without effect. */
int item_pass(const struct item *s);

/* Remembers that the setting is refused. Each reason is said once for all settings of a layer. */
int item_refuse(const struct item *s, const char *why);

/* Says that the whole file is not for ferry: "this file <does>, which ferry cannot do", or "this file
 * <does>; <what to do>". The first counts. */
int item_method(const struct item *s, const char *does);

/* Reads the file that the setting names, and translates its keys with `before` in front of each, as those of
 * `dialect`. A key that has no meaning there is refused. */
int item_read_file(const struct item *s, const struct dialect *dialect, const char *before);

/* Quantized bases (dialect_quantized.c): one is asked for, by load_in_4bit and others; its type (nf4, fp4);
 * whether scales are quantized too; elements of a block; the library; the dtype of products.
 * quantized_apply sets base_format once all are read, unless the user has. */
int item_quantized(const struct item *s);
int item_quant_type(const struct item *s);
int item_quant_double(const struct item *s);
int item_quant_block(const struct item *s);
int item_quant_method(const struct item *s);
int item_quant_dtype(const struct item *s);
int quantized_apply(const struct dialect_state *d, struct config *c, int has_lora);
/* Warns where a command that does not train reads the model as it is stored. */
void quantized_say(const struct dialect_state *d, const struct config *c);

/* Keeps a number of processes that share the rows of a step: all, of a copy of the model, or of copies. Ranks
 * are started by mpirun, srun or ranks=N, not by such a key: processes_say warns if there are others. */
int item_processes(const struct item *s);
int processes_say(const struct dialect_state *d, const struct config *c);

/* Warns about the setting, with its place. */
void item_warn(const struct item *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

int item_is_off(const char *text);

/* "[0.9, 0.95]": the two betas of Adam. auto sets nothing. */
int item_betas(const struct item *s);

/* Keeps a setting for later, and gives it back: NULL if there is none. `slot` is a literal. */
int item_keep(const struct item *s, const char *slot);
const struct dialect_kept *dialect_kept(const struct dialect_state *d, const char *slot);
void dialect_forget(struct dialect_state *d, const char *slot);

/* Whether a kept setting counts more than the key: unless it is a file's, and the key the command line's. */
int kept_wins(const struct dialect_kept *kept, const struct config *c, const char *key);

/* Sets a key of ferry to what a kept setting means. */
int kept_set(struct config *c, const struct dialect_kept *kept, const char *key, const char *text);

/* Fails with "file:line: name=text " and `what`. */
int kept_error(int err, const struct dialect_kept *kept, const char *what);

/* The model's config.json; json_decref. NULL: there is none yet. */
json_t *item_model_json(const struct config *c);

/* Keeps a number of rows of a step. kept_step_rows then sets micro-batch or accumulation to what the other
 * leaves, and neither if both are set; the micro-batch stays if it is `known`. `ranks`: the rows are those of
 * all ranks. */
enum step_ranks { STEP_OF_RANK, STEP_OF_RANKS };
int item_step_rows(const struct item *s, const char *slot);
int kept_step_rows(
        struct config *c, const struct dialect_kept *kept, enum step_ranks ranks, int is_micro_known);

/* LoRA (dialect_peft.c): a switch of the trainer `by`, NULL for nobody's words. `on`: the values that ask for
 * LoRA; NULL: any. */
int lora_switch(const struct item *s, const struct dialect *by, const char *on);
int lora_targets(const struct item *s); /* a list as text, "a,b" or ["a", "b"], or an expression */
int lora_dropout(const struct item *s);

/* A member of a key that is a JSON object: "before.member" sets `member` of `key`. */
int item_member(const struct item *s, const char *key, const char *before);

/* axolotl's types of pairs (dialect_preference.c). Sets what the type means, and *format; leaves *format for
 * other types. */
int preference_set_type(const char **format, const struct item *s);

#endif
