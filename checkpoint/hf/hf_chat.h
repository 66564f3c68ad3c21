/* Files that training on chats adds to a model's directory.
 *
 * A base model has no chat template, and its eos_token_id is the end of a text, not of a turn. After
 * training on chats it answers in turns. Programs that load it must know its template and the ids to stop
 * at. transformers and others read the template from chat_template.jinja (before tokenizer_config.json).
 * They read the end ids from generation_config.json, or from config.json if that file is missing.
 */
#ifndef FERRY_CHECKPOINT_HF_HF_CHAT_H
#define FERRY_CHECKPOINT_HF_HF_CHAT_H

#include "checkpoint/hf/side_files.h"

#include <stdint.h>

enum { HF_CHAT_END_IDS_MAX = 16 };

/* Zero-initialised: no chats. */
struct hf_chat {
	char *template_text;   /* owned; NULL: the model's own files have it */
	const char *eos_token; /* the tokenizer's from now on; NULL: its own */
	int32_t end_ids[HF_CHAT_END_IDS_MAX];
	int end_id_count;
	int32_t text_end_ids[HF_CHAT_END_IDS_MAX]; /* end-of-text ids so far, if no file has them */
	int text_end_id_count;
};

/* Appends the end ids to eos_token_id in config.json and generation_config.json, replaces
 * chat_template.jinja, and sets eos_token in tokenizer_config.json. Skips ids that are listed already. Makes
 * a missing generation_config.json with the ids of config.json. Without end ids the eos_token_id stay.
 * ERR_INPUT (a file is invalid), ERR_NOMEM. */
int hf_chat_apply(const struct hf_chat *chat, struct side_files *side);

void hf_chat_free(struct hf_chat *chat);

#endif
