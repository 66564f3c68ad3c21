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
	DIALECT_COUNT
};
const char *dialect_name(enum dialect dialect);
enum dialect dialect_find(const struct yaml_doc *doc);

/* Whether a key is in a list of names separated by blanks. Each name may hold one *, which stands for any
 * text. */
int foreign_name_matches(const char *name, const char *list);

/* Values of foreign keys that can be resolved only after parsing. Starts zeroed; end it with foreign_free. */
struct foreign {
	enum dialect dialect;      /* of the present layer */
	enum dialect file_dialect; /* of the last file */
	struct foreign_sets sets;  /* of the present layer */
	struct str passed;         /* keys of the current layer without effect */
	double saves_per_epoch, evals_per_epoch;
	int save_by_epoch, eval_by_epoch;
	int zero_offload;    /* bits of enum config_offload, from DeepSpeed's keys */
	int64_t total_batch; /* rows of a step on one device: axolotl's batch_size */
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

/* Call after all layers. Turns save and evaluation strategies and counts per epoch into steps. */
int foreign_finish(struct foreign *f, struct config *c);
void foreign_free(struct foreign *f);

#endif
