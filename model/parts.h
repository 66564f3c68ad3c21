/* What the files of model/ share: families as tables, and reading a config.json key by key. Private to
 * model/.
 */
#ifndef FERRY_MODEL_PARTS_H
#define FERRY_MODEL_PARTS_H

#include "model/model.h"

#include <stdint.h>

/* ---- reading a config.json ---- */

struct config_reader {
	const json_t *object;
	const char *where;
	int err; /* first error; later reads do nothing */
};

/* Reads leave *out as it is where the key is absent or null; a value outside its range is ERR_INPUT. */
enum { CONFIG_SIZE_MAX = 1 << 24, CONFIG_LAYERS_MAX = 100000 };
void config_read_int(struct config_reader *r, const char *key, int64_t *out, int64_t least, int64_t most);
void config_read_size(struct config_reader *r, const char *key, int64_t *out); /* 1 .. CONFIG_SIZE_MAX */
void config_read_num(struct config_reader *r, const char *key, double *out);
void config_read_flag(struct config_reader *r, const char *key, int *out);

/* `value` (of `key`, for the message) must be finite and above 0 or, config_check_epsilon, not negative. */
void config_check_positive(struct config_reader *r, const char *key, double value);
void config_check_epsilon(struct config_reader *r, const char *key, double value);

/* The key is there and not null. */
int config_has(const struct config_reader *r, const char *key);
/* The key is there and null. */
int config_is_null(const struct config_reader *r, const char *key);

/* Sets r->err, once, with "WHERE: " in front. */
void config_fail(struct config_reader *r, int code, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* A true flag, or a value other than null, that transformers ignores for this family too: warns. */
void config_warn_ignored(const struct config_reader *r, const char *key, const char *why);

void config_read_act(struct config_reader *r, const char *key, enum act_kind *out);

/* pad_token_id where the family gives it to its embedding as padding_idx: negative counts from the end. */
void config_read_pad(struct config_reader *r, struct model_config *c);

/* eos_token_id, an integer or a list; ids outside of the vocabulary are left out. */
void config_read_eos(struct config_reader *r, struct model_config *c);

/* ---- settings that several families have; each reads its keys over the defaults already in *c ---- */

/* vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
 * max_position_embeddings, initializer_range */
void config_read_sizes(struct config_reader *r, struct model_config *c);

/* num_key_value_heads: `absent` where the key is not there (0: as many as heads), heads where it is null. */
void config_read_kv_heads(struct config_reader *r, struct model_config *c, int64_t absent);

/* head_dim, else the whole part of C / H. */
void config_read_head_dim(struct config_reader *r, struct model_config *c);

/* Windows (0: none) of layers from `from` on, or of those that layer_types says. Allocates c->window. */
void config_read_layer_windows(struct config_reader *r, struct model_config *c, int64_t window, int64_t from);

/* One window for all layers; 0 none. Allocates c->window. */
void config_set_window(struct config_reader *r, struct model_config *c, int64_t window);

/* Rotary settings from rope_parameters, rope_scaling and the family's own keys. */
struct rope_keys {
	const char *theta, *partial; /* at top level */
	double partial_default;
	int partial_in_default; /* rope type "default" turns only that part too */
};
void config_read_rope(struct config_reader *r, struct model_config *c, const struct rope_keys *keys);

/* ---- families ---- */

struct family_tensor {
	enum tensor_role role;
	const char *name;
};

struct model_family {
	const char *model_type;
	const char *prefix; /* of all names but the head's */
	const char *blocks; /* list of blocks, below the prefix */
	const char *base_class, *causal_class;
	/* In module order, name NULL at the end; those of a block stand together. A tensor that the config
	 * does not have is left out of the model's table. */
	const struct family_tensor *tensors;
	const char *head_alias;     /* another spelling of the head's name, or NULL */
	const char *const *buffers; /* last parts of names that are no parameters; NULL at the end */
	int (*read)(struct config_reader *r, struct model_config *c);
};

extern const struct model_family family_llama, family_mistral, family_qwen2, family_qwen3, family_gpt2,
        family_gpt_neox;

/* Names shared by the families that descend from Llama. */
extern const struct family_tensor llama_tensors[];
extern const char *const llama_buffers[];

/* Family of model_type, NULL if there is none; and all names, for messages. */
const struct model_family *family_find(const char *model_type);
const char *family_names(void);

/* Reads and checks. *config is zeroed first; model_config_free frees what it holds. */
int model_config_read(struct model_config *config, const struct model_family **family, const json_t *json,
        const char *where);
void model_config_free(struct model_config *config);

#endif
