/* A family of models as a table: what it calls its tensors, what absent keys of its config.json mean, and how
 * its keys are spelled. Almost every family is such a table and nothing else (model/families, a file each).
 *
 * What a model computes follows from the tensors that the family lists and from the numbers in struct
 * model_config: a bias is added where it has a role, positions are learned where there is a table of them, a
 * gate is there where there is a tensor for it. A family of the kind that exists costs its file and its line
 * in model/families/families.h.
 */
#ifndef FERRY_MODEL_FAMILY_H
#define FERRY_MODEL_FAMILY_H

#include "base/json.h"
#include "model/model_config.h"

struct config_reader; /* model/config.h */
struct model;         /* model/model.h */

/* A tensor's name within its block, or within the model. */
struct family_tensor {
	enum tensor_role role; /* ROLE_COUNT ends a list */
	const char *name;
	const char *when; /* flag of config.json that says whether it is there; NULL: always */
	int otherwise;    /* the flag where the key is absent */
};

/* Rows of a list of tensors: one that is always there; one with a flag, and what it is where it is absent. */
#define TENSOR(ROLE, text)                                                                                   \
	{                                                                                                    \
		.role = ROLE_##ROLE, .name = text                                                            \
	}
#define TENSOR_IF(ROLE, text, flag, if_absent)                                                               \
	{                                                                                                    \
		.role = ROLE_##ROLE, .name = text, .when = flag, .otherwise = if_absent                      \
	}
#define TENSORS_END                                                                                          \
	{                                                                                                    \
		.role = ROLE_COUNT                                                                           \
	}

/* Spellings. NULL: the usual one, in the comment. */
struct family_keys {
	const char *hidden, *layers, *heads,
	        *positions;  /* older spellings that are read too; usual ones win */
	const char *inner;   /* intermediate_size */
	const char *act;     /* hidden_act */
	const char *epsilon; /* rms_norm_eps */
};

/* sliding_window and layer_types. */
struct family_window {
	int read;           /* 0: the family attends to whole documents */
	int64_t otherwise;  /* tokens where the key is absent; 0: no window */
	int every_block;    /* layer_types is not read */
	const char *use;    /* flag without which nothing slides; NULL: there is none */
	int64_t from;       /* with `use`: block from which they slide, where max_window_layers is absent */
	int64_t full_every; /* where layer_types is absent, each block of that number sees everything; 0: none
	                     */
	const char *full_every_key; /* that says another number, or NULL */
};

struct family_rope {
	const char *theta;                         /* rope_theta */
	const char *partial;                       /* partial_rotary_factor */
	double theta_otherwise, partial_otherwise; /* 0: 10000, 1 */
	int partial_in_default;                    /* rope type "default" turns only that part too */
	int only_longrope;                         /* beside default; older names of it are read too */
	const char *local_theta; /* blocks with a window have settings of their own, and this is their theta's
	                            key; NULL: one set for all */
	double local_theta_otherwise;
	int64_t original_otherwise; /* original_max_position_embeddings stands beside rope_scaling and is that
	                               where it is absent; 0: it may stand in it, and is
	                               max_position_embeddings */
};

struct family_ignored {
	const char *key, *why;
};
enum { FAMILY_IGNORED_MAX = 4 };

struct model_family {
	const char *model_type;
	const char *prefix; /* of all names but the head's; NULL: "model." */
	const char *blocks; /* list of blocks, below the prefix; NULL: "layers" */
	const char *base_class, *causal_class;
	/* In module order; those of a block stand together. */
	const struct family_tensor *tensors;
	const char *head_alias;     /* another spelling of the head's name, or NULL */
	const char *const *buffers; /* last parts of names that are no parameters, NULL at the end; NULL:
	                               those of rotary positions */
	struct model_config
	        defaults; /* what absent keys mean. KV 0: as many as heads; D 0: C / H; F 0: 4 C */
	struct family_keys keys;
	struct family_window window;
	struct family_rope rope;
	int whole_heads;       /* hidden_size must be a multiple of the heads where there is no head_dim */
	int one_size_of_heads; /* num_key_value_heads and head_dim are not read */
	int pads_nothing;      /* pad_token_id is not given to the embedding */
	struct family_ignored ignored[FAMILY_IGNORED_MAX]; /* keys that transformers ignores too: a warning */
	/* What the table cannot say, after it was read; NULL: nothing. */
	void (*read)(struct config_reader *r, struct model_config *c);
};

/* Windows (0: none) of the blocks that layer_types says, or where it is absent those from `from` on but each
 * full_every-th. */
void config_read_layer_windows(struct config_reader *r, struct model_config *c,
        const struct family_window *family, int64_t window, int64_t from);

const char *family_prefix(const struct model_family *family);
const char *family_head_name(const struct model_family *family);
int family_is_head(const struct model_family *family, const char *name); /* its name, or the other spelling */

/* Reads and checks a config.json. *config is zeroed first; model_config_free frees what it holds. */
int model_config_read(struct model_config *config, const struct model_family *family, const json_t *json,
        const char *where);
void model_config_free(struct model_config *config);

/* The tables of a model of this config, which it takes over, also on errors. ERR_RANGE: too many parameters.
 */
int model_build(struct model **model, const struct model_family *family, struct model_config *config);

#endif
