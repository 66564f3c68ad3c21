/* Reads a config.json key by key, for families that need more than their table (model/family.h). Private to
 * model/ and model/families.
 *
 * A reader keeps the first error; later reads do nothing, so callers need not check each.
 */
#ifndef FERRY_MODEL_CONFIG_H
#define FERRY_MODEL_CONFIG_H

#include "base/json.h"
#include "model/model_config.h"

#include <stdint.h>

/* ---- reading a config.json ---- */

struct config_reader {
	const json_t *object;
	const char *where;
	int err; /* first error; later reads do nothing */
};

/* A read leaves *out unchanged if the key is absent or null. A value outside its range is ERR_INPUT. */
enum {
	CONFIG_SIZE_MAX = 1 << 24,
	CONFIG_LAYERS_MAX = 4096 /* far above known models; planning so many layers takes seconds */
};
void config_read_int(struct config_reader *r, const char *key, int64_t *out, int64_t least, int64_t most);
void config_read_size(struct config_reader *r, const char *key, int64_t *out); /* 1 .. CONFIG_SIZE_MAX */
void config_read_num(struct config_reader *r, const char *key, double *out);
void config_read_flag(struct config_reader *r, const char *key, int *out);
void config_read_str(struct config_reader *r, const char *key, const char **out);

/* `value` (of `key`, for the message) must be finite and above 0 or, config_check_epsilon, not negative. */
void config_check_positive(struct config_reader *r, const char *key, double value);
/* Reads a number above 0; 1 if the key is absent. */
void config_read_multiplier(struct config_reader *r, const char *key, double *out);
void config_check_epsilon(struct config_reader *r, const char *key, double value);

/* 1 if the key is present and not null. */
int config_has(const struct config_reader *r, const char *key);
/* 1 if the key is present and null. */
int config_is_null(const struct config_reader *r, const char *key);

/* Sets r->err, once, with "WHERE: " in front. */
void config_fail(struct config_reader *r, int code, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* Warns of a true flag, or a value other than null, that transformers ignores for this family too. */
void config_warn_ignored(const struct config_reader *r, const char *key, const char *why);

/* Refuses a true flag that ferry does not support. */
void config_refuse_flag(struct config_reader *r, const char *key);

/* The first of its names in config.json. */
const char *config_act_name(enum act_kind act);
void config_read_act(struct config_reader *r, const char *key, enum act_kind *out);

/* eos_token_id, an integer or a list; drops ids outside the vocabulary. */
void config_read_eos(struct config_reader *r, struct model_config *c);

/* ---- for several families, beyond their table ---- */

/* Whether there are tensors of this role: of a block's, in every block. */
void config_set_has(struct model_config *c, enum tensor_role role, int is_there);
void config_drop_norm2(struct model_config *c); /* the MLP shares attention's norm */

/* Gives every norm norm_epsilon, norm_weight_offset and norm_plain. Runs before a family's `read`. */
void config_set_norms(struct model_config *c);

/* Reads layer_types into kinds[L], numbers of names in the list, which NULL ends. Returns 0 if it is absent.
 */
int config_read_layer_types(
        struct config_reader *r, const struct model_config *c, const char *const *names, int *kinds);
/* The block lacks that kind of stage: all of its tensors but the norms before and behind it, which a kind
 * that stands in for it reads. */
void config_drop_stage(struct block_config *b, enum stage_kind kind);
/* Reads linear_num_key_heads and its like: the sizes of a block of the gated delta rule. */
void config_read_delta(struct config_reader *r, struct block_config *b);

/* Keys of Mamba-2's scan; NULL: the family has no such key. */
struct scan_keys {
	const char *heads, *head_dim, *groups, *states, *taps;
	const char *act; /* of the convolution */
};
/* Reads them into *b, which has the values of absent keys. */
void config_read_scan(struct config_reader *r, struct block_config *b, const struct scan_keys *keys);
/* Reads time_step_limit, [low, high], into *b; a number may be Infinity or {"__float__": "Infinity"}. */
void config_read_step_limit(struct config_reader *r, struct block_config *b);

/* clip_qkv, of all blocks. */
void config_read_clip(struct config_reader *r, struct model_config *c);

/* Keys of a block's experts; NULL: the family has no such key. */
struct experts_keys {
	const char *count[2]; /* transformers 5 writes either */
	const char *chosen, *inner, *normed;
	int is_grouped;   /* reads n_group, topk_group and routed_scaling_factor */
	int is_ungrouped; /* with is_grouped: the first two have no meaning */
};
/* Reads them into *e, which has the values of absent keys, and checks the numbers. */
void config_read_experts(struct config_reader *r, struct experts_config *e, const struct experts_keys *keys);
/* What the loss of even use of experts is to be, for a class that has it. */
void config_read_balance(struct config_reader *r, struct model_config *c, double otherwise);
/* Gives the layers that decoder_sparse_step and mlp_only_layers choose those experts, the others an MLP. */
void config_read_sparse_layers(
        struct config_reader *r, struct model_config *c, const struct experts_config *e);
/* Gives them to all layers. */
void config_set_all_sparse(struct config_reader *r, struct model_config *c, const struct experts_config *e);
/* The block has experts in place of the MLP, or an MLP. */
void config_set_sparse(struct block_config *b, const struct experts_config *e, int is_sparse);

/* Reads a file that has the usual spelling of each key. */
struct model_family;
int config_read_usual(struct model_config *config, const struct model_family *family, const json_t *json,
        const char *where);

/* Refuses classes in `architectures` that ferry does not train, and finds classifiers; gives these a head. */
void config_check_class(struct config_reader *r, struct model_config *c, const struct model_family *family);
void config_read_classes(struct config_reader *r, struct model_config *c, const struct model_family *family);

/* Rotary settings from rope_parameters, rope_scaling and the family's own keys. */
struct family_rope;
void config_read_rope(struct config_reader *r, struct model_config *c, const struct family_rope *family);

#endif
