/* Private to foreign*.c and dialect.c: one setting of a file or the command line under a foreign key.
 */
#ifndef FERRY_CONFIG_FOREIGN_ITEM_H
#define FERRY_CONFIG_FOREIGN_ITEM_H

#include "config/foreign.h"

#define ITEM_OFF "off false no 0 none null"
#define ITEM_NOT_QUANTIZED "quantized weights are not supported yet, LoRA without quantization is; "
#define ITEM_BY_NAME "ferry chooses parameters by name; write "
#define ITEM_FREEZE_EXAMPLE "freeze='model\\.layers\\.[0-3]\\..*'"
#define ITEM_TRAINABLE_EXAMPLE                                                                               \
	"trainable='model\\.layers\\.3[01]\\..*' (layers 30 and 31), with finetuning_type=full"

/* The setting that is being translated. */
struct item {
	struct foreign *f;
	struct config *c;
	struct config_layer *layer;
	const char *name, *text;
	int line;
};

/* Sets a key of ferry. Messages name it as the file does. */
int item_set(const struct item *s, const char *key, const char *text, enum config_strength strength);

/* Appends the text to what this layer has set for the key, unless it is there already. */
int item_add(const struct item *s, const char *key);

/* Counts the setting among those without effect. */
int item_pass(const struct item *s);

/* Remembers that the setting is refused. Each reason is said once for all settings of a layer. */
int item_refuse(const struct item *s, const char *why);

/* Keeps a setting for later. */
int item_keep(struct foreign_item *kept, const struct item *s);
void item_kept_free(struct foreign_item *kept);

int item_is_off(const char *text);

/* FOREIGN_CALL: the function of this name. */
int item_call(const struct item *s, const char *name);

/* Sets a key of ferry to what a kept setting means. */
int item_meant(struct config *c, const struct foreign_item *kept, const char *key, const char *text);

/* Keys about LoRA (foreign_lora.c). */
int lora_switch(const struct item *s);
int lora_targets(const struct item *s);
int lora_targets_if(const struct item *s);
int lora_dropout(const struct item *s);
int lora_path(const struct item *s);
int lora_object(const struct item *s);

/* Keys about pairs (foreign_preference.c). */
int preference_loss_type(const struct item *s);
int preference_rl(const struct item *s);
int preference_cpo_alpha(const struct item *s);
int preference_pref_loss(const struct item *s);
int preference_stage(const struct item *s);

/* Sets what axolotl's type of a set of pairs means, and *format. Leaves *format for other types. */
int preference_set_type(const char **format, const struct item *s);

int foreign_preference_finish(struct foreign *f, struct config *c);
void foreign_preference_free(struct foreign_preference *p);

/* What a trainer does where its file leaves keys of LoRA out. ERR_INPUT: it needs them. */
int foreign_lora_finish(struct foreign *f, struct config *c);
void foreign_lora_free(struct foreign_lora *lora);

#endif
