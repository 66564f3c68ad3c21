/* A family of models as a table: the names of its tensors, the defaults of absent keys in config.json, and
 * the spelling of keys. Almost every family is only such a table (model/families, one file each).
 *
 * The computation of a model follows from the family's tensors and the numbers in struct model_config. A bias
 * is added if its role exists. Positions are learned if there is a table of them. The MLP has a gate if there
 * is a tensor for it. A new family of this kind needs its file and a line in model/families/families.h.
 */
#ifndef FERRY_MODEL_FAMILY_H
#define FERRY_MODEL_FAMILY_H

#include "base/json.h"
#include "model/model_config.h"

struct config_reader; /* model/config.h */
struct model;         /* model/model.h */
struct file_ranges;   /* model/file_ranges.h */

/* A tensor's name within its block, or within the model. */
struct family_tensor {
	enum tensor_role role; /* ROLE_COUNT ends a list */
	const char *name;
	const char *when; /* flag of config.json: 1 if the tensor exists; NULL: always exists */
	int otherwise;    /* the flag's value if the key is absent */
	int set; /* not 0: only models with this tensor_set have it, so that two sets can name a role */
};

/* Rows of a list of tensors: a tensor that always exists, and one that depends on a flag and the flag's
 * default. */
/* clang-format off */
#define TENSOR(ROLE, text) {.role = ROLE_##ROLE, .name = text}
#define TENSOR_IF(ROLE, text, flag, if_absent)                                                               \
	{.role = ROLE_##ROLE, .name = text, .when = flag, .otherwise = if_absent}
#define TENSOR_IN(tensor_set, ROLE, text) {.role = ROLE_##ROLE, .name = text, .set = tensor_set}
#define TENSORS_END {.role = ROLE_COUNT}
/* clang-format on */

/* Two forms of the same matrices, by names within a block: `whole`, and its pieces one after the other. A %d
 * in `piece` is an index of the whole's first dimension, which a piece lacks. `part` of `parts` are the rows
 * of it that the piece has: gate is part 0 of 2 of gate_up. */
struct family_split {
	const char *whole, *piece; /* NULL ends a list */
	int part, parts;
};

/* What a head gives, as the tensor_set of an encoder: classes of a text, or of each token; or the logits of
 * masked words. */
enum { HEAD_OF_CLASSES = 1, HEAD_OF_TOKENS, HEAD_OF_WORDS };
enum { TOKEN_LABELS_MAX = 4096 }; /* of HEAD_OF_TOKENS: evaluations find the largest of so many logits */

/* Begins a tensor's name that has no prefix in any file. */
#define FAMILY_NO_PREFIX ":"

/* A key that no file has, for a setting that is fixed. */
#define FAMILY_NO_KEY ""

/* Spellings. NULL: the usual one, in the comment. */
struct family_keys {
	const char *hidden, *layers, *heads,
	        *positions;  /* older spellings that are read too; usual ones win */
	const char *inner;   /* intermediate_size */
	const char *act;     /* hidden_act */
	const char *epsilon; /* rms_norm_eps */
	/* Lists with an entry, or strings with a letter, for each layer: the length of the first that is
	   there is the number of layers. NULL: num_hidden_layers alone counts. */
	const char *layer_lists[3];
};

/* Another spelling of a key, which wins over it. */
struct family_alias {
	const char *key, *alias; /* NULL ends a list */
};

/* A part of tensors' names that transformers 5 has renamed. */
struct family_rename {
	const char *in_files, *now; /* NULL ends a list */
};

/* sliding_window and layer_types. */
struct family_window {
	int read;           /* 0: the family attends to whole documents */
	int64_t otherwise;  /* tokens if the key is absent; 0: no window */
	const char *key;    /* NULL: sliding_window */
	int both_sides;     /* it counts the tokens on both sides together */
	int needed;         /* null is refused */
	int every_block;    /* layer_types is not read */
	const char *use;    /* flag that enables windows; NULL: always enabled */
	int64_t from;       /* with `use`: first block with a window if max_window_layers is absent */
	int64_t full_every; /* if layer_types is absent, every full_every-th block sees everything; 0: none */
	int full_first;     /* the first block of each full_every sees everything, not the last */
	const char *full_every_key; /* key with another number, or NULL */
};

struct family_rope {
	const char *theta;                         /* rope_theta */
	const char *partial;                       /* partial_rotary_factor */
	double theta_otherwise, partial_otherwise; /* 0: 10000, 1 */
	const char *dims; /* key of the number of rotated dims, which replaces all other rotary keys; NULL:
	                     none */
	int64_t dims_otherwise;
	int partial_in_default; /* rope type "default" rotates only that part too */
	int fixed_alpha;   /* rope type "dynamic" with an alpha is another theta, for texts of any length */
	int only_longrope; /* supports only default and longrope; older names of longrope are read too */
	int proportional;  /* supports rope type "proportional" */
	struct rope_config otherwise; /* with a kind: the settings if the file has no rope_parameters and no
	                                 rope_scaling; rope_theta is read then only if its theta is 0. With
	                                 two_sets: of blocks without a window */
	const char *query_beta;       /* key of a scale of q that grows with positions; NULL: none */
	int two_sets; /* blocks with a window have their own settings; older files scale only the others */
	const char *local_theta; /* with two_sets: key of theta for blocks with a window; NULL: none */
	double local_theta_otherwise;
	int64_t original_otherwise; /* value if original_max_position_embeddings is absent beside
	                               rope_scaling; 0: the key may be inside rope_scaling, and its default is
	                               max_position_embeddings */
};

struct family_ignored {
	const char *key, *why;
};
enum { FAMILY_IGNORED_MAX = 4 };

/* A tensor of the table, and the file's tensor that begins with its rows, by its name within the block; NULL:
 * another one's rows begin it. */
struct family_woven {
	enum tensor_role role;
	const char *file;
};

struct model_family {
	const char *model_type;
	const char *const *older_types; /* older values of model_type, ended by NULL; NULL: none */
	const char *prefix;             /* of all names except the head's; NULL: "model." */
	const char *blocks;             /* list of blocks, below the prefix; NULL: "layers" */
	const char *base_class, *causal_class;
	/* In module order; the tensors of a block are together. */
	const struct family_tensor *tensors;
	const struct family_split *splits; /* NULL: files have its tensors as the table has them */
	/* Tensors of the table that files hold with rows of others between theirs; ended by ROLE_COUNT, NULL:
	   none. They have no adapters. `find_woven` finds the ranges of a file's tensor that holds such rows,
	   as model_find_ranges: `inside` is the part of `name` within its block. */
	const struct family_woven *woven;
	int (*find_woven)(
	        struct file_ranges *out, const struct model *model, const char *name, const char *inside);
	const char *head_alias;       /* its name in the modules of transformers 5, if another; or NULL */
	const char *words_bias_alias; /* another name of HEAD_B in files; NULL: none */
	const char *module_prefix;    /* as `prefix`, in the modules of transformers 5, if another; or NULL */
	const char *peft_refuses;     /* last part of the modules on which PEFT loads no adapter; or NULL */
	int peft_drops_experts;       /* PEFT loads no adapters of experts that files have one by one */
	int has_router_modules;       /* routers are linear modules of transformers 5, not parameters */
	const struct family_rename *renames; /* NULL: none */
	const char *const *buffers; /* last parts of names that are not parameters, ended by NULL; NULL: those
	                               of rotary positions */
	struct model_config
	        defaults; /* defaults of absent keys. KV 0: as many as heads; D 0: C / H; F 0: 4 C */
	struct family_keys keys;
	const struct family_alias *aliases; /* NULL: none */
	struct family_window window;
	struct family_rope rope;
	int whole_heads;         /* without head_dim, hidden_size must be a multiple of the heads */
	int one_size_of_heads;   /* num_key_value_heads and head_dim are not read */
	int only_whole;          /* transformers has it only as a part of a whole model */
	int pads_nothing;        /* the embedding's row of pad_token_id trains like any other */
	int null_is_default_eos; /* eos_token_id: null is like an absent key; else it means none */
	struct family_ignored ignored[FAMILY_IGNORED_MAX]; /* keys that transformers ignores too: a warning */
	/* Sets sizes of single blocks (H, KV, D, F), once windows are known and before rotary settings are
	 * read; it reads per_layer_config, which other families refuse. NULL: blocks have the same sizes. */
	void (*sizes)(struct config_reader *r, struct model_config *c);
	/* Runs after the table, for all that it cannot express; NULL: nothing. */
	void (*read)(struct config_reader *r, struct model_config *c);
};

/* For an encoder's `read`: the matrix of a head of masked words is the embedding if config.json says tied;
 * `act` follows its layer. */
void config_words(struct model_config *c, enum act_kind act);

/* Sets the windows (0: none) of the blocks in layer_types. If it is absent: of all blocks from `from` on
 * except every full_every-th. */
void config_read_layer_windows(struct config_reader *r, struct model_config *c,
        const struct family_window *family, int64_t window, int64_t from);

const char *family_prefix(const struct model_family *family);
const char *family_head_name(const struct model_family *family);
int family_is_head(const struct model_family *family, const char *name); /* its name or the alias */
/* NULL: files hold the tensors of this role as they are. */
const struct family_woven *family_woven_of(const struct model_family *family, enum tensor_role role);

/* Reads and checks a config.json. Zeroes *config first; free it with model_config_free. */
int model_config_read(struct model_config *config, const struct model_family *family, const json_t *json,
        const char *where);
void model_config_free(struct model_config *config);

/* Gives the model the head of a class that classifies texts or tokens, or of masked words: HEAD_OF_. */
void model_config_classify(
        struct model_config *c, const struct model_family *family, int head, int64_t labels);

/* Builds the tables of a model. Takes ownership of *config, also on errors. ERR_RANGE: too many parameters.
 */
int model_build(struct model **model, const struct model_family *family, struct model_config *config);

#endif
